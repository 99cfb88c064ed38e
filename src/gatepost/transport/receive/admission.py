"""How many connections a receive connector has, in all and for each source (exchange-facts 4.9)."""

from __future__ import annotations

from collections import Counter

from gatepost.organization.addresses import owner_of
from gatepost.organization.transport import ReceiveConnector


class ConnectorCounts:
    """Counts by the connector's name; a source is an address, or a /64 of IPv6."""

    __slots__ = ("_all", "_sources")

    def __init__(self) -> None:
        self._all: Counter[str] = Counter()
        self._sources: Counter[tuple[str, str]] = Counter()

    def arrive(self, connector: ReceiveConnector, address: str, *, one_source: bool = True) -> Place | None:
        """A place for one more connection, None when there is none. `one_source`: the limit of a source counts."""
        name, source = connector.name, (connector.name, owner_of(address))
        limit = connector.max_connections_per_source
        if self._all[name] >= connector.max_connections or (one_source and self._sources[source] >= limit):
            return None
        self._all[name] += 1
        self._sources[source] += 1
        return Place(self, source)

    def leave(self, source: tuple[str, str]) -> None:
        """One connection less."""
        self._all[source[0]] -= 1
        self._sources[source] -= 1
        if not self._sources[source]:
            del self._sources[source]


class Place:
    """One connection's place, given back once."""

    __slots__ = ("_counts", "_source")

    def __init__(self, counts: ConnectorCounts, source: tuple[str, str]) -> None:
        self._counts: ConnectorCounts | None = counts
        self._source = source

    def leave(self) -> None:
        """Give it back. Safe twice."""
        if self._counts is not None:
            self._counts.leave(self._source)
            self._counts = None
