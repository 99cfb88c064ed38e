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

    def shadow_queues(self, server: str = EVERY) -> list[dict[str, Any]]:
        """The shadow queues, one for each primary, most messages first: `server` (the primary), `identity` of its queue
        database, `messages`, `taking_over` of those, when it was `heard` last, `next_heartbeat`, heartbeats in a row
        that failed (`failures`). Times in seconds since 1970."""
        found = [asdict(queue) | {"messages": queue.count} for queue in self._chosen(server)]
        for entry in found:
            del entry["count"]
        return sorted(found, key=lambda entry: (-entry["messages"], entry["server"]))

    async def shadow_messages(self, server: str = EVERY, *, limit: int = MAX_LISTED) -> list[dict[str, Any]]:
        """The messages in those queues. `state` of a recipient is `shadowed` while the primary has not settled it."""
        chosen = {queue.server for queue in self._chosen(server)}
        found: list[dict[str, Any]] = []
        most = max(0, min(limit, MOST_LISTED))
        async for kept in self._kept():
            if len(found) >= most:
                break
            if kept.primary not in chosen or self._keeper.number(kept.primary, kept.key) != kept.number:
                continue
            try:
                envelope = await self._hands.take(kept.number)
            except (KeyError, OSError):
                continue
            try:
                found.append(_entry(kept, envelope))
            finally:
                self._hands.give_back(kept.number)
        return found

    def shadow_resubmit(self, server: str) -> int:
        """Take over all messages of a primary, or of all, and deliver them from here; how many. They are queued in the
        background, and so delivered twice if the primary is alive and delivers them as well."""
        return sum(self._keeper.resubmit(queue.server) for queue in self._chosen(server))

    def _chosen(self, server: str) -> list[ShadowQueue]:
        found = [queue for queue in self._keeper.queues() if server in (EVERY, queue.server)]
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
