"""What a long queue costs a hub: start, memory, and mail that goes elsewhere meanwhile. Part of `transport.py`.

So many messages wait for a next hop that refuses connections, as after days of its absence. They are put into the
spool beforehand, in large groups. Then the hub starts on it, and mail is relayed to a sink as in `relay`.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gatepost.lab.servers.process import free_ports
from gatepost.transport.message import Envelope, Recipient, Source
from gatepost.transport.spool.database import Group
from gatepost.transport.spool.layout import Layout
from gatepost.transport.spool.opening import open_spool
from hubs import HUB_ADDRESS, SINK_ADDRESS, CountingSink, GatepostHub, HubFiles, resident
from relaying import Case, Relayed, relay

DEAD_ADDRESS = "127.0.71.99"
DEAD = f"""
[send_connectors.Dead]
address_spaces = ["dead.example"]
source_servers = ["HUB-01"]
smart_hosts = ["{DEAD_ADDRESS}:{{port}}"]
tls = "none"
"""
KEPT = "max_messages_per_connection = 100"
QUEUED_BYTES = 500
GROUP = 5000
START_SECONDS = 180.0


@dataclass
class Queued:
    """A hub with `messages` waiting. Times in seconds, memory in bytes."""

    messages: int
    greets_after: float
    """From the start of the program until a client is greeted."""
    loaded_after: float
    """… until all messages are in their queues."""
    memory: int
    """Of the transport's process, then."""
    relayed: list[Relayed]
    memory_after: int
    """Of the process after mail has been relayed."""


def fill(spool: Path, count: int) -> None:
    """Put `count` messages for `dead.example` into the spool, as a hub would have left them."""
    opened = open_spool(Layout(spool), 0)
    try:
        encode = msgspec.msgpack.Encoder().encode
        now = time.time()
        body = os.urandom(QUEUED_BYTES // 2).hex().encode()
        first = opened.database.first_number
        for begin in range(first, first + count, GROUP):
            numbers = range(begin, min(begin + GROUP, first + count))
            group = Group(contents=[(number, body) for number in numbers])
            for number in numbers:
                envelope = Envelope(
                    "alice@contoso.com",
                    [Recipient(f"user{number}@dead.example")],
                    now,
                    now + 2 * 86400,
                    size=len(body),
                    source=Source("Load", "192.0.2.17", "mail.fabrikam.com", internal=True),
                    message_id=f"<20260101120000.{number}@mail.fabrikam.com>",
                    subject="Figures of the last quarter",
                )
                group.messages.append((number, encode(envelope)))
            opened.database.apply(group)
            if (begin - first) // GROUP % 20 == 0:
                opened.database.checkpoint()
        opened.database.checkpoint()
    finally:
        opened.database.close(first + count)
        opened.in_hand.close()
        opened.lock.release()


def queued(folder: Path, python: str, count: int, case: Case, rounds: int, relayed: int) -> Queued:
    """Measure with `count` messages in the queue. Raises TimeoutError."""
    sink = CountingSink(folder / f"sink-{count}", SINK_ADDRESS)
    port, dead = free_ports(HUB_ADDRESS, 1)[0], free_ports(DEAD_ADDRESS, 1)[0]
    files = HubFiles(
        folder / f"queued-{count}", HUB_ADDRESS, port, sink.address, more=DEAD.format(port=dead), connector=KEPT
    )
    hub = GatepostHub(files, python)
    if count:
        fill(files.folder / "spool", count)
    with sink:
        begun = time.perf_counter()
        hub.start()
        try:
            hub.wait_ready(START_SECONDS)
            hub.wait_until_greeted(START_SECONDS)
            greets_after = time.perf_counter() - begun
            while not hub.has_logged("spool.loaded"):
                if time.perf_counter() - begun > START_SECONDS:
                    raise TimeoutError(f"{count} messages were not loaded\n{hub.log_tail()}")
                time.sleep(0.02)
            loaded_after = time.perf_counter() - begun
            transport = hub.transport()
            memory = resident(transport)
            relay(hub.pid, hub.ready[0], sink, case, 200)
            done = [relay(hub.pid, hub.ready[0], sink, case, relayed) for _ in range(rounds)]
            return Queued(count, greets_after, loaded_after, memory, done, resident(transport))
        finally:
            hub.stop()


def lines(found: list[Queued]) -> list[str]:
    """For people."""
    shown = [
        f"{'queued':>9} {'greets s':>8} {'loaded s':>8} {'memory MB':>9} {'later':>6} {'through/s':>9} {'cpu µs':>7}"
    ]
    for one in found:
        middle = sorted(one.relayed, key=lambda r: r.cpu_all)[len(one.relayed) // 2]
        memory = f"{one.memory / 1e6:9,.0f} {one.memory_after / 1e6:6,.0f}"
        times = f"{one.greets_after:8.1f} {one.loaded_after:8.1f}"
        shown.append(f"{one.messages:9,} {times} {memory} {middle.rate:9,.0f} {middle.cpu_all:7,.0f}")
    return shown
