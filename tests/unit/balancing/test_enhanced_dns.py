"""To which target a connection goes (SPEC T4): equal shares of the healthy, preferences, families, the naive mode."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transport_samples import REFUSED, START, selector, target

from gatepost.balancing.enhanced_dns import Rotation
from gatepost.balancing.healthy_server_selector import HealthyServerSelector
from gatepost.balancing.target import Target

HUB04, HUB05, HUB06 = target("hub04"), target("hub05"), target("hub06")
SITE_B = [HUB04, HUB05, HUB06]


def rotation(found: HealthyServerSelector, seed: int = 1) -> Rotation:
    return Rotation(found, Random(seed).random)


def connect(
    turns: Rotation, targets: list[Target], now: float, down: set[Target]
) -> tuple[Target | None, list[Target]]:
    """One connection: where it ended, and what it tried before."""
    turn, tried = turns.turn(targets), []
    while (attempt := turn.next(now)) is not None:
        if attempt.target not in down:
            turns.selector.succeeded(attempt.target, now)
            return attempt.target, tried
        turns.selector.failed(attempt.target, now, REFUSED, attempt.lease, now)
        turn.returned(attempt)
        tried.append(attempt.target)
    return None, tried


def shares(turns: Rotation, targets: list[Target], number: int, down: set[Target], now: float = START) -> Counter[str]:
    return Counter(found.host for found, _ in (connect(turns, targets, now, down) for _ in range(number)) if found)


@pytest.mark.parametrize("seed", range(5))
def test_with_all_up_connections_are_shared_evenly(seed: int) -> None:
    counts = shares(rotation(selector(), seed), SITE_B, 3000, set())
    assert sorted(counts.values()) == [1000, 1000, 1000]


@pytest.mark.parametrize("naive", [False, True])
def test_each_connection_begins_at_another_target(naive: bool) -> None:
    turns = rotation(selector(healthy_server_selector=not naive))
    first = [turns.turn(SITE_B).next(START) for _ in range(6)]
    hosts = [attempt.target.host for attempt in first if attempt]
    assert len(set(hosts[:3])) == 3
    assert sorted(hosts[:3]) == sorted(hosts[3:])


@pytest.mark.parametrize("down", SITE_B)
def test_the_healthy_share_exactly_evenly_when_one_is_down(down: Target) -> None:
    counts = shares(rotation(selector()), SITE_B, 3000, {down})
    assert sorted(counts.values()) == [1500, 1500]


@pytest.mark.parametrize("down", SITE_B)
def test_without_the_selector_the_one_that_follows_carries_twice_as_much(down: Target) -> None:
    counts = shares(rotation(selector(healthy_server_selector=False)), SITE_B, 3000, {down})
    assert sorted(counts.values()) == [1000, 2000]
    follower = SITE_B[(SITE_B.index(down) + 1) % 3]
    assert counts[follower.host] == 2000


@given(st.integers(2, 7), st.data())
def test_the_healthy_share_evenly_whichever_and_however_many_are_down(size: int, data: st.DataObject) -> None:
    targets = [target(f"hub{number:02}") for number in range(size)]
    down = set(data.draw(st.lists(st.sampled_from(targets), max_size=size - 1)))
    number = data.draw(st.integers(0, 60))
    counts = shares(rotation(selector(), data.draw(st.integers(0, 99))), targets, number, down)
    shared = [counts[each.host] for each in targets if each not in down]
    assert sum(shared) == number
    assert max(shared) - min(shared) <= 1


def test_connections_that_fail_at_the_same_time_are_spread_as_well() -> None:
    """Thirty begin at once; ten of them find Hub04 dead together, and must not all fall on the same one."""
    turns = rotation(selector())
    begun = [turns.turn(SITE_B) for _ in range(30)]
    first = [(turn, turn.next(START)) for turn in begun]
    counts: Counter[str] = Counter()
    for turn, attempt in first:
        assert attempt is not None
        if attempt.target == HUB04:
            turns.selector.failed(HUB04, START, REFUSED, attempt.lease, START)
            turn.returned(attempt)
            attempt = turn.next(START)
            assert attempt is not None
        counts[attempt.target.host] += 1
    assert sorted(counts.values()) == [15, 15]


def test_who_comes_back_gets_one_attempt_and_then_its_share_not_more() -> None:
    found = selector()
    turns = rotation(found)
    shares(turns, SITE_B, 3000, {HUB04})
    now = START + 60
    assert connect(turns, SITE_B, now, set())[0] == HUB04
    counts = shares(turns, SITE_B, 300, set(), now)
    assert sorted(counts.values()) in ([99, 100, 101], [100, 100, 100])


def test_a_lower_preference_is_tried_only_when_all_better_are_down_or_failed() -> None:
    best, backup = [target("mx01", preference=10), target("mx02", preference=10)], target("mx09", preference=20)
    targets = [backup, *best]
    turns = rotation(selector())
    assert backup.host not in shares(turns, targets, 100, set())
    assert backup.host not in shares(turns, targets, 100, {best[0]})
    found, tried = connect(turns, targets, START, set(best))
    assert found == backup
    assert tried == [best[1]], "the other one is known to be down"
    assert shares(turns, targets, 10, set(best)) == {backup.host: 10}


def test_preferences_are_in_order_and_the_worst_comes_last() -> None:
    """Smtp-facts row 36: a reversed order."""
    targets = [target(f"mx{number:02}", preference=number) for number in (30, 10, 20)]
    found, tried = connect(rotation(selector()), targets, START, set(targets))
    assert found is None
    assert [each.preference for each in tried] == [10, 20, 30]


def test_equal_ones_are_shuffled_by_the_random_numbers_given() -> None:
    """Row 36: the same seed gives the same order, and different ones not always the same."""
    firsts = [rotation(selector(), seed).turn(SITE_B).next(START) for seed in [*range(20), *range(20)]]
    assert [attempt and attempt.target for attempt in firsts[:20]] == [
        attempt and attempt.target for attempt in firsts[20:]
    ]
    assert {attempt.target for attempt in firsts if attempt} == set(SITE_B)


def test_none_is_tried_twice_by_one_connection() -> None:
    turn = rotation(selector(healthy_server_selector=False)).turn(SITE_B)
    assert {attempt.target for attempt in iter(lambda: turn.next(START), None) if attempt} == set(SITE_B)


def test_when_all_are_down_nothing_is_tried_until_the_first_is_due() -> None:
    turns = rotation(selector())
    connect(turns, SITE_B, START, set(SITE_B))
    turn = turns.turn(SITE_B)
    assert turn.next(START + 59) is None
    assert turn.due(START + 59) == START + 60
    assert turn.next(START + 60) is not None


def test_a_due_one_goes_first_though_others_are_healthy_and_only_for_one_connection() -> None:
    turns = rotation(selector())
    connect(turns, SITE_B, START, {HUB04})
    connect(turns, SITE_B, START, {HUB04})
    connect(turns, SITE_B, START, {HUB04})
    first = [turns.turn(SITE_B).next(START + 60) for _ in range(100)]
    assert [bool(attempt and attempt.lease) for attempt in first] == [True] + [False] * 99
    assert [attempt.target for attempt in first if attempt].count(HUB04) == 1


def test_hosts_share_not_addresses() -> None:
    """A host with four addresses does not get four shares."""
    many = [target("mx01", f"10.0.1.{number}") for number in range(4)]
    turns = rotation(selector())
    found = [connect(turns, [*many, HUB05], START, set())[0] for _ in range(800)]
    assert Counter(each.host for each in found if each) == {many[0].host: 400, HUB05.host: 400}
    assert Counter(each.ip for each in found if each and each.host == many[0].host) == {each.ip: 100 for each in many}


def test_a_host_of_which_one_address_is_down_keeps_its_share() -> None:
    broken, fine = target("mx01", "2001:db8::1"), target("mx01", "10.0.1.1")
    counts = shares(rotation(selector()), [broken, fine, HUB05], 400, {broken})
    assert counts == {fine.host: 200, HUB05.host: 200}


def test_after_a_failure_the_other_family_is_tried_next() -> None:
    """Smtp-facts row 34: where IPv6 is broken, half of the attempts are not."""
    hosts = [
        target("mx01", "2001:db8::1"),
        target("mx01", "10.0.1.1"),
        target("mx02", "2001:db8::2"),
        target("mx02", "10.0.1.2"),
    ]
    for seed in range(20):
        _, tried = connect(rotation(selector(), seed), hosts, START, set(hosts))
        assert [":" in each.ip for each in tried] in ([True, False] * 2, [False, True] * 2)


def test_the_order_shown_is_what_would_be_tried_and_counts_nothing() -> None:
    turns = rotation(selector())
    backup = target("mx09", preference=20)
    connect(turns, SITE_B, START, {HUB04})
    before = turns.order([backup, *SITE_B], START)
    assert before[-1] == backup
    assert set(before) == {HUB05, HUB06, backup} | ({HUB04} if turns.selector.healthy(HUB04) else set())
    assert turns.order([backup, *SITE_B], START) == before


def test_a_turn_that_was_not_used_is_given_back() -> None:
    turns = rotation(selector())
    for _ in range(30):
        turn = turns.turn(SITE_B[:2])
        attempt = turn.next(START)
        assert attempt is not None
        turn.returned(attempt)
    counts = shares(turns, SITE_B, 300, set())
    assert sorted(counts.values()) == [100, 100, 100]


def test_targets_that_dns_no_longer_lists_are_forgotten() -> None:
    turns = rotation(selector())
    for number in range(1000):
        turns.turn([target("mx01", f"10.{number // 250}.0.{number % 250}")]).next(START)
    assert len(turns._counts) < 200


def test_one_where_an_attempt_hangs_comes_after_its_equals_but_before_a_lower_preference() -> None:
    found = selector()
    turns = rotation(found)
    backup = target("mx09", preference=20)
    found.hangs(HUB04)
    assert shares(turns, [*SITE_B, backup], 100, set()) == {HUB05.host: 50, HUB06.host: 50}
    assert shares(turns, [HUB04, backup], 10, set()) == {HUB04.host: 10}
    found.hangs(HUB04)
    found.hangs_no_longer(HUB04)
    assert found.hanging(HUB04), "the other one still does"
    found.hangs_no_longer(HUB04)
    assert sorted(shares(turns, SITE_B, 300, set()).values()) in ([100, 100, 100], [99, 100, 101])
