"""A message's content on its way to a server: dots stuffed and line ends put right (RFC 5321, section 4.5.2)."""

from __future__ import annotations

import re

END = b".\r\n"
_BARE = re.compile(rb"\r(?!\n)|(?<!\r)\n")


class DotStuffer:
    """Content in, what follows DATA out. What comes out, joined, does not depend on how the content was split.

    A bare CR or LF never leaves: it becomes a line's end, since servers do not agree on what it is (field case 1).
    """

    __slots__ = ("_at_line_start", "_carry")

    def __init__(self) -> None:
        self._at_line_start = True
        self._carry = b""
        """A CR that ended the last piece: what comes next says what it is."""

    def feed(self, data: bytes) -> bytes:
        """The next piece of the content."""
        if self._carry:
            data = self._carry + data
            self._carry = b""
        if data.endswith(b"\r"):
            self._carry = b"\r"
            data = data[:-1]
        if not data:
            return b""
        ends = data.count(b"\r\n")
        if data.count(b"\n") != ends or data.count(b"\r") != ends:
            data = _BARE.sub(b"\r\n", data)
        if b"\r\n." in data:
            data = data.replace(b"\r\n.", b"\r\n..")
        if self._at_line_start and data.startswith(b"."):
            data = b"." + data
        self._at_line_start = data.endswith(b"\r\n")
        return data

    def end(self) -> bytes:
        """What ends the content: the last line's end where it has none, and the dot."""
        if self._carry or not self._at_line_start:
            return b"\r\n" + END
        return END
