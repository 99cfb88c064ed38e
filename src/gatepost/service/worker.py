"""A worker process: `python -P -m gatepost.service.worker DESCRIPTOR CORE`, started by the supervisor only.

DESCRIPTOR is the control connection; CORE names the factory of what serves clients. Order matters here:

    limits, allocator ── Start arrives ── become the account ── no core dumps ── log ── loop ── core ── listen ── Ready

Nothing from the network or from a file is parsed before the privileges are gone. The end of the control connection
means that the supervisor has died: the worker drains and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import os
import signal
import socket
import sys
import time
from typing import Any

import uvloop
from structlog.typing import FilteringBoundLogger

from gatepost.access import tasks
from gatepost.activemanager.open import load_engine
from gatepost.configuration.settings import Configuration
from gatepost.service import logs, privileges
from gatepost.service.control import (
    MAX_SESSIONS_LISTED,
    Channel,
    Configured,
    ControlError,
    Drain,
    Failed,
    FrameReader,
    Leaving,
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
from gatepost.service.core import Core, CoreFactory, factory
from gatepost.service.handing_over import unpack
from gatepost.service.session_messages import Kick, Kicked, SessionsReply, SessionsRequest

START_SECONDS = 30.0
"""For the first message, which the supervisor sends at once."""
OPEN_FILES_RESERVE = 1024
"""Descriptors beyond two a session: listeners, stores, pooled HTTP connections."""
ALLOCATOR_BLOCK_BYTES = 4 * 1024 * 1024
"""See `tame_allocator`. Far over the 256 KiB of a TLS read, far under glibc's upper bound of 32 MiB."""
GC_THRESHOLDS = (20_000, 20, 50)
"""See `tune_collector`."""
MAX_FAULTS_LOGGED_PER_SECOND = 10
"""Unexpected faults are all counted, but a fault in a loop must not fill the disk."""
LOADED_EARLY = ("concurrent.futures.thread", "encodings.idna", "encodings.latin_1", "encodings.utf_8_sig")
"""Modules that the standard library loads on first use, which would be after the privileges are gone."""
EXPECTED_FAULTS = (OSError, privileges.PrivilegeError)
"""Faults of the surroundings; anything else is a bug and shows its traceback."""
CANNOT_START = 3
"""Exit status after `Failed` was sent."""


def tame_allocator() -> None:
    """Allocates and drops one big block, once, for the life of the process.

    The event loop reads TLS into a fresh bytes object of 256 KiB each time. glibc serves blocks over its mmap threshold
    (128 KiB at first) by mmap, mremap and munmap: three system calls and page faults for every small packet. Freeing a
    mapped block raises the threshold to that block's size (mallopt(3), M_MMAP_THRESHOLD: "dynamic"), so that from here
    on these reads come from the heap: small TLS packets relayed went from 29,000 to 60,000 a second.
    """
    bytes(ALLOCATOR_BLOCK_BYTES)


def tune_collector() -> None:
    """Everything made so far stays for life: the collector need not look at it again.

    Measured: a full collection of what a worker has loaded takes 42 ms before the freeze and nothing after it. Sessions
    are built without cycles and need no collector to be freed: with Python's threshold of 700 objects 100,000 of them
    coming and going cost 300 ms of collections (the longest 47 ms), with ours 2 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


class FaultLog:
    """The loop's exception handler: what nobody expected is counted and logged with its traceback."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self.count = 0
        self._second = 0
        self._logged = 0

    def __call__(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Called by the loop; never raises."""
        self.count += 1
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._logged = second, 0
        self._logged += 1
        if self._logged <= MAX_FAULTS_LOGGED_PER_SECOND:
            fault = context.get("exception")
            self._log.error("worker.fault", message=str(context.get("message", "")), exc_info=fault, count=self.count)


class Worker:
    """What happens between `Start` and the end, on the event loop."""

    def __init__(
        self,
        control: socket.socket,
        reader: FrameReader,
        first: list[tuple[Message, list[int]]],
        configuration: Configuration,
        make_core: CoreFactory,
        writer: logs.LineWriter,
    ) -> None:
        self._control = control
        self._reader = reader
        start, self._descriptors = first[0]
        assert isinstance(start, Start)
        self._start = start
        self._configuration = configuration
        self._make_core = make_core
        self._writer = writer
        self._log = logs.configure(writer, process=f"worker-{start.slot}")
        self._messages: asyncio.Queue[tuple[Message, list[int]]] = asyncio.Queue()
        for early in first[1:]:
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
        await self._core.listen(_sockets(self._start, self._descriptors))
        self._channel = Channel(loop, self._control, self._received, self._supervisor_gone, self._reader)
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
        sockets = _sockets(message, descriptors)
        if message.log or self._configuration.front_end.log_file:
            self._writer.replace(descriptors[0] if message.log else os.dup(1))
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


def _sockets(message: Configured, descriptors: list[int]) -> dict[str, list[socket.socket]]:
    """The sockets of a message by endpoint name; takes the descriptors over, except the log's."""
    rest = iter(descriptors[1:] if message.log else descriptors)
    return {o.name: [socket.socket(fileno=next(rest)) for _ in range(o.count)] for o in message.opened}


def _bootstrap(control: socket.socket, core: str) -> None:
    """From a fresh process to a running worker; returns when it has drained. Raises what keeps it from starting."""
    tame_allocator()
    # While every file of the installation can still be read: an account's own Python may be under /root.
    for module in LOADED_EARLY:
        importlib.import_module(module)
    make_core = factory(core)
    reader = FrameReader()
    first = receive_first(control, reader, START_SECONDS)
    start, descriptors = first[0]
    if not isinstance(start, Start):
        raise ControlError(f"the first message was {type(start).__name__}")
    configuration = unpack(start.configuration)
    if configuration.front_end.token is not None:
        importlib.import_module("gatepost.directory.tokens")
    load_engine(configuration.front_end)
    privileges.no_new_privileges()
    if start.user:
        privileges.become(privileges.account(start.user))
    privileges.forbid_core_dumps()
    privileges.raise_open_files(2 * configuration.front_end.limits.sessions + OPEN_FILES_RESERVE)
    writer = logs.LineWriter(descriptors[0] if start.log else 1)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(Worker(control, reader, first, configuration, make_core, writer).run())
    finally:
        writer.close()


def main() -> int:
    """Runs a worker; the exit status is 0 after a drain."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the supervisor's business
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(control.fileno(), False)
    try:
        _bootstrap(control, sys.argv[2])
    except Exception as fault:
        # The supervisor decides what to make of it: another attempt, or the end of the service.
        with contextlib.suppress(OSError):
            control.sendall(encode(Failed(f"{type(fault).__name__}: {fault}")))
        if isinstance(fault, EXPECTED_FAULTS):
            return CANNOT_START
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
