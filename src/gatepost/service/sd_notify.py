"""Messages to the service manager (sd_notify(3)).

Written here because it is one datagram: a library would be a dependency of the process that runs as root.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping

STOP_MARGIN_SECONDS = 15.0
"""From the drain's deadline until the last process must have ended."""


class Notifier:
    """Sends to `NOTIFY_SOCKET`; does nothing without one. Takes the variables out of `environment`, so that workers
    cannot speak for the service."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        address = environment.pop("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_seconds = _watchdog_seconds(environment)
        self._sock: socket.socket | None = None
        if self._address:
            # Kept open: what is said when the process is out of descriptors matters most.
            self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._sock.settimeout(1.0)

    def ready(self, status: str) -> None:
        """Started, or a reload has ended."""
        self._send(f"READY=1\nMAINPID={os.getpid()}\nSTATUS={status}")

    def reloading(self) -> None:
        """A reload begins; the manager waits for `ready`."""
        # systemd matches the time with its own to tell this reload from an earlier one (sd_notify(3), RELOADING=1).
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, status: str, seconds: float) -> None:
        """The service ends, at the latest in `seconds` and a little."""
        # The drain may be configured longer than the unit's TimeoutStopSec: without this it would be cut short.
        microseconds = int((seconds + STOP_MARGIN_SECONDS) * 1_000_000)
        self._send(f"STOPPING=1\nSTATUS={status}\nEXTEND_TIMEOUT_USEC={microseconds}")

    def status(self, status: str) -> None:
        """One line for `systemctl status`."""
        self._send(f"STATUS={status}")

    def watchdog(self) -> None:
        """A sign of life."""
        self._send("WATCHDOG=1")

    def close(self) -> None:
        """Say nothing more."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _send(self, text: str) -> None:
        if self._sock is None:
            return
        try:
            self._sock.sendto(text.encode(), self._address)
        except OSError:
            # The manager is away; its own time limits say what happens to the service.
            return


def _watchdog_seconds(environment: MutableMapping[str, str]) -> float | None:
    """Seconds between two signs of life: half of what the manager allows, or None when it wants none."""
    allowed = environment.pop("WATCHDOG_USEC", "")
    pid = environment.pop("WATCHDOG_PID", "")
    if not allowed.isdigit() or int(allowed) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(allowed) / 1_000_000 / 2
