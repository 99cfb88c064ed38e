"""A connection to a mailbox server: its responses, one at a time, for the exchange that holds it."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, cast

from gatepost.access.mail_server import keep_alive
from gatepost.relay.relay import Relay
from gatepost.wire.http_body import Body, ChunkedBody, LengthBody, UntilClose
from gatepost.wire.http_fields import FieldRules
from gatepost.wire.http_head import END, MAX_RESPONSE_HEAD, HeadFault, ResponseReader

if TYPE_CHECKING:
    from gatepost.access.http.exchange import Exchange
    from gatepost.access.http.pool import Pool, ServerConnections

WRITE_HIGH_WATER = 256 * 1024
"""Bytes of a request body waiting for the server before the client is no longer read."""
KEEP_SECONDS = 60.0
"""An unused connection is closed after this: below the 65-120 s of most web servers, so that ours goes first."""
KEEP_MARGIN_SECONDS = 1.0
"""Where a server says how long it keeps one (`Keep-Alive: timeout=5`), ours goes this much earlier."""
MAX_INTERIM = 20
"""Interim (1xx) responses to one request."""


class HttpServerLeg(asyncio.Protocol):
    """One connection. `exchange` is set while a request is under way; without one every byte is unasked for."""

    __slots__ = (
        "_body", "_buffer", "_connections", "_counted", "_exchange", "_interim", "_paused", "_reader", "_relay",
        "bound_to", "closed", "idle_until", "keep_seconds", "pool", "transport", "used",
    )  # fmt: skip

    def __init__(self, rules: FieldRules, connections: ServerConnections, pool: Pool) -> None:
        self._connections = connections
        self._counted = True
        self._reader = ResponseReader(rules)
        self._exchange: Exchange | None = None
        self._buffer = b""
        self._body: Body | None = None
        self._interim = 0
        self._paused = False
        self._relay: Relay | None = None
        self.bound_to = ""
        """The user for whom the server took this connection (NTLM, Negotiate): nobody else may use it."""
        self.closed = False
        self.idle_until = 0.0
        self.keep_seconds = KEEP_SECONDS
        self.pool = pool
        self.used = False
        """It has carried a request before: the server may be closing it just now."""
        self.transport: asyncio.Transport

    # --- for the exchange and the pool

    def begin(self, exchange: Exchange) -> None:
        """The connection belongs to `exchange` until `end`."""
        self._exchange = exchange
        self._interim = 0

    def end(self) -> None:
        """The exchange is over; the connection may carry another."""
        self._exchange = None
        self.used = True
        if self._paused:
            self.resume()

    def abandon(self) -> None:
        """Close it now, whatever is under way."""
        self._exchange = None
        if not self.closed:
            self.closed = True
            self.transport.abort()

    def bind(self, user: str) -> None:
        """The server has signed `user` in on the connection itself."""
        self.bound_to = user

    def require_open(self) -> None:
        """Raises `ConnectionResetError` when the server has closed already."""
        if self.closed:
            raise ConnectionResetError("closed at once")

    def not_counted(self) -> None:
        """The pool has given its place back already."""
        self._counted = False
        if hasattr(self, "transport"):
            self.abandon()

    def pause(self) -> None:
        """The client cannot take more."""
        if not self.closed and not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """The client can take more."""
        if not self.closed and self._paused:
            self._paused = False
            self.transport.resume_reading()

    def hand_over(self, relay: Relay) -> None:
        """After 101 the transport is the relay's, but stays counted until `relay_ended`."""
        self._exchange = None
        self.closed = True
        self._relay = relay

    def relay_ended(self) -> None:
        """The relay has closed the transport."""
        self._reader.forget()
        self._connections.freed()

    # --- transport callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected, TLS done and verified."""
        # uvloop's transports are none of asyncio's classes, only alike.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        keep_alive(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes of a response."""
        exchange = self._exchange
        if exchange is None:
            self.abandon()
            return
        try:
            body = self._body
            if body is None:
                self._read_head(data, exchange)
            else:
                payload, used = body.take(data)
                if payload:
                    exchange.response_body(payload)
                if body.done:
                    self._complete(exchange, leftover=used != len(data))
        except HeadFault as fault:
            self.abandon()
            exchange.server_failed(fault.reason, bad=True)

    def _read_head(self, data: bytes, exchange: Exchange) -> None:
        reader = self._reader
        while True:
            if self._buffer:
                data, self._buffer = self._buffer + data, b""
            end = data.find(END)
            if end < 0 or end > MAX_RESPONSE_HEAD:
                if len(data) > MAX_RESPONSE_HEAD:
                    raise HeadFault(502, "the server's head is too large")
                self._buffer = data
                return
            end += 4
            reader.read(data[:end])
            data = data[end:]
            status = reader.status
            if status >= 200:
                break
            self._interim += 1
            if status == 101 or self._interim > MAX_INTERIM:
                exchange.switched(self, reader, data)
                return
            exchange.interim(reader)
            if not data:
                return
        # 204 and 304 end with their head, and so does what answers HEAD (RFC 9112 section 6.3).
        bodiless = status == 204 or status == 304 or exchange.leg.reader.method == b"HEAD"
        if bodiless or reader.length == len(data):
            # The usual case: all of it is here.
            if exchange.response(self, reader, b"" if bodiless else data, bodiless=bodiless):
                self._complete(exchange, leftover=bodiless and bool(data))
            return
        body = response_body(reader)
        payload, used = (b"", 0) if body.done else body.take(data)
        if exchange.response(self, reader, payload, bodiless=False):
            if body.done:
                self._complete(exchange, leftover=used != len(data))
            else:
                self._body = body

    def _complete(self, exchange: Exchange, *, leftover: bool) -> None:
        self._body = None
        if not self.used and b"keep-alive" in self._reader.kept:
            self.keep_seconds = _keep_seconds(self._reader.kept[b"keep-alive"])
        # Bytes after a response would be taken for the next one's: the connection has lost its place.
        exchange.response_complete(self, reusable=not leftover and not self._reader.close)

    def pause_writing(self) -> None:
        """The server is slow to take the request's body."""
        if self._exchange is not None:
            self._exchange.server_slow(slow=True)

    def resume_writing(self) -> None:
        """The server takes the body again."""
        if self._exchange is not None:
            self._exchange.server_slow(slow=False)

    def eof_received(self) -> bool:
        """The server has closed: the transport closes too."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone: the end of a body without a length, or a fault."""
        if self._relay is not None:
            # It was lost as the relay took over, and the loop had this protocol down for the news.
            self._relay.server_lost(exc)
            return
        self.closed = True
        self._reader.forget()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            body, self._body = self._body, None
            if type(body) is UntilClose and exc is None:
                exchange.response_complete(self, reusable=False)
            else:
                exchange.server_failed("the server closed the connection", lost=self)
        if self._counted:
            self._connections.freed()


def response_body(reader: ResponseReader) -> Body:
    """The body that follows this head (RFC 9112 section 6.3), for a response that may have one."""
    if reader.chunked:
        return ChunkedBody()
    return UntilClose() if reader.length is None else LengthBody(reader.length)


def _keep_seconds(field: bytes) -> float:
    found = re.search(rb"timeout=([0-9]{1,6})", field)
    return min(KEEP_SECONDS, int(found[1]) - KEEP_MARGIN_SECONDS) if found else KEEP_SECONDS
