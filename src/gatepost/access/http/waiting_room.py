"""A fair queue with a clock: who has waited for too long is told so (SPEC B4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from gatepost.balancing.fair_queue import FairQueue, QueueFull

T = TypeVar("T")

WAIT_SECONDS = 2.0
"""Long enough to get over a burst, short enough that a client's own patience is not at its end."""
PATIENT_SECONDS = 0.5
"""Whoever waits longer has met no burst: nothing comes free by itself."""
TOO_MANY = "too many requests wait"
TOO_LONG = "waited in vain"


class WaitingRoom(Generic[T]):
    """Users' items in turn, each for at most `WAIT_SECONDS`.

    `turned_away(item, reason)` is called for those whose time is up and for those who must give way to a user who has
    fewer. `refused` counts them, and those who found no room.
    """

    __slots__ = ("_loop", "_queue", "_turned_away", "present", "refused")

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int, turned_away: Callable[[T, str], None]) -> None:
        self._loop = loop
        self._queue: FairQueue[T] = FairQueue(limit)
        self._turned_away = turned_away
        self.present: dict[T, tuple[str, asyncio.TimerHandle, float]] = {}
        """Who waits. For whoever asks with each request whether anybody does: `len` of this object is a call."""
        self.refused = 0

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, user: str, item: T) -> None:
        """Let `item` wait, or turn it away at once, or another one in its stead."""
        try:
            displaced = self._queue.put(user, item)
        except QueueFull:
            self.refused += 1
            self._turned_away(item, TOO_MANY)
            return
        self.present[item] = (user, self._loop.call_later(WAIT_SECONDS, self._late, item), self._loop.time())
        if displaced is not None:
            self._gone(displaced)
            self.refused += 1
            self._turned_away(displaced, TOO_MANY)

    def patient(self) -> list[str]:
        """The users of those who have waited for `PATIENT_SECONDS`, one entry for each."""
        before = self._loop.time() - PATIENT_SECONDS
        return [user for user, _, since in self.present.values() if since <= before]

    def first(self) -> T:
        """Whose turn is next. Raises `IndexError` when nobody waits."""
        return self._queue.first()

    def pop(self) -> T:
        """Take whose turn it is. Raises `IndexError`."""
        item = self._queue.pop()
        self._gone(item)
        return item

    def cancel(self, item: T) -> bool:
        """`item` waits no more; False when it did not."""
        if item not in self.present:
            return False
        return self._queue.cancel(self._gone(item), item)

    def _gone(self, item: T) -> str:
        user, timer, _ = self.present.pop(item)
        timer.cancel()
        return user

    def _late(self, item: T) -> None:
        if self.cancel(item):
            self.refused += 1
            self._turned_away(item, TOO_LONG)
