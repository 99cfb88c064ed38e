"""A look at a message's header while its content passes: size, hops, and two fields for logs (RFC 5322)."""

from __future__ import annotations

MAX_FIELD = 998
"""Octets kept of a field."""
MAX_SUBJECT = 255
"""Characters kept of `Subject`."""

_EMPTY_LINE = b"\r\n\r\n"


class HeaderScan:
    """Reads the header of content that comes in pieces; any split gives the same. Lines end in CR LF.

    `size` are the header's octets without the empty line, `hops` its `Received` fields. Once the header is longer than
    `limit` nothing more is looked at.
    """

    __slots__ = ("_field", "_limit", "_line", "_message_id", "_started", "_subject", "ended", "hops", "size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._started = False
        self._line = b""
        """The line that has not ended, as far as it is kept."""
        self._field = b""
        """`message-id` or `subject`, while its lines go on."""
        self._message_id = b""
        self._subject = b""
        self.size = 0
        self.hops = 0
        self.ended = False

    @property
    def too_large(self) -> bool:
        """Whether the header is longer than it may be."""
        return self.size > self._limit

    @property
    def message_id(self) -> str:
        """The `Message-ID` field: the first word of its text, with its brackets. Empty: there is none."""
        words = self._message_id.split()
        return _text(words[0]) if words else ""

    @property
    def subject(self) -> str:
        """The `Subject` field as it came, unfolded and bounded."""
        return " ".join(_text(self._subject).split())[:MAX_SUBJECT]

    def feed(self, content: bytes) -> None:
        """The next piece of content."""
        if self.ended or not content:
            return
        if not self._started:
            self._started = True
            end = content.find(_EMPTY_LINE)
            if end >= 0 and content[:2] != b"\r\n":
                self._whole(content[: end + 2])
                return
        self._lines(content)

    def _whole(self, head: bytes) -> None:
        """The whole header at once, as nearly always."""
        self.ended = True
        self.size = len(head)
        if self.too_large:
            return
        lower = b"\n" + head.lower()
        self.hops = lower.count(b"\nreceived:")
        self._message_id = _field(head, lower, b"\nmessage-id:")
        self._subject = _field(head, lower, b"\nsubject:")

    def _lines(self, content: bytes) -> None:
        """Line by line: the header is in several pieces."""
        start = 0
        while not self.ended:
            end = content.find(b"\n", start)
            piece = content[start:] if end < 0 else content[start : end + 1]
            self.size += len(piece)
            if len(self._line) < MAX_FIELD + 2:
                self._line += piece[: MAX_FIELD + 2]
            if self.too_large:
                self.ended = True
            if end < 0:
                return
            start = end + 1
            line, self._line = self._line, b""
            if line == b"\r\n":
                self.size -= 2
                self.ended = True
            elif not self.ended:
                self._take(line)

    def _take(self, line: bytes) -> None:
        if line[:1] not in {b" ", b"\t"}:
            name, colon, value = line.partition(b":")
            name = name.lower() if colon else b""
            self._field = b""
            if name == b"received":
                self.hops += 1
            elif name == b"message-id" and not self._message_id:
                self._field, self._message_id = name, value[:MAX_FIELD]
            elif name == b"subject" and not self._subject:
                self._field, self._subject = name, value[:MAX_FIELD]
        elif self._field == b"message-id":
            self._message_id = (self._message_id + line)[:MAX_FIELD]
        elif self._field == b"subject":
            self._subject = (self._subject + line)[:MAX_FIELD]


def _field(head: bytes, lower: bytes, name: bytes) -> bytes:
    """The text of the first field `name` (with a LF before and a colon behind it), with its further lines."""
    found = lower.find(name)
    if found < 0:
        return b""
    start = found + len(name) - 1
    end = start
    while True:
        end = head.find(b"\n", end) + 1
        if head[end : end + 1] not in {b" ", b"\t"} or end - start > MAX_FIELD:
            return head[start : min(end, start + MAX_FIELD)]


def _text(value: bytes) -> str:
    return "".join(c if c.isprintable() else " " for c in value.decode("utf-8", "replace"))
