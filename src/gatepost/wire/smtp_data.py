r"""Content of messages on the wire: DATA's end and its dots (RFC 5321, section 4.5.2), bounds, forbidden bytes.

Only CR LF `.` CR LF ends DATA. What others have taken for an end (LF `.` LF and its like) is content with a bare line
end, and such content is not taken: then no two servers can see different messages in it (smtp-facts c.1, case 1).
Blocks are searched whole; no line is ever looked at by itself, none is kept.
"""

from __future__ import annotations

from enum import IntFlag

MAX_LINE = 65536
"""Octets of a line with its end. RFC 5321 has 1000; mail with longer ones exists (smtp-facts c.1, case 8)."""

_END = b"\r\n.\r\n"


class ContentFault(IntFlag):
    """What is wrong with content; several may be."""

    NONE = 0
    BARE_CR = 1
    BARE_LF = 2
    NUL = 4
    LONG_LINE = 8

    @property
    def line_ends(self) -> bool:
        """A CR without LF, or a LF without CR."""
        return bool(self & (ContentFault.BARE_CR | ContentFault.BARE_LF))

    @property
    def ambiguous(self) -> bool:
        """What others may take for a line end, or skip within one: a bare CR or LF, a NUL."""
        return bool(self & (ContentFault.BARE_CR | ContentFault.BARE_LF | ContentFault.NUL))


class ContentCheck:
    """Looks for faults in content that comes in pieces, each of which must hold whole line ends: never a CR alone at
    its end with its LF in the next."""

    __slots__ = ("_line", "_max_line", "eight_bit", "fault")

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._max_line = max_line
        self._line = 0
        """Octets of the line that has not ended."""
        self.fault = ContentFault.NONE
        self.eight_bit = False
        """Octets beyond ASCII have been seen."""

    def look(self, content: bytes) -> None:
        """Take note of the faults in the next piece."""
        pairs = content.count(b"\r\n")
        if content.count(b"\n") != pairs:
            self.fault |= ContentFault.BARE_LF
        if content.count(b"\r") != pairs:
            self.fault |= ContentFault.BARE_CR
        if b"\0" in content:
            self.fault |= ContentFault.NUL
        if not self.eight_bit and not content.isascii():
            self.eight_bit = True
        self._measure(content)

    def _measure(self, content: bytes) -> None:
        """Whether a line is too long: from each line's start the last end within reach is looked for."""
        start, size, limit = -self._line, len(content), self._max_line
        while start + limit < size:
            end = content.rfind(b"\n", max(start, 0), max(start + limit, 0))
            if end < 0:
                self.fault |= ContentFault.LONG_LINE
                end = content.find(b"\n", max(start + limit, 0))
                if end < 0:
                    break
            start = end + 1
        last = content.rfind(b"\n", max(start, 0))
        self._line = size - (last + 1 if last >= 0 else start)


class DataDecoder:
    """DATA's content without the dots that were stuffed. Any split of the input gives the same content and faults.

    `bare_line_feeds`: lines that end in LF alone are put right and are no fault; the end stays CR LF `.` CR LF, and
    a bare CR stays a fault.
    """

    __slots__ = ("_after_lf", "_bare_line_feeds", "_check", "_held", "_virtual", "ended", "rest")

    def __init__(self, *, bare_line_feeds: bool = False, max_line: int = MAX_LINE) -> None:
        self._check = ContentCheck(max_line)
        self._bare_line_feeds = bare_line_feeds
        self._held = b"\r\n"
        """The last octets, as far as they may be the beginning of the end. At first the end of the DATA line."""
        self._virtual = 2
        """Octets of `_held` that are no content."""
        self._after_lf = False
        self.ended = False
        self.rest = b""
        """What came after the end."""

    @property
    def fault(self) -> ContentFault:
        """What is wrong so far."""
        return self._check.fault

    @property
    def eight_bit(self) -> bool:
        """Whether octets beyond ASCII have been seen."""
        return self._check.eight_bit

    def feed(self, data: bytes) -> bytes:
        """The content in `data`, as far as it is certain. Not to be called after the end."""
        held = self._held
        buffer = held + data if held else data
        end = buffer.find(_END)
        if end >= 0:
            self.ended = True
            self.rest = buffer[end + 5 :]
            content = buffer[: end + 2]
            self._held = b""
        else:
            certain = len(buffer) - _beginning_of_end(buffer)
            content = buffer[:certain]
            self._held = buffer[certain:]
        if not content:
            return b""
        content = self._put_right(content) if self._bare_line_feeds else content.replace(b"\r\n.", b"\r\n")
        if self._virtual:
            content = content[2:]
            self._virtual = 0
        self._check.look(content)
        return content

    def _put_right(self, content: bytes) -> bytes:
        """`content` with CR LF at the end of each line, and without stuffed dots."""
        lines = content.replace(b"\r\n", b"\n")
        if self._after_lf and lines[:1] == b".":
            lines = lines[1:]
        self._after_lf = content[-1:] == b"\n"
        return lines.replace(b"\n.", b"\n").replace(b"\n", b"\r\n")


class TextDecoder:
    """Content whose length is known (BDAT, RFC 3030), looked at for the same faults. It is never stuffed with dots."""

    __slots__ = ("_bare_line_feeds", "_check", "_held", "_last")

    def __init__(self, *, bare_line_feeds: bool = False, max_line: int = MAX_LINE) -> None:
        self._check = ContentCheck(max_line)
        self._bare_line_feeds = bare_line_feeds
        self._held = b""
        """A CR whose LF may come yet."""
        self._last = b"\r\n"

    @property
    def fault(self) -> ContentFault:
        """What is wrong so far."""
        return self._check.fault

    @property
    def eight_bit(self) -> bool:
        """Whether octets beyond ASCII have been seen."""
        return self._check.eight_bit

    def feed(self, data: bytes) -> bytes:
        """The content in `data`, as far as it is certain."""
        content = self._held + data if self._held else data
        self._held = b""
        if content[-1:] == b"\r":
            self._held, content = b"\r", content[:-1]
        return self._look(content) if content else b""

    def finish(self) -> bytes:
        """What is left at the end of the last chunk; content that does not end in CR LF gets one."""
        held = self._look(self._held) if self._held else b""
        self._held = b""
        return held if self._last == b"\r\n" else held + b"\r\n"

    def _look(self, content: bytes) -> bytes:
        if self._bare_line_feeds:
            content = content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        self._last = (self._last + content[-2:])[-2:]
        self._check.look(content)
        return content


class DataEncoder:
    """Content as DATA sends it: dots stuffed, no bare CR or LF whatever comes in; both become CR LF."""

    __slots__ = ("_held", "_line_start")

    def __init__(self) -> None:
        self._held = b""
        """A CR whose LF may come yet."""
        self._line_start = True

    def encode(self, content: bytes) -> bytes:
        """The next piece."""
        if self._held:
            content = self._held + content
            self._held = b""
        if content[-1:] == b"\r":
            self._held, content = b"\r", content[:-1]
        return self._encode(content)

    def finish(self) -> bytes:
        """What is left, a line end if it lacks, and the end of DATA."""
        rest = self._encode(self._held)
        self._held = b""
        return rest + (b".\r\n" if self._line_start else b"\r\n.\r\n")

    def _encode(self, content: bytes) -> bytes:
        if not content:
            return b""
        pairs = content.count(b"\r\n")
        if content.count(b"\n") != pairs or content.count(b"\r") != pairs:
            content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\r\n")
        stuffed = content.replace(b"\r\n.", b"\r\n..")
        if self._line_start and content[:1] == b".":
            stuffed = b"." + stuffed
        self._line_start = content[-2:] == b"\r\n"
        return stuffed


def _beginning_of_end(buffer: bytes) -> int:
    """How many of the last octets may be the beginning of the end of DATA."""
    for size in (4, 3, 2, 1):
        if buffer[-size:] == _END[:size] and len(buffer) >= size:
            return size
    return 0
