"""What is done in the runs of a proving of shadow redundancy, and what is made of them."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from gatepost.proving.shadow_cast import FAR
from gatepost.proving.shadow_plan import ANY, SECOND, STRIDE, WAITING, Back, Blow, Busy, Plan, Strike, plan
from gatepost.proving.shadow_report import Cause, Outcome, report, table
from gatepost.proving.stages import STAGES, Part

PLANS = [plan(number, 1) for number in range(1, 1001)]
PART = {stage.name: stage.part for stage in STAGES}


def test_every_stage_has_its_share() -> None:
    runs = Counter(one.stage for one in PLANS)
    assert set(runs) == {ANY, *PART}
    assert min(runs.values()) > 1000 / (len(STAGES) + 10)


def test_the_first_runs_are_of_different_stages_and_another_seed_is_another_proving() -> None:
    assert len({one.stage for one in PLANS[: len(STAGES)]}) > len(STAGES) * 0.8
    assert [plan(number, 2) for number in range(1, 30)] != PLANS[:29]
    assert [plan(number, 1) for number in range(1, 30)] == PLANS[:29]


def test_only_some_stages() -> None:
    assert [plan(number, 1, ["settled", ANY]).stage for number in range(4)] == ["settled", ANY] * 2


def test_disks_are_lost_one_at_a_time() -> None:
    assert max(sum(strike.blow is Blow.DISK for strike in one.strikes) for one in PLANS) == 1
    assert sum(one.takes_disk for one in PLANS) > 300


def test_a_take_over_is_struck_after_a_hub_was_struck_that_has_messages() -> None:
    for one in PLANS:
        is_second = PART.get(one.stage) in SECOND
        assert len(one.strikes) == (2 if is_second else 1)
        assert one.strikes[-1].stage == one.stage
        assert (one.busy is Busy.UNTIL_STRUCK) == is_second
        if is_second:
            assert one.strikes[0].stage == WAITING


def test_a_hub_that_is_struck_while_it_comes_back_has_its_disk() -> None:
    """And comes back while its messages are still its own, or after they were taken over."""
    fenced = [one for one in PLANS if PART.get(one.stage) is Part.FENCE]
    assert {one.strikes[0].blow for one in fenced} == {Blow.KILL}
    assert {(one.back, one.away > 0) for one in fenced} == {(Back.AT_ONCE, True), (Back.AT_ONCE, False)}
    held_dead = [one for one in PLANS if PART.get(one.stage) is Part.REACHED]
    assert {one.strikes[0].blow for one in held_dead} == {Blow.REFUSED}


def test_a_short_proving_has_some_of_each_part() -> None:
    assert math.gcd(STRIDE, len(STAGES)) == 1
    assert {PART[one.stage] for one in PLANS[:14] if one.stage in PART} == set(Part)


def test_handing_on_needs_mail_that_is_handed_on() -> None:
    assert all(FAR in one.domains for one in PLANS if PART.get(one.stage) is Part.HAND_ON)


def outcome(number: int, stage: str, *names: str, **more: object) -> Outcome:
    made = Plan(number, stage, (Strike(stage, Blow.DISK),), Back.LATE, (FAR,), busy=Busy.NEVER, messages=len(names))
    return Outcome(made, 2, [True], acknowledged=set(names), sent_all=True, **more)  # type: ignore[arg-type]


def test_what_is_lost_and_what_comes_twice_is_counted_by_stage() -> None:
    one, two = outcome(1, "settled", "1000.1", "1001.2"), outcome(2, ANY, "2000.1", in_doubt={"2001.1", "2002.1"})
    one.killed = {"HUB-01"}
    one.deliveries = {"1000.1": ("HUB-01", "HUB-01", "HUB-02")}
    two.deliveries = {"2000.1": ("HUB-01",), "2001.1": ("HUB-02", "HUB-01")}
    arrived = {
        "1000.1": ["HUB-01", "HUB-01", "HUB-02"],
        "2000.1": ["HUB-01"],
        "2001.1": ["HUB-02", "HUB-01", "HUB-01"],
        "9.1": ["HUB-01"] * 5,
    }
    found = report([one, two], arrived, 0, [])
    assert (found["acknowledged"], found["lost"], found["duplicates"]) == (3, 1, 4)
    assert found["lost_messages"] == ["1001.2"]
    assert found["duplicates_by_cause"] == dict.fromkeys(Cause, 1)
    assert found["stages"]["settled"] == {
        "runs": 1, "reached": 1, "kill": 0, "disk": 1, "hang": 0, "cut": 0, "refused": 0, "acknowledged": 2, "lost": 1,
        "duplicates": 2,
    }  # fmt: skip
    assert found["stages"][ANY]["duplicates"] == 1
    assert found["missed"] == ["nothing is lost"]
    assert found["summary"].startswith("MISSED: nothing is lost: 2 runs, 3 messages acknowledged, 1 lost, 4 delivered")
    assert "\n" not in found["summary"]
    assert len({len(line) for line in table(found["stages"])}) == 1


@pytest.mark.parametrize(
    ("wrong", "damaged", "faults", "missed"),
    [
        ({}, 0, [], []),
        ({}, 1, [], ["every content is as it was sent"]),
        ({}, 0, ["HUB-01: x"], ["no fault of ours"]),
        ({"delivered_without": False}, 0, [], ["the others deliver without the hub that is away"]),
        ({"refused_for_good": ["1.1: 550 no"]}, 0, [], ["no reply is for good"]),
    ],
)
def test_every_goal_can_be_missed(wrong: dict[str, object], damaged: int, faults: list[str], missed: list[str]) -> None:
    found = report([outcome(1, "settled", "1.1", **wrong)], {"1.1": ["HUB-01"]}, damaged, faults)
    assert found["missed"] == missed
    assert found["ok"] == (not missed)


def test_what_was_missing_and_has_come_late_is_not_lost() -> None:
    found = report([outcome(1, ANY, "1.1", missing={"1.1"})], {"1.1": ["HUB-01"]}, 0, [])
    assert found["lost"] == 0
