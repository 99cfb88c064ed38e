"""Hubs that die at every stage, with their disks and without: what was answered for is not lost (SPEC S1 to S4).

Three casts, one of two hubs and two of three, do runs side by side. A run sends some messages, strikes one hub, or two
in turn, and ends when every message has been acknowledged and every acknowledged one is at the sink.

The rule for disks: the next one is lost only when every acknowledged message of the runs before is at the sink, and of
two strikes in one run at most one takes a disk. So each message has two places again, or needs none.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gatepost.proving import machine
from gatepost.proving.senders import Senders, end
from gatepost.proving.shadow_cast import Cast, ShadowHub
from gatepost.proving.shadow_plan import ANY, DISTURBANCES, Back, Blow, Busy, Plan, Strike, plan
from gatepost.proving.shadow_report import Outcome, report
from gatepost.proving.stages import ANYBODY

Say = Callable[[str], None]

HUBS = (2, 3, 3)
"""Of the casts."""
NETWORKS = (86, 87, 90)
NUMBERS = 1000
"""Message numbers of a run: those of run N begin at N times it."""
SESSIONS = 4
REACH_SECONDS = 4.0
REACH_AGAIN_SECONDS = 8.0
"""Until a hub comes to the stage, and to that of a second blow; else any is struck."""
BUSY_AGAIN_SECONDS = 0.3
"""Less than a sink is busy when it is told to be."""
DELIVER_SECONDS = 30.0
"""From the end of sending, with all hubs up, until everything acknowledged is at the sink; what is not is lost."""
WITHOUT_SECONDS = 20.0
"""Until the others have delivered what a hub that is away had."""
SEND_SECONDS = 90.0
LOOK_SECONDS = 0.01


@dataclass
class Stage:
    """One cast at work."""

    cast: Cast
    rng: random.Random
    deliver_seconds: float
    without_seconds: float
    down: set[str] = field(default_factory=set)


def prove_shadow(
    directory: Path,
    *,
    runs: int,
    seed: int = 1,
    only: Sequence[str] = (),
    shadows: bool = True,
    say: Say = lambda _text: None,
) -> dict[str, Any]:
    """All runs (of stages `only`, where there are any) and their report, `lost` and `summary` among it.

    Raises `ServerNotStarted`, OSError.
    """
    began = time.monotonic()
    before = machine.load()
    plans = [plan(number, seed, only) for number in range(1, runs + 1)]
    with ExitStack() as stack:
        casts: list[Cast] = []
        for count, network in zip(HUBS, NETWORKS, strict=True):
            cast = Cast(directory / f"site-{network}", network, count, shadows=shadows)
            stack.callback(cast.stop)
            casts.append(cast)
        for cast in casts:
            cast.start()
        outcomes = asyncio.run(_prove(casts, plans, seed, say, patient=shadows))
        for cast in casts:
            cast.look()
        faults = [fault for cast in casts for fault in cast.faults()]
        arrived = {name: hubs for cast in casts for name, hubs in cast.arrived.items()}
        damaged = sum(cast.damaged for cast in casts)
    facts = {"seconds": round(time.monotonic() - began, 1), "machine": {"before": before, "during": machine.load()}}
    return report(outcomes, arrived, damaged, faults) | facts


async def _prove(casts: list[Cast], plans: list[Plan], seed: int, say: Say, *, patient: bool) -> list[Outcome]:
    left = iter(plans)
    outcomes: list[Outcome] = []
    waits = (DELIVER_SECONDS, WITHOUT_SECONDS) if patient else (3.0, 3.0)
    stages = [Stage(cast, random.Random(seed), *waits) for cast in casts]  # noqa: S311 - no secret
    await asyncio.gather(*(_runs(stage, left, outcomes, say) for stage in stages))
    return sorted(outcomes, key=lambda outcome: outcome.plan.number)


async def _runs(stage: Stage, plans: Iterator[Plan], outcomes: list[Outcome], say: Say) -> None:
    for run in plans:
        outcome = await _run(stage, run)
        outcomes.append(outcome)
        if len(outcomes) % 20 == 0 or outcome.missing:
            missing = sum(len(one.missing) for one in outcomes)
            say(f"{len(outcomes)} runs, {missing} messages missing" + (f"; {outcome}" if outcome.missing else ""))


async def _run(stage: Stage, run: Plan) -> Outcome:
    cast = stage.cast
    first = run.number * NUMBERS
    senders = Senders(cast.places, range(first, first + run.messages), SESSIONS, first, run.domains)
    outcome = Outcome(run, hubs=len(cast.hubs))
    began = time.monotonic()
    if run.busy is not Busy.NEVER:
        cast.busy()
    cast.trap.arm(run.strikes[0].stage, run.strikes[0].passes)
    sending = asyncio.create_task(senders.run())
    holding = asyncio.create_task(_keep_busy(cast)) if run.busy is Busy.UNTIL_STRUCK else None
    try:
        for strike, following in zip(run.strikes, [*run.strikes[1:], None], strict=True):
            await _strike(stage, run, strike, following, outcome)
        if holding is not None:
            await end(holding)
        if stage.down:
            outcome.delivered_without = await _arrived(stage, senders, stage.without_seconds)
        await _all_up(stage)
        await asyncio.wait([sending], timeout=SEND_SECONDS)
        outcome.sent_all = sending.done()
    finally:
        for task in (sending, holding):
            if task is not None:
                await end(task)
    await _arrived(stage, senders, stage.deliver_seconds)
    outcome.acknowledged, outcome.in_doubt = senders.acknowledged, senders.in_doubt
    taken = senders.acknowledged | senders.in_doubt
    outcome.refused = senders.refused
    outcome.refused_for_good = senders.refused_for_good
    outcome.missing = {name for name in senders.acknowledged if not cast.arrived.get(name)}
    outcome.deliveries = {name: tuple(cast.arrived[name]) for name in taken if cast.arrived.get(name)}
    outcome.seconds = time.monotonic() - began
    return outcome


async def _keep_busy(cast: Cast) -> None:
    while True:
        cast.busy()
        await asyncio.sleep(BUSY_AGAIN_SECONDS)


async def _strike(stage: Stage, run: Plan, strike: Strike, following: Strike | None, outcome: Outcome) -> None:
    """One blow. The trap of the one that follows is set before what comes of this one can reach it."""
    cast, is_first = stage.cast, strike is run.strikes[0]
    victim = await _caught(stage, strike, REACH_SECONDS if is_first else REACH_AGAIN_SECONDS)
    if strike.stage != ANY:
        outcome.reached.append(victim is not None)
    cast.trap.disarm()
    hub = cast.hubs[victim or stage.rng.choice(sorted(cast.hubs.keys() - stage.down))]
    if strike.blow in DISTURBANCES:
        await _disturb(cast, hub, strike, following)
        return
    hub.kill_all()
    outcome.killed.add(hub.name)
    if strike.blow is Blow.DISK:
        hub.lose_disk()
    if is_first and following is not None:
        await asyncio.sleep(run.away)
        cast.trap.arm(following.stage, following.passes, hub.name if following.again else ANYBODY)
    if is_first and run.back is Back.LATE and (following or cast.can_do_without({hub.name}, run.domains)):
        stage.down.add(hub.name)
        return
    if strike.blow is Blow.DISK or not cast.can_do_without(stage.down, run.domains):
        await _all_up(stage)  # the one that is away may be the last that has a message, or sends it on
    stage.down.discard(hub.name)
    await _start(hub, is_first and following is not None)


async def _disturb(cast: Cast, hub: ShadowHub, strike: Strike, following: Strike | None) -> None:
    """Hang, or be cut off, for a while. A hub that was caught stands still."""
    if strike.blow is Blow.HANG:
        hub.stand_still()
    else:
        cast.cut_off(hub.name, refuse=strike.blow is Blow.REFUSED)
        hub.stand_still(go_on=True)
    await asyncio.sleep(strike.seconds)
    if following is not None:
        cast.trap.arm(following.stage, following.passes)
    cast.mend()
    hub.stand_still(go_on=True)


async def _caught(stage: Stage, strike: Strike, seconds: float) -> str | None:
    """The hub that stands still at the stage."""
    if strike.stage == ANY:
        await asyncio.sleep(strike.seconds)
        return None
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (victim := stage.cast.trap.caught()) is not None:
            return victim
        await asyncio.sleep(LOOK_SECONDS)
    return None


async def _all_up(stage: Stage) -> None:
    for name in sorted(stage.down):
        await _start(stage.cast.hubs[name])
    stage.down.clear()


async def _start(hub: ShadowHub, may_stop: bool = False) -> None:
    """Start it and wait until it greets, unless it `may_stop` on the way there: it is not waited for then."""
    hub.start()  # by this thread: the kernel ends it with the thread that started it
    if not may_stop:
        await asyncio.to_thread(hub.wait_ready)


async def _arrived(stage: Stage, senders: Senders, seconds: float) -> bool:
    """Wait until what has been acknowledged by then is at the sink."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        stage.cast.look()
        if all(stage.cast.arrived.get(name) for name in senders.acknowledged):
            return True
        await asyncio.sleep(LOOK_SECONDS)
    return False
