"""What the runs of a proving of shadow redundancy come to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any

from gatepost.proving.shadow_plan import ANY, Blow, Plan
from gatepost.proving.stages import STAGES

SHOWN = 20
"""Messages that are named."""
ENDS = ("acknowledged", "lost", "duplicates")


class Cause(StrEnum):
    """Why a message was delivered once more."""

    UNNOTED = "by the same hub: its delivery was not on its disk, or another hub handed it on once more"
    UNTOLD = "by a hub that died, and by its shadow server, which had not yet heard"
    LIVE = "by two live hubs: one hung, was cut off, or slow"
    LATER = "in a later run, in which the hub was struck before it had told of the delivery"


@dataclass
class Outcome:
    """Of one run. Messages are identities, as the senders call them."""

    plan: Plan
    hubs: int
    killed: set[str] = field(default_factory=set)
    """Hubs, with their disks or without."""
    reached: list[bool] = field(default_factory=list)
    """For each strike at a stage: whether a hub came there."""
    acknowledged: set[str] = field(default_factory=set)
    in_doubt: set[str] = field(default_factory=set)
    refused: Counter[str] = field(default_factory=Counter)
    refused_for_good: list[str] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    """Acknowledged, and not at the sink when the run was over."""
    sent_all: bool = False
    delivered_without: bool = True
    """Where the hub came back late: the others delivered all without it."""
    deliveries: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By which hubs each was delivered when the run was over."""
    seconds: float = 0.0

    def __str__(self) -> str:
        strikes = " and ".join(f"{strike.blow} {strike.stage}" for strike in self.plan.strikes)
        return f"run {self.plan.number}, {self.hubs} hubs, {strikes}: {len(self.missing)} missing"


def report(
    outcomes: Sequence[Outcome], arrived: Mapping[str, Sequence[str]], damaged: int, faults: Sequence[str]
) -> dict[str, Any]:
    """For programs; `stages` in the order of a message's life. `arrived`: the hubs that delivered each identity."""
    order = [*(stage.name for stage in STAGES), ANY]
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    lost: list[str] = []
    causes = Counter(dict.fromkeys(Cause, 0))
    for outcome in outcomes:
        row = rows[outcome.plan.stage]
        gone = sorted(name for name in outcome.acknowledged if not arrived.get(name))
        lost += gone
        again = [cause for hubs in outcome.deliveries.values() for cause in _causes(outcome, hubs)]
        causes.update(again)
        for name in outcome.acknowledged | outcome.in_doubt:
            known = len(outcome.deliveries.get(name, ()))
            causes[Cause.LATER] += max(len(arrived.get(name, ())) - max(known, 1), 0)
        row.update(
            runs=1,
            reached=all(outcome.reached),
            acknowledged=len(outcome.acknowledged),
            lost=len(gone),
            duplicates=len(again),
        )
        row.update({strike.blow.name.lower(): 1 for strike in outcome.plan.strikes})
    stages = {name: _row(rows[name]) for name in order if name in rows}
    total = {key: sum(row[key] for row in stages.values()) for key in ENDS}
    total["duplicates"] += causes[Cause.LATER]
    blows = {blow.value: sum(row[blow.name.lower()] for row in stages.values()) for blow in Blow}
    refused = sum((outcome.refused for outcome in outcomes), Counter[str]())
    for_good = [reply for outcome in outcomes for reply in outcome.refused_for_good]
    missed = [
        name
        for name, holds in {
            "nothing is lost": not total["lost"],
            "every message is acknowledged in the end": all(outcome.sent_all for outcome in outcomes),
            "every content is as it was sent": not damaged,
            "no reply is for good": not for_good,
            "the others deliver without the hub that is away": all(one.delivered_without for one in outcomes),
            "no fault of ours": not faults,
        }.items()
        if not holds
    ]
    summary = (
        f"{'ok' if not missed else 'MISSED: ' + ', '.join(missed)}: {len(outcomes)} runs, "
        f"{total['acknowledged']} messages acknowledged, {total['lost']} lost, {total['duplicates']} delivered twice; "
        + ", ".join(f"{count} × {name}" for name, count in blows.items())
    )
    return {
        "ok": not missed,
        "missed": missed,
        "runs": len(outcomes),
        **total,
        "lost_messages": lost[:SHOWN],
        "damaged": damaged,
        "blows": blows,
        "duplicates_by_cause": {cause.value: count for cause, count in causes.items()},
        "stages": stages,
        "not_reached": sum(not all(outcome.reached) for outcome in outcomes),
        "unanswered": sum(len(outcome.in_doubt) for outcome in outcomes),
        "refused": dict(sorted(refused.items())),
        "refused_for_good": for_good[:SHOWN],
        "not_delivered_without": [str(one) for one in outcomes if not one.delivered_without][:SHOWN],
        "faults": list(faults)[:SHOWN],
        "seconds_a_run": round(sum(one.seconds for one in outcomes) / max(len(outcomes), 1), 2),
        "summary": summary,
    }


def _causes(outcome: Outcome, hubs: Sequence[str]) -> Iterator[Cause]:
    """For each delivery after the first, by the hubs that made them."""
    for before, again in pairwise(hubs):
        if before == again:
            yield Cause.UNNOTED
        else:
            yield Cause.UNTOLD if before in outcome.killed else Cause.LIVE


def _row(found: Counter[str]) -> dict[str, int]:
    keys = ("runs", "reached", *(blow.name.lower() for blow in Blow), *ENDS)
    return {key: found[key] for key in keys}


def table(stages: Mapping[str, Mapping[str, int]]) -> list[str]:
    """For people: a line a stage."""
    keys = list(next(iter(stages.values()), {}))
    width = max(map(len, stages), default=0)
    lines = [" " * width + "".join(f"{key:>14}" for key in keys)]
    lines += [f"{name:<{width}}" + "".join(f"{row[key]:>14}" for key in keys) for name, row in stages.items()]
    return lines
