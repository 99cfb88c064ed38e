"""A next server that puts off each recipient (4xx), and mail to another one meanwhile. Part of `transport.py`.

So many messages with a recipient each are in the spool when the hub starts. Their smart host answers `450` to every
RCPT, so each is tried once and then waits for its own retry (15 minutes). Mail is relayed to a sink as in `relay` until
all have been put off, and again afterwards: that is what the first figures are compared with.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from gatepost.lab.servers.process import free_ports
from gatepost.service.operators import request
from gatepost.service.transport_messages import TransportReply, TransportRequest
from hubs import HUB_ADDRESS, SINK_ADDRESS, CountingSink, GatepostHub, HubFiles, resident
from long_queue import DEAD, DEAD_ADDRESS, KEPT, START_SECONDS, fill
from relaying import Case, Relayed, relay

PUTS_OFF = ("-r", "RCPT")
"""`smtp-sink` answers 450 to this command."""
WAIT_SECONDS = 600.0
POLL_SECONDS = 0.05


@dataclass
class PutOff:
    """A hub whose next server has put off `messages`. Times in seconds, memory in bytes."""

    messages: int
    seconds: float
    """From the first attempt until the last has been put off."""
    memory: int
    """Of the transport's process, then."""
    meanwhile: list[Relayed]
    afterwards: list[Relayed]

    @property
    def ratio(self) -> float:
        """Of the rates meanwhile and afterwards."""
        return middle(self.meanwhile) / middle(self.afterwards)


def middle(rounds: list[Relayed]) -> float:
    """The median of the rates; 0 without rounds."""
    return statistics.median(one.rate for one in rounds) if rounds else 0.0


def waiting(hub: GatepostHub) -> int:
    """How many messages have been put off."""
    found = request(hub.operators, TransportRequest("queues", {}), TransportReply).answer or []
    return sum(entry["deferred"] for entry in found if DEAD_ADDRESS in entry["next_hop_domain"])


def put_off(folder: Path, python: str, count: int, case: Case, rounds: int) -> PutOff:
    """Measure with `count` messages. Raises TimeoutError."""
    relayed = max(50, min(500, count // 40))
    sink = CountingSink(folder / "other", SINK_ADDRESS)
    later = CountingSink(folder / "later", DEAD_ADDRESS, "later", PUTS_OFF)
    port, begins_at = free_ports(HUB_ADDRESS, 1)[0], later.address[1]
    files = HubFiles(folder / "hub", HUB_ADDRESS, port, sink.address, more=DEAD.format(port=begins_at), connector=KEPT)
    hub = GatepostHub(files, python)
    fill(files.folder / "spool", count)
    with sink, later:
        hub.start()
        try:
            hub.wait_ready(START_SECONDS)
            hub.wait_until_greeted(START_SECONDS)
            begun = time.perf_counter()
            meanwhile: list[Relayed] = []
            done = waiting(hub)
            while done < count:
                one = relay(hub.pid, hub.ready[0], sink, case, relayed)
                done = waiting(hub)
                if done < count:  # otherwise a part of it was afterwards
                    meanwhile.append(one)
                if time.perf_counter() - begun > WAIT_SECONDS:
                    raise TimeoutError(f"{done} of {count} messages were put off\n{hub.log_tail()}")
            seconds, memory = time.perf_counter() - begun, resident(hub.transport())
            afterwards = [relay(hub.pid, hub.ready[0], sink, case, relayed) for _ in range(rounds)]
            return PutOff(count, seconds, memory, meanwhile, afterwards)
        finally:
            hub.stop()


def lines(found: PutOff) -> list[str]:
    """For people."""
    rates = f"{middle(found.meanwhile):,.0f}/s meanwhile, {middle(found.afterwards):,.0f}/s afterwards"
    head = f"{found.messages:,} put off in {found.seconds:.0f} s ({found.messages / found.seconds:,.0f}/s)"
    return [f"{head}, {found.memory / 1e6:,.0f} MB; to another: {rates}, ratio {found.ratio:.2f}"]
