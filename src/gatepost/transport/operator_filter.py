"""Which queues and messages operators mean: comparisons of properties, all of which must fit (exchange-facts 4.6).

A condition is `(property, operator, value)`, with the source system's names of properties and operators without their
dash: `("MessageCount", "gt", "10")`. Neither names nor values mind case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import translate
from functools import lru_cache
from typing import Any

from gatepost.organization.transport_text import read_size

MAX_CONDITIONS = 20
MAX_VALUE = 1000
"""Characters of a value."""
OPERATORS = ("eq", "ne", "gt", "ge", "lt", "le", "like")

QUEUE_PROPERTIES = {
    "Identity": "identity",
    "DeliveryType": "delivery_type",
    "NextHopCategory": "category",
    "NextHopDomain": "next_hop_domain",
    "NextHopConnector": "next_hop_connector",
    "Status": "status",
    "MessageCount": "messages",
    "DeferredMessageCount": "deferred",
    "LastError": "last_error",
    "LastRetryTime": "last_retry",
    "NextRetryTime": "next_retry",
    "RetryCount": "retry_count",
    "IncomingRate": "incoming_rate",
    "OutgoingRate": "outgoing_rate",
    "Velocity": "velocity",
}
"""The source system's names, and ours in an answer."""
MESSAGE_PROPERTIES = {
    "Identity": "number",
    "Queue": "queue",
    "NextHopDomain": "next_hop_domain",
    "Status": "status",
    "Size": "size",
    "RetryCount": "attempts",
    "FromAddress": "from",
    "Subject": "subject",
    "InternetMessageId": "message_id",
    "DateReceived": "received",
    "ExpirationTime": "expires",
    "SourceIP": "source",
    "Recipients": "addresses",
    "LastError": "last_error",
}
TIMES = frozenset({"last_retry", "next_retry", "received", "expires"})
NUMBERS = frozenset(
    {
        "identity", "messages", "deferred", "retry_count", "incoming_rate", "outgoing_rate", "velocity", "number",
        "queue", "attempts", "size",
    }
) | TIMES  # fmt: skip
QUICK = frozenset({"number", "queue", "next_hop_domain", "status", "size", "attempts"})
"""What is known of a message without reading its envelope."""

Condition = tuple[str, str, object]
Fits = Callable[[Mapping[str, Any]], bool]


class Filter:
    """Conditions on entries of an answer; `quick` are those that need no envelope. Raises ValueError when made."""

    def __init__(self, conditions: Sequence[Sequence[object]], properties: Mapping[str, str]) -> None:
        if len(conditions) > MAX_CONDITIONS:
            raise ValueError(f"a filter has at most {MAX_CONDITIONS} conditions")
        known = {name.casefold(): key for name, key in properties.items()}
        made: list[tuple[str, Fits]] = []
        for name, operator, value in conditions:
            key = known.get(str(name).casefold())
            if key is None:
                raise ValueError(f"{name} cannot be filtered by; these can: {', '.join(properties)}")
            if operator not in OPERATORS:
                raise ValueError(f"-{operator} is no operator of a filter; these are: -{', -'.join(OPERATORS)}")
            made.append((key, _condition(key, str(operator), _value(key, str(operator), value))))
        self._all = [fits for _, fits in made]
        self._quick = [fits for key, fits in made if key in QUICK]

    def quick(self, entry: Mapping[str, Any]) -> bool:
        """Whether an entry that has no more than the `QUICK` keys may fit."""
        return all(fits(entry) for fits in self._quick)

    def __call__(self, entry: Mapping[str, Any]) -> bool:
        """Whether all conditions fit."""
        return all(fits(entry) for fits in self._all)


def _value(key: str, operator: str, value: object) -> str | float:
    """What is compared with, in the kind that the property has. Raises ValueError."""
    text = "" if value is None else str(value)
    if len(text) > MAX_VALUE:
        raise ValueError(f"a value of a filter has at most {MAX_VALUE} characters")
    if operator == "like" or key not in NUMBERS:
        if operator in _ORDERS:
            raise ValueError(f"-{operator} compares numbers, sizes and times only")
        return text.casefold()
    if key in TIMES:
        return _time(text) if text else 0.0
    try:
        return float(read_size(text) if key == "size" else text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None


def _time(text: str) -> float:
    """`2026-11-30`, `2026-11-30 16:00`, with a zone or in this machine's."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time: write 2026-11-30 16:00") from None
    return found.timestamp()


def _condition(key: str, operator: str, value: str | float) -> Fits:
    if operator == "like":
        matches = _like(str(value))
        return lambda entry: any(matches(text) for text in _texts(entry.get(key)))
    if operator in {"eq", "ne"}:
        wanted = operator == "eq"
        return lambda entry: any(_equal(part, value) for part in _parts(entry.get(key))) is wanted
    compare = _ORDERS[operator]
    assert isinstance(value, float), "only numbers are ordered"
    return lambda entry: any(compare(number, value) for number in _numbers(entry.get(key)))


_ORDERS: dict[str, Callable[[float, float], bool]] = {
    "gt": lambda found, value: found > value,
    "ge": lambda found, value: found >= value,
    "lt": lambda found, value: found < value,
    "le": lambda found, value: found <= value,
}


@lru_cache(maxsize=64)
def _like(pattern: str) -> Callable[[str], object]:
    """`*` and `?` stand for any characters and any one; brackets for themselves."""
    return re.compile(translate(pattern.replace("[", "[[]"))).match


def _parts(found: object) -> Iterable[object]:
    return found if isinstance(found, list | tuple) else (found,)


def _equal(part: object, value: str | float) -> bool:
    if isinstance(value, float):
        return isinstance(part, int | float) and float(part) == value
    return str(part).casefold() == value


def _texts(found: object) -> list[str]:
    return [str(part).casefold() for part in _parts(found)]


def _numbers(found: object) -> list[float]:
    return [float(part) for part in _parts(found) if isinstance(part, int | float)]


def shown_time(seconds: float) -> str:
    """A time for people, in this machine's zone; nothing for none."""
    if not seconds or seconds == float("inf"):
        return ""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
