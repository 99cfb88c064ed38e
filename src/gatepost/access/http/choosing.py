"""Which of a decision's candidates a request goes to (SPEC B1 to B3): affinity, health, and who is next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gatepost.access import tasks
from gatepost.balancing.affinity import Affinity
from gatepost.balancing.choice import order
from gatepost.routing.outcome import Proxy, Serve, Target
from gatepost.sharedstate.port import SharedState
from gatepost.wire.activesync import device_key
from gatepost.wire.http_cookies import AFFINITY

if TYPE_CHECKING:
    from gatepost.access.http.exchange import Exchange

_BY_COOKIE = frozenset({Affinity.COOKIE, Affinity.COOKIE_OR_ADDRESS})
MAX_TRIED = 3
"""Candidates tried for one request: each may take `connect_seconds`, and the client waits."""


class Choice:
    """The order in which a request tries its candidates, and what to remember of the one that takes it."""

    __slots__ = ("_affinity", "_device", "_kept", "_targets", "_tried")

    def __init__(self, affinity: Affinity, targets: Iterator[Target], kept: str | None, device: str) -> None:
        self._affinity = affinity
        self._targets = targets
        self._kept = kept
        self._device = device
        self._tried = 0

    def next(self) -> Target | None:
        """The next server to try, None when there are no more."""
        self._tried += 1
        return next(self._targets, None) if self._tried <= MAX_TRIED else None

    def taken(self, exchange: Exchange, target: Target) -> bytes:
        """`target` answers: a `Set-Cookie` line where the client is to remember it, or nothing."""
        if target.server == self._kept:
            return b""
        door = exchange.leg.door
        if self._affinity is Affinity.FIRST_SERVER:
            if door.shared_state is not None and self._kept is not None:
                moving = door.shared_state.move_server(self._device, target.server, door.forms.clock())
                tasks.start(moving, "device moves")
            return b""
        cookie = door.affinity_cookie
        if cookie is not None and self._affinity in _BY_COOKIE:
            value = exchange.leg.own_cookies.get(AFFINITY, b"")
            return cookie.line(value, exchange.user_name, exchange.asked.service, target.server, door.forms.clock())
        return b""


def choose(exchange: Exchange, decision: Serve | Proxy) -> Choice | None:
    """The order for a decision with several candidates; None: it is asked for, and `exchange.chosen` is called."""
    leg = exchange.leg
    door = leg.door
    affinity = decision.affinity
    kept: str | None = None
    device = ""
    if affinity is Affinity.FIRST_SERVER:
        device = device_key(exchange.identity.user.name, exchange.asked.query)
        state = door.shared_state
        if state is not None:
            kept = state.known_server(device)
            user = exchange.identity.user.name
            if kept is None and device != user and not door.first_contacts.may(user, device, door.loop.time()):
                device = user
                kept = state.known_server(device)
            if kept is None:
                tasks.start(_first(exchange, decision, device, state), f"{leg.session} device")
                return None
    elif affinity in _BY_COOKIE and door.affinity_cookie is not None:
        value = leg.own_cookies.get(AFFINITY, b"")
        names = [target.server for target in decision.candidates]
        kept = door.affinity_cookie.kept(value, exchange.user_name, exchange.asked.service, names, door.forms.clock())
    return _ordered(exchange, decision, kept, device)


def _ordered(exchange: Exchange, decision: Serve | Proxy, kept: str | None, device: str) -> Choice:
    return Choice(decision.affinity, _in_order(exchange, decision, kept, device), kept, device)


def _in_order(exchange: Exchange, decision: Serve | Proxy, kept: str | None, device: str) -> Iterator[Target]:
    """The candidates. The rest is put in order only when the kept one does not take the request."""
    door = exchange.leg.door
    service = exchange.asked.service
    first = None
    if kept is not None and door.health.healthy(kept, service):
        first = next((target for target in decision.candidates if target.server == kept), None)
        if first is not None:
            yield first
    by_name = {target.server: target for target in decision.candidates}
    names = order(
        list(by_name),
        decision.affinity,
        kept=kept,
        address=exchange.leg.address[0],
        user=device or exchange.identity.user.name,
        turn=door.turn(service),  # those of a lost server are spread over the others, too
        healthy=lambda server: door.health.healthy(server, service),
    )
    for name in names:
        if by_name[name] is not first:
            yield by_name[name]


async def _first(exchange: Exchange, decision: Serve | Proxy, device: str, state: SharedState) -> None:
    """A device's first contact: all front ends must come to the same server."""
    wanted = _ordered(exchange, decision, None, device).next()
    assert wanted is not None
    servers = [target.server for target in decision.candidates]
    kept = await state.first_server(device, wanted.server, exchange.leg.door.forms.clock(), servers)
    if not exchange.over:
        exchange.chosen(_ordered(exchange, decision, kept, device))
