"""What a manager is told, and what it answers is to be done: the words between its mind and whoever drives it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gatepost.activemanager.port import Lease, RegistryView
from gatepost.activemanager.seen import Change, Sight
from gatepost.activemanager.steps import Result, Step
from gatepost.configuration.manager_settings import ManagerSettings
from gatepost.organization.model import Organization

# Inputs


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. Comes at least twice within `SLEPT_SECONDS`."""

    stale: float = 0.0
    """For how many seconds the registry's picture may be out of date; 0 while it is followed."""


@dataclass(frozen=True, slots=True)
class Probed:
    """A probe that began at `started` has ended."""

    server: str
    service: str
    sight: Sight
    reason: str
    started: float


@dataclass(frozen=True, slots=True)
class Viewed:
    """The registry's picture has changed."""

    view: RegistryView


@dataclass(frozen=True, slots=True)
class Asked:
    """The answer to `Take` or `Keep`: a lease, or None when another one has it. `fault`: the registry is silent."""

    lease: Lease | None
    asked: float
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """The step with this number has ended."""

    number: int
    result: Result


@dataclass(frozen=True, slots=True)
class Configured:
    """Another configuration."""

    settings: ManagerSettings
    organization: Organization


@dataclass(frozen=True, slots=True)
class Leave:
    """This manager is to end: it gives the lease back."""


Input = Tick | Probed | Viewed | Asked | Done | Configured | Leave


# Outputs


@dataclass(frozen=True, slots=True)
class Take:
    """Ask for the lease."""

    holder: str
    seconds: float
    asked: float


@dataclass(frozen=True, slots=True)
class Keep:
    """Renew the lease."""

    lease: Lease
    asked: float


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Let another one have the lease."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Observe:
    """Write down what was seen."""

    changes: tuple[Change, ...]
    lease: Lease


@dataclass(frozen=True, slots=True)
class Do:
    """Do a step of a move, and tell its result by its number. Not to be begun after `before`."""

    number: int
    step: Step
    lease: Lease
    before: float


@dataclass(frozen=True, slots=True)
class Stop:
    """The step with this number is not to go on; its result is of no interest."""

    number: int


@dataclass(frozen=True, slots=True)
class Log:
    """A line for the log."""

    level: str
    event: str
    fields: dict[str, Any] = field(default_factory=dict)


Output = Take | Keep | GiveBack | Observe | Do | Stop | Log


class Outbox:
    """Collects outputs, and says what concerns one matter once."""

    def __init__(self) -> None:
        self._outputs: list[Output] = []
        self._said: dict[str, str] = {}

    def put(self, *outputs: Output) -> None:
        """These are to be done."""
        self._outputs.extend(outputs)

    def log(self, level: str, event: str, **fields: Any) -> None:  # noqa: ANN401 - what a log line may hold
        """A line for the log."""
        self._outputs.append(Log(level, event, fields))

    def say(self, level: str, matter: str, event: str, text: str, **fields: Any) -> None:  # noqa: ANN401
        """Log it unless it is what was said last of this matter."""
        if self._said.get(matter) != text:
            self._said[matter] = text
            self.log(level, event, reason=text, **fields)

    def settled(self, matter: str) -> bool:
        """There is nothing to say of it any more; whether something had been said."""
        return self._said.pop(matter, None) is not None

    def take(self) -> list[Output]:
        """All outputs, once."""
        found, self._outputs = self._outputs, []
        return found
