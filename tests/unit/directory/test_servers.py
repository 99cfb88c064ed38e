"""Whom to ask first, and for how long a server that failed is left alone."""

from __future__ import annotations

from gatepost.directory.servers import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Servers


def test_all_that_are_up_are_asked_in_their_order() -> None:
    assert Servers(["a", "b"]).take(0.0) == ["a", "b"]


def test_one_that_failed_is_passed_over_and_tried_beside() -> None:
    servers = Servers(["a", "b"])
    servers.failed("a", 0.0, "refused")
    assert servers.take(0.1) == ["b"]
    assert servers.probe(0.1) is None
    assert servers.probe(FIRST_PAUSE_SECONDS) == "a"
    assert servers.probe(FIRST_PAUSE_SECONDS) is None, "one question tries it"
    assert servers.worked("a")
    assert not servers.worked("a")
    assert servers.take(2.0) == ["a", "b"]


def test_with_all_down_nobody_waits_and_one_question_tries_when_it_is_due() -> None:
    servers = Servers(["a"])
    servers.failed("a", 0.0, "refused")
    assert servers.take(0.5) == []
    assert servers.take(1.0) == ["a"]
    assert servers.take(1.0) == []
    assert servers.reasons() == "a: refused"


def test_pauses_double_up_to_the_longest() -> None:
    servers = Servers(["a"])
    now, pauses = 0.0, []
    servers.failed("a", now, "refused")
    for _ in range(8):
        began = now
        while not servers.take(now):
            now += 0.5
        servers.failed("a", now, "refused")
        pauses.append(now - began)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, *[LONGEST_PAUSE_SECONDS] * 3]


def test_questions_that_fail_together_count_once() -> None:
    servers = Servers(["a"])
    for _ in range(50):
        servers.failed("a", 0.0, "refused")
    assert servers.take(FIRST_PAUSE_SECONDS) == ["a"]
