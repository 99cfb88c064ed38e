"""When a second server is tried beside the first (a pure machine; the sockets are in tests/unit/transport)."""

from __future__ import annotations

from gatepost.balancing.hedging import MAX_AT_ONCE, Hedge, Step


def test_a_first_attempt_is_begun_at_once_and_then_waited_for() -> None:
    hedge = Hedge(2.0)
    assert hedge.step(100.0) is Step.ANY
    hedge.begun("a", 10, 100.0)
    assert hedge.step(100.0) is Step.WAIT
    assert hedge.wake == 102.0


def test_after_hedge_seconds_a_second_one_of_the_same_preference_is_begun() -> None:
    hedge = Hedge(2.0)
    hedge.begun("a", 10, 100.0)
    assert hedge.step(101.9) is Step.WAIT
    assert hedge.step(102.0) is Step.SAME_PREFERENCE
    assert hedge.preference == 10


def test_with_0_there_is_never_a_second_one() -> None:
    hedge = Hedge(0.0)
    hedge.begun("a", 10, 100.0)
    assert hedge.step(1000.0) is Step.WAIT
    assert hedge.wake is None


def test_the_next_preference_waits_until_all_have_failed() -> None:
    hedge = Hedge(2.0)
    hedge.begun("a", 10, 100.0)
    assert hedge.step(102.0) is Step.SAME_PREFERENCE
    hedge.none_left()
    assert hedge.step(103.0) is Step.WAIT
    assert hedge.wake is None
    hedge.failed("a", 130.0)
    assert hedge.step(130.0) is Step.ANY


def test_a_hedge_that_fails_at_once_is_followed_by_the_next() -> None:
    hedge = Hedge(2.0)
    hedge.begun("a", 10, 100.0)
    hedge.begun("b", 10, 102.0)
    hedge.failed("b", 102.1)
    assert hedge.step(102.1) is Step.SAME_PREFERENCE


def test_when_the_slow_one_fails_the_newest_keeps_its_time() -> None:
    hedge = Hedge(2.0)
    hedge.begun("a", 10, 100.0)
    hedge.begun("b", 10, 102.0)
    hedge.failed("a", 102.5)
    assert hedge.step(102.5) is Step.WAIT
    assert hedge.wake == 104.0


def test_so_many_are_under_way_at_a_time_and_no_more() -> None:
    hedge = Hedge(2.0)
    for number in range(MAX_AT_ONCE):
        hedge.begun(number, 10, 100.0 + 2 * number)
    assert hedge.step(500.0) is Step.WAIT
    hedge.failed(0, 500.0)
    assert hedge.step(500.0) is Step.SAME_PREFERENCE


def test_the_first_to_open_wins_and_the_others_are_handed_over() -> None:
    hedge = Hedge(2.0)
    hedge.begun("a", 10, 100.0)
    hedge.begun("b", 10, 102.0)
    assert hedge.won("b") == {"a"}
    assert hedge.trying == 0
