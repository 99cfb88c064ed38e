"""The longer part of the 500 random schedules of faults (`tests/unit/activemanager/test_simulated_managers.py`).

It starts nothing, but it takes the seconds of processor time that unit tests should not.
"""

from __future__ import annotations

import pytest
from simulation import play, shrink

FIRST, LAST = 100, 500
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_no_promise_is_broken_in_further_random_schedules(part: int) -> None:
    broken = {}
    for seed in range(FIRST + part, LAST, PARTS):
        wrong = play(seed)
        if wrong:
            broken[seed] = (wrong, shrink(seed))
    assert broken == {}
