"""The embedded registry: one SQLite file for all front ends and commands of one machine (SPEC A1, A4)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import cast

import apsw
import structlog

from gatepost.activemanager.port import RegistryUnavailable, RegistryView, StaleEpoch
from gatepost.routing.decision import ActiveCopy
from gatepost.store.sqlite import (
    Schema,
    Store,
    StoreNotReady,
    StoreUnavailable,
    close_after_writing,
    faults_of,
    open_for_writing,
    transaction,
)
from gatepost.store.watch import INTERVAL_SECONDS, Watch

SCHEMA = Schema(
    "registry",
    0x67_70_72_65,  # "gpre"
    (
        """
        CREATE TABLE active (
            database TEXT PRIMARY KEY,
            server TEXT NOT NULL,
            epoch INTEGER NOT NULL CHECK (epoch >= 1),
            changed INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        -- Whoever writes to the file, an epoch never shrinks and is never forgotten.
        CREATE TRIGGER epochs_grow BEFORE UPDATE ON active WHEN NEW.epoch <= OLD.epoch OR NEW.database <> OLD.database
            BEGIN SELECT RAISE(ABORT, 'the epoch of a database only grows'); END;
        CREATE TRIGGER epochs_stay BEFORE DELETE ON active
            BEGIN SELECT RAISE(ABORT, 'the epoch of a database is kept for ever'); END;
        CREATE TABLE state (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            revision INTEGER NOT NULL,
            organization_version INTEGER NOT NULL
        ) STRICT;
        INSERT INTO state VALUES (1, 0, 0);
        """,
    ),
)
"""`changed` is in seconds since 1970. `state` has one row."""


_Row = tuple[str, str, int]
_NEVER_ACTIVE = ActiveCopy("", "", 0)


@contextmanager
def registry_faults(path: str) -> Iterator[None]:
    """Turns faults of the file into `RegistryUnavailable`."""
    try:
        with faults_of(path):
            yield
    except StoreUnavailable as fault:
        raise RegistryUnavailable(str(fault)) from fault


class SqliteRegistry:
    """The `Registry` of commands and supervisors. Each call opens the file anew, so a replaced file is no matter."""

    def __init__(self, path: str) -> None:
        self._path = path

    def view(self) -> RegistryView:
        """The current picture; makes the file where there is none. Raises `RegistryUnavailable`."""
        store = Store(self._path, SCHEMA)
        try:
            with registry_faults(self._path), suppress(StoreNotReady):
                return _read_view(store.connection())
        finally:
            store.close()
        with self._open() as connection:
            return _read_view(connection)

    def activate(self, database: str, server: str, expected_epoch: int | None = None) -> ActiveCopy:
        """Make `server` active for `database` with the next epoch, as one compare-and-swap.

        Raises `StaleEpoch`, `RegistryUnavailable`.
        """
        with self._open() as connection, transaction(connection):
            row = connection.execute("SELECT epoch FROM active WHERE database = ?", (database,)).fetchone()
            epoch = int(row[0]) if row else 0
            if expected_epoch is not None and expected_epoch != epoch:
                raise StaleEpoch(f"{database} is at epoch {epoch}, not {expected_epoch}")
            connection.execute(
                "INSERT INTO active VALUES (?1, ?2, ?3, ?4)"
                " ON CONFLICT DO UPDATE SET server = ?2, epoch = ?3, changed = ?4",
                (database, server, epoch + 1, int(time.time())),
            )
            connection.execute("UPDATE state SET revision = revision + 1")
        return ActiveCopy(database, server, epoch + 1)

    def set_organization_version(self, version: int) -> None:
        """Record the organization's current version. Raises `RegistryUnavailable`."""
        with self._open() as connection, transaction(connection):
            connection.execute("UPDATE state SET organization_version = ?, revision = revision + 1", (version,))

    @contextmanager
    def _open(self) -> Iterator[apsw.Connection]:
        with registry_faults(self._path):
            connection = open_for_writing(self._path, SCHEMA)
            try:
                yield connection
            finally:
                close_after_writing(connection)


class SqliteRegistryWatch:
    """The `RegistryWatch` of a worker. When the file cannot be read the last view stays, and `stale` is True.

    The file has the last word: after it was replaced by an older one, workers follow it, and the log says so. Only
    databases that it has lost altogether keep what was last known of them.
    """

    def __init__(self, path: str, loop: asyncio.AbstractEventLoop, interval: float = INTERVAL_SECONDS) -> None:
        self._path = path
        self._store = Store(path, SCHEMA)
        self._view = RegistryView()
        self._callbacks: list[Callable[[RegistryView], None]] = []
        self._watch = Watch(
            self._store, loop, changed=self._changed, failed=self._failed, recovered=self._recovered, interval=interval
        )
        self._log = structlog.get_logger("gatepost")

    @property
    def view(self) -> RegistryView:
        """The last view seen, empty if there was none; never blocks."""
        return self._view

    @property
    def stale(self) -> bool:
        """Whether the file could not be read at the last look, so that the view may be out of date."""
        return self._watch.fault is not None

    def on_change(self, callback: Callable[[RegistryView], None]) -> None:
        """Have `callback` called on the event loop with every new view."""
        self._callbacks.append(callback)

    def start(self) -> None:
        """Read the view now and follow it. A missing or broken file is logged, not raised: it may come."""
        self._watch.start()

    def close(self) -> None:
        """Stop watching and let go of the file."""
        self._watch.stop()
        self._store.close()

    def _changed(self) -> None:
        with faults_of(self._path):
            found = _read_view(self._store.connection())
        before = self._view
        if found == before:
            return
        went_back = sorted(
            name for name, old in before.active.items() if found.active.get(name, _NEVER_ACTIVE).epoch < old.epoch
        )
        if went_back:
            self._log.error("registry.went_back", path=self._path, databases=went_back)
            known = MappingProxyType(dict(before.active) | dict(found.active))
            found = RegistryView(found.revision, known, found.organization_version)
        self._view = found
        for callback in self._callbacks:
            callback(found)

    def _failed(self, fault: StoreUnavailable) -> None:
        self._log.error("registry.unavailable", reason=str(fault))

    def _recovered(self) -> None:
        self._log.info("registry.available", path=self._path)


def organization_version(store: Store) -> int:
    """The organization's current version, from a store of `SCHEMA`. Raises `StoreUnavailable`."""
    with faults_of(store.path):
        row = store.connection().execute("SELECT organization_version FROM state").fetchone()
    return cast("tuple[int]", row)[0]


def _read_view(connection: apsw.Connection) -> RegistryView:
    """One consistent picture: both statements inside one read transaction."""
    connection.execute("BEGIN")
    try:
        state = connection.execute("SELECT revision, organization_version FROM state").fetchall()
        rows = connection.execute("SELECT database, server, epoch FROM active").fetchall()
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    revision, version = cast("tuple[int, int]", state[0])
    active = {database: ActiveCopy(database, server, epoch) for database, server, epoch in cast("list[_Row]", rows)}
    return RegistryView(revision, MappingProxyType(active), version)
