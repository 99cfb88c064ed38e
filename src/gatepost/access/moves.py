"""Sessions that must go: because their database has moved (SPEC B5) or because an operator ends them.

    registry's view ─► changes ─► doors: who is concerned ─► Round ─► leave() at a boundary, one by one
                                                                  └─► cut() what is left at the deadline

A round ends sessions over a window, in an order and at moments that nobody can foresee, so that those who come back do
not come at once. It asks each at its turn, again and again until it is at a boundary; nothing waits for it.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import count
from typing import NamedTuple
from typing import Protocol as Port

from gatepost.activemanager.port import RegistryView

QUIET_SECONDS = 0.1
"""Nothing passed for so long: what was under way has arrived, on networks where clients live."""
TICK_SECONDS = 0.02
"""Between two looks of a round. At the default rate 20 sessions are closed a look."""
GOODBYE_SECONDS = 2.0
"""After the farewell: how long the client has to take it and to close its side before the connection is cut."""
LAST_WORD_SECONDS = 0.2
"""Who is cut with a last word is cut without one so much later."""
CUT_SECONDS = 0.5
"""After the deadline: for the loop to be done with the connections that were cut."""


class Changed(NamedTuple):
    """A database has another active copy, or another epoch on the same server."""

    database: str
    old_server: str
    epoch: int


def changes(before: RegistryView, after: RegistryView) -> list[Changed]:
    """The databases whose sessions of `before` are at the wrong place, or of an epoch that is over, in `after`.

    A database that was not there has no sessions. A registry that went back to an older state counts as well.
    """
    return [
        Changed(name, old.server, new.epoch)
        for name, old in before.active.items()
        if (new := after.active.get(name)) is not None and (new.epoch, new.server) != (old.epoch, old.server)
    ]


class Outcome(StrEnum):
    """What came of a session that was to go."""

    CLOSED = "closed"
    """The client's connection is closed (field case 1)."""
    STAYED = "stayed"
    """It is no concern any more: carried over to the new server, or its request is finished."""
    TIMED_OUT = "timed out"


class Leaver(Port):
    """A session that must go."""

    @property
    def outcome(self) -> Outcome | None:
        """`CLOSED` or `STAYED` once that is so, else None."""
        ...

    def activity(self) -> int | None:
        """A number that is another one after each byte that passed; None while bytes wait to be passed on."""
        ...

    def leave(self) -> bool:
        """End the session if this is the moment, and say whether it was. Only asked after a moment of silence."""
        ...

    def cut(self) -> None:
        """End it at once, whatever is under way. A second time without a last word."""
        ...


class _Turn(NamedTuple):
    due: float
    order: int
    leaver: Leaver
    seen: int | None
    since: float


class Round:
    """Ends `leavers` over `window` seconds from now; those left after `forced` seconds are cut.

    `done(outcomes)` is called once, with an outcome for each leaver in their order.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        leavers: Sequence[Leaver],
        *,
        window: float,
        forced: float,
        done: Callable[[list[Outcome]], None] = lambda _: None,
        chance: random.Random | None = None,
    ) -> None:
        self._loop = loop
        self._done = done
        self._chance = chance or random.Random()  # noqa: S311 - jitter, no secret
        self._leavers = leavers
        self._began = now = loop.time()
        self._forced_at = now + forced
        self._order = count()
        self._turns: list[_Turn] = []
        self._left: dict[Leaver, float] = {}
        """Who has been told farewell, and when."""
        self._cut = False
        order = list(leavers)
        self._chance.shuffle(order)
        step = min(window, forced) / max(len(order), 1)
        for place, leaver in enumerate(order):
            # One in each part of the window, at any moment of it: never more than the rate, and no rhythm.
            due = now + (place + self._chance.random()) * step
            self._turns.append(_Turn(due, next(self._order), leaver, leaver.activity(), now))
        heapq.heapify(self._turns)
        self._timer = loop.call_later(TICK_SECONDS if leavers else 0, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        while self._turns and self._turns[0].due <= now:
            self._ask(heapq.heappop(self._turns), now)
        patience = LAST_WORD_SECONDS if self._cut else GOODBYE_SECONDS
        for leaver, since in list(self._left.items()):
            if leaver.outcome is not None:
                del self._left[leaver]
            elif now - since > patience:
                self._left[leaver] = now
                leaver.cut()
        if now >= self._forced_at and not self._cut:
            self._cut = True
            self._cut_all()
        if (self._turns or self._left) and now < self._forced_at + CUT_SECONDS:
            self._timer = self._loop.call_later(TICK_SECONDS, self._tick)
        else:
            self._done([leaver.outcome or Outcome.TIMED_OUT for leaver in self._leavers])

    def _ask(self, turn: _Turn, now: float) -> None:
        """One session's turn: quiet since the last look, and so asked; or looked at again in a moment."""
        leaver = turn.leaver
        if leaver.outcome is not None:
            return
        seen = leaver.activity()
        if seen is not None and seen == turn.seen:
            left = turn.since + QUIET_SECONDS - now
            if left > 0:
                heapq.heappush(self._turns, turn._replace(due=now + left))
                return
            if leaver.leave():
                self._left[leaver] = now
                return
            since = turn.since
        else:
            since = now
        heapq.heappush(self._turns, _Turn(now + QUIET_SECONDS, next(self._order), leaver, seen, since))

    def _cut_all(self) -> None:
        now = self._loop.time()
        for leaver in [turn.leaver for turn in self._turns] + list(self._left):
            if leaver.outcome is None:
                leaver.cut()
                self._left[leaver] = now
        self._turns.clear()


def window_for(sessions: int, at_least: float, per_second: float) -> float:
    """Seconds over which so many sessions are closed."""
    return max(at_least, sessions / per_second)


def counted(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """How many of each, for the log."""
    found: dict[str, int] = {}
    for outcome in outcomes:
        found[outcome.value] = found.get(outcome.value, 0) + 1
    return found
