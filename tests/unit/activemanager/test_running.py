"""A running manager on the embedded registry: its lease, its end, answers that come too late, and its own faults."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from manager_stage import organization
from structlog.testing import CapturingLogger

from gatepost.activemanager import running
from gatepost.activemanager.manager import Manager
from gatepost.activemanager.port import Lease, RegistryUnavailable
from gatepost.activemanager.running import RunningManager, holder_name
from gatepost.activemanager.seed import seed
from gatepost.activemanager.sqlite import SqliteRegistry
from gatepost.configuration.manager_settings import ManagerSettings
from gatepost.configuration.settings import Configuration, FrontEnd

SETTINGS = ManagerSettings(lease_seconds=2.0, probe_seconds=0.2, failed_seconds=0.6, refused_seconds=0.3)


def configuration(folder: Path, settings: ManagerSettings = SETTINGS) -> Configuration:
    front_end = FrontEnd("CAS-01", str(folder / "directory.sqlite"), str(folder / "registry.sqlite"), manager=settings)
    return Configuration(organization({"DB1": "AB"}, {"A": "usa", "B": "usa"}), front_end)


@asynccontextmanager
async def manager(found: Configuration, log: Any) -> AsyncIterator[RunningManager]:
    running_one = RunningManager(found, lambda _: lambda _: pytest.fail("nothing here has TLS"), log)
    running_one.start()
    try:
        yield running_one
    finally:
        await running_one.leave()


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - threads and files have no event
            await asyncio.sleep(0.01)


@pytest.fixture
def log() -> CapturingLogger:
    return CapturingLogger()


def names(log: CapturingLogger) -> list[str]:
    return [call.args[0] for call in log.calls]


async def test_it_takes_the_lease_and_gives_it_back(tmp_path: Path, log: CapturingLogger) -> None:
    found = configuration(tmp_path)
    registry = SqliteRegistry(found.front_end.registry)
    seed(registry, found.organization)
    async with manager(found, log) as one:
        await until(lambda: one.state().acts)
        state = one.state()
        assert (state.holder, state.term) == (one.holder, 1)
        held = registry.view().manager
        assert held is not None
        assert held.holder == one.holder
    assert registry.view().manager is None
    async with manager(found, log) as successor:
        await until(lambda: successor.state().acts)
        assert successor.state().term == 2


async def test_a_standby_knows_who_acts(tmp_path: Path, log: CapturingLogger) -> None:
    found = configuration(tmp_path)
    seed(SqliteRegistry(found.front_end.registry), found.organization)
    async with manager(found, log) as first:
        await until(lambda: first.state().acts)
        async with manager(found, log) as second:
            await until(lambda: second.state().holder == first.holder)
            assert not second.state().acts


async def test_it_goes_on_with_another_configuration(tmp_path: Path, log: CapturingLogger) -> None:
    found = configuration(tmp_path)
    seed(SqliteRegistry(found.front_end.registry), found.organization)
    async with manager(found, log) as one:
        await until(lambda: one.state().acts)
        await until(lambda: "A imap" in one.state().ill)
        other = Configuration(organization({"DB1": "C"}, {"C": "usa"}), found.front_end, 2)
        one.reload(other)
        await until(lambda: set(one.state().ill) == {"C imap"})
        assert one.state().acts


async def test_a_lease_that_comes_too_late_is_given_back(
    tmp_path: Path, log: CapturingLogger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry answered after nobody waited any more: nobody would renew it, and nobody else could have it."""
    found = configuration(tmp_path)
    seed(SqliteRegistry(found.front_end.registry), found.organization)
    let_go, given_back = threading.Event(), threading.Event()

    class Slow(SqliteRegistry):
        def take_lease(self, name: str, holder: str, seconds: float) -> Lease | None:
            let_go.wait(10.0)
            return super().take_lease(name, holder, seconds)

        def give_lease_back(self, lease: Lease) -> None:
            super().give_lease_back(lease)
            given_back.set()

    monkeypatch.setattr(running, "open_registry", lambda front_end, seconds: Slow(front_end.registry))
    async with manager(found, log):
        await until(lambda: "manager.registry_unavailable" in names(log))
        let_go.set()
        await until(given_back.is_set)


async def test_a_registry_that_is_away_is_said_once_and_nothing_is_done(
    tmp_path: Path, log: CapturingLogger, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = configuration(tmp_path)
    calls: list[str] = []

    class Away(SqliteRegistry):
        def take_lease(self, name: str, holder: str, seconds: float) -> Lease | None:
            calls.append("take")
            raise RegistryUnavailable("no quorum")

    monkeypatch.setattr(running, "open_registry", lambda front_end, seconds: Away(front_end.registry))
    async with manager(found, log) as one:
        await until(lambda: len(calls) >= 4)
        assert not one.state().acts
    assert names(log).count("manager.registry_unavailable") == 1


async def test_a_fault_of_its_mind_ends_it(
    tmp_path: Path, log: CapturingLogger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manager in a state that nobody thought of must not act: its process ends and is started anew."""
    async with manager(configuration(tmp_path), log) as one:
        with monkeypatch.context() as patch:
            patch.setattr(Manager, "handle", lambda *_: 1 / 0)
            await until(one.failed.done)
        assert isinstance(one.failed.exception(), ZeroDivisionError)


def test_no_two_processes_have_one_name() -> None:
    assert len({holder_name("CAS-01") for _ in range(100)}) == 100
