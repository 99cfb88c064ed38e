"""One request on its way: to whom, on which connection, and its response back.

signed_in ─► decide ─► (pinned | pooled | new connection | wait) ─► connected: send ─► response ─► complete
               ▲                                          │
               └── refused: ask once more where to go ────┘
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gatepost.access.http.answers import RETRY_AFTER
from gatepost.access.http.basic import basic_line, name_line
from gatepost.access.http.response import Framing, binds, response_head
from gatepost.directory.port import SignInResult, User
from gatepost.organization.model import Protocol
from gatepost.routing.decision import Cause, Decision, Proxy, Redirect, Serve
from gatepost.wire.http_body import LAST_CHUNK, chunk
from gatepost.wire.http_cookies import passed_line
from gatepost.wire.http_head import END, HeadFault, ResponseReader, upgradable

if TYPE_CHECKING:
    from gatepost.access.http.client_leg import HttpClientLeg
    from gatepost.access.http.destination import Destination
    from gatepost.access.http.server_leg import HttpServerLeg

REPEATABLE = frozenset({b"GET", b"HEAD", b"OPTIONS", b"PROPFIND", b"REPORT", b"SEARCH", b"PUT", b"DELETE"})
"""Methods that may be sent again when a kept connection turns out to be closed (RFC 9110 section 9.2.2)."""
STATUS_OF_CAUSE = {Cause.NO_VIRTUAL_DIRECTORY: 404, Cause.OTHER_SITE: 403, Cause.NOT_SUPPORTED: 403}
"""What a refused decision looks like; all other causes are temporary: 503."""

_HTTPS = Protocol.HTTPS


class Exchange:
    """One request and its response. `over` is set when nothing may happen for it any more."""

    __slots__ = (
        "_again", "_framing", "_head", "_keep", "_path", "_query", "_request_id", "_response_begun", "_route",
        "_server", "_server_slow", "_status", "_timer", "_user", "_verbatim", "destination", "leg", "over",
    )  # fmt: skip

    def __init__(self, leg: HttpClientLeg, path: bytes, query: bytes, route: str, *, verbatim: bool = False) -> None:
        """`route` decides where to; with `verbatim` the server gets `path` unmapped."""
        self.leg = leg
        self.over = False
        self.destination: Destination
        self._path = path
        self._query = query
        self._route = route
        self._verbatim = verbatim
        self._user: User | None = None
        self._server: HttpServerLeg | None = None
        self._head = b""
        self._again = 0
        self._framing = Framing.AS_IS
        self._keep = True
        self._request_id = b""
        self._response_begun = False
        self._server_slow = False
        self._status = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def server_name(self) -> str:
        """Name of the server that the request goes to; empty while it is not decided."""
        return self.destination.server.name if self._user is not None and hasattr(self, "destination") else ""

    @property
    def takes_body(self) -> bool:
        """Whether the request's body can be passed on now."""
        return self._server is not None

    @property
    def server_is_slow(self) -> bool:
        """Whether the server's side has more of the body waiting than it should."""
        return self._server_slow

    # --- whose, and where to

    def signed_in(self, result: SignInResult) -> None:
        """The request is this user's: find its server."""
        assert result.user is not None
        self._user = result.user
        self.leg.count_user(result.user.name)
        self._decide()

    def _decide(self) -> None:
        leg = self.leg
        door = leg.door
        assert self._user is not None
        decision = door.router.decide(_HTTPS, self._user.mailbox, self._route)
        if type(decision) is not Serve and type(decision) is not Proxy:
            self._not_ours(decision)
            return
        destination = self.destination = door.destination(decision.target)
        if destination.fault:
            self.refuse(503, destination.fault, fields=RETRY_AFTER)
            return
        try:
            self._head = self._build()
        except HeadFault as fault:
            self.refuse(fault.status, fault.reason, close=fault.status == 400)
            return
        pinned = leg.pinned
        if pinned is not None:
            leg.pinned = None
            if pinned.pool is destination.pool and pinned.bound_to == self._user.name and not pinned.closed:
                self.connected(pinned)
                return
            pinned.abandon()
        server = destination.pool.take()
        if server is not None:
            self.connected(server)
        else:
            destination.pool.ask(self)

    def _not_ours(self, decision: Decision) -> None:
        if isinstance(decision, Redirect):
            location = decision.location.encode("ascii", "ignore")
            self.end()
            self.leg.answer(307, b"", fields=b"Location: %b\r\n" % location)
            return
        assert not isinstance(decision, Serve | Proxy)
        status = STATUS_OF_CAUSE.get(decision.cause, 503)
        self.refuse(status, decision.message, fields=RETRY_AFTER if status == 503 else b"")

    # --- waiting for a connection (the pool's side)

    def wait(self, seconds: float) -> Exchange:
        """Wait for a connection for at most `seconds`."""
        self._timer = self.leg.door.loop.call_later(seconds, self._waited)
        return self

    def wait_again(self) -> Exchange:
        """Back to the head of the queue, for the moment it takes to make room."""
        return self.wait(1.0)

    def stop_waiting(self) -> bool:
        """It is this exchange's turn; False when it has given up."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            return not self.over
        return False

    def _waited(self) -> None:
        self._timer = None
        if not self.over:
            self.refuse(503, "all connections to the server are in use", fields=RETRY_AFTER)

    def unreachable(self, reason: str, *, refused: bool) -> None:
        """No connection was to be had. The mailbox may have moved meanwhile: ask once more where it is (C10)."""
        if self.over:
            return
        assert self._user is not None
        if refused and not self._again:
            self._again = 1
            decision = self.leg.door.router.decide(_HTTPS, self._user.mailbox, self._route)
            if isinstance(decision, Serve | Proxy) and decision.target.server != self.destination.server.name:
                self._decide()
                return
        self.refuse(503, f"{self.destination.server.name}: {reason}", fields=RETRY_AFTER)

    # --- the request

    def connected(self, server: HttpServerLeg) -> None:
        """Send the request on `server`, which is ours until the response is complete."""
        leg = self.leg
        self._server = server
        server.begin(self)
        server.transport.write(self._head)
        if leg.body is not None:
            leg.pump()

    def _build(self) -> bytes:
        """The head for the server: nothing of the client's framing or of its word on itself is in it."""
        leg = self.leg
        reader = leg.reader
        destination = self.destination
        kept = reader.kept
        path = self._path if self._verbatim else destination.server_path(self._path)
        if path is None:
            raise HeadFault(400, "an ambiguous path")
        if leg.lines_for != (destination, self._user):
            leg.sign_in_line = self._sign_in_line()
            leg.lines_for = (destination, self._user)
        request_id = self._request_id = leg.request_id()
        parts = [
            reader.method, b" ", path, self._query, b" HTTP/1.1\r\nHost: ", destination.host, b"\r\n", *reader.passed,
            leg.forwarded, leg.sign_in_line, b"X-Request-Id: ", request_id, b"\r\nrequest-id: ", request_id, b"\r\n",
        ]  # fmt: skip
        if len(kept) > 2 or b"cookie" in kept:
            self._add_kept(parts, kept)
        parts.append(leg.door.via_line)
        if reader.chunked:
            parts.append(b"Transfer-Encoding: chunked\r\n\r\n")
        elif leg.body is not None or b"content-length" in kept:
            parts.append(b"Content-Length: %d\r\n\r\n" % reader.length)
        else:
            parts.append(b"\r\n")
        return b"".join(parts)

    def _add_kept(self, parts: list[bytes], kept: dict[bytes, bytes]) -> None:
        """Fields that need a look before they go on."""
        leg = self.leg
        host = kept.get(b"host", b"")
        if b"destination" in kept:
            url = self.destination.server_url(kept[b"destination"], host)
            if url is None:
                raise HeadFault(502, "the destination is on another server")
            parts.append(b"Destination: %b\r\n" % url)
        if b"if" in kept:
            parts.append(b"If: %b\r\n" % self.destination.server_conditions(kept[b"if"], host))
        if b"cookie" in kept:
            parts.append(passed_line(kept[b"cookie"]))
        if b"via" in kept:
            if leg.door.has_passed(kept[b"via"]):
                raise HeadFault(508, "the request has been here before")
            parts.append(b"Via: %b\r\n" % kept[b"via"])
        if b"expect" in kept and leg.body is not None and not leg.reader.http_1_0:
            parts.append(b"Expect: 100-continue\r\n")
        if leg.reader.upgrade:
            parts.append(b"Connection: Upgrade\r\nUpgrade: %b\r\n" % leg.reader.upgrade)

    def _sign_in_line(self) -> bytes:
        user = self._user
        credentials = self.leg.credentials
        assert user is not None
        assert credentials is not None
        if not self.destination.with_header:
            return basic_line(user.server_login, credentials[1])
        line = name_line(self.destination.server.sign_in.http_header, user.server_login)
        if line is None:
            raise HeadFault(503, "the user's name at the server fits no header")
        return line

    def request_body(self, payload: bytes, *, last: bool) -> None:
        """A piece of the request's body."""
        server = self._server
        assert server is not None
        if self.leg.reader.chunked:
            if payload:
                server.transport.write(chunk(payload))
            if last:
                server.transport.write(LAST_CHUNK)
        else:
            server.transport.write(payload)

    # --- the response

    def has_no_body(self, status: int) -> bool:
        """Whether a final response with this status ends with its head (RFC 9112 section 6.3)."""
        return status in {204, 304} or self.leg.reader.method == b"HEAD"

    def interim(self, reader: ResponseReader) -> None:
        """A 1xx response: passed on to clients that know them."""
        if not self.leg.reader.http_1_0:
            self.leg.write(b"".join((reader.status_line, *reader.passed, b"\r\n")))

    def response(self, server: HttpServerLeg, reader: ResponseReader, payload: bytes, *, bodiless: bool) -> bool:
        """The response's head and what came with it. False: it was not passed on and the connection is given up."""
        leg = self.leg
        status = self._status = reader.status
        if status == 401 or status == 407:
            # The user was judged right here: this is between the server and us (field case 76).
            self.refuse(503, "the server refused our sign-in", fields=RETRY_AFTER)
            return False
        if len(reader.kept) > 1 and binds(reader.kept):
            server.bind(self._user.name if self._user is not None else "")
        self._keep = not (leg.reader.close or leg.body is not None or leg.door.draining)
        framing, parts = response_head(
            reader, leg, self.destination, self._request_id, bodiless=bodiless, keep=self._keep
        )
        self._framing = framing
        self._response_begun = True
        if payload:
            parts.append(chunk(payload) if framing is Framing.CHUNKED else payload)
        leg.write(b"".join(parts))
        return True

    def response_body(self, payload: bytes) -> None:
        """A further piece of the response's body."""
        leg = self.leg
        leg.deadline = leg.door.loop.time() + leg.door.limits.http_response_seconds
        leg.write(chunk(payload) if self._framing is Framing.CHUNKED else payload)

    def response_complete(self, server: HttpServerLeg, *, reusable: bool) -> None:
        """The response is complete: the connection is free, and so is the client."""
        leg = self.leg
        if self._framing is Framing.CHUNKED:
            leg.write(LAST_CHUNK)
        self._server = None
        self.over = True
        server.end()
        if not reusable or leg.body is not None:
            server.abandon()
        elif server.bound_to:
            leg.pinned = server
        else:
            server.pool.give_back(server, leg.door.loop.time())
        if leg.door.log_requests:
            leg.door.request_done(leg, self._status, self._route, self)
        leg.exchange_over(keep=self._keep and self._framing is not Framing.UNTIL_CLOSE)

    def switched(self, server: HttpServerLeg, reader: ResponseReader, rest: bytes) -> None:
        """101: from here on bytes only pass (RFC 9110 section 7.8). One that was not asked for is a fault."""
        leg = self.leg
        if reader.status != 101 or not leg.reader.upgrade or leg.body is not None:
            server.abandon()
            self.server_failed("a protocol change that was not asked for", bad=True)
            return
        protocol = upgradable(reader.kept.get(b"upgrade", b""))
        head = (
            reader.status_line, *reader.passed, b"Connection: Upgrade\r\nUpgrade: %b\r\n" % protocol,
            self.destination.response_lines, self._request_id, END, rest,
        )  # fmt: skip
        leg.write(b"".join(head))
        if leg.door.log_requests:
            self._status = 101
            leg.door.request_done(leg, self._status, self._route, self)
        self.over = True
        self._server = None
        leg.start_relay(server)

    # --- faults

    def server_failed(self, reason: str, *, bad: bool = False, lost: HttpServerLeg | None = None) -> None:
        """The server broke off, or broke the protocol (`bad`). `lost` is the connection it closed."""
        if self.over:
            return
        leg = self.leg
        self._server = None
        if self._response_begun:
            self.end()
            leg.door.refused(leg, self._status, reason, self)
            leg.abort(reason)
        elif lost is not None and lost.used and not self._again and self._may_repeat():
            # A kept connection that the server closed just then: nothing came of the request (field case 19).
            self._again = 1
            self._decide()
        else:
            fields = b"" if bad else RETRY_AFTER
            self.refuse(502 if bad else 503, f"{self.destination.server.name}: {reason}", fields=fields)

    def _may_repeat(self) -> bool:
        reader = self.leg.reader
        return reader.method in REPEATABLE and not reader.length and not reader.chunked

    def fail(self, status: int, reason: str, *, close: bool) -> None:
        """The exchange cannot go on through the client's fault."""
        leg = self.leg
        if self._response_begun:
            self.end()
            leg.abort(reason)
        else:
            self.refuse(status, reason, close=close)

    def refuse(self, status: int, reason: str, *, fields: bytes = b"", close: bool = False) -> None:
        """End the exchange with an answer of our own and a log line."""
        self.end()
        leg = self.leg
        leg.door.refused(leg, status, reason, self)
        leg.answer(status, fields=fields, close=close)

    def expired(self) -> None:
        """The time for the response, or for the next piece of a body, is over."""
        if self._response_begun:
            self.end()
            self.leg.abort("a body stood still")
        elif self.leg.body is not None and self._server is not None:
            self.refuse(408, "the body took too long", close=True)
        else:
            self.refuse(503, "no response in time", fields=RETRY_AFTER)

    def client_gone(self) -> None:
        """The client has closed: the server need not go on (field case 21)."""
        self.end()

    def end(self) -> None:
        """Nothing more may happen for this exchange; a connection with an open request is closed."""
        self.over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        server, self._server = self._server, None
        if server is not None:
            server.abandon()

    # --- back-pressure

    def server_slow(self, *, slow: bool) -> None:
        """The server's side has too much of the request's body waiting, or takes it again."""
        self._server_slow = slow
        self.leg.update_reading()

    def client_slow(self, *, slow: bool) -> None:
        """The client has too much of the response waiting, or takes it again."""
        if self._server is not None:
            self._server.pause() if slow else self._server.resume()

    # --- the log

    @property
    def user_name(self) -> str:
        """Canonical name of the user, once signed in."""
        return self._user.name if self._user is not None else ""

    @property
    def request_id(self) -> str:
        """The id that server and client were given, or empty."""
        return self._request_id.decode()
