"""Which messages were being worked on when the process died (poison messages), without a wait for the disk.

A mapped file of numbers: what is written there survives the process, not the machine, and that is what is wanted: a
power cut is no message's fault. The kernel's boot identity at its head says whether the machine has been up since.
"""

from __future__ import annotations

import mmap
import os
from contextlib import AbstractContextManager
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

    def mark(self, number: int) -> AbstractContextManager[None]:
        """Around the work on a message; each one is used once."""
        return _Mark(self, number)

    def take(self, number: int) -> int:
        """A slot for the number; -1: there is none."""
        if not self._free:
            return -1
        slot = self._free.pop()
        self._slots[slot] = number
        return slot

    def give_back(self, slot: int) -> None:
        """The work is over."""
        if slot >= 0:
            self._slots[slot] = 0
            self._free.append(slot)

    def close(self) -> None:
        """Nothing is in hand any more; further marks go nowhere. Safe twice."""
        if self._map.closed:
            return
        self._map[_HEAD:] = bytes(8 * SLOTS)
        self._slots.release()
        self._slots = memoryview(bytearray(8 * SLOTS)).cast("Q")
        self._map.close()


class _Mark(AbstractContextManager[None]):
    """A class of its own: it is entered several times a message, and a generator would cost thrice as much."""

    __slots__ = ("_number", "_of", "_slot")

    def __init__(self, of: InHand, number: int) -> None:
        self._of = of
        self._number = number
        self._slot = -1

    def __enter__(self) -> None:
        self._slot = self._of.take(self._number)

    def __exit__(self, *_: object) -> None:
        self._of.give_back(self._slot)


def _boot_identity() -> bytes:
    try:
        name = _BOOT.read_bytes().strip()
    except OSError:  # pragma: no cover - not Linux
        name = b"unknown"
    return name[:_HEAD].ljust(_HEAD, b"\0")
