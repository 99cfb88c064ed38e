"""The active manager's process: `python -P -m gatepost.service.manager_process DESCRIPTOR`, a child of the supervisor.

DESCRIPTOR is the control connection, spoken as with a worker. The order is a worker's too: the first message arrives,
the process becomes the account, and only then is anything read or connected. One thing a worker does is left out: hooks
may gain privileges (sudo), where the operator's rules let this account have them.

    Start ──► Ready    Reload ──► Reloaded    StatusRequest ──► StatusReply    Drain, or the end of the connection: the
    lease is given back, so that a standby acts at once, and the process ends
"""

from __future__ import annotations

import asyncio
import contextlib
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
from gatepost.service.control import (
    Channel,
    Configured,
    ControlError,
    Drain,
    Failed,
    FrameReader,
    ManagerReply,
    Message,
    Ping,
    Pong,
    Ready,
    Reload,
    Reloaded,
    Start,
    StatusReply,
    StatusRequest,
    encode,
    receive_first,
)
from gatepost.service.handing_over import unpack
from gatepost.service.worker import CANNOT_START, EXPECTED_FAULTS, START_SECONDS, FaultLog


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
        reader: FrameReader,
        early: list[tuple[Message, list[int]]],
        configuration: Configuration,
        writer: logs.LineWriter,
    ) -> None:
        self._control = control
        self._reader = reader
        self._early = early
        self._configuration = configuration
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
        self._channel = Channel(loop, self._control, self._received, self._ending.set, self._reader)
        loop.add_signal_handler(signal.SIGTERM, self._ending.set)
        self._manager.start()
        self._channel.send(Ready())
        for message, descriptors in self._early:
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
        take_log(message, descriptors, self._writer, self._configuration)
        try:
            configuration = unpack(message.configuration)
            self._manager.reload(configuration)
            self._configuration = configuration
        except Exception as fault:  # noqa: BLE001 - the supervisor replaces a manager that objects
            self._log.exception("manager.reload_failed", version=message.version)
            return Reloaded(message.version, f"{type(fault).__name__}: {fault}")
        return Reloaded(message.version)


def take_log(
    message: Configured, descriptors: list[int], writer: logs.LineWriter, configuration: Configuration
) -> None:
    """Go on with the log's descriptor of a message; those of sockets are not for us."""
    if message.log or configuration.front_end.log_file:
        writer.replace(descriptors[0] if message.log else os.dup(1))
    for descriptor in descriptors[1:] if message.log else descriptors:
        os.close(descriptor)


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
    reader = FrameReader()
    first = receive_first(control, reader, START_SECONDS)
    start, descriptors = first[0]
    if not isinstance(start, Start):
        raise ControlError(f"the first message was {type(start).__name__}")
    configuration = unpack(start.configuration)
    load_engine(configuration.front_end)  # while every file of the installation can be read
    if start.user:
        privileges.become(privileges.account(start.user))
    privileges.forbid_core_dumps()
    writer = logs.LineWriter(descriptors[0] if start.log else 1)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(ManagerProcess(control, reader, first[1:], configuration, writer).run())
    finally:
        writer.close()


def main() -> int:
    """Runs the manager; the exit status is 0 after it was told to end."""
    for number in (signal.SIGHUP, signal.SIGINT):  # the supervisor's business
        signal.signal(number, signal.SIG_IGN)
    control = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(control.fileno(), False)
    try:
        _bootstrap(control)
    except Exception as fault:
        with contextlib.suppress(OSError):
            control.sendall(encode(Failed(f"{type(fault).__name__}: {fault}")))
        if isinstance(fault, EXPECTED_FAULTS):
            return CANNOT_START
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
