"""The relay: what one transport reads, the other writes. One for all protocols.

    client ──► _Leg(client) ── write ──► server transport
    client transport ◄── write ── _Leg(server) ◄── server

Nothing is parsed and nothing is copied. Back-pressure: when a transport's write buffer is over its high water mark,
reading pauses on the other side. Both sides end together: a side that closes lets the other flush what it was given
and then closes it; a client's half-close is passed on where the server's side can take it (plain TCP), and is bounded.
Times are kept by a sweep over all relays (`Relay.sweep`), so that a packet costs no look at the clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

HIGH_WATER = 256 * 1024
"""Bytes waiting for a slow reader before reading pauses; a session holds at most this and one read (256 KiB)."""

LINGER_SECONDS = 20.0
"""After one side has ended: how long the other may make no progress with what is left for it before it is cut."""


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
        self.write = other.transport.write

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
        relay.half_closed(f"{self.name} closed")
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


class Relay:
    """Two transports joined until both are gone; then `on_end(relay)` is called, once.

    `reason` says in a few words who ended it and how. Byte counts: `bytes_in` came from the client, `bytes_out` from
    the server. Make it, then `start`.
    """

    __slots__ = ("_client", "_ending", "_loop", "_on_end", "_quiet_since", "_seen", "_server", "reason")

    def __init__(self, client: asyncio.Transport, server: asyncio.Transport, on_end: Callable[[Relay], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_end = on_end
        self._client = _Leg(self, "client", client)
        self._server = _Leg(self, "server", server)
        self._client.pair(self._server)
        self._server.pair(self._client)
        self._seen = 0
        self._quiet_since = self._loop.time()
        self._ending = False
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
        if to_client:
            self._client.transport.write(to_client)
        if to_server:
            self._server.transport.write(to_server)

    def note(self, reason: str) -> None:
        """Say why the relay ends; the first reason is kept."""
        if not self.reason:
            self.reason = reason

    def half_closed(self, reason: str) -> None:
        """One side will say no more; the rest must go on moving or is cut after the linger time."""
        self.note(reason)
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

    def abort(self, reason: str) -> None:
        """End both sides at once."""
        self.note(reason)
        for leg in (self._server, self._client):
            if not leg.lost:
                leg.transport.abort()

    def client_lost(self, exc: Exception | None) -> None:
        """The client was lost while its old protocol was still the one to be told."""
        self._client.connection_lost(exc)

    def server_lost(self, exc: Exception | None) -> None:
        """Likewise the server."""
        self._server.connection_lost(exc)

    def leg_lost(self, leg: _Leg, exc: Exception | None) -> None:
        """A side is gone: let the other flush and close."""
        self.half_closed(f"{leg.name} {'lost: ' + type(exc).__name__ if exc else 'closed'}")
        if leg.other.lost:
            self._on_end(self)
            self._let_go()
        else:
            leg.other.transport.close()

    def _let_go(self) -> None:
        """Undo the circle of references, so that all of it is freed now and not by a later search for garbage."""
        for leg in (self._client, self._server):
            del leg.relay, leg.other, leg.write, leg.transport
        del self._on_end

    def sweep(self, now: float, idle_seconds: float, farewell: bytes) -> None:
        """End the relay if nothing passed for `idle_seconds`, or cut it if its end makes no progress.

        Uploads and downloads both count as activity (field case 20). `now` is the loop's time.
        """
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
