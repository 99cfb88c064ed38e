"""A delivery queue: the items of one next hop (SPEC T3, T8; exchange-facts 4.6).

add ──► ready ──take──► in hand ──► settled (forgotten), or put back: ready, deferred until a time, or suspended
          ▲                              │
          └── deferred, when its time comes ◄┘
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import StrEnum
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from operator import itemgetter

from gatepost.routing.next_hop import NextHop
from gatepost.transport.queues.item import Item
from gatepost.transport.queues.rate import Rate

ITEMS_PER_CONNECTION = 20
"""Another connection is opened for each so many that are ready (`SmtpConnectorQueueMessageCountThreshold…`)."""
BOUND_SECONDS = 60.0
"""How long a next hop is believed that it takes no more connections."""
_LAST = itemgetter(2)


class QueueStatus(StrEnum):
    """What a queue does, in the source system's words."""

    ACTIVE = "Active"
    CONNECTING = "Connecting"
    READY = "Ready"
    RETRY = "Retry"
    SUSPENDED = "Suspended"


class DeliveryQueue:
    """All that waits for one next hop. `identity` is its number on this server, as operators name it."""

    def __init__(self, next_hop: NextHop, identity: int, now: float) -> None:
        self.next_hop = next_hop
        self.identity = identity
        self.suspended = False
        self.retry_at = 0.0
        """Before this nothing is tried: the next hop could not be reached."""
        self.failures = 0
        """Times in a row that the next hop could not be reached."""
        self.last_error = ""
        self.last_retry = 0.0
        self.connecting = 0
        self.connections = 0
        self._bound = 0
        self._bound_until = 0.0
        self.leaving = 0
        """Connections that take no more messages and have not yet ended."""
        self.moves = 0
        """How often the next hop has become another server: connections from before serve no more messages."""
        self.empty_since = now
        self.sent = 0
        """Messages handed over since the queue was made."""
        self.incoming = Rate()
        """Of messages that were queued."""
        self.outgoing = Rate()
        """Of messages that were handed over."""
        self._ready: deque[Item] = deque()
        self._deferred: list[tuple[float, int, Item]] = []
        self._order = 0
        self._suspended: dict[int, Item] = {}
        self._in_hand: dict[int, Item] = {}
        self._gone = 0

    def __len__(self) -> int:
        """Items waiting or in hand."""
        return len(self._ready) + len(self._deferred) + len(self._suspended) + len(self._in_hand) - self._gone

    def __repr__(self) -> str:
        return f"DeliveryQueue({self.identity}, {self.next_hop.domain!r}, {len(self)} items)"

    @property
    def deferred(self) -> int:
        """Items that wait for a time of their own."""
        return len(self._deferred)

    @property
    def idle(self) -> bool:
        """Whether nothing waits, is in hand, or holds a connection."""
        return not len(self) and not (self.connections or self.connecting or self.leaving)

    def status(self, now: float) -> QueueStatus:
        """What it does now."""
        if self.suspended:
            return QueueStatus.SUSPENDED
        if self.connections:
            return QueueStatus.ACTIVE
        if self.connecting:
            return QueueStatus.CONNECTING
        return QueueStatus.RETRY if now < self.retry_at and len(self) else QueueStatus.READY

    def __iter__(self) -> Iterator[Item]:
        """All items, in hand ones last. The queue must not be changed meanwhile."""
        for group in (self._ready, (entry[2] for entry in self._deferred), self._suspended.values()):
            for item in group:
                if not item.gone:
                    yield item
        yield from self._in_hand.values()

    def part(self, start: int, count: int) -> list[Item]:
        """Up to `count` waiting items from the place `start` on; empty past the end. Cheap for long queues."""
        waiting = chain(self._ready, map(_LAST, self._deferred), self._suspended.values())
        return list(islice(waiting, start, start + count))

    def add(self, item: Item, now: float) -> None:
        """Queue an item: ready, or deferred while it is not yet due."""
        if item.suspended:
            self._suspended[item.number] = item
        elif item.due > now:
            self._order += 1
            heappush(self._deferred, (item.due, self._order, item))
        else:
            self._ready.append(item)

    def take(self, now: float, server: str = "") -> Item | None:
        """The next item for a connection to `server`, now in hand; None when nothing is to be sent.

        An item that must go to another server first is left to a connection there, once; then anybody may take it.
        """
        if self.suspended or now < self.retry_at:
            return None
        self._wake(now)
        for _ in range(len(self._ready)):
            item = self._ready.popleft()
            if item.gone:
                self._gone -= 1
                continue
            if item.server and server and item.server != server:
                item.server = ""
                self._ready.append(item)
                continue
            self._in_hand[item.number] = item
            return item
        return None

    def first_server(self) -> str:
        """The address of the server that the next item must go to first; empty: any."""
        return self._ready[0].server if self._ready else ""

    def shift(self, seconds: float) -> None:
        """The clock was set by so much: what was to happen in a while still does in that while."""
        if self.retry_at:
            self.retry_at += seconds
        for _, _, item in self._deferred:
            item.due += seconds
        self._deferred = [(item.due, order, item) for _, order, item in self._deferred]

    def handed_over(self, now: float) -> None:
        """A server has taken a message of this queue."""
        self.sent += 1
        self.outgoing.count(now)

    def settled(self, item: Item, now: float) -> None:
        """The item in hand is done with."""
        self._in_hand.pop(item.number, None)
        self.emptied(now)

    def emptied(self, now: float) -> None:
        """Note the time when nothing is left."""
        if not len(self):
            self.empty_since = now

    def put_back(self, item: Item, now: float, due: float = 0.0) -> None:
        """The item in hand is to be tried again, now or at `due`."""
        self._in_hand.pop(item.number, None)
        item.due = due
        if item.gone:
            return
        if due <= now and not item.suspended:
            self._ready.appendleft(item)
        else:
            self.add(item, now)

    def ready(self, now: float) -> int:
        """How many could be sent now, were the next hop reached."""
        self._wake(now)
        return len(self._ready) - min(self._gone, len(self._ready))

    def bind(self, now: float) -> None:
        """The next hop takes no more connections than stand now: for a while no more are opened."""
        self._bound = self.connections
        self._bound_until = now + BOUND_SECONDS

    def wanted(self, now: float, most: int) -> int:
        """How many connections to open now, with at most `most` in all."""
        if self.suspended or now < self.retry_at:
            return 0
        if now < self._bound_until:
            most = min(most, max(1, self._bound))
        ready = self.ready(now)
        open_now = self.connections + self.connecting
        return max(0, min(most - self.leaving, -(-ready // ITEMS_PER_CONNECTION)) - open_now) if ready else 0

    def next_time(self) -> float | None:
        """When `wanted` may become more than 0 by itself; None when only something new can make it so."""
        if self.suspended or not (self._ready or self._deferred):
            return None
        first = 0.0 if self._ready else self._deferred[0][0]
        return max(first, self.retry_at)

    def reached(self) -> None:
        """A connection to the next hop stands."""
        self.failures = 0
        self.retry_at = 0.0
        self.last_error = ""

    def not_reached(self, now: float, reason: str, retry_at: float) -> None:
        """No server of the next hop can be reached; nothing is tried before `retry_at`. Items keep their places."""
        if now >= self.retry_at:  # several attempts may fail at the same time
            self.failures += 1
        self.last_error = reason
        self.last_retry = now
        self.retry_at = retry_at

    def retry_now(self) -> None:
        """An operator's retry: everything is due at once."""
        self.retry_at = 0.0
        for _, _, item in sorted(self._deferred, key=lambda entry: entry[:2]):
            item.due = 0.0
            self._ready.append(item)
        self._deferred.clear()

    def find(self, number: int) -> Item | None:
        """The item of that message; looks at all of them."""
        return next((item for item in self if item.number == number), None)

    def holds(self, item: Item) -> bool:
        """Whether the item is in hand."""
        return item.number in self._in_hand

    def suspend(self, item: Item) -> None:
        """Freeze an item that waits; one in hand is frozen when it comes back."""
        if item.suspended:
            return
        item.suspended = True
        if item.number not in self._in_hand:
            self._remove(item)
            self._suspended[item.number] = item

    def resume(self, item: Item, now: float) -> None:
        """Let a frozen item go on."""
        item.suspended = False
        if self._suspended.pop(item.number, None) is not None:
            self.add(item, now)

    def drop(self, item: Item) -> bool:
        """Take an item away that waits; False when it is in hand, which then is not put back."""
        if item.number in self._in_hand:
            item.gone = True
            return False
        if self._suspended.pop(item.number, None) is None and not item.gone:
            item.gone = True
            self._gone += 1
        return True

    def empty(self, *, frozen: bool = True) -> list[Item]:
        """Take all items away that are not in hand, for queueing them anew; with `frozen` also frozen ones."""
        taken = [item for item in self if item.number not in self._in_hand and (frozen or not item.suspended)]
        self._ready.clear()
        self._deferred.clear()
        if frozen:
            self._suspended.clear()
        self._gone = 0
        return taken

    def _wake(self, now: float) -> None:
        while self._deferred and self._deferred[0][0] <= now:
            self._ready.append(heappop(self._deferred)[2])

    def _remove(self, item: Item) -> None:
        try:
            self._ready.remove(item)
        except ValueError:
            self._deferred = [entry for entry in self._deferred if entry[2] is not item]
            heapify(self._deferred)
