"""Take over what can be read from a spool whose database is damaged, into another one: the way on that `opening` names.

Rows are read in ranges; a range that meets a damaged page is halved until single messages are left out. Messages get
new numbers. The damaged spool keeps everything: its large contents are linked or copied.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import apsw
import msgspec

from gatepost.store.sqlite import faults_of
from gatepost.transport.message import Envelope
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
    at, end = _bounds(connection)
    while at <= end:
        group = Group()
        for old, envelope, body, size, crc in _found(connection, at, min(at + STEP - 1, end), lost):
            number = database.first_number + taken
            if body is not None:
                group.contents.append((number, body))
            elif size is not None and _copy(source.file(old), target.file(number), size, crc):
                group.files.append((number, size, crc))
            else:
                lost.append(old)
                continue
            group.messages.append((number, envelope))
            taken += 1
        sync_directory(target.content)
        database.apply(group)
        at = _next(connection, min(at + STEP, end + 1), end)
    return taken, sorted(set(lost))


def _bounds(connection: apsw.Connection) -> tuple[int, int]:
    """Between which numbers to look. Raises `apsw.Error` when nothing at all can be read."""
    first, last = 1, 0
    with suppress(apsw.Error):
        rows: list[tuple[Any, ...]] = connection.execute("SELECT next FROM spool").fetchall()
        last = rows[0][0] - 1
    try:
        rows = connection.execute("SELECT min(number), max(number) FROM message").fetchall()
        first, last = rows[0][0] or 1, rows[0][1] or 0
    except apsw.Error:
        if not last:
            raise
    return first, last


def _next(connection: apsw.Connection, at: int, end: int) -> int:
    """The first number from `at` on that has a message or a content, where that can be read: gaps are large."""
    found = [end + 1]
    for table in ("message", "content", "file"):
        try:
            statement = f"SELECT min(number) FROM {table} WHERE number >= ?"  # noqa: S608 - names of ours
            rows: list[tuple[Any, ...]] = connection.execute(statement, (at,)).fetchall()
        except apsw.Error:
            return at
        if rows[0][0] is not None:
            found.append(int(rows[0][0]))
    return min(found)


def _found(connection: apsw.Connection, first: int, last: int, lost: list[int]) -> list[Row]:
    """What can be read of a range. A damaged number among the messages ends a scan without a word, so those that have
    a content and were not met are looked for one by one."""
    rows = list(_readable(connection, first, last, lost))
    known = {row[0] for row in rows}.union(lost)
    for number in sorted(_with_content(connection, first, last) - known):
        alone = list(_readable(connection, number, number, lost))
        rows += alone
        if not alone:
            lost.append(number)
    return rows


def _with_content(connection: apsw.Connection, first: int, last: int) -> set[int]:
    """Numbers of a range that have a content, or may have one, and belong to the queue."""
    found = _numbers(connection, "content", first, last) | _numbers(connection, "file", first, last)
    for table in ("quarantined", "aside"):
        with suppress(apsw.SQLError):  # the last is missing in a file of an older version
            found -= _numbers(connection, table, first, last, unreadable=False)
    return found


def _numbers(connection: apsw.Connection, table: str, first: int, last: int, *, unreadable: bool = True) -> set[int]:
    """Those of a range that are in a table; with `unreadable` those too of which that cannot be told."""
    statement = f"SELECT number FROM {table} WHERE number BETWEEN ? AND ?"  # noqa: S608 - names of ours
    try:
        rows: list[tuple[Any, ...]] = connection.execute(statement, (first, last)).fetchall()
    except apsw.CorruptError:
        if first == last:
            return {first} if unreadable else set()
        middle = (first + last) // 2
        low = _numbers(connection, table, first, middle, unreadable=unreadable)
        return low | _numbers(connection, table, middle + 1, last, unreadable=unreadable)
    return {row[0] for row in rows}


def _readable(connection: apsw.Connection, first: int, last: int, lost: list[int]) -> Iterator[Row]:
    try:
        rows: list[tuple[Any, ...]] = connection.execute(
            "SELECT message.number, envelope, body, size, coalesce(content.crc, file.crc, 0) FROM message "
            "LEFT JOIN content USING (number) LEFT JOIN file USING (number) WHERE message.number BETWEEN ? AND ? "
            "ORDER BY message.number",
            (first, last),
        ).fetchall()
    except apsw.Error:
        if first == last:
            lost.append(first)
            return
        middle = (first + last) // 2
        yield from _readable(connection, first, middle, lost)
        yield from _readable(connection, middle + 1, last, lost)
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
