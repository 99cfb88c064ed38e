"""Replies of an SMTP server as whoever speaks to it reads them, and what its answer to EHLO offers. Bounded."""

from __future__ import annotations

import re

from gatepost.wire.pop3_lines import LineBuffer, LineTooLong
from gatepost.wire.smtp_reply import Reply

MAX_ANSWER_LINE = 2048
"""Octets of one line. RFC 5321 section 4.5.3.1.5 has 512; texts of real servers are longer."""
MAX_ANSWER_LINES = 100
"""Lines of one reply: an EHLO of today has twenty."""

_LINE = re.compile(rb"([2-5][0-9]{2})(?:([ -])(.*))?", re.DOTALL)
_ENHANCED = re.compile(r"([245]\.[0-9]{1,3}\.[0-9]{1,3})(?: |\Z)")


class BadAnswer(ValueError):
    """The server broke the protocol or a bound."""


class AnswerReader:
    """Bytes of a server, taken out reply by reply. What comes out does not depend on how the bytes were split."""

    __slots__ = ("_buffer", "_code", "_lines")

    def __init__(self) -> None:
        self._buffer = LineBuffer()
        self._code = b""
        self._lines: list[str] = []

    def __len__(self) -> int:
        """Octets that have not been taken: nothing of a reply that has begun is counted but its last line."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Add what came in."""
        self._buffer.feed(data)

    def take(self) -> Reply | None:
        """The next reply, None while it is incomplete. Raises `BadAnswer`.

        Text beyond ASCII is kept as `?`; the enhanced code is that of the last line.
        """
        while True:
            try:
                line = self._buffer.take(MAX_ANSWER_LINE)
            except LineTooLong:
                raise BadAnswer("an answer without end") from None
            if line is None:
                return None
            match = _LINE.fullmatch(line)
            if match is None or b"\0" in line:
                raise BadAnswer("not an SMTP reply")
            code, more, text = match[1], match[2], match[3] or b""
            if self._code and code != self._code:
                raise BadAnswer("a reply with two codes")
            self._lines.append(text.decode("ascii", "replace").replace("\ufffd", "?"))
            if more == b"-":
                self._code = code
                if len(self._lines) >= MAX_ANSWER_LINES:
                    raise BadAnswer("a reply of too many lines")
                continue
            lines, self._lines, self._code = self._lines, [], b""
            return _reply(int(code), lines)

    def rest(self) -> bytes:
        """All that has not been taken; it stays."""
        return self._buffer.rest()

    def clear(self) -> None:
        """Forget what waits, and a reply that has begun."""
        self._buffer.clear()
        self._lines, self._code = [], b""


def offers(reply: Reply) -> dict[str, tuple[str, ...]]:
    """What an answer to EHLO offers: keywords in upper case, each with its parameters (RFC 5321 section 4.1.1.1).

    The old spelling `AUTH=PLAIN` counts as `AUTH PLAIN`.
    """
    found: dict[str, tuple[str, ...]] = {}
    for line in reply.text.split("\n")[1:]:
        words = line.upper().replace("AUTH=", "AUTH ", 1).split()
        if words:
            found[words[0]] = found.get(words[0], ()) + tuple(words[1:])
    return found


def _reply(code: int, lines: list[str]) -> Reply:
    match = _ENHANCED.match(lines[-1])
    if match is None:
        return Reply(code, "\n".join(lines))
    enhanced = match[1]
    return Reply(code, "\n".join(line.removeprefix(enhanced).lstrip(" ") for line in lines), enhanced)
