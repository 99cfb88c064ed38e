"""What both POP3 machines share: bounded lines, texts that may be shown, and the numbers."""

from __future__ import annotations

CRLF = b"\r\n"

MAX_COMMAND = 255
"""Octets of a command with its CRLF (RFC 2449 section 4): what we send keeps to it, some servers read no more."""
MAX_LINE = 512
"""Octets of a client's command line: twice what RFC 2449 allows, for long names and passwords."""
MAX_TEXT = 200
"""Characters of a text that comes from elsewhere; with its code it stays within a response line (RFC 2449: 512)."""

BEARER_MECHANISMS = frozenset({"XOAUTH2", "OAUTHBEARER"})


class LineTooLong(ValueError):
    """The peer sent more than a line may hold, without ending it."""


class LineBuffer:
    """Bytes of a peer, taken out line by line. What comes out does not depend on how the bytes were split."""

    __slots__ = ("_data", "_searched")

    def __init__(self) -> None:
        self._data = bytearray()
        self._searched = 0

    def __len__(self) -> int:
        return len(self._data)

    def feed(self, data: bytes) -> None:
        """Add what came in."""
        self._data += data

    def starts_with(self, prefix: bytes) -> bool:
        """Whether the bytes that wait begin with `prefix`, which is in upper case, whatever theirs is."""
        return self._data[: len(prefix)].upper() == prefix

    def take(self, limit: int) -> bytes | None:
        """The next line without its end (CRLF, or LF alone), None while it is incomplete.

        Raises `LineTooLong` when `limit` bytes hold no line's end.
        """
        end = self._data.find(b"\n", self._searched, limit)
        if end < 0:
            if len(self._data) >= limit:
                raise LineTooLong
            # Byte-wise senders would make us search a long line again and again.
            self._searched = len(self._data)
            return None
        line = bytes(self._data[:end])
        del self._data[: end + 1]
        self._searched = 0
        return line.removesuffix(b"\r")

    def rest(self) -> bytes:
        """All that has not been taken; it stays."""
        return bytes(self._data)

    def clear(self) -> None:
        """Forget what waits."""
        self._data.clear()
        self._searched = 0


def clean(text: str | bytes, limit: int = MAX_TEXT) -> str:
    """`text` as one bounded line of printable ASCII, for a response or a log."""
    decoded = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    return "".join(c if " " <= c <= "~" else "?" for c in decoded[:limit]).strip()
