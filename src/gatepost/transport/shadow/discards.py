"""Discard events that other hubs have not yet acknowledged (SPEC S2; exchange-facts 4.4). Pure; a step costs O(1)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from gatepost.wire.shadow_messages import Discarded


class _Pending(msgspec.Struct, gc=False):
    event: Discarded
    since: float
    """When it was noted, in steady time: the event's own time is the wall clock's, which may be set."""
    changes: int = 0
    given: int = -1
    """The changes that were in it when it was given out last."""


class Discards:
    """Events for one shadow server, oldest first, one a token: what is told of a copy later is added to it.

    A whole event without a time says only that this copy is not needed any more; with one, that all is settled.
    """

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: OrderedDict[str, _Pending] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, event: Discarded, now: float) -> Discarded:
        """Note an event; the whole of what is now to be said of its token."""
        pending = self._pending.get(event.token)
        if pending is None:
            self._pending[event.token] = _Pending(event, now)
            return event
        before = pending.event
        if before.places is None and (before.at or event.places is not None):
            return before
        if event.places is not None and before.places is not None:
            places = sorted({*before.places, *event.places})
            databases = list(dict.fromkeys((*before.databases, *event.databases)))
            late = sorted({*before.late, *event.late})
            event = Discarded(event.token, places, databases, event.at, late)
        pending.event = event
        pending.changes += 1
        return event

    def get(self, token: str) -> Discarded | None:
        """What is to be said of a copy."""
        pending = self._pending.get(token)
        return pending.event if pending is not None else None

    def is_whole(self, token: str) -> bool:
        """Whether it is to be said that the copy is not needed any more."""
        pending = self._pending.get(token)
        return pending is not None and pending.event.places is None

    def take(self, limit: int) -> list[Discarded]:
        """The oldest; they stay until they are acknowledged."""
        taken: list[Discarded] = []
        for pending in self._pending.values():
            if len(taken) >= limit:
                break
            pending.given = pending.changes
            taken.append(pending.event)
        return taken

    def acknowledge(self, tokens: Sequence[str]) -> list[str]:
        """These have been given out and are carried out; those of which nothing more is to be said are forgotten."""
        gone = []
        for token in tokens:
            pending = self._pending.get(token)
            if pending is not None and pending.given == pending.changes:
                del self._pending[token]
                gone.append(token)
        return gone

    def older_than(self, then: float) -> list[str]:
        """Forget the events up to `then`, in steady time; their tokens."""
        gone = []
        for token, pending in self._pending.items():
            if pending.since > then:
                break
            gone.append(token)
        for token in gone:
            del self._pending[token]
        return gone

    def clear(self) -> list[str]:
        """Forget all; their tokens."""
        gone = list(self._pending)
        self._pending.clear()
        return gone
