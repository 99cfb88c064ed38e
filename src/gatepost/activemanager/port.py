"""The registry's port (SPEC A1, A3, A4): what all front ends and managers agree on.

Each fact has one writer: the operator's word is the operator's, what was observed is the manager's, and only who holds
the manager's lease activates a copy by itself (field case 7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple
from typing import Protocol as Port

from gatepost.routing.decision import ActiveCopy

MANAGER = "manager"
"""The lease of who may activate copies by itself."""

LOSSES_KEPT = 10
"""Lossy activations of one database that a view tells of: hubs that were away for long still hear of them."""

HISTORY_KEPT = 100
"""Activations of one database, and holders of one lease, that the history goes back to: what an operator or a checker
looks at, and no file or cluster that only grows."""


class RegistryUnavailable(ConnectionError):
    """The registry did not answer. What was asked for may have happened all the same."""


class StaleEpoch(RuntimeError):
    """A compare-and-swap lost: the database's epoch is no longer the one that was expected."""


class LeaseLost(RuntimeError):
    """The lease that a change depends on is not held any more: another one may act now."""


class ServerWord(StrEnum):
    """The operator's word on a server."""

    UP = "up"
    DRAINING = "draining"
    """Takes no new database; those that it has are moved away."""
    MAINTENANCE = "maintenance"
    """As draining, and no probe or fault of it means anything."""


class Dial(StrEnum):
    """How much replication lag a copy may have and still be activated by itself (the source system's mount dial)."""

    LOSSLESS = "lossless"
    GOOD_AVAILABILITY = "good availability"
    BEST_AVAILABILITY = "best availability"


@dataclass(frozen=True, slots=True)
class Observation:
    """What the manager last saw of one service of a server. `since` is in seconds since 1970."""

    server: str
    service: str
    healthy: bool
    since: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """A move under way: from now until `database` has a new epoch, sign-ins to it wait. Times since 1970."""

    database: str
    source: str
    target: str
    epoch: int
    """The epoch that the move began at."""
    started: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that is held. `term` grows with each new holder of the same name."""

    name: str
    holder: str
    term: int
    seconds: float
    token: str = ""
    """What the engine knows it by."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A copy became the active one at `epoch` that may lack mail delivered from `since` to `until`, its activation:
    hubs deliver that again from their safety nets (exchange-facts 4.5). Times since 1970, by the activator's clock."""

    database: str
    epoch: int
    since: float
    until: float


class Happened(StrEnum):
    """What an entry of the history tells of."""

    ACTIVATED = "activated"
    """A copy became the active one: `database`, `server`, `epoch`; `holder` and `term` of the lease it depended on,
    empty and 0 when an operator did it."""
    LEASED = "leased"
    """A lease has a new holder: `holder`, `term`. `database` is empty, `server` the lease's name, `epoch` 0."""


class HistoryEntry(NamedTuple):
    """One thing that happened, at `revision`. `time` is in seconds since 1970, by the clock of who did it."""

    revision: int
    time: float
    what: Happened
    database: str
    server: str
    epoch: int
    holder: str
    term: int


@dataclass(frozen=True, slots=True)
class RegistryView:
    """One consistent picture of the registry. `revision` grows with every change."""

    revision: int = 0
    active: Mapping[str, ActiveCopy] = field(default_factory=lambda: MappingProxyType({}))
    organization_version: int = 0
    moves: Mapping[str, Move] = field(default_factory=lambda: MappingProxyType({}))
    """By database."""
    words: Mapping[str, ServerWord] = field(default_factory=lambda: MappingProxyType({}))
    """By server; one that is not there is up."""
    blocked: frozenset[tuple[str, str]] = frozenset()
    """Copies (database, server) that the operator has blocked from activation."""
    dials: Mapping[str, Dial] = field(default_factory=lambda: MappingProxyType({}))
    """By database; one that is not there has good availability."""
    observed: Mapping[tuple[str, str], Observation] = field(default_factory=lambda: MappingProxyType({}))
    """By server and service."""
    manager: Lease | None = None
    """Who holds the manager's lease, as far as this picture knows."""
    losses: Mapping[str, tuple[Loss, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """By database, oldest first: the last `LOSSES_KEPT` activations that may have lost mail."""


class Registry(Port):
    """Reading and changing. Changes are atomic and visible to all front ends in well under a second."""

    def view(self) -> RegistryView:
        """The current picture. Raises `RegistryUnavailable`."""
        ...

    def activate(
        self,
        database: str,
        server: str,
        expected_epoch: int | None = None,
        lease: Lease | None = None,
        lost_seconds: float | None = None,
    ) -> ActiveCopy:
        """Make `server` active for `database` with the next epoch; answers the new state. Ends its move.

        With `expected_epoch` only if that is still the current one (0: none yet), else raises `StaleEpoch`. With
        `lease` only while it is held, else raises `LeaseLost`. With `lost_seconds` a `Loss` is recorded: the copy may
        lack what came in so many seconds before now. Raises `RegistryUnavailable`.
        """
        ...

    def begin_move(self, move: Move, lease: Lease | None = None) -> None:
        """Have sign-ins to the database wait. Raises `StaleEpoch` when `move.epoch` is over or one is under way
        already, `LeaseLost`, `RegistryUnavailable`."""
        ...

    def end_move(self, database: str, lease: Lease | None = None, move: Move | None = None) -> None:
        """The move has come to nothing: sign-ins go on as before. Nothing happens without one. Raises as above.

        With `move` only if it is that one (by target, epoch and reason): asked again because the answer was lost, it
        must not end the move of whoever came next.
        """
        ...

    def set_word(self, server: str, word: ServerWord) -> None:
        """The operator's word on a server. Raises `RegistryUnavailable`."""
        ...

    def set_blocked(self, database: str, server: str, *, blocked: bool) -> None:
        """Whether a copy may be activated by itself. Raises `RegistryUnavailable`."""
        ...

    def set_dial(self, database: str, dial: Dial) -> None:
        """How much lag is acceptable. Raises `RegistryUnavailable`."""
        ...

    def observe(self, observations: list[Observation], lease: Lease) -> None:
        """What the manager saw, all at once; what it does not speak of stays. Raises `LeaseLost`,
        `RegistryUnavailable`."""
        ...

    def take_lease(self, name: str, holder: str, seconds: float) -> Lease | None:
        """Hold the lease for `seconds`, or None when it is held, be it under the same name: that may be a process of
        before that still runs. Raises `RegistryUnavailable`."""
        ...

    def keep_lease(self, lease: Lease) -> None:
        """Hold it for `lease.seconds` from now. Raises `LeaseLost`, `RegistryUnavailable`."""
        ...

    def give_lease_back(self, lease: Lease) -> None:
        """Let another one hold it at once. Nothing happens when it is lost already. Raises `RegistryUnavailable`."""
        ...

    def set_organization_version(self, version: int) -> None:
        """Record the organization's current version. Raises `RegistryUnavailable`."""
        ...


class OwnedRegistry(Registry, Port):
    """What who opens a registry holds (`open.open_registry`). Any thread may call it."""

    def history(self, database: str | None = None) -> list[HistoryEntry]:
        """What happened, oldest first: the last `HISTORY_KEPT` activations of each database (or of this one alone)
        and, without `database`, as many holders of each lease. Raises `RegistryUnavailable`."""
        ...

    def close(self) -> None:
        """Let go of connections. Leases stay until their time is over."""
        ...


class RegistryWatch(Port):
    """What a worker holds: the last view, and callbacks after each change. No request waits for the registry."""

    @property
    def view(self) -> RegistryView:
        """The last view seen; never blocks."""
        ...

    @property
    def stale_seconds(self) -> float:
        """For how long the registry has not been heard of; 0 while it is. The view may be out of date by as much."""
        ...

    def on_change(self, callback: Callable[[RegistryView], None]) -> None:
        """Have `callback` called on the event loop with every new view."""
        ...


class OwnedRegistryWatch(RegistryWatch, Port):
    """What who opens a watch holds (`open.watch_registry`)."""

    def start(self) -> None:
        """Begin to follow the registry. One that cannot be reached is logged, not raised: it may come."""
        ...

    async def first_view(self, seconds: float) -> bool:
        """Wait until the first view is there, at most `seconds`; answers whether it is."""
        ...

    async def look_now(self, seconds: float) -> bool:
        """Have `view` be the registry's as of now or later, and its callbacks called; False when that is not to be
        had in `seconds`."""
        ...

    def close(self) -> None:
        """Follow no more."""
        ...
