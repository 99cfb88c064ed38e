"""Where a relayed SMTP session stands, read from the bytes of both sides as they pass.

    COMMAND ──DATA, 354──► DATA ──CR LF . CR LF──► COMMAND        between transactions: nothing since the last MAIL is
       └────BDAT n───────► CHUNK ──n octets──────► COMMAND        under way, every command has its reply
       └────STARTTLS, 220; AUTH, 334; something that does not fit──► LOST: nothing is known any more

A session is ended by us between two transactions, never within DATA or BDAT: a client that has sent a message and not
heard of it sends it again. Nothing is kept of what passes but a command's beginning and the end of a line.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto

from gatepost.wire.pop3_lines import clean
from gatepost.wire.smtp_reply import Reply

MAX_COMMAND = 4096
"""Octets of a line that is not yet complete; more is no command."""
MAX_PENDING = 1000
"""Commands without a reply yet: a pipelining client sends a few hundred recipients at once."""
_DOT = b"\r\n.\r\n"


class _Mode(Enum):
    COMMAND = auto()
    DATA = auto()
    CHUNK = auto()
    LOST = auto()


class SmtpTracker:
    """Looks at a relay (`relay.Watch`) from the hand-over on, when the server has said all that was due."""

    __slots__ = ("_chunk", "_data_end", "_line", "_mode", "_pending", "_reply", "in_transaction", "is_over")

    def __init__(self, *, greeting: bool = False) -> None:
        """`greeting`: the server has yet to end its greeting."""
        self._mode = _Mode.COMMAND
        self._pending: deque[bytes] = deque((b"greeting",) if greeting else ())
        self._line = b""
        """What the client has begun of a command line."""
        self._reply = b""
        """What the server has begun of a line."""
        self._data_end = b""
        """The last octets of a message under way."""
        self._chunk = 0
        self.in_transaction = False
        self.is_over = False
        """The server has said its goodbye, or the client has asked for it."""

    # --- what passes

    def client(self, data: bytes) -> None:
        """Bytes that the client sent."""
        while data and self._mode is not _Mode.LOST:
            if self._mode is _Mode.DATA:
                data = self._content(data)
            elif self._mode is _Mode.CHUNK:
                step = min(self._chunk, len(data))
                self._chunk -= step
                data = data[step:]
                if not self._chunk:
                    self._mode = _Mode.COMMAND
            else:
                data = self._commands(data)

    def server(self, data: bytes) -> None:
        """Bytes that the server sent."""
        if self.is_lost:
            return
        *lines, self._reply = (self._reply + data).split(b"\n")
        for line in lines:
            if line[3:4] != b"-" and not self.is_lost:
                self._replied(line)
        if len(self._reply) > MAX_COMMAND:
            self._lose()

    def _content(self, data: bytes) -> bytes:
        """Message bytes; answers what follows the message."""
        seen = self._data_end + data
        end = seen.find(_DOT)
        if end < 0:
            self._data_end = seen[-4:]
            return b""
        self._mode = _Mode.COMMAND
        self._expect(b".")
        return seen[end + len(_DOT) :]

    def _commands(self, data: bytes) -> bytes:
        """One command line, or its beginning; answers what follows it."""
        end = data.find(b"\n")
        if end < 0:
            self._line += data
            if len(self._line) > MAX_COMMAND:
                self._lose()
            return b""
        line, self._line = self._line + data[:end], b""
        if self._pending and self._pending[-1] == b"DATA":
            # Said before the reply to DATA: as content or as a command, whatever the reply will be.
            self._lose()
            return b""
        words = line.upper().split()
        verb = words[0][:16] if words else b""
        if verb == b"BDAT" and len(words) > 1:
            if not words[1].isdigit() or len(words[1]) > 18:
                self._lose()
                return b""
            self._chunk = int(words[1])
            self._mode = _Mode.CHUNK if self._chunk else _Mode.COMMAND
            verb = b"." if words[-1] == b"LAST" else verb
        elif verb == b"BURL" and words[-1] == b"LAST":
            verb = b"."
        elif verb == b"QUIT":
            self.is_over = True
        self._expect(verb)
        return data[end + 1 :]

    def _expect(self, verb: bytes) -> None:
        self._pending.append(verb)
        if verb == b"MAIL" or verb == b".":
            self.in_transaction = True
        if len(self._pending) > MAX_PENDING:
            self._lose()

    def _replied(self, line: bytes) -> None:
        """The last line of a reply."""
        if line[:3] == b"421":
            self.is_over = True
        if not self._pending:
            if not self.is_over:
                self._lose()  # a reply to nothing
            return
        verb, kind = self._pending.popleft(), line[:1]
        if kind == b"3":
            if verb != b"DATA":
                self._lose()  # a challenge: what comes is no command
                return
            self._mode = _Mode.DATA
            self._data_end = b"\r\n"
        elif verb in {b".", b"RSET", b"EHLO", b"HELO"} or (verb == b"MAIL" and kind != b"2"):
            if verb == b"." or kind == b"2" or verb == b"MAIL":
                self.in_transaction = b"MAIL" in self._pending or b"." in self._pending
        elif verb == b"STARTTLS" and kind == b"2":
            self._lose()

    def _lose(self) -> None:
        self._mode = _Mode.LOST
        self._pending.clear()
        self._line = self._reply = self._data_end = b""

    # --- what it means

    @property
    def is_lost(self) -> bool:
        """Whether nothing is known of the session any more, as behind STARTTLS."""
        return self._mode is _Mode.LOST

    @property
    def command_is_whole(self) -> bool:
        """Whether no command or message of the client is half sent."""
        return self._mode is _Mode.COMMAND and not self._line

    def at_rest(self) -> bool:
        """Whether it is between two transactions, when nothing has passed for a moment."""
        return self.command_is_whole and not self._pending and not self._reply and not self.in_transaction

    def farewell(self, text: str) -> bytes:
        """`421 4.3.2`, which may be the answer to any command (RFC 5321 section 3.8); nothing where it would be no line
        of its own.

        Whoever is sending a message takes it for the answer to that, and sends it again.
        """
        if self._mode is _Mode.LOST or self._reply or self.is_over:
            return b""
        return Reply(421, clean(text), "4.3.2").encode()
