"""The SQLite file of a spool, as the one thread that writes to it sees it: whole groups, each on disk or not at all.

Contents are in a table of their own: reading all envelopes does not read them, and an update does not write them
anew. Each has a checksum (CRC-32), since SQLite's pages bear none.
What a statement does for one message it does for many: each step of SQLite lets go of Python's lock and must get it
back from a busy event loop, so few steps matter more than short ones.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import apsw

from gatepost.store.sqlite import (
    Schema,
    StoreUnavailable,
    close_after_writing,
    faults_of,
    open_for_writing,
    transaction,
)
from gatepost.transport.shadow.ports import Kept
from gatepost.transport.spool import aside
from gatepost.transport.spool.layout import Layout

T = TypeVar("T")

SCHEMA = Schema(
    "mail spool",
    0x67705371,  # gpSq
    (
        """
        CREATE TABLE message (number INTEGER PRIMARY KEY, envelope BLOB NOT NULL);
        CREATE TABLE content (number INTEGER PRIMARY KEY, crc INTEGER NOT NULL, body BLOB NOT NULL);
        CREATE TABLE file (number INTEGER PRIMARY KEY, size INTEGER NOT NULL, crc INTEGER NOT NULL);
        CREATE TABLE fact (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
        CREATE TABLE quarantined (
            number INTEGER PRIMARY KEY, envelope BLOB NOT NULL, reason TEXT NOT NULL, at REAL NOT NULL
        );
        CREATE TABLE spool (
            one INTEGER PRIMARY KEY CHECK (one = 1), identity TEXT NOT NULL, next INTEGER NOT NULL,
            closed INTEGER NOT NULL
        );
        CREATE TRIGGER gone AFTER DELETE ON message BEGIN DELETE FROM content WHERE number = OLD.number; END;
        """,
        aside.MIGRATION,
    ),
    made_by="the hub",
)

PAGE = 4096
"""Bytes: of the sizes measured, the least is written to disk for a message with this one."""
NUMBERS_AHEAD = 1_000_000
"""Numbers that are taken on disk at once; after a crash those that were not used are skipped."""
CACHE_KIB = 16_384
"""SQLite's pages in memory: the inner pages of a few million rows."""
KEPT_FREE_PAGES = 16_384
"""64 MiB of free pages are kept for new messages; more go back to the file system."""
GIVEN_BACK_PAGES = 512
"""At a time: a millisecond or two."""
_SIZES = (64, 32, 16, 8, 4, 2, 1)
"""Rows of one statement: any number of rows is a few of these, and each text is prepared once."""


@dataclass(slots=True)
class Group:
    """What one transaction changes. Envelopes are encoded."""

    messages: list[tuple[int, bytes]] = field(default_factory=list)
    contents: list[tuple[int, bytes]] = field(default_factory=list)
    files: list[tuple[int, int, int]] = field(default_factory=list)
    """Number, size and checksum; the file itself is on disk."""
    updates: dict[int, bytes] = field(default_factory=dict)
    removals: list[int] = field(default_factory=list)
    facts: dict[str, bytes | None] = field(default_factory=dict)
    quarantined: list[tuple[int, str]] = field(default_factory=list)
    """Number and reason."""
    resumed: list[int] = field(default_factory=list)
    """Quarantined ones that are messages again."""
    forgotten: list[int] = field(default_factory=list)
    """Quarantined ones that are not kept any longer."""
    asides: list[tuple[int, bytes]] = field(default_factory=list)
    """New messages that are kept and not queued, and `kept`: for what, with the time of their delivery."""
    kept: list[tuple[Kept, float]] = field(default_factory=list)
    set_aside: dict[int, bytes] = field(default_factory=dict)
    set_aside_for: dict[int, Sequence[tuple[Kept, float]]] = field(default_factory=dict)
    taken_back: dict[int, bytes] = field(default_factory=dict)
    let_go: list[tuple[int, str]] = field(default_factory=list)
    """Number and key."""
    discards: dict[tuple[str, str], bytes | None] = field(default_factory=dict)
    """Events by server and token; None: it is forgotten."""
    probed: bool = False
    """Write something in any case, to see whether the disk takes it."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What groups have done: there are `fewer` messages and `aside` more that are kept; `files` are the numbers of
    those gone that had a file. New ones are not counted."""

    fewer: int = 0
    files: tuple[int, ...] = ()
    aside: int = 0


class Database:
    """Opened, used and closed by one thread at a time. Faults are those of SQLite (`apsw.Error`), but for `open`."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._path = str(layout.database)
        self._files = 0
        self._reserved = 0
        self.identity = ""
        self.first_number = 0
        """The first that may be used."""
        self.closed_well = True
        """Whether the last process that had the spool closed it."""
        self.count = 0
        """Messages of the queue."""
        self.aside = 0
        """Messages that are kept beside it."""
        self.journal_bytes = 0
        """Size of the write-ahead log that is not yet in the main file."""
        self.free_bytes = 0
        """Within the main file, as of the last `tidy`."""
        self.connection = self._open()

    def _open(self) -> apsw.Connection:
        _make(self._path)
        connection = open_for_writing(self._path, SCHEMA)
        try:
            with faults_of(self._path):
                connection.execute(
                    f"PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = -1; PRAGMA cache_size = -{CACHE_KIB}"
                )
                connection.set_wal_hook(self._written)
        except BaseException:
            connection.close(True)
            raise
        return connection

    def _written(self, _: apsw.Connection, __: str, pages: int) -> int:
        self.journal_bytes = pages * PAGE
        return apsw.SQLITE_OK

    def begin(self) -> None:
        """Read what the spool is, and take numbers. Raises `StoreUnavailable`."""
        with faults_of(self._path), transaction(self.connection):
            row = self.connection.execute("SELECT identity, next, closed FROM spool").fetchone()
            if row is None:
                row = (uuid.uuid4().hex, 1, 1)
                self.connection.execute("INSERT INTO spool VALUES (1, ?, ?, ?)", row)
            self.identity, self.first_number, self.closed_well = str(row[0]), int(row[1]), bool(row[2])
            self._reserved = self.first_number + NUMBERS_AHEAD
            self.connection.execute("UPDATE spool SET next = ?, closed = 0", (self._reserved,))

    def check(self) -> list[str]:
        """What is wrong with the file; empty: nothing. Reads every page of the queue's tables but the contents'.

        What is kept aside, days of mail in the safety net, is met when it is read.
        """
        tables = ("message", "file", "fact", "spool", "quarantined", "shadow", "discard")
        try:
            found = [row[0] for t in tables for row in self.connection.execute(f"PRAGMA quick_check('{t}')").fetchall()]
        except apsw.Error as fault:
            return [str(fault)]
        return [str(word) for word in found if word != "ok"]

    def counted(self) -> None:
        """Count what is there, at start and after the file was opened anew."""
        counts: list[tuple[Any, ...]] = self.connection.execute(
            "SELECT (SELECT count(*) FROM message), (SELECT count(*) FROM file), (SELECT count(*) FROM aside)"
        ).fetchall()
        self.count, self._files, self.aside = counts[0]

    def apply(self, *groups: Group) -> Changed:
        """Make all of them durable, one after the other, or nothing."""
        fewer = more = 0
        files: list[int] = []
        new_files = 0
        with transaction(self.connection):
            for group in groups:
                done = self._apply(group)
                fewer += done.fewer
                more += done.aside
                files += done.files
                new_files += len(group.files)
            highest = max((number for group in groups for number, _ in (*group.messages, *group.asides)), default=0)
            reserved = self._reserved
            if highest >= reserved or any(group.probed for group in groups):
                reserved = max(reserved, highest + NUMBERS_AHEAD)
                self.connection.execute("UPDATE spool SET next = ?", (reserved,))
        self._reserved = reserved
        self._files += new_files - len(files)
        self.count += sum(len(group.messages) for group in groups) - fewer
        self.aside += sum(len(group.asides) for group in groups) + more
        return Changed(fewer, tuple(files), more)

    def _apply(self, group: Group) -> Changed:
        self._insert("message", group.messages)
        self._insert("content", [(number, crc32(body), body) for number, body in group.contents])
        self._insert("file", group.files)
        if group.asides:
            aside.insert(self.connection, group.asides, group.kept)
        self._update(list(group.updates.items()))
        self._put(group.facts)
        if group.discards:
            aside.note(self.connection, group.discards)
        moved = aside.set_aside(self.connection, group.set_aside, group.set_aside_for) if group.set_aside else 0
        back = aside.take_back(self.connection, group.taken_back) if group.taken_back else 0
        free = aside.let_go(self.connection, group.let_go) if group.let_go else []
        kept = [number for number, reason in group.quarantined if self._quarantine(number, reason)]
        again = [number for number in group.resumed if self._resume(number)]
        known = self._forget(group.forgotten)
        removed = self._remove(group.removals)
        fewer = moved - back + len(kept) - len(again) + removed
        more = moved - back - len(free)
        if removed < len(group.removals) and self._may_be_aside(group):
            more -= aside.remove(self.connection, group.removals)
        return Changed(fewer, self._remove_files([*group.removals, *known, *free]), more)

    def _may_be_aside(self, group: Group) -> bool:
        return bool(self.aside or group.asides or group.set_aside)

    def checkpoint(self, *, wait: bool = False) -> None:
        """Bring the journal into the main file, so that it is written from its beginning again.

        A reader in the way leaves part of it for the next time, unless this is to `wait` for readers.
        """
        mode = "RESTART" if wait else "PASSIVE"
        rows = self.connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        if rows and not rows[0][0] and rows[0][1] == rows[0][2]:
            self.journal_bytes = 0

    def tidy(self) -> bool:
        """Give some free pages back to the file system; whether there are more to give."""
        free = int(self.connection.pragma("freelist_count"))
        if free > KEPT_FREE_PAGES + GIVEN_BACK_PAGES:
            # Each page is a step of its own, and only all steps do it.
            self.connection.execute(f"PRAGMA incremental_vacuum({GIVEN_BACK_PAGES})").fetchall()
            free -= GIVEN_BACK_PAGES
        self.free_bytes = free * PAGE
        return free > KEPT_FREE_PAGES + GIVEN_BACK_PAGES

    def reopen(self) -> None:
        """After a fault of the disk: nothing that SQLite remembers of it is used again. Raises `StoreUnavailable`."""
        with suppress(apsw.Error):
            self.connection.close(True)
        self.connection = self._open()
        with faults_of(self._path):
            self.counted()

    def close(self, next_number: int | None) -> None:
        """Close; `next_number` is the first that was not used, or None when that is not known."""
        if next_number is not None:
            with suppress(apsw.Error):
                self.connection.execute("UPDATE spool SET next = ?, closed = 1", (next_number,))
        with suppress(apsw.Error):
            close_after_writing(self.connection)

    def _insert(self, table: str, rows: Sequence[tuple[bytes | int, ...]]) -> None:
        for part in _parted(rows):
            self.connection.execute(_insertion(table, len(part[0]), len(part)), _flat(part))

    def _update(self, rows: Sequence[tuple[int, bytes]]) -> None:
        changed = 0
        for part in _parted(rows):
            self.connection.execute(_updating(len(part)), _flat(part))
            changed += self.connection.changes()
        if changed < len(rows):  # the others are kept aside, or gone
            aside.update(self.connection, rows)

    def _put(self, facts: dict[str, bytes | None]) -> None:
        for name, value in facts.items():
            if value is None:
                self.connection.execute("DELETE FROM fact WHERE name = ?", (name,))
            else:
                self.connection.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, value))

    def _remove(self, numbers: Sequence[int]) -> int:
        if not numbers:
            return 0
        self.connection.execute(
            "DELETE FROM message WHERE number IN (SELECT value FROM json_each(?))", (_list(numbers),)
        )
        return self.connection.changes()

    def _remove_files(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """The numbers of those that had one; a quarantined message keeps it."""
        if not numbers or not self._files:
            return ()
        statement = (
            "DELETE FROM file WHERE number IN (SELECT value FROM json_each(?)) "
            "AND number NOT IN (SELECT number FROM quarantined) AND number NOT IN (SELECT number FROM message) "
            "AND number NOT IN (SELECT number FROM aside) RETURNING number"
        )
        rows: list[tuple[Any, ...]] = self.connection.execute(statement, (_list(numbers),)).fetchall()
        return tuple(row[0] for row in rows)

    def _quarantine(self, number: int, reason: str) -> bool:
        """Content and file stay, for whoever looks into it; whether there was such a message."""
        row = self.connection.execute("SELECT envelope FROM message WHERE number = ?", (number,)).fetchone()
        if row is None:
            return False
        content = self.connection.execute("SELECT crc, body FROM content WHERE number = ?", (number,)).fetchone()
        self.connection.execute(
            "INSERT OR REPLACE INTO quarantined VALUES (?, ?, ?, ?)", (number, row[0], reason, time.time())
        )
        self.connection.execute("DELETE FROM message WHERE number = ?", (number,))
        if content is not None:
            self.connection.execute("INSERT OR REPLACE INTO content VALUES (?, ?, ?)", (number, *content))
        return True

    def _resume(self, number: int) -> bool:
        """Whether there was such a one."""
        self.connection.execute(
            "INSERT INTO message SELECT number, envelope FROM quarantined WHERE number = ?", (number,)
        )
        found = bool(self.connection.changes())
        self.connection.execute("DELETE FROM quarantined WHERE number = ?", (number,))
        return found

    def _forget(self, numbers: Sequence[int]) -> list[int]:
        """Those of them that were quarantined; only their contents go with them."""
        if not numbers:
            return []
        rows: list[tuple[Any, ...]] = self.connection.execute(
            "DELETE FROM quarantined WHERE number IN (SELECT value FROM json_each(?)) RETURNING number",
            (_list(numbers),),
        ).fetchall()
        known = [row[0] for row in rows]
        self.connection.execute("DELETE FROM content WHERE number IN (SELECT value FROM json_each(?))", (_list(known),))
        return known


def _make(path: str) -> None:
    """A new file gives pages back one by one: that must be said before its first table. Raises `StoreUnavailable`."""
    with faults_of(path):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if os.fstat(descriptor).st_size:
                    return
                if os.geteuid() == 0:
                    folder = Path(path).resolve().parent.stat()
                    os.fchown(descriptor, folder.st_uid, folder.st_gid)
            finally:
                os.close(descriptor)
        except OSError as fault:
            raise StoreUnavailable(f"{path}: {fault.strerror}") from fault
        connection = apsw.Connection(path)
        try:
            connection.execute(f"PRAGMA page_size = {PAGE}; PRAGMA auto_vacuum = INCREMENTAL; VACUUM")
        finally:
            connection.close(True)


@cache
def _insertion(table: str, columns: int, rows: int) -> str:
    row = f"({','.join('?' * columns)})"
    return f"INSERT INTO {table} VALUES {','.join([row] * rows)}"  # noqa: S608 - names of ours


@cache
def _updating(rows: int) -> str:
    return (
        f"WITH new (number, envelope) AS (VALUES {','.join(['(?,?)'] * rows)}) "  # noqa: S608 - only numbers of marks
        "UPDATE message SET envelope = new.envelope FROM new WHERE message.number = new.number"
    )


def _parted(rows: Sequence[T]) -> list[Sequence[T]]:
    parts: list[Sequence[T]] = []
    at = 0
    for size in _SIZES:
        while len(rows) - at >= size:
            parts.append(rows[at : at + size])
            at += size
    return parts


def _flat(rows: Sequence[tuple[bytes | int, ...]]) -> list[bytes | int]:
    return list(chain.from_iterable(rows))


def _list(numbers: Sequence[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"
