"""Where app passwords are kept: one SQLite file that commands write, and workers read at each use.

    gatepost user app-password ── AppPasswordEditor ──► file ◄── LastUses: a transaction a minute at most, in a thread
                                                         │
    workers ── AppPasswords.find: one look-up by the digest of the secret, a few µs, nothing remembered

Because nothing is remembered, what is removed opens nothing from that moment on; sessions that began with it are told
of by `on_removed`. The file is of Gatepost's own for every directory: users are known by their canonical names.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_network
from typing import Self

import apsw
import structlog

from gatepost.directory.app_password_uses import LastUses
from gatepost.directory.app_passwords import MAX_NAME, MAX_PER_USER, AppPassword, in_order, make_secret, secret_digest
from gatepost.directory.editing import DirectoryError
from gatepost.directory.port import DirectoryUnavailable
from gatepost.directory.sqlite import directory_faults
from gatepost.organization.model import Network
from gatepost.store.sqlite import (
    Schema,
    Store,
    StoreUnavailable,
    close_after_writing,
    faults_of,
    open_for_writing,
    transaction,
)
from gatepost.store.watch import INTERVAL_SECONDS, Watch

SCHEMA = Schema(
    "file of app passwords",
    0x67_70_61_70,  # "gpap"
    (
        """
        CREATE TABLE app_passwords (
            id INTEGER PRIMARY KEY AUTOINCREMENT,  -- a number is never used again: sessions are known by it
            digest BLOB NOT NULL UNIQUE,
            user TEXT NOT NULL,
            name TEXT NOT NULL,
            words TEXT NOT NULL,
            networks TEXT NOT NULL,
            made INTEGER NOT NULL,
            expires INTEGER NOT NULL,
            used INTEGER NOT NULL DEFAULT 0,
            used_word TEXT NOT NULL DEFAULT '',
            used_address TEXT NOT NULL DEFAULT '',
            UNIQUE (user, name)
        ) STRICT;
        CREATE TABLE state (removals INTEGER NOT NULL) STRICT;
        INSERT INTO state VALUES (0);
        """,
    ),
    made_by="gatepost user app-password add",
)
"""`words` and `networks` have spaces between; times are seconds since 1970; names are canonical."""

_COLUMNS = "id, user, name, words, networks, made, expires, used, used_word, used_address"
_Row = tuple[int, str, str, str, str, int, int, int, str, str]


def prepare(path: str) -> None:
    """Make the file if it is missing and bring it to this version. Raises `DirectoryUnavailable`."""
    with directory_faults(path):
        close_after_writing(open_for_writing(path, SCHEMA))


class AppPasswordEditor:
    """App passwords for commands. A context manager; every method raises `DirectoryUnavailable`."""

    def __init__(self, path: str, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        with directory_faults(path):
            self._connection = open_for_writing(path, SCHEMA)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        close_after_writing(self._connection)

    def add(
        self,
        user: str,
        name: str,
        words: frozenset[str] = frozenset(),
        networks: tuple[Network, ...] = (),
        expires: int = 0,
    ) -> str:
        """A new one for `user` (canonical); the secret, which is kept nowhere. Raises `DirectoryError`."""
        if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
            raise DirectoryError(f"a name has 1 to {MAX_NAME} printable characters")
        if expires and expires <= self._clock():
            raise DirectoryError("it would have expired already")
        secret = make_secret()
        row = (
            secret_digest(secret), user, name, " ".join(in_order(words)), " ".join(map(str, networks)),
            int(self._clock()), expires,
        )  # fmt: skip
        with directory_faults(self._path), transaction(self._connection):
            if self._count("user = ?", (user,)) >= MAX_PER_USER:
                raise DirectoryError(f"{user} has {MAX_PER_USER} app passwords already: remove some")
            try:
                self._connection.execute(
                    "INSERT INTO app_passwords (digest, user, name, words, networks, made, expires)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    row,
                )
            except apsw.ConstraintError:
                raise DirectoryError(f"{user} has an app password called {name!r} already") from None
        return secret

    def remove(self, user: str, name: str | None) -> int:
        """Remove the one called `name`, or with None all of `user`; answers how many."""
        condition, values = ("user = ?", (user,)) if name is None else ("user = ? AND name = ?", (user, name))
        with directory_faults(self._path), transaction(self._connection):
            count = self._count(condition, values)
            if count:
                self._connection.execute(f"DELETE FROM app_passwords WHERE {condition}", values)  # noqa: S608 - ours
                self._connection.execute("UPDATE state SET removals = removals + 1")
        return count

    def list(self, user: str | None = None) -> list[AppPassword]:
        """Those of one user, or all, by user and name."""
        condition, values = ("", ()) if user is None else (" WHERE user = ?", (user,))
        query = f"SELECT {_COLUMNS} FROM app_passwords{condition} ORDER BY user, name"  # noqa: S608 - our own words
        with directory_faults(self._path):
            return [_read(row) for row in self._connection.execute(query, values)]

    def _count(self, condition: str, values: tuple[str, ...]) -> int:
        query = f"SELECT count(*) FROM app_passwords WHERE {condition}"  # noqa: S608 - our own words
        row = self._connection.execute(query, values).fetchone()
        return int(row[0]) if row is not None else 0


class AppPasswords:
    """App passwords for one worker. Belongs to `loop`; `clock` answers seconds since 1970."""

    def __init__(
        self,
        path: str,
        loop: asyncio.AbstractEventLoop,
        interval: float = INTERVAL_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self.clock = clock
        self._store = Store(path, SCHEMA)
        self._watch = Watch(
            self._store, loop, changed=self._changed, failed=self._failed, recovered=self._recovered, interval=interval
        )
        self._removals = -1
        self._callbacks: list[Callable[[], None]] = []
        self.uses = LastUses(path, SCHEMA, loop, clock)
        self._log = structlog.get_logger("gatepost")

    def start(self) -> None:
        """Begin to follow the file. A missing or broken one is logged, not raised: it may come."""
        self._watch.start()

    def close(self) -> None:
        """Write the last uses, stop following and let go of the file."""
        self._watch.stop()
        self.uses.close()
        self._store.close()

    def on_removed(self, callback: Callable[[], None]) -> None:
        """Have `callback` called on the event loop after some were removed; `is_there` then says which are left."""
        self._callbacks.append(callback)

    def find(self, password: str) -> AppPassword | None:
        """The one whose secret this is; None: none is. Raises `DirectoryUnavailable`, only for what may be one."""
        digest = secret_digest(password)
        return None if digest is None else self._one("digest", digest)

    def is_there(self, number: int) -> bool:
        """Whether the one with this number has not been removed. While that is not known it is there."""
        with suppress(DirectoryUnavailable):
            return self._one("id", number) is not None
        return True

    def _one(self, column: str, value: bytes | int) -> AppPassword | None:
        query = f"SELECT {_COLUMNS} FROM app_passwords WHERE {column} = ?"  # noqa: S608 - our own words
        with directory_faults(self._path):
            row = self._store.connection().execute(query, (value,)).fetchone()
        return None if row is None else _read(row)

    def _changed(self) -> None:
        with faults_of(self._path):
            row = self._store.connection().execute("SELECT removals FROM state").fetchone()
        before, self._removals = self._removals, int(row[0]) if row is not None else 0
        if before not in (-1, self._removals):  # most changes are last uses
            for callback in self._callbacks:
                callback()

    def _failed(self, fault: StoreUnavailable) -> None:
        self._log.error("app_passwords.unavailable", reason=str(fault))

    def _recovered(self) -> None:
        self._log.info("app_passwords.available", path=self._path)


def _read(row: _Row) -> AppPassword:
    number, user, name, words, networks, made, expires, used, used_word, used_address = row
    return AppPassword(
        number,
        user,
        name,
        frozenset(words.split()),
        tuple(ip_network(network) for network in networks.split()),
        made,
        expires,
        used,
        used_word,
        used_address,
    )
