"""A request that is under way, as far as it can go to another server: because the database has moved, is being moved,
or is to be opened elsewhere since its server is gone.

    nothing sent yet        waits for the new home, whatever the method: nothing can have come of it
    sent, no answer         once more, on the new server, where the method and the headers leave no doubt (RFC 9110
                            section 9.2.2); else the client is told to look and to come back
    answered 421            it was not processed (section 15.5.20): once more, after a look at the registry, if all of
                            it is still there
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from typing import Protocol as Port

from gatepost.access import tasks
from gatepost.access.http.refusable import Refusable
from gatepost.access.http.ticket_wait import TicketWait
from gatepost.access.parking import TOO_LONG, TOO_MANY, Patience
from gatepost.organization.model import Protocol
from gatepost.routing.outcome import Cause, Proxy, Serve, Target
from gatepost.wire.http_body import LAST_CHUNK, chunk
from gatepost.wire.http_fields import passed_value

if TYPE_CHECKING:
    from gatepost.access.http.choosing import Choice
    from gatepost.access.http.exchange import Exchange
    from gatepost.access.http.server_leg import HttpServerLeg

SAFE = frozenset({b"GET", b"HEAD", b"OPTIONS", b"PROPFIND", b"REPORT", b"SEARCH"})
"""Methods that change nothing (RFC 9110 section 9.2.1)."""

REPEATABLE = SAFE | {b"PUT", b"DELETE"}
"""Methods that may be sent again when a kept connection turns out to be closed (RFC 9110 section 9.2.2)."""

MAX_REPLAYED = 64 * 1024
"""Octets of a body that are kept to be sent again: the queries of calendars and address books are a few hundred."""

_CONDITIONS = (b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since")


class Place(Port):
    """Where an exchange waits."""

    def give_up(self, exchange: Exchange, /) -> None:
        """It waits no more."""
        ...


class _Question:
    """The registry is being asked."""

    def give_up(self, exchange: Exchange, /) -> None:
        """The answer will find nobody."""


class Movable(Refusable):
    """The part of an `Exchange` that takes it to another server. `Exchange` sets the attributes, all at once."""

    __slots__ = (
        "_again",
        "_asked_anew",
        "_choice",
        "_patience",
        "_replay",
        "_replay_size",
        "_waits_for",
        "collected",
        "over",
    )

    collected: bytes | None
    """The whole body, where it was wanted before the decision."""
    over: bool
    _again: int
    """It has been sent once more already."""
    _asked_anew: bool
    _choice: Choice | None
    _patience: Patience | None
    _replay: list[tuple[bytes, bool]] | None
    """What has been sent of the body, to be sent again; None: it is not kept, or has become too large."""
    _replay_size: int
    _waits_for: Place | None

    def decide(self) -> None:
        """Find the server and go there."""
        raise NotImplementedError

    def _go(self, target: Target) -> None:
        """Go to this server."""
        raise NotImplementedError

    # --- what it is doing

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for its turn, for a connection to a server, or for its database."""
        return self._waits_for is not None

    def waits_for(self, place: Place) -> bool:
        """Whether it is there that it waits."""
        return self._waits_for is place

    # --- a ticket with the request

    def connected(self, server: HttpServerLeg) -> None:
        """`server` is a connection for the request, which goes at once, or when its ticket is there."""
        if not self.destination.service:
            self.send(server)
            return
        wait = self._waits_for = TicketWait(cast("Exchange", self), server)
        wait.start()

    def send(self, server: HttpServerLeg, lines: bytes = b"") -> None:
        """Send the request on `server`; `lines` are more of its head."""
        raise NotImplementedError

    def no_ticket(self, reason: str) -> None:
        """No ticket is to be had: a fault between servers, for the client a temporary one."""
        self._waits_for = None
        self.refuse(503, f"{self.destination.server.name}: {reason}")

    def ticket_refused(self) -> None:
        """The server did not take it: the next one is a new one."""
        onward = self.leg.door.sign_in.onward
        if onward is None:
            return
        if self.destination.peer:
            onward.peer_refused(self.destination.service)
        else:
            onward.refused(self.user_name, self.destination.service)

    @property
    def is_sent(self) -> bool:
        """Whether the request is at a server, and its response not begun."""
        return self._server is not None and not self._response_begun

    @property
    def is_answered(self) -> bool:
        """Whether the response has begun."""
        return self._response_begun

    @property
    def is_safe(self) -> bool:
        """Whether it may be sent to another server, whatever came of it at this one."""
        return self.leg.reader.method in SAFE and self._may_repeat()

    # --- other servers

    def _try_next(self) -> bool:
        """Go to the next candidate; False: there is none."""
        following = self._choice.next() if self._choice is not None else None
        if following is None:
            return False
        self._go(following)
        return True

    def _tell_failure(self, reason: str) -> None:
        leg = self.leg
        destination = self.destination
        destination.tell_at = 0.0
        leg.door.health.failed(destination.server.name, self.asked.service, leg.address[0], reason)

    def _moved(self) -> bool:
        """Whether the decision is another one by now."""
        leg = self.leg
        decision = leg.door.router.decide(Protocol.HTTPS, self.mailbox, self.asked.route, from_peer=leg.is_peer)
        return isinstance(decision, Serve | Proxy) and decision.target.server != self.destination.server.name

    # --- its body

    def _keep_body(self) -> None:
        """The body is about to be sent: keep it where it could be needed again."""
        leg = self.leg
        told = self.destination.tells_epoch
        if leg.body is not None and self._replay is None and (leg.reader.method in SAFE or told):
            self._replay = []

    def request_body(self, payload: bytes, *, last: bool) -> None:
        """A piece of the request's body."""
        server = self._server
        assert server is not None
        if self._replay is not None:
            self._replay_size += len(payload)
            if self._replay_size > MAX_REPLAYED:
                self._replay = None
            else:
                self._replay.append((payload, last))
        self._send_body(server, payload, last=last)

    def _send_body(self, server: HttpServerLeg, payload: bytes, *, last: bool) -> None:
        if self.leg.reader.chunked:
            if payload:
                server.transport.write(chunk(payload))
            if last:
                server.transport.write(LAST_CHUNK)
        else:
            server.transport.write(payload)

    def _is_whole(self) -> bool:
        """Whether all that was sent is there to be sent again."""
        reader = self.leg.reader
        has_body = bool(reader.length or reader.chunked)
        return not has_body or self._replay is not None or self.collected is not None

    def _may_repeat(self) -> bool:
        return self.leg.reader.method in REPEATABLE and self._is_whole()

    def _may_run_twice(self) -> bool:
        """As `_may_repeat`, for what may well have run: a condition would then not hold the second time."""
        reader = self.leg.reader
        if reader.method not in SAFE and any(passed_value(reader.passed, name) is not None for name in _CONDITIONS):
            return False
        return self._may_repeat()

    # --- elsewhere

    def go_elsewhere(self) -> None:
        """What this server would answer is of no use: go to where the mailbox is now."""
        if self._waits_for is not None:
            self._waits_for.give_up(cast("Exchange", self))
            self._waits_for = None
        server, self._server = self._server, None
        if server is not None:
            server.abandon()
        self._choice = None
        self.decide()

    def park(self) -> None:
        """A move is under way: wait for its end."""
        seconds = self._patient().left(self.leg.door.loop.time())
        if seconds > 0:
            self._park(self._current_epoch(), seconds)
        else:
            self.refuse(503, f"a move is under way: {TOO_LONG}", cause=Cause.NO_ACTIVE_COPY)

    def _await_new_home(self) -> bool:
        """The server is gone: wait for another, if there may be one, or for itself to come back. False: in vain."""
        door = self.leg.door
        name = self.server_name
        if not door.is_current(self.database, self.epoch):
            self._choice = None
            self.decide()
            return True
        if not door.parking.may_fail_over(door.configuration.organization, self.database, name):
            return False
        seconds = self._patient().step(door.loop.time())
        if seconds <= 0:
            return False
        self._choice = None
        self._park(self.epoch, seconds)
        return True

    def _park(self, epoch: int, seconds: float) -> None:
        self.epoch = 0  # what comes by it concerns it no more
        parking = self.leg.door.parking
        self._waits_for = parking
        parking.put(self, self.database, epoch, seconds, self.user_name)

    def parking_over(self, fault: str) -> None:
        """As `Waiter.parking_over`. When nothing is new, another try shows whether the server is back."""
        self._waits_for = None
        if self.over:
            return
        if fault == TOO_MANY:
            self.refuse(503, fault, cause=Cause.BUSY)
        else:
            self.decide()

    def _patient(self) -> Patience:
        if self._patience is None:
            leg = self.leg
            self._patience = Patience(leg.door.limits.parking_seconds, leg.deadline)
        return self._patience

    def _current_epoch(self) -> int:
        active = self.leg.door.router.view.active.get(self.database)
        return active.epoch if active is not None else 0

    # --- the wrong server

    def _misdirected(self) -> None:
        """The server has not the database: ask the registry anew, once, and go to where it is."""
        self._server = None
        if self._asked_anew or not self.database or not self._is_whole():
            reason = f"{self.server_name}: the database is not its own"
            self.refuse(503, reason, cause=Cause.NO_ACTIVE_COPY)
            return
        self._asked_anew = True
        question = self._waits_for = _Question()
        tasks.start(self._ask_anew(question), f"{self.leg.session} not mine")

    async def _ask_anew(self, question: _Question) -> None:
        router = self.leg.door.router
        await router.age.look()
        router.forget(self.database)
        if self._waits_for is question:
            self._waits_for = None
            self._choice = None
            self.decide()
