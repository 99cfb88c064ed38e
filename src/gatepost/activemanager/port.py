"""The registry's port (SPEC A1, A4): active server and epoch of each database, the organization's current version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol as Port

from gatepost.routing.decision import ActiveCopy


class RegistryUnavailable(ConnectionError):
    """The registry did not answer."""


class StaleEpoch(RuntimeError):
    """A compare-and-swap lost: the database's epoch is no longer the one that was expected."""


@dataclass(frozen=True, slots=True)
class RegistryView:
    """One consistent picture of the registry. `revision` grows with every change."""

    revision: int = 0
    active: Mapping[str, ActiveCopy] = field(default_factory=lambda: MappingProxyType({}))
    organization_version: int = 0


class Registry(Port):
    """Reading and changing. Changes are atomic and visible to all front ends in well under a second."""

    def view(self) -> RegistryView:
        """The current picture. Raises `RegistryUnavailable`."""
        ...

    def activate(self, database: str, server: str, expected_epoch: int | None = None) -> ActiveCopy:
        """Make `server` active for `database` with the next epoch; answers the new state.

        With `expected_epoch` only if that is still the current one (0: none yet), else raises `StaleEpoch`.
        Raises `RegistryUnavailable`.
        """
        ...

    def set_organization_version(self, version: int) -> None:
        """Record the organization's current version. Raises `RegistryUnavailable`."""
        ...


class RegistryWatch(Port):
    """What a worker holds: the last view, and callbacks after each change. No request waits for the registry."""

    @property
    def view(self) -> RegistryView:
        """The last view seen; never blocks."""
        ...

    def on_change(self, callback: Callable[[RegistryView], None]) -> None:
        """Have `callback` called on the event loop with every new view."""
        ...
