"""What is where in a spool's directory, and that one process has it.

directory/  lock             flock: one hub a spool
            queue.sqlite     envelopes, small contents, facts        (-wal, -shm beside it)
            content/         large contents, a file each; its name is the number, in hexadecimal
            quarantine/      files of messages that could not be used
            in-hand          which messages were being worked on (`in_hand`)
            reserve          room for the journal when the disk is full otherwise
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from gatepost.store.sqlite import StoreUnavailable


class SpoolInUse(StoreUnavailable):
    """Another process has this spool."""


class Layout:
    """The paths of a spool."""

    __slots__ = ("content", "database", "directory", "in_hand", "lock", "quarantine", "reserve")

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lock = directory / "lock"
        self.database = directory / "queue.sqlite"
        self.content = directory / "content"
        self.quarantine = directory / "quarantine"
        self.in_hand = directory / "in-hand"
        self.reserve = directory / "reserve"

    def make(self) -> None:
        """Make the folders that are missing, readable by their owner alone. Raises OSError."""
        for folder in (self.directory, self.content, self.quarantine):
            with suppress(FileExistsError):
                folder.mkdir(0o700)
                if os.geteuid() == 0:  # whoever owns the folder above runs the hub
                    above = folder.parent.stat()
                    os.chown(folder, above.st_uid, above.st_gid)
        sync_directory(self.directory)
        sync_directory(self.directory.parent)

    def file(self, number: int) -> Path:
        """Where the content of a large message is."""
        return self.content / f"{number:016x}"


def number_of(name: str) -> int | None:
    """The number in a file's name; None where it is no name of ours."""
    try:
        number = int(name, 16)
    except ValueError:
        return None
    return number if name == f"{number:016x}" else None


def sync_directory(directory: Path) -> None:
    """New and removed names in it are on disk. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class DirectoryLock:
    """Held from `take` to `release`, and by nobody after the process has died."""

    __slots__ = ("_descriptor",)

    def __init__(self) -> None:
        self._descriptor: int | None = None

    def take(self, layout: Layout) -> None:
        """Raises `SpoolInUse`, OSError."""
        descriptor = os.open(layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            if fault.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            who = f" (process {holder})" if holder.isdigit() else ""
            raise SpoolInUse(f"{layout.directory}: another hub has this spool{who}; each needs its own") from fault
        self._descriptor = descriptor
        with suppress(OSError):  # for the message above only
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Safe twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
