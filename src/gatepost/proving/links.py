"""Links between hubs that a proving can cut: what is sent meanwhile arrives later, or all connections end.

Each hub reaches each other one by a port of its own, where this passes on to the real one. A thread of its own does it,
so that hubs can talk while the proving waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import cast

import uvloop

from gatepost.lab.servers.process import Address, free_ports

Ends = tuple[str, str]
"""Who connects, and to whom."""
STOP_SECONDS = 5.0


class Links:
    """Started at once; `ports` says where the first of two hubs reaches the second."""

    def __init__(self, servers: dict[str, Address]) -> None:
        """`servers`: where each hub takes mail of other hubs. Raises OSError."""
        self._servers = servers
        pairs = [(one, other) for one in servers for other in servers if one != other]
        self.ports: dict[Ends, int] = {pair: free_ports(servers[pair[1]][0], 1)[0] for pair in pairs}
        self._cut: set[Ends] = set()
        self._refused: set[Ends] = set()
        self._passing: dict[Ends, set[Passing]] = {pair: set() for pair in pairs}
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Future[None]
        self._ready = threading.Event()
        self._fault: OSError | None = None
        self._thread = threading.Thread(target=lambda: uvloop.run(self._serve()), name="links", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._fault is not None:
            raise self._fault

    def cut(self, name: str, others: Iterable[str], *, refuse: bool = False) -> None:
        """Nothing passes between `name` and `others`, in either direction, until `mend`. With `refuse` connections end
        at once, else nobody hears of it."""
        pairs = {pair for other in others for pair in ((name, other), (other, name))}
        self._loop.call_soon_threadsafe(self._set, *((set[Ends](), pairs) if refuse else (pairs, set[Ends]())))

    def mend(self) -> None:
        """All links again."""
        self._loop.call_soon_threadsafe(self._set, set[Ends](), set[Ends]())

    def close(self) -> None:
        """End it, and its connections. Safe twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set_result, None)
            self._thread.join(STOP_SECONDS)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = self._loop.create_future()
        servers: list[asyncio.AbstractServer] = []
        try:
            for pair, port in self.ports.items():
                host = self._servers[pair[1]][0]
                servers.append(await self._loop.create_server(partial(self._accepted, pair), host, port))
            self._ready.set()
            await self._stop
        except OSError as fault:
            self._fault = fault
        finally:
            self._ready.set()
            for server in servers:
                server.close()
            for passing in [one for found in self._passing.values() for one in found]:
                passing.end()
            await asyncio.gather(*(server.wait_closed() for server in servers))

    def _accepted(self, pair: Ends) -> Passing:
        found = self._passing[pair]
        return Passing(self._servers[pair[1]], found, is_cut=pair in self._cut, is_refused=pair in self._refused)

    def _set(self, cut: set[Ends], refused: set[Ends]) -> None:
        self._cut, self._refused = cut, refused
        for pair, found in self._passing.items():
            for passing in list(found):
                if pair in refused:
                    passing.end()
                else:
                    passing.hold(is_cut=pair in cut)


class Passing(asyncio.Protocol):
    """One connection, and the one that goes on from it."""

    def __init__(self, address: Address, all_of_them: set[Passing], *, is_cut: bool, is_refused: bool) -> None:
        self._address = address
        self._all = all_of_them
        self._is_cut = is_cut
        self._is_refused = is_refused
        self._early: list[bytes] = []
        self._near: asyncio.Transport | None = None
        self._far: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Go on to the real one, now or when the link is mended, or not at all."""
        self._near = cast(asyncio.Transport, transport)
        if self._is_refused:
            self._near.abort()
            return
        self._all.add(self)
        self.hold(is_cut=self._is_cut)

    def data_received(self, data: bytes) -> None:
        """To the far end."""
        if self._far is None:
            self._early.append(data)
        else:
            self._far.write(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the other end is told the same way
        """The far end hears of it."""
        self.end()

    def hold(self, *, is_cut: bool) -> None:
        """Nothing passes while the link is cut."""
        self._is_cut = is_cut
        for transport in (self._near, self._far):
            if transport is not None and not transport.is_closing():
                with suppress(RuntimeError):
                    (transport.pause_reading if is_cut else transport.resume_reading)()
        if not is_cut and self._far is None and self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def back(self, data: bytes) -> None:
        """From the far end."""
        if self._near is not None:
            self._near.write(data)

    def end(self) -> None:
        """Both connections. Safe twice."""
        self._all.discard(self)
        if self._connecting is not None:
            self._connecting.cancel()
        for transport in (self._near, self._far):
            if transport is not None:
                transport.close()

    async def _connect(self) -> None:
        try:
            far, _ = await asyncio.get_running_loop().create_connection(lambda: Returning(self), *self._address)
        except OSError:
            self.end()
            return
        self._far = far
        for data in self._early:
            self._far.write(data)
        self._early.clear()
        self.hold(is_cut=self._is_cut)


class Returning(asyncio.Protocol):
    """What the far end says."""

    def __init__(self, passing: Passing) -> None:
        self._passing = passing

    def data_received(self, data: bytes) -> None:
        """Back to the near end."""
        self._passing.back(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the other end is told the same way
        """The near end hears of it."""
        self._passing.end()
