"""The embedded registry's file: its tables, what they refuse, and how older files become newer ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from gatepost.activemanager.port import RegistryUnavailable
from gatepost.store.sqlite import Schema, StoreUnavailable, faults_of

SCHEMA = Schema(
    "registry",
    0x67_70_72_65,  # "gpre"
    (
        """
        CREATE TABLE active (
            database TEXT PRIMARY KEY,
            server TEXT NOT NULL,
            epoch INTEGER NOT NULL CHECK (epoch >= 1),
            changed INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        -- Whoever writes to the file, an epoch never shrinks and is never forgotten.
        CREATE TRIGGER epochs_grow BEFORE UPDATE ON active WHEN NEW.epoch <= OLD.epoch OR NEW.database <> OLD.database
            BEGIN SELECT RAISE(ABORT, 'the epoch of a database only grows'); END;
        CREATE TRIGGER epochs_stay BEFORE DELETE ON active
            BEGIN SELECT RAISE(ABORT, 'the epoch of a database is kept for ever'); END;
        CREATE TABLE state (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            revision INTEGER NOT NULL,
            organization_version INTEGER NOT NULL
        ) STRICT;
        INSERT INTO state VALUES (1, 0, 0);
        """,
        """
        -- Another value with every change that a view shows, so that two pictures of one revision, before and after
        -- an older file was put back, are told apart without reading them.
        ALTER TABLE state ADD COLUMN stamp INTEGER NOT NULL DEFAULT 0;
        CREATE TABLE moves (
            database TEXT PRIMARY KEY,
            source TEXT NOT NULL,
            target TEXT NOT NULL,
            epoch INTEGER NOT NULL CHECK (epoch >= 0),
            started REAL NOT NULL,
            reason TEXT NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE words (server TEXT PRIMARY KEY, word TEXT NOT NULL) STRICT, WITHOUT ROWID;
        CREATE TABLE blocked (
            database TEXT NOT NULL,
            server TEXT NOT NULL,
            PRIMARY KEY (database, server)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE dials (database TEXT PRIMARY KEY, dial TEXT NOT NULL) STRICT, WITHOUT ROWID;
        CREATE TABLE observed (
            server TEXT NOT NULL,
            service TEXT NOT NULL,
            healthy INTEGER NOT NULL CHECK (healthy IN (0, 1)),
            since REAL NOT NULL,
            reason TEXT NOT NULL,
            PRIMARY KEY (server, service)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE leases (
            name TEXT PRIMARY KEY,
            holder TEXT NOT NULL,
            term INTEGER NOT NULL CHECK (term >= 1),
            seconds REAL NOT NULL,
            token TEXT NOT NULL,
            boot TEXT NOT NULL,
            until REAL NOT NULL
        ) STRICT, WITHOUT ROWID;
        -- Who holds a lease is told apart by its term, so no two holders may ever have the same one.
        CREATE TRIGGER terms_grow BEFORE UPDATE ON leases
            WHEN NEW.name <> OLD.name OR NEW.term < OLD.term
              OR (NEW.term = OLD.term AND (NEW.holder <> OLD.holder OR NEW.token <> OLD.token))
            BEGIN SELECT RAISE(ABORT, 'each holder of a lease has a term of its own'); END;
        CREATE TRIGGER terms_stay BEFORE DELETE ON leases
            BEGIN SELECT RAISE(ABORT, 'the term of a lease is kept for ever'); END;
        CREATE TABLE history (
            what TEXT NOT NULL,
            name TEXT NOT NULL,
            number INTEGER NOT NULL,
            revision INTEGER NOT NULL,
            time REAL NOT NULL,
            server TEXT NOT NULL,
            holder TEXT NOT NULL,
            term INTEGER NOT NULL,
            PRIMARY KEY (what, name, number)
        ) STRICT, WITHOUT ROWID;
        """,
        """
        CREATE TABLE losses (
            database TEXT NOT NULL,
            epoch INTEGER NOT NULL CHECK (epoch >= 1),
            since REAL NOT NULL,
            until REAL NOT NULL,
            PRIMARY KEY (database, epoch)
        ) STRICT, WITHOUT ROWID;
        """,
    ),
)
"""`active.changed`, `moves.started`, `observed.since`, `history.time` and those of `losses` are in seconds since 1970,
`leases.until` in seconds since the boot called `boot`. `state` has one row. `history.number` is the epoch of an
activation of the database `name`, or the term of a holder of the lease `name`."""


@contextmanager
def registry_faults(path: str) -> Iterator[None]:
    """Turns faults of the file into `RegistryUnavailable`."""
    try:
        with faults_of(path):
            yield
    except StoreUnavailable as fault:
        raise RegistryUnavailable(str(fault)) from fault


def count_change(connection: apsw.Connection) -> int:
    """Say inside a transaction that what a view shows has changed; answers the new revision."""
    row = connection.execute("UPDATE state SET revision = revision + 1, stamp = random() RETURNING revision").fetchone()
    assert isinstance(row, tuple), "`state` has one row"
    return int(row[0])
