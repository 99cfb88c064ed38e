"""The settler: has outcomes on disk and reports on their way, and looks at what waits too long (SPEC T2, T8, T13)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from gatepost.access import tasks
from gatepost.organization.transport import TransportSettings
from gatepost.routing.next_hop import NextHop
from gatepost.transport.dispatch import settling
from gatepost.transport.dispatch.hands import Hands
from gatepost.transport.dispatch.ports import Sent
from gatepost.transport.dispatch.settling import Happened
from gatepost.transport.dispatch.steps import InSteps
from gatepost.transport.message import Envelope, RecipientState
from gatepost.transport.ports import Spool
from gatepost.transport.queues.delivery_queue import DeliveryQueue
from gatepost.transport.queues.item import Item
from gatepost.transport.reports.rules import Fate

FAULTS_BEFORE_DEFERRED = 2
"""Times that a session may end under a message before that message waits for its retry like one that was put off."""

TAKEN = frozenset({RecipientState.DELIVERED, RecipientState.SHADOWED})
"""The next server has taken the message over."""

TELL_AGAIN_SECONDS = 30.0
"""Until a report is made once more that the disk did not take."""

Report = Callable[[int, Envelope, Happened], Awaitable[Happened]]
"""Writes the reports that are due for a message, and has them on disk when it returns. Never raises."""


class Redundancy(Protocol):
    """Other hubs keep shadows of our messages, and we of theirs (SPEC S)."""

    def kept(self, number: int, envelope: Envelope) -> Awaitable[None]:
        """Have the spool know how the recipients stand, or that none is open any more, and other hubs as well. Begun at
        the call, before it is awaited."""

    def handed_on(self, envelope: Envelope, sent: Sent) -> None:
        """A hub has become the primary for some recipients, and we are to keep their shadow."""

    def delivered(self, envelope: Envelope, next_hop: NextHop) -> None:
        """A server of this next hop has taken the message for some recipients."""


class Settler:
    """Writes down what became of messages. `clock` answers seconds since 1970."""

    def __init__(
        self,
        spool: Spool,
        report: Report,
        settings: TransportSettings,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self.settings = settings
        self.hands = Hands(spool)
        self._spool = spool
        self._report = report
        self._clock = clock
        self._log = log
        self._kept: set[asyncio.Future[None]] = set()
        self._untold: set[asyncio.Task[None]] = set()
        self.redundancy: Redundancy | None = None
        """Who keeps messages in place of the spool, and tells other hubs; None: nobody."""
        self._telling: dict[int, int] = {}
        """Messages with reports that are not yet on disk, and how many."""
        self.delivered = 0
        """Recipients whose message the next server has taken over."""
        self.failed = 0
        """Recipients that were given up."""

    async def settle(
        self, queue: DeliveryQueue, item: Item, envelope: Envelope, outcome: Sent, server: str, address: str
    ) -> None:
        """What came of sending `item`, in hand: it is forgotten, or put back for what is left of it."""
        now = self._clock()
        happened = settling.apply(envelope, outcome.answers, server)
        self._count(outcome)
        if self.redundancy is not None:
            if outcome.primary is not None:
                self.redundancy.handed_on(envelope, outcome)
            elif any(answer.state is RecipientState.DELIVERED for answer in outcome.answers):
                self.redundancy.delivered(envelope, queue.next_hop)
        if happened:
            await self.tell(item.number, envelope, happened)
        left = settling.open_places(envelope, item.recipients)
        if any(answer.state in TAKEN for answer in outcome.answers):
            queue.handed_over(now)
        if outcome.answers and not happened:
            self.keep(item.number, envelope)
        if not left:
            queue.settled(item, now)
            return
        item.recipients = left
        item.attempts += 1
        uncertain = any(envelope.recipients[place].state is RecipientState.UNCERTAIN for place in left)
        item.server = address if uncertain else ""
        put_off = bool(outcome.answers) or item.attempts >= FAULTS_BEFORE_DEFERRED
        queue.put_back(item, now, now + self.settings.message_retry_interval if put_off else now)

    async def give_up(self, queue: DeliveryQueue, item: Item, reply: str) -> None:
        """Fail what is left of a waiting item, and tell the sender."""
        await self._change(queue, item, lambda envelope: settling.fail(envelope, item.recipients, reply))

    async def attend(self, queue: DeliveryQueue, item: Item) -> None:
        """A waiting item has expired, or its sender is to hear of its delay."""
        now, reason = self._clock(), queue.last_error
        await self._change(queue, item, lambda envelope: settling.attend(envelope, item, now, reason))

    async def drop(self, queue: DeliveryQueue, item: Item, reply: str, *, tell: bool) -> None:
        """An operator takes a waiting item away; with `tell` its sender gets a report."""

        def change(envelope: Envelope) -> Happened:
            happened = settling.fail(envelope, item.recipients, reply)
            if tell:
                return happened
            for place, _ in happened:
                envelope.recipients[place].state = RecipientState.DROPPED
            return []

        await self._change(queue, item, change)

    async def tell(self, number: int, envelope: Envelope, happened: Happened) -> None:
        """Have the reports on disk that are due, and only then `keep` what they are about.

        So a crash in between makes a report twice, but never loses one. What the disk does not take now is told later;
        nobody waits for that.
        """
        self._telling[number] = self._telling.get(number, 0) + 1
        untold = await self._report(number, envelope, happened)  # cancelled only when all ends: nothing is kept then
        if untold:
            task = tasks.start(self._tell_later(number, envelope, untold), "report once more")
            self._untold.add(task)
            task.add_done_callback(self._untold.discard)
        else:
            self._told(number, envelope)

    async def _tell_later(self, number: int, envelope: Envelope, untold: Happened) -> None:
        while untold:
            await asyncio.sleep(TELL_AGAIN_SECONDS)
            untold = await self._report(number, envelope, untold)
        self._told(number, envelope)

    def _told(self, number: int, envelope: Envelope) -> None:
        left = self._telling.pop(number) - 1
        if left:
            self._telling[number] = left
        self.keep(number, envelope)

    def keep(self, number: int, envelope: Envelope) -> None:
        """Have the spool know how the recipients stand; nobody waits for it.

        While a report about another of its recipients is on its way nothing is kept: whoever makes it does, at its end.
        """
        if number in self._telling:
            return
        if self.redundancy is not None:
            self.later(self.redundancy.kept(number, envelope), number)
        elif settling.is_settled(envelope):
            self.later(self._spool.remove(number), number)
        else:
            self.later(self._spool.update(number, envelope), number)

    def later(self, work: Awaitable[None], number: int) -> None:
        """`work` of the spool about a message goes on in the background; a fault is logged: it is tried again."""
        future = asyncio.ensure_future(work)
        self._kept.add(future)

        def done(ended: asyncio.Future[None]) -> None:
            self._kept.discard(ended)
            if not ended.cancelled() and (fault := ended.exception()) is not None:
                self._log.error("message.not_kept", message=number, reason=str(fault))

        future.add_done_callback(done)

    async def end(self) -> None:
        """As `flush`; what could not be told is told after the next start, for the message is as it was before."""
        for task in self._untold:
            task.cancel()
        await asyncio.gather(*self._untold, return_exceptions=True)
        await self.flush()

    async def flush(self) -> None:
        """Until all that was begun is on disk."""
        while self._kept:
            await asyncio.gather(*self._kept, return_exceptions=True)

    async def _change(self, queue: DeliveryQueue, item: Item, change: Callable[[Envelope], Happened]) -> None:
        await InSteps(self._changed(queue, item, change), partial(self._spool.in_hand, item.number))

    async def _changed(self, queue: DeliveryQueue, item: Item, change: Callable[[Envelope], Happened]) -> None:
        try:
            envelope = await self.hands.take(item.number)
        except KeyError:
            queue.drop(item)
            return
        try:
            happened = change(envelope)
            if happened:
                self.failed += sum(fate is not Fate.DELAYED for _, fate in happened)
                await self.tell(item.number, envelope, happened)
            left = settling.open_places(envelope, item.recipients)
            if not left and queue.drop(item):
                queue.emptied(self._clock())
            if not happened:
                self.keep(item.number, envelope)
        finally:
            self.hands.give_back(item.number)

    def _count(self, outcome: Sent) -> None:
        for answer in outcome.answers:
            if answer.state in TAKEN:
                self.delivered += 1
            elif answer.state is RecipientState.FAILED:
                self.failed += 1
