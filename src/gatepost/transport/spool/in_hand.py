"""Which messages were being worked on when the process died (poison messages), without a wait for the disk.

A mapped file of numbers: what is written there survives the process, not the machine, and that is what is wanted: a
power cut is no message's fault. The kernel's boot identity at its head says whether the machine has been up since.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SLOTS = 4096
"""Messages in hand at a time; more are worked on without being marked."""
_HEAD = 64
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class InHand:
    """The marks of this process. `suspects` are the numbers that the last one had in hand when it died."""

    def __init__(self, path: Path) -> None:
        boot = _boot_identity()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = _HEAD + 8 * SLOTS
            before = os.pread(descriptor, size, 0)
            known = before[:_HEAD] == boot and len(before) == size
            found = memoryview(before[_HEAD:]).cast("Q") if known else ()
            self.suspects = sorted({number for number in found if number})
            os.posix_fallocate(descriptor, 0, size)  # a hole on a full disk would end the process at the first mark
            self._map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self._map[:] = boot + bytes(size - _HEAD)
        self._slots = memoryview(self._map)[_HEAD:].cast("Q")
        self._free = list(range(SLOTS - 1, -1, -1))

    @contextmanager
    def mark(self, number: int) -> Iterator[None]:
        """Around the work on a message."""
        free = self._free
        if not free:
            yield
            return
        slot = free.pop()
        self._slots[slot] = number
        try:
            yield
        finally:
            self._slots[slot] = 0
            free.append(slot)

    def close(self) -> None:
        """Nothing is in hand any more; further marks go nowhere. Safe twice."""
        if self._map.closed:
            return
        self._map[_HEAD:] = bytes(8 * SLOTS)
        self._slots.release()
        self._slots = memoryview(bytearray(8 * SLOTS)).cast("Q")
        self._map.close()


def _boot_identity() -> bytes:
    try:
        name = _BOOT.read_bytes().strip()
    except OSError:  # pragma: no cover - not Linux
        name = b"unknown"
    return name[:_HEAD].ljust(_HEAD, b"\0")
