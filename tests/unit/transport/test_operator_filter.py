"""Filters of operators, and rates over a minute (exchange-facts 4.6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.transport.operator_filter import MESSAGE_PROPERTIES, QUEUE_PROPERTIES, Filter, shown_time
from gatepost.transport.queues.rate import Rate

ENTRY = {"status": "Retry", "messages": 12, "last_error": "007", "next_retry": 1_000_000_000.0, "velocity": -0.5}


@pytest.mark.parametrize(
    ("condition", "fits"),
    [
        (("status", "eq", "RETRY"), True),
        (("Status", "ne", "retry"), False),
        (("MessageCount", "eq", "12"), True),
        (("MessageCount", "ne", "12"), False),
        (("MessageCount", "gt", "12"), False),
        (("MessageCount", "ge", "12"), True),
        (("MessageCount", "lt", "12"), False),
        (("MessageCount", "le", "12"), True),
        (("MessageCount", "like", "1*"), True),
        (("Velocity", "lt", "0"), True),
        (("LastError", "eq", "7"), False),
        (("LastError", "eq", "007"), True),
        (("LastError", "like", "0?7"), True),
        (("LastError", "like", "[0]07"), False),
        (("LastError", "like", "*8"), False),
        (("NextRetryTime", "lt", "2020-01-01"), True),
        (("NextRetryTime", "gt", "2020-01-01 10:00"), False),
        (("NextHopConnector", "eq", None), False),
    ],
)
def test_one_condition(condition: tuple[str, str, object], fits: bool) -> None:
    assert Filter([condition], QUEUE_PROPERTIES)(ENTRY) is fits


def test_all_conditions_must_fit() -> None:
    assert Filter([], QUEUE_PROPERTIES)(ENTRY)
    assert not Filter([("Status", "eq", "Retry"), ("MessageCount", "gt", "20")], QUEUE_PROPERTIES)(ENTRY)


def test_of_a_list_one_fitting_part_is_enough() -> None:
    entry = {"addresses": ["a@x.example", "b@y.example"]}
    assert Filter([("Recipients", "like", "B@*")], MESSAGE_PROPERTIES)(entry)
    assert not Filter([("Recipients", "eq", "c@x.example")], MESSAGE_PROPERTIES)(entry)


def test_what_needs_the_envelope_is_not_asked_without_it() -> None:
    """A million messages are looked through by their status without a read."""
    made = Filter([("Status", "eq", "Retry"), ("FromAddress", "eq", "a@x.example")], MESSAGE_PROPERTIES)
    assert made.quick({"status": "Retry"})
    assert not made.quick({"status": "Active"})


@pytest.mark.parametrize(
    "conditions",
    [
        [("Colour", "eq", "1")],
        [("Status", "match", "1")],
        [("Status", "gt", "1")],
        [("MessageCount", "gt", "many")],
        [("NextRetryTime", "gt", "soon")],
        [("Status", "eq", "x" * 1001)],
        [("Status", "eq", "x")] * 21,
    ],
)
def test_what_means_nothing_is_refused(conditions: list[tuple[str, str, str]]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Filter(conditions, QUEUE_PROPERTIES)


def test_no_time_is_shown_as_none() -> None:
    assert (shown_time(0.0), shown_time(float("inf"))) == ("", "")


def test_a_rate_is_averaged_over_the_last_minute() -> None:
    rate = Rate()
    assert rate.a_second(1000.0) == 0.0
    for second in range(30):
        rate.count(1000.0 + second)
        rate.count(1000.0 + second)
    assert rate.a_second(1030.0) == 1.0
    assert rate.a_second(1075.0) == pytest.approx(0.5, abs=0.2)
    assert rate.a_second(1095.0) == 0.0


def test_a_clock_that_is_set_back_begins_anew() -> None:
    rate = Rate()
    rate.count(1000.0)
    rate.count(500.0)
    assert rate.a_second(500.0) == pytest.approx(1 / 60)


@given(st.lists(st.floats(0, 300), max_size=60))
def test_a_rate_against_a_second_reading(moments: list[float]) -> None:
    """Whole slots of five seconds: what is between 55 and 60 seconds old may count or not."""
    rate, now = Rate(), 300.0
    for moment in sorted(moments):
        rate.count(moment)
    counted = rate.a_second(now) * 60
    assert sum(moment >= now - 55 for moment in moments) - 1e-6 <= counted
    assert counted <= sum(moment >= now - 60 for moment in moments) + 1e-6
