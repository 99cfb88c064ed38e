"""Back pressure by stages (exchange-facts 4.12): when a hub takes less, when it takes nothing, and when it recovers.

    NORMAL ── value ≥ medium ──► MEDIUM ── value ≥ high ──► HIGH
       ▲                          │   ▲                       │
       └── value ≤ from_medium ───┘   └── value ≤ from_high ──┘

The way down has marks of its own, so that nothing swings at one value. Pure: whoever meters brings the values, once
every `METERING_SECONDS`; a number of meterings is the only clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

METERING_SECONDS = 2.0
TARPIT_FIRST = 10.0
TARPIT_STEP = 5.0
TARPIT_MOST = 55.0
"""Seconds that strangers wait before MAIL is answered: so long at first, more with each metering, never over the last;
less by a step with each metering when the pressure is over."""
PERCENT_HIGH = 99
"""Of a disk in use, whatever its size."""


class Pressure(IntEnum):
    """Back pressure by stages (exchange-facts 4.12)."""

    NORMAL = 0
    MEDIUM = 1
    """Strangers wait before each MAIL is answered; when it lasts they are refused for the moment."""
    HIGH = 2
    """Nothing new is taken: 452 4.3.1."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Where one resource changes its stage; `from_medium < medium <= from_high < high`, or nearly so.

    MEDIUM refuses strangers once it has stood for `patience` meterings without a normal one between; 0: at once.
    """

    medium: float
    high: float
    from_high: float
    from_medium: float
    patience: int = 0

    def stage(self, before: Pressure, value: float) -> Pressure:
        """The stage after `value` was metered."""
        if value >= self.high or (before is Pressure.HIGH and value > self.from_high):
            return Pressure.HIGH
        if value >= self.medium or (before is not Pressure.NORMAL and value > self.from_medium):
            return Pressure.MEDIUM
        return Pressure.NORMAL


SUBMISSION_QUEUE = Marks(medium=9999, high=15000, from_high=10000, from_medium=2000, patience=300)
"""Messages that are accepted and not yet routed."""


def disk_marks(size: int, least_free: int) -> Marks:
    """Percent in use of a disk of `size` bytes, `least_free` of which are to stay free.

    At 50 GB and more these are the source system's 96, 99, 97 and 94. On a small disk they are as far apart, and never
    so low that an empty disk of any size is under pressure for its size alone.
    """
    floor = math.floor(100 * (size - least_free) / size) if size else 0
    high = max(min(PERCENT_HIGH, floor), 10)
    return Marks(high - 3, high, high - 2, high - 5)


def count_marks(most: int) -> Marks:
    """Messages in the queue, `most` of which are kept: medium from 90 percent on, over again under 80.

    The source system has no such mark. Strangers are slowed at first and refused when it lasts, as by its submission
    queue: what drains slowly is not yet an emergency.
    """
    return Marks(most * 0.9, most, most * 0.95, most * 0.8, SUBMISSION_QUEUE.patience)


class BackPressure:
    """The stages of all resources that are metered, and what follows from them together."""

    __slots__ = ("_long", "_marks", "_stages", "pressure", "refuses_strangers", "tarpit_seconds")

    def __init__(self, marks: Mapping[str, Marks]) -> None:
        self._marks = dict(marks)
        self._stages = dict.fromkeys(self._marks, Pressure.NORMAL)
        self._long = dict.fromkeys(self._marks, 0)
        self.pressure = Pressure.NORMAL
        self.refuses_strangers = False
        """Whether who is no server of the organization is refused for the moment."""
        self.tarpit_seconds = 0.0
        """How long strangers wait before MAIL is answered."""

    def metered(self, values: Mapping[str, float], marks: Mapping[str, Marks] | None = None) -> Pressure:
        """The stage with these values; a resource without one stands as before. `marks` that have changed count now."""
        self._marks.update(marks or {})
        for name, value in values.items():
            found = self._marks[name]
            stage = found.stage(self._stages.get(name, Pressure.NORMAL), value)
            self._stages[name] = stage
            self._long[name] = 0 if stage is Pressure.NORMAL else self._long.get(name, 0) + 1
        self.pressure = max(self._stages.values(), default=Pressure.NORMAL)
        self.refuses_strangers = any(
            stage is Pressure.HIGH or (stage is Pressure.MEDIUM and self._long[name] >= self._marks[name].patience)
            for name, stage in self._stages.items()
        )
        if self.pressure is Pressure.NORMAL:
            self.tarpit_seconds = max(0.0, self.tarpit_seconds - TARPIT_STEP)
        else:
            self.tarpit_seconds = min(TARPIT_MOST, max(TARPIT_FIRST, self.tarpit_seconds + TARPIT_STEP))
        return self.pressure

    def causes(self) -> dict[str, Pressure]:
        """The resources that are not normal, for logs and operators."""
        return {name: stage for name, stage in self._stages.items() if stage is not Pressure.NORMAL}
