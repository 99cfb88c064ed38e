"""The fleet without processes: what happens when things come at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from structlog.testing import CapturingLogger

from gatepost.service import fleet
from gatepost.service.control import Drain, Leaving, Message, Ready, Reload, Start
from gatepost.service.fleet import Fleet
from gatepost.service.worker_process import State


class FakeChannel:
    """Keeps what is sent; `fault` is raised instead."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.fault: OSError | None = None

    def send(self, message: Message, descriptors: list[int]) -> None:
        if self.fault is not None:
            raise self.fault
        self.sent.append(message)


class FakeWorker:
    """A worker that does what the test says."""

    made: list[FakeWorker]
    next_fault: OSError | None

    def __init__(
        self, slot: int, _arguments: object, _environment: object, on_message: Any, on_exit: Any, *, inherited: Any
    ) -> None:
        self.slot = slot
        self.state = State.STARTING
        self.was_ready = False
        self.failure = ""
        self.returncode: int | None = None
        self.ending = "exit status 0"
        self.started_at = 0.0
        self.channel = FakeChannel()
        self.channel.fault = FakeWorker.next_fault
        self.killed = False
        self._on_message: Callable[[FakeWorker, Message], None] = on_message
        self._on_exit: Callable[[FakeWorker], None] = on_exit
        FakeWorker.made.append(self)
        self.pid = 1000 + len(FakeWorker.made)

    def says(self, message: Message) -> None:
        if isinstance(message, Ready):
            self.state, self.was_ready = State.READY, True
        self._on_message(self, message)

    def drain(self, seconds: float, _patience: float) -> None:
        self.state = State.DRAINING
        self.channel.sent.append(Drain(seconds))

    def kill(self) -> None:
        self.killed = True

    def ends(self) -> None:
        self.state, self.returncode = State.ENDED, 0
        self._on_exit(self)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[FakeWorker]:
    FakeWorker.made, FakeWorker.next_fault = [], None
    monkeypatch.setattr(fleet, "WorkerProcess", FakeWorker)
    return FakeWorker.made


def start_message(slot: int) -> tuple[Start, list[int]]:
    return Start(version=1, configuration=b"", opened=[], log=False, slot=slot, user=""), []


def reload_message(_slot: int) -> tuple[Reload, list[int]]:
    return Reload(version=2, configuration=b"", opened=[], log=False, closed=[]), []


async def running(workers: list[FakeWorker], slots: int) -> tuple[Fleet, CapturingLogger]:
    """A fleet whose workers are ready."""
    log = CapturingLogger()
    made = Fleet("core", start_message, cast(Any, log))
    starting = asyncio.create_task(made.start(slots))
    await asyncio.sleep(0)
    for worker in workers:
        worker.says(Ready())
    await starting
    return made, log


async def test_nothing_is_started_within_a_drain(workers: list[FakeWorker]) -> None:
    """A renewal, a reload with more workers and a worker that leaves by itself come too late: the drain ends all."""
    made, _ = await running(workers, 2)
    draining = asyncio.create_task(made.drain(30))
    await asyncio.sleep(0)
    made.replace()
    made.grow(5)
    workers[0].says(Leaving())
    assert len(workers) == 2
    for worker in list(workers):
        worker.ends()
    await asyncio.wait_for(draining, 5)
    assert len(workers) == 2


async def test_a_successor_that_is_ready_within_a_drain_is_drained_too(workers: list[FakeWorker]) -> None:
    """A renewal was under way when the stop came: both the old and the new worker are told to end."""
    made, _ = await running(workers, 1)
    made.replace()
    draining = asyncio.create_task(made.drain(30))
    await asyncio.sleep(0)
    old, new = workers
    assert [m for w in (old, new) for m in w.channel.sent if isinstance(m, Drain)] == [Drain(30), Drain(30)]
    new.ends()
    old.ends()
    await asyncio.wait_for(draining, 5)


async def test_without_descriptors_a_reload_is_an_objection_and_no_fault(workers: list[FakeWorker]) -> None:
    """The supervisor is out of descriptors: workers that could not be told are named, the others are told."""
    made, _ = await running(workers, 2)
    workers[0].channel.fault = OSError(24, "Too many open files")
    made.reload(reload_message)
    assert [type(m) for m in workers[1].channel.sent] == [Start, Reload]
    made._confirm(cast(Any, workers[1]))
    (objection,) = await made.confirmed(5)
    assert "Too many open files" in objection
    made._ping_timer.cancel()


async def test_a_worker_that_cannot_be_told_what_to_do_does_not_stay(workers: list[FakeWorker]) -> None:
    """Its process is there, its first message is not: it is ended, and another is tried later."""
    made, log = await running(workers, 1)
    FakeWorker.next_fault = OSError(24, "Too many open files")
    made.replace()
    assert workers[1].killed
    assert ("worker.not_started",) in [call.args for call in log.calls]
    made._ping_timer.cancel()
