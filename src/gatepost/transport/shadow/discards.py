"""Discard events that other hubs have not yet acknowledged (SPEC S2; exchange-facts 4.4). Pure; a step costs O(1)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from gatepost.wire.shadow_messages import Discarded


class Discards:
    """Events for one shadow server, oldest first, one a token: what is told of a copy later is added to it."""

    __slots__ = ("_changes", "_events", "_given")

    def __init__(self) -> None:
        self._events: OrderedDict[str, Discarded] = OrderedDict()
        self._changes: dict[str, int] = {}
        """How often an event was added to that is not acknowledged; most never are."""
        self._given: dict[str, int] = {}
        """Of those that have been given out: the changes that were in it."""

    def __len__(self) -> int:
        return len(self._events)

    def add(self, event: Discarded) -> Discarded:
        """Note an event; the whole of what is now to be said of its token."""
        token = event.token
        before = self._events.get(token)
        if before is not None:
            if before.places is None:
                return before
            if event.places is not None:
                places = sorted({*before.places, *event.places})
                databases = list(dict.fromkeys((*before.databases, *event.databases)))
                event = Discarded(token, places, databases, event.at)
            self._changes[token] = self._changes.get(token, 0) + 1
        self._events[token] = event
        return event

    def get(self, token: str) -> Discarded | None:
        """What is to be said of a copy."""
        return self._events.get(token)

    def take(self, limit: int) -> list[Discarded]:
        """The oldest; they stay until they are acknowledged."""
        taken: list[Discarded] = []
        for token, event in self._events.items():
            if len(taken) >= limit:
                break
            self._given[token] = self._changes.get(token, 0)
            taken.append(event)
        return taken

    def acknowledge(self, tokens: Sequence[str]) -> list[str]:
        """These have been given out and are carried out; those of which nothing more is to be said are forgotten."""
        gone = []
        for token in tokens:
            if self._given.pop(token, None) == self._changes.get(token, 0) and token in self._events:
                self._forget(token)
                gone.append(token)
        return gone

    def older_than(self, at: float) -> list[str]:
        """Forget the events from before `at`; their tokens. They are looked at in order: one that was added to late
        keeps those behind it, but not for longer than it stays itself."""
        gone = []
        for token, event in self._events.items():
            if event.at >= at:
                break
            gone.append(token)
        for token in gone:
            self._forget(token)
        return gone

    def clear(self) -> list[str]:
        """Forget all; their tokens."""
        gone = list(self._events)
        self._events.clear()
        self._changes.clear()
        self._given.clear()
        return gone

    def _forget(self, token: str) -> None:
        del self._events[token]
        self._changes.pop(token, None)
        self._given.pop(token, None)
