"""A deterministic simulation of shadow redundancy under faults: one seed, one schedule, one outcome.

    PYTHONPATH=src python tests/unit/transport/shadow_simulation.py --runs 100000 [--seed S] [--trace]

Two to four hubs run the real rules. Faults come for `FAULTS_SECONDS`; then all is healed, and within `PATIENCE_SECONDS`
every message is delivered and every copy released.

A disk is lost only when the fleet has had time to heal from what came before: all hubs have run and reached each other
for `HEAL_SECONDS`. Then every acknowledged message that is not delivered must be on two disks, which is checked; only
what the policy had acknowledged without a copy may be on one.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from shadow_hub import STAGES, SimulatedHub
from shadow_world import World

from gatepost.organization.transport import TransportConfig

FAULTS_SECONDS = 45.0
PATIENCE_SECONDS = 150.0
HEAL_SECONDS = 14.0
SETTINGS = TransportConfig(
    shadow_heartbeat_frequency=2.0, shadow_resubmit_time_span=12.0, shadow_fence_time=8.0,
    shadow_message_auto_discard_interval=600.0, safety_net_hold_time=1000.0,
)  # fmt: skip


@dataclass(frozen=True)
class Trouble:
    """One fault: from `at` for `seconds`. `where` is of hubs, by number, or of the fault."""

    at: float
    seconds: float
    what: str
    where: int = 0
    other: int = 0


@dataclass(frozen=True)
class Sending:
    """A message of a sender: to one hub, then to the next, until acknowledged. Recipients: `0@site`, `0@site.bad`."""

    at: float
    hub: int
    recipients: tuple[str, ...]


@dataclass(frozen=True)
class Schedule:
    """All of a run. `seed` is that of delays and of what hubs choose."""

    seed: int
    hubs: int
    sites: int
    reject: bool
    sendings: tuple[Sending, ...]
    troubles: tuple[Trouble, ...]
    retry_count: int = 0
    calm: bool = False
    """Whether nothing is delivered after the faults until the fleet has had time to heal."""


@dataclass
class Outcome:
    """What came of it."""

    wrong: list[str]
    duplicates: Counter[str]
    seen: Counter[str]
    steps: int = 0
    rest: dict[str, int] = field(default_factory=dict)


KINDS = (
    "kill", "kill", "kill", "lose", "lose", "lose", "hang", "cut", "alone", "losses", "next server", "next server",
    "next server", "clock", "kill both", "operator", "kill at", "kill at", "kill at", "kill at", "kill both at",
    "lose at", "lose at", "hang at",
)  # fmt: skip


def schedule(seed: int) -> Schedule:
    """The schedule of a seed."""
    chance = random.Random(seed)
    hubs = chance.choice((2, 3, 3, 4, 4))
    sites = 2 if hubs == 4 and chance.random() < 0.8 else 1
    sendings = []
    for _ in range(chance.randint(2, 6)):
        recipients = tuple(
            f"{i}@{chance.randrange(sites)}" + (".bad" if chance.random() < 0.07 else "")
            for i in range(chance.choice((1, 1, 2, 3)))
        )
        sendings.append(Sending(chance.uniform(0.0, 30.0), chance.randrange(hubs), recipients))
    troubles = []
    for _ in range(chance.randint(2, 7)):
        what = chance.choice(KINDS)
        seconds = chance.choice((0.3, 2.0, 6.0, 20.0, 35.0))
        where, other = chance.randrange(hubs), chance.randrange(hubs)
        if what == "next server":
            where = chance.randrange(sites)
        if what.endswith(" at"):
            other = chance.randrange(len(STAGES))
        troubles.append(Trouble(chance.uniform(1.0, FAULTS_SECONDS), seconds, what, where, other))
    if chance.random() < 0.5:  # messages that wait: else most are delivered before anything happens
        troubles += [Trouble(chance.uniform(0.0, 10.0), 35.0, "next server", site) for site in range(sites)]
    if chance.random() < 0.3:  # a loss with a calm time before it
        troubles = [replace(t, at=min(t.at, 16.0), seconds=min(t.seconds, 2.0)) if t.what != "next server" else t
                    for t in troubles]  # fmt: skip
        where = chance.randrange(hubs)
        troubles.append(Trouble(chance.uniform(30.0, 45.0), chance.choice((0.5, 3.0, 20.0)), "lose", where))
    troubles.sort(key=lambda trouble: trouble.at)
    retry_count = chance.choice((0, 0, 0, 4))
    reject, calm = chance.random() < 0.6, chance.random() < 0.5
    return Schedule(seed, hubs, sites, reject, tuple(sendings), tuple(troubles), retry_count, calm)


class Play:
    """A run of a schedule."""

    def __init__(self, plan: Schedule, trace: Callable[[str], None] | None = None) -> None:
        self.plan = plan
        self.world = world = World(plan.seed)
        world.trace = trace
        settings = replace(SETTINGS, shadow_heartbeat_retry_count=plan.retry_count)
        self.hubs = [
            SimulatedHub(world, f"h{i}", str(i * plan.sites // plan.hubs), settings, reject=plan.reject)
            for i in range(plan.hubs)
        ]
        world.hubs = {hub.name: hub for hub in self.hubs}
        self.unsent = len(plan.sendings)

    def run(self) -> Outcome:
        world, plan = self.world, self.plan
        for hub in self.hubs:
            hub.start()
        for sending in plan.sendings:
            world.at(sending.at, lambda s=sending: self.send(s, s.hub))  # type: ignore[misc]
        ends = 0.0
        for trouble in plan.troubles:
            world.at(trouble.at, lambda t=trouble: self.begin(t))  # type: ignore[misc]
            world.at(trouble.at + trouble.seconds, lambda t=trouble: self.end(t))  # type: ignore[misc]
            ends = max(ends, trouble.at + trouble.seconds)
        world.run(ends + 0.1)
        world.armed.clear()
        world.unwell = world.now
        for hub in self.hubs:
            hub.go_on()
            hub.start()
        if plan.calm:
            for site in range(plan.sites):
                world.down[str(site)] += 1
            world.run(world.now + HEAL_SECONDS)
            if not world.wrong:
                self.judge_healed()
            for site in range(plan.sites):
                world.down[str(site)] -= 1
        world.run(world.now + PATIENCE_SECONDS, self.quiet)
        if not world.wrong:
            self.judge_the_end()
        return Outcome(world.wrong, world.duplicates, world.seen, world.steps)

    def send(self, sending: Sending, index: int) -> None:
        hub, world = self.hubs[index % len(self.hubs)], self.world
        open_ = [True]

        def again() -> None:
            if open_[0]:
                open_[0] = False
                world.at(world.now + 1.0, lambda: self.send(sending, index + 1))

        def replied(accepted: bool) -> None:
            if open_[0] and accepted and not hub.hung:
                open_[0] = False
                self.unsent -= 1

        world.at(world.now + 15.0, again)
        if hub.alive and not hub.hung:
            hub.accept(list(sending.recipients), replied)
        else:
            again()

    def begin(self, trouble: Trouble) -> None:
        world, hub = self.world, self.hubs[trouble.where % len(self.hubs)]
        world.say(f"begins: {trouble}")
        if trouble.what.endswith(" at"):
            now = replace(trouble, what=trouble.what[:-3], other=trouble.where + 1)
            world.armed[hub.name, STAGES[trouble.other]] = lambda: self.strike(now)
            return
        match trouble.what:
            case "kill":
                hub.kill()
            case "kill both":
                hub.kill()
                self.hubs[trouble.other % len(self.hubs)].kill()
            case "lose":
                self.lose(hub)
            case "hang":
                hub.hang()
            case "cut" | "alone":
                for pair in self.cuts(trouble):
                    world.cuts[pair] += 1
            case "losses":
                world.loss += 0.2
            case "next server":
                world.down[str(trouble.where)] += 1
            case "clock":
                hub.clock_ahead += (-86400.0, -30.0, 30.0, 7200.0, 864000.0)[trouble.other % 5]
            case "operator":
                if hub.alive and not hub.hung:
                    hub.keeper.resubmit(self.hubs[trouble.other].name)
        if trouble.what in {"kill", "kill both", "hang", "cut", "alone", "losses"}:
            world.unwell = world.now

    def strike(self, trouble: Trouble) -> None:
        """The stage has come that a fault waited for."""
        self.begin(trouble)
        self.world.at(self.world.now + trouble.seconds, lambda: self.end(trouble))

    def end(self, trouble: Trouble) -> None:
        world, hub = self.world, self.hubs[trouble.where % len(self.hubs)]
        world.say(f"ends: {trouble}")
        match trouble.what:
            case "kill" | "lose":
                hub.start()
            case "kill both":
                hub.start()
                self.hubs[trouble.other % len(self.hubs)].start()
            case "hang":
                hub.go_on()
            case "cut" | "alone":
                for pair in self.cuts(trouble):
                    world.cuts[pair] -= 1
            case "losses":
                world.loss = max(0.0, world.loss - 0.2)
            case "next server":
                world.down[str(trouble.where)] -= 1
        if trouble.what in {"kill", "kill both", "lose", "hang", "cut", "alone", "losses"}:
            world.unwell = world.now

    def cuts(self, trouble: Trouble) -> list[frozenset[str]]:
        one = self.hubs[trouble.where].name
        others = [self.hubs[trouble.other].name] if trouble.what == "cut" else [hub.name for hub in self.hubs]
        return [frozenset((one, other)) for other in others if other != one]

    def lose(self, hub: SimulatedHub) -> None:
        """The hub dies, and its disk with it where the fleet has had time to heal."""
        world = self.world
        well = all(h.alive and not h.hung for h in self.hubs) and not world.loss and not any(world.cuts.values())
        healed = well and world.now - world.unwell >= HEAL_SECONDS
        if healed:
            self.judge_healed()
            world.seen["disks lost"] += 1
            world.seen["messages on a lost disk"] += len(hub.disk.records)
        hub.kill(lose_disk=healed)
        world.unwell = world.now

    def judge_healed(self) -> None:
        world = self.world
        for mail in world.mails.values():
            if mail.acknowledged and not mail.alone:
                for address in mail.addresses:
                    if not world.delivered[address] and world.holders[address] < 2:
                        world.wrong.append(f"{world.now:.3f}: {address} is on one disk, though there was time to heal")

    def quiet(self) -> bool:
        return not self.unsent and all(not hub.envelopes and not hub.disk.records for hub in self.hubs)

    def judge_the_end(self) -> None:
        world = self.world
        if self.unsent:
            world.wrong.append(f"{self.unsent} messages were never acknowledged")
        for mail in world.mails.values():
            if mail.acknowledged:
                world.wrong += [f"{a} was never delivered" for a in mail.addresses if not world.delivered[a]]
        for hub in self.hubs:
            for number, envelope in hub.envelopes.items():
                world.wrong.append(f"{hub.name} still has {number}: {envelope.shadows} {envelope.watchers}")
            if set(hub.disk.records) != set(hub.envelopes):
                world.wrong.append(f"{hub.name}'s disk and memory differ")
            if hub.keeper.queues():
                world.wrong.append(f"{hub.name} still keeps: {hub.keeper.queues()}")


def play(seed: int) -> Outcome:
    """Run the schedule of a seed."""
    return Play(schedule(seed)).run()


def shrink(plan: Schedule, runs: Callable[[Schedule], Outcome]) -> Schedule:
    """The plan without the troubles and messages that it fails without as well."""
    again = True
    while again:
        again = False
        for name in ("troubles", "sendings"):
            for i in range(len(getattr(plan, name))):
                items = getattr(plan, name)
                less = replace(plan, **{name: items[:i] + items[i + 1 :]})
                if runs(less).wrong:
                    plan, again = less, True
                    break
    return plan


def run_plan(plan: Schedule) -> Outcome:
    """Run a schedule."""
    return Play(plan).run()


def main() -> int:
    """Play many seeds; one line a failure, and a summary."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--most", type=int, default=5)
    options = parser.parse_args()
    if options.trace:
        plan = schedule(options.seed)
        outcome = run_plan(plan)
        plan = shrink(plan, run_plan) if outcome.wrong else plan
        print(plan)
        outcome = Play(plan, print).run()
        print(*outcome.wrong, sep="\n")
        return 1 if outcome.wrong else 0
    began, used = time.perf_counter(), time.process_time()
    duplicates: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    failures = steps = 0
    for seed in range(options.seed, options.seed + options.runs):
        outcome = play(seed)
        duplicates += outcome.duplicates
        seen += outcome.seen
        steps += outcome.steps
        if outcome.wrong:
            failures += 1
            if failures <= options.most:
                print(seed, outcome.wrong[:3])
    seconds = time.perf_counter() - began
    used = time.process_time() - used
    print(f"{options.runs} schedules, {steps} steps, {seconds:.1f} s, {options.runs / seconds:.0f} a second")
    print(f"{used:.1f} s of processor time, {options.runs / used:.0f} a second")
    print("failures", failures)
    print("duplicates", dict(duplicates))
    print("seen", dict(sorted(seen.items())))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
