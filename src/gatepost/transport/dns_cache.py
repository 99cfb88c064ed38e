"""What DNS answered, for as long as the answer may be kept (RFC 2308, RFC 9520). No I/O; time comes as argument."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

MAX_ENTRIES = 20_000
"""Names times types; over it the one that was longest not asked for is forgotten."""
MIN_TTL = 5.0
"""Seconds: with a TTL of 0 every connection of a queue would ask."""
MAX_TTL = 86400.0
"""As RFC 8767 section 4 advises at most a week, and a day is what is usual."""
MAX_NEGATIVE_TTL = 900.0
"""A domain that is set up anew should not wait for hours (RFC 2308 section 5 allows up to three)."""
UNAVAILABLE_TTL = 10.0
"""How long a fault is believed: RFC 9520 asks for 1 s to 5 min. Mail of a whole queue asks at the same time."""

Record_co = TypeVar("Record_co", covariant=True)


class Outcome(Enum):
    """What came of a query."""

    FOUND = "found"
    NO_DATA = "has no such record"
    """The name exists, records of the type do not."""
    NO_NAME = "does not exist"
    """NXDOMAIN."""
    UNAVAILABLE = "cannot be looked up now"
    """SERVFAIL, REFUSED, no answer in time, no name server: says nothing of the name (smtp-facts row 32)."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[Record_co]):
    """`records` are empty unless `outcome` is FOUND; `seconds` is how long to keep it, `detail` why there are none."""

    outcome: Outcome
    records: tuple[Record_co, ...] = ()
    seconds: float = UNAVAILABLE_TTL
    detail: str = ""


Key = tuple[str, str]
"""Name and type."""


class DnsCache:
    """Answers by name and type. A clock that is set back makes an answer old, never young."""

    def __init__(self, limit: int = MAX_ENTRIES) -> None:
        self._limit = limit
        self._entries: OrderedDict[Key, tuple[float, Answer[object]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key, now: float) -> Answer[object] | None:
        """The answer, if it may still be used."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        stored, answer = entry
        if not 0.0 <= now - stored < answer.seconds:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return answer

    def put(self, key: Key, answer: Answer[object], now: float) -> None:
        """Keep an answer."""
        self._entries[key] = now, answer
        self._entries.move_to_end(key)
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        """Forget everything: an operator asks for fresh answers."""
        self._entries.clear()


def positive_seconds(ttl: float) -> float:
    """How long records with this TTL are kept."""
    return min(max(ttl, MIN_TTL), MAX_TTL)


def negative_seconds(ttl: float) -> float:
    """How long it is believed that there are none; `ttl` is the SOA record's, as RFC 2308 section 5 has it."""
    return min(max(ttl, MIN_TTL), MAX_NEGATIVE_TTL)
