"""How many a second, averaged over the last minute (exchange-facts 4.6). Pure: times are arguments, in seconds."""

from __future__ import annotations

MINUTE = 60
SLOT_SECONDS = 5
_SLOTS = MINUTE // SLOT_SECONDS


class Rate:
    """Counts by slots of five seconds; what is older than a minute is forgotten. Made to be cheap: a queue has two."""

    __slots__ = ("_counts", "_last")

    def __init__(self) -> None:
        self._counts: list[int] | None = None
        self._last = 0

    def count(self, now: float) -> None:
        """One more."""
        slot = int(now) // SLOT_SECONDS
        counts = self._counts
        if slot != self._last or counts is None:
            counts = self._turn(slot)
        counts[slot % _SLOTS] += 1

    def a_second(self, now: float) -> float:
        """The average over the last minute."""
        if self._counts is None:
            return 0.0
        return sum(self._turn(int(now) // SLOT_SECONDS)) / MINUTE

    def _turn(self, slot: int) -> list[int]:
        """Forget what is too old by now. A clock that was set back begins anew."""
        counts, gone = self._counts, slot - self._last
        if counts is None or gone >= _SLOTS or gone < 0:
            counts = self._counts = [0] * _SLOTS
        else:
            for old in range(self._last + 1, slot + 1):
                counts[old % _SLOTS] = 0
        self._last = slot
        return counts
