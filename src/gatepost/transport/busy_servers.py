"""Servers that serve nobody for the moment: a session's first message was answered 421 (RFC 5321, section 3.8)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gatepost.balancing.target import Target

BUSY = "all servers of the next hop that are up are busy (421)"
CLOSES = 421
MAX_BUSY = 10_000
"""Servers that are remembered; strangers choose domains."""


class BusyServers:
    """Until when no other session is opened with whom. Times are arguments."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, int], float] = {}

    def note(self, target: Target, until: float) -> None:
        """It is left alone until then; others are tried instead."""
        if len(self._until) >= MAX_BUSY:
            del self._until[next(iter(self._until))]
        self._until[target.ip, target.port] = until

    def forget(self, targets: Iterable[Target]) -> None:
        """They may be tried now."""
        for target in targets:
            self._until.pop((target.ip, target.port), None)

    def without(self, targets: Sequence[Target], now: float) -> tuple[Sequence[Target], float]:
        """Those of `targets` that are not known to be busy, and when the first of the others is tried again."""
        if not self._until:
            return targets, math.inf
        until = {target: self._until.get((target.ip, target.port), 0.0) for target in targets}
        free = [target for target in targets if until[target] <= now]
        return free, min((at for at in until.values() if at > now), default=math.inf)
