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
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
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
from gatepost.transport.spool.aside import MIGRATION, Aside, Moves
from gatepost.transport.spool.layout import Layout
from gatepost.transport.spool.statements import flat, inserted, listed, marks, parted

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
        MIGRATION,
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
    moves: Moves | None = None
    """Of shadows and safety net; done before what was forgotten, quarantined and removed."""
    probed: bool = False
    """Write something in any case, to see whether the disk takes it."""
    then: Group | None = None
    """What follows in the same transaction: it concerns messages that were moved here."""

    def steps(self) -> Iterator[Group]:
        """This one and what follows."""
        step: Group | None = self
        while step is not None:
            yield step
            step = step.then


@dataclass(frozen=True, slots=True)
class Changed:
    """What a group has done: there are `fewer` messages, `files` are the numbers of those that had a file."""

    fewer: int = 0
    files: tuple[int, ...] = ()
    kept: int = 0
    """More kept messages than before."""
    expired: int = 0


@dataclass(slots=True)
class _Done:
    """What the steps of a group have done so far."""

    added: int = 0
    fewer: int = 0
    with_file: int = 0
    files: list[int] = field(default_factory=list)
    kept: int = 0
    expired: int = 0
    highest: int = 0


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
        """Messages."""
        self.kept = 0
        """Messages that are kept beside the queue."""
        self.journal_bytes = 0
        """Size of the write-ahead log that is not yet in the main file."""
        self.free_bytes = 0
        """Within the main file, as of the last `tidy`."""
        self.connection = self._open()
        self._aside = Aside(self.connection)

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
                self.connection.execute("INSERT INTO spool (one, identity, next, closed) VALUES (1, ?, ?, ?)", row)
            self.identity, self.first_number, self.closed_well = str(row[0]), int(row[1]), bool(row[2])
            self._reserved = self.first_number + NUMBERS_AHEAD
            self.connection.execute("UPDATE spool SET next = ?, closed = 0", (self._reserved,))

    def check(self) -> list[str]:
        """What is wrong with the file; empty: nothing. Reads every page of every table but the contents'
        and the safety net's, which may be millions of rows that nobody needs at once."""
        tables = ("message", "file", "fact", "spool", "quarantined", "shadow", "discard")
        try:
            found = [row[0] for t in tables for row in self.connection.execute(f"PRAGMA quick_check('{t}')").fetchall()]
        except apsw.Error as fault:
            return [str(fault)]
        return [str(word) for word in found if word != "ok"]

    def counted(self) -> None:
        """Count what is there, at start and after the file was opened anew."""
        counts: list[tuple[Any, ...]] = self.connection.execute(
            "SELECT (SELECT count(*) FROM message), (SELECT count(*) FROM file), kept FROM spool"
        ).fetchall()
        self.count, self._files, self.kept = counts[0]

    def apply(self, group: Group) -> Changed:
        """Make all of `group`, and of what follows it, durable, or nothing."""
        with transaction(self.connection):
            done = _Done()
            for step in group.steps():
                self._apply(step, done)
            highest, kept = done.highest, done.kept
            reserved = self._reserved
            if highest >= reserved or any(step.probed for step in group.steps()):
                reserved = max(reserved, highest + NUMBERS_AHEAD)
                self.connection.execute("UPDATE spool SET next = ?", (reserved,))
            if kept:
                self.connection.execute("UPDATE spool SET kept = kept + ?", (kept,))
        self._reserved = reserved
        self._files += done.with_file - len(done.files)
        self.count += done.added - done.fewer
        self.kept += kept
        return Changed(done.fewer, tuple(done.files), kept, done.expired)

    def _apply(self, group: Group, done: _Done) -> None:
        self._insert("message", group.messages)
        self._insert("content", [(number, crc32(body), body) for number, body in group.contents])
        self._insert("file", group.files)
        done.added += len(group.messages)
        done.with_file += len(group.files)
        done.highest = max((done.highest, *(number for number, _ in group.messages)))
        self._update(list(group.updates.items()))
        self._put(group.facts)
        removed = group.removals
        if group.moves is not None:
            moved = self._aside.apply(group.moves)
            done.kept += moved.kept
            done.fewer -= moved.queued
            done.expired += moved.expired
            done.highest = max((done.highest, *(number for number, _ in group.moves.new)))
            removed = [*removed, *moved.gone]
        for number, reason in group.quarantined:
            was_queued, was_kept = self._quarantine(number, reason)
            done.fewer += was_queued
            done.kept -= was_kept
        done.fewer -= sum(self._resume(number) for number in group.resumed)
        known = self._forget(group.forgotten)
        done.fewer += self._remove(group.removals)
        done.files += self._remove_files([*removed, *known], done.with_file)

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
        self._aside = Aside(self.connection)
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
        for part in parted(rows):
            self.connection.execute(inserted(table, len(part[0]), len(part)), flat(part))

    def _update(self, rows: Sequence[tuple[int, bytes]]) -> None:
        for part in parted(rows):
            self.connection.execute(_updating(len(part)), flat(part))
            if self.connection.changes() < len(part):  # gone, or kept
                self._aside.update(part)

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
            "DELETE FROM message WHERE number IN (SELECT value FROM json_each(?))", (listed(numbers),)
        )
        return self.connection.changes()

    def _remove_files(self, numbers: Sequence[int], new: int) -> list[int]:
        """The numbers of those that had one. A message that is still somewhere, or quarantined, keeps it."""
        if not numbers or not self._files + new:
            return []
        rows: list[tuple[Any, ...]] = self.connection.execute(_REMOVE_FILES, (listed(numbers),)).fetchall()
        return [row[0] for row in rows]

    def _quarantine(self, number: int, reason: str) -> tuple[bool, bool]:
        """Content and file stay, for whoever looks into it; whether it was in the queue, and whether it was kept."""
        content = self.connection.execute("SELECT crc, body FROM content WHERE number = ?", (number,)).fetchone()
        row = self.connection.execute("SELECT envelope FROM message WHERE number = ?", (number,)).fetchone()
        queued = row is not None
        envelope = self._aside.release(number) if row is None else row[0]
        if envelope is None:
            return False, False
        self.connection.execute(
            "INSERT OR REPLACE INTO quarantined VALUES (?, ?, ?, ?)", (number, envelope, reason, time.time())
        )
        self.connection.execute("DELETE FROM message WHERE number = ?", (number,))
        if content is not None:
            self.connection.execute("INSERT OR REPLACE INTO content VALUES (?, ?, ?)", (number, *content))
        return queued, not queued

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
            (listed(numbers),),
        ).fetchall()
        known = [row[0] for row in rows]
        self.connection.execute(
            "DELETE FROM content WHERE number IN (SELECT value FROM json_each(?))", (listed(known),)
        )
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


_REMOVE_FILES = """
DELETE FROM file WHERE number IN (SELECT value FROM json_each(?)) AND number NOT IN (SELECT number FROM quarantined)
    AND number NOT IN (SELECT number FROM message) AND number NOT IN (SELECT number FROM aside)
RETURNING number
"""


@cache
def _updating(rows: int) -> str:
    return (
        f"WITH new (number, envelope) AS (VALUES {marks(2, rows)}) "  # noqa: S608 - only marks
        "UPDATE message SET envelope = new.envelope FROM new WHERE message.number = new.number"
    )
