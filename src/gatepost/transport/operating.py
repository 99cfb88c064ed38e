"""What operators ask of queues and messages: list, show, freeze, resume, retry, redirect, drop (SPEC T13).

Queues are named as the source system names them: `Submission`, `Unreachable`, `Poison`, a next hop's domain, or a
number; messages `QUEUE\\NUMBER`, or `*\\NUMBER` for all copies of one. `conditions` narrow a name down
(`operator_filter`); a name that stands for many may then fit none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

from gatepost.routing.next_hop import DeliveryType, NextHop
from gatepost.transport.dispatch.dispatcher import Dispatcher
from gatepost.transport.dispatch.settler import Settler
from gatepost.transport.leaving import as_it_leaves
from gatepost.transport.operator_entries import item_entry, message_entry, queue_entry
from gatepost.transport.operator_filter import MESSAGE_PROPERTIES, QUEUE_PROPERTIES, Filter
from gatepost.transport.ports import BodyReader, Spool
from gatepost.transport.queues.delivery_queue import DeliveryQueue
from gatepost.transport.queues.item import Item
from gatepost.transport.queues.queues import Queues

MAX_LISTED = 1000
"""Entries of one answer where no other limit is given (`ResultSize`)."""
MOST_LISTED = 100_000
EVERY = "*"
POISON = NextHop(DeliveryType.UNDEFINED, "Poison Message")
"""The queue of messages that the process has died of."""
NO_DELIVERY = frozenset({DeliveryType.UNDEFINED, DeliveryType.UNREACHABLE})
"""Queues that nothing is sent from."""
WORDS = {"submission": "Submission", "unreachable": "Unreachable Domain", "poison": POISON.domain}
"""What operators call the queues that are always there, and their domains."""
DROPPED = "5.7.0 The message was deleted by an administrator"


CONTENT_AT_ONCE = 4 * 1024 * 1024
"""Octets of a message in one answer."""
LOOKED_AT_ONCE = 256
"""Messages looked at before others get their turn on the loop."""
Conditions = Sequence[Sequence[object]]
VERBS = frozenset(
    {
        "queues", "freeze_queue", "resume_queue", "retry_queue", "resubmit_queue", "redirect", "messages",
        "freeze_message", "resume_message", "drop", "content",
    }
)  # fmt: skip
"""What `Operating` does for operators."""


class NotFound(ValueError):
    """No queue or message has this name. The message is for the operator."""


class Operating:
    """Carries out operators' requests. Each answers values that msgspec can encode. Raises `NotFound`, ValueError."""

    def __init__(
        self,
        queues: Queues,
        dispatcher: Dispatcher,
        settler: Settler,
        spool: Spool,
        requeue: Callable[[DeliveryQueue], Awaitable[None]],
        expedite: Callable[[NextHop], None],
        keep_suspended: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """`requeue` routes the messages of a queue anew, `expedite` has servers tried that are known to be down,
        `keep_suspended` has the frozen queues remembered."""
        self._queues = queues
        self._dispatcher = dispatcher
        self._settler = settler
        self._spool = spool
        self._requeue = requeue
        self._expedite = expedite
        self._keep_suspended = keep_suspended
        self._clock = clock

    # Queues

    def queues(
        self, queue: str = EVERY, *, empty: bool = True, limit: int = MAX_LISTED, conditions: Conditions = ()
    ) -> list[dict[str, Any]]:
        """The queues of that name, most messages first."""
        now, fits = self._clock(), Filter(conditions, QUEUE_PROPERTIES)
        found = [queue_entry(entry, now) for entry in self._named(queue) if empty or len(entry)]
        found = [entry for entry in found if fits(entry)]
        found.sort(key=lambda entry: (-entry["messages"], entry["identity"]))
        return found[: max(0, min(limit, MOST_LISTED))]

    def freeze_queue(self, queue: str, conditions: Conditions = ()) -> int:
        """Let nothing more leave the queues of that name; how many. What is under way ends."""
        return self._suspend(self._chosen(queue, conditions), suspended=True)

    def resume_queue(self, queue: str, conditions: Conditions = ()) -> int:
        """Let frozen queues go on; how many."""
        return self._suspend(self._chosen(queue, conditions), suspended=False)

    def retry_queue(self, queue: str, conditions: Conditions = ()) -> int:
        """Try now what waits for its time; how many queues."""
        found = self._chosen(queue, conditions)
        for entry in found:
            if len(entry):
                self._expedite(entry.next_hop)
            entry.retry_now()
            self._dispatcher.touch(entry)
        return len(found)

    async def resubmit_queue(self, queue: str, conditions: Conditions = ()) -> int:
        """Route all messages of the queues anew (`Retry-Queue -Resubmit`); how many queues."""
        found = self._chosen(queue, conditions)
        for entry in found:
            if entry.next_hop != POISON:
                await self._requeue(entry)
        return len(found)

    def redirect(self, target: str, queue: str = EVERY) -> int:
        """Send what waits in delivery queues to another server of the organization instead; how many messages.

        What is frozen stays (exchange-facts 4.6: only active messages). What comes later goes its own way, and so
        does what is still here after a restart.
        """
        now, count = self._clock(), 0
        next_hop = NextHop(DeliveryType.SERVERS, target)
        for entry in self._named(queue):
            if entry.suspended or entry.next_hop == next_hop or entry.next_hop.delivery in NO_DELIVERY:
                continue
            for item in entry.empty(frozen=False):
                item.due = 0.0
                self._dispatcher.touch(self._queues.add(next_hop, item, now))
                count += 1
            entry.emptied(now)
        return count

    def _suspend(self, found: list[DeliveryQueue], *, suspended: bool) -> int:
        for entry in found:
            entry.suspended = suspended
            self._dispatcher.touch(entry)
        self._keep_suspended()
        return len(found)

    # Messages

    async def messages(
        self, message: str = EVERY, *, limit: int = MAX_LISTED, conditions: Conditions = ()
    ) -> list[dict[str, Any]]:
        """The messages of that name, in the order of their queues, with their envelopes."""
        found: list[dict[str, Any]] = []
        most = max(0, min(limit, MOST_LISTED))
        async for _, _, entry in self._fitting(message, conditions, most):
            found.append(entry)
        return found

    async def content(self, message: str, offset: int = 0) -> dict[str, Any]:
        """A part of one message as it would leave (`Export-Message`): `data` from `offset` on, up to some MB.

        With `more` it is not the end. Raises OSError when it cannot be read.
        """
        _, item = next(self._items(message), (None, None))
        if item is None:
            raise NotFound(f"there is no message {message}")
        try:
            envelope = await self._settler.hands.take(item.number)
        except KeyError:
            raise NotFound(f"message {message} has gone") from None
        try:
            body = await self._spool.body(item.number)
            try:
                data, more = await _part(await as_it_leaves(body, envelope), offset)
            finally:
                body.close()
        finally:
            self._settler.hands.give_back(item.number)
        return {"number": item.number, "data": data, "more": more}

    async def freeze_message(self, message: str, conditions: Conditions = ()) -> int:
        """Let the messages wait; how many."""
        return await self._suspend_messages(message, conditions, suspended=True)

    async def resume_message(self, message: str, conditions: Conditions = ()) -> int:
        """Let frozen messages go on; how many. A poisoned one is tried once more."""
        return await self._suspend_messages(message, conditions, suspended=False)

    async def drop(self, message: str, *, report: bool = True, conditions: Conditions = ()) -> int:
        """Delete messages; with `report` their senders are told. How many. One under way is not deleted."""
        dropped = 0
        for queue, item in await self._meant(message, conditions):
            if not queue.holds(item) and not item.gone:
                await self._settler.drop(queue, item, DROPPED, tell=report)
                dropped += 1
        return dropped

    async def _suspend_messages(self, message: str, conditions: Conditions, *, suspended: bool) -> int:
        found, changed = await self._meant(message, conditions), 0
        for queue, item in found:
            try:
                envelope = await self._settler.hands.take(item.number)
            except (KeyError, OSError):  # it is gone, or tried again when it can be read
                continue
            changed += 1
            envelope.suspended = suspended
            if queue.next_hop == POISON and not suspended:
                envelope.crashes = 0
            self._settler.keep(item.number, envelope)
            self._settler.hands.give_back(item.number)
            if suspended:
                queue.suspend(item)
            else:
                queue.resume(item, self._clock())
                self._dispatcher.touch(queue)
        await self._settler.flush()
        for queue in {queue for queue, _ in found if queue.next_hop == POISON}:
            if not suspended:
                await self._requeue(queue)
        return changed

    async def _meant(self, message: str, conditions: Conditions) -> list[tuple[DeliveryQueue, Item]]:
        if not conditions:
            return list(self._items(message))
        return [(queue, item) async for queue, item, _ in self._fitting(message, conditions, None)]

    async def _fitting(
        self, message: str, conditions: Conditions, most: int | None
    ) -> AsyncIterator[tuple[DeliveryQueue, Item, dict[str, Any]]]:
        """Up to `most` messages that fit, with their entries. Envelopes are read only where that may be of use."""
        fits, given = Filter(conditions, MESSAGE_PROPERTIES), 0
        for count, (queue, item) in enumerate(self._items(message), 1):
            if most is not None and given >= most:
                return
            if count % LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
            if item.gone or not fits.quick(item_entry(queue, item, self._clock())):
                continue
            try:
                envelope = await self._settler.hands.take(item.number)
            except (KeyError, OSError):
                continue
            try:
                entry = message_entry(queue, item, envelope, self._clock())
            finally:
                self._settler.hands.give_back(item.number)
            if fits(entry):
                given += 1
                yield queue, item, entry

    # Names

    def _chosen(self, name: str, conditions: Conditions) -> list[DeliveryQueue]:
        """The queues of that name that fit."""
        now, fits = self._clock(), Filter(conditions, QUEUE_PROPERTIES)
        return [queue for queue in self._named(name) if not conditions or fits(queue_entry(queue, now))]

    def _named(self, name: str) -> list[DeliveryQueue]:
        if name == EVERY:
            return list(self._queues)
        wanted = WORDS.get(name.casefold(), name).casefold()
        found = [queue for queue in self._queues if queue.next_hop.domain.casefold() == wanted]
        if not found and name.isdecimal():
            queue = self._queues.by_identity(int(name))
            found = [queue] if queue is not None else []
        if not found and name.casefold() not in WORDS:  # those are always there, if only in name
            raise NotFound(f"there is no queue {name}")
        return found

    def _items(self, name: str) -> Iterator[tuple[DeliveryQueue, Item]]:
        """Items by `QUEUE\\NUMBER`, `*\\NUMBER`, `NUMBER`, or all of `QUEUE\\*`."""
        queue, _, number = name.rpartition("\\")
        if name == EVERY:
            queue, number = EVERY, EVERY
        if number != EVERY and not number.isdecimal():
            raise NotFound(f"{name} is no message: write QUEUE\\NUMBER, *\\NUMBER or QUEUE\\* (or / for \\)")
        count = 0
        for entry in self._named(queue or EVERY):
            for item in list(entry) if number == EVERY else [found for found in [entry.find(int(number))] if found]:
                count += 1
                yield entry, item
        if number != EVERY and not count:
            raise NotFound(f"there is no message {name}")


async def _part(body: BodyReader, offset: int) -> tuple[bytes, bool]:
    """Octets from `offset` on, and whether there are more."""
    found, at = b"", 0
    async for chunk in body.chunks():
        if at + len(chunk) > offset:
            found += chunk[max(offset - at, 0) :]
        at += len(chunk)
        if len(found) >= CONTENT_AT_ONCE:
            return found[:CONTENT_AT_ONCE], at < body.size or len(found) > CONTENT_AT_ONCE
    return found, False
