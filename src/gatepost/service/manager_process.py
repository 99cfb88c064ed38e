"""The active manager's process: `python -P -m gatepost.service.manager_process DESCRIPTOR`, a child of the supervisor.

DESCRIPTOR is the control connection, spoken as with a worker. The order is a worker's too: the first message arrives,
the process becomes the account, and only then is anything read or connected. One thing a worker does is left out: hooks
may gain privileges (sudo), where the operator's rules let this account have them.

    Start ──► Ready    Reload ──► Reloaded    StatusRequest ──► StatusReply    Drain, or the end of the connection: the
    lease is given back, so that a standby acts at once, and the process ends
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from dataclasses import asdict
from typing import Any

import msgspec
import uvloop
from structlog.typing import FilteringBoundLogger

from gatepost.access.tls import ClientContexts, client_context
from gatepost.activemanager.hooks import HookContext
from gatepost.activemanager.open import load_engine
from gatepost.activemanager.running import RunningManager
from gatepost.configuration.settings import Configuration, FrontEnd
from gatepost.service import logs, privileges
from gatepost.service.child import Beginning, FaultLog, receive_start, run_child, take_log
from gatepost.service.control import (
    Channel,
    Drain,
    ManagerReply,
    Message,
    Ping,
    Pong,
    Ready,
    Reload,
    Reloaded,
    StatusReply,
    StatusRequest,
)
from gatepost.service.handing_over import unpack


def running_manager(configuration: Configuration, log: FilteringBoundLogger) -> RunningManager:
    """A manager for `configuration`, not started, with this front end's certificates and authorities."""
    return RunningManager(configuration, ClientContexts, log, _hook_context)


def _hook_context(front_end: FrontEnd) -> HookContext:
    """Hooks' URLs are verified as mailbox servers are: by the front end's authorities, or the system's."""
    return HookContext(client_context(front_end))


class ManagerProcess:
    """What happens between `Start` and the end, on the event loop."""

    def __init__(
        self,
        control: socket.socket,
        beginning: Beginning,
        writer: logs.LineWriter,
    ) -> None:
        self._control = control
        self._beginning = beginning
        self._configuration = beginning.configuration
        self._writer = writer
        self._log = logs.configure(writer, process="manager")
        self._manager: RunningManager
        self._channel: Channel
        self._ending = asyncio.Event()

    async def run(self) -> None:
        """Manages until told to end. Raises what cannot be gone on with."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(FaultLog(self._log))
        self._manager = running_manager(self._configuration, self._log)
        self._channel = Channel(loop, self._control, self._received, self._ending.set, self._beginning.reader)
        loop.add_signal_handler(signal.SIGTERM, self._ending.set)
        self._manager.start()
        self._channel.send(Ready())
        for message, descriptors in self._beginning.early:
            self._received(message, descriptors)
        try:
            await until_ended(self._manager, self._ending)
        finally:
            await self._manager.leave()
            self._channel.close()

    def _received(self, message: Message, descriptors: list[int]) -> None:
        match message:
            case Ping():
                self._channel.send(Pong())
            case StatusRequest():
                state = msgspec.convert(asdict(self._manager.state()), ManagerReply, strict=False)
                self._channel.send(StatusReply(self._configuration.version, {}, [], state))
            case Drain():
                self._ending.set()
            case Reload():
                self._channel.send(self._reload(message, descriptors))
                return
            case _:
                self._log.error("manager.unexpected_message", message=type(message).__name__)
        for descriptor in descriptors:
            os.close(descriptor)

    def _reload(self, message: Reload, descriptors: list[int]) -> Reloaded:
        for descriptor in take_log(message, descriptors, self._writer, self._configuration):
            os.close(descriptor)  # sockets are the workers'
        try:
            configuration = unpack(message.configuration)
            self._manager.reload(configuration)
            self._configuration = configuration
        except Exception as fault:  # noqa: BLE001 - the supervisor replaces a manager that objects
            self._log.exception("manager.reload_failed", version=message.version)
            return Reloaded(message.version, f"{type(fault).__name__}: {fault}")
        return Reloaded(message.version)


async def until_ended(manager: RunningManager, ending: asyncio.Event) -> None:
    """Waits until `ending` is set. Raises what the manager cannot go on with."""
    waiting = asyncio.ensure_future(ending.wait())
    either: set[asyncio.Future[Any]] = {waiting, manager.failed}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if manager.failed.done():
        manager.failed.result()


def _bootstrap(control: socket.socket) -> None:
    """From a fresh process to a running manager; returns when it has ended. Raises what keeps it from starting."""
    beginning = receive_start(control)
    start = beginning.start
    load_engine(beginning.configuration.front_end)  # while every file of the installation can be read
    if start.user:
        privileges.become(privileges.account(start.user))
    privileges.forbid_core_dumps()
    writer = logs.LineWriter(beginning.descriptors[0] if start.log else 1)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(ManagerProcess(control, beginning, writer).run())
    finally:
        writer.close()


def main() -> int:
    """Runs the manager; the exit status is 0 after it was told to end."""
    return run_child(_bootstrap)


if __name__ == "__main__":
    sys.exit(main())
