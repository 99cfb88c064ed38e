"""The embedded registry's file: its clock for leases, older and newer versions of it, what it refuses to anybody."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path

import apsw
import pytest
import structlog

from gatepost.activemanager import boot_clock, sqlite_watch
from gatepost.activemanager.boot_clock import Moment
from gatepost.activemanager.port import LeaseLost, Move, RegistryUnavailable, RegistryView, ServerWord
from gatepost.activemanager.sqlite import SqliteRegistry
from gatepost.activemanager.sqlite_schema import SCHEMA
from gatepost.activemanager.sqlite_watch import SqliteRegistryWatch
from gatepost.activemanager.watched import WatchedView
from gatepost.routing.decision import ActiveCopy
from gatepost.store.sqlite import Store, StoreUnavailable, open_for_writing

VERSION_1 = replace(SCHEMA, migrations=SCHEMA.migrations[:1])
"""What the first released program knows."""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "registry.sqlite")


class TestClock:
    def test_a_step_of_the_wall_clock_changes_nothing(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither is a lease over early, nor does one last longer."""
        registry = SqliteRegistry(path, lambda: Moment("boot", 10.0))
        lease = registry.take_lease("manager", "CAS-01", 5.0)
        assert lease is not None
        for wall in (time.time() + 1e6, 0.0):
            monkeypatch.setattr(time, "time", lambda wall=wall: wall)
            assert registry.take_lease("manager", "CAS-02", 5.0) is None
            registry.activate("DB01", "MBX-01", lease=lease)
        monkeypatch.setattr(time, "time", lambda: 0.0)
        with pytest.raises(LeaseLost):
            SqliteRegistry(path, lambda: Moment("boot", 15.0)).keep_lease(lease)

    @pytest.mark.parametrize("seconds", [0.0, 11.0, 1e6])
    def test_a_lease_of_another_boot_is_over(self, path: str, seconds: float) -> None:
        """Also when the clock of this boot shows less than that of the one before."""
        before = SqliteRegistry(path, lambda: Moment("the boot before", 10.0))
        lease = before.take_lease("manager", "CAS-01", 60.0)
        assert lease is not None
        now = SqliteRegistry(path, lambda: Moment("this boot", seconds))
        with pytest.raises(LeaseLost):
            now.keep_lease(lease)
        assert now.view().manager is None
        taken = now.take_lease("manager", "CAS-02", 60.0)
        assert taken is not None
        assert taken.term == 2

    def test_a_lease_ends_at_its_moment(self, path: str) -> None:
        lease = SqliteRegistry(path, lambda: Moment("boot", 10.0)).take_lease("manager", "CAS-01", 5.0)
        assert lease is not None
        SqliteRegistry(path, lambda: Moment("boot", 14.999)).activate("DB01", "MBX-01", lease=lease)
        with pytest.raises(LeaseLost, match="nobody holds it"):
            SqliteRegistry(path, lambda: Moment("boot", 15.0)).activate("DB01", "MBX-01", lease=lease)

    def test_this_machine_tells_its_boot(self) -> None:
        first, second = boot_clock.now(), boot_clock.now()
        assert first.boot == second.boot != ""
        assert second.seconds >= first.seconds > 0


class TestVersions:
    def test_data_of_the_first_version_stays(self, path: str) -> None:
        connection = open_for_writing(path, VERSION_1)
        connection.execute("INSERT INTO active VALUES ('DB01', 'MBX-02', 7, 1700000000)")
        connection.execute("UPDATE state SET revision = 9, organization_version = 4")
        connection.close()
        registry = SqliteRegistry(path)
        assert registry.view() == RegistryView(9, {"DB01": ActiveCopy("DB01", "MBX-02", 7)}, 4)
        registry.set_word("MBX-02", ServerWord.DRAINING)
        assert registry.activate("DB01", "MBX-01", expected_epoch=7).epoch == 8
        assert [(entry.epoch, entry.revision) for entry in registry.history()] == [(8, 11)]

    def test_an_older_program_says_that_the_file_is_newer(self, path: str) -> None:
        """It neither reads half of it nor writes to it."""
        SqliteRegistry(path).activate("DB01", "MBX-01")
        with pytest.raises(StoreUnavailable, match="made by a newer Gatepost"):
            open_for_writing(path, VERSION_1)
        with pytest.raises(StoreUnavailable, match="made by a newer Gatepost"):
            Store(path, VERSION_1).connection()
        assert SqliteRegistry(path).view().active["DB01"].epoch == 1

    def test_this_program_too(self, path: str) -> None:
        open_for_writing(path, replace(SCHEMA, migrations=(*SCHEMA.migrations, "SELECT 1"))).close()
        with pytest.raises(RegistryUnavailable, match="made by a newer Gatepost"):
            SqliteRegistry(path).view()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE leases SET term = 1",
        "UPDATE leases SET holder = 'CAS-09'",
        "UPDATE leases SET token = 'x'",
        "UPDATE leases SET name = 'x', term = 9",
        "DELETE FROM leases",
    ],
)
def test_no_writer_can_give_two_holders_one_term(path: str, statement: str) -> None:
    registry = SqliteRegistry(path)
    for holder in ("CAS-01", "CAS-02"):
        lease = registry.take_lease("manager", holder, 60.0)
        assert lease is not None
        if holder == "CAS-01":
            registry.give_lease_back(lease)
    connection = apsw.Connection(path)
    with pytest.raises(apsw.ConstraintError):
        connection.execute(statement)
    connection.close()


class TestWatching:
    async def test_a_lease_that_is_kept_is_not_read_again(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is kept every second, by a manager whose databases may be thousands."""
        registry = SqliteRegistry(path)
        lease = registry.take_lease("manager", "CAS-01", 60.0)
        assert lease is not None
        watch = SqliteRegistryWatch(path, asyncio.get_running_loop())
        watch.start()
        reads: list[object] = []
        monkeypatch.setattr(sqlite_watch, "read_view", lambda *args: reads.append(args))
        registry.keep_lease(lease)
        watch._watch.stop()
        watch._watch._tick()
        assert reads == []
        watch.close()

    async def test_a_file_of_the_same_revision_with_other_contents_is_read(self, path: str, tmp_path: Path) -> None:
        """An older file that was put back and changed since."""
        registry, other = SqliteRegistry(path), SqliteRegistry(str(tmp_path / "other.sqlite"))
        for each, server in ((registry, "MBX-01"), (other, "MBX-02")):
            each.activate("DB01", server)
        watch = SqliteRegistryWatch(path, asyncio.get_running_loop())
        watch.start()
        os.replace(tmp_path / "other.sqlite", path)
        watch._watch.stop()
        watch._watch._tick()
        assert watch.view.active["DB01"].server == "MBX-02"
        watch.close()


class TestStaleness:
    """For how long the registry has not been heard of, whatever the reason."""

    def stage(self) -> tuple[WatchedView, list[float]]:
        clock = [100.0]
        view = WatchedView("somewhere", asyncio.get_running_loop(), quiet_seconds=3.0, clock=lambda: clock[0])
        return view, clock

    async def test_it_counts_from_the_beginning_without_a_view(self) -> None:
        view, clock = self.stage()
        clock[0] += 1
        assert view.stale_seconds == 1
        assert not await view.first_view(0.01)

    async def test_it_is_zero_between_two_signs_of_life(self) -> None:
        view, clock = self.stage()
        view.take(RegistryView(1))
        view.heard()
        clock[0] += 2.9
        assert view.stale_seconds == 0
        assert await view.first_view(0.01)

    async def test_a_process_that_stood_still_has_an_old_view(self) -> None:
        """SIGSTOP, a paused machine: nothing failed, and all the same nothing was heard."""
        view, clock = self.stage()
        view.take(RegistryView(1))
        view.heard()
        clock[0] += 500
        assert view.stale_seconds == 500

    async def test_an_outage_counts_from_the_last_sign_of_life(self) -> None:
        view, clock = self.stage()
        view.take(RegistryView(1))
        view.heard()
        clock[0] += 2
        with structlog.testing.capture_logs() as lines:
            view.log = structlog.get_logger()
            view.lost("no answer")
            view.lost("no answer")
            assert view.stale_seconds == 2
            view.heard(101.0)
            assert view.stale_seconds == 0
        assert [line["event"] for line in lines] == ["registry.unavailable", "registry.available"]

    async def test_one_fault_in_a_callback_keeps_no_other_from_being_told(self) -> None:
        view, _ = self.stage()
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        told: asyncio.Queue[RegistryView] = asyncio.Queue()

        def fail(_: RegistryView) -> None:
            raise ZeroDivisionError

        view.on_change(fail)
        view.on_change(told.put_nowait)
        view.take(RegistryView(1))
        assert await asyncio.wait_for(told.get(), 1) == RegistryView(1)


def test_a_move_keeps_all_that_was_said_of_it(path: str) -> None:
    registry = SqliteRegistry(path)
    move = Move("DB01", "", "MBX-01", 0, 1.25, "first activation, by hand: „über“")
    registry.begin_move(move)
    assert registry.view().moves == {"DB01": move}
