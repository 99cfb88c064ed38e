"""What a manager is doing: moves under way, and why they were begun."""

from __future__ import annotations

from dataclasses import dataclass, field

from gatepost.activemanager.port import Move
from gatepost.activemanager.selection import Lag
from gatepost.activemanager.steps import Steps
from gatepost.configuration.manager_settings import ManagerSettings

LOSS_MARGIN_SECONDS = 60.0
"""Added to what a copy may lack: clocks differ, and what was delivered is not handed on at once."""


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

    def lost_seconds(self, settings: ManagerSettings) -> float | None:
        """How far back the target may lack mail, with a margin; None: it lacks nothing, as after every planned move."""
        lag, lost = self.lags.get(self.target), settings.unmeasured_loss_seconds
        if lag is not None:
            lost = settings.loss_seconds if lag.seconds is None else lag.seconds
        if self.planned or (lag is None and not lost) or (lag is not None and lag.behind == 0.0):
            return None
        return lost + LOSS_MARGIN_SECONDS


@dataclass(frozen=True, slots=True)
class Wish:
    """Why a database should not stay where it is."""

    planned: bool
    reason: str
    target: str = ""
