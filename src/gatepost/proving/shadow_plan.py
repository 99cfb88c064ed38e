"""What is done to the hubs in each run of a proving of shadow redundancy: pure, by number and seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from gatepost.proving.senders import DOMAIN
from gatepost.proving.shadow_cast import FAR, RESUBMIT_SECONDS
from gatepost.proving.stages import STAGES, Part, Stage

ANY = "at random"
"""The stage of runs that strike at any moment."""
ANY_EVERY = 6
"""One run in so many."""
MESSAGES = (8, 30)
"""Of one run."""
MOST_PASSES = 6
"""How many messages pass the stage at most before it strikes."""
ANY_SECONDS = 1.2
"""After the first message: the latest moment of a strike at random."""
WAITING = "before the relay"
"""Where the first hub is struck in runs whose own stage comes after that."""


class Blow(StrEnum):
    """What happens to a hub."""

    KILL = "kill -9"
    DISK = "loss of the disk"
    """kill -9, and its spool is deleted."""
    HANG = "hung"
    """It stands still and goes on later."""
    CUT = "cut off"
    """Hub and hubs do not reach each other; clients and the next server reach all."""


class Back(StrEnum):
    """When a hub that was killed runs again."""

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


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. `strikes`: one, or two, of which at most one takes a disk."""

    number: int
    stage: str
    """What it is counted as."""
    strikes: tuple[Strike, ...]
    back: Back
    domains: tuple[str, ...]
    busy: bool
    """The sink takes nothing at first: messages wait in the hubs."""
    messages: int

    @property
    def takes_disk(self) -> bool:
        """Whether a disk is lost in it."""
        return any(strike.blow is Blow.DISK for strike in self.strikes)


def plan(number: int, seed: int) -> Plan:
    """The run of that number: each stage in turn, everything else by chance."""
    rng = random.Random(seed * 1_000_003 + number)  # noqa: S311 - no secret
    round_, place = divmod(number, len(STAGES) + max(1, len(STAGES) // ANY_EVERY))
    stage = STAGES[(place + round_) % len(STAGES)] if place < len(STAGES) else None
    strikes = _strikes(stage, rng)
    domains = _domains(stage, rng)
    second = len(strikes) > 1
    busy = second or rng.random() < 0.4
    back = Back.AT_ONCE if second and _part(stage) is Part.FENCE else rng.choice(list(Back))
    messages = rng.randint(*MESSAGES)
    return Plan(number, stage.name if stage else ANY, strikes, back, domains, busy, messages)


def _part(stage: Stage | None) -> Part | None:
    return stage.part if stage else None


def _strikes(stage: Stage | None, rng: random.Random) -> tuple[Strike, ...]:
    first = stage.name if stage else ANY
    if _part(stage) not in (Part.TAKE_OVER, Part.FENCE):
        blow = rng.choices(list(Blow), (8, 10, 1, 1))[0]
        return (_strike(first, blow, rng),)
    assert stage is not None
    kept = rng.random() < 0.5 or stage.part is Part.FENCE
    blows = (Blow.KILL, rng.choice((Blow.KILL, Blow.DISK))) if kept else (Blow.DISK, Blow.KILL)
    return _strike(WAITING, blows[0], rng), Strike(stage.name, blows[1], rng.randint(0, 2))


def _strike(stage: str, blow: Blow, rng: random.Random) -> Strike:
    if blow in (Blow.HANG, Blow.CUT):
        # Long enough that it is held dead, or not.
        return Strike(stage, blow, rng.randint(0, MOST_PASSES), rng.choice((0.3, RESUBMIT_SECONDS * 2)))
    if stage == ANY:
        return Strike(stage, blow, 0, rng.uniform(0.0, ANY_SECONDS))
    return Strike(stage, blow, rng.randint(0, MOST_PASSES))


def _domains(stage: Stage | None, rng: random.Random) -> tuple[str, ...]:
    if _part(stage) is Part.HAND_ON:
        return (FAR,)
    return rng.choice(((DOMAIN,), (DOMAIN, FAR)))
