"""What operators ask of shadow queues: list, show, resubmit (SPEC S2; exchange-facts 4.6)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from gatepost.transport.dispatch.hands import Hands
from gatepost.transport.message import Envelope, RecipientState
from gatepost.transport.operating import EVERY, MAX_LISTED, MOST_LISTED, NotFound
from gatepost.transport.shadow.copies import find_shadow
from gatepost.transport.shadow.keeper import Keeper, ShadowQueue
from gatepost.transport.shadow.ports import Kept, Role
from gatepost.transport.shadow.redundancy import KeepingSpool

SHADOW_VERBS = frozenset({"shadow_queues", "shadow_messages", "shadow_resubmit"})
"""What it does for operators."""


class Listing:
    """Carries out operators' requests. Each answers values that msgspec can encode. Raises `NotFound`, OSError."""

    def __init__(self, spool: KeepingSpool, hands: Hands, keeper: Keeper) -> None:
        self._spool = spool
        self._hands = hands
        self._keeper = keeper
        self._numbers: dict[str, int] = {}
        """What operators call the queues, by primary; they stay as long as this process runs."""

    async def shadow_queues(self, primary: str = EVERY) -> list[dict[str, Any]]:
        """The shadow queues, one for each primary, most messages first: `server` (the primary), `identity` of its queue
        database, `messages`, `taking_over` of those, when it was `heard` last, `next_heartbeat`, heartbeats in a row
        that failed (`failures`), its `number`, its `status` in the source system's words, and when its `oldest` message
        became the primary's, if something is in it. Times in seconds since 1970. Raises OSError."""
        found = [asdict(queue) | {"messages": queue.count} for queue in self._chosen(primary)]
        oldest = await self._oldest()
        for entry in found:
            del entry["count"]
            entry["number"] = self._number(entry["server"])
            entry["status"] = "Active" if entry["taking_over"] else "Retry" if entry["failures"] else "Ready"
            entry["oldest"] = oldest.get(entry["server"], 0.0)
        return sorted(found, key=lambda entry: (-entry["messages"], entry["server"]))

    async def shadow_messages(
        self, primary: str = EVERY, *, message: int | None = None, limit: int = MAX_LISTED
    ) -> list[dict[str, Any]]:
        """The messages in those queues, or one by its number. `state` of a recipient is `shadowed` while the primary
        has not settled it."""
        chosen = {queue.server for queue in self._chosen(primary)}
        found: list[dict[str, Any]] = []
        most = max(0, min(limit, MOST_LISTED))
        async for kept in self._kept():
            if len(found) >= most:
                break
            if kept.primary not in chosen or self._keeper.number(kept.primary, kept.key) != kept.number:
                continue
            if message is not None and kept.number != message:
                continue
            try:
                envelope = await self._hands.take(kept.number)
            except (KeyError, OSError):
                continue
            try:
                found.append(_entry(kept, envelope) | {"queue": self._number(kept.primary)})
            finally:
                self._hands.give_back(kept.number)
        return found

    async def shadow_resubmit(self, primary: str, message: int | None = None) -> int:
        """Take over all messages of a primary, or of all, or one by its number, and deliver them from here; how many.
        They are queued in the background, and so delivered twice if the primary is alive and delivers them as well."""
        queues = self._chosen(primary)
        if message is None:
            return sum(self._keeper.resubmit(queue.server) for queue in queues)
        servers = {queue.server for queue in queues}
        meant = [kept async for kept in self._kept() if kept.number == message and kept.primary in servers]
        count = sum(self._keeper.resubmit_one(kept.primary, kept.key) for kept in meant)
        if not count:
            raise NotFound(f"there is no message {message} in a shadow queue of {primary}")
        return count

    def _number(self, server: str) -> int:
        return self._numbers.setdefault(server, len(self._numbers) + 1)

    async def _oldest(self) -> dict[str, float]:
        """Of each primary: when we began to keep what we have kept longest, as far as `until` tells."""
        found: dict[str, float] = {}
        async for kept in self._kept():
            found[kept.primary] = min(found.get(kept.primary, kept.until), kept.until)
        return {server: until - self._keeper.kept_seconds for server, until in found.items()}

    def _chosen(self, server: str) -> list[ShadowQueue]:
        """By the primary's name, without minding case, or by the queue's number."""
        queues = self._keeper.queues()
        for queue in queues:
            self._number(queue.server)
        wanted = server.casefold()
        found = [
            queue
            for queue in queues
            if server == EVERY or queue.server.casefold() == wanted or str(self._numbers[queue.server]) == server
        ]
        if not found and server != EVERY:
            raise NotFound(f"there is no shadow queue of {server}")
        return found

    async def _kept(self) -> AsyncIterator[Kept]:
        async for batch in self._spool.kept(Role.SHADOW):
            for kept in batch:
                yield kept


def _entry(kept: Kept, envelope: Envelope) -> dict[str, Any]:
    shadow = find_shadow(envelope, kept.primary, kept.key)
    places = shadow.places if shadow is not None else range(len(envelope.recipients))
    recipients = [envelope.recipients[place] for place in places if place >= 0]
    return {
        "number": kept.number,
        "server": kept.primary,
        "identity": kept.identity,
        "token": kept.key,
        "until": kept.until,
        "since": shadow.since if shadow is not None else 0.0,
        "from": envelope.sender,
        "message_id": envelope.message_id,
        "subject": envelope.subject,
        "size": envelope.size,
        "received": envelope.received,
        "expires": envelope.expires,
        "addresses": [recipient.address for recipient in recipients],
        "recipients": [
            {
                "address": recipient.address,
                "state": RecipientState(recipient.state).name.lower(),
                "reply": recipient.reply,
                "server": recipient.server,
            }
            for recipient in recipients
        ],
    }
