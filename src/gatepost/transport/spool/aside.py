"""Tables of what a spool has beside its queue: shadows, safety net, discard events (SPEC S1, S2; exchange-facts 4.5).

    message ──set_aside──► aside + shadow (a row each token)        + what both share: content, file
            ◄─take_back──        + safety_net (one) + delivery (a row each database)

A message is in `message` or in `aside`, never in both; its content stays where it is when it moves, and goes with it.
Shadows are few, and read at start; the safety net may be millions, and is found by time and database alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import apsw

from gatepost.transport.spool.statements import flat, inserted, listed, marks, parted

MIGRATION = """
CREATE TABLE aside (number INTEGER PRIMARY KEY, envelope BLOB NOT NULL);
CREATE TABLE shadow (
    number INTEGER NOT NULL, key TEXT NOT NULL, server TEXT NOT NULL, identity TEXT NOT NULL, until REAL NOT NULL,
    PRIMARY KEY (number, key)
) WITHOUT ROWID;
CREATE TABLE safety_net (
    number INTEGER PRIMARY KEY, key TEXT NOT NULL, server TEXT NOT NULL, identity TEXT NOT NULL, until REAL NOT NULL,
    at REAL NOT NULL, databases TEXT NOT NULL
);
CREATE INDEX safety_net_until ON safety_net (until);
CREATE TABLE delivery (
    database TEXT NOT NULL, at REAL NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (database, at, number)
) WITHOUT ROWID;
CREATE TABLE discard (
    server TEXT NOT NULL, token TEXT NOT NULL, noted INTEGER NOT NULL, event BLOB NOT NULL,
    PRIMARY KEY (server, token)
) WITHOUT ROWID;
ALTER TABLE spool ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;
DROP TRIGGER gone;
CREATE TRIGGER gone AFTER DELETE ON message WHEN NOT EXISTS (SELECT 1 FROM aside WHERE number = OLD.number)
    BEGIN DELETE FROM content WHERE number = OLD.number; END;
CREATE TRIGGER aside_gone AFTER DELETE ON aside WHEN NOT EXISTS (SELECT 1 FROM message WHERE number = OLD.number)
    BEGIN DELETE FROM content WHERE number = OLD.number; END;
CREATE TRIGGER delivered AFTER INSERT ON safety_net WHEN NEW.databases <> '[]'
    BEGIN INSERT OR IGNORE INTO delivery VALUES (NEW.databases ->> 0, NEW.at, NEW.number); END;
CREATE TRIGGER delivered_to_more AFTER INSERT ON safety_net WHEN json_array_length(NEW.databases) > 1
    BEGIN INSERT OR IGNORE INTO delivery SELECT value, NEW.at, NEW.number FROM json_each(NEW.databases); END;
CREATE TRIGGER safety_net_gone AFTER DELETE ON safety_net
    BEGIN DELETE FROM delivery WHERE database = OLD.databases ->> 0 AND at = OLD.at AND number = OLD.number; END;
CREATE TRIGGER more_gone AFTER DELETE ON safety_net WHEN json_array_length(OLD.databases) > 1 BEGIN
    DELETE FROM delivery WHERE database IN (SELECT value FROM json_each(OLD.databases))
        AND at = OLD.at AND number = OLD.number;
END;
"""
"""From the spool's first version to its second. Nearly all copies are for one database, and going through a JSON list
costs ten times as much as all the rest."""

ShadowRow = tuple[int, str, str, str, float]
"""Number, key, primary, identity, until."""
SafetyNetRow = tuple[int, str, str, str, float, float, str]
"""The same, when it was delivered, and the databases (a JSON list)."""


@dataclass(slots=True)
class Rows:
    """For what a message is kept."""

    shadows: list[ShadowRow] = field(default_factory=list)
    safety_net: list[SafetyNetRow] = field(default_factory=list)

    def all_keys(self) -> list[str]:
        """Of all of them."""
        return [*(row[1] for row in self.shadows), *(row[1] for row in self.safety_net)]


@dataclass(slots=True)
class Moves:
    """What of a group concerns these tables; done in the order of the fields. Envelopes and events are encoded."""

    new: list[tuple[int, bytes]] = field(default_factory=list)
    """Messages that were never in the queue; their contents are written beforehand."""
    new_rows: list[Rows] = field(default_factory=list)
    taken_back: dict[int, bytes] = field(default_factory=dict)
    set_aside: dict[int, tuple[bytes, Rows]] = field(default_factory=dict)
    let_go: list[tuple[int, str]] = field(default_factory=list)
    """Number and key."""
    expire: tuple[float, int] | None = None
    """Let go of the safety net's messages up to then, and of how many at most."""
    discards: dict[tuple[str, str], tuple[int, bytes] | None] = field(default_factory=dict)
    """By server and token: its place in time and the event; None forgets it."""


@dataclass(slots=True)
class Moved:
    """What has become of it: how many messages came to the queue, were kept, and left the spool, by number."""

    queued: int = 0
    kept: int = 0
    gone: list[int] = field(default_factory=list)
    """They may still have a row in `file`."""
    expired: int = 0


class Aside:
    """Within a transaction of the database's thread. Faults are `apsw.Error`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._run = connection.execute
        self._changes = connection.changes

    def apply(self, moves: Moves) -> Moved:
        """All of it, each step for all its messages together."""
        moved = Moved()
        if moves.new:
            self._insert("aside", moves.new)
            self._keep_for(moves.new_rows)
            moved.kept += len(moves.new)
        if moves.taken_back:
            self._take_back(moves.taken_back, moved)
        if moves.set_aside:
            self._set_aside(moves.set_aside, moved)
        if moves.let_go:
            for part in parted(moves.let_go):
                self._run(_unkeeping("shadow", len(part)), flat(part))
                self._run(_unkeeping("safety_net", len(part)), flat(part))
            self._forsaken([number for number, _ in moves.let_go], moved)
        if moves.expire is not None:
            rows: list[tuple[Any, ...]] = self._run(_EXPIRE, moves.expire).fetchall()
            moved.expired = len(rows)
            self._forsaken([row[0] for row in rows], moved)
        if moves.discards:
            self._discards(moves.discards)
        return moved

    def update(self, rows: Sequence[tuple[int, bytes]]) -> None:
        """Other envelopes, for those that are kept."""
        for part in parted(rows):
            self._run(_updating(len(part)), flat(part))

    def release(self, number: int) -> bytes | None:
        """The envelope of a kept message that is about to be quarantined, and nothing of it is kept any more."""
        rows: list[tuple[Any, ...]] = self._run(
            "DELETE FROM aside WHERE number = ? RETURNING envelope", (number,)
        ).fetchall()
        self._unkeep([number])
        return bytes(rows[0][0]) if rows else None

    def _take_back(self, taken_back: dict[int, bytes], moved: Moved) -> None:
        for part in parted(list(taken_back.items())):
            self._run(_moving("aside", "message", len(part)), flat(part))
            moved.queued += self._changes()
        numbers = list(taken_back)
        self._unkeep(numbers)
        self._run("DELETE FROM aside WHERE number IN (SELECT value FROM json_each(?))", (listed(numbers),))
        moved.kept -= self._changes()

    def _set_aside(self, set_aside: dict[int, tuple[bytes, Rows]], moved: Moved) -> None:
        """Of a message that is gone: nothing."""
        numbers = list(set_aside)
        rows = [(number, blob) for number, (blob, _) in set_aside.items()]
        came = 0
        for part in parted(rows):
            self._run(_moving("message", "aside", len(part)), flat(part))
            came += self._changes()
        if came:
            self._run("DELETE FROM message WHERE number IN (SELECT value FROM json_each(?))", (listed(numbers),))
            moved.queued -= self._changes()
            moved.kept += came
        there = set_aside
        if came < len(numbers):  # kept before, or gone
            self.update(rows)
            self._unkeep(numbers)
            found: list[tuple[Any, ...]] = self._run(
                "SELECT number FROM aside WHERE number IN (SELECT value FROM json_each(?))", (listed(numbers),)
            ).fetchall()
            there = {row[0]: set_aside[row[0]] for row in found}
        self._keep_for([rows for _, rows in there.values()])

    def _keep_for(self, rows: Iterable[Rows]) -> None:
        shadows: list[ShadowRow] = []
        safety_net: list[SafetyNetRow] = []
        for one in rows:
            shadows += one.shadows
            safety_net += one.safety_net
        self._insert("shadow", shadows)
        self._insert("safety_net", safety_net)

    def _unkeep(self, numbers: Sequence[int]) -> None:
        for table in ("shadow", "safety_net"):
            self._run(
                f"DELETE FROM {table} WHERE number IN (SELECT value FROM json_each(?))",  # noqa: S608 - names of ours
                (listed(numbers),),
            )

    def _forsaken(self, numbers: Sequence[int], moved: Moved) -> None:
        """Those of them that nothing is kept of any more go."""
        rows: list[tuple[Any, ...]] = self._run(_FORSAKEN, (listed(numbers),)).fetchall()
        moved.kept -= len(rows)
        moved.gone += [row[0] for row in rows]

    def _discards(self, discards: dict[tuple[str, str], tuple[int, bytes] | None]) -> None:
        noted = [(*key, *event) for key, event in discards.items() if event is not None]
        for part in parted(noted):
            self._run(f"INSERT OR REPLACE INTO discard VALUES {marks(4, len(part))}", flat(part))  # noqa: S608 - only marks
        forgotten = [key for key, event in discards.items() if event is None]
        for keys in parted(forgotten):
            self._run(f"DELETE FROM discard WHERE (server, token) IN (VALUES {marks(2, len(keys))})", flat(keys))  # noqa: S608 - marks

    def _insert(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        for part in parted(rows):
            self._run(inserted(table, len(part[0]), len(part)), flat(part))


_EXPIRE = """
DELETE FROM safety_net WHERE number IN (SELECT number FROM safety_net WHERE until <= ? ORDER BY until LIMIT ?)
RETURNING number
"""
_FORSAKEN = """
DELETE FROM aside WHERE number IN (SELECT value FROM json_each(?))
    AND NOT EXISTS (SELECT 1 FROM shadow WHERE shadow.number = aside.number)
    AND NOT EXISTS (SELECT 1 FROM safety_net WHERE safety_net.number = aside.number)
RETURNING number
"""


@cache
def _moving(source: str, target: str, rows: int) -> str:
    return (
        f"WITH new (number, envelope) AS (VALUES {marks(2, rows)}) "  # noqa: S608 - names of ours
        f"INSERT INTO {target} SELECT number, envelope FROM new "
        f"WHERE EXISTS (SELECT 1 FROM {source} WHERE {source}.number = new.number)"
    )


@cache
def _updating(rows: int) -> str:
    return (
        f"WITH new (number, envelope) AS (VALUES {marks(2, rows)}) "  # noqa: S608 - only marks
        "UPDATE aside SET envelope = new.envelope FROM new WHERE aside.number = new.number"
    )


@cache
def _unkeeping(table: str, rows: int) -> str:
    return f"DELETE FROM {table} WHERE (number, key) IN (VALUES {marks(2, rows)})"  # noqa: S608 - names of ours
