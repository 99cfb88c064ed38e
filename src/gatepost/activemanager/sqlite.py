"""The embedded registry: one SQLite file for all front ends and commands of one machine (SPEC A1, A3, A4)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar, cast

import apsw

from gatepost.activemanager import boot_clock
from gatepost.activemanager.boot_clock import Moment
from gatepost.activemanager.port import (
    HISTORY_KEPT,
    LOSSES_KEPT,
    Dial,
    Happened,
    HistoryEntry,
    Lease,
    LeaseLost,
    Move,
    Observation,
    RegistryView,
    ServerWord,
    StaleEpoch,
)
from gatepost.activemanager.sqlite_reading import read_history, read_lease, read_view
from gatepost.activemanager.sqlite_schema import SCHEMA, count_change, registry_faults
from gatepost.routing.decision import ActiveCopy
from gatepost.store.sqlite import Store, StoreNotReady, close_after_writing, open_for_writing, transaction

Result = TypeVar("Result")


class SqliteRegistry:
    """The `OwnedRegistry` of one machine. Each call opens the file anew, so a replaced file is no matter.

    Leases are measured by the time since boot, which no step of the wall clock changes; one of another boot is over.
    """

    def __init__(self, path: str, clock: Callable[[], Moment] = boot_clock.now) -> None:
        self._path = path
        self._clock = clock

    def view(self) -> RegistryView:
        """As `Registry.view`; makes the file where there is none."""
        return self._read(lambda connection: read_view(connection, self._clock()))

    def history(self, database: str | None = None) -> list[HistoryEntry]:
        """As `OwnedRegistry.history`."""
        return self._read(lambda connection: read_history(connection, database))

    def activate(
        self,
        database: str,
        server: str,
        expected_epoch: int | None = None,
        lease: Lease | None = None,
        lost_seconds: float | None = None,
    ) -> ActiveCopy:
        """As `Registry.activate`: lease and epoch are looked at in the transaction that makes the change."""
        with self._change() as connection:
            self._require(connection, lease)
            epoch = _epoch(connection, database)
            if expected_epoch is not None and expected_epoch != epoch:
                raise StaleEpoch(f"{database} is at epoch {epoch}, not {expected_epoch}")
            now = time.time()
            connection.execute(
                "INSERT INTO active VALUES (?1, ?2, ?3, ?4)"
                " ON CONFLICT DO UPDATE SET server = ?2, epoch = ?3, changed = ?4",
                (database, server, epoch + 1, int(now)),
            )
            connection.execute("DELETE FROM moves WHERE database = ?", (database,))
            entry = (Happened.ACTIVATED.value, database, epoch + 1)
            if lost_seconds is not None:
                _lose(connection, database, epoch + 1, now - lost_seconds, now)
            _record(connection, entry, now, server, lease)
        return ActiveCopy(database, server, epoch + 1)

    def begin_move(self, move: Move, lease: Lease | None = None) -> None:
        """As `Registry.begin_move`."""
        with self._change() as connection:
            self._require(connection, lease)
            epoch = _epoch(connection, move.database)
            if epoch != move.epoch:
                raise StaleEpoch(f"{move.database} is at epoch {epoch}, not {move.epoch}")
            row = (move.database, move.source, move.target, move.epoch, move.started, move.reason)
            if not _changed(connection, "INSERT OR IGNORE INTO moves VALUES (?, ?, ?, ?, ?, ?)", row):
                raise StaleEpoch(f"a move of {move.database} is under way already")
            count_change(connection)

    def end_move(self, database: str, lease: Lease | None = None, move: Move | None = None) -> None:
        """As `Registry.end_move`."""
        sql = "DELETE FROM moves WHERE database = ?"
        values: list[str | int] = [database]
        if move is not None:
            sql += " AND target = ? AND epoch = ? AND reason = ?"
            values += [move.target, move.epoch, move.reason]
        with self._change() as connection:
            self._require(connection, lease)
            if _changed(connection, sql, tuple(values)):
                count_change(connection)

    def set_word(self, server: str, word: ServerWord) -> None:
        """As `Registry.set_word`."""
        self._set("words", "server", server, None if word is ServerWord.UP else word.value)

    def set_dial(self, database: str, dial: Dial) -> None:
        """As `Registry.set_dial`."""
        self._set("dials", "database", database, None if dial is Dial.GOOD_AVAILABILITY else dial.value)

    def set_blocked(self, database: str, server: str, *, blocked: bool) -> None:
        """As `Registry.set_blocked`."""
        sql = "INSERT OR IGNORE INTO blocked VALUES (?, ?)"
        if not blocked:
            sql = "DELETE FROM blocked WHERE database = ? AND server = ?"
        with self._change() as connection:
            if _changed(connection, sql, (database, server)):
                count_change(connection)

    def observe(self, observations: list[Observation], lease: Lease) -> None:
        """As `Registry.observe`."""
        sql = (
            "INSERT INTO observed VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE SET"
            " healthy = ?3, since = ?4, reason = ?5 WHERE (healthy, since, reason) IS NOT (?3, ?4, ?5)"
        )
        with self._change() as connection:
            self._require(connection, lease)
            news = 0
            for seen in observations:
                row = (seen.server, seen.service, int(seen.healthy), float(seen.since), seen.reason)
                news += _changed(connection, sql, row)
            if news:
                count_change(connection)

    def take_lease(self, name: str, holder: str, seconds: float) -> Lease | None:
        """As `Registry.take_lease`."""
        with self._change() as connection:
            now = self._clock()
            if read_lease(connection, name, now) is not None:
                return None
            row = connection.execute("SELECT term FROM leases WHERE name = ?", (name,)).fetchone()
            term = 1 + (cast("tuple[int]", row)[0] if row else 0)
            lease = Lease(name, holder, term, float(seconds), secrets.token_hex(8))
            connection.execute(
                "INSERT INTO leases VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO UPDATE SET"
                " holder = ?2, term = ?3, seconds = ?4, token = ?5, boot = ?6, until = ?7",
                (name, holder, term, lease.seconds, lease.token, now.boot, now.seconds + lease.seconds),
            )
            _record(connection, (Happened.LEASED.value, name, term), time.time(), "", lease)
        return lease

    def keep_lease(self, lease: Lease) -> None:
        """As `Registry.keep_lease`. No view changes by it."""
        with self._change() as connection:
            now = self._require(connection, lease)
            connection.execute("UPDATE leases SET until = ? WHERE name = ?", (now.seconds + lease.seconds, lease.name))

    def give_lease_back(self, lease: Lease) -> None:
        """As `Registry.give_lease_back`."""
        sql = "UPDATE leases SET until = 0 WHERE name = ? AND term = ? AND token = ? AND until > 0"
        with self._change() as connection:
            if _changed(connection, sql, (lease.name, lease.term, lease.token)):
                count_change(connection)

    def set_organization_version(self, version: int) -> None:
        """As `Registry.set_organization_version`."""
        with self._change() as connection:
            connection.execute("UPDATE state SET organization_version = ?", (version,))
            count_change(connection)

    def close(self) -> None:
        """As `OwnedRegistry.close`: nothing is open between two calls."""

    def _set(self, table: str, key: str, name: str, word: str | None) -> None:
        """A word of the operator's; None takes it away, which is the default."""
        with self._change() as connection:
            if word is None:
                changed = _changed(connection, f"DELETE FROM {table} WHERE {key} = ?", (name,))  # noqa: S608 - ours
            else:
                sql = f"INSERT OR REPLACE INTO {table} VALUES (?, ?)"  # noqa: S608 - ours
                changed = _changed(connection, sql, (name, word))
            if changed:
                count_change(connection)

    def _require(self, connection: apsw.Connection, lease: Lease | None) -> Moment:
        """The present moment, at which `lease`, if any, is held. Raises `LeaseLost`."""
        now = self._clock()
        if lease is not None:
            held = read_lease(connection, lease.name, now)
            if held is None or (held.term, held.token) != (lease.term, lease.token):
                by = f"{held.holder} holds it, term {held.term}" if held else "nobody holds it"
                raise LeaseLost(f"the lease {lease.name} of {lease.holder}, term {lease.term}, is over: {by}")
        return now

    def _read(self, read: Callable[[apsw.Connection], Result]) -> Result:
        store = Store(self._path, SCHEMA)
        try:
            with registry_faults(self._path), suppress(StoreNotReady):
                return read(store.connection())
        finally:
            store.close()
        with self._open() as connection:
            return read(connection)

    @contextmanager
    def _change(self) -> Iterator[apsw.Connection]:
        with self._open() as connection, transaction(connection):
            yield connection

    @contextmanager
    def _open(self) -> Iterator[apsw.Connection]:
        with registry_faults(self._path):
            connection = open_for_writing(self._path, SCHEMA)
            try:
                yield connection
            finally:
                close_after_writing(connection)


def _epoch(connection: apsw.Connection, database: str) -> int:
    row = connection.execute("SELECT epoch FROM active WHERE database = ?", (database,)).fetchone()
    return cast("tuple[int]", row)[0] if row else 0


def _lose(connection: apsw.Connection, database: str, epoch: int, since: float, until: float) -> None:
    """Record a lossy activation; those that are too old are forgotten."""
    connection.execute("INSERT INTO losses VALUES (?, ?, ?, ?)", (database, epoch, since, until))
    connection.execute(
        "DELETE FROM losses WHERE database = ?1 AND epoch NOT IN"
        " (SELECT epoch FROM losses WHERE database = ?1 ORDER BY epoch DESC LIMIT ?2)",
        (database, LOSSES_KEPT),
    )


def _changed(connection: apsw.Connection, sql: str, values: tuple[str | int | float, ...]) -> bool:
    """Whether the statement changed anything."""
    connection.execute(sql, values)
    return connection.changes() > 0


def _record(
    connection: apsw.Connection, entry: tuple[str, str, int], now: float, server: str, lease: Lease | None
) -> None:
    """Count the change up and add it to the history; what is too old there is forgotten."""
    what, name, number = entry
    holder, term = (lease.holder, lease.term) if lease else ("", 0)
    values = (what, name, number, count_change(connection), now, server, holder, term)
    connection.execute("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
    old = (what, name, number - HISTORY_KEPT)
    connection.execute("DELETE FROM history WHERE what = ? AND name = ? AND number <= ?", old)
