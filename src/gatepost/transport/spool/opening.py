"""What is done with a spool before it is used: whose is it, is it whole, what did a crash leave behind (SPEC T2)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import apsw
import msgspec

from gatepost.store.sqlite import StoreUnavailable
from gatepost.transport.message import Envelope
from gatepost.transport.spool.database import Database, Group
from gatepost.transport.spool.in_hand import InHand
from gatepost.transport.spool.layout import DirectoryLock, Layout, number_of
from gatepost.transport.spool.reserve import Reserve

MISSING = "its file is missing"
SHORT = "its file is shorter than it was"
UNREADABLE = "its envelope cannot be read"


class SpoolDamaged(StoreUnavailable):
    """The database is not whole; nothing was changed. The message says how to go on."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was there at start."""

    messages: int
    closed_well: bool
    """False: the process before died."""
    removed_files: int
    """Files without a message: it was not accepted, or already removed."""
    quarantined: tuple[tuple[int, str], ...]
    """Number and reason of messages that can not be used."""
    suspects: tuple[int, ...]
    """Messages that the process before had in hand when it died; their `crashes` are counted."""


@dataclass(frozen=True, slots=True)
class Opened:
    """All that belongs to an open spool."""

    layout: Layout
    lock: DirectoryLock
    database: Database
    in_hand: InHand
    reserve: Reserve
    found: Found


def open_spool(layout: Layout, reserve_bytes: int) -> Opened:
    """Make the directory where it is missing, look through it, repair what can be. Blocks; seconds for a million.

    Raises `SpoolInUse`, `SpoolDamaged`, `StoreUnavailable`, OSError.
    """
    layout.make()
    lock = DirectoryLock()
    lock.take(layout)
    try:
        reserve = Reserve(layout.reserve, reserve_bytes)
        try:
            database = _whole_database(layout)
        except StoreUnavailable as fault:
            # On a disk that is full to the last block not even a file to share memory by can be made.
            if not isinstance(fault.__cause__, apsw.FullError | apsw.IOError) or not reserve.release():
                raise
            database = _whole_database(layout)
        try:
            with suppress(OSError):  # no room: back pressure, until there is some
                reserve.make()
            in_hand = InHand(layout.in_hand)
            removed, quarantined = _match_files(layout, database)
            suspects = _count_crashes(database, in_hand.suspects)
            database.counted()
        except BaseException:
            database.close(None)
            raise
    except apsw.Error as fault:
        lock.release()
        raise _damaged(layout, str(fault)) from fault
    except BaseException:
        lock.release()
        raise
    found = Found(database.count, database.closed_well, removed, tuple(quarantined), tuple(suspects))
    return Opened(layout, lock, database, in_hand, reserve, found)


def _whole_database(layout: Layout) -> Database:
    try:
        database = Database(layout)
    except StoreUnavailable as fault:
        if isinstance(fault.__cause__, apsw.CorruptError | apsw.NotADBError):
            raise _damaged(layout, str(fault.__cause__)) from fault
        raise
    try:
        for wrong in database.check():
            raise _damaged(layout, wrong)  # noqa: TRY301 - the first will do
        database.begin()
    except BaseException:
        database.close(None)
        raise
    return database


def _damaged(layout: Layout, what: str) -> SpoolDamaged:
    return SpoolDamaged(
        f"{layout.database}: damaged ({what}); move {layout.directory} aside, start the hub, which makes a new one, "
        "and take over what can be read from the old one: gatepost queue salvage"
    )


def _match_files(layout: Layout, database: Database) -> tuple[int, list[tuple[int, str]]]:
    """How many files were removed because no message has them, and which messages do not have their file."""
    rows: list[tuple[Any, ...]] = database.connection.execute("SELECT number, size FROM file").fetchall()
    wanted: dict[int, int] = dict(rows)
    removed = 0
    present: set[int] = set()
    short: set[int] = set()
    with os.scandir(layout.content) as entries:
        for entry in entries:
            number = number_of(entry.name)
            if number is None or number not in wanted:
                with suppress(OSError):  # at the next start then
                    os.unlink(entry.path)  # noqa: PTH108 - a million of them
                    removed += 1
                continue
            present.add(number)
            if entry.stat(follow_symlinks=False).st_size < wanted[number]:
                short.add(number)
    faulty = [(n, MISSING) for n in wanted.keys() - present] + [(n, SHORT) for n in short]
    for number in short:
        with suppress(OSError):
            layout.file(number).rename(layout.quarantine / f"{number:016x}")
    if faulty:
        faulty.sort()
        database.apply(Group(quarantined=faulty))
        database.connection.execute(
            "DELETE FROM file WHERE number IN (SELECT value FROM json_each(?))",
            (msgspec.json.encode([number for number, _ in faulty]).decode(),),
        )
    return removed, faulty


def _count_crashes(database: Database, suspects: Iterable[int]) -> list[int]:
    found = []
    for number in suspects:
        row = database.connection.execute(
            "SELECT envelope FROM message WHERE number = ?1 UNION ALL SELECT envelope FROM aside WHERE number = ?1",
            (number,),
        ).fetchone()
        if row is None:
            continue
        try:
            envelope = msgspec.msgpack.decode(bytes(row[0]), type=Envelope)
        except msgspec.DecodeError:  # told when the envelopes are read
            continue
        envelope.crashes += 1
        database.apply(Group(updates={number: msgspec.msgpack.encode(envelope)}))
        found.append(number)
    return found
