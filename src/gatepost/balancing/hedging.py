"""When a second server is tried while the first has not answered yet, and which one wins (smtp-facts, section e, 3).

    begin ──► trying ── hedge_seconds without an answer ──► another of the same preference is begun beside it
                │  all that were begun have failed ──► the next one, of any preference
                └─ one is open ──► won: the others run on in the background until their own time is over, so that a
                                   server that swallows packets is found out, and are closed when they open

Only connecting is hedged, so no message is ever on two connections. Pure: time comes as argument, of any clock that
only grows.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum

MAX_AT_ONCE = 3
"""Connections that one message's delivery opens at a time: two of three servers may swallow packets."""


class Step(Enum):
    """What is to be done now."""

    ANY = "begin an attempt at the next target"
    SAME_PREFERENCE = "begin one at the next target of the preference of those under way"
    WAIT = "wait for an outcome, or until `wake`"


class Hedge:
    """The attempts of one connection. An attempt is named by any value that its caller chooses."""

    __slots__ = ("_begun_last", "_exhausted", "_newest", "_seconds", "_trying", "preference", "wake")

    def __init__(self, hedge_seconds: float) -> None:
        """0: never a second one."""
        self._seconds = hedge_seconds
        self._trying: set[Hashable] = set()
        self._begun_last = 0.0
        self._newest: Hashable = None
        self._exhausted = False
        self.preference = 0
        """Of the attempts under way."""
        self.wake: float | None = None
        """When to ask `step` again though nothing happened; None: nothing will change by itself."""

    @property
    def trying(self) -> int:
        """Attempts under way."""
        return len(self._trying)

    def step(self, now: float) -> Step:
        """What to do now."""
        self.wake = None
        if not self._trying:
            return Step.ANY
        if self._seconds <= 0 or self._exhausted or len(self._trying) >= MAX_AT_ONCE:
            return Step.WAIT
        hedge_at = self._begun_last + self._seconds
        if now >= hedge_at:
            return Step.SAME_PREFERENCE
        self.wake = hedge_at
        return Step.WAIT

    def begun(self, attempt: Hashable, preference: int, now: float) -> None:
        """The attempt that `step` asked for is under way."""
        self._trying.add(attempt)
        self._newest = attempt
        self._begun_last = now
        self.preference = preference
        self._exhausted = False

    def none_left(self) -> None:
        """There is no further target of the preference: do not ask again until an attempt has failed."""
        self._exhausted = True

    def failed(self, attempt: Hashable, now: float) -> None:
        """An attempt is over. When it was the newest, the older ones have had their time: the next need not wait."""
        self._trying.discard(attempt)
        self._exhausted = False
        if attempt == self._newest:
            self._begun_last = now - self._seconds

    def won(self, attempt: Hashable) -> set[Hashable]:
        """An attempt is open: the others, which are to run on in the background."""
        self._trying.discard(attempt)
        left, self._trying = self._trying, set()
        return left
