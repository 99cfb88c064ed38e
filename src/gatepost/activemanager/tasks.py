"""What a manager is doing: moves under way, and why they were begun."""

from __future__ import annotations

from dataclasses import dataclass, field

from gatepost.activemanager.port import Move
from gatepost.activemanager.selection import Lag
from gatepost.activemanager.steps import Steps


@dataclass(slots=True)
class Task:
    """A move under way here."""

    database: str
    source: str
    planned: bool
    reason: str
    begun: Move | None
    asked: Move | None = None
    """The command's request, which stands in the registry."""
    wanted: str = ""
    target: str = ""
    epoch: int = 0
    """The one that it begins at."""
    steps: Steps | None = None
    waiting: set[int] = field(default_factory=set)
    lags: dict[str, Lag] = field(default_factory=dict)
    asked_lag_of: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wish:
    """Why a database should not stay where it is."""

    planned: bool
    reason: str
    target: str = ""
