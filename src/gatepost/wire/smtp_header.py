"""A look at a message's header while its content passes: how long it is, and how often the mail was handed on."""

from __future__ import annotations

_HOP = b"received:"
_EMPTY_LINE = b"\r\n\r\n"


class HeaderScan:
    """Measures the header of content that comes in pieces; any split gives the same. Lines end in CR LF.

    `size` are the header's octets without the empty line, `hops` its `Received` fields (RFC 5321, section 6.3). Once
    the header is longer than `limit` nothing more is looked at.
    """

    __slots__ = ("_begin", "_length", "_limit", "_started", "ended", "hops", "size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._started = False
        self._begin = b""
        """The first octets of the line that has not ended, as many as a hop's field name has."""
        self._length = 0
        """Octets of that line."""
        self.size = 0
        self.hops = 0
        self.ended = False

    @property
    def too_large(self) -> bool:
        """Whether the header is longer than it may be."""
        return self.size > self._limit

    def feed(self, content: bytes) -> None:
        """The next piece of content."""
        if self.ended or not content:
            return
        if not self._started:
            self._started = True
            end = content.find(_EMPTY_LINE)
            if end >= 0 and content[:2] != b"\r\n":
                # The whole header at once, as nearly always.
                self.ended = True
                self.size = end + 2
                if not self.too_large:
                    self.hops = (b"\n" + content[: end + 2].lower()).count(b"\n" + _HOP)
                return
        self._lines(content)

    def _lines(self, content: bytes) -> None:
        start = 0
        while not self.ended and start < len(content):
            end = content.find(b"\n", start) + 1
            stop = end or len(content)
            if len(self._begin) < len(_HOP):
                self._begin += content[start : min(stop, start + len(_HOP) - len(self._begin))]
            self._length += stop - start
            self.size += stop - start
            start = stop
            if end:
                if self._length == 2:
                    self.size -= 2
                    self.ended = True
                elif self._begin.lower() == _HOP:
                    self.hops += 1
                self._begin, self._length = b"", 0
            if self.too_large:
                self.ended = True
