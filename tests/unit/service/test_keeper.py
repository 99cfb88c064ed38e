"""The supervisor's hold on a child, here its manager: held back when it ends again and again, told of reloads."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import CapturingLogger

from gatepost.configuration.manager_settings import ManagerSettings
from gatepost.configuration.settings import Configuration, FrontEnd
from gatepost.organization.model import Organization
from gatepost.service import keeper
from gatepost.service.control import Reload, Start
from gatepost.service.keeper import MANAGER, Keeper

STUB = """
import os, socket, sys, time
from gatepost.service.control import FrameReader, Ready, Reloaded, Reload, Drain, encode, receive_first
control = socket.socket(fileno=int(sys.argv[1]))
open({log!r}, "a").write("began\\n")
if {ends}:
    sys.exit(5)
control.sendall(encode(Ready()))
reader = FrameReader()
while True:
    for message, _ in receive_first(control, reader, 30.0):
        open({log!r}, "a").write(type(message).__name__ + "\\n")
        if isinstance(message, Reload):
            control.sendall(encode(Reloaded(message.version, {objection!r})))
        if isinstance(message, Drain):
            time.sleep(0.1)
            open({log!r}, "a").write("ended\\n")
            sys.exit(0)
"""
WANTED = Configuration(Organization("o"), FrontEnd("CAS-01", "d", "r", manager=ManagerSettings()))
UNWANTED = replace(WANTED, front_end=replace(WANTED.front_end, manager=None))
OTHER = replace(WANTED, front_end=replace(WANTED.front_end, registry="another"))


class Kept:
    """A keeper of stub processes, and what those have noted."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, ends: bool = False, objection: str = ""
    ) -> None:
        self.notes = folder / "notes"
        (folder / "stub_manager.py").write_text(STUB.format(log=str(self.notes), ends=ends, objection=objection))
        monkeypatch.setenv("PYTHONPATH", str(folder))
        monkeypatch.setattr(keeper, "FIRST_PAUSE_SECONDS", 0.01)
        self.log = CapturingLogger()
        self.keeper = Keeper(replace(MANAGER, module="stub_manager"), self.start, self.log)

    def start(self) -> tuple[Start, list[int]]:
        return Start(1, b"", [], False, -1, ""), []

    def reload(self) -> tuple[Reload, list[int]]:
        return Reload(2, b"", [], False, []), []

    def noted(self) -> list[str]:
        return self.notes.read_text().split() if self.notes.exists() else []

    def events(self, name: str) -> int:
        return sum(call.args[0] == name for call in self.log.calls)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 - another process is looked at
                await asyncio.sleep(0.01)


MakeKept = Callable[..., Kept]


@pytest.fixture
async def make_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MakeKept]:
    made: list[Kept] = []

    def make(**options: object) -> Kept:
        made.append(Kept(tmp_path, monkeypatch, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for kept in made:
        await kept.keeper.stop()


async def test_one_that_keeps_ending_is_held_back(make_kept: MakeKept) -> None:
    kept = make_kept(ends=True)
    kept.keeper.follow(WANTED)
    await kept.until(lambda: kept.keeper.restarts >= 3)
    assert kept.events("manager.held_back") >= 2
    await kept.keeper.stop()
    began = len(kept.noted())
    await asyncio.sleep(0.1)
    assert len(kept.noted()) == began, "none is started after the stop"


async def test_it_is_told_of_a_reload(make_kept: MakeKept) -> None:
    kept = make_kept()
    kept.keeper.follow(WANTED)
    await kept.until(lambda: kept.keeper.is_running)
    kept.keeper.follow(WANTED, kept.reload)
    await kept.until(lambda: "Reload" in kept.noted())
    assert kept.noted() == ["began", "Start", "Reload"]


async def test_one_that_cannot_take_a_reload_up_is_replaced(make_kept: MakeKept) -> None:
    kept = make_kept(objection="no")
    kept.keeper.follow(WANTED)
    await kept.until(lambda: kept.keeper.is_running)
    first = kept.keeper.pid
    kept.keeper.follow(WANTED, kept.reload)
    await kept.until(lambda: kept.keeper.is_running and kept.keeper.pid != first)
    assert kept.events("manager.reload_failed") == 1


async def test_another_registry_needs_another_process_and_never_two_at_a_time(make_kept: MakeKept) -> None:
    kept = make_kept()
    kept.keeper.follow(WANTED)
    await kept.until(lambda: kept.keeper.is_running)
    kept.keeper.follow(OTHER, kept.reload)
    await kept.until(lambda: kept.noted().count("Start") == 2)
    assert kept.noted() == ["began", "Start", "Drain", "ended", "began", "Start"]


async def test_it_ends_when_the_configuration_has_none_and_comes_back(make_kept: MakeKept) -> None:
    kept = make_kept()
    kept.keeper.follow(UNWANTED)
    assert await kept.keeper.status(1.0) is None
    kept.keeper.follow(WANTED)
    await kept.until(lambda: kept.keeper.is_running)
    kept.keeper.follow(UNWANTED, kept.reload)
    kept.keeper.follow(WANTED, kept.reload)  # before it has ended
    await kept.until(lambda: kept.noted().count("Start") == 2)
    assert kept.noted()[2:4] == ["Drain", "ended"]
    assert kept.keeper.restarts == 0


async def test_a_program_that_is_not_there_is_tried_again_later(
    make_kept: MakeKept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = make_kept()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    kept.keeper.follow(WANTED)
    await kept.until(lambda: kept.events("manager.not_started") >= 2)
