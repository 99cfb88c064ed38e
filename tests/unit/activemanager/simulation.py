"""A deterministic simulation of two or three managers under faults: one seed, one schedule, one outcome.

    python tests/unit/activemanager/simulation.py --runs 10000 [--seed S]

Simulated are the registry (leases, compare-and-swap), the network (delays, losses, partitions), clocks that drift and
jump, processes that are stopped, continued, killed and started again, servers that die or hang, hooks that fail or
hang, and operators. The managers are the real `Manager`. A failing seed's faults are shrunk to those that matter.
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from history import violations
from simulated import Replicas, SimulatedRegistry

from gatepost.activemanager import manager_events as words
from gatepost.activemanager.asking import asked
from gatepost.activemanager.manager import Manager
from gatepost.activemanager.port import Lease, LeaseLost, Move, Observation, ServerWord, StaleEpoch
from gatepost.activemanager.seen import Sight
from gatepost.activemanager.steps import Activate, Begin, End, Fault, Hook, Pause, Plan, Result, Step, steps_of
from gatepost.configuration.manager_settings import HookKind, HookSettings, ManagerSettings
from gatepost.organization.model import (
    Database,
    DatabaseCopy,
    Endpoint,
    Organization,
    Protocol,
    Role,
    Server,
    Site,
    TlsMode,
    Version,
)

SERVERS = ("A", "B", "C")
FAULTS_SECONDS = 30.0
"""Faults begin and end within this time; then all is healed."""
PATIENCE_SECONDS = 330.0
"""From the healing until all must be well: the longest pause between two tries is five minutes."""
REQUEST_SECONDS = 1.5
"""A request to the registry without an answer."""
TICK_SECONDS = 0.45
HOOKS = {
    kind: HookSettings(("/bin/true",), seconds=2.0) for kind in (HookKind.FENCE, HookKind.DEMOTE, HookKind.PROMOTE)
}


def organization() -> Organization:
    endpoint = Endpoint("imap", Protocol.IMAP, "127.0.0.1", 143, TlsMode.CLEAR, "")
    servers = {
        name: Server(name, "usa" if name < "C" else "europe", name, name, Version.MODERN, frozenset({Role.MAILBOX}),
                     (endpoint,))
        for name in SERVERS
    }  # fmt: skip
    databases = {
        "DB1": Database("DB1", tuple(DatabaseCopy(s, i) for i, s in enumerate("ABC", 1))),
        "DB2": Database("DB2", tuple(DatabaseCopy(s, i) for i, s in enumerate("BA", 1))),
    }
    return Organization("o", sites={s: Site(s) for s in ("usa", "europe")}, servers=servers, databases=databases)


@dataclass(frozen=True)
class Trouble:
    """One fault: from `at` for `seconds`."""

    at: float
    seconds: float
    what: str
    where: Any


def schedule(seed: int) -> list[Trouble]:
    """The faults of a seed."""
    chance = random.Random(seed)
    kinds = ["dead", "silent", "cut registry", "cut server", "stopped", "killed", "registry down", "clock", "losses"]
    kinds += ["hooks fail", "word", "block", "command", "command killed", "command asks", "leave", "dead", "stopped"]
    found = []
    for _ in range(chance.randint(3, 14)):
        what = chance.choice(kinds)
        node = chance.randrange(3)
        where: Any = node
        if what in {"dead", "silent"}:
            where = chance.choice(SERVERS)
        elif what == "cut server":
            where = node, chance.choice(SERVERS)
        elif what == "clock":
            where = chance.choice([-3.0, -1.0, 1.0, 4.0, 10.0])
        elif what == "word":
            where = chance.choice(SERVERS), chance.choice([ServerWord.DRAINING, ServerWord.MAINTENANCE])
        elif what in {"block", "command", "command killed", "command asks"}:
            where = chance.choice([("DB1", "A"), ("DB1", "B"), ("DB1", "C"), ("DB2", "A"), ("DB2", "B")])
        found.append(Trouble(chance.uniform(2, FAULTS_SECONDS - 6), chance.choice([0.5, 2, 4, 8, 12]), what, where))
    return sorted(found, key=lambda trouble: trouble.at)


@dataclass
class Node:
    """A manager's process."""

    index: int
    drift: float
    manager: Manager | None = None
    generation: int = 0
    stopped: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)
    """What happens to it as soon as it runs again."""
    hooks: dict[int, list[bool]] = field(default_factory=dict)


class World:
    """Everything. `run` answers what went wrong."""

    def __init__(self, seed: int, troubles: list[Trouble], *, checks_leases: bool = True) -> None:
        self.chance = random.Random(seed * 7919 + 1)
        self.now = 0.0
        self.heap: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0
        self.registry = SimulatedRegistry(lambda: self.now, checks_leases=checks_leases)
        self.replicas = Replicas()
        self.organization = organization()
        self.settings = ManagerSettings(
            failover_pause_seconds=0.5, failovers_per_hour=1000, retry_seconds=0.5, orphan_seconds=20.0,
            site_failed_seconds=5.0, hooks=HOOKS,
        )  # fmt: skip
        self.down: dict[str, int] = {}
        self.silent: dict[str, int] = {}
        self.cut: dict[Any, int] = {}
        self.hooks_fail = 0
        self.losses = 0
        self.troubles = troubles
        self.wrong: list[str] = []
        self.nodes = [Node(i, self.chance.uniform(0.95, 1.05)) for i in range(2 + seed % 2)]
        for database in self.organization.databases.values():
            self.registry.activate(database.name, database.copies[0].server)
            self.replicas.writers[database.name] = {database.copies[0].server}
        for node in self.nodes:
            self.later(self.chance.uniform(0, 1), lambda node=node: self.start(node))
        for trouble in troubles:
            self.later(trouble.at, lambda trouble=trouble: self.begin(trouble))

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.heap, (self.now + seconds, self.count, what))

    def run(self) -> list[str]:
        """Plays to the end; answers every broken promise."""
        well_from: float | None = None
        end = FAULTS_SECONDS + PATIENCE_SECONDS
        while self.heap and self.now < end:
            self.now, _, what = heapq.heappop(self.heap)
            what()
            if self.now > FAULTS_SECONDS:
                if not self._is_well():
                    well_from = None
                elif well_from is None:
                    well_from = self.now
                elif self.now - well_from > 3.0:
                    break
        if well_from is None:
            self.wrong.append(f"not well {PATIENCE_SECONDS:g} s after the healing: {self._state()}")
        return violations(self.registry.log) + self.replicas.violations + self.wrong

    def _is_well(self) -> bool:
        """One manager acts; every database is where it can be used, and no move hangs."""
        view = self.registry.current
        if view.moves or self.registry.view().manager is None:
            return False
        return all(self._can_serve(active.server) for active in view.active.values())

    def _can_serve(self, server: str) -> bool:
        return not self.down.get(server) and not self.silent.get(server)

    def _state(self) -> str:
        view = self.registry.current
        return f"{dict(view.active)} {dict(view.moves)} manager {self.registry.view().manager}"

    # Faults

    def begin(self, trouble: Trouble) -> None:
        what, where = trouble.what, trouble.where
        node = self.nodes[where % len(self.nodes)] if isinstance(where, int) else None
        ends: Callable[[], None] | None = None
        if what in {"dead", "silent"}:
            ends = self._count(self.down if what == "dead" else self.silent, where)
        elif what in {"cut registry", "cut server", "registry down"}:
            key = where % len(self.nodes) if what == "cut registry" else where if what == "cut server" else "registry"
            ends = self._count(self.cut, key)
        elif what == "stopped" and node is not None:
            node.stopped = True
            ends = lambda: self.resume(node)  # noqa: E731 - as the others
        elif what == "killed" and node is not None:
            self.kill(node)
            ends = lambda: self.start(node)  # noqa: E731
        elif what == "leave" and node is not None and node.manager is not None:
            self.tell(node, words.Leave())
            self.later(1.0, lambda: self.kill(node))
            ends = lambda: self.start(node)  # noqa: E731
            trouble = Trouble(trouble.at, trouble.seconds + 1.5, what, where)
        elif what == "clock":
            self.registry.ahead += where
        elif what == "losses":
            self.losses += 1
            ends = lambda: setattr(self, "losses", self.losses - 1)  # noqa: E731
        elif what == "hooks fail":
            self.hooks_fail += 1
            ends = lambda: setattr(self, "hooks_fail", self.hooks_fail - 1)  # noqa: E731
        elif what == "word":
            self.registry.set_word(*where)
            ends = lambda: self.registry.set_word(where[0], ServerWord.UP)  # noqa: E731
        elif what == "block":
            self.registry.set_blocked(*where, blocked=True)
            ends = lambda: self.registry.set_blocked(*where, blocked=False)  # noqa: E731
        elif what.startswith("command"):
            dies_after = trouble.seconds if what == "command killed" else 1e9
            Command(self, *where, dies_after=dies_after, asks=what == "command asks")
        if ends is not None:
            self.later(min(trouble.seconds, FAULTS_SECONDS - self.now), ends)

    def _count(self, where: dict[Any, int], key: Any) -> Callable[[], None]:
        where[key] = where.get(key, 0) + 1
        return lambda: where.__setitem__(key, where[key] - 1)

    def kill(self, node: Node) -> None:
        node.generation += 1
        node.manager = None
        node.waiting.clear()
        node.stopped = False

    def resume(self, node: Node) -> None:
        node.stopped = False
        waiting, node.waiting = node.waiting, []
        for what in waiting:
            what()

    # A manager's process

    def local(self, node: Node) -> float:
        return 1000.0 * node.index + self.now * node.drift

    def start(self, node: Node) -> None:
        if node.manager is not None:
            return
        node.generation += 1
        node.stopped = False
        holder = f"M{node.index}.{node.generation}"
        node.manager = Manager(holder, self.settings, self.organization, self.local(node))
        self.alive(node, lambda: self.tick(node))
        self.alive(node, lambda: self.look(node))
        for number, server in enumerate(SERVERS):
            self.alive(node, lambda server=server: self.probe(node, server), 0.1 + 0.3 * number)

    def alive(self, node: Node, what: Callable[[], None], seconds: float = 0.0) -> None:
        """Happens to this process after `seconds` of its clock, later if it is stopped then, and not after its end."""
        generation = node.generation

        def now() -> None:
            if node.generation == generation:
                if node.stopped:
                    node.waiting.append(now)
                else:
                    what()

        self.later(seconds / node.drift, now)

    def tick(self, node: Node) -> None:
        self.tell(node, words.Tick())
        self.alive(node, lambda: self.tick(node), TICK_SECONDS)

    def look(self, node: Node) -> None:
        """Asks for the registry's picture, as a watch that has lost its connection would; changes come sooner."""
        self.request(
            node, self.registry.view, lambda view, fault: None if fault else self.tell(node, words.Viewed(view))
        )
        self.alive(node, lambda: self.look(node), 0.3)

    def probe(self, node: Node, server: str) -> None:
        started = self.local(node)
        seconds, sight = 0.02, Sight.WELL
        if self.silent.get(server) or self.cut.get((node.index, server)):
            seconds, sight = 2.0, Sight.SILENT
        elif self.down.get(server):
            sight = Sight.REFUSED

        def ended() -> None:
            self.tell(node, words.Probed(server, "imap", sight, sight.value, started))
            self.alive(node, lambda: self.probe(node, server), 0.3 if sight is Sight.REFUSED else 1.0)

        self.alive(node, ended, seconds)

    def tell(self, node: Node, event: words.Input) -> None:
        assert node.manager is not None
        now = self.local(node)
        for output in node.manager.handle(event, now):
            self.carry_out(node, output)

    def carry_out(self, node: Node, output: words.Output) -> None:
        registry = self.registry
        match output:
            case words.Take(holder, seconds, asked):
                self.request(
                    node, lambda: registry.take_lease("manager", holder, seconds),
                    lambda lease, fault: self.tell(node, words.Asked(lease, asked, str(fault or ""))),
                )  # fmt: skip
            case words.Keep(lease, asked):
                self.request(
                    node, lambda: registry.keep_lease(lease),
                    lambda _, fault: self.tell(node, _kept(lease, asked, fault)),
                )  # fmt: skip
            case words.GiveBack(lease):
                self.request(node, lambda: registry.give_lease_back(lease), lambda _, fault: None)
            case words.Observe(changes, lease):
                seen = [Observation(c.server, c.service, c.healthy, self.now, c.reason) for c in changes]
                self.request(node, lambda: registry.observe(seen, lease), lambda _, fault: None)
            case words.Do(number, step, lease, before):
                if self.local(node) >= before:
                    self.wrong.append(f"{self.now:.2f}: a step after the lease's end")
                self.do(node, step, lease, number, lambda result: self.tell(node, words.Done(number, result)))
            case words.Stop(number):
                node.hooks.pop(number, []).append(True)

    def request(self, node: Node, what: Callable[[], Any], answered: Callable[[Any, Exception | None], None]) -> None:
        """A call over the network: it, or its answer, may be slow or lost. `answered` gets a value or a fault."""
        generation = node.generation
        over = [False]

        def once(value: Any, fault: Exception | None) -> None:
            if not over[0]:
                over[0] = True
                answered(value, fault)

        self.alive(node, lambda: once(None, ConnectionError("no answer")), REQUEST_SECONDS)

        def arrives() -> None:
            if self.is_lost(node):
                return
            value, fault = None, None
            try:
                value = what()
            except (StaleEpoch, LeaseLost) as refused:
                fault = refused
            if self.is_lost(node):
                return
            self.later(self.delay(), lambda: back(value, fault))

        def back(value: Any, fault: Exception | None) -> None:
            if node.generation == generation:
                if node.stopped:
                    node.waiting.append(lambda: once(value, fault) if node.generation == generation else None)
                else:
                    once(value, fault)

        self.later(self.delay(), arrives)

    def is_lost(self, node: Node) -> bool:
        if self.cut.get(node.index) or self.cut.get("registry"):
            return True
        return self.losses > 0 and self.chance.random() < 0.3

    def delay(self) -> float:
        return self.chance.uniform(0.2, 2.5) if self.losses and self.chance.random() < 0.2 else 0.005

    def do(self, node: Node, step: Step, lease: Lease | None, number: int, tell: Callable[[Result], None]) -> None:
        match step:
            case Begin(move):
                self.request(node, lambda: self.registry.begin_move(move, lease), lambda _, f: tell(_result(f)))
            case End(database, move):
                self.request(node, lambda: self.registry.end_move(database, lease, move), lambda _, f: tell(_result(f)))
            case Activate(database, target, epoch):
                self.request(
                    node, lambda: self.registry.activate(database, target, epoch, lease), lambda _, f: tell(_result(f))
                )
            case Pause(seconds):
                self.alive(node, lambda: tell(Result()), seconds)
            case Hook():
                self.hook(node, step, number, tell, lease.term if lease else 0)

    def hook(self, node: Node, step: Hook, number: int, tell: Callable[[Result], None], term: int) -> None:
        """A process of its own: it goes on when the manager is stopped or killed, and ends when it is told to."""
        stopped: list[bool] = []
        node.hooks[number] = stopped
        fails = self.hooks_fail > 0 and self.chance.random() < 0.5
        hangs = fails and self.chance.random() < 0.5
        seconds = 2.0 if hangs else self.chance.choice([0.05, 0.3, 1.0])
        works = not fails or self.chance.random() < 0.3  # one that fails may have done its work
        refused: list[bool] = []

        def works_now() -> None:
            if works and not stopped:
                what = step.kind.value, step.database, step.server, step.epoch
                done = self.replicas.called(self.now, *what, term)
                refused.extend([] if done else [True])

        if not hangs:
            self.later(seconds, works_now)

        def ended() -> None:
            node.hooks.pop(number, None)
            bad = fails or refused
            tell(Result(Fault.HOOK, "exit status 1") if bad else Result())

        self.alive(node, ended, seconds * 1.06 + 0.01)


class Command:
    """`gatepost database move` on some machine: the same steps without a lease, or a request to the manager."""

    def __init__(self, world: World, database: str, target: str, *, dies_after: float, asks: bool = False) -> None:
        self.world = world
        self.node = Node(-1, 1.0)
        active = world.registry.current.active[database]
        word = world.registry.current.words.get(target)
        if active.server == target or word is not None or not world._can_serve(target):
            return
        if asks:
            request = Move(database, active.server, target, active.epoch, world.now, asked("an operator's"))
            world.request(self.node, lambda: world.registry.begin_move(request), lambda _, fault: None)
            return
        move = Move(database, active.server, target, active.epoch, world.now, "an operator's")
        self.steps = steps_of(Plan(move, planned=True, has_hook=lambda kind, _: kind in HOOKS))
        world.later(dies_after, lambda: world.kill(self.node))
        self.do(next(self.steps))

    def do(self, step: Step) -> None:
        self.world.do(self.node, step, None, 0, self.told)

    def told(self, result: Result) -> None:
        try:
            step = self.steps.send(result)
        except StopIteration:
            return
        self.do(step)


def _result(fault: Exception | None) -> Result:
    if fault is None:
        return Result()
    kind = (
        Fault.STALE
        if isinstance(fault, StaleEpoch)
        else Fault.LEASE
        if isinstance(fault, LeaseLost)
        else Fault.UNAVAILABLE
    )
    return Result(kind, str(fault))


def _kept(lease: Lease, asked: float, fault: Exception | None) -> words.Asked:
    if isinstance(fault, LeaseLost):
        return words.Asked(None, asked)
    return words.Asked(None if fault else lease, asked, str(fault or ""))


def play(seed: int, troubles: list[Trouble] | None = None) -> list[str]:
    """What goes wrong with this seed; nothing, when all is right."""
    return World(seed, schedule(seed) if troubles is None else troubles).run()


def shrink(seed: int) -> list[Trouble]:
    """The fewest faults of a failing seed that still fail it."""
    troubles = schedule(seed)
    smaller = True
    while smaller:
        smaller = False
        for index in range(len(troubles)):
            fewer = troubles[:index] + troubles[index + 1 :]
            if play(seed, fewer):
                troubles, smaller = fewer, True
                break
    return troubles


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    failing = 0
    for seed in range(options.seed, options.seed + options.runs):
        wrong = play(seed)
        if wrong:
            failing += 1
            print(f"seed {seed}:", *wrong[:5], *shrink(seed), sep="\n  ")
    print(f"{options.runs} schedules, {failing} failing")
    return 1 if failing else 0


if __name__ == "__main__":
    sys.exit(main())
