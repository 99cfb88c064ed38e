"""Messages that the spool keeps and that are none of the queue: shadows and the safety net's (SPEC S1).

Their envelopes are in a table of their own, so that a start does not read them; contents stay where they are. A
message is kept for as many reasons as it has rows in `shadow` and `net`, and goes with the last of them.
Statements are for many messages at once, as in `database`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from gatepost.transport.shadow.ports import Kept, Role

MIGRATION = """
    CREATE TABLE aside (number INTEGER PRIMARY KEY, envelope BLOB NOT NULL);
    CREATE TABLE shadow (
        number INTEGER NOT NULL, token TEXT NOT NULL, hub TEXT NOT NULL, identity TEXT NOT NULL, until REAL NOT NULL,
        PRIMARY KEY (number, token)
    ) WITHOUT ROWID;
    CREATE TABLE net (
        number INTEGER NOT NULL, database TEXT NOT NULL, at REAL NOT NULL, until REAL NOT NULL,
        PRIMARY KEY (number, database)
    ) WITHOUT ROWID;
    CREATE INDEX net_at ON net (database, at);
    CREATE INDEX net_until ON net (until);
    CREATE TABLE discard (
        server TEXT NOT NULL, token TEXT NOT NULL, event BLOB NOT NULL, PRIMARY KEY (server, token)
    ) WITHOUT ROWID;
    DROP TRIGGER gone;
    CREATE TRIGGER gone AFTER DELETE ON message WHEN NOT EXISTS (SELECT 1 FROM aside WHERE number = OLD.number)
        BEGIN DELETE FROM content WHERE number = OLD.number; END;
    CREATE TRIGGER let_go AFTER DELETE ON aside WHEN NOT EXISTS (SELECT 1 FROM message WHERE number = OLD.number)
        BEGIN DELETE FROM content WHERE number = OLD.number; END;
"""

_encode = msgspec.json.encode


def numbers_text(numbers: Sequence[int]) -> str:
    """For `json_each`."""
    return f"[{','.join(map(str, numbers))}]"


def insert(connection: apsw.Connection, rows: Sequence[tuple[int, bytes]], kept: Sequence[tuple[Kept, float]]) -> None:
    """New messages that are kept from the beginning; `kept` with the time of delivery. Their contents are there."""
    connection.executemany("INSERT INTO aside VALUES (?, ?)", rows)
    _insert_kept(connection, kept)


def set_aside(
    connection: apsw.Connection, rows: dict[int, bytes], kept: dict[int, Sequence[tuple[Kept, float]]]
) -> int:
    """Messages of the queue are kept, those that are kept already for these reasons from now on; how many moved."""
    connection.executemany(
        "INSERT OR REPLACE INTO aside SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM message WHERE number = ?1) "
        "OR EXISTS (SELECT 1 FROM aside WHERE number = ?1)",
        rows.items(),
    )
    text = numbers_text(list(rows))
    there = {row[0] for row in connection.execute(
        "SELECT number FROM aside WHERE number IN (SELECT value FROM json_each(?))", (text,)
    )}  # fmt: skip
    connection.execute("DELETE FROM message WHERE number IN (SELECT value FROM json_each(?))", (text,))
    moved = connection.changes()
    if moved < len(there):
        _forget_reasons(connection, text)
    _insert_kept(connection, [each for number in there for each in kept[number]])
    return moved


def take_back(connection: apsw.Connection, rows: dict[int, bytes]) -> int:
    """Kept messages are of the queue again, those that are already get the envelope; how many moved."""
    text = numbers_text(list(rows))
    there = [row[0] for row in connection.execute(
        "SELECT number FROM aside WHERE number IN (SELECT value FROM json_each(?))", (text,)
    )]  # fmt: skip
    connection.executemany("INSERT INTO message VALUES (?, ?)", [(number, rows[number]) for number in there])
    known = set(there)
    connection.executemany(
        "UPDATE message SET envelope = ?2 WHERE number = ?1",
        [(number, blob) for number, blob in rows.items() if number not in known],
    )
    remove(connection, there)
    return len(there)


def let_go(connection: apsw.Connection, pairs: Sequence[tuple[int, str]]) -> list[int]:
    """These are kept no longer for these keys; the numbers of those that are kept for nothing and are gone."""
    connection.executemany("DELETE FROM shadow WHERE number = ? AND token = ?", pairs)
    connection.executemany("DELETE FROM net WHERE number = ? AND database = ?", pairs)
    rows: list[tuple[Any, ...]] = connection.execute(
        "DELETE FROM aside WHERE number IN (SELECT value FROM json_each(?)) "
        "AND NOT EXISTS (SELECT 1 FROM shadow WHERE shadow.number = aside.number) "
        "AND NOT EXISTS (SELECT 1 FROM net WHERE net.number = aside.number) RETURNING number",
        (numbers_text([number for number, _ in pairs]),),
    ).fetchall()
    return [row[0] for row in rows]


def remove(connection: apsw.Connection, numbers: Sequence[int]) -> int:
    """They are kept for nothing any more; how many there were."""
    if not numbers:
        return 0
    text = numbers_text(numbers)
    connection.execute("DELETE FROM aside WHERE number IN (SELECT value FROM json_each(?))", (text,))
    gone = connection.changes()
    if gone:
        _forget_reasons(connection, text)
    return gone


def update(connection: apsw.Connection, rows: Sequence[tuple[int, bytes]]) -> None:
    """New envelopes of those of them that are kept."""
    connection.executemany("UPDATE aside SET envelope = ?2 WHERE number = ?1", rows)


def note(connection: apsw.Connection, events: dict[tuple[str, str], bytes | None]) -> None:
    """Discard events by server and token; None: they are forgotten."""
    connection.executemany(
        "INSERT OR REPLACE INTO discard VALUES (?, ?, ?)",
        [(server, token, event) for (server, token), event in events.items() if event is not None],
    )
    forgotten: dict[str, list[str]] = {}
    for (server, token), event in events.items():
        if event is None:
            forgotten.setdefault(server, []).append(token)
    for server, tokens in forgotten.items():
        connection.execute(
            "DELETE FROM discard WHERE server = ? AND token IN (SELECT value FROM json_each(?))",
            (server, _encode(tokens).decode()),
        )


def _forget_reasons(connection: apsw.Connection, text: str) -> None:
    connection.execute("DELETE FROM shadow WHERE number IN (SELECT value FROM json_each(?))", (text,))
    connection.execute("DELETE FROM net WHERE number IN (SELECT value FROM json_each(?))", (text,))


def _insert_kept(connection: apsw.Connection, kept: Sequence[tuple[Kept, float]]) -> None:
    shadows = [(k.number, k.key, k.primary, k.identity, k.until) for k, _ in kept if k.role is Role.SHADOW]
    connection.executemany("INSERT OR REPLACE INTO shadow VALUES (?, ?, ?, ?, ?)", shadows)
    net = [(k.number, k.key, at, k.until) for k, at in kept if k.role is Role.SAFETY_NET]
    connection.executemany("INSERT OR REPLACE INTO net VALUES (?, ?, ?, ?)", net)
