"""Two hubs, one of which keeps the shadows of what the other takes, for `transport.py`: relay, and waiting for the 250.

smtp-source ──► HUB-01 ──────────► sink
                  └─ shadows ─► HUB-02
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import uvloop

from gatepost.lab.servers.gatepost import write_configuration
from gatepost.lab.servers.process import Address, ServerProcess, free_ports
from gatepost.proving.senders import DOMAIN
from gatepost.proving.shadow_cast import (
    OFF,
    certificates,
    front_end_table,
    organization_tables,
)
from gatepost.service.operators import ask
from hubs import CountingSink
from relaying import Case

ADDRESSES = {"HUB-01": "127.0.72.1", "HUB-02": "127.0.72.2"}
SINK_ADDRESS = "127.0.72.9"
RECIPIENT = f"bob@{DOMAIN}"
WAIT_SECONDS = 60.0
SHARES = (50, 99)
"""Percentiles."""


@dataclass
class Pair:
    """Both hubs and the sink; clients send to `listens`."""

    hubs: list[ServerProcess]
    sink: CountingSink
    listens: Address

    @property
    def pids(self) -> list[int]:
        """Of both: what the shadow costs counts too."""
        return [hub.pid for hub in self.hubs]

    def counters(self) -> dict[str, int]:
        """Of the first hub's transport. Raises OSError."""
        status = ask(self.hubs[0].directory / "gatepost-HUB-01.sock").transport
        return dict(status.counters or {}) if status else {}

    def stop(self) -> None:
        """End them."""
        for server in (*self.hubs, self.sink):
            server.stop()


def start_pair(folder: Path, python: str, *, shadows: bool) -> Pair:
    """Started and greeted; both run also without shadows. Raises `ServerMissing`."""
    sink = CountingSink(folder / "sink", SINK_ADDRESS)
    ports = {
        name: dict(zip(("clients", "servers"), free_ports(address, 2), strict=True))
        for name, address in ADDRESSES.items()
    }
    tables = organization_tables(ADDRESSES, ports, sink.address)
    tables["organization"]["transport"] = {} if shadows else OFF
    for connector in tables["send_connectors"].values():
        connector["max_messages_per_connection"] = 100
    hubs = []
    for name, files in certificates(folder / "pki", tables, ADDRESSES).items():
        own = folder / name.lower()
        file = write_configuration(own / "hub.toml", front_end_table(own, name, files), tables)
        argv = [python, "-m", "gatepost", "serve", "-c", str(file)]
        hubs.append(ServerProcess(name, argv, own, [(ADDRESSES[name], port) for port in ports[name].values()]))
    pair = Pair(hubs, sink, (ADDRESSES["HUB-01"], ports["HUB-01"]["clients"]))
    try:
        for server in (sink, *pair.hubs):
            server.start()
        for server in (sink, *pair.hubs):
            server.wait_ready()
        acknowledgements(pair.listens, Case(1000, 1, kept=True), 5, 5.0)  # as soon as it greets
    except BaseException:
        pair.stop()
        raise
    return pair


def acknowledgements(listens: Address, case: Case, count: int, rate: float) -> list[float]:
    """Send `count` messages, `rate` a second over all sessions, and answer how long each waited for its 250: seconds
    from the last dot. Raises OSError, TimeoutError."""
    return uvloop.run(_send_all(listens, case, count, rate))


async def _send_all(listens: Address, case: Case, count: int, rate: float) -> list[float]:
    loop = asyncio.get_running_loop()
    waited: list[float] = []
    began = loop.time()

    async def send(first: int) -> None:
        _, protocol = await loop.create_connection(Client, *listens)
        client = cast(Client, protocol)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await client.hello()
                for number in range(first, count, case.sessions):
                    await asyncio.sleep(began + number / rate - loop.time())
                    waited.append(await client.send(case.size))
        finally:
            client.close()

    await asyncio.gather(*(send(first) for first in range(case.sessions)))
    return waited


class Client(asyncio.Protocol):
    """One session; a command, its reply, and so on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._reply: asyncio.Future[bytes] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """From the loop."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """A reply, or a part of one."""
        self._buffer += data
        last = self._buffer.rstrip(b"\r\n").rpartition(b"\n")[2]
        if self._buffer.endswith(b"\n") and last[3:4] != b"-" and not self._reply.done():
            self._reply.set_result(last)

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever waits hears of it."""
        if not self._reply.done():
            self._reply.set_exception(exc or ConnectionError("the session has ended"))
            self._reply.exception()

    def close(self) -> None:
        """At once."""
        self._transport.abort()

    async def hello(self) -> None:
        """Until mail may be sent. Raises OSError."""
        await self._expect(b"220")
        await self._say(b"EHLO bench.example\r\n", b"250")

    async def send(self, size: int) -> float:
        """One message; how long the last reply took. Raises OSError."""
        await self._say(b"MAIL FROM:<alice@example.com>\r\n", b"250")
        await self._say(b"RCPT TO:<%s>\r\n" % RECIPIENT.encode(), b"250")
        await self._say(b"DATA\r\n", b"354")
        line = b"x" * 76 + b"\r\n"
        content = b"From: <alice@example.com>\r\nSubject: bench\r\n\r\n" + line * (size // len(line))
        before = time.perf_counter()
        await self._say(content + b".\r\n", b"250")
        return time.perf_counter() - before

    async def _say(self, words: bytes, code: bytes) -> None:
        self._buffer, self._reply = b"", self._loop.create_future()
        self._transport.write(words)
        await self._expect(code)

    async def _expect(self, code: bytes) -> None:
        reply = await self._reply
        if not reply.startswith(code):
            raise ConnectionError(reply.decode("ascii", "replace"))


@dataclass
class Waits:
    """How long clients waited for the 250, in milliseconds, by rate and by whether there was a shadow: a list a round,
    each of the percentiles `SHARES`."""

    on: dict[str, list[list[float]]] = field(default_factory=dict)
    off: dict[str, list[list[float]]] = field(default_factory=dict)

    def added(self, name: str) -> list[float]:
        """What the shadow adds, in milliseconds: the median over neighbours, for each of `SHARES`."""
        pairs = list(zip(self.on[name], self.off[name], strict=True))
        return [statistics.median(on[place] - off[place] for on, off in pairs) for place in range(len(SHARES))]

    def lines(self) -> list[str]:
        """For people."""
        found = [f"{'waiting for the 250, ms':64} {'p50':>8} {'p99':>8}"] if self.on else []
        for name in self.on:
            for peer, rounds in (("two hubs", self.on[name]), ("off", self.off[name])):
                middle = [statistics.median(one[place] for one in rounds) for place in range(len(SHARES))]
                found.append(f"{f'{name}, {peer}':64} " + " ".join(f"{value:8.2f}" for value in middle))
            found.append(f"{f'{name}, added':64} " + " ".join(f"{value:8.2f}" for value in self.added(name)))
        return found


def percentiles(waited: Sequence[float]) -> list[float]:
    """`SHARES` of these seconds, in milliseconds."""
    ordered = sorted(waited)
    return [1000 * ordered[min(len(ordered) - 1, len(ordered) * share // 100)] for share in SHARES]
