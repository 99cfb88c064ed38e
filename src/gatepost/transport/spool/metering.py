"""The spool's own back pressure: how full its disk is and how many messages wait, every two seconds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gatepost.balancing.back_pressure import BackPressure, Pressure, count_marks, disk_marks

DISK = "disk"
MESSAGES = "messages"
FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Space:
    """Of a file system, in bytes: what an account like ours can use at most, and what is free of it."""

    size: int
    free: int


def space_of(directory: Path) -> Space:
    """Raises OSError."""
    status = os.statvfs(directory)
    used = (status.f_blocks - status.f_bfree) * status.f_frsize
    free = status.f_bavail * status.f_frsize
    return Space(used + free, free)


class Meter:
    """Brings the spool's values to the rules. Free pages within the database are free: they are used first."""

    def __init__(self, most_messages: int, least_free: int) -> None:
        self.limit(most_messages, least_free)
        self._rules = BackPressure({DISK: disk_marks(0, 0), MESSAGES: self._count})
        self.space = Space(0, 0)

    def limit(self, most_messages: int, least_free: int) -> None:
        """Other limits, from the next metering on."""
        self._count = count_marks(most_messages)
        self.least_free = least_free

    @property
    def rules(self) -> BackPressure:
        """What follows from the last metering."""
        return self._rules

    def metered(self, space: Space, free_pages: int, messages: int) -> Pressure:
        """The stage now. `free_pages` in bytes."""
        self.space = space
        free = min(space.size, space.free + free_pages)
        used = 100 * (space.size - free) / space.size if space.size else 100.0
        marks = {DISK: disk_marks(space.size, self.least_free), MESSAGES: self._count}
        return self._rules.metered({DISK: used, MESSAGES: messages}, marks)
