"""An active manager in a process of its own, without a front end: `gatepost manager`."""

from __future__ import annotations

import asyncio
import signal
from contextlib import closing
from pathlib import Path

import uvloop
from structlog.typing import FilteringBoundLogger

from gatepost.activemanager.open import load_engine, open_registry
from gatepost.activemanager.port import RegistryUnavailable, RegistryView
from gatepost.activemanager.running import RunningManager
from gatepost.activemanager.seed import seed
from gatepost.configuration.settings import Configuration
from gatepost.service import handing_over, logs, privileges
from gatepost.service.child import FaultLog
from gatepost.service.manager_process import running_manager, until_ended

SEED_SECONDS = 2.0


class ManagerAlone:
    """A manager by the configuration file `path`; `server` overrides `front_end.server`."""

    def __init__(self, path: str, server: str | None = None) -> None:
        self._path = str(Path(path).absolute())
        self._server = server
        self._ending = asyncio.Event()
        self._reloading = asyncio.Lock()
        self._followed: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._configuration: Configuration
        self._manager: RunningManager
        self._log: FilteringBoundLogger

    async def run(self) -> None:
        """Manages until SIGTERM or SIGINT. Raises `handing_over.Invalid`, `privileges.PrivilegeError`, OSError."""
        loaded = await handing_over.load(self._path, self._server, 1)
        self._configuration = loaded.configuration
        front_end = self._configuration.front_end
        # Opened with the rights of before, as the supervisor does it for its children.
        writer = logs.LineWriter(logs.open_log(front_end.log_file) if front_end.log_file else 1)
        try:
            load_engine(front_end)  # while every file of the installation can be read
            if front_end.user:
                privileges.become(privileges.account(front_end.user))
            privileges.forbid_core_dumps()
            self._log = logs.configure(writer, process="manager")
            for text in loaded.warnings:
                self._log.warning("configuration.finding", finding=text)
            await self._manage()
        finally:
            writer.close()

    async def _manage(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(FaultLog(self._log))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ending.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload_soon)
        await asyncio.to_thread(self._seed)
        self._manager = running_manager(self._configuration, self._log)
        self._manager.on_view = self._viewed
        self._manager.start()
        self._log.info("manager.started", holder=self._manager.holder)
        try:
            await until_ended(self._manager, self._ending)
        finally:
            for task in self._tasks:
                task.cancel()
            await self._manager.leave()
            self._log.info("manager.ended")

    def _seed(self) -> None:
        """Databases that the registry does not know begin on their first-choice copies, as front ends have it."""
        try:
            with closing(open_registry(self._configuration.front_end, SEED_SECONDS)) as registry:
                seed(registry, self._configuration.organization)
        except RegistryUnavailable as fault:
            self._log.error("manager.registry_unavailable", reason=str(fault))

    def _viewed(self, view: RegistryView) -> None:
        """A command has changed the organization."""
        if self._followed is not None and view.organization_version != self._followed:
            self._reload_soon()
        self._followed = view.organization_version

    def _reload_soon(self) -> None:
        task = asyncio.get_running_loop().create_task(self._reload(), name="reload")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reload(self) -> None:
        async with self._reloading:
            before = self._configuration
            try:
                loaded = await handing_over.load(self._path, self._server, before.version + 1)
            except handing_over.Invalid as fault:
                for line in fault.findings:
                    self._log.error("configuration.finding", finding=line)
                self._log.error("configuration.rejected", version=before.version)
                return
            if loaded.configuration.front_end.registry != before.front_end.registry:
                self._log.error("configuration.rejected", reason="another registry needs a restart")
                return
            self._configuration = loaded.configuration
            self._manager.reload(loaded.configuration)
            self._log.info("configuration.reloaded", version=loaded.configuration.version)


def manage(path: str, server: str | None) -> None:
    """Runs a manager until it is told to end. Raises as `ManagerAlone.run`."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(ManagerAlone(path, server).run())
