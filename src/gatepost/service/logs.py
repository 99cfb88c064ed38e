"""Log lines: structlog in, one JSON object a line out, written by a thread of its own.

The event loop only appends bytes to a list: a full disk, a slow one or a reader that has stopped reading its pipe never
holds up a session and never raises into one. What cannot be written is dropped and counted, and the count is logged as
`log.lines_dropped` when writing works again. Lines of the last `FLUSH_SECONDS` are lost when the process is killed.

Supervisor and workers write to one file: it is opened for appending, so whole writes never mix.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from typing import Any

import msgspec
import structlog

FLUSH_SECONDS = 0.1
"""A line waits at most this long."""
FLUSH_BYTES = 64 * 1024
"""Or until so many bytes wait."""
MAX_WAITING_BYTES = 4 * 1024 * 1024
"""Bytes that wait for a disk or reader that stands still; about 15,000 session lines. More is dropped."""
MAX_TEXT = 8192
"""Characters of one traceback or fallback text in a line."""
_PIPE_CHUNK_BYTES = 4096
"""PIPE_BUF: writes of several processes to one pipe mix beyond it (pipe(7))."""
_CLOSE_SECONDS = 2.0
"""For the last lines at the end of the process."""

SECRET_KEYS = frozenset(
    {
        "password", "passwd", "master_password", "secret", "token", "authorization", "proxy_authorization", "cookie",
        "credentials", "private_key",
    }
)  # fmt: skip
"""Values under these keys never reach the log. The second line of defence: callers do not pass them."""
MASKED = "…"


class LineWriter:
    """Writes lines to a file descriptor, in batches, from a thread. No method raises; `write` never blocks."""

    def __init__(self, descriptor: int, write: Callable[[int, bytes], int] = os.write) -> None:
        self._descriptor = descriptor
        self._write = write
        self._next_descriptor: int | None = None
        self._lines: list[bytes] = []
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._work = threading.Event()
        self._full = threading.Event()
        self._closing = False
        self._torn = False
        self.dropped = 0
        """Lines lost so far."""
        self._dropped_reported = 0
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    @property
    def descriptor(self) -> int:
        """The descriptor that lines go to, or will from the next batch on."""
        return self._descriptor if self._next_descriptor is None else self._next_descriptor

    def write(self, line: bytes) -> None:
        """Hands over one line, newline included."""
        with self._lock:
            if self._waiting_bytes + len(line) > MAX_WAITING_BYTES:
                self.dropped += 1
                return
            self._lines.append(line)
            self._waiting_bytes += len(line)
        if len(self._lines) == 1:
            self._work.set()
        elif self._waiting_bytes >= FLUSH_BYTES:
            self._full.set()

    def replace(self, descriptor: int) -> None:
        """Goes on with another descriptor and closes the present one: the file was rotated."""
        with self._lock:
            if self._next_descriptor is not None:
                os.close(self._next_descriptor)
            self._next_descriptor = descriptor
        self._full.set()
        self._work.set()

    def close(self) -> None:
        """Writes what waits, within two seconds, and ends. The descriptor stays open."""
        self._closing = True
        self._full.set()
        self._work.set()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._closing:
            self._work.wait()
            self._full.wait(FLUSH_SECONDS)
            self._full.clear()
            self._work.clear()
            self._flush()
        self._flush()

    def _flush(self) -> None:
        with self._lock:
            lines, self._lines, self._waiting_bytes = self._lines, [], 0
            new, self._next_descriptor = self._next_descriptor, None
        if new is not None:
            if self._descriptor > 2:
                os.close(self._descriptor)
            self._descriptor, self._torn = new, False
        if self.dropped > self._dropped_reported and (lines or new is not None):
            total = self.dropped
            if self._write_lines([_dropped_line(total - self._dropped_reported)]):
                self._dropped_reported = total
            else:
                self._count_dropped(-1)  # the report itself is no lost line
        if lines:
            self._write_lines(lines)

    def _write_lines(self, lines: list[bytes]) -> bool:
        """Whether all were written; the others are counted."""
        whole = True
        for chunk in self._chunks(lines):
            rest = memoryview(b"\n" + chunk if self._torn else chunk)
            try:
                while rest:
                    rest = rest[self._write(self._descriptor, bytes(rest)) :]
                self._torn = False
            except OSError:
                whole = False
                lost = bytes(rest)
                self._count_dropped(lost.count(b"\n") - lost.startswith(b"\n"))
                # Part of a line may be out: the next write begins on a line of its own.
                self._torn = self._torn or len(lost) < len(chunk)
        return whole

    def _count_dropped(self, count: int) -> None:
        with self._lock:
            self.dropped += count

    def _chunks(self, lines: list[bytes]) -> list[bytes]:
        if _is_regular(self._descriptor):
            return [b"".join(lines)]
        chunks: list[bytes] = []
        chunk: list[bytes] = []
        size = 0
        for line in lines:
            if chunk and size + len(line) > _PIPE_CHUNK_BYTES:
                chunks.append(b"".join(chunk))
                chunk, size = [], 0
            chunk.append(line)
            size += len(line)
        chunks.append(b"".join(chunk))
        return chunks


def _is_regular(descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:
        return False


_second = -1
_second_text = ""


def timestamp(now: float) -> str:
    """`now` (seconds since the epoch) as ISO 8601 in UTC with milliseconds."""
    global _second, _second_text  # noqa: PLW0603 - one entry of cache: formatting a date costs as much as the rest of a line
    second = int(now)
    if second != _second:
        _second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        _second = second
    return f"{_second_text}.{int((now - second) * 1000):03d}Z"


_encoder = msgspec.json.Encoder(enc_hook=repr)
# JSON escapes control characters below U+0020 only. DEL, the C1 range, line separators and marks that turn the
# direction of writing can deceive whoever reads the log in a terminal.
_DECEIVING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def encode(event: Mapping[str, Any]) -> bytes:
    """One line, newline included. Never raises."""
    try:
        line = _encoder.encode(event)
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError):
        # A lone surrogate, an endless structure: the reader gets what can be had.
        line = _encoder.encode({_plain(k): _plain(v) for k, v in event.items()})
    if not line.isascii() or b"\x7f" in line:
        line = _DECEIVING.sub(lambda found: f"\\u{ord(found[0]):04x}", line.decode()).encode()
    return line + b"\n"


def _plain(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text[:MAX_TEXT].encode("ascii", "backslashreplace").decode()


def _dropped_line(count: int) -> bytes:
    event = {"time": timestamp(time.time()), "level": "error", "event": "log.lines_dropped", "lines": count}
    return encode(event)


def mask(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Hides secrets by the name of their key, one level deep as well."""
    if not SECRET_KEYS.isdisjoint(event):
        for key in SECRET_KEYS & event.keys():
            event[key] = MASKED
    for key, value in event.items():
        if isinstance(value, dict):
            event[key] = {k: MASKED if k in SECRET_KEYS else v for k, v in value.items()}
    return event


def _render(context: Mapping[str, str | int], _logger: object, method: str, event: MutableMapping[str, Any]) -> bytes:
    head = {"time": timestamp(time.time()), "level": method, "event": event.pop("event", ""), **context}
    fault = event.pop("exc_info", None)
    if fault:
        event["traceback"] = _traceback(fault)
    head.update(event)
    return encode(head)


def _traceback(fault: object) -> str:
    # Frames without their local variables: those hold passwords.
    text = structlog.processors.format_exc_info(None, "", {"exc_info": fault}).get("exception", "")
    return str(text)[-MAX_TEXT:]


class _Sink:
    """What structlog calls with the rendered line."""

    __slots__ = ("critical", "debug", "error", "exception", "info", "warning")

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self.debug = self.info = self.warning = self.error = self.critical = self.exception = write


def configure(writer: LineWriter, **context: str | int) -> structlog.typing.FilteringBoundLogger:
    """Has every structlog logger of this process write JSON lines to `writer`; `context` is on every line.

    Answers a logger that is already bound (a few microseconds cheaper a line than `structlog.get_logger()`'s proxy).
    """
    structlog.configure(
        processors=[mask, partial(_render, context)],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        logger_factory=lambda *_: _Sink(writer.write),
        cache_logger_on_first_use=True,
    )
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger("gatepost").bind()
    return logger


def open_log(path: str) -> int:
    """A descriptor that appends to `path`, made with mode 0640. Raises OSError."""
    # Not through a link in the last place: the folder may be one that the workers' account can write.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o640)
