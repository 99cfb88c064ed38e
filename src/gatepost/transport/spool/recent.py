"""Messages that were committed lately, in memory: most are sent at once and never read back from disk."""

from __future__ import annotations

from collections import OrderedDict

OVERHEAD = 300
"""Bytes that an entry costs beside its contents, about."""


class Recent:
    """Envelope (encoded) and content by number, bounded in bytes; over it the oldest go."""

    __slots__ = ("_bytes", "_entries", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0
        self._entries: OrderedDict[int, tuple[bytes, bytes | None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """Bytes in use; never more than the limit."""
        return self._bytes

    def add(self, number: int, envelope: bytes, body: bytes | None) -> None:
        """`body` is None where the content is in a file."""
        self.forget(number)
        self._entries[number] = (envelope, body)
        self._bytes += _cost(envelope, body)
        while self._bytes > self._limit:
            _, entry = self._entries.popitem(last=False)
            self._bytes -= _cost(*entry)

    def update(self, number: int, envelope: bytes) -> None:
        """Replace the envelope of a message that is here."""
        entry = self._entries.get(number)
        if entry is not None:
            self._entries[number] = (envelope, entry[1])
            self._bytes += len(envelope) - len(entry[0])

    def envelope(self, number: int) -> bytes | None:
        """None: not here."""
        entry = self._entries.get(number)
        return None if entry is None else entry[0]

    def body(self, number: int) -> bytes | None:
        """None: not here."""
        entry = self._entries.get(number)
        return None if entry is None else entry[1]

    def forget(self, number: int) -> None:
        """Safe for what is not here."""
        entry = self._entries.pop(number, None)
        if entry is not None:
            self._bytes -= _cost(*entry)


def _cost(envelope: bytes, body: bytes | None) -> int:
    return OVERHEAD + len(envelope) + (0 if body is None else len(body))
