"""A second, slow reading of a relayed IMAP session: one byte at a time, whole lines, no short cuts."""

from __future__ import annotations

import re

from gatepost.wire.imap_session import FATAL, Command, ImapSession, SessionNotes, command
from gatepost.wire.imap_tracker import MAX_COMMAND, MAX_HEAD, MAX_OPEN, Boundary

LITERAL = re.compile(rb"(?:.*[ (~])\{([0-9]{1,19})(\+?)\}\r?\n\Z", re.DOTALL)
STRING = re.compile(rb'"(?:[^"\\\x00\r\n]|\\["\\])*"')
TEXT = re.compile(rb"\* (OK|NO|BAD|BYE|PREAUTH)([ \r\n]|\Z)", re.IGNORECASE)


class SlowTracker:
    """The same questions as `ImapTracker`, answered the long way."""

    def __init__(self) -> None:
        self.lost = False
        self.notes = SessionNotes()
        self.open: list[Command] = []
        self.client_line = self.server_line = b""
        self.client_skip = self.server_skip = 0
        self.promised: int | None = None
        self.unfinished: Command | None = None
        self.idling: Command | None = None
        self.server_first = b""
        self.server_parts = 0

    def answer(self) -> tuple[Boundary, str, ImapSession | None]:
        """Everything that may be asked of a tracker."""
        if self.lost:
            return Boundary.LOST, "lost", None
        notes = self.notes
        tag = self.idling.tag if self.idling else None
        session = ImapSession(notes.selected, notes.enabled, notes.condstore, tag)
        inside = self.client_line or self.client_skip or self.unfinished or self.promised is not None
        inside = inside or self.server_line or self.server_skip or self.server_parts
        if inside:
            return Boundary.BUSY, notes.obstacle, session
        if not self.open:
            return Boundary.BETWEEN, notes.obstacle, session
        if [self.idling] == self.open and not self.open[0].waits:
            return Boundary.IDLING, notes.obstacle, session
        return Boundary.BUSY, notes.obstacle, session

    def client(self, data: bytes) -> None:
        for value in data:
            if self.lost:
                return
            if self.client_skip:
                self.client_skip -= 1
                continue
            if self.promised is not None:
                self.lost = True
                return
            self.client_line += bytes([value])
            if len(self.client_line) > MAX_COMMAND:
                self.lost = True
            elif value == 10:
                line, self.client_line = self.client_line, b""
                self.said(line)

    def said(self, line: bytes) -> None:
        if self.idling:
            self.idling = None
            self.lost = line.strip().upper() != b"DONE"
            return
        begun, first = self.unfinished or command(line), self.unfinished is None
        self.unfinished = None
        if begun is None or (first and begun.tag in [c.tag for c in self.open]) or begun.word in FATAL:
            self.lost = True
            return
        if first:
            if len(self.open) >= MAX_OPEN:
                self.lost = True
                return
            if begun.attentive and not self.open:
                self.notes.fresh_start()
            self.open.append(begun)
        else:
            begun.mailbox = None
        self.notes.said(begun, line)
        literal = LITERAL.match(line)
        if literal:
            if len(literal[1]) > 10 or b'"' in STRING.sub(b"", line):
                self.lost = True
                return
            self.unfinished = begun
            if literal[2]:
                self.client_skip = int(literal[1])
            else:
                self.promised = int(literal[1])
        elif begun.word == b"IDLE":
            self.idling = begun

    def server(self, data: bytes) -> None:
        for value in data:
            if self.lost:
                return
            if self.server_skip:
                self.server_skip -= 1
                continue
            self.server_line += bytes([value])
            if value == 10:
                line, self.server_line = self.server_line, b""
                self.told(line)

    def told(self, line: bytes) -> None:
        if self.server_parts == 0:
            self.server_first = line
        literal = LITERAL.match(line)
        if literal and self.server_first.startswith(b"*") and not TEXT.match(self.server_first):
            self.lost = len(literal[1]) > 10
            self.server_skip = int(literal[1])
            self.server_parts += 1
            return
        first, parts = self.server_first, self.server_parts
        self.server_parts = 0
        if first.startswith(b"*"):
            if parts == 0 and any(c.attentive for c in self.open):
                self.notes.untagged(first[:MAX_HEAD])
        elif first.startswith(b"+"):
            idle = [c for c in self.open if c.waits]
            if idle:
                idle[0].waits = False
            elif self.promised is not None:
                self.client_skip, self.promised = self.promised, None
        else:
            self.ended(first[:MAX_HEAD])

    def ended(self, line: bytes) -> None:
        words = line.split(b" ")
        found = [c for c in self.open if c.tag == words[0] and len(words) > 1]
        if not found:
            return
        status = words[1].strip(b"\r\n").upper()
        # A carriage return in the middle of a word is no end of it for one reader and one for another: only the first
        # word up to it counts.
        status = re.split(rb"[\r\n]", words[1])[0].upper()
        if status not in (b"OK", b"NO", b"BAD"):
            self.lost = True
            return
        command_ = found[0]
        oldest = self.open[0] is command_
        self.open.remove(command_)
        if self.unfinished is command_:
            if self.promised is None:
                self.lost = True
                return
            self.unfinished = self.promised = None
        if self.idling is command_:
            self.idling = None
        elif command_.word == b"IDLE" and status != b"OK":
            self.lost = True
            return
        code = re.match(rb"[^ ]+ [^ ]+ \[([A-Za-z-]+)", line)
        self.notes.answered(command_, status, code[1].upper() if code else b"")
        if oldest and self.open and self.open[0].attentive:
            self.notes.fresh_start()
