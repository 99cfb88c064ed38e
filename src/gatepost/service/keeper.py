"""The supervisor's hold on a child of which there is one, the active manager or the transport.

It is started when the configuration has one, kept running, told of reloads, replaced, and ended.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from gatepost.configuration.settings import Configuration
from gatepost.service.control import Failed, Message, Reload, Reloaded, Start, StatusReply
from gatepost.service.worker_process import State, WorkerProcess

STABLE_SECONDS = 30.0
"""A child that ran this long is started again at once."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
"""Pauses before one is started that ended soon after its start: doubled each time. A standby acts meanwhile."""
LEAVING_SECONDS = 4.0
"""For giving the manager's lease back; then it is killed, and the lease ends by itself."""
TRANSPORT_PATIENCE_SECONDS = 5.0
"""Beyond the time that messages under way are given to end: what is not yet acknowledged is sent again."""

MakeReload = Callable[[], tuple[Reload, list[int]]]


@dataclass(frozen=True, slots=True)
class Kept:
    """What there is one child of. `fixed` is what it takes up only when it starts: another one needs another child."""

    word: str
    """What it is called in the log, and the field that its process has there."""
    module: str
    slot: int
    """Negative: no worker's."""
    wanted: Callable[[Configuration], bool]
    fixed: Callable[[Configuration], object]
    patience: float
    """Seconds that it may take to end beyond those it is given to drain."""


MANAGER = Kept(
    "manager",
    "gatepost.service.manager_process",
    -1,
    lambda c: c.front_end.manager is not None,
    lambda c: (
        c.front_end.user,
        c.front_end.registry,
        c.front_end.etcd,
        c.front_end.manager.lease_seconds if c.front_end.manager is not None else 0.0,
    ),
    LEAVING_SECONDS,
)
TRANSPORT = Kept(
    "transport",
    "gatepost.service.transport_process",
    -2,
    lambda c: c.front_end.transport is not None,
    lambda c: (
        c.front_end.user,
        c.front_end.directory,
        c.front_end.directories,
        c.front_end.registry,
        c.front_end.etcd,
        c.front_end.shared_store,
        c.front_end.transport.spool if c.front_end.transport is not None else "",
        c.organization.default_domain,
    ),
    TRANSPORT_PATIENCE_SECONDS,
)


class Keeper:
    """Keeps one child running while it is wanted. `start_message` makes its first message with its descriptors."""

    def __init__(
        self, kept: Kept, start_message: Callable[[], tuple[Start, list[int]]], log: FilteringBoundLogger
    ) -> None:
        self._kept = kept
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
        self.drain_seconds = 0.0
        """What a child that is replaced or ended is given for what it has under way."""
        self.restarts = 0
        """Children that were started because another had ended unasked."""

    def follow(
        self, configuration: Configuration, reload: Callable[[], tuple[Reload, list[int]]] | None = None
    ) -> None:
        """Start, tell, replace or end the child, as `configuration` wants it. `reload` makes what it is told."""
        self._wanted = self._kept.wanted(configuration) and not self._stopping
        before, self._fixed = self._fixed, self._kept.fixed(configuration)
        if not self._wanted:
            self._dismiss()
        elif self._process is None:
            if self._restart is None:
                self._launch()
        elif before != self._fixed:
            self._dismiss()  # its successor is started when it has ended: it has a lease, or a lock, to give back
        elif reload is not None:
            self._tell(self._process, reload)

    async def stop(self, seconds: float = 0.0) -> None:
        """End the child, which may take `seconds` for what it has under way, and wait until it has ended."""
        self._stopping, self._wanted = True, False
        self.drain_seconds = seconds
        self._dismiss()
        await self._all_ended.wait()

    async def status(self, seconds: float) -> tuple[WorkerProcess, StatusReply | None] | None:
        """The process and what it does; None when none runs."""
        process = self._process or self._leaving
        return None if process is None else (process, await process.status(seconds))

    @property
    def process(self) -> WorkerProcess | None:
        """The one that runs and is not leaving, if any."""
        return self._process

    @property
    def pid(self) -> int | None:
        """Its process, if one runs."""
        return self._process.pid if self._process is not None else None

    def _tell(self, process: WorkerProcess, reload: MakeReload) -> None:
        try:
            process.channel.send(*reload())
        except OSError as fault:  # no descriptor to send a copy of
            self._say(self._log.error, "not_told", process, reason=str(fault))
            self._dismiss()

    def _launch(self) -> None:
        self._restart = None
        if not self._wanted or self._leaving is not None:
            return
        process = None
        try:
            process = WorkerProcess(self._kept.slot, [], os.environ, self._received, self._exited, self._kept.module)
            process.channel.send(*self._start_message())
        except OSError as fault:  # no memory, no process table entry, no descriptor: may pass
            self._say(self._log.error, "not_started", reason=str(fault))
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
            self._leaving.drain(self.drain_seconds, self._kept.patience)

    def _received(self, process: WorkerProcess, message: Message) -> None:
        match message:
            case Failed(reason=reason):
                self._say(self._log.error, "cannot_start", process, reason=reason)
            case Reloaded(error=error) if error:
                self._say(self._log.error, "reload_failed", process, reason=error)
                self._dismiss()

    def _exited(self, process: WorkerProcess) -> None:
        asked = process is self._leaving
        level = self._log.info if process.returncode == 0 else self._log.error
        self._say(level, "ended", process, how=process.ending, asked=asked)
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
            self._say(self._log.warning, "held_back", seconds=pause, ends=self._quick_ends)
        self._restart = self._loop.call_later(pause, self._launch)

    @property
    def is_running(self) -> bool:
        """Whether a child runs and is ready."""
        return self._process is not None and self._process.state is State.READY

    def _say(
        self, level: Callable[..., object], event: str, process: WorkerProcess | None = None, **fields: object
    ) -> None:
        who = {} if process is None else {self._kept.word: process.pid}
        level(f"{self._kept.word}.{event}", **who, **fields)
