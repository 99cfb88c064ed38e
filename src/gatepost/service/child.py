"""What the supervisor's children have in common, workers and the manager: how they begin, what they log, how they fail.

    limits ── Start arrives ── the child's own bootstrap ── loop ── end, or Failed and an exit status

Only what every child needs is imported here: the manager's process loads nothing of the front door.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from structlog.typing import FilteringBoundLogger

from gatepost.configuration.settings import Configuration
from gatepost.service import logs, privileges
from gatepost.service.control import (
    Configured,
    ControlError,
    Failed,
    FrameReader,
    Message,
    Start,
    encode,
    receive_first,
)
from gatepost.service.handing_over import unpack

START_SECONDS = 30.0
"""For the first message, which the supervisor sends at once."""
MAX_FAULTS_LOGGED_PER_SECOND = 10
"""Unexpected faults are all counted, but a fault in a loop must not fill the disk."""
EXPECTED_FAULTS = (OSError, privileges.PrivilegeError)
"""Faults of the surroundings; anything else is a bug and shows its traceback."""
CANNOT_START = 3
"""Exit status after `Failed` was sent."""


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


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first message to a child with its descriptors and configuration, and what came right behind it."""

    start: Start
    descriptors: list[int]
    configuration: Configuration
    early: list[tuple[Message, list[int]]]
    reader: FrameReader

    @property
    def socket_descriptors(self) -> list[int]:
        """Those that are not the log's."""
        return self.descriptors[1:] if self.start.log else self.descriptors


def receive_start(control: socket.socket) -> Beginning:
    """Wait for the first message. Raises `ControlError`, OSError."""
    reader = FrameReader()
    (start, descriptors), *early = receive_first(control, reader, START_SECONDS)
    if not isinstance(start, Start):
        raise ControlError(f"the first message was {type(start).__name__}")
    return Beginning(start, descriptors, unpack(start.configuration), early, reader)


def take_log(
    message: Configured, descriptors: list[int], writer: logs.LineWriter, configuration: Configuration
) -> list[int]:
    """Go on with the log's descriptor of a message, if it has one; answers the others, which are of sockets.

    `configuration` is the one until now: a log that was a file and is none any more is standard output.
    """
    if message.log or configuration.front_end.log_file:
        writer.replace(descriptors[0] if message.log else os.dup(1))
    return descriptors[1:] if message.log else descriptors


def run_child(bootstrap: Callable[[socket.socket], None]) -> int:
    """Run the process: `bootstrap` gets the control connection named by the first argument, and returns at the end.

    The exit status is 0 then. The supervisor is told what keeps the child from starting, and decides what then.
    """
    for number in (signal.SIGHUP, signal.SIGINT):  # the supervisor's business
        signal.signal(number, signal.SIG_IGN)
    control = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(control.fileno(), False)
    try:
        bootstrap(control)
    except Exception as fault:
        with contextlib.suppress(OSError):
            control.sendall(encode(Failed(f"{type(fault).__name__}: {fault}")))
        if isinstance(fault, EXPECTED_FAULTS):
            return CANNOT_START
        raise
    return 0
