"""What an engine of the shared store must do: read keys, and change them where they are still as they were read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol as Port

MAX_VALUE_BYTES = 64 * 1024
"""Of one value; ours have some kB at most."""
MAX_GROUP_KEYS = 60
"""Keys of one change: etcd takes 128 operations in one transaction."""


class StoreAway(RuntimeError):
    """The store does not answer, or will not do this now. The message is the reason for the log."""


@dataclass(frozen=True, slots=True)
class Found:
    """A key's value; `version` differs whenever it was written, where the engine has such a number."""

    value: bytes
    version: int = 0


@dataclass(frozen=True, slots=True)
class Put:
    """A value, never empty, that the store may forget after `seconds`, and not before."""

    value: bytes
    seconds: float


@dataclass(frozen=True, slots=True)
class Commit:
    """A change that is made while all keys are as they were `seen`; otherwise nothing of it is."""

    seen: Mapping[str, Found | None]
    puts: Mapping[str, Put | None]
    """None removes the key."""


class KeyValues(Port):
    """All methods raise `StoreAway`, and may be cancelled at any time: a change may have been made then, or not."""

    where: str
    """For the log: the addresses, without secrets."""

    async def read(self, keys: Sequence[str]) -> tuple[dict[str, Found], float | None]:
        """Those of `keys` that are there, and the store's own clock (seconds since 1970) where it tells it."""
        ...

    async def commit(self, commits: Sequence[Commit]) -> list[bool]:
        """Make each of the changes, whose keys are all different, in a step of its own; whether it was made."""
        ...

    async def close(self) -> None:
        """Let go of all connections."""
        ...
