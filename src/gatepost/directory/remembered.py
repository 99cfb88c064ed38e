"""Passwords that were right lately, as keyed digests, in memory that the workers of one front end share.

    supervisor ── make ──► anonymous memory ── inherited by each worker ──► Remembered

After a move or a failover a client comes back to whichever worker accepts it, and a check by argon2 costs 25 ms: what
one worker has found right is right for all. The key is made with the memory and lies in it, so a digest means nothing
to another front end, and neither key nor digests outlive the front end or reach a disk.

There are no locks. Each place is written by one assignment of a digest and its time; two workers that write the same
place at once may leave parts of both digests there, which is a digest that nobody's password has.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
from collections.abc import Mapping

DIGEST_BYTES = 16
_KEY_BYTES = 32
_PLACE = struct.Struct("=16sQ")
"""A digest, and when it was right last: milliseconds of the monotonic clock, which all processes share, plus one."""
_WAYS = 8
"""Places that one digest may be in; of a full set the oldest goes."""
SETS = 16_384
"""131,072 digests in 3 MiB, of which only what is used takes memory."""
VARIABLE = "GATEPOST_REMEMBERED"
"""Environment variable that tells a worker the descriptor it has inherited."""

_NAME = "gatepost-remembered"


def make_memory(sets: int = SETS) -> int:
    """Memory with a fresh key, as a descriptor that children do not inherit by themselves. Raises OSError."""
    descriptor = os.memfd_create(_NAME, os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, _KEY_BYTES + sets * _WAYS * _PLACE.size)
        os.pwrite(descriptor, secrets.token_bytes(_KEY_BYTES), 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class Remembered:
    """Digests of right passwords, each with a time."""

    def __init__(self, descriptor: int | None = None, sets: int = SETS) -> None:
        """`descriptor`: the memory of `make_memory`, which is closed; None: memory of this process alone."""
        if descriptor is None:
            descriptor = make_memory(sets)
        try:
            self._memory = mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)
        self.key = self._memory[:_KEY_BYTES]
        """For the digests; 32 random bytes."""
        self._set_bytes = _WAYS * _PLACE.size
        self._sets = (len(self._memory) - _KEY_BYTES) // self._set_bytes

    @classmethod
    def inherited(cls, environment: Mapping[str, str]) -> Remembered:
        """That of the front end which this process was started by; its own when it was started by none."""
        found = environment.get(VARIABLE, "")
        return cls(int(found)) if found else cls()

    def age(self, digest: bytes, now: float) -> float | None:
        """Seconds since this was right; None when that is not known."""
        place = self._find(digest)
        if place is None:
            return None
        milliseconds: int = _PLACE.unpack_from(self._memory, place)[1] - 1
        return max(now - milliseconds / 1000, 0.0)

    def remember(self, digest: bytes, now: float) -> None:
        """It is right at this moment."""
        place = self._find(digest)
        if place is None:
            first = self._first(digest)
            places = range(first, first + self._set_bytes, _PLACE.size)
            place = min(places, key=lambda at: _PLACE.unpack_from(self._memory, at)[1])
        _PLACE.pack_into(self._memory, place, digest, int(now * 1000) + 1)

    def _first(self, digest: bytes) -> int:
        return _KEY_BYTES + int.from_bytes(digest[:4], "little") % self._sets * self._set_bytes

    def _find(self, digest: bytes) -> int | None:
        first = self._first(digest)
        at = self._memory.find(digest, first, first + self._set_bytes)
        # A digest is found where one begins, not across the end of one and a time.
        return at if at >= 0 and (at - first) % _PLACE.size == 0 else None
