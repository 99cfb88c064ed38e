"""The relay: what one transport reads, the other writes. One for all protocols.

    client ──► _Leg(client) ── write ──► server transport
    client transport ◄── write ── _Leg(server) ◄── server

Nothing is parsed and nothing is copied. Back-pressure: when a transport's write buffer is over its high water mark,
reading pauses on the other side. Both sides end together: a side that closes lets the other flush what it was given
and then closes it; a client's half-close is passed on where the server's side can take it (plain TCP), and is bounded.
Times are kept by a sweep over all relays (`Relay.sweep`), so that a packet costs no look at the clock.

A relay may be watched: somebody looks at the bytes after they have passed. Only a watched one can change its server,
between two pieces of its protocol, which whoever watches knows: `part`, then `rejoin` with another server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol as Port

HIGH_WATER = 256 * 1024
"""Bytes waiting for a slow reader before reading pauses; a session holds at most this and one read (256 KiB)."""

LINGER_SECONDS = 20.0
"""After one side has ended: how long the other may make no progress with what is left for it before it is cut."""


MAX_KEPT = 64 * 1024
"""Bytes that a client may send while its server changes; then reading pauses."""


class Watch(Port):
    """Looks at the bytes of a relay in the order in which they pass. It must not raise."""

    def client(self, data: bytes) -> None:
        """Bytes that the client sent."""
        ...

    def server(self, data: bytes) -> None:
        """Bytes that the server sent."""
        ...


class Changer(Port):
    """Who changes a parted relay's server."""

    def from_server(self, data: bytes) -> None:
        """Bytes of the server; nobody else gets them."""
        ...

    def server_lost(self) -> None:
        """The server went. The relay goes on."""
        ...

    def relay_ended(self) -> None:
        """The client went, and the relay with it."""
        ...


class _Leg(asyncio.Protocol):
    """One side. `write` is the other side's transport's; looked up once, it runs for every packet."""

    __slots__ = ("count", "lost", "name", "other", "relay", "transport", "write")

    def __init__(self, relay: Relay, name: str, transport: asyncio.Transport) -> None:
        self.relay = relay
        self.name = name
        self.transport = transport
        self.count = 0
        self.lost = False

    def pair(self, other: _Leg) -> None:
        self.other = other
        self.write: Callable[[bytes], object] = other.transport.write

    def data_received(self, data: bytes) -> None:
        self.count += len(data)
        self.write(data)

    def pause_writing(self) -> None:
        if not self.other.lost:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if not self.other.lost:
            self.other.transport.resume_reading()

    def eof_received(self) -> bool:
        """Pass a client's half-close on, so that it still gets its answer. A server that closes is done.

        TLS knows no half-close, there the side ends as a whole.
        """
        relay, other = self.relay, self.other
        if relay.parted is not None:
            return False
        relay.half_closed(f"{self.name} closed", by=self)
        if self.name == "server" or other.lost:
            return False
        if not (other.transport.can_write_eof() and self.transport.can_write_eof()):
            return False
        other.transport.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        if self.lost:  # told of it before, by the protocol that the transport had until the relay took over
            return
        self.lost = True
        self.relay.leg_lost(self, exc)

    def let_go(self) -> None:
        """Forget everybody else."""
        del self.relay, self.other, self.write, self.transport


class _WatchedLeg(_Leg):
    """A side that somebody looks at, after the bytes have passed."""

    __slots__ = ("look",)

    def __init__(self, relay: Relay, name: str, transport: asyncio.Transport, look: Callable[[bytes], object]) -> None:
        super().__init__(relay, name, transport)
        self.look = look

    def data_received(self, data: bytes) -> None:
        self.count += len(data)
        self.write(data)
        self.look(data)

    def let_go(self) -> None:
        del self.look
        super().let_go()


class _Dismissed(asyncio.Protocol):
    """What a server's transport is given that is not part of a relay any more."""


@dataclass(slots=True)
class _Parted:
    """The sides are apart."""

    changer: Changer
    to_server: Callable[[bytes], object]
    kept: bytearray
    """What the client has sent meanwhile."""


class Relay:
    """Two transports joined until both are gone; then `on_end(relay)` is called, once.

    `reason` says in a few words who ended it and how. Byte counts: `bytes_in` came from the client, `bytes_out` from
    the server. Make it, then `start`.
    """

    __slots__ = (
        "_client", "_ending", "_loop", "_on_end", "_quiet_since", "_seen", "_server", "_server_went", "_watch",
        "last_words", "parted", "reason",
    )  # fmt: skip

    def __init__(
        self,
        client: asyncio.Transport,
        server: asyncio.Transport,
        on_end: Callable[[Relay], None],
        watch: Watch | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_end = on_end
        self._watch = watch
        self.parted: _Parted | None = None
        """Set while the server is being changed."""
        if watch is None:
            self._client = _Leg(self, "client", client)
            self._server = _Leg(self, "server", server)
        else:
            self._client = _WatchedLeg(self, "client", client, watch.client)
            self._server = _WatchedLeg(self, "server", server, watch.server)
        self._client.pair(self._server)
        self._server.pair(self._client)
        self._seen = 0
        self._quiet_since = self._loop.time()
        self._ending = False
        self._server_went = False
        """The server ended the relay, without having been asked to."""
        self.last_words: Callable[[], bytes] | None = None
        """What the client is told when the server goes without a word."""
        self.reason = ""

    def __repr__(self) -> str:
        state = self.reason or "open"
        return f"<Relay {state} in={self.bytes_in} out={self.bytes_out}>"

    @property
    def bytes_in(self) -> int:
        """Bytes relayed from the client."""
        return self._client.count

    @property
    def bytes_out(self) -> int:
        """Bytes relayed from the server."""
        return self._server.count

    def start(self, to_client: bytes = b"", to_server: bytes = b"", *, client_full: bool = False) -> None:
        """Take both transports over; from now on they belong to the relay.

        `to_client` and `to_server` go first. `client_full`: the client's transport has told its protocol to stop
        writing, and will not say so again; it tells the relay when there is room.
        """
        for leg in (self._client, self._server):
            leg.transport.set_write_buffer_limits(high=HIGH_WATER)
            leg.transport.set_protocol(leg)
            leg.transport.resume_reading()
        if client_full:
            self._client.pause_writing()
        watch = self._watch
        if to_client:
            self._client.transport.write(to_client)
        if to_server:
            self._server.transport.write(to_server)
            if watch is not None:
                watch.client(to_server)

    def note(self, reason: str) -> None:
        """Say why the relay ends; the first reason is kept."""
        if not self.reason:
            self.reason = reason

    def half_closed(self, reason: str, by: _Leg | None = None) -> None:
        """One side will say no more; the rest must go on moving or is cut after the linger time."""
        self.note(reason)
        if not self._ending:
            self._server_went = by is self._server
        self._ending = True
        self._quiet_since = self._loop.time()

    def close(self, reason: str, farewell: bytes = b"") -> None:
        """End both sides after what was written; `farewell` is the last thing the client gets."""
        self.half_closed(reason)
        if farewell and not self._client.lost:
            self._client.transport.write(farewell)
        for leg in (self._server, self._client):
            if not leg.lost:
                leg.transport.close()

    def leave(self, reason: str, farewell: bytes) -> None:
        """End the server's side now, so that it gets nothing more, and the client's after `farewell`."""
        self.half_closed(reason)
        if not self._server.lost:
            self._server.transport.abort()
        if not self._client.lost:
            if farewell:
                self._client.transport.write(farewell)
            self._client.transport.close()

    @property
    def unsent(self) -> int:
        """Bytes that wait for a side to take them."""
        return sum(leg.transport.get_write_buffer_size() for leg in (self._client, self._server) if not leg.lost)

    def abort(self, reason: str) -> None:
        """End both sides at once."""
        self.note(reason)
        for leg in (self._server, self._client):
            if not leg.lost:
                leg.transport.abort()

    # --- another server

    @property
    def client_has_all(self) -> bool:
        """Whether the client has everything that was written to it."""
        return not self._client.lost and self._client.transport.get_write_buffer_size() == 0

    @property
    def ended(self) -> bool:
        """Whether an end has begun."""
        return self._ending or bool(self.reason)

    def part(self, changer: Changer) -> None:
        """Take the sides apart: what the client sends from now on is kept, `changer` gets what the server sends."""
        client, server = self._client, self._server
        assert isinstance(client, _WatchedLeg)
        assert isinstance(server, _WatchedLeg)
        kept = bytearray()

        def keep(data: bytes) -> None:
            kept.extend(data)
            if len(kept) > MAX_KEPT:
                client.transport.pause_reading()

        def not_for_the_client(data: bytes) -> None:
            server.count -= len(data)
            changer.from_server(data)

        client.write, client.look = keep, _ignore
        server.write, server.look = not_for_the_client, _ignore
        self.parted = _Parted(changer, server.transport.write, kept)

    def to_client(self, data: bytes) -> None:
        """Say something to the client of a parted relay in the server's place."""
        self._server.count += len(data)
        self._client.transport.write(data)

    def to_server(self, data: bytes) -> None:
        """Say something to the server of a parted relay."""
        assert self.parted is not None
        if not self._server.lost:
            self.parted.to_server(data)

    def rejoin(self, server: asyncio.Transport, to_client: bytes, rest: bytes) -> None:
        """Go on with another server, whose transport does not read yet.

        First the client gets `to_client`, then `rest`, which came from the new server already; what was kept of the
        client goes there. The server before gets no more word, and its connection is closed.
        """
        parted, watch, client, before = self.parted, self._watch, self._client, self._server
        assert parted is not None
        assert watch is not None
        assert isinstance(client, _WatchedLeg)
        self.parted = None
        leg = _WatchedLeg(self, "server", server, watch.server)
        leg.count = before.count + len(to_client)
        self._server = leg
        client.pair(leg)
        leg.pair(client)
        client.look = watch.client
        if not before.lost:
            before.lost = True
            before.transport.set_protocol(_Dismissed())
            before.transport.close()
        before.let_go()
        server.set_write_buffer_limits(high=HIGH_WATER)
        server.set_protocol(leg)
        if to_client:
            client.transport.write(to_client)
        if rest:
            leg.data_received(rest)
        if parted.kept:
            server.write(bytes(parted.kept))
            watch.client(bytes(parted.kept))
        client.transport.resume_reading()
        if client.transport.get_write_buffer_size() <= HIGH_WATER:
            server.resume_reading()  # else the client says when it has room

    def client_lost(self, exc: Exception | None) -> None:
        """The client was lost while its old protocol was still the one to be told."""
        self._client.connection_lost(exc)

    def server_lost(self, exc: Exception | None) -> None:
        """Likewise the server."""
        self._server.connection_lost(exc)

    def leg_lost(self, leg: _Leg, exc: Exception | None) -> None:
        """A side is gone: let the other flush and close."""
        parted = self.parted
        if parted is not None:
            if leg is self._server and not self._client.lost:
                parted.changer.server_lost()
                return
            parted.changer.relay_ended()
        self.half_closed(f"{leg.name} {'lost: ' + type(exc).__name__ if exc else 'closed'}", by=leg)
        if leg.other.lost:
            self._on_end(self)
            self._let_go()
            return
        if self._server_went and self.last_words is not None and (words := self.last_words()):
            leg.other.transport.write(words)
        leg.other.transport.close()

    def _let_go(self) -> None:
        """Undo the circle of references, so that all of it is freed now and not by a later search for garbage."""
        for leg in (self._client, self._server):
            leg.let_go()
        self._watch = self.parted = self.last_words = None
        del self._on_end

    def sweep(self, now: float, idle_seconds: float, farewell: bytes) -> None:
        """End the relay if nothing passed for `idle_seconds`, or cut it if its end makes no progress.

        Uploads and downloads both count as activity (field case 20). `now` is the loop's time.
        """
        if self.parted is not None and not self._ending:
            return
        seen = self._client.count + self._server.count
        for leg in (self._client, self._server):
            if not leg.lost:
                seen -= leg.transport.get_write_buffer_size()
        if seen != self._seen:
            self._seen = seen
            self._quiet_since = now
        elif self._ending:
            if now - self._quiet_since > LINGER_SECONDS:
                self.abort(self.reason)
        elif now - self._quiet_since > idle_seconds:
            self.close("idle", farewell)


def _ignore(_: bytes) -> None:
    """Nobody looks."""
