"""The judge of a move under load, on made-up histories: each goal can be missed, and each fault is found."""

from __future__ import annotations

import asyncio
import math
import socket
from collections import Counter
from dataclasses import replace

import pytest

from gatepost.proving.history import (
    Client,
    Event,
    History,
    Kind,
    Moved,
    What,
    evaluate,
    judge_messages,
    missed_goals,
    percentile,
    summary,
)
from gatepost.proving.machine import connections_at
from gatepost.proving.plan import shares, users

A, B = "MBX-04", "MBX-05"
MOVE = Moved("DB04", A, B, active_at=100.0, fenced_at=103.0)
IDLE = Client("idle", Kind.IMAP_IDLE, "u@contoso.com", "DB04")
BUSY = Client("busy", Kind.IMAP_BUSY, "u@contoso.com", "DB04")
POP = Client("pop", Kind.POP3, "u@contoso.com", "DB04")
SENDER = Client("sender", Kind.SUBMISSION, "u@contoso.com", "DB04")


def event(client: Client, at: float, what: What, connection: int = 1, server: str = "", detail: str = "") -> Event:
    return Event(at, client.name, what.value, connection, server, detail, asked=at - 0.1)


def good(client: Client = IDLE) -> list[Event]:
    """One that is carried over half a second after the move."""
    return [
        event(client, 90.0, What.SIGNED_IN),
        event(client, 90.1, What.OK, server=A),
        event(client, 100.5, What.OK, server=B),
    ]


def history(*events: Event, clients: tuple[Client, ...] = (IDLE,), move: Moved = MOVE) -> History:
    return History(clients, events, [move])


def test_a_good_history_keeps_all_goals() -> None:
    report = evaluate(history(*good()))
    found = report["protocols"]["imap_idle"]
    assert (found["p50"], found["p99"], found["carried_share"], found["never_back"]) == (0.5, 0.5, 1.0, 0)
    assert missed_goals(report, kill=False) == []
    assert summary(report, [], kill=False).endswith("100.0% of idle IMAP carried over unseen; all goals kept")


def test_nothing_that_happened_is_no_success() -> None:
    """No client at work before the move: nothing was shown."""
    report = evaluate(history(event(IDLE, 100.5, What.OK, server=B)))
    assert missed_goals(report, kill=False) == ["no session was at work before the move"]


def test_a_protocol_that_never_worked_is_no_success() -> None:
    report = evaluate(history(*good(), clients=(IDLE, POP)))
    assert missed_goals(report, kill=False) == ["pop3: no session was at work before the move"]


def test_one_who_never_comes_back_misses_the_goal() -> None:
    """However good the others' times are: there is no time of this one that could spoil them."""
    report = evaluate(history(*good()[:2]))
    assert missed_goals(report, kill=False)[0] == "imap_idle: 1 never at work again"


def test_a_success_at_the_old_server_does_not_count() -> None:
    """It still answers within the window: at work is who works at the new one."""
    events = [*good()[:2], event(IDLE, 100.2, What.OK, server=A), event(IDLE, 101.5, What.OK, server=B)]
    assert evaluate(history(*events))["protocols"]["imap_idle"]["p99"] == 1.5


def test_who_signs_in_again_was_not_carried_over() -> None:
    events = [*good()[:2], event(IDLE, 100.3, What.ENDED), event(IDLE, 100.6, What.OK, 2, B)]
    report = evaluate(history(*events))
    assert report["protocols"]["imap_idle"]["carried_share"] == 0.0
    assert missed_goals(report, kill=False) == ["0.0% of idle IMAP sessions carried over, not 95%"]


def test_a_late_session_misses_the_time() -> None:
    events = [*good()[:2], event(IDLE, 102.0, What.OK, server=B)]
    assert missed_goals(evaluate(history(*events)), kill=False) == ["imap_idle: p99 2 s, not under 2 s"]


def test_where_the_protocol_does_not_tell_the_server_a_new_connection_counts() -> None:
    """POP3: a success on the connection from before the move proves nothing."""
    events = [
        event(POP, 90.0, What.SIGNED_IN),
        event(POP, 90.1, What.OK),
        event(POP, 100.1, What.OK),
        event(POP, 100.9, What.SIGNED_IN, 2),
        event(POP, 101.0, What.OK, 2),
    ]
    assert evaluate(history(*events, clients=(POP,)))["protocols"]["pop3"]["p99"] == 1.0


@pytest.mark.parametrize("detail", ["NO [AUTHENTICATIONFAILED]", "NO [NONEXISTENT]", "HTTP 401"])
def test_an_error_of_a_wrong_kind_is_counted(detail: str) -> None:
    report = evaluate(history(*good(), event(IDLE, 100.2, What.WRONG, detail=detail)))
    assert report["wrong_kind_errors"] == 1
    assert report["wrong"] == {detail: 1}
    assert missed_goals(report, kill=False) == ["1 errors of a wrong kind"]


def test_being_told_to_come_back_later_is_no_wrong_error() -> None:
    report = evaluate(history(*good(), event(IDLE, 100.2, What.REFUSED)))
    assert (report["wrong_kind_errors"], report["protocols"]["imap_idle"]["refused"]) == (0, 1)


def test_acknowledged_messages_are_there_once() -> None:
    """Lost and doubled ones are errors; one without an answer may be there or not, but not twice."""
    events = [event(BUSY, 99.0, What.ACKNOWLEDGED, detail=f"<{name}>") for name in ("there", "lost", "twice")]
    events += [event(BUSY, 99.5, What.IN_DOUBT, detail=f"<{name}>") for name in ("gone", "stored", "doubled")]
    stored = {"u@contoso.com": Counter({"<there>": 1, "<twice>": 2, "<stored>": 1, "<doubled>": 2})}
    found = replace(history(*events, *good(), clients=(IDLE, BUSY)), stored=stored)
    expected = {"acknowledged": 3, "in_doubt": 3, "in_doubt_stored": 2, "lost": 1, "duplicate": 2}
    assert judge_messages(found, Kind.IMAP_BUSY, stored) == expected
    assert evaluate(found)["wrong_kind_errors"] == 3


def test_a_message_in_another_users_mailbox_is_lost() -> None:
    events = [event(BUSY, 99.0, What.ACKNOWLEDGED, detail="<a>")]
    stored = {"other@contoso.com": Counter({"<a>": 1})}
    assert judge_messages(history(*events, clients=(BUSY,)), Kind.IMAP_BUSY, stored)["lost"] == 1


def test_submissions_are_looked_for_at_the_relay() -> None:
    """Not in the mailbox; and what was stored by IMAP is not looked for there."""
    events = [event(SENDER, 99.0, What.ACKNOWLEDGED, detail=f"<{name}>") for name in ("there", "stored", "twice")]
    events += [event(SENDER, 99.5, What.IN_DOUBT, detail="<doubt>"), event(BUSY, 99.6, What.ACKNOWLEDGED, detail="<b>")]
    user = "u@contoso.com"
    found = replace(
        history(*events, *good(), clients=(IDLE, BUSY, SENDER)),
        stored={user: Counter({"<stored>": 1, "<b>": 1})},
        relayed={user: Counter({"<there>": 1, "<twice>": 2, "<doubt>": 1})},
    )
    report = evaluate(found)
    expected = {"acknowledged": 3, "in_doubt": 1, "in_doubt_stored": 1, "lost": 1, "duplicate": 1}
    assert report["submissions"] == expected
    assert (report["appends"]["acknowledged"], report["appends"]["lost"]) == (1, 0)
    assert report["wrong_kind_errors"] == 2


def test_submission_has_the_goals_of_the_others() -> None:
    """Ended by 421 and at the new server in time is well; late is not, nor is a time at the old one."""
    events = [
        event(SENDER, 90.0, What.SIGNED_IN),
        event(SENDER, 90.1, What.OK, server=A),
        event(SENDER, 100.2, What.OK, server=A),
        event(SENDER, 100.4, What.ENDED, detail="421 4.3.2 moved"),
        event(SENDER, 100.8, What.OK, 2, B),
    ]
    found = evaluate(history(*good(), *events, clients=(IDLE, SENDER)))
    assert missed_goals(found, kill=False) == []
    figures = found["protocols"]["submission"]
    assert (figures["p99"], figures["ended"], figures["carried_share"]) == (0.8, 1, 0.0)
    late = evaluate(history(*good(), *events[:-1], event(SENDER, 102.5, What.OK, 2, B), clients=(IDLE, SENDER)))
    assert missed_goals(late, kill=False) == ["submission: p99 2.5 s, not under 2 s"]


def test_an_answer_of_the_old_server_after_the_fence_is_found() -> None:
    """A client's own word, whatever the front ends list."""
    report = evaluate(history(*good(), event(IDLE, 104.0, What.OK, server=A)))
    assert (report["left_on_old"], report["left"]["answered_late"]) == (1, ["idle"])


def test_an_answer_after_the_database_has_moved_back_is_no_leftover() -> None:
    back = Moved("DB04", B, A, active_at=103.5, fenced_at=105.0)
    found = replace(history(*good(), event(IDLE, 104.0, What.OK, server=A)), moves=[MOVE, back])
    assert evaluate(found)["left_on_old"] == 0


@pytest.mark.parametrize(("listed", "connected", "left"), [(0, 0, 0), (2, 0, 2), (0, 3, 3), (2, 3, 3)])
def test_whoever_sees_somebody_left_is_believed(listed: int, connected: int, left: int) -> None:
    found = replace(history(*good(), move=replace(MOVE, listed_left=listed)), connected_left=connected)
    report = evaluate(found)
    assert report["left_on_old"] == left
    assert bool(missed_goals(report, kill=False)) == bool(left)


@pytest.mark.parametrize(("killed_at", "missed"), [(98.0, []), (96.0, ["detection took 4.0 s, over 3 s"])])
def test_a_slow_detection_misses_its_goal(killed_at: float, missed: list[str]) -> None:
    """Nobody can be carried over from a dead server: that goal is the planned move's alone."""
    events = [*good()[:2], event(IDLE, 98.1, What.ENDED), event(IDLE, 100.4, What.OK, 2, B)]
    report = evaluate(history(*events, move=replace(MOVE, killed_at=killed_at, fenced_at=math.inf)))
    assert report["detection_seconds"] == 100.0 - killed_at
    assert missed_goals(report, kill=True) == missed


def test_sessions_of_other_databases_are_not_concerned() -> None:
    other = Client("other", Kind.IMAP_IDLE, "v@contoso.com", "DB05")
    report = evaluate(history(*good(), event(other, 90.0, What.OK, server=A), clients=(IDLE, other)))
    assert (report["protocols"]["imap_idle"]["sessions"], report["protocols"]["imap_idle"]["concerned"]) == (2, 1)


def test_the_peak_of_sign_ins_is_that_of_one_second() -> None:
    found = replace(history(*good()), sign_ins={B: [5.0, 5.0, 6.0, 6.0, 6.0, 9.0]})
    assert evaluate(found)["peak_sign_ins_per_second"] == 3


@pytest.mark.parametrize(("share", "expected"), [(0.5, 5), (0.99, 10), (1.0, 10), (0.01, 1)])
def test_a_percentile_is_one_of_the_values(share: float, expected: int) -> None:
    assert percentile([*range(10, 0, -1)], share) == expected
    assert percentile([], share) is None


async def test_the_kernels_table_tells_who_is_connected() -> None:
    """Of a real connection, while it is there."""
    from gatepost.proving.machine import tcp_table

    server = await asyncio.start_server(lambda _r, w: None, "127.0.9.7", 0)
    port = server.sockets[0].getsockname()[1]
    with socket.create_connection(("127.0.9.7", port)):
        assert len(connections_at("127.0.9.7", {port}, tcp_table())) == 1
        assert connections_at("127.0.9.7", {port + 1}, tcp_table()) == set()
        assert connections_at("127.0.9.8", {port}, tcp_table()) == set()
    server.close()


def test_each_protocol_has_as_many_clients_as_were_asked_for() -> None:
    found = shares(11, submission=True)
    assert found[Kind.IMAP_IDLE] + found[Kind.IMAP_BUSY] == 11
    assert found[Kind.HTTP] + found[Kind.HTTP_POLL] == 11
    assert (found[Kind.POP3], found[Kind.SUBMISSION]) == (11, 11)
    assert shares(11, submission=False) == found | {Kind.SUBMISSION: 0}
    assert {user.database for user in users(2)} == {"DB04", "DB05"}
