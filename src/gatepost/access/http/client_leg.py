"""A client's connection: its requests in their order, one under way at a time.

Callbacks only: a request that finds its sign-in remembered and a connection in the pool costs no task and no timer.
Deadlines are kept in `deadline` and looked at by the door's sweep, once a second.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

from gatepost.access.addresses import client_address
from gatepost.access.http import front
from gatepost.access.http.answers import answer
from gatepost.relay.relay import Relay
from gatepost.wire.http_body import Body, ChunkedBody, LengthBody
from gatepost.wire.http_head import END, MAX_TARGET, HeadFault, RequestReader
from gatepost.wire.proxy_protocol import ProxyHeader

if TYPE_CHECKING:
    from gatepost.access.http.door import HttpDoor
    from gatepost.access.http.exchange import Exchange
    from gatepost.access.http.server_leg import HttpServerLeg

WRITE_HIGH_WATER = 256 * 1024
"""Bytes of responses waiting for a slow client before the server is no longer read."""
MAX_AHEAD = 64 * 1024
"""Bytes that a client may send ahead of its turn (pipelined requests, a body before the server is reached)."""
MAX_DROPPED = 64 * 1024
"""Octets of a body that are read and dropped to keep the connection after an answer that did not need it."""
LINGER_SECONDS = 2.0
"""After the last answer: how long late bytes are still dropped, so that a reset does not overtake the answer."""
MAX_USERS_COUNTED = 1000
"""Names of users kept for the log line of one connection."""


class Phase(Enum):
    """Where a connection is; the word is the one in `sessions`."""

    IDLE = "idle"
    """Waits for a request head, or for the rest of one."""
    BUSY = "busy"
    """A request is under way; its body, if any, goes to the exchange as it comes."""
    DROPPING = "dropping"
    """The request is answered; the rest of its body is dropped."""
    LINGERING = "lingering"
    """The last answer is written; whatever comes is dropped until the client closes."""
    RELAYING = "relaying"
    CLOSED = "closed"


class HttpClientLeg(asyncio.Protocol):
    """One client connection."""

    __slots__ = (
        "_ahead", "_buffer", "_dropped", "_looping", "_reading", "_reason", "_since", "_written_full", "address",
        "admitted", "authorization", "body", "bytes_in", "bytes_out", "credentials", "deadline", "door", "exchange",
        "forwarded", "last_host", "last_path", "last_target", "lines_for", "origin", "phase", "pinned",
        "proxy", "reader", "relay", "requests", "session", "settled", "sign_in_line", "tls", "transport", "users",
    )  # fmt: skip

    def __init__(self, door: HttpDoor, *, tls: bool, proxy: ProxyHeader | None = None) -> None:
        self.door = door
        self.tls = tls or (proxy is not None and proxy.tls)
        self.proxy = proxy
        self.reader = RequestReader(door.request_rules, door.limits.http_headers)
        self.phase = Phase.IDLE
        self.body: Body | None = None
        """What is still to come of the current request's body."""
        self.exchange: Exchange | None = None
        self.relay: Relay | None = None
        self.pinned: HttpServerLeg | None = None
        """A server connection bound to this client's user, closed with this connection."""
        self.authorization: bytes | None = None
        self.credentials: tuple[str, str] | None = None
        """What `authorization`, the last one seen, decodes to."""
        self.sign_in_line = b""
        self.lines_for: tuple[object, object] = (None, None)
        self.forwarded = b""
        self.last_host: bytes | None = None
        self.last_target = b""
        self.last_path = (b"", b"", "")
        """Path, query and route of a request for `last_target` at `last_host`."""
        self.origin = b""
        self.users: set[str] = set()
        self.requests = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.settled = False
        self.admitted = False
        self.session = ""
        self._buffer = b""
        self._ahead = False
        self._dropped = 0
        self._looping = False
        self._reading = True
        self._reason = ""
        self._written_full = False

    # --- transport callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        door = self.door
        # uvloop's transports are none of asyncio's classes, only alike.
        self.transport = cast(asyncio.Transport, transport)
        self.address = client_address(transport, self.proxy)
        self._since = door.loop.time()
        self.deadline = self._since + door.limits.http_head_seconds
        self.session = door.new_session()
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        if not door.enter(self):
            self._reason = "too many connections"
            self.phase = Phase.LINGERING
            self.write(answer(503, fields=b"Retry-After: 10\r\n", close=True))
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        self.bytes_in += len(data)
        phase = self.phase
        if phase is Phase.IDLE:
            if self._buffer:
                searched = len(self._buffer)
                self._buffer += data
            else:
                searched = 0
                self._buffer = data
            self._requests(searched)
        elif phase is Phase.BUSY or phase is Phase.DROPPING:
            self._buffer = self._buffer + data if self._buffer else data
            if self.body is not None:
                self.pump()
            if len(self._buffer) > MAX_AHEAD:
                self._ahead = True
                self.update_reading()

    def eof_received(self) -> bool:
        """A client that closes its side is gone: a long poll must not outlive it (field case 21)."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, and with it what was done for it."""
        if self.phase is Phase.RELAYING or self.phase is Phase.CLOSED:
            return
        if exc is not None:
            self._reason = self._reason or f"client lost: {type(exc).__name__}"
        self.finish()

    def pause_writing(self) -> None:
        """The client is slow to read."""
        self._written_full = True
        if self.exchange is not None:
            self.exchange.client_slow(slow=True)

    def resume_writing(self) -> None:
        """The client reads again."""
        self._written_full = False
        if self.exchange is not None:
            self.exchange.client_slow(slow=False)
        elif self.phase is Phase.IDLE:
            self._requests(0)

    # --- requests

    def _requests(self, searched: int) -> None:
        """Take the requests that are complete; answers of our own come at once, so this is a loop, not a recursion.

        The first `searched` octets of the buffer were there before, and held no complete head.
        """
        if self._looping:
            return
        self._looping = True
        while self.phase is Phase.IDLE and self._buffer and not self._written_full:
            data = self._buffer
            if data[0] in b"\r\n":
                # Empty lines before a request are allowed (RFC 9112 section 2.2).
                data = self._buffer = data.lstrip(b"\r\n")
                searched = 0
                if not data:
                    break
            end = data.find(END, searched - 3 if searched > 3 else 0)
            if end < 0 or end + 4 > self.door.limits.http_head_bytes:
                self._incomplete(data, searched)
                break
            end += 4
            searched = 0
            if end == len(data):
                self._buffer = b""
                self._request(data)
            else:
                self._buffer = data[end:]
                self._request(data[:end])
        self._looping = False

    def _incomplete(self, data: bytes, searched: int) -> None:
        """The head is not complete: is it still one that can become good?"""
        if len(data) > self.door.limits.http_head_bytes:
            line_end = data.find(b"\r\n")
            too_long = line_end < 0 or line_end > MAX_TARGET + 32
            self.refuse_head(HeadFault(414 if too_long else 431, "head too large"))
            return
        position = data.find(b"\n", searched)
        while position >= 0:
            if data[position - 1 : position] != b"\r":
                self.refuse_head(HeadFault(400, "a line that ends with a bare LF"))
                return
            position = data.find(b"\n", position + 1)
        if searched == 0:
            self.deadline = self.door.loop.time() + self.door.limits.http_head_seconds

    def _request(self, head: bytes) -> None:
        reader = self.reader
        door = self.door
        self.requests += 1
        try:
            reader.read(head)
            self.phase = Phase.BUSY
            self.deadline = door.loop.time() + door.limits.http_response_seconds
            self.body = ChunkedBody() if reader.chunked else LengthBody(reader.length) if reader.length else None
            front.begin(self)
        except HeadFault as fault:
            self.refuse_head(fault)

    # --- the request's body

    def pump(self) -> None:
        """Give the exchange what has come of the request's body, if it takes it; drop it if the answer is out."""
        body = self.body
        exchange = self.exchange
        if body is None or not (self.phase is Phase.DROPPING or (exchange is not None and exchange.takes_body)):
            self.update_reading()
            return
        if self._buffer:
            try:
                payload, used = body.take(self._buffer)
            except HeadFault as fault:
                self._bad_body(fault)
                return
            self._buffer = self._buffer[used:] if used != len(self._buffer) else b""
            if body.done:
                self.body = None
            if self.phase is Phase.DROPPING:
                self._drop(len(payload))
                return
            assert exchange is not None
            self.deadline = self.door.loop.time() + (
                self.door.limits.http_response_seconds if body.done else self.door.limits.idle_seconds
            )
            exchange.request_body(payload, last=body.done)
        self._ahead = False
        self.update_reading()

    def _bad_body(self, fault: HeadFault) -> None:
        self.body = None
        if self.exchange is not None:
            self.exchange.fail(400, fault.reason, close=True)
        else:
            self.close(fault.reason)

    def _drop(self, size: int) -> None:
        self._dropped += size
        if self.body is None:
            self._next()
        elif self._dropped > MAX_DROPPED:
            self.linger()
        else:
            self.update_reading()

    def update_reading(self) -> None:
        """Read from the client, or do not, as things stand."""
        exchange = self.exchange
        wanted = len(self._buffer) <= MAX_AHEAD or self.phase is Phase.LINGERING
        if exchange is not None and self.body is not None and exchange.server_is_slow:
            wanted = False
        if wanted != self._reading and not self.transport.is_closing():
            self._reading = wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    # --- answers

    def write(self, data: bytes) -> None:
        """Write to the client, and count it."""
        self.bytes_out += len(data)
        self.transport.write(data)

    def refuse_head(self, fault: HeadFault) -> None:
        """A request that cannot be understood is answered, and nothing after it is read."""
        self.body = None
        self.exchange = None
        self.door.refused(self, fault.status, fault.reason)
        self._reason = fault.reason
        fields = b"Allow: GET, HEAD, POST, PUT, DELETE, OPTIONS\r\n" if fault.status == 405 else b""
        self.write(answer(fault.status, fields=fields, close=True))
        self.linger()

    def answer(
        self,
        status: int,
        body: bytes | None = None,
        *,
        fields: bytes = b"",
        content_type: bytes = b"",
        close: bool = False,
    ) -> None:
        """Answer the current request ourselves. What has not come of its body is dropped, or the connection ends."""
        reader = self.reader
        exchange, self.exchange = self.exchange, None
        if self.door.log_requests:
            self.door.request_done(self, status, reader.target.partition(b"?")[0].decode("ascii", "replace"), exchange)
        # A client that expects 100 may send its body or not: nobody can tell where its next request begins.
        uncertain = self.body is not None and b"expect" in reader.kept
        close = close or reader.close or uncertain or self.door.draining
        self.write(
            answer(
                status,
                body,
                fields=b"X-FEServer: %b\r\nrequest-id: %b\r\n%b" % (self.door.name, self.door.new_request_id(), fields),
                content_type=content_type or b"text/plain; charset=utf-8",
                close=close,
                head_only=reader.method == b"HEAD",
            )
        )
        if close:
            self.linger() if self.body is not None or self._buffer else self.close("")
        elif self.body is not None:
            self.phase = Phase.DROPPING
            self._dropped = 0
            self.deadline = self.door.loop.time() + self.door.limits.http_head_seconds
            self.pump()
        else:
            self._next()

    def exchange_over(self, *, keep: bool) -> None:
        """The exchange's response is complete."""
        self.exchange = None
        if keep and self.body is None and not self.door.draining:
            self._next()
        elif self.body is not None or self._buffer:
            self.linger()
        else:
            self.close("")

    def _next(self) -> None:
        """Wait for the next request, or take the one that has come already."""
        self.phase = Phase.IDLE
        self.deadline = self.door.loop.time() + self.door.limits.http_keep_alive_seconds
        if self._ahead or not self._reading:
            self._ahead = False
            self.update_reading()
        if self._buffer:
            self._requests(0)

    # --- the end

    def linger(self) -> None:
        """The last answer is written: drop what still comes, then close."""
        self.body = None
        self._buffer = b""
        if self.phase is Phase.CLOSED or self.phase is Phase.LINGERING:
            return
        self.phase = Phase.LINGERING
        self.deadline = self.door.loop.time() + LINGER_SECONDS
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()
        self.update_reading()

    def close(self, reason: str) -> None:
        """End the connection after what was written."""
        self._reason = self._reason or reason
        if self.phase is not Phase.CLOSED:
            self.phase = Phase.LINGERING
            self.deadline = self.door.loop.time() + LINGER_SECONDS
            self.transport.close()

    def abort(self, reason: str) -> None:
        """End the connection at once: the client must see that something is missing."""
        self._reason = self._reason or reason
        if self.phase is not Phase.CLOSED:
            self.phase = Phase.LINGERING
            self.transport.abort()

    def cut(self, reason: str) -> None:
        """End the connection at once, whatever it is doing."""
        if self.relay is not None:
            self.relay.abort(reason)
        else:
            self.abort(reason)

    def expired(self) -> None:
        """The deadline has passed (called by the door's sweep)."""
        if self.phase is Phase.IDLE:
            if self._buffer:
                self.refuse_head(HeadFault(408, "the head took too long"))
            else:
                self.close("" if self.requests else "no request")
        elif self.phase is Phase.BUSY and self.exchange is not None:
            self.exchange.expired()
        else:
            self.abort("too slow")

    def finish(self) -> None:
        """The connection is gone: release everything, write the log line."""
        self.phase = Phase.CLOSED
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            self._reason = self._reason or "client closed within a request"
            exchange.client_gone()
        if self.pinned is not None:
            self.pinned.abandon()
            self.pinned = None
        self.reader.forget()
        self.door.leave(self, self._reason, self.door.loop.time() - self._since)

    def start_relay(self, server: HttpServerLeg) -> None:
        """After 101: what the client has sent ahead goes first, then bytes only pass."""
        self.exchange = None
        self.phase = Phase.RELAYING
        ahead, self._buffer = self._buffer, b""
        self.door.relays.add(self)
        transport = server.hand_over()
        if ahead:
            transport.write(ahead)
        self.relay = Relay(self.transport, transport, lambda relay: self._relay_ended(relay, server))
        self.relay.start()

    def _relay_ended(self, relay: Relay, server: HttpServerLeg) -> None:
        server.relay_ended()
        self.door.relays.discard(self)
        self.bytes_in += relay.bytes_in
        self.bytes_out += relay.bytes_out
        self._reason = relay.reason
        self.relay = None
        self.finish()

    def describe(self) -> dict[str, Any]:
        """One entry of `sessions`."""
        return {
            "session": self.session,
            "protocol": "https" if self.tls else "http",
            "phase": self.phase.value,
            "client": self.address[0],
            "users": sorted(self.users),
            "server": self.exchange.server_name if self.exchange is not None else "",
            "requests": self.requests,
            "seconds": round(self.door.loop.time() - self._since, 3),
        }

    def count_user(self, name: str) -> None:
        """A request of `name` was let in."""
        if name not in self.users and len(self.users) < MAX_USERS_COUNTED:
            self.users.add(name)
        if not self.settled:
            self.settled = True
            self.door.settle(self)
