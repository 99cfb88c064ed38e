"""Two or three managers under random schedules of faults: no promise is broken, and all is well after the healing.

The first 100 of 500 schedules; the others are in `tests/integration/test_simulated_managers_at_length.py`. More by
`python tests/unit/activemanager/simulation.py --runs N`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import simulation
from history import Entry, violations
from simulation import Trouble, World, play, schedule, shrink

from gatepost.activemanager import holding, manager
from gatepost.activemanager.port import LeaseLost, Move
from gatepost.activemanager.steps import Plan, Steps

RUNS = 100
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_no_promise_is_broken_in_random_schedules(part: int) -> None:
    """No epoch with two holders, none left out, no change by a lease that had ended, no two writers; and liveness."""
    broken = {}
    for seed in range(part * RUNS // PARTS, (part + 1) * RUNS // PARTS):
        wrong = play(seed)
        if wrong:
            broken[seed] = (wrong, shrink(seed))
    assert broken == {}


def test_a_seed_says_everything() -> None:
    first, second = (World(7, schedule(7)) for _ in range(2))
    assert first.run() == second.run()
    assert first.registry.log == second.registry.log
    assert len(first.registry.log) > 5


def test_schedules_have_what_they_are_for() -> None:
    """Failovers, other holders and refused changes do occur."""
    worlds = [World(seed, schedule(seed)) for seed in range(40)]
    for world in worlds:
        world.run()
    assert sum(entry.what == "activated" and entry.term > 0 for w in worlds for entry in w.registry.log) > 20
    assert sum(entry.what == "taken" for w in worlds for entry in w.registry.log) > 60


def test_a_registry_that_checks_no_lease_is_found_out() -> None:
    """The checker is not blind: where every request for a lease is granted, it says so."""
    world = World(0, [], checks_leases=False)
    assert any("began while" in line for line in world.run())


def test_a_manager_that_acts_after_its_lease_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that never stops by its own clock, before a registry that asks for no lease."""
    monkeypatch.setattr(holding.Holding, "acts", lambda self, now: self.lease is not None)
    monkeypatch.setattr(holding.Holding, "mind", _never_lets_go)
    found = []
    for seed in range(60):
        world = World(seed, schedule(seed))
        world.registry._require = lambda lease: None  # type: ignore[method-assign]
        found += [line for line in world.run() if "had ended" in line or "after the lease's end" in line]
    assert found


def _never_lets_go(self: holding.Holding, now: float) -> None:
    if not self._asking and now >= self._ask_at:
        self._asking = True
        out = simulation.words
        self._out.put(out.Take(self.holder, self.seconds, now) if self.lease is None else out.Keep(self.lease, now))


def test_a_manager_that_forgets_to_undo_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the fence of a target that was perhaps promoted, two writers come about."""
    monkeypatch.setattr(manager, "steps_of", _careless(manager.steps_of))
    assert any("has the writers" in line for seed in range(400) for line in play(seed))


def _careless(steps_of: Callable[[Plan], Steps]) -> Callable[[Plan], Steps]:
    def careless(plan: Plan) -> Steps:
        return steps_of(replace(plan, planned=False, has_hook=lambda kind, _: kind == "promote"))

    return careless


def test_the_faults_of_a_failing_seed_are_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not matter is left out."""
    monkeypatch.setattr(simulation, "play", lambda seed, found: ["wrong"] if DEAD in found else [])
    monkeypatch.setattr(simulation, "schedule", lambda seed: ALL)
    assert shrink(0) == [DEAD]


DEAD = Trouble(3.0, 4.0, "dead", "A")
ALL = [Trouble(2.0, 1.0, "stopped", 0), DEAD, Trouble(5.0, 2.0, "losses", 1)]


def activated(time: float, epoch: int, term: int = 0, holder: str = "", *, sound: bool = True) -> Entry:
    return Entry(time, "activated", holder, term, 0.0, "DB1", "A", epoch, sound)


BAD = [
    ("an epoch twice", [activated(1, 1), activated(2, 1)]),
    ("an epoch left out", [activated(1, 1), activated(2, 3)]),
    ("no lease at all", [activated(1, 1, 4, "M")]),
    ("an old lease", [Entry(1, "taken", "M", 1, 5.0), activated(7, 1, 1, "M")]),
    (
        "another one's lease",
        [Entry(1, "taken", "M", 1, 5.0), Entry(7, "taken", "N", 2, 5.0), activated(8, 1, 1, "M")],
    ),
    ("a lease given back", [Entry(1, "taken", "M", 1, 5.0), Entry(2, "given back", "M", 1), activated(3, 1, 1, "M")]),
    ("two holders", [Entry(1, "taken", "M", 1, 5.0), Entry(2, "taken", "N", 2, 5.0)]),
    ("a term again", [Entry(1, "taken", "M", 1, 5.0), Entry(9, "taken", "N", 1, 5.0)]),
    ("kept too late", [Entry(1, "taken", "M", 1, 5.0), Entry(7, "kept", "M", 1, 5.0)]),
    ("no choice", [Entry(1, "taken", "M", 1, 5.0), activated(2, 1, 1, "M", sound=False)]),
]


@pytest.mark.parametrize("log", [log for _, log in BAD], ids=[name for name, _ in BAD])
def test_the_checker_names_what_must_not_be(log: list[Entry]) -> None:
    assert violations(log)


def test_the_checker_is_silent_about_a_good_log() -> None:
    log = [activated(0, 1), Entry(1, "taken", "M", 1, 5.0), Entry(4, "kept", "M", 1, 5.0), activated(8, 2, 1, "M")]
    log += [Entry(8.5, "given back", "M", 1), Entry(8.6, "taken", "N", 2, 5.0), activated(9, 3, 2, "N")]
    assert violations(log) == []


def test_the_simulated_registry_refuses_a_lease_that_has_ended() -> None:
    world = World(0, [])
    lease = world.registry.take_lease("manager", "M", 5.0)
    assert lease is not None
    world.now = 6.0
    with pytest.raises(LeaseLost):
        world.registry.begin_move(Move("DB1", "A", "B", 1, 0.0), lease)
