"""Several directories as one: by the domain of a name, and in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gatepost.directory.port import DirectoryUnavailable, OwnedDirectory, User


@dataclass(frozen=True, slots=True)
class Part:
    """One of several directories. `domains`: whose names it is asked for, in lower case; empty: all others'."""

    name: str
    directory: OwnedDirectory
    domains: frozenset[str] = frozenset()


class DirectoriesInOrder:
    """The `Directory` that asks those with the name's domain, or those without domains where none has it.

    The first that knows the user answers. Where one does not answer the later ones are not asked: whoever is there may
    be another user.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._by_name = {part.name: part.directory for part in parts}
        self._others = [part.directory for part in parts if not part.domains]
        self._by_domain: dict[str, list[OwnedDirectory]] = {}
        for part in parts:
            for domain in part.domains:
                self._by_domain.setdefault(domain, []).append(part.directory)

    @property
    def available(self) -> bool:
        """See `OwnedDirectory`: whether one of them is, so that somebody can be let in."""
        return any(part.directory.available for part in self._parts)

    @property
    def known_seconds(self) -> float:
        """See `OwnedDirectory`."""
        return min(part.directory.known_seconds for part in self._parts)

    def start(self) -> None:
        """See `OwnedDirectory`."""
        for part in self._parts:
            part.directory.start()

    def close(self) -> None:
        """See `OwnedDirectory`."""
        for part in self._parts:
            part.directory.close()

    async def wait_closed(self) -> None:
        """See `OwnedDirectory`."""
        for part in self._parts:
            await part.directory.wait_closed()

    def on_change(self, callback: Callable[[], None]) -> None:
        """See `Directory`."""
        for part in self._parts:
            part.directory.on_change(callback)

    def find(self, canonical_name: str) -> User | None:
        """See `Directory`."""
        for directory in self._asked_for(canonical_name):
            user = directory.find(canonical_name)
            if user is not None:
                return user
        return None

    async def ask(self, canonical_name: str) -> User | None:
        """See `Directory`."""
        for directory in self._asked_for(canonical_name):
            user = await directory.ask(canonical_name)
            if user is not None:
                return user
        return None

    async def opens(self, user: User, tries: tuple[bytes, ...]) -> bool:
        """See `Directory`."""
        directory = self._by_name.get(user.directory)
        if directory is None:
            raise DirectoryUnavailable(f"there is no directory {user.directory!r} any more")
        return await directory.opens(user, tries)

    def _asked_for(self, name: str) -> list[OwnedDirectory]:
        return self._by_domain.get(name.rpartition("@")[2], self._others)
