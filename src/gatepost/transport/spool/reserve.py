"""Room on the disk that is given up when it is full otherwise: removals need some of it before they can free any."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from gatepost.transport.spool.layout import sync_directory


class Reserve:
    """A file of `size` bytes that holds nothing. Used by one thread at a time."""

    __slots__ = ("_path", "released", "size")

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self.size = size
        self.released = not path.exists()
        """Whether the room is given up, or was never there."""

    def make(self) -> None:
        """Take the room, if it is not taken. Raises OSError, and then leaves nothing."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, max(1, self.size))
        except OSError:
            with suppress(OSError):
                self._path.unlink()
            raise
        finally:
            os.close(descriptor)
        self.released = False

    def release(self) -> bool:
        """Give it up; whether there was any."""
        if self.released:
            return False
        self.released = True
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
            sync_directory(self._path.parent)
        return True
