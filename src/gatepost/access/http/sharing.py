"""While requests wait in vain, those who hold too much give some of it up (SPEC B4). Looked at once a second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from gatepost.access.http.exchange import Exchange
from gatepost.balancing.fair_share import giving_way

if TYPE_CHECKING:
    from gatepost.access.http.connection import HttpConnection
    from gatepost.access.http.pool import ServerConnections
    from gatepost.access.http.slots import Slots

_Held = dict[str, list[Exchange]]
"""What is under way, by user."""


def share(legs: Iterable[HttpConnection], slots: Slots, servers: Mapping[str, ServerConnections]) -> None:
    """Slots, and each server's connections. Costs nothing while nobody waits."""
    if not slots.waiting and not any(connections.waiting for connections in servers.values()):
        return
    held, by_server = _count(legs)
    given = giving_way(held, slots.patient(), slots.limit)
    for name, at_server in by_server.items():
        connections = servers[name]
        given += giving_way(at_server, connections.waiting.patient(), connections.limit)
    for exchange in given:
        if not exchange.over:
            exchange.give_way()


def _count(legs: Iterable[HttpConnection]) -> tuple[_Held, dict[str, _Held]]:
    """Who holds slots, and whose requests are at which server."""
    held: _Held = {}
    by_server: dict[str, _Held] = {}
    for leg in legs:
        exchange = leg.exchange
        if isinstance(exchange, Exchange) and exchange.has_slot:
            user = exchange.user_name
            held.setdefault(user, []).append(exchange)
            if exchange.takes_body:
                by_server.setdefault(exchange.server_name, {}).setdefault(user, []).append(exchange)
    return held, by_server
