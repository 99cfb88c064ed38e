"""Writing an organization's file: whole or not at all, one writer at a time, never over somebody else's change."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gatepost.configuration.document import read_file

LOCK_SECONDS = 10.0
"""For another writer to finish; it holds the lock only while it checks and writes."""
LOOK_SECONDS = 0.05
"""Between two attempts to take the lock."""
UNFINISHED = ".new"
"""Ending of the file that is being written. What a killed writer left is removed by the next one."""


class CannotSave(OSError):
    """The file was not changed. The message says why and what to do."""


@dataclass(frozen=True)
class Held:
    """A file whose lock is held. `path` is the real file, behind symbolic links; `content` is what it held then."""

    path: Path
    content: bytes

    def replace(self, content: bytes) -> None:
        """Make `content` the file's, durably: at every moment the name leads to the old or the new one, whole.

        Mode, owner and extended attributes stay. Raises `CannotSave`.
        """
        try:
            self._replace(content)
        except CannotSave:
            raise
        except OSError as fault:
            raise CannotSave(f"{self.path} could not be written: {fault.strerror}. It was not changed.") from fault

    def _replace(self, content: bytes) -> None:
        status = self.path.stat()
        unfinished = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}{UNFINISHED}")
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                self._like_before(file.fileno(), status)
                os.fsync(file.fileno())
            self._check_unchanged()
            unfinished.rename(self.path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        _sync_folder(self.path.parent)

    def _check_unchanged(self) -> None:
        """The lock binds those who ask for it; an editor does not."""
        if read_file(str(self.path)) != self.content:
            raise CannotSave(f"{self.path} was changed by somebody else meanwhile. Nothing was written: try again.")

    def _like_before(self, descriptor: int, status: os.stat_result) -> None:
        new = os.fstat(descriptor)
        if (new.st_uid, new.st_gid) != (status.st_uid, status.st_gid):
            try:
                os.fchown(descriptor, status.st_uid, status.st_gid)
            except PermissionError as fault:
                raise CannotSave(
                    f"{self.path} belongs to another account, and only root could keep it so. Nothing was written."
                ) from fault
        os.fchmod(descriptor, status.st_mode & 0o7777)
        for name in os.listxattr(self.path):
            with suppress(OSError):  # some belong to the system: it sets them itself
                os.setxattr(descriptor, name, os.getxattr(self.path, name))


@contextmanager
def held(path: str, seconds: float = LOCK_SECONDS) -> Iterator[Held]:
    """The file at `path`, with no other writer until the end of the block. Raises `CannotSave`, OSError.

    The lock is on the folder: the file itself is replaced by each change, and a lock file would stay behind.
    """
    real = Path(path).resolve()
    folder = os.open(real.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(folder, real, seconds)
        _remove_unfinished(real)
        yield Held(real, read_file(str(real)))
    finally:
        os.close(folder)


def _lock(folder: int, path: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise CannotSave(
                    f"{path} is being changed by another command, which has not finished in {seconds:g} s. "
                    f"Nothing was written: try again."
                ) from None
            time.sleep(LOOK_SECONDS)


def _remove_unfinished(path: Path) -> None:
    """What a writer that was killed left; there is no other one while the lock is held."""
    for left in path.parent.glob(f".{path.name}.*{UNFINISHED}"):
        with suppress(OSError):  # not ours to remove: it is in nobody's way
            left.unlink()


def _sync_folder(folder: Path) -> None:
    """Makes a rename in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
