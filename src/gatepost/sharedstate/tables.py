"""The file of the embedded shared state, and the changes that are made to it. Runs in the writer's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

import apsw

from gatepost.directory.policy.penalty import FAMILIAR_SECONDS
from gatepost.store.sqlite import Schema

KEEP_DEVICE_SECONDS = 60 * 86400.0
"""A device that was not seen for so long begins anew: its sync state is hardly current any more."""
MAX_DEVICES = 1_000_000
"""Devices remembered, about 100 octets each; over it those not seen for longest go."""
MAX_SIGN_OUTS = 200_000
"""Sign-outs remembered, in every worker's memory; over it those that expire first go."""
MAX_PENALTIES = 200_000
"""Accounts of wrong passwords, some hundred octets each; over it those that are forgotten first go."""
MAX_FAMILIAR = 2_000_000
"""Addresses that users have signed in from, about 30 octets each; over it those not seen for longest go."""
TIDY_CHANGES = 1000
"""Changes between two times that a process looks for what has aged out."""

SCHEMA = Schema(
    "shared state",
    0x67_70_73_73,  # "gpss"
    (
        """
        CREATE TABLE state (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            instance BLOB NOT NULL,
            revision INTEGER NOT NULL
        ) STRICT;
        INSERT INTO state VALUES (1, randomblob(16), 0);
        CREATE TABLE devices (
            key BLOB PRIMARY KEY,
            server TEXT NOT NULL,
            used INTEGER NOT NULL,
            revision INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX devices_by_use ON devices (used);
        CREATE INDEX devices_by_revision ON devices (revision);
        CREATE TABLE sign_outs (
            session BLOB PRIMARY KEY,
            until INTEGER NOT NULL,
            revision INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX sign_outs_by_end ON sign_outs (until);
        CREATE INDEX sign_outs_by_revision ON sign_outs (revision);
        """,
        """
        CREATE TABLE penalties (
            key BLOB PRIMARY KEY,
            state BLOB NOT NULL,
            until INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX penalties_by_end ON penalties (until);
        CREATE TABLE familiar (
            key BLOB PRIMARY KEY,
            used INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX familiar_by_use ON familiar (used);
        CREATE TABLE workers (
            worker BLOB PRIMARY KEY,
            seen INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE held (
            key BLOB NOT NULL,
            worker BLOB NOT NULL,
            n INTEGER NOT NULL,
            PRIMARY KEY (key, worker)
        ) STRICT, WITHOUT ROWID;
        """,
    ),
)
"""Every commit has the next `revision`, and so have the rows it changed: a reader asks for those after the last it saw.

`instance` tells a file from one that replaced it. Times are whole seconds since 1970. Keys are digests: of one size,
whatever clients call themselves, and no list of names for whoever reads the file.
"""

Change = Callable[[apsw.Connection, int], str | None]
"""One change within a transaction of the given revision. The answer is a server's name, where there is one."""


def digest(text: str) -> bytes:
    """How the file spells a device's key or a session's id."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def insert_first(key: bytes, choose: str, now: float, servers: Sequence[str]) -> Change:
    """Answers the server that is remembered for `key`; `choose`, if there was none or one that is not in `servers`."""

    def change(connection: apsw.Connection, revision: int) -> str | None:
        row = connection.execute("SELECT server FROM devices WHERE key = ?", (key,)).fetchone()
        if row is not None and (not servers or row[0] in servers):
            return str(row[0])
        _upsert(connection, key, choose, now, revision)
        return choose

    return change


def move(key: bytes, server: str, now: float) -> Change:
    """Remembers `server` for `key`, whatever was remembered."""

    def change(connection: apsw.Connection, revision: int) -> str | None:
        _upsert(connection, key, server, now, revision)
        return server

    return change


def touch(key: bytes, now: float) -> Change:
    """`key` was used: it ages from now on. No news for anybody, so the row keeps its revision."""

    def change(connection: apsw.Connection, _revision: int) -> str | None:
        connection.execute("UPDATE devices SET used = max(used, ?) WHERE key = ?", (int(now), key))
        return None

    return change


def sign_out(session: bytes, until: float) -> Change:
    """Remembers a sign-out; answers an empty word."""

    def change(connection: apsw.Connection, revision: int) -> str | None:
        connection.execute(
            "INSERT INTO sign_outs VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET until = max(until, ?2)",
            (session, int(until) + 1, revision),
        )
        return ""

    return change


def tidy(now: float) -> Change:
    """Removes what has aged out or is too much."""

    def change(connection: apsw.Connection, _revision: int) -> str | None:
        connection.execute("DELETE FROM devices WHERE used < ?", (int(now - KEEP_DEVICE_SECONDS),))
        connection.execute("DELETE FROM sign_outs WHERE until < ?", (int(now),))
        connection.execute("DELETE FROM penalties WHERE until < ?", (int(now),))
        connection.execute("DELETE FROM familiar WHERE used < ?", (int(now - FAMILIAR_SECONDS),))
        for table, key, age, limit in (
            ("devices", "key", "used", MAX_DEVICES),
            ("sign_outs", "session", "until", MAX_SIGN_OUTS),
            ("penalties", "key", "until", MAX_PENALTIES),
            ("familiar", "key", "used", MAX_FAMILIAR),
        ):
            rows = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - two words of ours
            too_many = int(rows[0]) - limit if rows is not None else 0
            if too_many > 0:
                oldest = f"SELECT {key} FROM {table} ORDER BY {age} LIMIT ?"  # noqa: S608
                connection.execute(f"DELETE FROM {table} WHERE {key} IN ({oldest})", (too_many,))  # noqa: S608
        return None

    return change


def _upsert(connection: apsw.Connection, key: bytes, server: str, now: float, revision: int) -> None:
    connection.execute(
        "INSERT INTO devices VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE SET server = ?2, used = ?3, revision = ?4",
        (key, server, int(now), revision),
    )
