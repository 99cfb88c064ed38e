"""Time and order as shadow redundancy counts them: the wall's clock may be set, a process may stand still. Pure."""

from __future__ import annotations

LONGEST_STEP = 10.0
"""Seconds that are believed between two looks; a hub looks every second. More is a clock that was set, or a hub that
stood still and has heard nobody meanwhile: neither makes anybody else silent."""

GRACE_SECONDS = 86400.0
"""What seems too old when a hub starts is kept for so long: the clock may be wrong, and be put right soon."""


class Steady:
    """Seconds since 1970 that only grow, and never by more than `LONGEST_STEP` at once."""

    __slots__ = ("_last", "now")

    def __init__(self, now: float) -> None:
        self._last = self.now = now

    def look(self, now: float) -> float:
        """The wall's clock shows `now`; answers the steady time."""
        step, self._last = now - self._last, now
        if step > 0.0:
            self.now += min(step, LONGEST_STEP)
        return self.now


class Moments:
    """What orders things that are seen on different connections: one counter of a hub, for its primary and keeper."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0

    def next(self) -> int:
        """A moment later than all before. Takes one who begins a connection or sends a question."""
        self.last += 1
        return self.last
