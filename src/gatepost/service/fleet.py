"""The workers as a whole: started, restarted, replaced, watched and drained by slot.

A slot is a place for one worker and owns one socket of each address (`sockets.Listeners`). A worker that ends unasked
is replaced at once, one that keeps ending soon after its start with growing pauses. To replace a running worker its
successor starts on the same sockets, and only when that is ready does the old one drain.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from gatepost.directory.remembered import VARIABLE, make_memory
from gatepost.service.control import Failed, Leaving, Message, Ping, Ready, Reload, Reloaded, Start
from gatepost.service.worker_process import State, WorkerProcess

STABLE_SECONDS = 10.0
"""A worker that ran this long was not broken from the start: its replacement is not held back."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 2.0
"""Pauses before a worker is started that ended soon after its start: doubled each time, up to the longest.

Its sockets go on taking connections meanwhile, which wait for the successor: no longer than a client does.
"""
PING_SECONDS = 5.0
UNANSWERED_PINGS = 6
"""A worker whose loop stood still for half a minute hangs: it is killed and replaced."""
START_SECONDS = 60.0
"""A worker that is not ready by then is killed. Starting takes half a second where the machine has time."""
DRAIN_PATIENCE_SECONDS = 5.0
"""A draining worker is killed this long after its deadline."""
AT_ONCE_SECONDS = 2.0
"""For the last log lines when everything is to end at once."""


class StartFailed(RuntimeError):
    """No worker could start. The message holds what they said."""


@dataclass
class _Slot:
    index: int
    worker: WorkerProcess | None = None
    successor: WorkerProcess | None = None
    quick_ends: int = 0
    unanswered: int = 0
    restart: asyncio.TimerHandle | None = None


class Fleet:
    """All workers. `start_message(slot)` makes a worker's first message with its descriptors."""

    def __init__(
        self, core: str, start_message: Callable[[int], tuple[Start, list[int]]], log: FilteringBoundLogger
    ) -> None:
        self._core = core
        self._start_message = start_message
        self._log = log
        self._shared: int | None = None
        """Memory of passwords that were right lately, for all workers; those that replace others go on with it."""
        self._loop = asyncio.get_running_loop()
        self._slots: list[_Slot] = []
        self._leaving: set[WorkerProcess] = set()
        self._stopping = False
        self._nobody_left = asyncio.Event()
        self._first_results: dict[int, str] | None = {}
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._unconfirmed: set[WorkerProcess] = set()
        self._confirmed = asyncio.Event()
        self._rejected: dict[str, None] = {}
        self._ping_timer = self._loop.call_later(PING_SECONDS, self._ping)
        self.drain_seconds = 30.0
        """Time for the sessions of a worker that is replaced."""
        self.restarts = 0
        """Workers that were started because another had ended unasked."""

    def __iter__(self) -> Iterator[WorkerProcess]:
        """Every process that runs."""
        for slot in self._slots:
            yield from (w for w in (slot.worker, slot.successor) if w is not None)
        yield from self._leaving

    async def start(self, slots: int) -> None:
        """Starts the first workers, if any; returns when each is ready or failed. Raises `StartFailed` if all have."""
        if not slots:
            self._first_results = None
            return
        self.grow(slots)
        await self._started

    def grow(self, slots: int) -> None:
        """Starts workers until there are `slots`. The sockets of new slots must be there already."""
        if self._stopping:
            return
        for index in range(len(self._slots), slots):
            self._slots.append(_Slot(index))
            self._launch(self._slots[index])

    def shrink(self, slots: int, seconds: float) -> None:
        """Drains the workers of the slots from `slots` on. Their sockets may be closed afterwards."""
        for slot in self._slots[slots:]:
            self._cancel_restart(slot)
            for worker in (slot.worker, slot.successor):
                if worker is not None:
                    self._dismiss(worker, seconds)
        del self._slots[slots:]

    def reload(self, message: Callable[[int], tuple[Reload, list[int]]]) -> None:
        """Sends every worker of a slot its message."""
        self._rejected.clear()
        for slot in self._slots:
            for worker in (slot.worker, slot.successor):
                if worker is not None and worker.state in {State.STARTING, State.READY}:
                    try:
                        worker.channel.send(*message(slot.index))
                    except OSError as fault:  # no descriptor to send a copy of
                        self._log.error("worker.not_told", worker=worker.pid, slot=slot.index, reason=str(fault))
                        self._rejected[f"a worker could not be told: {fault}"] = None
                        continue
                    self._unconfirmed.add(worker)
        self._confirm(None)

    async def confirmed(self, seconds: float) -> list[str]:
        """Waits until each worker has answered the last `reload`, at most `seconds`; answers what they objected."""
        try:
            await asyncio.wait_for(self._confirmed.wait(), seconds)
        except TimeoutError:
            self._rejected["a worker has not confirmed in time"] = None
        return list(self._rejected)

    def replace(self, slot_index: int | None = None) -> None:
        """Has new workers take over from the running ones: in one slot, or in all."""
        if self._stopping:
            return
        for slot in self._slots:
            if slot_index in {None, slot.index} and slot.worker is not None and slot.successor is None:
                slot.successor = self._spawn(slot)

    async def drain(self, seconds: float) -> None:
        """Has all workers end, and returns when they have. A second call with 0 ends a first one."""
        self._stopping = True
        self._ping_timer.cancel()
        patience = DRAIN_PATIENCE_SECONDS if seconds > 0 else AT_ONCE_SECONDS
        for slot in self._slots:
            self._cancel_restart(slot)
        for worker in list(self):
            worker.drain(seconds, patience)
        self._check_nobody_left()
        await self._nobody_left.wait()
        if self._shared is not None:
            os.close(self._shared)
            self._shared = None

    def _launch(self, slot: _Slot) -> None:
        slot.restart = None
        slot.worker = self._spawn(slot)
        if slot.worker is None:
            self._plan_restart(slot)

    def _spawn(self, slot: _Slot) -> WorkerProcess | None:
        slot.unanswered = 0
        worker = None
        try:
            if self._shared is None:
                self._shared = make_memory()
            environment = os.environ | {VARIABLE: str(self._shared)}
            worker = WorkerProcess(
                slot.index, [self._core], environment, self._received, self._exited, inherited=[self._shared]
            )
            worker.channel.send(*self._start_message(slot.index))
        except OSError as fault:  # no memory, no process table entry, no descriptor: may pass
            if worker is not None:
                worker.kill()  # it would wait for its first message
            self._log.error("worker.not_started", slot=slot.index, reason=str(fault))
            self._note_first_result(slot.index, str(fault))
            return None
        return worker

    def _received(self, worker: WorkerProcess, message: Message) -> None:
        slot = self._slot_of(worker)
        if slot is not None and worker is slot.worker:
            slot.unanswered = 0
        match message:
            case Ready():
                self._ready(worker, slot)
            case Reloaded():
                if message.error:
                    self._log.error("worker.reload_failed", worker=worker.pid, reason=message.error)
                    self._rejected[message.error] = None
                self._confirm(worker)
            case Leaving() if not self._stopping and slot is not None:
                self._log.info("worker.leaving", worker=worker.pid, slot=slot.index)
                self.replace(slot.index)
            case Failed():
                self._log.error("worker.cannot_start", worker=worker.pid, slot=worker.slot, reason=message.reason)

    def _ready(self, worker: WorkerProcess, slot: _Slot | None) -> None:
        self._log.info("worker.ready", worker=worker.pid, slot=worker.slot)
        self._note_first_result(worker.slot, "")
        if slot is not None and worker is slot.successor:
            old, slot.worker, slot.successor = slot.worker, worker, None
            if old is not None:
                self._dismiss(old, None)

    def _dismiss(self, worker: WorkerProcess, seconds: float | None) -> None:
        self._leaving.add(worker)
        worker.drain(self.drain_seconds if seconds is None else seconds, DRAIN_PATIENCE_SECONDS)

    def _exited(self, worker: WorkerProcess) -> None:
        self._confirm(worker)
        self._leaving.discard(worker)
        slot = self._slot_of(worker)
        asked = self._stopping or slot is None
        level = self._log.info if worker.returncode == 0 else self._log.error
        level("worker.ended", worker=worker.pid, slot=worker.slot, how=worker.ending, asked=asked)
        self._note_first_result(worker.slot, worker.failure or f"ended at once: {worker.ending}")
        if slot is not None:
            self._vacate(slot, worker)
        self._check_nobody_left()

    def _vacate(self, slot: _Slot, worker: WorkerProcess) -> None:
        if worker is slot.successor:
            # The old one goes on: better an old configuration than none.
            slot.successor = None
            return
        slot.worker, slot.successor = slot.successor, None
        if slot.worker is None and not self._stopping:
            lived = self._loop.time() - worker.started_at
            slot.quick_ends = 0 if lived >= STABLE_SECONDS and worker.was_ready else slot.quick_ends
            self.restarts += 1
            self._plan_restart(slot)

    def _plan_restart(self, slot: _Slot) -> None:
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(slot.quick_ends - 1, 10))
        slot.quick_ends += 1
        if slot.quick_ends == 1:
            self._launch(slot)
            return
        self._log.warning("worker.held_back", slot=slot.index, seconds=pause, ends=slot.quick_ends)
        slot.restart = self._loop.call_later(pause, self._launch, slot)

    def _cancel_restart(self, slot: _Slot) -> None:
        if slot.restart is not None:
            slot.restart.cancel()
            slot.restart = None

    def _slot_of(self, worker: WorkerProcess) -> _Slot | None:
        return next((s for s in self._slots if worker in {s.worker, s.successor}), None)

    def _note_first_result(self, slot: int, failure: str) -> None:
        """The service has started once every slot has a first result, and has failed if none of them is good."""
        results = self._first_results
        if results is None:
            return
        results.setdefault(slot, failure)
        if len(results) < len(self._slots):
            return
        self._first_results = None
        if all(results.values()):
            self._started.set_exception(StartFailed("\n".join(dict.fromkeys(results.values()))))
        else:
            self._started.set_result(None)

    def _confirm(self, worker: WorkerProcess | None) -> None:
        if worker is not None:
            self._unconfirmed.discard(worker)
        if self._unconfirmed:
            self._confirmed.clear()
        else:
            self._confirmed.set()

    def _check_nobody_left(self) -> None:
        if self._stopping and not any(True for _ in self):
            self._nobody_left.set()

    def _ping(self) -> None:
        """Counts pings, not seconds: a supervisor that was stopped for a while must not kill healthy workers."""
        self._ping_timer = self._loop.call_later(PING_SECONDS, self._ping)
        late = self._loop.time() - START_SECONDS
        for worker in list(self):
            if worker.state is State.STARTING and worker.started_at < late:
                self._log.error("worker.starts_too_slowly", worker=worker.pid, slot=worker.slot)
                worker.kill()
        for slot in self._slots:
            if slot.worker is None or slot.worker.state is not State.READY:
                continue
            if slot.unanswered >= UNANSWERED_PINGS:
                self._log.error("worker.hangs", worker=slot.worker.pid, slot=slot.index)
                slot.worker.kill()
            slot.unanswered += 1
            slot.worker.channel.send(Ping())
