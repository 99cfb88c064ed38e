"""The connectivity log (SPEC T10): who was connected to, who refused, which server was marked unhealthy and why.

The event loop only appends a line to a list; a thread writes. A full disk loses lines and counts them, never mail
(smtp-facts row 61). It is off until the settings say otherwise.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from gatepost.balancing.healthy_server_selector import UnhealthyServer
from gatepost.balancing.socket_errors import describe
from gatepost.balancing.target import Target
from gatepost.organization.transport import TransportSettings
from gatepost.routing.next_hop import NextHop
from gatepost.transport import connectivity_rows as rows
from gatepost.transport.log_files import FileLimits, LogFiles

PREFIX = "CONNECTLOG"
DEFAULT_DIRECTORY = Path("/var/log/gatepost/connectivity")
FLUSH_SECONDS = 0.2
"""A line waits at most this long."""
MAX_WAITING_BYTES = 4 * 1024 * 1024
"""Lines that wait for a disk that stands still; more are dropped."""
_CLOSE_SECONDS = 5.0
_TICKS_OF_1970 = 621_355_968_000_000_000
_TICKS_A_SECOND = 10_000_000


class ConnectivityLog:
    """The log of one process. Its methods may be called from any thread and never wait for the disk or raise."""

    def __init__(self, directory: Path, settings: TransportSettings, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives seconds since 1970: the files' names are the day's."""
        self._directory = directory
        self._clock = clock
        self._files = LogFiles(directory, PREFIX, _limits(settings), rows.header)
        self._lines: list[bytes] = []
        self._waiting = 0
        self._lock = threading.Lock()
        self._work = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        # Ids as the source system's: 16 hexadecimal digits that grow with time, so those of two runs differ.
        self._ids = count(int(clock() * _TICKS_A_SECOND) + _TICKS_OF_1970)
        self.dropped = 0
        """Lines lost so far."""
        self.enabled = False
        self.configure(settings)

    def configure(self, settings: TransportSettings) -> None:
        """Take over new settings; switching the log on or off counts at once."""
        self.enabled = settings.connectivity_log_enabled and not self._closing.is_set()
        self._files.limits = _limits(settings)
        if self.enabled and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="connectivity log", daemon=True)
            self._thread.start()

    def session(self, next_hop: NextHop) -> SessionLog:
        """A log for one session to a next hop, which is the rows' Destination."""
        return SessionLog(self, f"{next(self._ids):016X}", next_hop)

    def write(self, line: bytes) -> None:
        """Hand over one line, newline included."""
        with self._lock:
            if not self.enabled:
                return
            if self._waiting + len(line) > MAX_WAITING_BYTES:
                self.dropped += 1
                return
            self._lines.append(line)
            self._waiting += len(line)
        self._work.set()

    def close(self) -> None:
        """Write what waits, within five seconds. Safe twice."""
        self.enabled = False
        self._closing.set()
        self._work.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._work.wait()
            self._work.clear()
            self._closing.wait(FLUSH_SECONDS)
            self._flush()
        self._flush()
        self._files.close()

    def _flush(self) -> None:
        with self._lock:
            lines, self._lines, self._waiting = self._lines, [], 0
        if lines:
            lost = self._files.write(lines, self._clock())
            with self._lock:
                self.dropped += lost


@dataclass(frozen=True, slots=True)
class SessionLog:
    """The rows of one session; what `transport.connecting.Notes` asks for, and begin, look-ups and end besides.

    Times are seconds since 1970. Costs an attribute look-up a call while the log is off.
    """

    log: ConnectivityLog
    session: str
    next_hop: NextHop

    def begins(self, now: float, queued: int) -> None:
        """A connection for the next hop is wanted; `queued` messages wait."""
        if self.log.enabled:
            hop = self.next_hop
            connector = f" {hop.connector}" if hop.connector else ""
            self._row(now, rows.BEGINS, f"{hop.delivery.value}{connector};QueueLength={queued}")

    def resolved(self, now: float, notes: Iterable[str]) -> None:
        """What the look-up of the next hop's targets brought, also when it failed: its notes."""
        if self.log.enabled:
            for note in notes:
                self._row(now, rows.SAYS, note)

    def connected(self, now: float, target: Target) -> None:
        """A connection is open."""
        if self.log.enabled:
            self._row(now, rows.SAYS, rows.established(target))

    def failed(self, now: float, target: Target, error: OSError, server: UnhealthyServer | None) -> None:
        """A connection attempt returned a socket error; with `server` the row says MarkedUnhealthy and its facts."""
        if self.log.enabled:
            self._row(now, rows.SAYS, rows.failed_connection(target, describe(error), server))

    def refused(self, now: float, target: Target, why: str) -> None:
        """A server did not want to serve."""
        if self.log.enabled:
            self._row(now, rows.SAYS, rows.refused(target, why))

    def says(self, now: float, text: str) -> None:
        """Anything else worth a row: TLS, a message that was refused."""
        if self.log.enabled:
            self._row(now, rows.SAYS, text)

    def ends(self, now: float, messages: int, octets: int, why: str = "") -> None:
        """The session is over after so many messages."""
        if self.log.enabled:
            self._row(now, rows.ENDS, rows.ended(messages, octets, why))

    def _row(self, now: float, direction: str, description: str) -> None:
        self.log.write(rows.row(now, self.session, self.next_hop.domain, direction, description))


def _limits(settings: TransportSettings) -> FileLimits:
    return FileLimits(
        settings.connectivity_log_max_file_size,
        settings.connectivity_log_max_directory_size,
        settings.connectivity_log_max_age,
    )
