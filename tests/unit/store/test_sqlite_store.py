"""One SQLite file: what is refused, and how change and replacement are noticed."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from gatepost.store.sqlite import (
    Schema,
    Store,
    StoreNotReady,
    StoreUnavailable,
    close_after_writing,
    faults_of,
    open_for_writing,
    require_safe_sqlite,
    transaction,
)

ONE = Schema("thing", 0x1234, ("CREATE TABLE t (x INTEGER) STRICT",))
TWO = Schema("thing", 0x1234, (*ONE.migrations, "ALTER TABLE t ADD COLUMN y INTEGER"))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "thing.sqlite")


def write(path: str, value: int = 1, schema: Schema = ONE) -> None:
    connection = open_for_writing(path, schema)
    with transaction(connection):
        connection.execute("INSERT INTO t (x) VALUES (?)", (value,))
    close_after_writing(connection)


def values(store: Store) -> list[int]:
    return [int(str(row[0])) for row in store.connection().execute("SELECT x FROM t ORDER BY x").fetchall()]


@pytest.mark.parametrize("version", ["3.40.1", "3.51.2", "2.9.9"])
def test_an_old_sqlite_is_refused(version: str) -> None:
    """It can corrupt a file that several processes checkpoint at once."""
    with pytest.raises(StoreUnavailable, match="corrupt"):
        require_safe_sqlite(version)


@pytest.mark.parametrize("version", ["3.51.3", "3.54.1", "4.0.0"])
def test_a_safe_sqlite_is_accepted(version: str) -> None:
    require_safe_sqlite(version)


def test_a_new_file_is_for_its_owner_alone(path: str) -> None:
    """Hashes of passwords are inside; the files beside it follow its mode."""
    connection = open_for_writing(path, ONE)
    connection.execute("INSERT INTO t VALUES (1)")
    for name in (path, path + "-wal", path + "-shm"):
        assert stat.S_IMODE(os.stat(name).st_mode) == 0o600, name
    close_after_writing(connection)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_made_by_root_gets_the_owner_of_its_folder(tmp_path: Path) -> None:
    """Workers run as that account and could not open it otherwise."""
    folder = tmp_path / "state"
    folder.mkdir()
    os.chown(folder, 12345, 12346)
    connection = open_for_writing(str(folder / "f"), ONE)
    connection.execute("INSERT INTO t VALUES (1)")
    for name in ("f", "f-wal", "f-shm"):
        found = (folder / name).stat()
        assert (found.st_uid, found.st_gid) == (12345, 12346), name
    close_after_writing(connection)


def test_after_writing_all_is_in_the_main_file(path: str) -> None:
    """So that a plain copy is a backup, even while a reader holds the file."""
    write(path)
    store = Store(path, ONE)
    store.look()
    write(path, 2)
    assert os.stat(path + "-wal").st_size == 0
    store.close()


def test_a_reader_does_not_make_a_file(path: str) -> None:
    with pytest.raises(StoreUnavailable, match="No such file"):
        Store(path, ONE).connection()
    assert not os.path.exists(path)


def test_what_is_missing_has_a_remedy(tmp_path: Path) -> None:
    """The command that makes the file; where its folder is missing, no command can, whoever asks."""
    file = tmp_path / "f"
    with pytest.raises(StoreUnavailable, match="gatepost user add makes it"):
        Store(str(file), replace(ONE, made_by="gatepost user add")).connection()
    deep = str(tmp_path / "state" / "f")
    words = f"/f: No such folder; make {tmp_path / 'state'}, owned by the account"
    with pytest.raises(StoreUnavailable, match=words):
        Store(deep, ONE).connection()
    with pytest.raises(StoreUnavailable, match=words):
        open_for_writing(deep, ONE)


def test_a_reader_cannot_write(path: str) -> None:
    write(path)
    store = Store(path, ONE)
    with pytest.raises(StoreUnavailable), faults_of(path):
        store.connection().execute("DELETE FROM t")
    assert values(store) == [1]
    store.close()


def test_another_programs_file_is_left_alone(path: str) -> None:
    """A wrong path in the configuration must not turn somebody's data into a directory."""
    other = apsw.Connection(path)
    other.execute("CREATE TABLE precious (x)")
    other.close()
    before = Path(path).read_bytes()
    with pytest.raises(StoreUnavailable, match="not a Gatepost thing"):
        open_for_writing(path, ONE)
    with pytest.raises(StoreUnavailable, match="not a Gatepost thing"):
        Store(path, ONE).connection()
    assert Path(path).read_bytes() == before


def test_an_older_file_is_migrated_by_a_writer_and_refused_by_a_reader(path: str) -> None:
    write(path)
    with pytest.raises(StoreUnavailable, match="older version"):
        Store(path, TWO).connection()
    write(path, 2, TWO)
    store = Store(path, TWO)
    assert values(store) == [1, 2]
    store.close()


def test_a_newer_file_is_refused(path: str) -> None:
    write(path, 1, TWO)
    with pytest.raises(StoreUnavailable, match="newer Gatepost"):
        open_for_writing(path, ONE)
    with pytest.raises(StoreUnavailable, match="newer Gatepost"):
        Store(path, ONE).connection()


def test_look_says_whether_something_was_committed(path: str) -> None:
    write(path)
    store = Store(path, ONE)
    assert store.look()
    assert not store.look()
    write(path, 2)
    assert store.look()
    values(store)
    assert not store.look()
    store.close()


def test_a_change_is_not_lost_when_a_read_saw_it_first(path: str) -> None:
    write(path)
    store = Store(path, ONE)
    store.look()
    write(path, 2)
    assert values(store) == [1, 2]
    assert store.look()
    store.close()


def test_a_replaced_file_is_followed(path: str, tmp_path: Path) -> None:
    """A backup moved over the file; closing the old one does not take the new one's log away."""
    write(path, 1)
    store = Store(path, ONE)
    store.look()
    backup = str(tmp_path / "backup")
    write(backup, 7)
    os.replace(backup, path)
    writer = open_for_writing(path, ONE)
    writer.execute("INSERT INTO t VALUES (8)")
    assert store.look()
    assert values(store) == [7, 8]
    assert os.stat(path + "-wal").st_size > 0
    close_after_writing(writer)
    store.close()


def test_a_deleted_file_is_unavailable_and_a_new_one_is_found(path: str) -> None:
    write(path)
    store = Store(path, ONE)
    store.look()
    os.remove(path)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="No such file"):
            store.look()
    os.remove(path + "-wal")
    os.remove(path + "-shm")
    write(path, 5)
    assert store.look()
    assert values(store) == [5]
    store.close()


@pytest.mark.parametrize("content", [b"", b"not a database at all, but long enough to be looked at" * 100])
def test_a_file_overwritten_with_something_else_is_unavailable(path: str, content: bytes, tmp_path: Path) -> None:
    write(path)
    store = Store(path, ONE)
    store.look()
    (tmp_path / "other").write_bytes(content)
    os.replace(tmp_path / "other", path)
    with pytest.raises(StoreUnavailable):
        store.look()
    with pytest.raises(StoreUnavailable):
        store.connection()


def test_a_lock_beyond_the_time_is_unavailable(path: str) -> None:
    write(path)
    first = open_for_writing(path, ONE)
    second = open_for_writing(path, ONE, busy_seconds=0.01)
    with (
        transaction(first),
        pytest.raises(StoreUnavailable, match="locked by another"),
        faults_of(path),
        transaction(second),
    ):
        pass
    close_after_writing(first)
    close_after_writing(second)


def test_a_failed_transaction_leaves_nothing(path: str) -> None:
    connection = open_for_writing(path, ONE)

    def fail() -> None:
        with transaction(connection):
            connection.execute("INSERT INTO t VALUES (1)")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert connection.execute("SELECT count(*) FROM t").fetchall() == [(0,)]
    close_after_writing(connection)


def test_many_at_once_can_make_the_file(tmp_path: Path) -> None:
    """Readers and writers find it either not there yet or complete, never half made."""

    def make(path: str) -> None:
        store = Store(path, ONE)
        with suppress(StoreNotReady):
            store.connection()
        store.close()
        close_after_writing(open_for_writing(path, ONE))

    with ThreadPoolExecutor(8) as pool:
        for n in range(25):
            list(pool.map(make, [str(tmp_path / f"{n}.sqlite")] * 8))


def test_a_file_completed_while_it_is_looked_at_is_not_foreign(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between any two of the reader's statements another process may have made the tables."""
    empty = apsw.Connection(path)
    empty.pragma("journal_mode", "wal")
    seen: list[str] = []

    def complete_meanwhile(_: object, sql: str, __: object) -> bool:
        seen.append(sql)
        if "application_id" in sql:
            monkeypatch.setattr(apsw, "connection_hooks", [])
            write(path)
        return True

    def hook(connection: apsw.Connection) -> None:
        connection.exec_trace = complete_meanwhile

    monkeypatch.setattr(apsw, "connection_hooks", [hook])
    store = Store(path, ONE)
    with pytest.raises(StoreNotReady, match="empty"):
        store.connection()
    assert any("application_id" in sql for sql in seen)
    assert values(store) == [1]
    store.close()
    empty.close()
