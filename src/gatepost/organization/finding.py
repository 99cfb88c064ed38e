"""What a check finds (SPEC O2)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """How bad a `Finding` is: an error stops the file from being used."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of the organization: what object, what is wrong, what to do (SPEC O2).

    `path` are the keys that lead to the place in the file, such as `("servers", "MBX-01", "site")`. `rests_on` is a
    second place that the judgement rests on: while that one is at fault itself, this finding may be no news.
    """

    severity: Severity
    path: tuple[str | int, ...]
    object_name: str
    message: str
    remedy: str
    rests_on: tuple[str | int, ...] = ()
