"""All delivery queues of a server, and which of them have something to do now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from gatepost.routing.next_hop import NextHop
from gatepost.transport.queues.delivery_queue import DeliveryQueue
from gatepost.transport.queues.item import Item


class Queues:
    """The queues by next hop. Queues that may want a connection are given out by `runnable`, in turn."""

    def __init__(self) -> None:
        self._queues: dict[NextHop, DeliveryQueue] = {}
        self._by_identity: dict[int, DeliveryQueue] = {}
        self._last_identity = 0
        self._runnable: dict[DeliveryQueue, None] = {}
        self._alarms: list[tuple[float, int, DeliveryQueue]] = []
        self._alarm_of: dict[DeliveryQueue, float] = {}
        self._round: list[DeliveryQueue] = []
        """The queues that `attend` has still to look at in this round, the one it is at last."""
        self._place = 0

    def __iter__(self) -> Iterator[DeliveryQueue]:
        """All queues, in the order they were made."""
        return iter(list(self._queues.values()))

    def __len__(self) -> int:
        return len(self._queues)

    def get(self, next_hop: NextHop) -> DeliveryQueue | None:
        """The queue of a next hop, if there is one."""
        return self._queues.get(next_hop)

    def by_identity(self, identity: int) -> DeliveryQueue | None:
        """The queue with that number."""
        return self._by_identity.get(identity)

    def queue(self, next_hop: NextHop, now: float) -> DeliveryQueue:
        """The queue of a next hop, made when it is missing."""
        queue = self._queues.get(next_hop)
        if queue is None:
            self._last_identity += 1
            queue = self._queues[next_hop] = DeliveryQueue(next_hop, self._last_identity, now)
            self._by_identity[queue.identity] = queue
        return queue

    def add(self, next_hop: NextHop, item: Item, now: float) -> DeliveryQueue:
        """Queue an item for a next hop."""
        queue = self.queue(next_hop, now)
        queue.add(item, now)
        if item.due <= now:  # not one that comes back to where it was
            queue.incoming.count(now)
        self.touch(queue)
        return queue

    def touch(self, queue: DeliveryQueue) -> None:
        """Something about a queue has changed: it may have something to do, now or at another time."""
        self._runnable[queue] = None

    def runnable(self, now: float) -> list[DeliveryQueue]:
        """The queues to look at now. Each is given out once, until it is touched again or its time comes.

        Who gets one and cannot open all connections it wants touches it again.
        """
        while self._alarms and self._alarms[0][0] <= now:
            at, _, queue = heappop(self._alarms)
            if self._alarm_of.get(queue) == at:
                del self._alarm_of[queue]
                self._runnable[queue] = None
        found, self._runnable = list(self._runnable), {}
        return [queue for queue in found if queue.identity in self._by_identity]

    def sleep(self, queue: DeliveryQueue, now: float) -> None:
        """Nothing more can be done for a queue now: look again when its time comes.

        What could be sent at once waits for a connection, and those touch the queue when they have room or end; in case
        they do not it is looked at every few seconds.
        """
        at, known = queue.next_time(), self._alarm_of.get(queue)
        if at is not None and at <= now:
            at = queue.held_up_until(now)
            if at is not None and known is not None and known <= at:
                return  # that comes first, and is cheap
        if at is None or known == at:
            return
        self._alarm_of[queue] = at
        heappush(self._alarms, (at, queue.identity, queue))

    def next_alarm(self) -> float | None:
        """When the next queue's time comes; now, when some are runnable."""
        if self._runnable:
            return 0.0
        while self._alarms and self._alarm_of.get(self._alarms[0][2]) != self._alarms[0][0]:
            heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    def shift(self, seconds: float) -> None:
        """The clock was set by so much (see `DeliveryQueue.shift`)."""
        self._alarms.clear()
        self._alarm_of.clear()
        for queue in self._queues.values():
            queue.shift(seconds)
            self.touch(queue)

    def forget_idle(self, now: float, seconds: float) -> int:
        """Remove queues that have been empty for so long (`QueueMaxIdleTime`); how many."""
        old = [q for q in self._queues.values() if q.idle and not q.suspended and now - q.empty_since >= seconds]
        for queue in old:
            del self._queues[queue.next_hop], self._by_identity[queue.identity]
            self._alarm_of.pop(queue, None)
            self._runnable.pop(queue, None)
        return len(old)

    def attend(self, now: float, budget: int, act: Callable[[DeliveryQueue, Item], None]) -> None:
        """Look at up to `budget` waiting items, from where the last call ended; `act` gets those whose time has come.

        By this no message outlives its expiry in any state of its queue. What moves meanwhile may be missed once, and
        is met at the next round.
        """
        due: list[tuple[DeliveryQueue, Item]] = []
        while budget > 0:
            if not self._round:
                self._round = list(self._queues.values())
                self._place = 0
                if not self._round:
                    break
            queue = self._round[-1]
            found = queue.part(self._place, budget)
            due += [(queue, item) for item in found if item.attend <= now and not item.gone]
            budget -= len(found)
            self._place += len(found)
            if budget > 0:
                self._round.pop()
                self._place = 0
                if not self._round:
                    break
        for queue, item in due:
            act(queue, item)
