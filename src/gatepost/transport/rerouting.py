"""Messages that are routed again: those of the last run, and those whose way is another one now (SPEC T3, A1).

A database has moved, the organization has changed, a site cannot be reached: what waits goes where it belongs now.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from structlog.typing import FilteringBoundLogger

from gatepost.access import tasks
from gatepost.routing.next_hop import DeliveryType
from gatepost.transport.categorizer import SUBMISSION, Categorizer
from gatepost.transport.dispatch import settling
from gatepost.transport.dispatch.settler import Settler
from gatepost.transport.dispatch.steps import InSteps
from gatepost.transport.message import Envelope
from gatepost.transport.operating import NO_DELIVERY, POISON
from gatepost.transport.ports import Spool
from gatepost.transport.queues.delivery_queue import DeliveryQueue
from gatepost.transport.queues.item import Item
from gatepost.transport.queues.queues import Queues

UNREADABLE_SECONDS = 300.0
AT_ONCE = 1000
"""Messages routed before others get their turn on the loop."""
ASKING_AT_ONCE = 32
"""Messages whose recipients are looked up at the same time, in a directory that may be elsewhere."""


class Rerouting:
    """Routes again. `touch` is told of queues that have something to do."""

    def __init__(
        self,
        queues: Queues,
        categorizer: Categorizer,
        settler: Settler,
        spool: Spool,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self._queues = queues
        self._categorizer = categorizer
        self._settler = settler
        self._spool = spool
        self._clock = clock
        self._log = log
        self._under_way: set[DeliveryQueue] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._poison_threshold = 2
        self.loading = True
        """Messages of the last run are being queued."""
        categorizer.failed = self._not_routed

    async def load(
        self,
        found: AsyncIterator[list[tuple[int, Envelope]]],
        poison_threshold: int,
        waits: Callable[[int, Envelope], bool] = lambda _number, _envelope: False,
    ) -> None:
        """Take up what was there at the start, but for what `waits` for other hubs: somebody calls `take_up` for that.
        What the process died of too often is put aside (poison messages)."""
        count = 0
        self._poison_threshold = poison_threshold
        async for batch in found:
            for number, envelope in batch:
                if not waits(number, envelope):
                    self.take_up(number, envelope)
            count += len(batch)
            await asyncio.sleep(0)
        self.loading = False
        self._log.info("spool.loaded", messages=count)

    def set_active(self, active: dict[str, str]) -> None:
        """Where each database is now."""
        before = self._categorizer.active
        if active == before:
            return
        self._categorizer.active = active
        for queue in self._queues:
            hop = queue.next_hop
            if hop.delivery is DeliveryType.MAILBOX and before.get(hop.domain) != active.get(hop.domain):
                queue.moves += 1  # connections that stand are at the old one
                queue.retry_now()  # it is another server that is tried
                self._categorizer.touch(queue)
        self.reconsider()

    def set_unreachable(self, sites: frozenset[str]) -> None:
        """Which other sites cannot be reached: what waits for them goes nearer to them (queue at point of failure)."""
        gone = sites - self._categorizer.unreachable_sites
        self._categorizer.unreachable_sites = sites
        for queue in self._queues if gone else ():
            if queue.next_hop.delivery is DeliveryType.SITE and queue.next_hop.domain in gone:
                self.soon(queue)

    def reconsider(self) -> None:
        """Organization or registry have changed: what had no way may have one, and the other way round."""
        router, active = self._categorizer.router, self._categorizer.active
        for queue in self._queues:
            is_nowhere = queue.next_hop.delivery in NO_DELIVERY or router.destination(queue.next_hop, active) is None
            if is_nowhere and queue.next_hop != POISON and not queue.suspended:
                self.soon(queue)

    def soon(self, queue: DeliveryQueue) -> None:
        """Route what waits in a queue anew, in the background."""
        if queue not in self._under_way:
            self._begin(self.now(queue), "route a queue anew")

    async def now(self, queue: DeliveryQueue) -> None:
        """Route what waits in a queue anew. What leads to the same queue again waits a little."""
        if queue in self._under_way:
            return
        self._under_way.add(queue)
        try:
            items = queue.empty()
            together = ASKING_AT_ONCE if queue.next_hop == SUBMISSION else 1
            for first in range(0, len(items), together):
                await asyncio.gather(*(self._place(queue, item) for item in items[first : first + together]))
                if first % AT_ONCE < together:
                    await asyncio.sleep(0)
        finally:
            self._under_way.discard(queue)
            queue.emptied(self._clock())

    async def end(self) -> None:
        """Do no more. What was not routed is still in the spool."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def take_up(self, number: int, envelope: Envelope) -> None:
        """Queue a message of the last run, or do with it what is to be done."""
        if envelope.unchecked:
            self._settler.later(self._spool.remove(number), number)
        elif settling.is_settled(envelope):
            self._settler.keep(number, envelope)
        elif envelope.crashes >= self._poison_threshold:
            self._log.error("message.poison", message=number, crashes=envelope.crashes, message_id=envelope.message_id)
            places = settling.open_places(envelope, range(len(envelope.recipients)))
            item = Item(number, places, envelope.size, float("inf"), float("inf"))
            item.suspended = True
            self._queues.add(POISON, item, self._clock())
        else:
            with self._spool.in_hand(number):
                self._categorizer.place(number, envelope)

    async def _place(self, queue: DeliveryQueue, item: Item) -> None:
        try:
            envelope = await self._settler.hands.take(item.number)
        except KeyError:
            return
        except OSError as fault:
            self._log.error("message.unreadable", message=item.number, reason=str(fault))
            item.due = self._clock() + UNREADABLE_SECONDS
            self._queues.add(queue.next_hop, item, self._clock())
            return
        try:
            if queue.next_hop == SUBMISSION:
                # What a directory elsewhere has told may be good for a moment only, so it is asked now.
                await self._categorizer.learn(envelope, item.recipients)
            with self._spool.in_hand(item.number):
                self._categorizer.place(item.number, envelope, item.recipients, after=queue.next_hop)
        finally:
            self._settler.hands.give_back(item.number)

    def _not_routed(self, number: int, envelope: Envelope, happened: settling.Happened) -> None:
        # Other parts of the message may be sent meanwhile: they and this have the same envelope.
        envelope = self._settler.hands.adopt(number, envelope)
        work = InSteps(self._settler.tell(number, envelope, happened), partial(self._spool.in_hand, number))
        self._begin(self._told(work, number), "report what has no way")

    async def _told(self, work: Awaitable[None], number: int) -> None:
        try:
            await work
        finally:
            self._settler.hands.give_back(number)

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = tasks.start(work, name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
