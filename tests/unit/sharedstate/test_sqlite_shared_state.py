"""The embedded shared state keeps the contract, and its own promises on age, size and faults."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest
import structlog
from shared_state_contract import NOW, SharedStateContract, until

from gatepost.sharedstate import sqlite as shared_state
from gatepost.sharedstate import tables, writer
from gatepost.sharedstate.sqlite import SqliteSharedState, prepare
from gatepost.store.sqlite import StoreUnavailable


class SqliteEngine:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = str(folder / "shared.sqlite")
        self.now = NOW
        self.one = self.another()
        self.other = self.another()

    def another(self) -> SqliteSharedState:
        state = SqliteSharedState(self.path, asyncio.get_running_loop(), interval=0.02, clock=lambda: self.now)
        state.start()
        return state

    def take_away(self) -> None:
        """The folder too: a missing file alone would be made anew."""
        os.rename(self.folder, f"{self.folder}.away")

    def bring_back(self) -> None:
        os.rename(f"{self.folder}.away", self.folder)

    def rows(self, table: str) -> int:
        connection = apsw.Connection(self.path)
        try:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])
        finally:
            connection.close()

    async def written(self) -> None:
        """Until the writer of `one` has nothing to do."""
        await until(lambda: not self.one._writer._busy)


@pytest.fixture
async def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteEngine]:
    # On a busy machine a commit may take its second, and that is not what is asked here.
    monkeypatch.setattr(shared_state, "ANSWER_SECONDS", 30.0)
    folder = tmp_path / "state"
    folder.mkdir()
    prepare(str(folder / "shared.sqlite"))
    engine = SqliteEngine(folder)
    yield engine
    for state in (engine.one, engine.other):
        await until(lambda state=state: not state._writer._busy)
        state.close()


class TestSqliteSharedState(SharedStateContract):
    pass


async def test_devices_are_forgotten_60_days_after_they_were_last_seen(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "TIDY_CHANGES", 2)
    await engine.one.first_server("used", "CAS-01", NOW)
    await engine.one.first_server("unused", "CAS-01", NOW)
    engine.now = NOW + 40 * 86400
    assert engine.one.known_server("used") == "CAS-01"
    await engine.written()
    for number in range(2):
        await engine.one.first_server(f"later {number}", "CAS-01", NOW + 61 * 86400)
    fresh = engine.another()
    assert (fresh.known_server("used"), fresh.known_server("unused")) == ("CAS-01", None)
    fresh.close()


async def test_a_use_is_written_once_a_day_only(engine: SqliteEngine) -> None:
    await engine.one.first_server("phone", "CAS-01", NOW)
    writes = 0
    write_later = engine.one._writer.write_later

    def counted(change: tables.Change) -> None:
        nonlocal writes
        writes += 1
        write_later(change)

    engine.one._writer.write_later = counted  # type: ignore[method-assign]
    for hour in range(30):
        engine.now = NOW + hour * 3600
        assert engine.one.known_server("phone") == "CAS-01"
    assert writes == 1


async def test_the_number_of_devices_and_sign_outs_is_bounded_and_the_oldest_go(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MAX_DEVICES", 5)
    monkeypatch.setattr(tables, "MAX_SIGN_OUTS", 5)
    monkeypatch.setattr(tables, "TIDY_CHANGES", 2)
    for number in range(20):
        await engine.one.first_server(f"phone {number}", "CAS-01", NOW + number)
        await engine.one.sign_out(f"session {number}", NOW + 100 + number)
    assert engine.rows("devices") <= 6
    assert engine.rows("sign_outs") <= 6
    assert len(engine.one._sign_outs) <= 5
    assert engine.one.is_signed_out("session 19")
    assert engine.other.known_server("phone 19") == "CAS-01"
    assert engine.other.known_server("phone 0") is None


async def test_expired_sign_outs_are_removed(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "TIDY_CHANGES", 2)
    await engine.one.sign_out("old", NOW + 900)
    engine.now = NOW + 1000
    for number in range(2):
        await engine.one.sign_out(f"new {number}", NOW + 2000)
    await engine.written()
    assert engine.rows("sign_outs") == 2
    fresh = engine.another()
    assert (fresh.is_signed_out("old"), fresh.is_signed_out("new 1")) == (False, True)
    fresh.close()


async def test_a_devices_cache_is_bounded(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_state, "CACHED_DEVICES", 3)
    for number in range(9):
        await engine.one.first_server(f"phone {number}", "CAS-01", NOW)
    assert len(engine.one._devices) == 3
    assert engine.one.known_server("phone 0") == "CAS-01"


async def test_a_late_file_does_not_hold_up_a_request(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process holds the write lock: the answer comes all the same, and soon."""
    monkeypatch.setattr(shared_state, "ANSWER_SECONDS", 0.05)
    blocker = apsw.Connection(engine.path)
    blocker.execute("BEGIN IMMEDIATE")
    answer = await asyncio.wait_for(engine.one.first_server("phone", "CAS-02", NOW, ["CAS-02"]), 1)
    assert answer == "CAS-02"
    blocker.execute("ROLLBACK")
    blocker.close()
    await engine.written()


async def test_many_at_once_share_a_commit(engine: SqliteEngine) -> None:
    await asyncio.gather(*(engine.one.first_server(f"phone {number}", "CAS-01", NOW) for number in range(200)))
    connection = apsw.Connection(engine.path)
    assert int(connection.execute("SELECT revision FROM state").fetchall()[0][0]) < 5
    connection.close()


async def test_more_than_can_be_written_is_answered_without(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MAX_PENDING", 3)
    answers = await asyncio.gather(
        *(engine.one.first_server(f"phone {number}", "CAS-01", NOW, ["CAS-01"]) for number in range(20))
    )
    assert set(answers) == {"CAS-01"}


async def test_a_restored_older_file_is_followed(engine: SqliteEngine, tmp_path: Path) -> None:
    """Devices are as it says; a sign-out is not taken back."""
    await engine.one.first_server("phone", "CAS-01", NOW)
    await engine.written()
    shutil.copy(engine.path, tmp_path / "backup")
    await engine.one.move_server("phone", "CAS-02", NOW)
    await engine.one.sign_out("session", NOW + 900)
    await until(lambda: engine.other.is_signed_out("session"))
    os.replace(tmp_path / "backup", engine.path)
    await until(lambda: engine.other.known_server("phone") == "CAS-01")
    assert engine.other.is_signed_out("session")


async def test_an_outage_is_logged_once(engine: SqliteEngine) -> None:
    engine.other.close()
    with structlog.testing.capture_logs() as lines:
        engine.one._log = structlog.get_logger()
        engine.take_away()
        for number in range(5):
            await engine.one.first_server(f"phone {number}", "CAS-01", NOW)
        await until(lambda: engine.one._watch.fault is not None)
        engine.bring_back()
        await until(lambda: engine.one._watch.fault is None)
        await engine.one.first_server("phone", "CAS-01", NOW)
    assert sorted(line["event"] for line in lines) == [
        "shared_state.available", "shared_state.not_written", "shared_state.unavailable", "shared_state.written_again",
    ]  # fmt: skip


async def test_the_file_names_nobody(engine: SqliteEngine) -> None:
    await engine.one.first_server("alice@contoso.com phone", "CAS-01", NOW)
    await engine.one.sign_out("secret session", NOW + 900)
    await engine.written()
    content = b"".join(path.read_bytes() for path in engine.folder.iterdir())
    assert b"CAS-01" in content
    assert b"alice" not in content
    assert b"secret" not in content


def test_another_stores_file_is_refused(tmp_path: Path) -> None:
    from gatepost.activemanager.sqlite import SqliteRegistry

    SqliteRegistry(str(tmp_path / "registry.sqlite")).view()
    with pytest.raises(StoreUnavailable, match="not a Gatepost shared state"):
        prepare(str(tmp_path / "registry.sqlite"))
