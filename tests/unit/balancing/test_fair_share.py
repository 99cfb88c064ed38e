"""Whose requests give way while others wait (SPEC B4)."""

from __future__ import annotations

import pytest

from gatepost.balancing.fair_share import giving_way, share_of


@pytest.mark.parametrize(("limit", "share"), [(1, 1), (2, 1), (5, 2), (20, 10), (100, 10), (2000, 200)])
def test_a_share_is_a_tenth_and_never_nothing(limit: int, share: int) -> None:
    assert share_of(limit) == share


def held(**counts: int) -> dict[str, list[str]]:
    return {user: [f"{user} {n}" for n in range(count)] for user, count in counts.items()}


def test_who_holds_everything_gives_up_the_last_of_it_one_for_each_who_waits() -> None:
    assert giving_way(held(greedy=100), ["bob", "carol"], 100) == ["greedy 98", "greedy 99"]


def test_a_share_is_kept_whoever_waits() -> None:
    assert len(giving_way(held(greedy=100), ["bob"] * 500, 100)) == 90
    assert giving_way(held(a=10, b=10), ["bob"], 20) == []


def test_those_with_most_give_way_first() -> None:
    assert giving_way(held(some=12, most=60, few=3), ["bob"] * 60, 75) == [
        *(f"most {n}" for n in range(10, 60)),
        "some 10",
        "some 11",
    ]


def test_nobody_gives_way_to_one_who_holds_a_share() -> None:
    """Whoever has much waits for their turn."""
    assert giving_way(held(greedy=60, rich=40), ["greedy", "rich", "greedy"], 100) == []
    assert giving_way(held(greedy=60, rich=40), ["greedy", "bob"], 100) == ["greedy 59"]


def test_nobody_waits_and_nothing_is_held() -> None:
    assert giving_way(held(greedy=100), [], 100) == []
    assert giving_way({}, ["bob"], 100) == []
