"""A directory of a few users in memory, for tests of sign-ins."""

from __future__ import annotations

from collections.abc import Callable

from gatepost.directory.port import DirectoryUnavailable, User


class FewUsers:
    """A `Directory` that judges nobody itself. `users`: by every name they have; `down`: it does not answer."""

    def __init__(self, *users: User, sales: User) -> None:
        """Each is known by the canonical name, `sales` by the alias sales@contoso.com too."""
        self.users = {user.name: user for user in users} | {"sales@contoso.com": sales}
        self.down = False
        self.callbacks: list[Callable[[], None]] = []

    def find(self, canonical_name: str) -> User | None:
        if self.down:
            raise DirectoryUnavailable("the file is away")
        return self.users.get(canonical_name)

    async def ask(self, canonical_name: str) -> User | None:
        return self.find(canonical_name)

    async def opens(self, user: User, tries: tuple[bytes, ...]) -> bool:
        raise AssertionError("no user here is judged by the directory")

    def on_change(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def put(self, name: str, user: User | None) -> None:
        """Somebody has this name now, or nobody; whoever wants to know of changes is told."""
        self.users.pop(name, None)
        if user is not None:
            self.users[name] = user
        for callback in self.callbacks:
            callback()
