"""A server that has just come back is not run down by all that waited (smtp-facts row 50): 1, 2, 4, … at a time.

Counted are connections that are being opened, not those that are open, so a server gets its whole share after a few
good ones. Pure: the time comes as argument.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from gatepost.balancing.target import Key

FULL = 32
"""Connections being opened at a time from which on there is no limit: more than one next hop opens at once."""
RAMP_SECONDS = 60.0
"""A ramp that nothing was heard of for so long is over: what it counted has been lost on the way."""
MAX_RAMPS = 1000
"""Ramps at one time; over it the oldest ends."""


@dataclass(slots=True)
class _Ramp:
    recovered: float
    heard: float
    limit: int = 1
    opening: int = 0


class RecoveryRamp:
    """The servers that came back lately."""

    __slots__ = ("_ramps",)

    def __init__(self) -> None:
        self._ramps: OrderedDict[Key, _Ramp] = OrderedDict()

    def recovered(self, key: Key, now: float) -> None:
        """The server was down and has taken a connection."""
        self._ramps[key] = _Ramp(now, now)
        self._ramps.move_to_end(key)
        if len(self._ramps) > MAX_RAMPS:
            self._ramps.popitem(last=False)

    def recovered_since(self, key: Key, began: float) -> bool:
        """Whether the server came back after `began`: what had begun before says nothing about it now."""
        ramp = self._ramps.get(key)
        return ramp is not None and ramp.recovered >= began

    def may_open(self, key: Key, now: float) -> bool:
        """Whether one more connection may be opened now."""
        ramp = self._ramps.get(key)
        if ramp is None:
            return True
        if not 0.0 <= now - ramp.heard < RAMP_SECONDS:
            del self._ramps[key]
            return True
        return ramp.opening < ramp.limit

    def opens(self, key: Key, now: float) -> None:
        """A connection is being opened."""
        ramp = self._ramps.get(key)
        if ramp is not None:
            ramp.opening += 1
            ramp.heard = now

    def opened(self, key: Key, now: float) -> None:
        """It is open: one more may be opened at a time, so twice as many after each round."""
        ramp = self._ramps.get(key)
        if ramp is None:
            return
        ramp.opening = max(ramp.opening - 1, 0)
        ramp.limit += 1
        ramp.heard = now
        if ramp.limit >= FULL:
            del self._ramps[key]

    def given_up(self, key: Key) -> None:
        """It was given up before anything was known of it."""
        ramp = self._ramps.get(key)
        if ramp is not None:
            ramp.opening = max(ramp.opening - 1, 0)

    def ended(self, key: Key) -> None:
        """The server is down again, or forgotten."""
        self._ramps.pop(key, None)
