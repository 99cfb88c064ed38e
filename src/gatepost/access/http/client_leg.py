"""A client's connection: its requests in their order, one under way at a time.

Callbacks only: a request that finds its sign-in remembered and a connection in the pool costs no task and no timer.
Deadlines are kept in `deadline` and looked at by the door's sweep, once a second.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, cast

from gatepost.access.addresses import client_address
from gatepost.access.http import front
from gatepost.access.http.answers import answer
from gatepost.access.http.connection import MAX_AHEAD, HttpConnection, Phase
from gatepost.wire.http_body import ChunkedBody, LengthBody
from gatepost.wire.http_head import END, MAX_TARGET, HeadFault
from gatepost.wire.proxy_protocol import ProxyHeader

if TYPE_CHECKING:
    from gatepost.access.http.asked import Asked
    from gatepost.access.http.door import HttpDoor
    from gatepost.access.http.forms.signed import Signed
    from gatepost.access.http.identity import Identity
    from gatepost.directory.kerberos_port import KerberosExchange

WRITE_HIGH_WATER = 256 * 1024
"""Bytes of responses waiting for a slow client before the server is no longer read."""
MAX_DROPPED = 64 * 1024
"""Octets of a body that are read and dropped to keep the connection after an answer that did not need it."""


class HttpClientLeg(HttpConnection):
    """One client connection."""

    __slots__ = (
        "_ahead", "_dropped", "_looping", "_written_full", "asked", "asked_host", "asked_target", "asked_under",
        "authorization", "cookie_field", "cookies", "credentials", "forwarded", "identity", "max_head", "negotiation",
        "origin",
        "own_cookies", "signed",
    )  # fmt: skip

    is_peer = False
    """The other end is another front end, which vouches for the users of its requests (SPEC C11)."""

    def __init__(self, door: HttpDoor, *, tls: bool, proxy: ProxyHeader | None = None) -> None:
        super().__init__(door, tls=tls, proxy=proxy)
        self.authorization: bytes | None = None
        self.negotiation: KerberosExchange | None = None
        """Waits for the client's next token (RFC 4559); the request after this one has it, or it is given up."""
        self.credentials: tuple[str, str] | None = None
        """What `authorization`, the last one seen, decodes to."""
        self.cookie_field: bytes | None = None
        self.cookies = b""
        """What of `cookie_field`, the last one seen, goes on to servers."""
        self.own_cookies: dict[bytes, bytes] = {}
        """Cookies of ours in it, by name."""
        self.signed: Signed | None = None
        """What our sign-in cookie in it says, where it is good."""
        self.identity: Identity | None = None
        """Who the last request was from."""
        self.forwarded = b""
        self.asked: Asked | None = None
        """What `asked_target` at `asked_host` asks for under the configuration `asked_under`; None: nothing of ours."""
        self.asked_host: bytes | None = None
        self.asked_target = b""
        self.asked_under: object = None
        self.origin = b""
        self.max_head = door.limits.http_head_bytes
        self._ahead = False
        self._dropped = 0
        self._looping = False
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
            if end < 0 or end + 4 > self.max_head:
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
        if len(data) > self.max_head:
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
        self._id = b""
        try:
            reader.read(head)
            self.phase = Phase.BUSY
            self.deadline = door.loop.time() + door.limits.http_response_seconds
            self.body = ChunkedBody() if reader.chunked else LengthBody(reader.length) if reader.length else None
            front.begin(self)
        except HeadFault as fault:
            self.refuse_head(fault)

    def peer_identity(self) -> Identity | None:
        """Whose the current request is by the word of the peer; None: it is answered already. Only where `is_peer`."""
        raise NotImplementedError

    # --- the request's body

    def invite_body(self) -> None:
        """Tell a client that asked first to send its body (RFC 9110 section 10.1.1)."""
        if b"expect" in self.reader.kept and not self.reader.http_1_0 and not self._buffer:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

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

    # --- answers

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
        close = close or reader.close or uncertain or self.leaving or self.door.draining
        self.write(
            answer(
                status,
                body,
                fields=b"X-FEServer: %b\r\nrequest-id: %b\r\n%b" % (self.door.name, self.request_id(), fields),
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
        if keep and self.body is None and not self.leaving and not self.door.draining:
            self._next()
        elif self.body is not None or self._buffer:
            self.linger()
        else:
            self.close("")

    def expired(self) -> None:
        """The deadline has passed (called by the door's sweep)."""
        if self.phase is not Phase.BUSY and self.still_sending():
            return
        if self.phase is Phase.IDLE:
            if self._buffer:
                self.refuse_head(HeadFault(408, "the head took too long"))
            else:
                self.close("" if self.requests else "no request")
        elif self.phase is Phase.BUSY and self.exchange is not None:
            self.exchange.expired()
        elif self.phase is Phase.LINGERING and not self.transport.is_closing():
            self.close("")
        else:
            self.abort("too slow")

    def _next(self) -> None:
        """Wait for the next request, or take the one that has come already."""
        self.phase = Phase.IDLE
        self._unsent = sys.maxsize
        self.deadline = self.door.loop.time() + self.door.limits.http_keep_alive_seconds
        if self._ahead or not self._reading:
            self._ahead = False
            self.update_reading()
        if self._buffer:
            self._requests(0)
