"""Log files by day and number, as the source system keeps them: `CONNECTLOG20261130-1.log` (exchange-facts 4.2).

A new one is begun each day (UTC) and whenever one is full; old ones go by age and by the size of all. Every line in a
file is whole: what a full disk or kill -9 left of a line is cut off. Not for two processes at once in one directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

CHUNK_BYTES = 64 * 1024
"""Written at a time."""
CLEAN_SECONDS = 60.0
"""Between two looks at age and size of the directory, while something is written."""
_DAY = "%Y%m%d"
_FILE_MODE = 0o640
_DIRECTORY_MODE = 0o750


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Bytes and seconds. `max_age` 0: no file is too old."""

    max_file_size: int
    max_directory_size: int
    max_age: float


@dataclass(frozen=True, slots=True, order=True)
class LogFile:
    """One file by its name; ordered as they were written."""

    day: str
    number: int
    path: Path


def list_files(directory: Path, prefix: str) -> list[LogFile]:
    """The files of this kind, oldest first; other files are not looked at. Raises OSError."""
    name = re.compile(rf"{re.escape(prefix)}(\d{{8}})-(\d{{1,9}})\.log")
    found = ((name.fullmatch(path.name), path) for path in directory.iterdir())
    return sorted(LogFile(match[1], int(match[2]), path) for match, path in found if match)


class LogFiles:
    """Appends lines to the newest file. Only for one thread; no method raises."""

    def __init__(self, directory: Path, prefix: str, limits: FileLimits, header: Callable[[float], bytes]) -> None:
        """`header` gives the lines at the head of a file that is begun at a time (seconds since 1970)."""
        self._directory = directory
        self._prefix = prefix
        self.limits = limits
        self._header = header
        self._descriptor: int | None = None
        self._size = 0
        self._day = ""
        self._cleaned = float("-inf")

    def write(self, lines: Sequence[bytes], now: float) -> int:
        """Append lines, each with its newline; how many could not be written."""
        lost = start = 0
        most = min(CHUNK_BYTES, self._max_file_size // 2)
        while start < len(lines):
            end, size = start + 1, len(lines[start])
            while end < len(lines) and size + len(lines[end]) <= most:
                size += len(lines[end])
                end += 1
            chunk = b"".join(lines[start:end])
            if not self._ready(len(chunk), now) or not self._append(chunk):
                lost += end - start
            start = end
        return lost

    def close(self) -> None:
        """Safe twice; the next `write` opens again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _ready(self, size: int, now: float) -> bool:
        """Have a file open that takes so many bytes; False if there is none to be had."""
        day = datetime.fromtimestamp(now, UTC).strftime(_DAY)
        try:
            if self._descriptor is not None and os.fstat(self._descriptor).st_nlink == 0:
                self.close()  # somebody took the file away
            full = self._size + size > self._max_file_size and self._size > 0
            if self._descriptor is None or day != self._day or full:
                self._begin(day, size, now)
            if not 0.0 <= now - self._cleaned < CLEAN_SECONDS:
                self._clean(now)
        except OSError:
            return False
        return self._descriptor is not None

    @property
    def _max_file_size(self) -> int:
        return min(self.limits.max_file_size, self.limits.max_directory_size)

    def _begin(self, day: str, size: int, now: float) -> None:
        reopens = self._descriptor is None
        self.close()
        self._directory.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
        today = [file for file in list_files(self._directory, self._prefix) if file.day == day]
        self._day = day
        if not (today and reopens and self._continue(today[-1].path, size)):
            number = today[-1].number + 1 if today else 1
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            path = self._directory / f"{self._prefix}{day}-{number}.log"
            self._descriptor, self._size = os.open(path, flags, _FILE_MODE), 0
        if self._size == 0 and not self._append(self._header(now)):
            self.close()
        self._clean(now)

    def _continue(self, path: Path, size: int) -> bool:
        """Go on with a file of an earlier process, or one that the disk had no room for, if it may grow."""
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        whole = _cut_to_whole_lines(descriptor)
        if whole and whole + size > self._max_file_size:
            os.close(descriptor)
            return False
        self._descriptor, self._size = descriptor, whole
        return True

    def _append(self, chunk: bytes) -> bool:
        assert self._descriptor is not None
        try:
            written = os.write(self._descriptor, chunk)
        except OSError:
            written = 0
        if written == len(chunk):
            self._size += written
            return True
        try:
            os.ftruncate(self._descriptor, self._size)  # a part of a line is worse than none
        except OSError:
            self.close()
        return False

    def _clean(self, now: float) -> None:
        """Remove what is too old or too much, oldest first; never the file that is written."""
        self._cleaned = now
        files = list_files(self._directory, self._prefix)
        current = None if self._descriptor is None else os.fstat(self._descriptor).st_ino
        oldest = datetime.fromtimestamp(now, UTC) - timedelta(seconds=self.limits.max_age)
        sizes = [
            (file, found) for file, found in ((file, file.path.stat()) for file in files) if found.st_ino != current
        ]
        total = sum(found.st_size for _, found in sizes)
        # The file that is written may grow to its full size.
        most = self.limits.max_directory_size - self._max_file_size
        for file, found in sizes:
            too_old = self.limits.max_age > 0 and _end_of_day(file.day) <= oldest
            if too_old or total > most:
                with suppress(FileNotFoundError):
                    file.path.unlink()
                total -= found.st_size


def _end_of_day(day: str) -> datetime:
    try:
        return datetime.strptime(day, _DAY).replace(tzinfo=UTC) + timedelta(days=1)
    except (ValueError, OverflowError):
        return datetime.max.replace(tzinfo=UTC)  # a name that is no date was not written by us


def _cut_to_whole_lines(descriptor: int) -> int:
    """Cut off what follows the last newline; the size that is left."""
    size = os.fstat(descriptor).st_size
    position = size
    while position > 0:
        start = max(position - CHUNK_BYTES, 0)
        newline = os.pread(descriptor, position - start, start).rfind(b"\n")
        if newline >= 0:
            whole = start + newline + 1
            if whole < size:
                os.ftruncate(descriptor, whole)
            return whole
        position = start
    os.ftruncate(descriptor, 0)
    return 0
