"""When a service counts as down and as up again (SPEC B7, field case 105)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gatepost.balancing.health import MAX_REASON, PROBE, REQUESTS, WINDOW_SECONDS, Change, HealthBoard

EWS = ("CAS-01", "ews")
OWA = ("CAS-01", "owa")


def test_what_was_never_heard_of_is_healthy() -> None:
    assert HealthBoard().healthy(EWS, 0.0)


def test_two_failed_probes_in_a_row_take_a_service_down() -> None:
    board = HealthBoard()
    assert board.probed(EWS, False, 0.0, "no answer") is None
    assert board.healthy(EWS, 1.0)
    assert board.probed(EWS, False, 5.0, "no answer") == Change(EWS, up=False, reason="no answer", source=PROBE)
    assert not board.healthy(EWS, 5.0)
    assert board.probed(EWS, False, 10.0, "refused") is None
    assert board.down() == [EWS]


def test_a_good_probe_between_makes_two_failed_ones_harmless() -> None:
    board = HealthBoard()
    for now, ok in enumerate([False, True, False, True, False]):
        assert board.probed(EWS, ok, float(now)) is None
    assert board.healthy(EWS, 9.0)


def test_failures_of_two_clients_within_the_window_take_a_service_down() -> None:
    board = HealthBoard()
    assert board.failed(EWS, "192.0.2.1", 0.0, "refused") is None
    change = board.failed(EWS, "192.0.2.2", WINDOW_SECONDS, "cannot connect")
    assert change == Change(EWS, up=False, reason="cannot connect", source=REQUESTS)


def test_failures_of_two_clients_far_apart_do_not() -> None:
    board = HealthBoard()
    board.failed(EWS, "192.0.2.1", 0.0, "refused")
    assert board.failed(EWS, "192.0.2.2", WINDOW_SECONDS + 0.1, "refused") is None
    assert board.healthy(EWS, 20.0)


def test_a_success_between_makes_them_harmless() -> None:
    for success in (lambda board: board.connected(EWS, 1.0), lambda board: board.probed(EWS, True, 1.0)):
        board = HealthBoard()
        board.failed(EWS, "192.0.2.1", 0.0, "refused")
        success(board)
        assert board.failed(EWS, "192.0.2.2", 2.0, "refused") is None
        assert board.healthy(EWS, 2.0)


@given(st.lists(st.floats(0, 5), max_size=50))
def test_one_client_alone_never_marks_a_server_down(pauses: list[float]) -> None:
    """Field case 105; an IPv6 client has a whole /64 of addresses."""
    board = HealthBoard()
    now = 0.0
    for number, pause in enumerate(pauses):
        now += pause
        assert board.failed(EWS, f"2001:db8::{number:x}", now, "reset") is None
    assert board.healthy(EWS, now)


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.floats(0, 6), st.sampled_from(["failed", "connected"])),
        max_size=40,
    )
)
def test_the_passive_rule_is_the_one_stated(events: list[tuple[str, float, str]]) -> None:
    """Against a second statement of it that keeps every failure."""
    board = HealthBoard()
    failures: list[tuple[str, float]] = []
    up, now = True, 0.0
    for client, pause, kind in events:
        now += pause
        if kind == "connected":
            board.connected(EWS, now)
            failures, up = [], True
        else:
            board.failed(EWS, client, now, "refused")
            failures.append((client, now))
            if len({who for who, when in failures if now - when <= WINDOW_SECONDS}) >= 2:
                up = False
        assert board.healthy(EWS, now) is up


def test_one_good_probe_or_one_real_success_brings_it_back() -> None:
    for source, bring_back in (
        (PROBE, lambda board: board.probed(EWS, True, 9.0)),
        (REQUESTS, lambda board: board.connected(EWS, 9.0)),
    ):
        board = HealthBoard()
        board.probed(EWS, False, 0.0, "x")
        board.probed(EWS, False, 1.0, "x")
        assert bring_back(board) == Change(EWS, up=True, reason="", source=source)
        assert board.healthy(EWS, 9.0)
        assert board.probed(EWS, False, 10.0, "x") is None, "it begins anew"


def test_a_dead_service_of_a_living_server_goes_alone() -> None:
    """SPEC B7: health is that of the service, not of the address."""
    board = HealthBoard()
    board.probed(OWA, False, 0.0, "HTTP 503")
    board.probed(OWA, False, 1.0, "HTTP 503")
    assert not board.healthy(OWA, 2.0)
    assert board.healthy(EWS, 2.0)


def test_operators_see_state_since_reason_and_next_probe() -> None:
    board = HealthBoard()
    board.probed(OWA, True, 90.0)
    board.failed(EWS, "192.0.2.1", 95.0, "refused")
    board.failed(EWS, "192.0.2.2", 96.0, "r" * 1000)
    board.will_probe(EWS, 103.5)
    assert board.describe(100.0) == [
        {
            "server": "CAS-01", "service": "ews", "state": "down", "since": 4.0, "reason": "r" * MAX_REASON,
            "source": REQUESTS, "next_probe": 3.5,
        },
        {
            "server": "CAS-01", "service": "owa", "state": "up", "since": 10.0, "reason": "", "source": "",
            "next_probe": None,
        },
    ]  # fmt: skip


def test_memory_is_bounded_and_the_healthy_are_forgotten_first() -> None:
    board = HealthBoard(limit=10)
    board.probed(EWS, False, 0.0, "x")
    board.probed(EWS, False, 0.0, "x")
    for number in range(100):
        board.probed((f"MBX-{number}", "imap"), True, float(number))
    assert len(board) == 10
    assert board.down() == [EWS]
    for number in range(100):
        for _ in range(2):
            board.probed((f"CAS-{number}", "owa"), False, 200.0, "x")
    assert len(board) == 10


def test_what_leaves_the_organization_is_forgotten() -> None:
    board = HealthBoard()
    board.probed(EWS, False, 0.0, "x")
    board.probed(EWS, False, 0.0, "x")
    board.forget(EWS)
    assert board.healthy(EWS, 1.0)
    assert len(board) == 0
