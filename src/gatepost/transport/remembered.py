"""What a hub remembers beyond its messages over a restart: servers that are down, frozen queues (SPEC T5, T13)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gatepost.balancing.healthy_server_selector import HealthyServerSelector, UnhealthyServer
from gatepost.routing.next_hop import DeliveryType, NextHop
from gatepost.transport.dispatch.settler import Settler
from gatepost.transport.queues.queues import Queues
from gatepost.transport.spool.spool import DiskSpool

UNHEALTHY_FACT = "unhealthy"
"""Where the spool keeps the list of unhealthy servers."""
SUSPENDED_FACT = "suspended"
"""Where it keeps the frozen queues."""
KEEP_SECONDS = 5.0
"""Between two times that the list of unhealthy servers is written, where it has changed."""


class _Suspended(msgspec.Struct):
    """A frozen queue as it is kept."""

    delivery: str
    domain: str
    connector: str


class Remembered:
    """Keeps both in the spool. `clock` answers seconds since 1970."""

    def __init__(
        self,
        spool: DiskSpool,
        queues: Queues,
        selector: HealthyServerSelector,
        settler: Settler,
        clock: Callable[[], float],
    ) -> None:
        self._spool = spool
        self._queues = queues
        self._selector = selector
        self._settler = settler
        self._clock = clock
        self._unhealthy: list[UnhealthyServer] = []
        self._kept_at = 0.0

    async def load(self) -> None:
        """Take up what was there at the end of the last run. Raises OSError."""
        kept = await self._spool.get(UNHEALTHY_FACT)
        if kept is not None:
            self._selector.load(msgspec.msgpack.decode(kept, type=list[UnhealthyServer]))
        suspended = await self._spool.get(SUSPENDED_FACT)
        if suspended is not None:
            for entry in msgspec.msgpack.decode(suspended, type=list[_Suspended]):
                next_hop = NextHop(DeliveryType(entry.delivery), entry.domain, entry.connector)
                self._queues.queue(next_hop, self._clock()).suspended = True

    def look(self, now: float) -> None:
        """Called now and then: write the list of unhealthy servers when its time has come."""
        if abs(now - self._kept_at) >= KEEP_SECONDS:
            self._kept_at = now
            self.keep_unhealthy()

    def keep_unhealthy(self) -> None:
        """Write the list where it has changed."""
        found = self._selector.unhealthy(self._clock())
        if found != self._unhealthy:
            self._unhealthy = found
            self._settler.later(self._spool.put(UNHEALTHY_FACT, msgspec.msgpack.encode(found)), 0)

    def keep_suspended(self) -> None:
        """Write which queues are frozen."""
        found = [
            _Suspended(q.next_hop.delivery.value, q.next_hop.domain, q.next_hop.connector)
            for q in self._queues
            if q.suspended
        ]
        self._settler.later(self._spool.put(SUSPENDED_FACT, msgspec.msgpack.encode(found)), 0)
