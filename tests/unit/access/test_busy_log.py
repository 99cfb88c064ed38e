"""Lines of busy refusals: bounded for each address, and none uncounted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from structlog.testing import CapturingLogger

from gatepost.access import busy_log
from gatepost.access.busy_log import OTHERS, SECONDS, BusyLog


class Timers:
    """The loop's timers, rung by hand."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def call_later(self, delay: float, callback: Callable[..., None], *args: Any) -> None:
        assert delay == SECONDS
        self.waiting.append((callback, args))

    def ring(self) -> None:
        waiting, self.waiting = self.waiting, []
        for callback, args in waiting:
            callback(*args)


def make() -> tuple[BusyLog, Timers, Callable[[], list[tuple[str, int]]]]:
    timers, capture = Timers(), CapturingLogger()
    log = BusyLog(capture, "imap.refused", cast(asyncio.AbstractEventLoop, timers))

    def lines() -> list[tuple[str, int]]:
        assert all(call.method_name == "warning" and call.args == ("imap.refused",) for call in capture.calls)
        return [(call.kwargs["client"], call.kwargs["count"]) for call in capture.calls]

    return log, timers, lines


def test_an_address_causes_one_line_a_second() -> None:
    """The first at once, then what came meanwhile as a number; an address that stops is forgotten."""
    log, timers, lines = make()
    for _ in range(1000):
        log.refused("192.0.2.1", reason="full")
    log.refused("192.0.2.2", reason="full")
    assert lines() == [("192.0.2.1", 1), ("192.0.2.2", 1)]
    timers.ring()
    assert lines()[2:] == [("192.0.2.1", 999)]
    log.refused("192.0.2.1", reason="full")
    assert len(lines()) == 3
    timers.ring()
    assert lines()[3:] == [("192.0.2.1", 1)]
    timers.ring()
    assert timers.waiting == []
    assert log._counts == {}
    assert len(lines()) == 4


def test_many_addresses_share_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy_log, "MAX_ADDRESSES", 3)
    log, timers, lines = make()
    for n in range(10):
        log.refused(f"192.0.2.{n}", reason="full")
    assert [client for client, _ in lines()] == ["192.0.2.0", "192.0.2.1", "192.0.2.2", OTHERS]
    timers.ring()
    assert lines()[4:] == [(OTHERS, 6)]
    assert sum(count for _, count in lines()) == 10


def test_each_reason_of_an_address_has_lines_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a flood of one hides no other; their number is bounded, whatever reasons there are."""
    monkeypatch.setattr(busy_log, "MAX_ADDRESSES", 3)
    log, timers, lines = make()
    for _ in range(5):
        log.refused_for("192.0.2.1", "no assertion")
        log.refused_for("192.0.2.1", "expired")
    assert lines() == [("192.0.2.1", 1), ("192.0.2.1", 1)]
    for n in range(20):
        log.refused_for("192.0.2.2", f"reason {n}")
    assert len(log._counts) == 4
    assert lines()[2:] == [("192.0.2.2", 1), (OTHERS, 1)]
    timers.ring()
    assert lines()[4:] == [("192.0.2.1", 4), ("192.0.2.1", 4), (OTHERS, 18)]


def test_what_is_no_warning_is_written_as_it_is_called() -> None:
    timers, capture = Timers(), CapturingLogger()
    loop = cast(asyncio.AbstractEventLoop, timers)
    log = BusyLog(capture, "imap.session", loop, level="info", further="further ones")
    for _ in range(3):
        log.refused("192.0.2.1", reason="client closed")
    timers.ring()
    lines = [(call.method_name, call.kwargs["reason"], call.kwargs["count"]) for call in capture.calls]
    assert lines == [("info", "client closed", 1), ("info", "further ones", 2)]
