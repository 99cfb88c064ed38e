"""A server's replies as a client reads them: bounded, one code over all lines, enhanced codes taken out.

RFC 5321, section 4.2; RFC 2034. What does not fit is `BadReply`: the two sides no longer mean the same, and whoever
holds the connection gives it up.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gatepost.wire.smtp_reply import Reply

MAX_LINE = 4096
"""Octets of a reply's line. RFC 5321, section 4.5.3.1.5, has 512; texts of policy servers are longer."""
MAX_LINES = 128
"""Lines of one reply: EHLO of a server with everything has some thirty."""
MAX_REPLY = 32 * 1024
"""Octets of one reply."""
MAX_WAITING = 256 * 1024
"""Octets of replies that wait to be read: those to a thousand pipelined recipients fit."""
MAX_TEXT = 1000
"""Characters of text that are kept of a reply for logs and reports; of one to EHLO all of it is."""
REMEMBERED = 512
"""Lines whose reading is remembered: a server says `250 2.1.5 Ok` all day."""

_LINE = re.compile(rb"([2-5][0-9][0-9])(?:([ -])([^\0]*))?")
_ENHANCED = re.compile(r"([245])\.(\d{1,3})\.(\d{1,3})(?: |$)")


class BadReply(ValueError):
    """Bytes that are no reply, or one without bounds. The text says what, never what was in them."""


class ReplyReader:
    """Bytes of a server, taken out reply by reply. What comes out does not depend on how the bytes were split."""

    __slots__ = ("_data", "_lines", "_octets", "_searched", "whole")

    def __init__(self) -> None:
        self._data = bytearray()
        self._searched = 0
        self._lines: list[bytes] = []
        self._octets = 0
        self.whole = False
        """Keep the whole text of what comes next: it is read further, as that of EHLO."""

    def __len__(self) -> int:
        """Octets that have come and belong to no reply that was taken."""
        return len(self._data) + self._octets

    def feed(self, data: bytes) -> None:
        """Add what came in. Raises `BadReply` when more waits than any number of replies needs."""
        self._data += data
        if len(self._data) > MAX_WAITING:
            raise BadReply("more replies than were asked for")

    def take(self) -> Reply | None:
        """The next reply; None while it is incomplete. Raises `BadReply`."""
        while True:
            end = self._data.find(b"\n", self._searched, MAX_LINE)
            if end < 0:
                if len(self._data) >= MAX_LINE:
                    raise BadReply("a line without end")
                self._searched = len(self._data)
                return None
            line = bytes(self._data[:end])
            del self._data[: end + 1]
            self._searched = 0
            line = line.removesuffix(b"\r")
            if not self._lines and line[3:4] != b"-":
                return _single(line)
            if (reply := self._next(line)) is not None:
                return reply

    def _next(self, line: bytes) -> Reply | None:
        """One more line of a reply that has several; the reply when it was the last."""
        self._lines.append(line)
        self._octets += len(line)
        if len(self._lines) > MAX_LINES or self._octets > MAX_REPLY:
            raise BadReply("a reply without end")
        match = _LINE.fullmatch(line)
        if match is None:
            raise BadReply("not a reply")
        if line[:3] != self._lines[0][:3]:
            raise BadReply("one reply with two codes")
        if match[2] == b"-":
            return None
        lines, self._lines, self._octets = self._lines, [], 0
        return _joined(lines, MAX_REPLY if self.whole else MAX_TEXT)

    def rest(self) -> bytes:
        """What has come behind the last reply; it stays."""
        return bytes(self._data)

    def clear(self) -> None:
        """Forget what waits."""
        self._data.clear()
        self._searched = 0
        self._lines = []
        self._octets = 0


@lru_cache(REMEMBERED)
def _single(line: bytes) -> Reply:
    match = _LINE.fullmatch(line)
    if match is None:
        raise BadReply("not a reply")
    return _joined([line], MAX_TEXT)


def _joined(lines: list[bytes], limit: int) -> Reply:
    """One reply of whole lines, the enhanced code taken from each where it is that of the first."""
    code = int(lines[0][:3])
    texts = [line[4:].decode("utf-8", "replace") for line in lines]
    found = _ENHANCED.match(texts[0])
    # A code of another class than the reply's says nothing (RFC 2034, section 4).
    if found is None or found[1] != str(code)[0]:
        return Reply(code, "\n".join(texts)[:limit])
    enhanced = found[0].rstrip(" ")
    texts = [text.removeprefix(enhanced).removeprefix(" ") for text in texts]
    return Reply(code, "\n".join(texts)[:limit], enhanced)
