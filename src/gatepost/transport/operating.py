"""What operators ask of queues and messages: list, show, freeze, resume, retry, redirect, drop (SPEC T13).

Queues are named as the source system names them: `Submission`, `Unreachable`, `Poison`, a next hop's domain, or a
number; messages `QUEUE\\NUMBER`, or `*\\NUMBER` for all copies of one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from gatepost.routing.next_hop import DeliveryType, NextHop
from gatepost.transport.dispatch.dispatcher import Dispatcher
from gatepost.transport.dispatch.settler import Settler
from gatepost.transport.message import Envelope, RecipientState
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


class NotFound(ValueError):
    """No queue or message has this name. The message is for the operator."""


class Operating:
    """Carries out operators' requests. Each answers values that msgspec can encode. Raises `NotFound`, ValueError."""

    def __init__(
        self,
        queues: Queues,
        dispatcher: Dispatcher,
        settler: Settler,
        requeue: Callable[[DeliveryQueue], Awaitable[None]],
        keep_suspended: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """`requeue` routes the messages of a queue anew; `keep_suspended` has the frozen queues remembered."""
        self._queues = queues
        self._dispatcher = dispatcher
        self._settler = settler
        self._requeue = requeue
        self._keep_suspended = keep_suspended
        self._clock = clock

    # Queues

    def queues(self, queue: str = EVERY, *, empty: bool = True, limit: int = MAX_LISTED) -> list[dict[str, Any]]:
        """The queues of that name, most messages first."""
        now = self._clock()
        found = [self._queue_entry(entry, now) for entry in self._named(queue) if empty or len(entry)]
        found.sort(key=lambda entry: (-entry["messages"], entry["identity"]))
        return found[: max(0, min(limit, MOST_LISTED))]

    def freeze_queue(self, queue: str) -> int:
        """Let nothing more leave the queues of that name; how many. What is under way ends."""
        return self._suspend(queue, suspended=True)

    def resume_queue(self, queue: str) -> int:
        """Let frozen queues go on; how many."""
        return self._suspend(queue, suspended=False)

    def retry_queue(self, queue: str) -> int:
        """Try now what waits for its time; how many queues."""
        found = self._named(queue)
        for entry in found:
            entry.retry_now()
            self._dispatcher.touch(entry)
        return len(found)

    async def resubmit_queue(self, queue: str) -> int:
        """Route all messages of the queues anew (`Retry-Queue -Resubmit`); how many queues."""
        found = self._named(queue)
        for entry in found:
            if entry.next_hop != POISON:
                await self._requeue(entry)
        return len(found)

    def redirect(self, target: str, queue: str = EVERY) -> int:
        """Send what waits in delivery queues to another server of the organization instead; how many messages.

        What comes later goes its own way, and so does what is still here after a restart.
        """
        now, count = self._clock(), 0
        next_hop = NextHop(DeliveryType.SERVERS, target)
        for entry in self._named(queue):
            if entry.next_hop == next_hop or entry.next_hop.delivery in NO_DELIVERY:
                continue
            for item in entry.empty():
                item.due = 0.0
                self._dispatcher.touch(self._queues.add(next_hop, item, now))
                count += 1
            entry.emptied(now)
        return count

    def _suspend(self, queue: str, *, suspended: bool) -> int:
        found = self._named(queue)
        for entry in found:
            entry.suspended = suspended
            self._dispatcher.touch(entry)
        self._keep_suspended()
        return len(found)

    # Messages

    async def messages(self, message: str = EVERY, *, limit: int = MAX_LISTED) -> list[dict[str, Any]]:
        """The messages of that name, in the order of their queues, with their envelopes."""
        found: list[dict[str, Any]] = []
        for queue, item in self._items(message):
            if len(found) >= max(0, min(limit, MOST_LISTED)):
                break
            try:
                envelope = await self._settler.hands.take(item.number)
            except (KeyError, OSError):
                continue
            try:
                found.append(self._message_entry(queue, item, envelope))
            finally:
                self._settler.hands.give_back(item.number)
        return found

    async def freeze_message(self, message: str) -> int:
        """Let the messages wait; how many."""
        return await self._suspend_messages(message, suspended=True)

    async def resume_message(self, message: str) -> int:
        """Let frozen messages go on; how many. A poisoned one is tried once more."""
        return await self._suspend_messages(message, suspended=False)

    async def drop(self, message: str, *, report: bool = True) -> int:
        """Delete messages; with `report` their senders are told. How many. One under way is not deleted."""
        found = list(self._items(message))
        dropped = 0
        for queue, item in found:
            if not queue.holds(item):
                await self._settler.drop(queue, item, DROPPED, tell=report)
                dropped += 1
        return dropped

    async def _suspend_messages(self, message: str, *, suspended: bool) -> int:
        found = list(self._items(message))
        for queue, item in found:
            envelope = await self._settler.hands.take(item.number)
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
        return len(found)

    # Names

    def _named(self, name: str) -> list[DeliveryQueue]:
        if name == EVERY:
            return list(self._queues)
        wanted = WORDS.get(name.casefold(), name).casefold()
        found = [queue for queue in self._queues if queue.next_hop.domain.casefold() == wanted]
        if not found and name.isdecimal():
            queue = self._queues.by_identity(int(name))
            found = [queue] if queue is not None else []
        if not found:
            raise NotFound(f"there is no queue {name}")
        return found

    def _items(self, name: str) -> Iterator[tuple[DeliveryQueue, Item]]:
        """Items by `QUEUE\\NUMBER`, `*\\NUMBER`, `NUMBER`, or all of `QUEUE\\*`."""
        queue, _, number = name.rpartition("\\")
        if name == EVERY:
            queue, number = EVERY, EVERY
        if number != EVERY and not number.isdecimal():
            raise NotFound(f"{name} is no message: write QUEUE\\NUMBER, or *\\NUMBER")
        count = 0
        for entry in self._named(queue or EVERY):
            for item in list(entry) if number == EVERY else [found for found in [entry.find(int(number))] if found]:
                count += 1
                yield entry, item
        if number != EVERY and not count:
            raise NotFound(f"there is no message {name}")

    # Answers

    def _queue_entry(self, queue: DeliveryQueue, now: float) -> dict[str, Any]:
        return {
            "identity": queue.identity,
            "delivery_type": queue.next_hop.delivery.value,
            "next_hop_domain": queue.next_hop.domain,
            "next_hop_connector": queue.next_hop.connector,
            "status": queue.status(now).value,
            "messages": len(queue),
            "deferred": queue.deferred,
            "connections": queue.connections,
            "last_error": queue.last_error,
            "last_retry": queue.last_retry,
            "next_retry": max(queue.retry_at, 0.0) if now < queue.retry_at else (queue.next_time() or 0.0),
            "retry_count": queue.failures,
            "sent": queue.sent,
        }

    def _message_entry(self, queue: DeliveryQueue, item: Item, envelope: Envelope) -> dict[str, Any]:
        status = "Suspended" if item.suspended else "Active" if queue.holds(item) else "Ready"
        if status == "Ready" and (item.due > self._clock() or self._clock() < queue.retry_at):
            status = "Retry"
        return {
            "number": item.number,
            "queue": queue.identity,
            "next_hop_domain": queue.next_hop.domain,
            "status": status,
            "from": envelope.sender,
            "message_id": envelope.message_id,
            "subject": envelope.subject,
            "size": envelope.size,
            "received": envelope.received,
            "expires": envelope.expires,
            "source": envelope.source.address,
            "user": envelope.source.user,
            "due": item.due,
            "attempts": item.attempts,
            "recipients": [
                {
                    "address": recipient.address,
                    "state": RecipientState(recipient.state).name.lower(),
                    "reply": recipient.reply,
                    "server": recipient.server,
                }
                for recipient in (envelope.recipients[place] for place in item.recipients)
            ],
        }
