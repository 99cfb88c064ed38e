"""Shares that are equal to one session, whoever is down (SPEC B7)."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gatepost.balancing.equal_share import MAX_SERVERS, EqualShare

HUBS = ["HUB-01", "HUB-02", "HUB-03"]


def deal(share: EqualShare, sessions: int, down: set[str], hubs: list[str] = HUBS) -> Counter[str]:
    """So many sessions, each to the first in order."""
    got: Counter[str] = Counter()
    for _ in range(sessions):
        first = share.order(hubs, lambda hub: hub not in down)[0]
        share.give(first)
        got[first] += 1
    return got


def test_three_hubs_get_the_same() -> None:
    """3,000 sessions, 1,000 each."""
    assert deal(EqualShare(), 3000, set()) == dict.fromkeys(HUBS, 1000)


def test_two_that_are_left_get_the_same() -> None:
    """The third's turns are not its neighbour's: a ring would give one 2,000 and the other 1,000."""
    share = EqualShare()
    deal(share, 100, set())
    got = deal(share, 3000, {"HUB-02"})
    assert abs(got["HUB-01"] - got["HUB-03"]) <= 1
    assert got["HUB-02"] == 0


def test_one_that_is_back_gets_its_share_and_no_more() -> None:
    """It does not make up for its absence, which would be a flood."""
    share = EqualShare()
    deal(share, 3000, {"HUB-02"})
    got = deal(share, 300, set())
    assert max(got.values()) - min(got.values()) <= 2  # one, and one that was owed when it came


def test_a_new_one_begins_where_the_others_are() -> None:
    """Added by a change of the organization."""
    share = EqualShare()
    deal(share, 3000, set())
    got = deal(share, 400, set(), [*HUBS, "HUB-04"])
    assert max(got.values()) - min(got.values()) <= 1


def test_those_that_are_down_come_last() -> None:
    """They are tried when nobody else takes the session."""
    share = EqualShare()
    assert share.order(HUBS, lambda hub: hub == "HUB-03")[0] == "HUB-03"
    assert share.order(HUBS, lambda _: False) == HUBS


def test_names_without_end_are_not_kept() -> None:
    """Servers come and go over years."""
    share = EqualShare()
    for number in range(2 * MAX_SERVERS):
        share.give(f"HUB-{number}")
    assert len(share._given) <= MAX_SERVERS


@given(st.lists(st.tuples(st.integers(1, 30), st.sets(st.sampled_from(HUBS), max_size=2)), max_size=20))
def test_in_every_phase_shares_are_equal(phases: list[tuple[int, set[str]]]) -> None:
    """Whatever was before: within a phase those that are up differ by one session, by two after a change."""
    share = EqualShare()
    for sessions, down in phases:
        got = deal(share, sessions, down)
        shares = [got[hub] for hub in HUBS if hub not in down]
        assert max(shares) - min(shares) <= 2
        assert not any(got[hub] for hub in down)
