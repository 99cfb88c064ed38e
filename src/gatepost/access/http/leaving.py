"""HTTP connections on which something must end (see `access.moves`).

    nothing under way       a move is no matter: the next request is decided anew; an operator's wish closes it
    request not sent yet    decided anew
    waits for a response    goes on; a long poll is ended or, where it changes nothing, asked of the new server
    response under way      finished, with `Connection: close`
    event stream            ended between two events; the client comes back
    WebSocket               close frame 1012, "Service Restart" (RFC 6455 section 7.4), between two frames

A phone's Ping is answered 503 with `Retry-After`: a temporary fault of the server (MS-ASHTTP section 2.2.2.1.1). If its
connection were closed instead, it would take its heartbeat to be longer than some device on the way bears, and poll
more often from then on. GET and other safe requests need no answer from us: the new server gives it.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gatepost.access.http.connection import Phase
from gatepost.access.http.exchange import Exchange
from gatepost.access.leaving import KICKED, MOVED
from gatepost.access.moves import Outcome
from gatepost.organization.model import PathClass
from gatepost.routing.outcome import Cause
from gatepost.wire.activesync import is_ping

if TYPE_CHECKING:
    from gatepost.access.http.collected import Collected
    from gatepost.access.http.connection import HttpConnection

LONG_POLL_SECONDS = 5.0
"""A request that has waited so long for its response waits for something to happen, or for a server that hangs."""
RETRY_SECONDS = (1, 2)
"""When a client whose poll was ended comes back: soon, and not all at once."""


class HttpLeaver:
    """One connection as a round sees it. With `moved` only what is under way on it must end.

    `dead`: nothing is expected of the server any more, so a request that it has not answered does not wait.
    """

    __slots__ = ("_dead", "_exchange", "_leg", "_moved", "_reason")

    def __init__(self, leg: HttpConnection, reason: str, *, moved: bool = False, dead: bool = False) -> None:
        self._leg = leg
        self._exchange: Exchange | Collected | None = leg.exchange
        self._reason = reason
        self._moved = moved
        self._dead = dead

    @property
    def outcome(self) -> Outcome | None:
        """As `Leaver.outcome`."""
        leg = self._leg
        if leg.phase is Phase.CLOSED:
            return Outcome.CLOSED
        if not self._moved or leg.relay is not None:
            return None
        exchange = self._exchange
        if exchange is None or exchange.over:
            return Outcome.STAYED
        return Outcome.STAYED if leg.door.is_current(exchange.database, exchange.epoch) else None

    def activity(self) -> int | None:
        """As `Leaver.activity`."""
        leg = self._leg
        relay = leg.relay
        if relay is None:
            return leg.bytes_in + leg.bytes_out
        return None if relay.unsent else relay.bytes_in + relay.bytes_out

    def leave(self) -> bool:
        """As `Leaver.leave`."""
        leg = self._leg
        if leg.relay is not None:
            return self._leave_relay()
        exchange = leg.exchange
        if self._moved and exchange is not self._exchange:
            return False  # its own is over, which is its outcome
        if exchange is None:
            if leg.is_idle:
                leg.close(self._reason)
            return leg.phase is not Phase.IDLE
        leg.leaving = True
        return isinstance(exchange, Exchange) and self._leave_exchange(exchange)

    def _leave_relay(self) -> bool:
        leg = self._leg
        relay = leg.relay
        assert relay is not None
        if relay.ended:
            return True
        if leg.ends is not None:
            if not leg.ends.at_rest():
                return False
            relay.leave(self._reason, leg.ends.farewell(MOVED if self._moved else KICKED))
        else:
            relay.leave(self._reason, b"")  # what it speaks is not known; it is silent
        return True

    def _leave_exchange(self, exchange: Exchange) -> bool:
        if exchange.is_answered:
            if exchange.stream is None or not exchange.stream.at_boundary:
                return False
            exchange.end_stream()
            return True
        if exchange.is_waiting:
            return self._elsewhere(exchange)
        if not exchange.is_sent or self._leg.body is not None:
            return False
        waited = self._leg.door.loop.time() - exchange.sent_at
        if waited < LONG_POLL_SECONDS and not self._dead:
            return False
        if exchange.is_safe and self._moved:
            return self._elsewhere(exchange)
        asked = exchange.asked
        if exchange.is_safe or self._dead or (asked.kind is PathClass.DEVICE and is_ping(asked.query)):
            self._come_back(exchange)
            return True
        return False

    def _elsewhere(self, exchange: Exchange) -> bool:
        """Only a move gives a request another server to go to."""
        if self._moved:
            self._leg.leaving = False
            exchange.go_elsewhere()
        else:
            self._come_back(exchange)
        return True

    def _come_back(self, exchange: Exchange) -> None:
        retry = random.randint(*RETRY_SECONDS)  # noqa: S311 - jitter, no secret
        exchange.refuse(503, self._reason, cause=Cause.NO_ACTIVE_COPY, retry=retry, close=True)

    def cut(self) -> None:
        """As `Leaver.cut`."""
        leg = self._leg
        if leg.relay is not None:
            if leg.ends is not None and not leg.relay.ended and not leg.relay.unsent:
                leg.relay.leave(self._reason, leg.ends.farewell(MOVED if self._moved else KICKED))
            else:
                leg.relay.abort(self._reason)
            return
        exchange = leg.exchange
        if self._moved and isinstance(exchange, Exchange) and exchange is self._exchange:
            if exchange.is_answered:
                exchange.break_off(self._reason)
            elif exchange.is_waiting or (exchange.is_sent and exchange.is_safe):
                self._elsewhere(exchange)
            else:
                self._come_back(exchange)
        else:
            leg.abort(self._reason)
