"""The tour's own workings: a step that differs or breaks fails, the others are still taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from gatepost.lab import figure
from gatepost.lab.fleet import Fleet
from gatepost.lab.tour import Step, Visit, expect, nothing_left, summary, take


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """One that is never started."""
    ports = figure.choose_ports(root=True, can=lambda _address, _port: True)
    return Fleet(tmp_path, ports, builtin=True)


def refused(_visit: Visit) -> str:
    """A step whose connection is refused."""
    raise ConnectionRefusedError("nobody there")


def test_a_step_that_differs_fails_and_the_next_is_taken(fleet: Fleet) -> None:
    """Three steps, of which one differs and one breaks: two fail, and the summary says so."""
    said: list[str] = []
    steps = [
        Step("differs", "one", lambda _: expect("two", False)),
        Step("breaks", "a connection", refused),
        Step("is right", "one", lambda _: expect("one", True)),
    ]
    results = take(fleet, steps, said.append)
    assert [(r.title, r.ok, r.came) for r in results] == [
        ("differs", False, "two"),
        ("breaks", False, "ConnectionRefusedError: nobody there"),
        ("is right", True, "one"),
    ]
    report = summary(results, 1.234, "built-in")
    assert (report["ok"], report["seconds"], len(report["steps"])) == (False, 1.23, 3)
    assert sum("FAILED" in text for text in said) == 2


def test_a_fault_of_the_tour_itself_is_not_hidden(fleet: Fleet) -> None:
    """Only faults that a step may meet make it fail."""
    step = Step("a bug", "nothing", lambda _: str(1 / 0))
    with pytest.raises(ZeroDivisionError):
        take(fleet, [step], lambda _: None)


def test_no_steps_are_no_success() -> None:
    """A tour that took no step has shown nothing."""
    assert summary([], 0.0, "built-in")["ok"] is False


def test_the_end_is_right_when_nothing_was_started(fleet: Fleet) -> None:
    """No process, no open port."""
    assert nothing_left(fleet, lambda _: None).ok
