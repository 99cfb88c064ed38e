"""What the embedded registry's file says: the view and the history."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import cast

import apsw

from gatepost.activemanager.boot_clock import Moment
from gatepost.activemanager.port import (
    MANAGER,
    Dial,
    Happened,
    HistoryEntry,
    Lease,
    Loss,
    Move,
    Observation,
    RegistryView,
    ServerWord,
)
from gatepost.routing.decision import ActiveCopy
from gatepost.store.sqlite import Store, faults_of

_ActiveRow = tuple[str, str, int]
_MoveRow = tuple[str, str, str, int, float, str]
_ObservedRow = tuple[str, str, int, float, str]
_LeaseRow = tuple[str, str, int, float, str, str, float]
_LossRow = tuple[str, int, float, float]
_HistoryRow = tuple[str, str, int, int, float, str, str, int]


@contextmanager
def reading(connection: apsw.Connection) -> Iterator[None]:
    """All statements inside see the file as of one moment."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def organization_version(store: Store) -> int:
    """The organization's current version, from a store of `SCHEMA`. Raises `StoreUnavailable`."""
    with faults_of(store.path):
        row = store.connection().execute("SELECT organization_version FROM state").fetchone()
    return cast("tuple[int]", row)[0]


def state_mark(connection: apsw.Connection) -> tuple[int, int]:
    """Revision and stamp: as long as both stay, so does the view. A few µs."""
    row = connection.execute("SELECT revision, stamp FROM state").fetchone()
    return cast("tuple[int, int]", row)


def read_view(connection: apsw.Connection, now: Moment) -> RegistryView:
    """One consistent picture. Raises `apsw.Error`."""
    with reading(connection):
        state = connection.execute("SELECT revision, organization_version FROM state").fetchone()
        revision, version = cast("tuple[int, int]", state)
        active = connection.execute("SELECT database, server, epoch FROM active").fetchall()
        moves = connection.execute("SELECT database, source, target, epoch, started, reason FROM moves").fetchall()
        words = connection.execute("SELECT server, word FROM words").fetchall()
        blocked = connection.execute("SELECT database, server FROM blocked").fetchall()
        dials = connection.execute("SELECT database, dial FROM dials").fetchall()
        observed = connection.execute("SELECT server, service, healthy, since, reason FROM observed").fetchall()
        manager = read_lease(connection, MANAGER, now)
        lost = connection.execute(
            "SELECT database, epoch, since, until FROM losses ORDER BY database, epoch"
        ).fetchall()
    observations = [_observation(row) for row in cast("list[_ObservedRow]", observed)]
    return RegistryView(
        revision,
        MappingProxyType({row[0]: ActiveCopy(*row) for row in cast("list[_ActiveRow]", active)}),
        version,
        MappingProxyType({row[0]: Move(*row) for row in cast("list[_MoveRow]", moves)}),
        MappingProxyType({server: ServerWord(word) for server, word in cast("list[tuple[str, str]]", words)}),
        frozenset(cast("list[tuple[str, str]]", blocked)),
        MappingProxyType({database: Dial(dial) for database, dial in cast("list[tuple[str, str]]", dials)}),
        MappingProxyType({(seen.server, seen.service): seen for seen in observations}),
        manager,
        _losses(cast("list[_LossRow]", lost)),
    )


def read_lease(connection: apsw.Connection, name: str, now: Moment) -> Lease | None:
    """The lease of that name, while somebody holds it."""
    found = connection.execute(
        "SELECT name, holder, term, seconds, token, boot, until FROM leases WHERE name = ?", (name,)
    ).fetchone()
    if found is None:
        return None
    _, holder, term, seconds, token, boot, until = cast(_LeaseRow, found)
    if boot != now.boot or until <= now.seconds:
        return None
    return Lease(name, holder, term, seconds, token)


def read_history(connection: apsw.Connection, database: str | None) -> list[HistoryEntry]:
    """What happened, oldest first: to one database or, with None, altogether."""
    sql = "SELECT what, name, number, revision, time, server, holder, term FROM history"
    if database is None:
        rows = connection.execute(f"{sql} ORDER BY revision").fetchall()
    else:
        wanted = (Happened.ACTIVATED.value, database)
        rows = connection.execute(f"{sql} WHERE what = ? AND name = ? ORDER BY revision", wanted).fetchall()
    return [_entry(row) for row in cast("list[_HistoryRow]", rows)]


def _losses(rows: list[_LossRow]) -> MappingProxyType[str, tuple[Loss, ...]]:
    found: dict[str, tuple[Loss, ...]] = {}
    for row in rows:
        found[row[0]] = (*found.get(row[0], ()), Loss(*row))
    return MappingProxyType(found)


def _observation(row: _ObservedRow) -> Observation:
    server, service, healthy, since, reason = row
    return Observation(server, service, bool(healthy), since, reason)


def _entry(row: _HistoryRow) -> HistoryEntry:
    what, name, number, revision, time, server, holder, term = row
    if what == Happened.LEASED:
        return HistoryEntry(revision, time, Happened.LEASED, "", name, 0, holder, term)
    return HistoryEntry(revision, time, Happened(what), name, server, number, holder, term)
