"""Equal shares of sessions over the servers that are up, exact to one session, whoever comes and goes (SPEC B7).

Turns over a fixed ring are not equal while a server of the ring is down: its neighbour gets its turns too. Here the one
with the fewest is next, as in start-time fair queuing (Goyal, Vin and Cheng, 1996): a server that was away, or is new,
joins at the mark where the others stand, so it gets its share from then on and does not make up for its absence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

MAX_SERVERS = 1000
"""Servers that are counted; over it all begin anew."""


class EqualShare:
    """How many sessions each server has been given, from the mark where it joined."""

    __slots__ = ("_given", "_mark")

    def __init__(self) -> None:
        self._given: dict[str, int] = {}
        self._mark = 0

    def order(self, servers: Iterable[str], healthy: Callable[[str], bool]) -> list[str]:
        """`servers` in the order in which to try them: those that are up by what they were given, then the others."""
        given, mark = self._given, self._mark
        found = sorted(servers, key=lambda server: (max(given.get(server, 0), mark), server))
        up = [server for server in found if healthy(server)]
        if len(up) == len(found):
            return found
        kept = set(up)
        return up + [server for server in found if server not in kept]

    def give(self, server: str) -> None:
        """`server` gets a session, or at least is tried for one."""
        if len(self._given) >= MAX_SERVERS and server not in self._given:
            self._given.clear()
        before = max(self._given.get(server, 0), self._mark)
        self._mark = before
        self._given[server] = before + 1
