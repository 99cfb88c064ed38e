"""The supervisor's hold on the active manager: started when the configuration has one, kept, told of reloads, ended."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from gatepost.configuration.settings import Configuration
from gatepost.service.control import Failed, ManagerStatus, Message, Reload, Reloaded, Start
from gatepost.service.worker_process import State, WorkerProcess

MANAGER_MODULE = "gatepost.service.manager_process"
SLOT = -1
"""No worker's: the manager has no sockets."""
STABLE_SECONDS = 30.0
"""A manager that ran this long is started again at once."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
"""Pauses before one is started that ended soon after its start: doubled each time. A standby acts meanwhile."""
LEAVING_SECONDS = 4.0
"""For giving the lease back; then it is killed, and the lease ends by itself."""

MakeReload = Callable[[], tuple[Reload, list[int]]]


class ManagerKeeper:
    """Keeps one manager running while it is wanted. `start_message` makes its first message with its descriptors."""

    def __init__(self, start_message: Callable[[], tuple[Start, list[int]]], log: FilteringBoundLogger) -> None:
        self._start_message = start_message
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._process: WorkerProcess | None = None
        self._leaving: WorkerProcess | None = None
        self._wanted = False
        self._stopping = False
        self._fixed: object = None
        self._quick_ends = 0
        self._restart: asyncio.TimerHandle | None = None
        self._all_ended = asyncio.Event()
        self._all_ended.set()
        self.restarts = 0
        """Managers that were started because another had ended unasked."""

    def follow(
        self, configuration: Configuration, reload: Callable[[], tuple[Reload, list[int]]] | None = None
    ) -> None:
        """Start, tell, replace or end the manager, as `configuration` wants it. `reload` makes what it is told."""
        self._wanted = configuration.front_end.manager is not None and not self._stopping
        before, self._fixed = self._fixed, _fixed(configuration)
        if not self._wanted:
            self._dismiss()
        elif self._process is None:
            if self._restart is None:
                self._launch()
        elif before != self._fixed:
            self._dismiss()  # its successor is started when it has given the lease back
        elif reload is not None:
            self._tell(self._process, reload)

    async def stop(self) -> None:
        """End the manager, and wait until it has: it gives its lease back."""
        self._stopping, self._wanted = True, False
        self._dismiss()
        await self._all_ended.wait()

    async def status(self, seconds: float) -> ManagerStatus | None:
        """What the manager does; None when none runs."""
        process = self._process or self._leaving
        if process is None:
            return None
        answer = await process.status(seconds)
        return ManagerStatus(process.pid, process.state.value, self.restarts, answer.manager if answer else None)

    @property
    def pid(self) -> int | None:
        """Its process, if one runs."""
        return self._process.pid if self._process is not None else None

    def _tell(self, process: WorkerProcess, reload: MakeReload) -> None:
        try:
            process.channel.send(*reload())
        except OSError as fault:  # no descriptor to send a copy of
            self._log.error("manager.not_told", manager=process.pid, reason=str(fault))
            self._dismiss()

    def _launch(self) -> None:
        self._restart = None
        if not self._wanted or self._leaving is not None:
            return
        process = None
        try:
            process = WorkerProcess(SLOT, [], os.environ, self._received, self._exited, MANAGER_MODULE)
            process.channel.send(*self._start_message())
        except OSError as fault:  # no memory, no process table entry, no descriptor: may pass
            self._log.error("manager.not_started", reason=str(fault))
            if process is None:
                self._plan_restart()
                return
            process.kill()  # it would wait for its first message
        self._process = process
        self._all_ended.clear()

    def _dismiss(self) -> None:
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None
        if self._process is not None and self._leaving is None:
            self._leaving, self._process = self._process, None
            self._leaving.drain(0.0, LEAVING_SECONDS)

    def _received(self, process: WorkerProcess, message: Message) -> None:
        match message:
            case Failed(reason=reason):
                self._log.error("manager.cannot_start", manager=process.pid, reason=reason)
            case Reloaded(error=error) if error:
                self._log.error("manager.reload_failed", manager=process.pid, reason=error)
                self._dismiss()

    def _exited(self, process: WorkerProcess) -> None:
        asked = process is self._leaving
        level = self._log.info if process.returncode == 0 else self._log.error
        level("manager.ended", manager=process.pid, how=process.ending, asked=asked)
        if asked:
            self._leaving = None
            self._quick_ends = 0
        else:
            self._process = None
            if self._loop.time() - process.started_at >= STABLE_SECONDS:
                self._quick_ends = 0
            if self._wanted:
                self.restarts += 1
        if self._process is None and self._leaving is None:
            self._all_ended.set()
        if self._wanted and self._process is None:
            self._plan_restart() if not asked else self._launch()

    def _plan_restart(self) -> None:
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(self._quick_ends, 10))
        self._quick_ends += 1
        if self._quick_ends > 1:
            self._log.warning("manager.held_back", seconds=pause, ends=self._quick_ends)
        self._restart = self._loop.call_later(pause, self._launch)

    @property
    def is_running(self) -> bool:
        """Whether a manager runs and is ready."""
        return self._process is not None and self._process.state is State.READY


def _fixed(configuration: Configuration) -> object:
    """What a manager takes up only when it starts."""
    front = configuration.front_end
    lease = front.manager.lease_seconds if front.manager is not None else 0.0
    return front.user, front.registry, front.etcd, lease
