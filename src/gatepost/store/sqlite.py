"""One SQLite file: opened with the right settings, migrated, and noticed when it changes or is replaced.

    commands, supervisor ── open_for_writing ──┐
                                               ├── file, -wal, -shm
    workers ── Store.connection / Store.look ──┘

Every file is in WAL mode, so readers never wait for a writer. A `Store` is used by one thread of one process: open
it after a fork, never before. All faults of the file (missing, locked, corrupt, foreign, disk full) are
`StoreUnavailable`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import apsw

OLDEST_SQLITE = (3, 51, 3)
"""Older ones can corrupt a WAL file when several connections checkpoint at the same moment."""

WRITE_BUSY_SECONDS = 5.0
"""A writer waits this long for another one; every transaction here takes milliseconds, a large import a few seconds."""

READ_BUSY_SECONDS = 0.05
"""A reader waits only for recovery after a crash, and it may be on an event loop: it gives up soon."""

SYNCHRONOUS = "FULL"
"""A change that was acknowledged survives a power cut; only unit tests set less."""

OPEN_ATTEMPTS = 100
"""Changing a new file to WAL mode reports "busy" without waiting; attempts of 20 ms, two seconds in all."""


_NEVER_READ = -1
"""No data version of SQLite."""


class StoreUnavailable(ConnectionError):
    """The file cannot be used now. The message names it and says what to do."""


class StoreNotReady(StoreUnavailable):
    """The file is missing, still empty or of an older version: `open_for_writing` would make it usable."""


@dataclass(frozen=True, slots=True)
class Schema:
    """What a file holds. `application_id` marks it as ours; `migrations[n]` brings version n to version n + 1."""

    what: str
    application_id: int
    migrations: tuple[str, ...]
    made_by: str = "gatepost serve"
    """The command that makes a missing file, for the remedy."""

    @property
    def version(self) -> int:
        """The version that this program reads and writes."""
        return len(self.migrations)


def require_safe_sqlite(version: str) -> None:
    """Raises `StoreUnavailable` when SQLite `version` is too old to be shared by processes."""
    if tuple(int(part) for part in version.split(".")) < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        raise StoreUnavailable(f"SQLite {version} can corrupt shared files: install apsw {oldest} or later")


@contextmanager
def faults_of(path: str) -> Iterator[None]:
    """Turns every fault of SQLite into `StoreUnavailable`; violated constraints pass, their meaning is the caller's."""
    try:
        yield
    except apsw.ConstraintError:
        raise
    except (apsw.BusyError, apsw.LockedError) as error:
        raise StoreUnavailable(f"{path}: locked by another process for too long") from error
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise StoreUnavailable(f"{path}: damaged, restore it from a backup ({error})") from error
    except apsw.FullError as error:
        raise StoreUnavailable(f"{path}: the disk is full, nothing was changed") from error
    except apsw.Error as error:
        raise StoreUnavailable(f"{path}: {error}") from error


def open_for_writing(path: str, schema: Schema, busy_seconds: float = WRITE_BUSY_SECONDS) -> apsw.Connection:
    """A connection that may write; makes and migrates the file. Raises `StoreUnavailable`.

    A new file is readable by its owner alone. When root makes it, it gets the owner of its folder, so that workers
    that run as that account can use it (SQLite does the same for the files beside it).
    """
    require_safe_sqlite(apsw.sqlite_lib_version())
    with faults_of(path):
        try:
            _make_file(path)
        except OSError as error:
            raise StoreUnavailable(f"{path}: {_missing(path, schema, error) or error.strerror}") from error
        connection = _configured(path, busy_seconds)
        try:
            connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}; PRAGMA foreign_keys = ON")
            _refuse_foreign(connection, path, schema, may_be_empty=True)
            _write_ahead(connection)
            _migrate(connection, path, schema)
        except BaseException:
            connection.close()
            raise
        return connection


def close_after_writing(connection: apsw.Connection) -> None:
    """Close, with everything brought into the main file where nobody is in the way.

    At rest the file beside it is then empty, so that a plain copy of the main file is a backup and a plain move of a
    backup over it is a restore. The changes themselves are on the disk already.
    """
    with suppress(apsw.Error):
        connection.set_busy_timeout(int(READ_BUSY_SECONDS * 1000))  # a long listing elsewhere is not waited for
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close(True)


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """One atomic change: the write lock is taken first, so that what is read inside is what is changed."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            with suppress(apsw.Error):  # the fault that brought us here is the one to report
                connection.execute("ROLLBACK")


class Store:
    """A reader's hold on a file. It follows the path: a replaced file is opened anew at the next `look`."""

    def __init__(self, path: str, schema: Schema) -> None:
        self.path = path
        self._schema = schema
        self._connection: apsw.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._data_version = _NEVER_READ

    def connection(self) -> apsw.Connection:
        """The open connection; it never changes the contents. Raises `StoreUnavailable`."""
        return self._connection or self._open()

    def look(self) -> bool:
        """Whether anything was committed, or the file replaced, since the last look; takes a few µs.

        Raises `StoreUnavailable`. After a fault the file is opened anew at the next call, and that counts as a change.
        """
        try:
            connection = self._connection
            if connection is None or self._identity != self._identity_now():
                self.close()
                connection = self._open()
                self._data_version = self._read_data_version(connection)
                return True
            version = self._read_data_version(connection)
        except StoreUnavailable:
            self.close()
            raise
        changed = version != self._data_version
        self._data_version = version
        return changed

    def close(self) -> None:
        """Let go of the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(apsw.Error):  # a damaged file may fail to close; there is nothing left to do with it
                connection.close(True)

    def _open(self) -> apsw.Connection:
        require_safe_sqlite(apsw.sqlite_lib_version())
        identity = self._identity_now()
        with faults_of(self.path):
            connection = _configured(self.path, READ_BUSY_SECONDS)
            try:
                connection.execute("PRAGMA query_only = ON")
                _refuse_foreign(connection, self.path, self._schema, may_be_empty=False)
            except BaseException:
                connection.close(True)
                raise
        self._connection, self._identity, self._data_version = connection, identity, _NEVER_READ
        return connection

    def _identity_now(self) -> tuple[int, int]:
        try:
            status = os.stat(self.path)  # noqa: PTH116 - called ten times a second
        except FileNotFoundError as error:
            raise StoreNotReady(f"{self.path}: {_missing(self.path, self._schema, error)}") from error
        except OSError as error:
            raise StoreUnavailable(f"{self.path}: {error.strerror}") from error
        return status.st_dev, status.st_ino

    def _read_data_version(self, connection: apsw.Connection) -> int:
        with faults_of(self.path):
            return int(connection.pragma("data_version"))


def _missing(path: str, schema: Schema, error: OSError) -> str:
    """Words and remedy for a file that is not there; empty where `error` says something else."""
    if not isinstance(error, FileNotFoundError):
        return ""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        return f"No such folder; make {folder}, owned by the account that runs the front end"
    return f"{error.strerror}; {schema.made_by} makes it"


def _configured(path: str, busy_seconds: float) -> apsw.Connection:
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(int(busy_seconds * 1000))
    connection.execute("PRAGMA trusted_schema = OFF; PRAGMA journal_size_limit = 0")
    return connection


def _make_file(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    try:
        if os.geteuid() == 0:
            folder = Path(path).resolve().parent.stat()
            os.fchown(descriptor, folder.st_uid, folder.st_gid)
    finally:
        os.close(descriptor)


def _refuse_foreign(connection: apsw.Connection, path: str, schema: Schema, *, may_be_empty: bool) -> None:
    """Raises `StoreUnavailable` unless the file is ours and of a version that can be used."""
    version, application, empty = _marks(connection)
    if application == schema.application_id:
        if version > schema.version:
            raise StoreUnavailable(f"{path}: made by a newer Gatepost (version {version}, known: {schema.version})")
        if version < schema.version and not may_be_empty:
            raise StoreNotReady(f"{path}: an older version ({version}); any command that writes to it updates it")
        return
    if application != 0 or not empty:
        raise StoreUnavailable(f"{path}: not a Gatepost {schema.what}")
    if not may_be_empty:
        raise StoreNotReady(f"{path}: an empty file, not yet a {schema.what}")


def _marks(connection: apsw.Connection) -> tuple[int, int, bool]:
    """User version, application id and whether there are no tables, all as of one moment: others may be migrating."""
    begun = not connection.in_transaction
    if begun:
        connection.execute("BEGIN")
    try:
        version, application = int(connection.pragma("user_version")), int(connection.pragma("application_id"))
        return version, application, not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
    finally:
        if begun and connection.in_transaction:
            connection.execute("ROLLBACK")


def _write_ahead(connection: apsw.Connection) -> None:
    for attempt in range(OPEN_ATTEMPTS):
        try:
            if connection.pragma("journal_mode") != "wal":
                connection.pragma("journal_mode", "wal")
            return
        except apsw.BusyError:
            if attempt == OPEN_ATTEMPTS - 1:
                raise
            apsw.sleep(20)


def _migrate(connection: apsw.Connection, path: str, schema: Schema) -> None:
    if connection.pragma("user_version") == schema.version:
        return
    with transaction(connection):
        _refuse_foreign(connection, path, schema, may_be_empty=True)
        for script in schema.migrations[int(connection.pragma("user_version")) :]:
            connection.execute(script)
        connection.pragma("application_id", schema.application_id)
        connection.pragma("user_version", schema.version)
