"""Many random schedules of the simulation of shadow redundancy (`tests/unit/transport/shadow_simulation.py`).

    GATEPOST_SHADOW_SCHEDULES=100000 pytest tests/integration/test_simulated_shadows_at_length.py

It starts nothing, but it takes the seconds of processor time that unit tests should not.
"""

from __future__ import annotations

import os

import pytest
from shadow_mutants import MUTANTS, Mutant, first_seed
from shadow_simulation import play

FIRST = 150
SCHEDULES = int(os.environ.get("GATEPOST_SHADOW_SCHEDULES", "3000"))
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_no_promise_is_broken_in_further_random_schedules(part: int) -> None:
    wrong = {}
    for seed in range(FIRST + part, FIRST + SCHEDULES, PARTS):
        outcome = play(seed)
        if outcome.wrong:
            wrong[seed] = outcome.wrong
    assert wrong == {}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_each_broken_rule_is_found(mutant: Mutant) -> None:
    assert first_seed(mutant, 2000)[0] >= 0
