"""The embedded directory: one SQLite file that commands write and every worker reads and watches."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from gatepost.directory.port import DirectoryUnavailable, User
from gatepost.organization.model import CLIENT_PROTOCOLS, Protocol
from gatepost.routing.decision import Mailbox
from gatepost.store.sqlite import Schema, Store, StoreUnavailable, close_after_writing, faults_of, open_for_writing
from gatepost.store.watch import INTERVAL_SECONDS, Watch

CACHED_USERS = 100_000
"""User objects of one worker kept at once, about 0.5 kB each; beyond that the oldest are read again."""

SCHEMA = Schema(
    "directory",
    0x67_70_64_69,  # "gpdi"
    (
        """
        CREATE TABLE users (
            id INTEGER PRIMARY KEY,
            name TEXT NOT NULL UNIQUE,
            password_hash TEXT NOT NULL,
            database TEXT,
            home_server TEXT,
            protocols TEXT NOT NULL,
            disabled INTEGER NOT NULL CHECK (disabled IN (0, 1)),
            login_at_server TEXT NOT NULL,
            changed INTEGER NOT NULL,
            CHECK ((database IS NULL) + (home_server IS NULL) = 1)
        ) STRICT;
        -- A user's name is one of their addresses: one constraint keeps names, addresses and aliases apart.
        CREATE TABLE addresses (
            address TEXT PRIMARY KEY,
            user INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX addresses_of_user ON addresses (user);
        """,
        # Submission has come to the protocols: who had all of them keeps all.
        "UPDATE users SET protocols = 'imap pop3 https submission' WHERE protocols = 'imap pop3 https';",
    ),
    made_by="gatepost user add",
)
"""`protocols` are their words with spaces between; `changed` is in seconds since 1970. Names are canonical."""

USER_COLUMNS = "u.name, u.password_hash, u.database, u.home_server, u.protocols, u.disabled, u.login_at_server"

Row = tuple[str, str, str | None, str | None, str, int, str]

_FIND = f"SELECT {USER_COLUMNS} FROM addresses a JOIN users u ON u.id = a.user WHERE a.address = ?"  # noqa: S608


@contextmanager
def directory_faults(path: str) -> Iterator[None]:
    """Turns faults of the file into `DirectoryUnavailable`."""
    try:
        with faults_of(path):
            yield
    except StoreUnavailable as fault:
        raise DirectoryUnavailable(str(fault)) from fault


def prepare(path: str) -> None:
    """Make the file if it is missing and bring it to this version. Raises `DirectoryUnavailable`."""
    with directory_faults(path):
        close_after_writing(open_for_writing(path, SCHEMA))


def user_of(row: Row) -> User:
    """The user in a row of `USER_COLUMNS`."""
    name, password_hash, database, home_server, words, disabled, login_at_server = row
    protocols = _PROTOCOLS.get(words)
    if protocols is None:
        protocols = _PROTOCOLS[words] = frozenset(p for p in CLIENT_PROTOCOLS if p.value in words.split())
    return User(name, Mailbox(database, home_server), password_hash, protocols, bool(disabled), login_at_server)


_PROTOCOLS: dict[str, frozenset[Protocol]] = {}
"""At most one entry for each subset of the protocols, since `words_of` writes them in one order."""


def words_of(protocols: frozenset[Protocol]) -> str:
    """How the file spells a set of protocols."""
    return " ".join(p.value for p in CLIENT_PROTOCOLS if p in protocols)


class SqliteDirectory:
    """The `Directory` of a worker: look-ups, a cache of users, and notice of every change.

    Answers are cached only while the file is watched (`start`). When the file cannot be read, every look-up raises
    `DirectoryUnavailable` and `on_change` is not called: who holds on to earlier answers keeps them.
    """

    def __init__(
        self, path: str, loop: asyncio.AbstractEventLoop | None = None, interval: float = INTERVAL_SECONDS
    ) -> None:
        self._path = path
        self._store = Store(path, SCHEMA)
        self._cache: dict[str, User] = {}
        self._callbacks: list[Callable[[], None]] = []
        self._watch: Watch | None = None
        if loop is not None:
            callbacks = {"changed": self._changed, "recovered": self._recovered}
            self._watch = Watch(self._store, loop, **callbacks, failed=self._failed, interval=interval)
        self._watching = False
        self._log = structlog.get_logger("gatepost")

    @property
    def available(self) -> bool:
        """Whether the file could be read at the last look; True where nobody looks."""
        return self._watch is None or self._watch.fault is None

    @property
    def known_seconds(self) -> float:
        """See `OwnedDirectory`: changes are told."""
        return math.inf

    def start(self) -> None:
        """Begin to watch the file; needs the loop. A missing or broken file is logged, not raised: it may come."""
        if self._watch is None:
            raise ValueError("a directory without a loop cannot be watched")
        self._watch.start()
        self._watching = True

    def close(self) -> None:
        """Stop watching and let go of the file."""
        if self._watch is not None:
            self._watch.stop()
        self._watching = False
        self._cache.clear()
        self._store.close()

    async def wait_closed(self) -> None:
        """See `OwnedDirectory`: closed is closed."""

    def on_change(self, callback: Callable[[], None]) -> None:
        """Have `callback` called on the event loop after any change of the directory."""
        self._callbacks.append(callback)

    def find(self, canonical_name: str) -> User | None:
        """The user who has this name, address or alias. Raises `DirectoryUnavailable`."""
        user = self._cache.get(canonical_name)
        return user if user is not None else self._read(canonical_name)

    async def ask(self, canonical_name: str) -> User | None:
        """As `find`: a file answers at once."""
        return self.find(canonical_name)

    async def opens(self, user: User, tries: tuple[bytes, ...]) -> bool:  # noqa: ARG002
        """See `Directory`: the file's hashes are checked elsewhere, so none of its users is asked of here."""
        return False

    def _read(self, canonical_name: str) -> User | None:
        if self._watch is not None and self._watch.fault is not None:
            raise DirectoryUnavailable(str(self._watch.fault))
        with directory_faults(self._path):
            row = self._store.connection().execute(_FIND, (canonical_name,)).fetchone()
        if row is None:
            return None
        user = user_of(row)
        if self._watching:
            if len(self._cache) >= CACHED_USERS:
                del self._cache[next(iter(self._cache))]
            self._cache[canonical_name] = user
        return user

    def _changed(self) -> None:
        self._cache.clear()
        for callback in self._callbacks:
            callback()

    def _failed(self, fault: StoreUnavailable) -> None:
        self._cache.clear()
        self._log.error("directory.unavailable", reason=str(fault))

    def _recovered(self) -> None:
        self._log.info("directory.available", path=self._path)
