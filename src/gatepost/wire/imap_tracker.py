"""Where a relayed IMAP session stands: a look at the bytes that pass, without holding them up.

    client ──► client(data) ─► commands, literals ─┐
                                                   ├─► boundary   between commands, idling, busy, lost
    server ──► server(data) ─► answers, literals  ─┘   session    what a new server must be told (`imap_session`)

It runs beside the relay of sessions that may be carried over to another server (SPEC B5), so it must cost next to
nothing: literals are skipped by their count, a server's lines are looked for only where a byte says that there may be
one (`}` for a literal, the tag for the end of the command), and the usual exchange, one line each way, takes no parser
at all. Every split of the bytes leads to the same state. Memory is bounded: a client's line that is not complete, the
head and the end of a server's; never a literal.

When it is not sure it is *lost*: then the session is not carried over, and nothing else happens.

No count of messages is kept: a server's lines are read only during SELECT and ENABLE, and the old server itself says
what the client has been told (`imap_carry`).
"""

from __future__ import annotations

import re
from enum import Enum

from gatepost.wire.boundaries import kept
from gatepost.wire.imap_glance import CLIENT_LITERAL, HOP, SERVER_LITERAL, STATUS, TAIL, is_answer, next_literal
from gatepost.wire.imap_session import (
    FATAL,
    Command,
    ImapSession,
    Selected,
    SessionNotes,
    command,
)
from gatepost.wire.imap_syntax import LITERAL_DIGITS, QUOTED

MAX_COMMAND = 65536
"""Bytes of one line of a client: Dovecot's own bound."""
MAX_HEAD = 4096
"""Bytes of a server's line that are read, for the flags of a mailbox; of the rest only the end is looked at."""
MAX_OPEN = 256
"""Commands under way at once; clients send a handful ahead."""
_QUOTED = re.compile(QUOTED)
_TAGGED = re.compile(rb"[^ \r\n*+]+ (OK|NO|BAD)(?![^ \r\n])(?: \[([A-Z-]+))?", re.IGNORECASE)


class Boundary(Enum):
    """Where a session is. The value is the word for people."""

    BETWEEN = "between commands"
    IDLING = "idling"
    BUSY = "busy"
    LOST = "lost"


class ImapTracker:
    """Feed it the bytes of both sides in the order in which they pass; ask it where the session is."""

    __slots__ = (
        "_after_literal", "_attention", "_calm", "_client_held", "_client_left", "_current", "_end", "_head", "_idle",
        "_line", "_lost", "_mid", "_notes", "_only", "_open", "_owed", "_server_left", "_tail",
    )  # fmt: skip

    def __init__(self) -> None:
        self._lost = ""
        """Why nothing is known any more."""
        self._notes = SessionNotes()
        self._calm = True
        """Between commands, with nothing half said by anybody: the next line may be taken as it is."""
        self._line: bytes | None = None
        """A command in one line that came in a calm, and that nobody has read yet."""
        self._open: dict[bytes, Command] = {}
        self._only = b""
        """Tag and space of the one command under way, where nothing else of the server matters than its end."""
        self._attention = 0
        """Commands under way whose untagged answers matter."""
        # The client's side.
        self._client_held = bytearray()
        self._client_left = 0
        self._owed: int | None = None
        """Bytes of a literal that the client sends when the server says `+`."""
        self._current: Command | None = None
        """A command that goes on behind a literal."""
        self._idle: Command | None = None
        """An IDLE to which the client has not said DONE."""
        # The server's side.
        self._server_left = 0
        self._mid = False
        """Within a line."""
        self._after_literal = False
        """Within a line, behind a literal of it."""
        self._head = self._tail = b""
        self._end = b""
        """The last that it said, but for usual answers."""

    # --- what is known

    @property
    def boundary(self) -> Boundary:
        """Where the session is at this moment."""
        self._catch_up()
        if self._lost:
            return Boundary.LOST
        if self._calm:
            return Boundary.BETWEEN
        half = self._owed is not None or self._current is not None or self._mid
        if half or self._client_held or self._client_left or self._server_left:
            return Boundary.BUSY
        if not self._open:
            return Boundary.BETWEEN
        if len(self._open) == 1 and self._idle is not None and not self._idle.waits:
            return Boundary.IDLING
        return Boundary.BUSY

    @property
    def obstacle(self) -> str:
        """Why the session cannot go on at another server, whatever its boundary; empty: it can."""
        self._catch_up()
        return self._lost or self._notes.obstacle

    @property
    def takes_last_words(self) -> bool:
        """Whether a line of ours would be read as one: the server is within none, and nobody has said goodbye yet."""
        self._catch_up()
        over = self._notes.is_leaving or b"* bye" in self._end.lower()
        return not (self._lost or self._mid or self._server_left or over)

    @property
    def session(self) -> ImapSession:
        """What another server must be told; good at a boundary, where there is no `obstacle`."""
        self._catch_up()
        notes = self._notes
        return ImapSession(notes.selected, notes.enabled, notes.condstore, self._idle.tag if self._idle else None)

    def carried(self, selected: Selected | None) -> None:
        """At this boundary another server has taken the session over; this is what it told of the mailbox."""
        self._notes.selected = selected

    # --- the client's bytes

    def client(self, data: bytes) -> None:
        """Bytes from the client, on their way to the server."""
        if self._calm and data.find(b"\n") == len(data) - 1 < MAX_COMMAND and data:
            self._calm = False
            self._line = data
        elif not self._lost:
            self._read_client(data)

    def _read_client(self, data: bytes) -> None:
        self._calm = False
        self._catch_up()
        at, size = 0, len(data)
        while at < size and not self._lost:
            if self._client_left:
                taken = min(self._client_left, size - at)
                self._client_left -= taken
                at += taken
            elif self._owed is not None:
                self._lose("the client did not wait for its turn")
            else:
                at = self._client_piece(data, at)
        self._settle()

    def _client_piece(self, data: bytes, at: int) -> int:
        """A line, or what is there of it; answers where to go on."""
        held = self._client_held
        end = data.find(b"\n", at) + 1 or len(data)
        if len(held) + end - at > MAX_COMMAND:
            self._lose("a line of the client is too long")
        else:
            held += data[at:end]
            if held.endswith(b"\n"):
                line = bytes(held)
                held.clear()
                self._client_line(line)
        return end

    def _catch_up(self) -> None:
        """Read the line that nobody has read yet."""
        line, self._line = self._line, None
        if line is not None:
            self._client_line(line)
            self._settle()

    def _client_line(self, line: bytes) -> None:
        if self._idle is not None:
            self._idle = None
            if line.strip().upper() != b"DONE":
                self._lose("something else than DONE ended IDLE")
            return
        begun, self._current = self._current, None
        if begun is not None:
            begun.mailbox = None  # a name in a literal is not kept
        elif (begun := self._begin(line)) is None:
            return
        self._notes.said(begun, line)
        literal = CLIENT_LITERAL.search(line, max(0, len(line) - TAIL))
        if literal is not None:
            self._client_literal(begun, line, literal)
        elif begun.word == b"IDLE":
            self._idle = begun

    def _begin(self, line: bytes) -> Command | None:
        begun = command(line)
        if begun is None or begun.tag in self._open or len(self._open) >= MAX_OPEN:
            self._lose("a command that cannot be followed")
            return None
        if begun.word in FATAL:
            self._lose(f"the client said {begun.word.decode()}")
            return None
        if begun.attentive:
            self._attention += 1
            if not self._open:
                self._notes.fresh_start()
        self._open[begun.tag] = begun
        return begun

    def _client_literal(self, begun: Command, line: bytes, literal: re.Match[bytes]) -> None:
        if len(literal[1]) > LITERAL_DIGITS or (b'"' in line and b'"' in _QUOTED.sub(b"", line)):
            self._lose("a literal of the client that cannot be trusted")
            return
        self._current = begun
        if literal[2]:
            self._client_left = int(literal[1])
        else:
            self._owed = int(literal[1])

    # --- the server's bytes

    def server(self, data: bytes) -> None:
        """Bytes from the server, on their way to the client."""
        line = self._line
        if line is not None:
            at = line.find(b" ") + 1
            if is_answer(data, line[:at], line[at:]):
                self._line = None
                self._calm = True
                return
            self._catch_up()
        left = self._server_left
        if left >= len(data):
            self._server_left = left - len(data)
        elif not self._lost:
            self._read_server(data)

    def _read_server(self, data: bytes) -> None:
        self._calm = False
        self._end = kept(self._end, data)
        at, size = self._server_left, len(data)
        self._server_left = 0
        while at < size and not self._lost:
            if self._only:
                if self._after_literal and not self._tail:
                    found = HOP(data, at)
                    if found is not None:
                        at = found.end() + int(found[1])
                        if at > size:
                            self._server_left = at - size
                        continue
                elif not self._mid:
                    ahead = self._ahead(data, at)
                    if ahead > at:
                        at = ahead
                        continue
            at = self._segment(data, at)
        self._settle()

    def _ahead(self, data: bytes, at: int) -> int:
        """From a line's begin over lines that say nothing to us, and over a literal if there is one.

        Answers where to go on; `at` itself when the next line must be read.
        """
        only = self._only
        if data.startswith(only, at):
            return at
        begin, literal = next_literal(data, at)
        # A search for one byte is a hundred times faster than one for a few, and most tags' first byte is not there.
        if data.find(only[:1], at, begin) >= 0 and data.rfind(b"\n" + only, at, begin) >= 0:
            return data.find(b"\n" + only, at, begin) + 1
        if literal is None:
            return begin
        self._mid = self._after_literal = True
        self._head = b"*"
        return self._skip(literal.end(), int(literal[1]), len(data))

    def _skip(self, at: int, count: int, size: int) -> int:
        """Over a literal's bytes, as far as they are there; answers where to go on."""
        self._tail = b""
        if at + count > size:
            self._server_left = at + count - size
            return size
        return at + count

    def _segment(self, data: bytes, at: int) -> int:
        """One line, or what is there of it, or its rest behind a literal; answers where to go on."""
        end = data.find(b"\n", at) + 1
        segment = data[at : end or None]
        if not self._after_literal and len(self._head) < MAX_HEAD:
            self._head = (self._head + segment[:MAX_HEAD])[:MAX_HEAD]
        self._tail = (self._tail + segment[-TAIL:])[-TAIL:]
        if not end:
            self._mid = True
            return len(data)
        literal = SERVER_LITERAL.search(self._tail)
        if literal is not None and not STATUS.match(self._head):
            if len(literal[1]) > LITERAL_DIGITS:
                self._lose("a literal of the server that cannot be trusted")
                return end
            self._mid = self._after_literal = True
            return self._skip(end, int(literal[1]), len(data))
        head, whole = self._head, not self._after_literal
        self._mid = self._after_literal = False
        self._head = self._tail = b""
        if head.startswith(b"*"):
            if whole and self._attention:
                self._notes.untagged(head)
        elif head.startswith(b"+"):
            self._continued()
        else:
            self._tagged(head)
        return end

    def _continued(self) -> None:
        """The server waits for the client: for the end of an IDLE, or for a literal."""
        waiting = next((begun for begun in self._open.values() if begun.waits), None)
        if waiting is not None:
            waiting.waits = False
        elif self._owed is not None:
            self._client_left, self._owed = self._owed, None

    def _tagged(self, line: bytes) -> None:
        tag = line.partition(b" ")[0]
        ended = self._open.get(tag)
        if ended is None:
            return
        found = _TAGGED.match(line)
        if found is None:
            self._lose("an answer that cannot be read")
            return
        was_oldest = next(iter(self._open)) == tag
        del self._open[tag]
        self._attention -= ended.attentive
        status = found[1].upper()
        if self._current is ended:
            # A literal that was refused is not sent; any other is on its way, and its reader has gone.
            if self._owed is None:
                self._lose("a command was answered before its end")
                return
            self._current = self._owed = None
        if self._idle is ended:
            self._idle = None
        elif ended.word == b"IDLE" and status != b"OK":
            self._lose("IDLE was refused after its DONE")
            return
        self._notes.answered(ended, status, (found[2] or b"").upper())
        if was_oldest and self._open and next(iter(self._open.values())).attentive:
            self._notes.fresh_start()

    # --- after each piece

    def _settle(self) -> None:
        """What the next piece may be taken for."""
        if self._lost:
            return
        half = self._client_held or self._client_left or self._current or self._mid or self._server_left
        self._calm = not half and not self._open
        self._only = b""
        if len(self._open) == 1 and not self._attention and self._owed is None:
            tag, begun = next(iter(self._open.items()))
            if not begun.waits:
                self._only = tag + b" "

    def _lose(self, reason: str) -> None:
        """Nothing is known from here on, and nothing is kept either."""
        self._lost = reason
        self._calm = False
        self._line = self._current = self._idle = self._owed = None
        self._open.clear()
        self._client_held.clear()
        self._notes = SessionNotes()
        self._only = self._head = self._tail = self._end = b""
        self._server_left = self._client_left = self._attention = 0
