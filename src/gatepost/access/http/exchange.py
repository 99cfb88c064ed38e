"""One request on its way: to whom, on which connection, and its response back.

signed_in ─► decide ─► (pinned | pooled | new connection | wait) ─► connected: send ─► response ─► complete
               ▲                                          │
               └── refused: ask once more where to go ────┘
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gatepost.access.http import choosing, request_head
from gatepost.access.http.choosing import Choice
from gatepost.access.http.connection import Upgraded
from gatepost.access.http.event_stream import EventStream, event_stream
from gatepost.access.http.movable import Movable
from gatepost.access.http.not_ours import answer_not_ours
from gatepost.access.http.response import Framing, binds, peer_refusal, response_head
from gatepost.access.http.ticket_wait import with_lines
from gatepost.organization.model import PathClass, Protocol
from gatepost.routing.outcome import Cause, Redirect, Refuse, Target
from gatepost.wire.activesync import follows_451
from gatepost.wire.fencing import MISDIRECTED
from gatepost.wire.http_body import LAST_CHUNK, chunk
from gatepost.wire.http_fields import passed_value
from gatepost.wire.http_head import END, HeadFault, ResponseReader, upgradable

if TYPE_CHECKING:
    from gatepost.access.http.asked import Asked
    from gatepost.access.http.client_leg import HttpClientLeg
    from gatepost.access.http.server_leg import HttpServerLeg

TELL_SECONDS = 1.0
"""Between two words to the health service that a server answers; a failure is told at once, and the next answer too."""

_HTTPS = Protocol.HTTPS
_NOT_OURS = (Redirect, Refuse)


class Exchange(Movable):
    """One request and its response. `over` is set when nothing may happen for it any more."""

    __slots__ = (
        "_framing", "_has_slot", "_head", "_keep", "_server_slow", "_status", "sent_at", "stream",
    )  # fmt: skip

    def __init__(self, leg: HttpClientLeg, asked: Asked) -> None:
        self.leg = leg
        self.asked = asked
        self.over = False
        self.epoch = 0
        self.sent_at = 0.0
        """When the request went to the server, the loop's time."""
        self.stream: EventStream | None = None
        """The response, if it is one that ends only when somebody ends it."""
        self.collected = None
        self._choice = None
        self._extra = b""
        self._server = None
        self._head = b""
        self._again = 0
        self._asked_anew = False
        self._patience = None
        self._replay = None
        self._replay_size = 0
        self._framing = Framing.AS_IS
        self._keep = True
        self._response_begun = False
        self._server_slow = False
        self._status = 0
        self._has_slot = False
        self._waits_for = None

    @property
    def takes_body(self) -> bool:
        """Whether the request's body can be passed on now."""
        return self._server is not None

    @property
    def has_slot(self) -> bool:
        """Whether it counts among the requests under way."""
        return self._has_slot

    @property
    def server_is_slow(self) -> bool:
        """Whether the server's side has more of the body waiting than it should."""
        return self._server_slow

    # --- where to

    def decide(self) -> None:
        """`identity` and `mailbox` are known: find the server."""
        leg = self.leg
        mailbox = self.mailbox
        moving = leg.door.parking.moving
        if moving and mailbox.database in moving:
            self.park()
            return
        route = self.asked.route
        if self.asked.kind is PathClass.DEVICE:
            version = passed_value(leg.reader.passed, b"ms-asprotocolversion")
            follows = follows_451(version)
            decision = leg.door.router.decide(_HTTPS, mailbox, route, follows_451=follows, from_peer=leg.is_peer)
        elif leg.is_peer:
            decision = leg.door.router.decide(_HTTPS, mailbox, route, from_peer=True)
        else:
            decision = leg.door.router.decide(_HTTPS, mailbox, route)
        if isinstance(decision, _NOT_OURS):
            answer_not_ours(self, decision)
            return
        self.epoch = decision.epoch
        if len(decision.candidates) > 1:
            choice = choosing.choose(self, decision)
            if choice is not None:
                self.chosen(choice)
        else:
            self._choice = None
            self._go(decision.target)

    def chosen(self, choice: Choice) -> None:
        """The candidates are in order."""
        self._choice = choice
        target = choice.next()
        assert target is not None  # there are at least two
        self._go(target)

    def _go(self, target: Target) -> None:
        leg = self.leg
        door = leg.door
        destination = self.destination = door.destination(target)
        if destination.fault:
            self.refuse(503, destination.fault)
            return
        asked = self.asked
        path = asked.path if asked.verbatim else destination.server_path(asked.path)
        try:
            self._head = request_head.build(self, path, asked.query)
        except HeadFault as fault:
            self.refuse(fault.status, fault.reason, close=fault.status == 400)
            return
        pinned = leg.pinned
        if pinned is not None:
            leg.pinned = None
            if pinned.pool is destination.pool and pinned.bound_to == self.user_name and not pinned.closed:
                self.connected(pinned)
                return
            pinned.abandon()
        server = destination.pool.take()
        if server is not None:
            self.connected(server)
        else:
            self._waits_for = destination.pool
            destination.pool.ask(self)

    # --- waiting (the slots' and the pool's side)

    def enter(self) -> None:
        """Go on when this worker has room for one more request (SPEC B4)."""
        slots = self.leg.door.slots
        if slots.enter(self.identity.user.name, self):
            self._has_slot = True
            self.decide()
        elif not self.over:
            self._waits_for = slots

    def let_in(self) -> None:
        """There is room now."""
        self._waits_for = None
        self._has_slot = True
        self.decide()

    def turned_away(self, reason: str) -> None:
        """There is none: the client is told to come back."""
        self._waits_for = None
        if not self.over:
            self.refuse(503, f"too many requests under way: {reason}", cause=Cause.BUSY)

    def unreachable(self, reason: str, *, refused: bool) -> None:
        """No connection was to be had: try the next candidate, or ask once more where the mailbox is (C10)."""
        self._waits_for = None
        if self.over:
            return
        if refused:
            self._tell_failure(reason)
            if self._try_next():
                return
            if self._choice is None and not self._again and self._moved():
                self._again = 1
                self.decide()
                return
            if self._await_new_home():
                return
        cause = Cause.NO_ANSWER if refused else Cause.BUSY
        self.refuse(503, f"{self.destination.server.name}: {reason}", cause=cause)

    # --- the request

    def send(self, server: HttpServerLeg, lines: bytes = b"") -> None:
        """Send the request on `server`, which is ours until the response is complete; `lines` are more of its head."""
        leg = self.leg
        self._waits_for = None
        self._server = server
        self.sent_at = leg.door.loop.time()
        destination = self.destination
        if self.sent_at >= destination.tell_at:
            # Nothing was heard of it lately: if it does not answer this one, probes find out.
            leg.door.health.watch(destination.server.name, self.asked.service)
        server.begin(self)
        server.transport.write(with_lines(self._head, lines) if lines else self._head)
        if self._replay:
            for payload, last in self._replay:
                self._send_body(server, payload, last=last)
        if self.collected is not None:
            # A request with a body is not sent twice: nobody needs it any more, and the answer may take an hour.
            self.collected, self._head = None, b""
        if leg.body is not None:
            self._keep_body()
            leg.pump()

    # --- the response

    def interim(self, reader: ResponseReader) -> None:
        """A 1xx response: passed on to clients that know them."""
        if not self.leg.reader.http_1_0:
            self.leg.write(b"".join((reader.status_line, *reader.passed, b"\r\n")))

    def response(self, server: HttpServerLeg, reader: ResponseReader, payload: bytes, *, bodiless: bool) -> bool:
        """The response's head and what came with it. False: it was not passed on and the connection is given up."""
        leg = self.leg
        status = self._status = reader.status
        destination = self.destination
        if status == MISDIRECTED and not destination.peer:
            self._misdirected()
            return False
        now = leg.door.loop.time()
        if now >= destination.tell_at:
            destination.tell_at = now + TELL_SECONDS
            leg.door.health.connected(destination.server.name, self.asked.service)
        if destination.service and status == 401:
            self.ticket_refused()
        if destination.peer and (refused := peer_refusal(reader.kept, status)) is not None:
            self.refuse(*refused)
            return False
        if status == 401 or status == 407:
            # The user was judged right here: this is between the server and us (field case 76).
            self.refuse(503, "the server refused our sign-in")
            return False
        if len(reader.kept) > 1 and binds(reader.kept):
            server.bind(self.user_name)
        self._keep = not (leg.reader.close or leg.body is not None or leg.leaving or leg.door.draining)
        if self._choice is not None:
            self._extra += self._choice.taken(self, destination.target)
            self._choice = None
        framing, parts = response_head(
            reader, leg, destination, leg.request_id(), bodiless=bodiless, keep=self._keep, extra=self._extra
        )
        self._framing = framing
        self._response_begun = True
        if framing is Framing.CHUNKED:
            self.stream = event_stream(reader, self.asked.service)
            if self.stream is not None:
                self.stream.feed(payload)
        if payload:
            parts.append(chunk(payload) if framing is Framing.CHUNKED else payload)
        leg.write(b"".join(parts))
        return True

    def response_body(self, payload: bytes) -> None:
        """A further piece of the response's body."""
        leg = self.leg
        leg.deadline = leg.door.loop.time() + leg.door.limits.http_response_seconds
        if self.stream is not None:
            self.stream.feed(payload)
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
        self._has_slot = False
        leg.door.slots.leave()
        if leg.door.log_requests:
            leg.door.request_done(leg, self._status, self.asked.route, self)
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
            self.destination.lines_about(reader.kept), leg.request_id(), END, rest,
        )  # fmt: skip
        leg.write(b"".join(head))
        if leg.door.log_requests:
            self._status = 101
            leg.door.request_done(leg, self._status, self.asked.route, self)
        self.over = True
        self._server = None
        self._leave()
        upgraded = Upgraded(protocol, self.user_name, self.database, self.server_name, self.epoch)
        leg.start_relay(server, upgraded, rest)

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
            self.decide()
        else:
            self._tell_failure(reason)
            if lost is not None and self._may_repeat() and self._try_next():
                return
            if lost is not None and not self._again and self._may_run_twice():
                self._again = 1
                if self._await_new_home():
                    return
            cause = None if bad else Cause.NO_ANSWER
            self.refuse(502 if bad else 503, f"{self.destination.server.name}: {reason}", cause=cause)

    def server_dead(self) -> None:
        """Nobody is there any more (probes say so). What has no answer yet does not wait for one that may come.

        Where there is no other candidate a request that may have been carried out goes on waiting: it must not be sent
        again, and the server may only be busy, and come to it.
        """
        server = self._server
        if self.over or self._response_begun or server is None or (self._choice is None and not self._may_repeat()):
            return
        self._server = None
        server.abandon()
        if not (self._may_repeat() and self._try_next()):
            self.refuse(503, f"{self.destination.server.name}: dead, by its probes", cause=Cause.NO_ANSWER)

    # --- the database has moved, or an operator ends the connection

    def end_stream(self) -> None:
        """End the response where the client takes it for complete and asks again."""
        leg = self.leg
        leg.write(LAST_CHUNK)
        self.end()
        leg.exchange_over(keep=False)

    def break_off(self, reason: str) -> None:
        """Let the client see that its response is not complete."""
        self.end()
        self.leg.abort(reason)

    def end(self) -> None:
        """Nothing more may happen for this exchange; a connection with an open request is closed."""
        self.over = True
        if self._waits_for is not None:
            self._waits_for.give_up(self)
            self._waits_for = None
        self._leave()
        server, self._server = self._server, None
        if server is not None:
            server.abandon()

    def _leave(self) -> None:
        if self._has_slot:
            self._has_slot = False
            self.leg.door.slots.leave()

    # --- back-pressure

    def server_slow(self, *, slow: bool) -> None:
        """The server's side has too much of the request's body waiting, or takes it again."""
        self._server_slow = slow
        self.leg.update_reading()

    def client_slow(self, *, slow: bool) -> None:
        """The client has too much of the response waiting, or takes it again."""
        if self._server is not None:
            self._server.pause() if slow else self._server.resume()
