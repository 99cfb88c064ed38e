"""Stages of back pressure by the facts (exchange-facts 4.12)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.balancing.back_pressure import (
    SUBMISSION_QUEUE,
    TARPIT_FIRST,
    TARPIT_MOST,
    BackPressure,
    Marks,
    Pressure,
    count_marks,
    disk_marks,
)

GB = 1024**3
MB = 1024**2
N, M, H = Pressure.NORMAL, Pressure.MEDIUM, Pressure.HIGH


def test_the_percentages_of_the_source_system() -> None:
    assert disk_marks(1000 * GB, 500 * MB) == Marks(medium=96, high=99, from_high=97, from_medium=94)


def test_a_small_disk_is_high_when_500_mb_are_left() -> None:
    marks = disk_marks(10 * GB, 500 * MB)
    assert marks.high == 95  # 100 * (10240 - 500) / 10240, rounded down
    assert (marks.medium, marks.from_high, marks.from_medium) == (92, 93, 90)


def test_a_disk_smaller_than_what_is_to_stay_free() -> None:
    marks = disk_marks(100 * MB, 500 * MB)
    assert marks.stage(N, 0) is N
    assert marks.stage(N, 50) is H


@pytest.mark.parametrize(
    ("before", "used", "after"),
    [
        (N, 95.9, N),
        (N, 96, M),
        (N, 99, H),
        (M, 98.9, M),
        (M, 99, H),
        (M, 94.1, M),
        (M, 94, N),
        (H, 98, H),
        (H, 97.1, H),
        (H, 97, M),
        (H, 94, N),
    ],
)
def test_up_and_down_have_marks_of_their_own(before: Pressure, used: float, after: Pressure) -> None:
    assert disk_marks(1000 * GB, 500 * MB).stage(before, used) is after


def test_the_queue_of_messages() -> None:
    marks = count_marks(1_000_000)
    stage, seen = N, []
    for count in (899_999, 900_000, 1_000_000, 960_000, 950_000, 800_001, 800_000):
        stage = marks.stage(stage, count)
        seen.append(stage)
    assert seen == [N, M, H, H, M, M, N]


def test_the_submission_queue_refuses_strangers_after_ten_minutes() -> None:
    rules = BackPressure({"submission": SUBMISSION_QUEUE})
    for _ in range(299):
        assert rules.metered({"submission": 12_000}) is M
    assert not rules.refuses_strangers
    rules.metered({"submission": 12_000})
    assert rules.refuses_strangers
    rules.metered({"submission": 2000})
    rules.metered({"submission": 12_000})
    assert not rules.refuses_strangers
    rules.metered({"submission": 15_000})
    assert rules.refuses_strangers


def test_a_disk_at_medium_refuses_strangers_at_once() -> None:
    rules = BackPressure({"disk": disk_marks(1000 * GB, 500 * MB)})
    rules.metered({"disk": 97})
    assert rules.refuses_strangers


def test_strangers_wait_longer_with_each_metering_and_shorter_when_it_is_over() -> None:
    rules = BackPressure({"submission": SUBMISSION_QUEUE})
    waits = []
    for _ in range(12):
        rules.metered({"submission": 12_000})
        waits.append(rules.tarpit_seconds)
    assert waits[:3] == [TARPIT_FIRST, 15.0, 20.0]
    assert waits[-1] == TARPIT_MOST
    for _ in range(11):
        rules.metered({"submission": 0})
    assert rules.tarpit_seconds == 0.0


def test_the_worst_resource_decides_and_causes_are_named() -> None:
    rules = BackPressure({"disk": disk_marks(1000 * GB, 500 * MB), "submission": SUBMISSION_QUEUE})
    assert rules.metered({"disk": 97, "submission": 20_000}) is H
    assert rules.causes() == {"disk": M, "submission": H}
    assert rules.metered({"submission": 0}) is M, "what was not metered stands as before"


@given(st.lists(st.floats(0, 100)), st.integers(1, 10**13))
def test_a_value_under_all_marks_is_always_normal_again(values: list[float], size: int) -> None:
    marks = disk_marks(size, 500 * MB)
    stage = N
    for value in values:
        stage = marks.stage(stage, value)
    assert marks.stage(stage, 0) is N
    assert marks.stage(stage, 100) is H
