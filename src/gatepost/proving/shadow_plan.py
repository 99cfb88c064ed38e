"""What is done to the hubs in each run of a proving of shadow redundancy: pure, by number and seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gatepost.proving.senders import DOMAIN
from gatepost.proving.shadow_cast import FAR, RESUBMIT_SECONDS
from gatepost.proving.stages import STAGES, Part, Stage

ANY = "at random"
"""The stage of runs that strike at any moment."""
ANY_EVERY = 6
"""One run in so many."""
STRIDE = 11
"""Stages follow each other in this step, so that a short proving has some of each part. Prime to their number."""
MESSAGES = (12, 30)
"""Of one run."""
PASSES = {Part.ACCEPT: 6, Part.RELAY: 6, Part.HAND_ON: 1, Part.SETTLE: 0, Part.TAKE_OVER: 1}
"""How often hubs come to a stage at most before it strikes: by message, or by the second."""
ANY_SECONDS = 1.2
"""After the first message: the latest moment of a strike at random."""
WAITING = "before the 250"
"""Where the first hub is struck in runs whose own stage comes later: some messages are acknowledged and wait."""
SECOND = (Part.TAKE_OVER, Part.FENCE, Part.REACHED)
"""Stages that are reached after a first blow."""
HELD_DEAD_SECONDS = RESUBMIT_SECONDS + 2.0
"""After it a hub that is away has been held dead, and its messages were taken over."""


class Blow(StrEnum):
    """What happens to a hub."""

    KILL = "kill -9"
    DISK = "loss of the disk"
    """kill -9, and its spool is deleted."""
    HANG = "hung"
    """It stands still and goes on later."""
    CUT = "cut off"
    """Hub and hubs do not reach each other, and no connection ends; clients and the next server reach all."""
    REFUSED = "refused"
    """As cut off, but connections between hubs end at once."""


DISTURBANCES = (Blow.HANG, Blow.CUT, Blow.REFUSED)
"""After these the hub is the same."""


class Back(StrEnum):
    """When a hub that was killed runs again. The second of two that are struck: at once."""

    AT_ONCE = "at once"
    LATE = "when the others have delivered"


@dataclass(frozen=True, slots=True)
class Strike:
    """One blow, to the hub that comes to the stage first."""

    stage: str
    """Of `STAGES`, or `ANY`."""
    blow: Blow
    passes: int = 0
    seconds: float = 0.0
    """Until the moment of a strike at random, or how long a hub hangs or is cut off."""
    again: bool = False
    """The hub that was struck first is struck again, no other."""


class Busy(StrEnum):
    """When the sink takes nothing, so that messages wait in the hubs."""

    NEVER = "never"
    AT_FIRST = "at first"
    UNTIL_STRUCK = "until all blows were struck"


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. `strikes`: one, or two, of which at most one takes a disk."""

    number: int
    stage: str
    """What it is counted as."""
    strikes: tuple[Strike, ...]
    back: Back
    domains: tuple[str, ...]
    busy: Busy
    messages: int
    away: float = 0.0
    """Seconds from the first of two blows until that hub comes back."""

    @property
    def takes_disk(self) -> bool:
        """Whether a disk is lost in it."""
        return any(strike.blow is Blow.DISK for strike in self.strikes)


def plan(number: int, seed: int, only: Sequence[str] = ()) -> Plan:
    """The run of that number: each stage in turn (or each of `only`, which may be `ANY`), everything else by chance."""
    rng = random.Random(seed * 1_000_003 + number)  # noqa: S311 - no secret
    stage = _stage(number, only)
    back, busy, away = rng.choice(list(Back)), rng.choices(list(Busy)[:2], (3, 2))[0], 0.0
    if stage is not None and stage.part in SECOND:
        busy = Busy.UNTIL_STRUCK
        if stage.part is Part.TAKE_OVER:
            back = Back.LATE
        elif stage.part is Part.FENCE:
            back, away = Back.AT_ONCE, rng.choice((0.0, HELD_DEAD_SECONDS))
    strikes, domains = _strikes(stage, rng), _domains(stage, rng)
    return Plan(number, stage.name if stage else ANY, strikes, back, domains, busy, rng.randint(*MESSAGES), away)


def _stage(number: int, only: Sequence[str]) -> Stage | None:
    """None: at random."""
    if only:
        wanted = only[number % len(only)]
        return next((stage for stage in STAGES if stage.name == wanted), None)
    turn, place = divmod(number, len(STAGES) + max(1, len(STAGES) // ANY_EVERY))
    return STAGES[(place * STRIDE + turn) % len(STAGES)] if place < len(STAGES) else None


def _strikes(stage: Stage | None, rng: random.Random) -> tuple[Strike, ...]:
    if stage is None or stage.part not in SECOND:
        blow = rng.choices(list(Blow), (16, 20, 2, 1, 1))[0]
        return (_strike(stage, blow, rng),)
    first, second = Blow.KILL, rng.choice((Blow.KILL, Blow.DISK))
    if stage.part is Part.REACHED:
        first = Blow.REFUSED
    elif stage.part is Part.TAKE_OVER and rng.random() < 0.5:
        first, second = Blow.DISK, Blow.KILL
    seconds = HELD_DEAD_SECONDS if first is Blow.REFUSED else 0.0
    waiting = Strike(WAITING, first, rng.randint(2, PASSES[Part.ACCEPT]), seconds)
    again = stage.part is Part.FENCE and stage.place.method.startswith("AskingChannel")
    return waiting, Strike(stage.name, second, _passes(stage, rng), again=again)


def _strike(stage: Stage | None, blow: Blow, rng: random.Random) -> Strike:
    seconds = 0.0
    if blow in DISTURBANCES:
        seconds = rng.choice((0.3, HELD_DEAD_SECONDS))  # long enough to be held dead, or not
    elif stage is None:
        seconds = rng.uniform(0.0, ANY_SECONDS)
    return Strike(stage.name if stage else ANY, blow, _passes(stage, rng), seconds)


def _passes(stage: Stage | None, rng: random.Random) -> int:
    return rng.randint(0, PASSES.get(stage.part, 0)) if stage else 0


def _domains(stage: Stage | None, rng: random.Random) -> tuple[str, ...]:
    if stage is not None and stage.part is Part.HAND_ON:
        return (FAR,)
    return rng.choice(((DOMAIN,), (DOMAIN, FAR)))
