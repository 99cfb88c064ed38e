"""Limits on mail sessions: who counts them, and what a session holds while it lasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol as Port


class SessionCounts(Port):
    """Counts that all workers of a machine share. Keys are opaque."""

    async def enter(self, keys: Sequence[tuple[str, int]]) -> str | None:
        """Count a session under each key; with a limit above 0 no more than so many. Answers the first key whose limit
        is reached, and nothing is counted then; an empty text: it is counted; None: the store is away, it is not."""
        ...

    def leave(self, keys: Sequence[str]) -> None:
        """A session that was counted under these keys is over."""
        ...


class OwnCounts:
    """The `SessionCounts` of one process."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    async def enter(self, keys: Sequence[tuple[str, int]]) -> str | None:
        """See `SessionCounts`."""
        for key, limit in keys:
            if limit and self._counts.get(key, 0) >= limit:
                return key
        for key, _ in keys:
            self._counts[key] = self._counts.get(key, 0) + 1
        return ""

    def leave(self, keys: Sequence[str]) -> None:
        """See `SessionCounts`."""
        for key in keys:
            left = self._counts.get(key, 0) - 1
            if left > 0:
                self._counts[key] = left
            else:
                self._counts.pop(key, None)
