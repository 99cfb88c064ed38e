"""The third source (SMTP failover and load balancing in transport, 2010 SP1): its figure and its sentences, on a
simulated clock. Two sites of three hubs each; a message takes a connection of its own."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from transport_samples import MINUTE, REFUSED, START, target

from gatepost.balancing.enhanced_dns import Rotation
from gatepost.balancing.healthy_server_selector import HealthyServerSelector
from gatepost.balancing.retry_schedule import TransportRole, default_settings
from gatepost.balancing.target import Target
from gatepost.organization.transport import TransportSettings

HUB01, HUB02, HUB03, HUB04, HUB05, HUB06 = (target(f"hub0{number}") for number in range(1, 7))
SITE_A = [HUB01, HUB02, HUB03]
SITE_B = [HUB04, HUB05, HUB06]
RTM = TransportSettings(healthy_server_selector=False)
SP1 = TransportSettings()
MESSAGES = 3000


class Hub:
    """One hub that sends: a list of its own, and a rotation for its queue to a next hop."""

    def __init__(self, settings: TransportSettings, next_hop: list[Target], seed: int = 1) -> None:
        self.selector = HealthyServerSelector(settings)
        self.rotation = Rotation(self.selector, Random(seed).random)
        self.next_hop = next_hop
        self.now = START
        self.down: set[Target] = set()
        self.attempts: Counter[str] = Counter()
        self.load: Counter[str] = Counter()
        """Messages taken, by the short name of the hub that took them."""

    def send(self, messages: int = 1) -> int:
        """How many found a server that took them, at this moment."""
        before = self.load.total()
        for _ in range(messages):
            turn = self.rotation.turn(self.next_hop)
            while (attempt := turn.next(self.now)) is not None:
                name = attempt.target.host.partition(".")[0]
                self.attempts[name] += 1
                if attempt.target not in self.down:
                    self.selector.succeeded(attempt.target, self.now)
                    self.load[name] += 1
                    break
                self.selector.failed(attempt.target, self.now, REFUSED, attempt.lease, self.now)
                turn.returned(attempt)
        return self.load.total() - before

    def heartbeat(self, to: Target) -> bool:
        if to in self.down:
            self.selector.failed(to, self.now, REFUSED)
            return False
        self.selector.succeeded(to, self.now)
        return True


@pytest.mark.parametrize("settings", [RTM, SP1])
def test_connections_to_a_next_hop_with_several_targets_are_shared_evenly(settings: TransportSettings) -> None:
    hub02 = Hub(settings, SITE_B)
    assert hub02.send(MESSAGES) == MESSAGES
    assert hub02.load == {"hub04": 1000, "hub05": 1000, "hub06": 1000}


@pytest.mark.parametrize("settings", [RTM, SP1])
def test_likewise_from_site_b_to_site_a_and_by_way_of_it_to_the_internet(settings: TransportSettings) -> None:
    """Site A has the subscribed edge, so its hubs are the targets of both next hops; each queue has its own turns."""
    for seed in (1, 2):
        hub05 = Hub(settings, SITE_A, seed)
        hub05.send(MESSAGES)
        assert hub05.load == {"hub01": 1000, "hub02": 1000, "hub03": 1000}


def test_rtm_knows_nothing_of_hub04_so_a_third_of_the_connections_goes_there_in_vain() -> None:
    hub02 = Hub(RTM, SITE_B)
    hub02.down = {HUB04}
    assert hub02.send(MESSAGES) == MESSAGES
    assert hub02.attempts["hub04"] == MESSAGES / 3
    assert hub02.selector.unhealthy(START) == []


def test_rtm_those_fail_over_to_the_next_one_which_carries_twice_as_much() -> None:
    hub02 = Hub(RTM, SITE_B)
    hub02.down = {HUB04}
    hub02.send(MESSAGES)
    assert hub02.load == {"hub05": 2000, "hub06": 1000}


def test_rtm_all_hubs_of_site_a_together_are_as_uneven() -> None:
    total: Counter[str] = Counter()
    for seed in range(3):
        hub = Hub(RTM, SITE_B, seed)
        hub.down = {HUB04}
        hub.send(MESSAGES)
        total += hub.load
    assert total == {"hub05": 6000, "hub06": 3000}


@pytest.mark.parametrize("targets", [SITE_B, [HUB01, HUB03]], ids=["another site", "source servers of a connector"])
def test_sp1_is_even_for_every_next_hop_of_several_targets(targets: list[Target]) -> None:
    hub = Hub(SP1, targets)
    hub.down = {targets[0]}
    hub.send(MESSAGES)
    loads = [hub.load[each.host.partition(".")[0]] for each in targets[1:]]
    assert sum(loads) == MESSAGES
    assert max(loads) - min(loads) <= 1


def test_sp1_hub04_is_taken_off_the_list_of_targets_and_the_other_two_share_exactly_evenly() -> None:
    hub02 = Hub(SP1, SITE_B)
    hub02.down = {HUB04}
    assert hub02.send(MESSAGES) == MESSAGES
    assert hub02.selector.filter(SITE_B, START) == [HUB05, HUB06]
    assert hub02.load == {"hub05": 1500, "hub06": 1500}
    assert hub02.attempts["hub04"] == 1


def test_sp1_it_stays_even_over_hours_with_all_the_attempts_that_are_due() -> None:
    hub02 = Hub(SP1, SITE_B)
    hub02.down = {HUB04}
    for _ in range(180):
        hub02.send(17)
        hub02.now += MINUTE
    assert abs(hub02.load["hub05"] - hub02.load["hub06"]) <= 1
    assert hub02.attempts["hub04"] == len([0, 1, 2, 3, 4, 9, 14, 19, 24, 29, 34, *range(44, 180, 10)])


def test_sp1_hub04_is_back_one_attempt_then_its_share() -> None:
    hub02 = Hub(SP1, SITE_B)
    hub02.down = {HUB04}
    hub02.send(MESSAGES)
    hub02.down = set()
    hub02.now = START + MINUTE - 1
    hub02.send(300)
    assert hub02.attempts["hub04"] == 1, "not before its time"
    hub02.now = START + MINUTE
    hub02.load.clear()
    hub02.send(1)
    assert hub02.load == {"hub04": 1}
    hub02.send(MESSAGES)
    assert max(hub02.load.values()) - min(hub02.load.values()) <= 2
    assert hub02.load["hub04"] in {1000, 1001}


def test_mail_from_a_mailbox_server_of_the_site_never_goes_to_a_hub_that_is_known_to_be_down() -> None:
    """SPEC T11: the submission side has the same selector."""
    mailbox_server = Hub(SP1, SITE_B)
    mailbox_server.down = {HUB04}
    mailbox_server.send(3)
    mailbox_server.attempts.clear()
    mailbox_server.load.clear()
    mailbox_server.now += 30
    mailbox_server.send(MESSAGES)
    assert "hub04" not in mailbox_server.attempts
    assert mailbox_server.load == {"hub05": 1500, "hub06": 1500}


def test_an_unhealthy_server_is_one_where_an_attempt_returned_any_socket_error() -> None:
    for error in ("ConnectionRefused:0000274D", "TimedOut:0000274C", "HostUnreachable:00002751", "EPROTO:00000047"):
        found = HealthyServerSelector(SP1)
        found.failed(HUB04, START, error)
        assert not found.healthy(HUB04)


def test_for_each_it_keeps_the_address_the_retry_count_and_the_last_retry_time() -> None:
    hub02 = Hub(SP1, SITE_B)
    hub02.down = {HUB04}
    for _ in range(3):
        hub02.send(10)
        hub02.now += MINUTE
    (server,) = hub02.selector.unhealthy(hub02.now)
    assert (server.address, server.retries, server.last_retry) == ("10.0.0.4", 2, START + 2 * MINUTE)


def attempted(role: TransportRole, minutes: int) -> list[int]:
    """In which minutes Hub04 is attempted, mail for it alone waiting all the time."""
    hub = Hub(default_settings(role), [HUB04])
    hub.down = {HUB04}
    found = []
    for minute in range(minutes + 1):
        before = hub.attempts["hub04"]
        for second in range(0, 60, 10):
            hub.now = START + minute * MINUTE + second
            hub.send(3)
        found += [minute] * (hub.attempts["hub04"] - before)
    return found


def test_first_every_minute_four_times() -> None:
    """QueueGlitchRetryInterval and QueueGlitchRetryCount."""
    assert attempted(TransportRole.HUB, 8) == attempted(TransportRole.EDGE, 8) == [0, 1, 2, 3, 4]


def test_after_the_first_four_minutes_every_five_minutes_six_times() -> None:
    """TransientFailureRetryInterval and TransientFailureRetryCount."""
    assert attempted(TransportRole.HUB, 43)[5:] == [9, 14, 19, 24, 29, 34]


def test_on_an_edge_every_ten_minutes_six_times() -> None:
    assert attempted(TransportRole.EDGE, 93)[5:] == [14, 24, 34, 44, 54, 64]


def test_after_the_first_34_minutes_every_ten_minutes_and_on_an_edge_every_thirty() -> None:
    """OutboundConnectionFailureRetryInterval."""
    assert attempted(TransportRole.HUB, 100)[11:] == [44, 54, 64, 74, 84, 94]
    assert attempted(TransportRole.EDGE, 200)[11:] == [94, 124, 154, 184]


def test_when_the_time_has_come_only_one_attempt_is_allowed() -> None:
    hub02 = Hub(SP1, SITE_B)
    hub02.down = {HUB04}
    hub02.send(MESSAGES)
    hub02.now += MINUTE
    hub02.send(MESSAGES)
    assert hub02.attempts["hub04"] == 2


def test_when_it_succeeds_the_server_is_removed_from_the_list_then() -> None:
    hub02 = Hub(SP1, SITE_B)
    hub02.down = {HUB04}
    hub02.send(10)
    hub02.down = set()
    hub02.now += MINUTE
    hub02.send(1)
    assert hub02.selector.unhealthy(hub02.now) == []


def test_the_filter_does_not_keep_shadow_redundancys_heartbeats_from_connecting() -> None:
    hub02 = Hub(SP1, SITE_B)
    hub02.down = {HUB04}
    hub02.send(10)
    assert [hub02.heartbeat(HUB04) for _ in range(5)] == [False] * 5
    assert hub02.selector.filter(SITE_B, hub02.now) == [HUB05, HUB06]


def test_a_heartbeat_that_connects_removes_the_server_from_the_list_at_once() -> None:
    hub02 = Hub(SP1, SITE_B)
    hub02.down = {HUB04}
    hub02.send(10)
    hub02.down = set()
    hub02.now += 5
    assert hub02.heartbeat(HUB04)
    assert hub02.selector.filter(SITE_B, hub02.now) == SITE_B


def test_all_down_the_queue_waits_and_nothing_is_lost() -> None:
    """SPEC T8."""
    hub02 = Hub(SP1, SITE_B)
    hub02.down = set(SITE_B)
    assert hub02.send(MESSAGES) == 0
    assert hub02.attempts == {"hub04": 1, "hub05": 1, "hub06": 1}
    due = hub02.selector.next_due(SITE_B, hub02.now)
    assert due == START + MINUTE
    hub02.down = set()
    hub02.now = due
    assert hub02.send(MESSAGES) == MESSAGES


def test_edges_with_equal_mx_preference_share_what_comes_from_the_internet() -> None:
    edges = [target(f"edge0{number}", preference=10) for number in (1, 2)]
    sender = Hub(SP1, edges)
    sender.send(MESSAGES)
    assert sender.load == {"edge01": 1500, "edge02": 1500}
