"""One worker as the supervisor sees it: its process, its control connection, its state."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import count
from typing import Any

import msgspec

from gatepost.service.control import Channel, ControlError, Drain, Failed, Message, Ready, StatusReply, StatusRequest
from gatepost.service.session_messages import Kick, Kicked, SessionsReply, SessionsRequest
from gatepost.service.transport_messages import TransportReply, TransportRequest

Request = SessionsRequest | Kick | TransportRequest
Answer = SessionsReply | Kicked | TransportReply

DEFAULT_CORE = "gatepost.service.core:front_door"
"""What a worker runs; named, not imported: the supervisor has no use for it."""
WORKER_MODULE = "gatepost.service.worker"


HUNG_UP_SECONDS = 2.0
"""From the end of the control connection to the end of the process: an interpreter's last breath."""


class State(Enum):
    """Where a worker is in its life."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    ENDED = "ended"


class WorkerProcess:
    """A running worker. Callbacks: `on_message(worker, message)` for what the worker says beyond status replies,
    `on_exit(worker)` once when its process has ended (`returncode` is then set)."""

    def __init__(
        self,
        slot: int,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        on_message: Callable[[WorkerProcess, Message], None],
        on_exit: Callable[[WorkerProcess], None],
        module: str = WORKER_MODULE,
        inherited: Sequence[int] = (),
    ) -> None:
        """Starts the process: `module` with its control connection's descriptor and `arguments`. Raises OSError.

        `inherited`: further descriptors that it has under the same numbers.
        """
        self.slot = slot
        self.state = State.STARTING
        self.was_ready = False
        self.failure = ""
        """What the worker said about why it cannot start."""
        self._on_message = on_message
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._status: list[asyncio.Future[StatusReply]] = []
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._requests = count(1)
        self.started_at = self._loop.time()
        self.heard_at = self.started_at
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            # -P: the current folder is no place to import from, least of all as root.
            command = [sys.executable, "-P", "-m", module, str(theirs.fileno()), *arguments]
            # A process group of its own: Ctrl-C in a terminal reaches the supervisor only, which then drains.
            try:
                self._process = subprocess.Popen(  # noqa: S603 - every word of the command is ours
                    command,
                    pass_fds=[theirs.fileno(), *inherited],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    process_group=0,
                )
            except OSError:
                ours.close()
                raise
        self.pid = self._process.pid
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError:
            ours.close()
            self._process.kill()
            self._process.wait()
            raise
        self._loop.add_reader(self._pidfd, self._exited)
        self.channel = Channel(self._loop, ours, self._received, self._hung_up)

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._process.returncode

    @property
    def ending(self) -> str:
        """How the process ended, in words."""
        code = self.returncode
        if code is not None and code < 0:
            return f"killed by {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"killed by {-code}"
        return f"exit status {code}"

    @property
    def serves(self) -> bool:
        """Whether it has, or may have, clients."""
        return self.state is State.READY or self.state is State.DRAINING

    def drain(self, seconds: float, patience: float) -> None:
        """Has the worker end within `seconds`; kills it `patience` seconds after that."""
        if self.state is State.ENDED:
            return
        self.state = State.DRAINING
        self.channel.send(Drain(seconds))
        self._loop.call_later(seconds + patience, self.kill)

    def kill(self) -> None:
        """Ends the process at once."""
        if self.state is not State.ENDED:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    async def status(self, seconds: float) -> StatusReply | None:
        """What the worker does, or None when it does not answer within `seconds`."""
        if self.state is not State.READY and self.state is not State.DRAINING:
            return None
        answer: asyncio.Future[StatusReply] = self._loop.create_future()
        self._status.append(answer)
        self.channel.send(StatusRequest())
        try:
            return await asyncio.wait_for(answer, seconds)
        except (TimeoutError, ControlError):
            return None

    async def ask(self, message: Request, seconds: float) -> Answer | None:
        """The worker's answer, or None when there is none within `seconds`, or none will come."""
        if not self.serves:
            return None
        number = next(self._requests)
        answer = self._asked[number] = self._loop.create_future()
        self.channel.send(msgspec.structs.replace(message, request=number))
        try:
            return await asyncio.wait_for(answer, seconds)
        except (TimeoutError, ControlError):
            return None
        finally:
            self._asked.pop(number, None)

    def _received(self, message: Message, descriptors: list[int]) -> None:
        for descriptor in descriptors:  # a worker has none to give
            os.close(descriptor)
        self.heard_at = self._loop.time()
        match message:
            case StatusReply():
                for answer in self._status:
                    if not answer.done():
                        answer.set_result(message)
                self._status.clear()
                return
            case SessionsReply() | Kicked() | TransportReply():
                asked = self._asked.get(message.request)
                if asked is not None and not asked.done():
                    asked.set_result(message)
                return
            case Ready() if self.state is State.STARTING:
                self.state = State.READY
                self.was_ready = True
            case Failed():
                self.failure = message.reason
        self._on_message(self, message)

    def _hung_up(self) -> None:
        # On its way out, or beyond reach and of no use. What killed it should be in its exit status, so not at once.
        self._loop.call_later(HUNG_UP_SECONDS, self.kill)

    def _exited(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self._process.wait()
        # What it said last is still in the socket: why it could not start.
        self.channel.read_rest()
        self.state = State.ENDED
        self.channel.close()
        os.close(self._pidfd)
        waiting: list[asyncio.Future[Any]] = [*self._status, *self._asked.values()]
        for answer in waiting:
            if not answer.done():
                answer.set_exception(ControlError("the worker has ended"))
        self._on_exit(self)
