"""Changing the embedded directory: what the `gatepost user` commands do, one transaction each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import apsw

from gatepost.directory.port import User
from gatepost.directory.sqlite import SCHEMA, USER_COLUMNS, directory_faults, user_of, words_of
from gatepost.organization.names import BadLoginName, canonical_login_name
from gatepost.store.sqlite import close_after_writing, open_for_writing, transaction


class DirectoryError(Exception):
    """A change that the directory refuses; the message is one line for the operator. Nothing was changed."""


class UserExists(DirectoryError):
    """The name belongs to a user already."""


class UnknownUser(DirectoryError):
    """No user has this name."""


class AddressTaken(DirectoryError):
    """The name or address belongs to another user."""


class BadUser(DirectoryError):
    """The user's data cannot be stored."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A user as the directory stores it. `addresses` are further ones, without the user's own name."""

    user: User
    addresses: tuple[str, ...] = ()
    changed: int = 0
    """Seconds since 1970; set by the directory."""


class DirectoryEditor:
    """A writer's hold on the directory; makes and migrates the file. Use it as a context manager.

    Names and addresses are canonical (`canonical_login_name`), else `BadUser`. Every method raises
    `DirectoryUnavailable` when the file cannot be used; then nothing was changed.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        with directory_faults(path):
            self._connection = open_for_writing(path, SCHEMA)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        close_after_writing(self._connection)

    def add(self, entry: Entry) -> None:
        """Add a user. Raises `UserExists`, `AddressTaken`, `BadUser`."""
        with self._change():
            self._insert(entry)

    def change(self, name: str, edit: Callable[[Entry], Entry]) -> Entry:
        """Replace the user called `name` by what `edit` makes of it; answers the new entry.

        `edit` sees the newest entry and no other change comes between. Raises `UnknownUser`, `UserExists`,
        `AddressTaken`, `BadUser`, and whatever `edit` raises.
        """
        with self._change():
            new = edit(self.get(name))
            self._delete(name)
            self._insert(new)
        return new

    def remove(self, name: str) -> None:
        """Remove the user called `name` with all addresses. Raises `UnknownUser`."""
        with self._change():
            self.get(name)
            self._delete(name)

    def add_all(self, entries: Iterable[Entry], refused: Callable[[int, DirectoryError], bool]) -> int:
        """Add many in one transaction; answers how many were added.

        `refused(n, error)` hears of the n-th entry (from 0) that cannot be added and answers whether to go on without
        it; if not, its error is raised and none is added. `entries` may raise too: then none is added.
        """
        added = 0
        with self._change():
            for number, entry in enumerate(entries):
                try:
                    with self._connection:  # a savepoint: an entry is added whole or not at all
                        self._insert(entry)
                    added += 1
                except DirectoryError as error:
                    if not refused(number, error):
                        raise
        return added

    def get(self, name: str) -> Entry:
        """The user whose own name is `name`. Raises `UnknownUser`."""
        with directory_faults(self._path):
            for entry in self._entries("WHERE u.name = ?", (name,)):
                return entry
        raise UnknownUser(f"no user is called {name}")

    def resolve(self, address: str) -> Entry:
        """The user who has this name, address or alias. Raises `UnknownUser`."""
        with directory_faults(self._path):
            for entry in self._entries("WHERE u.id = (SELECT user FROM addresses WHERE address = ?)", (address,)):
                return entry
        raise UnknownUser(f"no user has the name or address {address}")

    def entries(self, database: str | None = None) -> Iterator[Entry]:
        """All users by name, or those of one database; one at a time, as of one moment."""
        with directory_faults(self._path):
            if database is None:
                yield from self._entries("ORDER BY u.name", ())
            else:
                yield from self._entries("WHERE u.database = ? ORDER BY u.name", (database,))

    def _entries(self, condition: str, values: tuple[str, ...]) -> Iterator[Entry]:
        addresses = "(SELECT group_concat(address, ' ') FROM addresses WHERE user = u.id AND address <> u.name)"
        query = f"SELECT {USER_COLUMNS}, {addresses}, u.changed FROM users u {condition}"  # noqa: S608 - our own words
        for *row, others, changed in self._connection.execute(query, values):
            yield Entry(user_of(tuple(row)), tuple(sorted((others or "").split(" "))) if others else (), changed)

    @contextmanager
    def _change(self) -> Iterator[None]:
        with directory_faults(self._path), transaction(self._connection):
            yield

    def _delete(self, name: str) -> None:
        self._connection.execute("DELETE FROM users WHERE name = ?", (name,))

    def _insert(self, entry: Entry) -> None:
        user = entry.user
        _check(entry)
        try:
            self._connection.execute(
                "INSERT INTO users (name, password_hash, database, home_server, protocols, disabled, login_at_server,"
                " send_as, changed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    user.name,
                    user.password_hash,
                    user.mailbox.database,
                    user.mailbox.home_server,
                    words_of(user.protocols),
                    int(user.disabled),
                    user.login_at_server,
                    " ".join(dict.fromkeys(user.send_as)),
                    int(time.time()),
                ),
            )
        except apsw.ConstraintError:
            raise UserExists(f"there is a user called {user.name} already") from None
        number = self._connection.last_insert_rowid()
        for address in dict.fromkeys((user.name, *entry.addresses)):
            try:
                self._connection.execute("INSERT INTO addresses (address, user) VALUES (?, ?)", (address, number))
            except apsw.ConstraintError:
                owner = self.resolve(address).user.name
                raise AddressTaken(f"{address} belongs to {owner} already") from None


def _check(entry: Entry) -> None:
    """Raises `BadUser` for what must not be stored."""
    user = entry.user
    # A domain is checked as an address in it.
    granted = (f"a{word}" if word.startswith("@") else word for word in user.send_as)
    for name in (user.name, *entry.addresses, *granted):
        try:
            canonical = canonical_login_name(name, "")
        except BadLoginName as error:
            raise BadUser(f"{name!r} is no login name: {error}") from error
        if canonical != name:
            raise BadUser(f"{name!r} is not in its canonical form, {canonical!r}")
    if bool(user.mailbox.database) == bool(user.mailbox.home_server):
        raise BadUser(f"{user.name} needs either a database or a home server")
    if any(ord(c) < 32 or c == "\x7f" for c in user.login_at_server):
        raise BadUser(f"the login name of {user.name} at the server holds a control character")
