"""The transport's process: `python -P -m gatepost.service.transport_process DESCRIPTOR`, a child of the supervisor.

DESCRIPTOR is the control connection, spoken as with a worker. The order is a worker's too: the first message arrives,
the process becomes the account, and only then is anything read or listened to.

    Start ──► Ready    Reload ──► Reloaded    StatusRequest ──► StatusReply    TransportRequest ──► TransportReply
    Drain, or the end of the connection: nothing more is taken, what is under way ends, the process ends
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import socket
import sys
from typing import Any

import uvloop

from gatepost.access import tasks
from gatepost.activemanager.open import load_engine
from gatepost.directory.open import load_directories
from gatepost.directory.policy.open import load_policy
from gatepost.service import logs, privileges
from gatepost.service.child import Beginning, FaultLog, receive_start, run_child, take_log
from gatepost.service.control import (
    Channel,
    Drain,
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
from gatepost.service.serving import LOADED_EARLY, sockets_of, tame_allocator, tune_collector
from gatepost.service.transport_messages import TransportReply, TransportRequest
from gatepost.sharedstate.store.open import load_store
from gatepost.transport.hub import Hub, open_hub

OPEN_FILES = 16_384
"""Connections of both sides, files of large messages, stores."""


class TransportProcess:
    """What happens between `Start` and the end, on the event loop."""

    def __init__(self, control: socket.socket, beginning: Beginning, writer: logs.LineWriter) -> None:
        self._control = control
        self._beginning = beginning
        self._configuration = beginning.configuration
        self._writer = writer
        self._log = logs.configure(writer, process="transport")
        self._messages: asyncio.Queue[tuple[Message, list[int]]] = asyncio.Queue()
        for early in beginning.early:
            self._messages.put_nowait(early)
        self._faults = FaultLog(self._log)
        self._hub: Hub
        self._channel: Channel
        self._ending: asyncio.Future[float]

    async def run(self) -> None:
        """Transports mail until told to end. Raises what keeps it from starting."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._faults)
        self._ending = loop.create_future()
        self._hub = await open_hub(self._configuration, self._log)
        try:
            beginning = self._beginning
            await self._hub.listen(sockets_of(beginning.start, beginning.socket_descriptors))
            self._channel = Channel(loop, self._control, self._received, self._supervisor_gone, beginning.reader)
            loop.add_signal_handler(signal.SIGTERM, self._end, 0.0)
            tune_collector()
            self._channel.send(Ready())
            control = tasks.start(self._serve_control(), "control")
            seconds = await self._ending
            control.cancel()
        except BaseException:
            await self._hub.drain(0.0)
            raise
        await self._hub.drain(seconds)
        self._channel.close()

    def _received(self, message: Message, descriptors: list[int]) -> None:
        self._messages.put_nowait((message, descriptors))

    def _supervisor_gone(self) -> None:
        self._log.error("transport.supervisor_gone")
        hub = self._configuration.front_end.transport
        self._end(hub.ending_seconds if hub is not None else 0.0)

    def _end(self, seconds: float) -> None:
        if not self._ending.done():
            self._ending.set_result(seconds)

    async def _serve_control(self) -> None:
        while True:
            message, descriptors = await self._messages.get()
            match message:
                case Ping():
                    self._channel.send(Pong())
                case StatusRequest():
                    counters = {"faults": self._faults.count, **self._hub.counters()}
                    self._channel.send(StatusReply(self._configuration.version, counters, []))
                case TransportRequest():
                    tasks.start(self._operate(message), "operators' request")
                case Drain(seconds=seconds):
                    self._end(seconds)
                case Reload():
                    self._channel.send(await self._reload(message, descriptors))
                case _:
                    self._log.error("transport.unexpected_message", message=type(message).__name__)
                    for descriptor in descriptors:
                        os.close(descriptor)

    async def _operate(self, message: TransportRequest) -> None:
        answer: Any = None
        error = ""
        try:
            answer = await self._hub.operate(message.verb, message.arguments)
        except (ValueError, TypeError, OSError) as fault:
            error = str(fault)
        self._channel.send(TransportReply(answer, error, request=message.request))

    async def _reload(self, message: Reload, descriptors: list[int]) -> Reloaded:
        sockets = sockets_of(message, take_log(message, descriptors, self._writer, self._configuration))
        try:
            configuration = unpack(message.configuration)
            self._hub.reload(configuration)
            self._configuration = configuration
            self._hub.close_listeners(message.closed)
            await self._hub.listen(sockets)
        except Exception as fault:  # noqa: BLE001 - the supervisor replaces a transport that objects
            self._log.exception("transport.reload_failed", version=message.version)
            return Reloaded(message.version, f"{type(fault).__name__}: {fault}")
        return Reloaded(message.version)


def _bootstrap(control: socket.socket) -> None:
    """From a fresh process to a running transport; returns when it has ended. Raises what keeps it from starting."""
    tame_allocator()
    for module in LOADED_EARLY:  # while every file of the installation can be read
        importlib.import_module(module)
    beginning = receive_start(control)
    load_engine(beginning.configuration.front_end)
    load_directories(beginning.configuration.front_end)
    load_policy(beginning.configuration.front_end.policy)
    load_store(beginning.configuration.front_end.shared_store)
    privileges.no_new_privileges()
    if beginning.start.user:
        privileges.become(privileges.account(beginning.start.user))
    privileges.forbid_core_dumps()
    privileges.raise_open_files(OPEN_FILES)
    writer = logs.LineWriter(beginning.descriptors[0] if beginning.start.log else 1)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(TransportProcess(control, beginning, writer).run())
    finally:
        writer.close()


def main() -> int:
    """Runs the transport; the exit status is 0 after it was told to end."""
    return run_child(_bootstrap)


if __name__ == "__main__":
    sys.exit(main())
