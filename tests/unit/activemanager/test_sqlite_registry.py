"""The embedded registry keeps the registry's contract, and its own promises on files."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest
import structlog
from registry_contract import MovesContract, RegistryContract, RegistryWatchContract
from registry_leases_contract import LeasesContract, PassTime

from gatepost.activemanager.boot_clock import Moment
from gatepost.activemanager.port import RegistryUnavailable, RegistryView
from gatepost.activemanager.sqlite import SqliteRegistry
from gatepost.activemanager.sqlite_watch import SqliteRegistryWatch
from gatepost.routing.decision import ActiveCopy


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "registry.sqlite")


@dataclass
class Clock:
    """Time since boot, as a test wants it."""

    boot: str = "this boot"
    seconds: float = 1000.0

    def __call__(self) -> Moment:
        return Moment(self.boot, self.seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry(path: str, clock: Clock) -> SqliteRegistry:
    return SqliteRegistry(path, clock)


@pytest.fixture
def again(path: str, clock: Clock) -> SqliteRegistry:
    return SqliteRegistry(path, clock)


@pytest.fixture
def pass_time(clock: Clock) -> PassTime:
    def pass_time(seconds: float, *, exactly: bool = False) -> None:
        clock.seconds += seconds

    return pass_time


class TestSqliteRegistry(RegistryContract, MovesContract, LeasesContract):
    pass


class SqliteWatchEngine:
    def __init__(self, path: str) -> None:
        self.path = path
        self.registry = SqliteRegistry(path)
        self.registry.activate("DB01", "MBX-01")
        self.watch = SqliteRegistryWatch(path, asyncio.get_running_loop(), interval=0.02)

    def take_away(self) -> None:
        os.rename(self.path, self.path + ".away")

    def bring_back(self) -> None:
        os.rename(self.path + ".away", self.path)

    def look(self) -> None:
        """One look, now; the timer is stopped."""
        self.watch._watch.stop()
        self.watch._watch._tick()


@pytest.fixture
async def engine(path: str) -> AsyncIterator[SqliteWatchEngine]:
    engine = SqliteWatchEngine(path)
    engine.watch.start()
    yield engine
    engine.watch.close()


class TestSqliteRegistryWatch(RegistryWatchContract):
    pass


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE active SET epoch = epoch - 1",
        "UPDATE active SET server = 'MBX-09'",
        "UPDATE active SET database = 'DB09', epoch = 9",
        "DELETE FROM active",
        "INSERT INTO active VALUES ('DB02', 'MBX-01', 0, 0)",
    ],
)
def test_no_writer_can_turn_an_epoch_back(registry: SqliteRegistry, path: str, statement: str) -> None:
    """The file itself refuses, whatever program writes to it."""
    registry.activate("DB01", "MBX-01")
    registry.activate("DB01", "MBX-02")
    connection = apsw.Connection(path)
    with pytest.raises(apsw.ConstraintError):
        connection.execute(statement)
    connection.close()
    assert registry.view().active == {"DB01": ActiveCopy("DB01", "MBX-02", 2)}


def test_a_registry_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(RegistryUnavailable, match="No such folder"):
        SqliteRegistry(str(tmp_path / "missing" / "registry.sqlite")).view()


def test_a_damaged_registry_is_unavailable(registry: SqliteRegistry, path: str) -> None:
    Path(path).write_bytes(b"garbage" * 1000)
    with pytest.raises(RegistryUnavailable, match="damaged"):
        registry.view()
    with pytest.raises(RegistryUnavailable, match="damaged"):
        registry.activate("DB01", "MBX-01")


async def test_a_watch_without_a_file_is_empty_and_stale_until_it_comes(path: str) -> None:
    watch = SqliteRegistryWatch(path, asyncio.get_running_loop(), interval=0.02)
    watch.start()
    assert watch.stale_seconds > 0
    assert watch.view == RegistryView()
    told: asyncio.Queue[RegistryView] = asyncio.Queue()
    watch.on_change(told.put_nowait)
    SqliteRegistry(path).activate("DB01", "MBX-01")
    assert "DB01" in (await asyncio.wait_for(told.get(), 0.5)).active
    watch.close()


async def test_a_commit_that_changes_nothing_is_not_told(engine: SqliteWatchEngine, path: str) -> None:
    told: list[RegistryView] = []
    engine.watch.on_change(told.append)
    connection = apsw.Connection(path)
    connection.execute("UPDATE state SET revision = revision")
    connection.close()
    engine.look()
    assert told == []


async def test_a_restored_older_file_is_followed_and_logged(
    engine: SqliteWatchEngine, path: str, tmp_path: Path
) -> None:
    """The file has the last word, so that workers agree with what the operator sees; what it lost is kept."""
    backup = tmp_path / "backup"
    shutil.copy(path, backup)
    engine.registry.activate("DB01", "MBX-02")
    engine.registry.activate("DB02", "MBX-02")
    engine.look()
    os.replace(backup, path)
    with structlog.testing.capture_logs() as lines:
        engine.watch._watched.log = structlog.get_logger()
        engine.look()
    assert engine.watch.view.active == {
        "DB01": ActiveCopy("DB01", "MBX-01", 1),
        "DB02": ActiveCopy("DB02", "MBX-02", 1),
    }
    went_back = [line for line in lines if line["event"] == "registry.went_back"]
    assert [line["databases"] for line in went_back] == [["DB01", "DB02"]]


async def test_an_outage_is_logged_once_and_its_end_too(engine: SqliteWatchEngine) -> None:
    with structlog.testing.capture_logs() as lines:
        engine.watch._watched.log = structlog.get_logger()
        engine.take_away()
        for _ in range(3):
            engine.look()
        engine.bring_back()
        for _ in range(3):
            engine.look()
    assert [line["event"] for line in lines] == ["registry.unavailable", "registry.available"]


async def test_a_fault_in_a_callback_does_not_end_the_watch(engine: SqliteWatchEngine) -> None:
    seen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))
    told: asyncio.Queue[RegistryView] = asyncio.Queue()

    def fail_once(view: RegistryView) -> None:
        told.put_nowait(view)
        if told.qsize() == 1:
            raise ZeroDivisionError

    engine.watch.on_change(fail_once)
    engine.registry.activate("DB01", "MBX-02")
    engine.registry.activate("DB01", "MBX-03")
    async with asyncio.timeout(0.5):
        while engine.watch.view.active["DB01"].server != "MBX-03":
            await told.get()
