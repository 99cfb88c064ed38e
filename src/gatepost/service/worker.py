"""A worker process: `python -P -m gatepost.service.worker DESCRIPTOR CORE`, started by the supervisor only.

DESCRIPTOR is the control connection; CORE names the factory of what serves clients. Order matters here:

    limits, allocator ── Start arrives ── become the account ── no core dumps ── log ── loop ── core ── listen ── Ready

Nothing from the network or from a file is parsed before the privileges are gone. The end of the control connection
means that the supervisor has died: the worker drains and ends.
"""

from __future__ import annotations

import asyncio
import importlib
import signal
import socket
import sys

import uvloop

from gatepost.access import tasks
from gatepost.activemanager.open import load_engine
from gatepost.directory.open import load_directories
from gatepost.directory.policy.open import load_policy
from gatepost.service import logs, privileges
from gatepost.service.child import Beginning, FaultLog, receive_start, run_child, take_log
from gatepost.service.control import (
    MAX_SESSIONS_LISTED,
    Channel,
    Drain,
    Leaving,
    Message,
    Ping,
    Pong,
    Ready,
    Reload,
    Reloaded,
    StatusReply,
    StatusRequest,
)
from gatepost.service.core import Core, CoreFactory, factory
from gatepost.service.handing_over import unpack
from gatepost.service.serving import LOADED_EARLY, sockets_of, tame_allocator, tune_collector
from gatepost.service.session_messages import Kick, Kicked, SessionsReply, SessionsRequest
from gatepost.sharedstate.store.open import load_store

OPEN_FILES_RESERVE = 1024
"""Descriptors beyond two a session: listeners, stores, pooled HTTP connections."""


class Worker:
    """What happens between `Start` and the end, on the event loop."""

    def __init__(
        self,
        control: socket.socket,
        beginning: Beginning,
        make_core: CoreFactory,
        writer: logs.LineWriter,
    ) -> None:
        self._control = control
        self._beginning = beginning
        self._configuration = beginning.configuration
        self._make_core = make_core
        self._writer = writer
        self._log = logs.configure(writer, process=f"worker-{beginning.start.slot}")
        self._messages: asyncio.Queue[tuple[Message, list[int]]] = asyncio.Queue()
        for early in beginning.early:
            self._messages.put_nowait(early)
        self._faults = FaultLog(self._log)
        self._core: Core
        self._channel: Channel
        self._drained = asyncio.Event()
        self._drain_task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serves until drained. Raises what keeps the core from starting."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._faults)
        self._core = await self._make_core(self._configuration, self._log)
        beginning = self._beginning
        await self._core.listen(sockets_of(beginning.start, beginning.socket_descriptors))
        self._channel = Channel(loop, self._control, self._received, self._supervisor_gone, beginning.reader)
        loop.add_signal_handler(signal.SIGTERM, self._asked_to_leave)
        tune_collector()
        self._channel.send(Ready())
        tasks.start(self._serve_control(), "control")
        await self._drained.wait()
        self._channel.close()

    def _received(self, message: Message, descriptors: list[int]) -> None:
        self._messages.put_nowait((message, descriptors))

    def _supervisor_gone(self) -> None:
        self._log.error("worker.supervisor_gone")
        self._begin_drain(self._configuration.front_end.limits.drain_seconds)

    def _asked_to_leave(self) -> None:
        self._channel.send(Leaving())

    async def _serve_control(self) -> None:
        while True:
            message, descriptors = await self._messages.get()
            match message:
                case Ping():
                    self._channel.send(Pong())
                case StatusRequest():
                    self._channel.send(self._status())
                case SessionsRequest():
                    tasks.start(self._find(message), "find sessions")
                case Kick():
                    tasks.start(self._kick(message), "end sessions")
                case Drain(seconds=seconds):
                    self._begin_drain(seconds)
                case Reload():
                    self._channel.send(await self._reload(message, descriptors))
                case _:
                    self._log.error("worker.unexpected_message", message=type(message).__name__)

    async def _reload(self, message: Reload, descriptors: list[int]) -> Reloaded:
        sockets = sockets_of(message, take_log(message, descriptors, self._writer, self._configuration))
        try:
            configuration = unpack(message.configuration)
            self._core.reload(configuration)
            self._configuration = configuration
            self._core.close_listeners(message.closed)
            if self._drain_task is None:
                await self._core.listen(sockets)
        except Exception as fault:  # noqa: BLE001 - sessions go on; the supervisor replaces a worker that objects
            self._log.exception("worker.reload_failed", version=message.version)
            return Reloaded(message.version, f"{type(fault).__name__}: {fault}")
        return Reloaded(message.version)

    def _status(self) -> StatusReply:
        sessions = self._core.sessions()
        counters = {
            "sessions": len(sessions),
            "faults": self._faults.count,
            "log_lines_dropped": self._writer.dropped,
            **self._core.counters(),
        }
        return StatusReply(self._configuration.version, counters, sessions[:MAX_SESSIONS_LISTED])

    async def _find(self, message: SessionsRequest) -> None:
        found = await self._core.find(message.wanted, min(message.limit, MAX_SESSIONS_LISTED))
        self._channel.send(SessionsReply(found.sessions, found.total, found.protocols, request=message.request))

    async def _kick(self, message: Kick) -> None:
        outcomes = await self._core.kick(message.wanted, message.reason, message.seconds)
        self._channel.send(Kicked(outcomes, request=message.request))

    def _begin_drain(self, seconds: float) -> None:
        if self._drain_task is not None:
            self._drain_task.cancel()
        self._drain_task = tasks.start(self._drain(seconds), "drain")

    async def _drain(self, seconds: float) -> None:
        await self._core.drain(seconds)
        self._drained.set()


def _bootstrap(control: socket.socket, core: str) -> None:
    """From a fresh process to a running worker; returns when it has drained. Raises what keeps it from starting."""
    tame_allocator()
    # While every file of the installation can still be read: an account's own Python may be under /root.
    for module in LOADED_EARLY:
        importlib.import_module(module)
    make_core = factory(core)
    beginning = receive_start(control)
    start, configuration = beginning.start, beginning.configuration
    load_engine(configuration.front_end)
    load_directories(configuration.front_end)
    load_policy(configuration.front_end.policy)
    load_store(configuration.front_end.shared_store)
    privileges.no_new_privileges()
    if start.user:
        privileges.become(privileges.account(start.user))
    privileges.forbid_core_dumps()
    privileges.raise_open_files(2 * configuration.front_end.limits.sessions + OPEN_FILES_RESERVE)
    writer = logs.LineWriter(beginning.descriptors[0] if start.log else 1)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(Worker(control, beginning, make_core, writer).run())
    finally:
        writer.close()


def main() -> int:
    """Runs a worker; the exit status is 0 after a drain."""
    return run_child(lambda control: _bootstrap(control, sys.argv[2]))


if __name__ == "__main__":
    sys.exit(main())
