"""The healthy server selector (SPEC T5 to T9): its list, its schedule, and what time and crashes do to them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transport_samples import MINUTE, REFUSED, START, play, selector, target

from gatepost.balancing.healthy_server_selector import LEASE_MARGIN, HealthyServerSelector, UnhealthyServer
from gatepost.balancing.retry_schedule import TransportRole, default_settings
from gatepost.organization.transport import TransportSettings

HUB04, HUB05, HUB06 = target("hub04"), target("hub05"), target("hub06")
SITE_B = [HUB04, HUB05, HUB06]
HUB_MINUTES = [0, 1, 2, 3, 4, 9, 14, 19, 24, 29, 34, *range(44, 181, 10)]
EDGE_MINUTES = [0, 1, 2, 3, 4, 14, 24, 34, 44, 54, 64, 94, 124, 154]


def test_it_keeps_a_list_of_servers_that_cannot_be_used_and_filters_them_out() -> None:
    found = selector()
    assert found.filter(SITE_B, START) == SITE_B
    found.failed(HUB04, START, REFUSED)
    assert found.filter(SITE_B, START + 1) == [HUB05, HUB06]
    assert not found.healthy(HUB04)


def test_it_keeps_address_retry_count_and_time_of_the_last_retry() -> None:
    found = selector()
    found.failed(HUB04, START, REFUSED)
    lease = found.may_probe(HUB04, START + 61)
    found.failed(HUB04, START + 62, REFUSED, lease)
    (server,) = found.unhealthy(START + 62)
    assert (server.address, server.port, server.retries, server.last_retry) == ("10.0.0.4", 25, 1, START + 61)


def test_it_knows_all_six_facts_of_a_marking() -> None:
    found = selector()
    server = found.failed(HUB04, START, REFUSED)
    assert server is not None
    assert (server.address, server.host, server.error) == ("10.0.0.4", "hub04.contoso.com", REFUSED)
    assert (server.failures, server.next_retry) == (1, START + MINUTE)


def test_a_hub_retries_every_minute_4_times_every_5_minutes_6_times_then_every_10_minutes() -> None:
    assert play(selector(), HUB04, 180) == HUB_MINUTES


def test_an_edge_retries_every_10_minutes_6_times_then_every_30_minutes() -> None:
    assert play(HealthyServerSelector(default_settings(TransportRole.EDGE)), HUB04, 180) == EDGE_MINUTES


def test_when_a_retry_is_due_exactly_one_attempt_is_let_through_though_a_thousand_wait() -> None:
    found = selector()
    assert play(found, HUB04, 4, waiting=1000) == [0, 1, 2, 3, 4]
    assert found.unhealthy(START + 240)[0].retries == 4


def test_while_the_one_attempt_is_under_way_nobody_else_is_let_through() -> None:
    found = selector()
    found.failed(HUB04, START, REFUSED)
    assert found.filter([HUB04], START + 60) == [HUB04]
    assert found.begin(HUB04, START + 60)
    assert [found.begin(HUB04, START + 60 + second) for second in range(30)] == [None] * 30
    assert found.filter([HUB04], START + 60) == []


def test_when_that_attempt_succeeds_the_server_is_taken_off_the_list_at_once() -> None:
    found = selector()
    found.failed(HUB04, START, REFUSED)
    assert found.begin(HUB04, START + 60)
    gone = found.succeeded(HUB04, START + 60.2)
    assert gone is not None
    assert gone.failures == 1
    assert found.filter(SITE_B, START + 60.2) == SITE_B
    assert found.unhealthy(START + 60.2) == []


def test_the_list_does_not_keep_a_heartbeat_from_connecting_and_its_success_clears() -> None:
    """A heartbeat asks for nothing; it only tells."""
    found = selector()
    found.failed(HUB04, START, REFUSED)
    assert found.succeeded(HUB04, START + 5) is not None
    assert found.healthy(HUB04)


def test_a_heartbeat_that_fails_is_counted_and_leaves_the_schedule_alone() -> None:
    found = selector()
    found.failed(HUB04, START, REFUSED)
    server = found.failed(HUB04, START + 30, REFUSED)
    assert server is not None
    assert (server.failures, server.retries, server.next_retry) == (2, 0, START + MINUTE)


def test_attempts_that_were_under_way_at_the_marking_are_counted_and_leave_the_schedule_alone() -> None:
    """Twenty connections begin at once and all run into the same time-out."""
    found = selector()
    for number in range(20):
        assert found.begin(HUB04, START) == 0, number
    for _ in range(20):
        found.failed(HUB04, START + 30, "TimedOut:0000274C", 0, START)
    (server,) = found.unhealthy(START + 30)
    assert (server.failures, server.retries, server.next_retry) == (20, 0, START + 30 + MINUTE)


def test_an_attempt_that_began_before_the_server_came_back_does_not_mark_it_again() -> None:
    found = selector()
    found.failed(HUB04, START, REFUSED)
    found.succeeded(HUB04, START + 20)
    assert found.failed(HUB04, START + 30, "TimedOut:0000274C", 0, START + 1) is None
    assert found.healthy(HUB04)
    assert found.failed(HUB04, START + 31, REFUSED, 0, START + 30.5) is not None


def test_a_lease_whose_holder_dies_ends_by_itself_and_the_schedule_goes_on() -> None:
    found = selector()
    found.failed(HUB04, START, REFUSED)
    assert found.begin(HUB04, START + 60)
    until = START + 60 + TransportSettings().connect_seconds + LEASE_MARGIN
    assert found.begin(HUB04, until - 1) is None
    assert found.begin(HUB04, START + 119) is None
    assert found.begin(HUB04, START + 120)


def test_a_lease_that_is_longer_than_the_interval_keeps_the_next_attempt_away_until_it_ends() -> None:
    found = selector(queue_glitch_retry_interval=1.0)
    found.failed(HUB04, START, REFUSED)
    assert found.begin(HUB04, START + 1)
    assert found.begin(HUB04, START + 3) is None
    assert found.begin(HUB04, START + 1 + 30 + LEASE_MARGIN)


def test_the_outcome_of_a_lease_that_ended_does_not_end_the_next_one() -> None:
    found = selector()
    found.failed(HUB04, START, REFUSED)
    old = found.begin(HUB04, START + 60)
    new = found.begin(HUB04, START + 120)
    assert old
    assert new
    found.failed(HUB04, START + 121, REFUSED, old)
    assert found.next_due([HUB04], START + 121) == START + 180
    found.failed(HUB04, START + 122, REFUSED, new)
    assert found.unhealthy(START + 122)[0].failures == 3


def test_an_attempt_that_is_given_up_is_no_failure() -> None:
    found = selector()
    found.failed(HUB04, START, REFUSED)
    lease = found.begin(HUB04, START + 60)
    assert lease
    found.abandoned(HUB04, lease)
    (server,) = found.unhealthy(START + 60)
    assert (server.failures, server.retries, server.next_retry) == (1, 1, START + 120)


def test_all_unhealthy_the_next_due_time_is_that_of_the_first() -> None:
    found = selector()
    assert found.next_due(SITE_B, START) == START
    for second, each in enumerate(SITE_B):
        found.failed(each, START + second, REFUSED)
    assert found.filter(SITE_B, START + 10) == []
    assert found.next_due(SITE_B, START + 10) == START + MINUTE
    assert found.next_due([], START) is None


def test_health_is_that_of_address_and_port() -> None:
    found = selector()
    found.failed(HUB04, START, REFUSED)
    same_name = target("hub04", "10.0.0.44")
    other_port = target("hub04", port=2525)
    assert found.filter([HUB04, same_name, other_port], START) == [same_name, other_port]


def test_in_the_naive_mode_nothing_is_filtered_or_kept() -> None:
    found = selector(healthy_server_selector=False)
    assert found.failed(HUB04, START, REFUSED) is None
    assert found.filter(SITE_B, START) == SITE_B
    assert found.unhealthy(START) == []


def test_switching_to_the_naive_mode_forgets_the_list() -> None:
    found = selector()
    found.failed(HUB04, START, REFUSED)
    found.settings = replace(found.settings, healthy_server_selector=False)
    assert found.filter(SITE_B, START) == SITE_B
    found.settings = replace(found.settings, healthy_server_selector=True)
    assert found.filter(SITE_B, START) == SITE_B


def test_changed_settings_apply_to_servers_on_the_list() -> None:
    found = selector()
    found.failed(HUB04, START, REFUSED)
    found.settings = replace(found.settings, queue_glitch_retry_interval=10.0)
    assert found.next_due([HUB04], START) == START + 10
    found.settings = replace(found.settings, queue_glitch_retry_count=0)
    assert found.next_due([HUB04], START) == START + 5 * MINUTE
    found.settings = replace(found.settings, transient_failure_retry_count=0)
    assert found.next_due([HUB04], START) == START + 10 * MINUTE


@pytest.mark.parametrize("seconds", [0.0, -5.0])
def test_no_setting_makes_attempts_without_a_pause(seconds: float) -> None:
    found = selector(queue_glitch_retry_interval=seconds)
    found.failed(HUB04, START, REFUSED)
    assert found.begin(HUB04, START + 0.5) is None


def test_a_restart_keeps_the_list_and_where_each_server_is_in_the_schedule() -> None:
    before = selector()
    for now in (0, 60, 120):
        before.failed(HUB04, START + now, REFUSED, before.begin(HUB04, START + now) or 0)
    kept = msgspec.msgpack.encode(before.unhealthy(START + 121))
    after = selector()
    after.load(msgspec.msgpack.decode(kept, type=list[UnhealthyServer]))
    assert after.unhealthy(START + 121) == before.unhealthy(START + 121)
    assert after.filter(SITE_B, START + 179) == [HUB05, HUB06]
    assert after.filter(SITE_B, START + 180) == SITE_B


def test_an_operator_can_have_a_server_forgotten() -> None:
    found = selector()
    found.failed(HUB04, START, REFUSED)
    assert found.forget(HUB04.key)
    assert not found.forget(HUB04.key)
    assert found.begin(HUB04, START) == 0


def test_the_list_is_bounded_and_forgets_who_failed_longest_ago() -> None:
    found = HealthyServerSelector(TransportSettings(), limit=3)
    many = [replace(HUB04, ip=f"10.1.0.{number}") for number in range(5)]
    for each in many:
        found.failed(each, START, REFUSED)
    assert len(found) == 3
    assert found.filter(many, START) == many[:2]


@given(st.lists(st.one_of(st.floats(-1e6, 1e6), st.sampled_from([-86400.0, 86400.0, 30.0])), max_size=12))
def test_a_clock_that_is_set_never_silences_a_server_for_longer_than_the_longest_interval(steps: list[float]) -> None:
    """Whatever steps the clock made, from then on an attempt is let through within the interval it would take."""
    found = selector()
    now = START
    found.failed(HUB04, now, REFUSED)
    for step in steps:
        now += step
        lease = found.begin(HUB04, now)
        if lease:
            found.failed(HUB04, now, REFUSED, lease)
    due = found.next_due([HUB04], now)
    assert due is not None
    assert due <= now + 10 * MINUTE
    assert found.begin(HUB04, max(due, now))


def test_a_clock_set_back_while_an_attempt_is_under_way_keeps_others_away_no_longer_than_a_lease() -> None:
    found = selector(queue_glitch_retry_interval=1.0)
    found.failed(HUB04, START, REFUSED)
    assert found.begin(HUB04, START + 1)
    now = START - 86400.0
    assert found.begin(HUB04, now) is None
    assert found.begin(HUB04, now + 30 + LEASE_MARGIN)


def test_who_came_back_gets_one_two_four_connections_at_a_time_and_then_all() -> None:
    """Smtp-facts row 50: no storm on recovery."""
    found = selector()
    found.failed(HUB04, START, REFUSED)
    found.begin(HUB04, START + 60)
    now = START + 61
    found.succeeded(HUB04, now)
    rounds = []
    for _ in range(6):
        let = [found.begin(HUB04, now) for _ in range(1000)].count(0)
        rounds.append(let)
        for _ in range(let):
            found.succeeded(HUB04, now)
    assert rounds == [1, 2, 4, 8, 16, 1000]


def test_a_ramp_of_which_nothing_is_heard_ends_by_itself() -> None:
    found = selector()
    found.failed(HUB04, START, REFUSED)
    found.succeeded(HUB04, START + 1)
    assert found.begin(HUB04, START + 1) == 0
    assert found.begin(HUB04, START + 1) is None
    assert found.next_due([HUB04], START + 1) == START + 2
    assert found.begin(HUB04, START + 62) == 0


def test_an_operators_retry_makes_one_attempt_due_and_the_schedule_goes_on() -> None:
    found = selector()
    found.failed(HUB04, START, REFUSED)
    found.expedite([HUB04, HUB05], START + 1)
    lease = found.begin(HUB04, START + 1)
    assert lease
    found.expedite([HUB04], START + 1)
    assert found.begin(HUB04, START + 1) is None, "one is under way"
    found.failed(HUB04, START + 2, REFUSED, lease)
    assert found.next_due([HUB04], START + 2) == START + 1 + MINUTE
