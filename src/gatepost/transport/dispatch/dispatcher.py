"""The dispatcher: opens connections for the queues that have something to send, and sends (SPEC T3, T8).

    queues ── runnable ──► dispatcher ── one task a connection ──► reach ──► server
                                 │                                              │
                            spool, reports ◄── settler ◄── what came of it ◄────┘

A connection takes message after message from its queue, waits a moment for more, and ends. What was sent is then told
to the spool; a crash in between sends it once more, which RFC 5321, section 6.1, prefers to a loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from structlog.typing import FilteringBoundLogger

from gatepost.transport.dispatch import settling
from gatepost.transport.dispatch.ahead import AheadWatch, TakenAhead
from gatepost.transport.dispatch.ports import Moved, NewToken, NotReached, Reach, Sender, Sent
from gatepost.transport.dispatch.settler import Settler
from gatepost.transport.dispatch.steps import InSteps
from gatepost.transport.leaving import as_it_leaves
from gatepost.transport.message import Envelope
from gatepost.transport.ports import BodyReader, ContentDamaged, Spool
from gatepost.transport.queues.delivery_queue import DeliveryQueue
from gatepost.transport.queues.item import Item
from gatepost.transport.queues.queues import Queues

IDLE_SECONDS = 5.0
"""A connection waits so long for another message of its queue."""
ATTEND_SECONDS = 1.0
ATTEND_ITEMS = 20_000
"""Waiting items looked at in each `ATTEND_SECONDS` for their expiry: a million within a minute."""
LONGEST_ALARM_SECONDS = 10.0
"""Queues go by the wall's clock, which may be set: no timer runs longer."""
UNREADABLE_SECONDS = 300.0
"""Until a message is tried again whose content could not be read."""

GONE = Sent((), "the server ended the connection")
"""The connection ended while the message was read from disk: nothing of it was sent, and that says nothing of it."""

Requeue = Callable[[DeliveryQueue], None]
"""Routes the messages of a queue anew."""


class Dispatcher:
    """Sends what is queued. `clock` answers seconds since 1970."""

    def __init__(
        self,
        queues: Queues,
        spool: Spool,
        reach: Reach,
        settler: Settler,
        requeue: Requeue,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self._queues = queues
        self._spool = spool
        self._reach = reach
        self._settler = settler
        self._requeue = requeue
        self._clock = clock
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._connections: set[asyncio.Task[None]] = set()
        self._idle: dict[DeliveryQueue, list[asyncio.Future[bool]]] = {}
        self._starved: dict[DeliveryQueue, None] = {}
        self._planned: asyncio.Handle | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._attending: asyncio.TimerHandle | None = None
        self._attend_task: asyncio.Task[None] | None = None
        self._ending = False
        self.token: NewToken | None = None
        """With which messages are handed to hubs that become their primaries; None: nobody does."""

    @property
    def connections(self) -> int:
        """Connections that stand or are being opened."""
        return len(self._connections)

    def start(self) -> None:
        """Begin; the queues may have something already."""
        self._attending = self._loop.call_later(ATTEND_SECONDS, self._attend)
        self.wake()

    def touch(self, queue: DeliveryQueue) -> None:
        """A queue has something new to send, or its state was changed."""
        self._queues.touch(queue)
        self.wake()

    def reconsider(self) -> None:
        """Limits may have changed: more connections may be wanted, or allowed, than before."""
        self._starved.clear()
        for queue in self._queues:
            self._queues.touch(queue)
        self.wake()

    def wake(self) -> None:
        """Look at the runnable queues, soon."""
        if self._planned is None and not self._ending:
            self._planned = self._loop.call_soon(self._run)

    async def end(self, seconds: float) -> None:
        """Open nothing more; connections end after the message they send, or after `seconds` by force."""
        self._ending = True
        for handle in (self._planned, self._alarm, self._attending, self._attend_task):
            if handle is not None:
                handle.cancel()
        for waiting in self._idle.values():
            _wake(waiting, len(waiting), something=False)
        if self._connections:
            _, late = await asyncio.wait(self._connections, timeout=max(seconds, 0.1))
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._settler.end()

    # Which queues get connections

    def _run(self) -> None:
        self._planned = None
        now = self._clock()
        for queue in self._queues.runnable(now):
            self._serve(queue, now)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        at = self._queues.next_alarm()
        if at is not None:
            self._alarm = self._loop.call_later(min(max(at - now, 0.0), LONGEST_ALARM_SECONDS), self.wake)

    def _serve(self, queue: DeliveryQueue, now: float) -> None:
        idle = self._idle.get(queue)
        if idle and not queue.suspended and now >= queue.retry_at:
            _wake(idle, queue.ready(now), something=True)
        for _ in range(queue.wanted(now, self._reach.most_connections(queue.next_hop))):
            if len(self._connections) >= self._settler.settings.max_outbound_connections:
                self._starved[queue] = None
                return
            queue.connecting += 1
            task = self._loop.create_task(self._connection(queue))
            self._connections.add(task)
            task.add_done_callback(self._ended)
        self._queues.sleep(queue, now)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "a sending connection failed", "exception": fault})
        if self._starved and not self._ending:
            queue = next(iter(self._starved))
            del self._starved[queue]
            self.touch(queue)

    # One connection

    async def _connection(self, queue: DeliveryQueue) -> None:
        stands, moves = False, queue.moves
        try:
            sender = await self._reach.connect(queue.next_hop, queue.failures, len(queue), queue.first_server())
            queue.reached()
            queue.connecting -= 1
            queue.connections += 1
            stands = True
            self._queues.touch(queue)
            await self._send_all(queue, sender, moves)
        except NotReached as fault:
            await self._not_reached(queue, fault)
        except Moved:
            self._requeue(queue)
        finally:
            if not stands:
                queue.connecting -= 1
            queue.emptied(self._clock())
            self.touch(queue)

    async def _send_all(self, queue: DeliveryQueue, sender: Sender, moves: int) -> None:
        """Until there is nothing more to send, or the database is active elsewhere: the old copy must get no mail."""
        sent = 0
        ahead: TakenAhead | None = None
        watch = AheadWatch()
        hands = self._settler.hands
        try:
            while sender.usable and not self._ending and queue.moves == moves:
                item, is_held = ahead.take() if ahead is not None else (None, False)
                item, ahead = item or queue.take(self._clock(), sender.address), None
                if item is None:
                    if not await self._idles(queue):
                        return
                    continue
                try:
                    ahead = self._taken_ahead(queue, sender)
                    if ahead is not None and (other := ahead.item) is not None:
                        ahead.held = await InSteps(
                            self._prepare(sender, other), partial(self._spool.in_hand, other.number)
                        )
                        watch.begin(ahead)
                    work = self._send(queue, sender, item, sent)
                    if not await InSteps(work, partial(self._spool.in_hand, item.number)):
                        return
                finally:
                    if is_held:
                        hands.give_back(item.number)
                sent += 1
        finally:
            watch.end()
            if ahead is not None:
                ahead.give_back()
            # The next connection need not wait for the end of this one.
            queue.connections -= 1
            queue.leaving += 1
            self.touch(queue)
            try:
                await sender.quit()
            finally:
                queue.leaving -= 1

    def _taken_ahead(self, queue: DeliveryQueue, sender: Sender) -> TakenAhead | None:
        """The item after the one that is about to be sent, where no other connection would be quicker with it."""
        now = self._clock()
        if not sender.prompt or queue.ready(now) <= len(self._idle.get(queue, ())):
            return None
        item = queue.take(now, sender.address)
        return TakenAhead(queue, item, self._settler.hands, self._clock, self.touch) if item is not None else None

    async def _prepare(self, sender: Sender, item: Item) -> bool:
        """Let the sender know what follows; whether its envelope is held until then. What cannot be read now is met
        again when it is the item's turn."""
        hands = self._settler.hands
        try:
            envelope = await hands.take(item.number)
        except (KeyError, OSError):
            return False
        try:
            places = settling.open_places(envelope, item.recipients)
            body = await self._opened(item, envelope)
            try:
                if places:
                    await sender.prepare(envelope, places, body, self.token)
            finally:
                body.close()
        except (KeyError, OSError):
            pass
        except BaseException:
            hands.give_back(item.number)
            raise
        return True

    async def _idles(self, queue: DeliveryQueue) -> bool:
        """Wait for something to send; False when nothing came."""
        if queue.next_time() is not None:
            # So that the time of the first deferred one is known, and none is left that was not taken.
            self.touch(queue)
        waiting = self._idle.setdefault(queue, [])
        future: asyncio.Future[bool] = self._loop.create_future()
        waiting.append(future)
        alarm = self._loop.call_later(IDLE_SECONDS, _answer, future, False)
        try:
            return await future
        finally:
            alarm.cancel()
            waiting.remove(future)
            if not waiting:
                self._idle.pop(queue, None)

    async def _send(self, queue: DeliveryQueue, sender: Sender, item: Item, sent: int) -> bool:
        """Send one message; False when the connection is of no more use."""
        hands = self._settler.hands
        try:
            envelope = await hands.take(item.number)
        except KeyError:  # settled meanwhile
            queue.settled(item, self._clock())
            return True
        except OSError as fault:
            self._unreadable(queue, item, fault)
            return True
        settled = False
        try:
            places = settling.open_places(envelope, item.recipients)
            if not places:
                queue.settled(item, self._clock())
                settled = True
                return True
            try:
                outcome = await self._hand_over(sender, item, envelope, places)
            except ContentDamaged as fault:
                settled = True
                self._put_aside(queue, item, envelope, str(fault))
                return sender.usable
            settled = True
            if outcome is None:
                self._unreadable(queue, item, "its content cannot be read")
                return sender.usable
            if outcome is GONE:
                queue.put_back(item, self._clock())
            else:
                await self._settler.settle(queue, item, envelope, outcome, sender.server, sender.address)
        finally:
            hands.give_back(item.number)
            if not settled:  # cancelled, or a fault of ours
                queue.put_back(item, self._clock())
        if outcome.fault and not outcome.answers and not sent and not outcome.busy:
            # It takes connections and no messages: as good as not reached.
            now = self._clock()
            reason = f"{sender.server}: {outcome.fault}"
            queue.not_reached(now, reason, now + self._settler.settings.queue_glitch_retry_interval)
        return not outcome.fault

    async def _hand_over(self, sender: Sender, item: Item, envelope: Envelope, places: tuple[int, ...]) -> Sent | None:
        """None: the content cannot be read now. Raises `ContentDamaged`."""

        try:
            body = await self._opened(item, envelope)
        except ContentDamaged:
            raise
        except (KeyError, OSError):
            return None
        try:
            if not sender.usable:
                return GONE
            return await sender.send(envelope, places, body, partial(self._opened, item, envelope), self.token)
        except ContentDamaged:
            raise
        except OSError:
            return None
        finally:
            body.close()

    async def _opened(self, item: Item, envelope: Envelope) -> BodyReader:
        """The content as it leaves. Raises KeyError, OSError."""
        body = await self._spool.body(item.number)
        try:
            return await as_it_leaves(body, envelope)
        except BaseException:
            body.close()
            raise

    def _unreadable(self, queue: DeliveryQueue, item: Item, reason: object) -> None:
        self._log.error("message.unreadable", message=item.number, reason=str(reason))
        now = self._clock()
        queue.put_back(item, now, now + UNREADABLE_SECONDS)

    def _put_aside(self, queue: DeliveryQueue, item: Item, envelope: Envelope, reason: str) -> None:
        """A damaged content is never sent: whoever looks into it decides what becomes of the message."""
        self._log.error(
            "message.quarantined",
            message=item.number,
            reason=reason,
            sender=envelope.sender,
            message_id=envelope.message_id,
            remedy="gatepost queue quarantined; then queue release, or queue forget",
        )
        queue.settled(item, self._clock())
        self._settler.later(self._spool.quarantine(item.number, reason), item.number)

    async def _not_reached(self, queue: DeliveryQueue, fault: NotReached) -> None:
        now = self._clock()
        if queue.connections and fault.failure is None:
            queue.bind(now)  # those that stand are served: it wants no more of them
            return
        queue.not_reached(now, fault.reason, fault.retry_at)
        if fault.failure is not None:
            for item in queue.empty():
                queue.add(item, now)
                await self._settler.give_up(queue, item, str(fault.failure))
            queue.retry_at = 0.0  # who comes later is told at once as well
        for waiting in list(self._idle.get(queue, ())):
            _answer(waiting, False)

    # What waits too long

    def _attend(self) -> None:
        self._attending = self._loop.call_later(ATTEND_SECONDS, self._attend)
        if self._attend_task is not None and not self._attend_task.done():
            return
        now = self._clock()
        due: list[tuple[DeliveryQueue, Item]] = []
        self._queues.attend(now, ATTEND_ITEMS, lambda queue, item: due.append((queue, item)))
        self._queues.forget_idle(now, self._settler.settings.queue_max_idle)
        if due:
            self._attend_task = self._loop.create_task(self._attend_to(due))

    async def _attend_to(self, due: list[tuple[DeliveryQueue, Item]]) -> None:
        for queue, item in due:
            if not item.gone:
                await self._settler.attend(queue, item)


def _answer(future: asyncio.Future[bool], result: bool) -> None:
    if not future.done():
        future.set_result(result)


def _wake(waiting: list[asyncio.Future[bool]], count: int, *, something: bool) -> None:
    for future in waiting[:count]:
        _answer(future, something)
