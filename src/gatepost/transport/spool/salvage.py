"""Take over what can be read from a spool whose database is damaged, into another one: the way on that `opening` names.

Rows are read in ranges; a range that meets a damaged page is halved until single messages are left out. Messages get
new numbers. The damaged spool keeps everything: its large contents are linked or copied.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import apsw
import msgspec

from gatepost.store.sqlite import faults_of
from gatepost.transport.message import Envelope
from gatepost.transport.spool.aside import Moves, Rows
from gatepost.transport.spool.database import Database, Group
from gatepost.transport.spool.layout import DirectoryLock, Layout, sync_directory
from gatepost.transport.spool.opening import open_spool
from gatepost.transport.spool.writing import BLOCK

STEP = 256
"""Messages read and written at a time; with the largest small content 16 MiB."""

Row = tuple[int, bytes, bytes | None, int | None, int]
"""Number, envelope, small content, size of a large one, checksum."""


@dataclass(frozen=True, slots=True)
class Salvaged:
    """How it went. `lost` are numbers in the damaged spool that had a message, or may have had one."""

    taken: int
    lost: tuple[int, ...]


def salvage(damaged: Path, into: Path, reserve_bytes: int = 0) -> Salvaged:
    """Neither may be in use. Raises `SpoolInUse`, `StoreUnavailable` (also where nothing can be read), OSError."""
    source = Layout(damaged)
    source_lock = DirectoryLock()
    source_lock.take(source)
    try:
        opened = open_spool(Layout(into), reserve_bytes)
        number = None
        try:
            with faults_of(str(source.database)):
                connection = apsw.Connection(str(source.database), flags=apsw.SQLITE_OPEN_READWRITE)
                try:
                    taken, lost = _take_all(connection, source, opened.layout, opened.database)
                finally:
                    connection.close(True)
            number = opened.database.first_number + taken
        finally:
            opened.database.close(number)
            _give_to_owner(into)
            opened.in_hand.close()
            opened.lock.release()
    finally:
        source_lock.release()
    return Salvaged(taken, tuple(lost))


def _give_to_owner(directory: Path) -> None:
    """Root salvages, and an account of its own runs the hub: whoever owns the directory."""
    if os.geteuid() == 0:
        owner = directory.stat()
        for path in directory.rglob("*"):
            os.chown(path, owner.st_uid, owner.st_gid)


def _take_all(connection: apsw.Connection, source: Layout, target: Layout, database: Database) -> tuple[int, list[int]]:
    lost: list[int] = []
    taken = 0
    tables = [table for table in ("message", "aside") if _has(connection, table)]
    at, end = _bounds(connection, tables)
    while at <= end:
        group = Group(moves=Moves())
        last = min(at + STEP - 1, end)
        found = {table: list(_readable(connection, table, at, last, lost)) for table in tables}
        kept = _kept_for(connection, at, last) if found.get("aside") else {}
        for table, rows in found.items():
            for old, envelope, body, size, crc in rows:
                number = database.first_number + taken
                if table == "aside" and old not in kept:
                    lost.append(old)
                elif body is not None:
                    group.contents.append((number, body))
                elif size is not None and _copy(source.file(old), target.file(number), size, crc):
                    group.files.append((number, size, crc))
                else:
                    lost.append(old)
                if lost and lost[-1] == old:
                    continue
                _add(group, table, number, envelope, kept.get(old))
                taken += 1
        sync_directory(target.content)
        database.apply(group)
        at = _next(connection, tables, last + 1, end)
    database.apply(Group(moves=Moves(discards=_discards(connection))))
    return taken, sorted(set(lost))


def _add(group: Group, table: str, number: int, envelope: bytes, kept: Rows | None) -> None:
    if table == "message" or group.moves is None or kept is None:
        group.messages.append((number, envelope))
        return
    group.moves.new.append((number, envelope))
    group.moves.new_rows.append(
        Rows([(number, *row[1:]) for row in kept.shadows], [(number, *row[1:]) for row in kept.safety_net])
    )


def _has(connection: apsw.Connection, table: str) -> bool:
    """Spools of the first version have fewer; one that cannot tell has them all."""
    with suppress(apsw.Error):
        return bool(connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (table,)).fetchall())
    return True


def _bounds(connection: apsw.Connection, tables: Sequence[str]) -> tuple[int, int]:
    """Between which numbers to look. Raises `apsw.Error` when nothing at all can be read."""
    first, last = 1, 0
    with suppress(apsw.Error):
        rows: list[tuple[Any, ...]] = connection.execute("SELECT next FROM spool").fetchall()
        last = rows[0][0] - 1
    try:
        least, most = [], []
        for table in tables:
            rows = connection.execute(f"SELECT min(number), max(number) FROM {table}").fetchall()  # noqa: S608 - ours
            least += [row[0] for row in rows if row[0] is not None]
            most += [row[1] for row in rows if row[1] is not None]
        first = max(1, min(least, default=1))
        # A damaged page has numbers that never were.
        last = min(last or max(most, default=0), max(most, default=0))
    except apsw.Error:
        if not last:
            raise
    return first, last


def _next(connection: apsw.Connection, tables: Sequence[str], at: int, end: int) -> int:
    """The first number from `at` on that has a message, where that can be read: gaps are large."""
    found = []
    try:
        for table in tables:
            rows: list[tuple[Any, ...]] = connection.execute(
                f"SELECT min(number) FROM {table} WHERE number >= ?",  # noqa: S608 - ours
                (at,),
            ).fetchall()
            found += [row[0] for row in rows if row[0] is not None]
    except apsw.Error:
        return at
    if not found:
        return end + 1
    return min(found) if at <= min(found) <= end else at


def _contents(connection: apsw.Connection, first: int, last: int) -> set[int]:
    """Numbers that must have a message in the queue: those of a damaged page are passed over without a word."""
    kept = "AND number NOT IN (SELECT number FROM aside)" if _has(connection, "aside") else ""
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT number FROM (SELECT number FROM content UNION ALL SELECT number FROM file) "  # noqa: S608 - ours
        f"WHERE number BETWEEN ? AND ? AND number NOT IN (SELECT number FROM quarantined) {kept}",
        (first, last),
    ).fetchall()
    return {row[0] for row in rows}


def _kept_for(connection: apsw.Connection, first: int, last: int) -> dict[int, Rows]:
    """For what the messages of these numbers are kept, as far as that can be read."""
    found: dict[int, Rows] = {}
    with suppress(apsw.Error):
        rows: list[tuple[Any, ...]] = connection.execute(
            "SELECT number, key, server, identity, until FROM shadow WHERE number BETWEEN ? AND ?", (first, last)
        ).fetchall()
        for row in rows:
            found.setdefault(row[0], Rows()).shadows.append(row)
    with suppress(apsw.Error):
        rows = connection.execute(
            "SELECT number, key, server, identity, until, at, databases FROM safety_net WHERE number BETWEEN ? AND ?",
            (first, last),
        ).fetchall()
        for row in rows:
            found.setdefault(row[0], Rows()).safety_net.append(row)
    return found


def _discards(connection: apsw.Connection) -> dict[tuple[str, str], tuple[int, bytes] | None]:
    with suppress(apsw.Error):
        rows: list[tuple[Any, ...]] = connection.execute("SELECT server, token, noted, event FROM discard").fetchall()
        return {(row[0], row[1]): (row[2], row[3]) for row in rows}
    return {}


def _readable(connection: apsw.Connection, table: str, first: int, last: int, lost: list[int]) -> Iterator[Row]:
    try:
        rows: list[tuple[Any, ...]] = connection.execute(
            f"SELECT t.number, envelope, body, size, coalesce(content.crc, file.crc, 0) FROM {table} AS t "  # noqa: S608
            "LEFT JOIN content USING (number) LEFT JOIN file USING (number) WHERE t.number BETWEEN ? AND ? "
            "ORDER BY t.number",
            (first, last),
        ).fetchall()
        whole = table != "message" or _contents(connection, first, last) <= {row[0] for row in rows}
    except apsw.Error:
        rows, whole = [], False
    if not whole and first < last:
        middle = (first + last) // 2
        yield from _readable(connection, table, first, middle, lost)
        yield from _readable(connection, table, middle + 1, last, lost)
        return
    if not whole:
        lost.append(first)
        return
    for number, envelope, body, size, crc in rows:
        try:
            msgspec.msgpack.decode(envelope, type=Envelope)
        except (msgspec.DecodeError, TypeError):
            lost.append(number)
            continue
        if body is not None and crc32(body) != crc:
            lost.append(number)
        else:
            yield number, envelope, body, size, crc


def _copy(old: Path, new: Path, size: int, crc: int) -> bool:
    """The content under its new name and on disk; False: it is not whole. Raises OSError of the target's disk."""
    try:
        found = 0
        left = size
        with old.open("rb") as file:
            while left and (data := file.read(min(left, BLOCK))):
                found = crc32(data, found)
                left -= len(data)
        if left or found != crc:
            return False
    except OSError:
        return False
    try:
        new.hardlink_to(old)
    except OSError:  # another file system
        shutil.copyfile(old, new)
    descriptor = os.open(new, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True
