"""Contents on their way to disk: small ones wait in memory for the commit, large ones go to a file in blocks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from errno import EDQUOT, ENOSPC
from pathlib import Path
from zlib import crc32

from gatepost.transport.ports import SpoolFull
from gatepost.transport.spool.layout import Layout

BLOCK = 256 * 1024
"""Bytes written at a time."""
FULL = 2 * BLOCK
"""From so many bytes on that wait, the client is not read from; with the block under way that is all the memory."""
SYNC_EVERY = 16 * 1024 * 1024
"""A large file is brought to disk piece by piece, so that its end does not wait for all of it."""


class ContentFile:
    """A file that is being written, by one thread at a time. All methods may block; they raise OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._unsynced = 0
        self.crc = 0
        """CRC-32 of what was written."""

    def write(self, parts: list[bytes]) -> None:
        """Append; after a fault nothing of the file is left."""
        try:
            if self._descriptor is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                self._descriptor = os.open(self._path, flags, 0o600)
            data = memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
            self.crc = crc32(data, self.crc)
            while data:
                written = write_some(self._descriptor, data)
                self._unsynced += written
                data = data[written:]
            if self._unsynced >= SYNC_EVERY:
                self._sync(self._descriptor)
        except OSError:
            self.remove()
            raise

    def finish(self, parts: list[bytes]) -> None:
        """Append the rest; the file is on disk, its name not yet."""
        self.write(parts)
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            self._sync(descriptor)
        except OSError:
            self.remove()
            raise
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        """Never raises; what cannot be removed now is at the next start."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _sync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)
        self._unsynced = 0


def write_some(descriptor: int, data: memoryview) -> int:
    """`os.write`, where tests let disks fail."""
    return os.write(descriptor, data)


class ContentWriter:
    """A `BodyWriter`. `number` gives a file its name, and is asked for when the content has become large."""

    __slots__ = (
        "_busy",
        "_file",
        "_finishing",
        "_held",
        "_inline",
        "_layout",
        "_loop",
        "_number_of_file",
        "_parts",
        "_pool",
        "_release",
        "_room",
        "committed",
        "fault",
        "number",
        "over",
        "size",
    )

    def __init__(
        self,
        layout: Layout,
        pool: ThreadPoolExecutor,
        loop: asyncio.AbstractEventLoop,
        inline: int,
        number: Callable[[], int],
        release: Callable[[], None],
    ) -> None:
        self._layout = layout
        self._pool = pool
        self._loop = loop
        self._inline = inline
        self._number_of_file = number
        self._release = release
        self._parts: list[bytes] = []
        self._held = 0
        self._file: ContentFile | None = None
        self._busy = False
        self.over = False
        self._room: asyncio.Future[None] | None = None
        self._finishing: Callable[[], None] | None = None
        self.size = 0
        """Bytes written."""
        self.number = 0
        """Of the file; 0 while the content is small."""
        self.fault: Exception | None = None
        self.committed = False
        self.over = False
        """Nothing more is taken: discarded, or committed."""

    @property
    def crc(self) -> int:
        """Of a finished file."""
        return 0 if self._file is None else self._file.crc

    @property
    def full(self) -> bool:
        """Whether to stop reading from the client until `drain`."""
        return self._held >= FULL and self._busy

    @property
    def whole(self) -> bytes | None:
        """All of a small content; None where it is in a file, or was taken."""
        if self._file is not None or self.over:
            return None
        if len(self._parts) != 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0]

    def write(self, data: bytes) -> None:
        """Take bytes; after a fault they are dropped."""
        self.size += len(data)
        if self.over or self.committed or self.fault is not None:
            return
        self._parts.append(data)
        self._held += len(data)
        if self._file is None and self._held > self._inline:
            self.number = self._number_of_file()
            self._file = ContentFile(self._layout.file(self.number))
        if self._held >= BLOCK:
            self._flush()

    async def drain(self) -> None:
        """Until there is room again. Raises `SpoolFull`, OSError."""
        while self.full and self.fault is None:
            if self._room is None:
                self._room = self._loop.create_future()
            await asyncio.shield(self._room)
        if self.fault is not None:
            raise self.fault

    def discard(self) -> None:
        """Forget the message, unless it was given to `commit`: then it is the spool's."""
        if not self.committed:
            self._end()
            if self._file is not None and not self._busy:
                self.remove_file()

    def remove_file(self) -> None:
        """Take the file away again, if there is one."""
        if self._file is not None:
            with suppress(RuntimeError):  # the spool is closed: the next start does it
                self._pool.submit(self._file.remove)

    def take(self) -> bytes | None:
        """The content of a small message; None where it is in a file. For the spool's commit."""
        self.committed = True
        if self._file is not None:
            return None
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._end()
        return body

    def finish(self, finished: Callable[[], None]) -> None:
        """Bring the file to disk; then `finished` is called, and `fault` says how it went."""
        self._finishing = finished
        if not self._busy:
            self._flush()

    def _flush(self) -> None:
        """Give what is held to a thread, unless one is at work for this message."""
        if self._busy or self._file is None:
            return
        parts, self._parts, self._held = self._parts, [], 0
        last = self._finishing is not None
        job = self._file.finish if last else self._file.write
        self._busy = True
        try:
            done = self._loop.run_in_executor(self._pool, job, parts)
        except RuntimeError:  # the spool was closed
            self._written(OSError("the spool is closed"), last=last)
            return
        done.add_done_callback(lambda done: self._written(done.exception(), last=last))

    def _written(self, fault: BaseException | None, *, last: bool) -> None:
        self._busy = False
        if fault is not None and self.fault is None:
            self.fault = as_refusal(fault)
            self._parts, self._held = [], 0
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)
        if self.over and not self.committed:
            self.remove_file()
        elif self._finishing is not None and (last or self.fault is not None):
            finishing, self._finishing = self._finishing, None
            self._end()
            finishing()
        elif self._finishing is not None or self._held >= BLOCK:
            self._flush()

    def _end(self) -> None:
        self._parts, self._held = [], 0
        if not self.over:
            self.over = True
            self._release()


def as_refusal(fault: BaseException) -> Exception:
    """What a caller is told of a fault."""
    if isinstance(fault, OSError) and fault.errno in (ENOSPC, EDQUOT):
        return SpoolFull(f"the spool's disk is full: {fault}")
    return fault if isinstance(fault, Exception) else OSError(str(fault))
