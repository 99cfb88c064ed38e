"""Best copy selection (SPEC A2): which copy of a database becomes the active one, and why not the others.

A pure function of facts. What is no choice at any time: a copy that is blocked, on a server that drains or is in
maintenance, the copy that is given up, one not known to be healthier than that, one with more lag than the database's
dial allows. Of the rest the source system's order: the healthiest, then the least lag where it is known, then
activation preference; where no loss is accepted the lag is none, so that preference decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gatepost.activemanager.port import Dial, ServerWord

MOST_LAG = {Dial.LOSSLESS: 0.0, Dial.GOOD_AVAILABILITY: 6.0, Dial.BEST_AVAILABILITY: 12.0}
"""Lag, in the units of the lag hook, that each dial accepts: the log files of the source system's mount dial."""


@dataclass(frozen=True, slots=True)
class Health:
    """What was seen of a server's services. `unknown` ones were not probed long enough to tell."""

    failed: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Lag:
    """What the lag hook said of a copy: `behind` in its units, or why it said nothing."""

    behind: float | None = None
    fault: str = ""
    seconds: float | None = None
    """Since when it lacks something, where the hook said that."""


@dataclass(frozen=True, slots=True)
class CopyFacts:
    """One copy of the database. `lag` is None where nobody measures it: no hook is configured for its server."""

    server: str
    preference: int
    word: ServerWord = ServerWord.UP
    blocked: bool = False
    health: Health = Health()
    lag: Lag | None = None
    tried: bool = False
    """It was tried a moment ago and could not be promoted."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that decides. `source` is the server whose copy is given up; empty when there is none."""

    database: str
    source: str
    copies: tuple[CopyFacts, ...]
    dial: Dial = Dial.GOOD_AVAILABILITY
    lossless: bool = False
    """A planned move: what the target lacks is copied before it is promoted, so the lag of now decides nothing."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A copy with the judgement on it; `reason` is for people."""

    server: str
    usable: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """`server` is the best copy. `candidates` are all, the usable ones first in their order."""

    server: str
    reason: str
    candidates: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True)
class NoCopy:
    """No copy may be activated."""

    reason: str
    candidates: tuple[Candidate, ...] = ()


def select(facts: Facts) -> Chosen | NoCopy:
    """The best copy. Equal facts give equal answers, whatever the order of the copies."""
    ranked = rank(facts)
    if ranked and ranked[0].usable:
        return Chosen(ranked[0].server, ranked[0].reason, ranked)
    others = [f"{c.server}: {c.reason}" for c in ranked if c.server != facts.source]
    return NoCopy("; ".join(others) or "there is no other copy", ranked)


def rank(facts: Facts) -> tuple[Candidate, ...]:
    """All copies with their reasons: the usable ones first, best first, then the others by preference."""
    source = next((copy.health for copy in facts.copies if copy.server == facts.source), None)
    judged = [(copy, refusal(facts, copy, source)) for copy in facts.copies]
    usable = sorted((copy for copy, why in judged if not why), key=lambda copy: _order(facts, copy))
    refused = sorted(((copy, why) for copy, why in judged if why), key=lambda pair: _place(pair[0]))
    return (
        *(Candidate(copy.server, True, _praise(facts, copy)) for copy in usable),
        *(Candidate(copy.server, False, why) for copy, why in refused),
    )


def refusal(facts: Facts, copy: CopyFacts, source: Health | None) -> str:
    """Why a copy may not be activated by itself; empty when it may."""
    if copy.server == facts.source:
        return "it is the copy that is given up"
    if copy.word is not ServerWord.UP:
        return f"the server is {'draining' if copy.word is ServerWord.DRAINING else 'in maintenance'}"
    if copy.blocked:
        return "the copy is blocked from activation"
    if copy.health.unknown:
        return f"{_listed(copy.health.unknown)} has not been seen well yet"
    if copy.health.failed and (source is None or not copy.health.failed < source.failed or facts.lossless):
        # The source system's "all better than source": worse in nothing and better in something, or it is no gain.
        return f"{_listed(copy.health.failed)} has failed there"
    return "" if facts.lossless else too_far_behind(copy.lag, facts.dial)


def too_far_behind(lag: Lag | None, dial: Dial) -> str:
    """Why the dial keeps a copy with this lag from being activated; empty when it does not.

    Where nobody measures lag (no hook: shared or synchronous storage) only the lossless dial asks for a measurement.
    Where somebody does and got no answer, only best availability takes the risk.
    """
    if lag is None:
        return "its lag is not measured, and the dial is lossless" if dial is Dial.LOSSLESS else ""
    if lag.behind is None:
        return "" if dial is Dial.BEST_AVAILABILITY else f"its lag is unknown ({lag.fault}), and the dial is {dial}"
    if not lag.behind <= MOST_LAG[dial]:
        return f"its lag {lag.behind:g} is over the {MOST_LAG[dial]:g} of the dial {dial}"
    return ""


def _order(facts: Facts, copy: CopyFacts) -> tuple[bool, int, float, int, str]:
    """Sorts usable copies. One that failed to be promoted a moment ago comes last, but comes."""
    behind = math.inf if copy.lag is None or copy.lag.behind is None else copy.lag.behind
    by_preference = facts.lossless or facts.dial is Dial.LOSSLESS
    return (copy.tried, len(copy.health.failed), 0.0 if by_preference else behind, *_place(copy))


def _place(copy: CopyFacts) -> tuple[int, str]:
    return copy.preference, copy.server


def _praise(facts: Facts, copy: CopyFacts) -> str:
    words = ["healthy" if not copy.health.failed else f"healthier than {facts.source}"]
    if not facts.lossless and copy.lag is not None:
        words.append("lag unknown" if copy.lag.behind is None else f"lag {copy.lag.behind:g}")
    words.append(f"preference {copy.preference}")
    if copy.tried:
        words.append("tried before")
    return ", ".join(words)


def _listed(services: Sequence[str] | frozenset[str]) -> str:
    return ", ".join(sorted(services))
