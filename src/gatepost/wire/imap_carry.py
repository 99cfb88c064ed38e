"""An IMAP session at a boundary, carried from one server to another, such that its client notices nothing.

    old ── [DONE], NOOP, UID FETCH 1:* ──► what the client has been told ─┐
    new ── ENABLE, SELECT, UID FETCH 1:* ──► what is there now ──────────┴─► the difference, told to the client
    new ── IDLE with the client's own tag ──► its DONE gets the right answer

Both servers are signed in to. The client's bytes are kept back meanwhile by whoever drives this, and go to the new
server afterwards, so no command is lost or run twice. Whatever does not fit ends in `GaveUp`: then the client is sent
away with BYE, which is what every session got before this existed.

What the old server says that is not an answer to us is passed on: it is the client's. That is always legal for a client
that is idling; between commands everything but EXPUNGE is (RFC 9051 sections 5.3 and 7.5.1). NOOP before FETCH has the
server say all that it has to, so that the answer to FETCH is what the client knows. Each command waits for the answer
to the one before it: Dovecot keeps a NOOP's answer back when another command follows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto

from gatepost.wire.imap_session import Command, ImapSession, Selected, SessionNotes
from gatepost.wire.imap_syntax import LineBuffer, LineTooLong, announced, visible
from gatepost.wire.imap_view import MAX_MESSAGES, View, ViewsDiffer, announcements

MAX_LINE = 8192
"""One line of a server; those that are asked for here are a few dozen bytes, lists of flags a few hundred."""
MAX_BYTES = 8 * 1024 * 1024
"""From each server: the most messages with more flags than anybody gives them."""
FETCHES = 3
"""A view that moves while it is fetched is fetched again, so many times in all."""

_FETCH = re.compile(rb"\* ([1-9][0-9]{0,9}) FETCH \((.*)\)\Z", re.IGNORECASE)
_NUMBER = re.compile(rb"\* ([0-9]{1,10}) (EXISTS|EXPUNGE|RECENT)\Z", re.IGNORECASE)
_VANISHED = re.compile(rb"\* VANISHED ", re.IGNORECASE)
_BYE = re.compile(rb"\* BYE(?: |\Z)", re.IGNORECASE)
_ENABLED = re.compile(rb"\* ENABLED((?: [^ ]+)*) *\Z", re.IGNORECASE)
_BEFORE_SIGN_IN = re.compile(rb"AUTH=|COMPRESS=|(?:STARTTLS|LOGINDISABLED|SASL-IR|LOGIN-REFERRALS)\Z")
"""Capabilities that mean nothing to a client that is signed in, or that it was not shown."""


@dataclass(frozen=True, slots=True)
class ToOld:
    """Send this to the old server."""

    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToNew:
    """Send this to the new server."""

    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToClient:
    """Whole lines for the client. Those of the old server come at once, the rest when nothing can go wrong any more."""

    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Carried:
    """The session is at the new server. `rest` came from it behind the last answer to us and is the client's."""

    selected: Selected | None
    rest: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class GaveUp:
    """It cannot be carried; `reason` is for the log."""

    reason: str


CarryEvent = ToOld | ToNew | ToClient | Carried | GaveUp


class _Stage(Enum):
    OLD = auto()
    ENABLE = auto()
    SELECT = auto()
    FETCH = auto()
    IDLE = auto()
    OVER = auto()


class _Over(Exception):
    """It cannot be carried."""


def missing_capabilities(old: frozenset[bytes], new: frozenset[bytes]) -> list[bytes]:
    """What a client was promised by the old server (names in upper case) and the new one does not have."""
    return sorted(name for name in old - new if not _BEFORE_SIGN_IN.match(name))


class ImapCarry:
    """One attempt. `tag` begins our tags; it must not be guessed by whoever writes mail, and is not the client's."""

    def __init__(self, session: ImapSession, tag: bytes) -> None:
        self._session = session
        self._tag = tag + b"x" if session.idle_tag is not None and session.idle_tag.startswith(tag) else tag
        self._sent = 0
        self._stage = _Stage.OLD
        self._expected = b""
        """The tag of the open command."""
        self._last_of_old = False
        """What the old server says now answers the FETCH, if there is one."""
        self._lines = {True: LineBuffer(), False: LineBuffer()}
        """What the old (True) and the new server said that is not a whole line yet."""
        self._bytes = {True: 0, False: 0}
        self._fetches = 1
        self._before, self._after = View(), View()
        self._notes = SessionNotes()
        """What the new server tells of the mailbox."""
        self._selecting = Command(b"", b"SELECT")
        self._selected: Selected | None = None
        self._told = b""
        """What the client is told once nothing can go wrong any more."""
        self._events: list[CarryEvent] = []

    @property
    def old_is_needed(self) -> bool:
        """Whether the old server still has something to say."""
        return self._stage is _Stage.OLD

    # --- driven by

    def begin(self) -> list[CarryEvent]:
        """Leave IDLE, and ask the old server what the client knows."""
        session = self._session
        selected = session.selected
        if selected is not None and (selected.exists or 0) > MAX_MESSAGES:
            self._give_up("the mailbox has too many messages")
            return self._take()
        if session.idle_tag is not None:
            self._expected = session.idle_tag
            self._events.append(ToOld(b"DONE\r\n"))
        else:
            self._events.append(ToOld(self._command(b"NOOP")))
        return self._take()

    def old(self, data: bytes) -> list[CarryEvent]:
        """Bytes from the old server."""
        return self._receive(data, old=True)

    def new(self, data: bytes) -> list[CarryEvent]:
        """Bytes from the new server; also what it said behind its answer to the sign-in."""
        return self._receive(data, old=False)

    def _receive(self, data: bytes, *, old: bool) -> list[CarryEvent]:
        lines = self._lines[old]
        self._bytes[old] += len(data)
        lines.add(data)
        try:
            self._read(lines, old=old)
        except LineTooLong:
            self._give_up("a line of a server is too long")
        except (_Over, ViewsDiffer) as over:
            self._give_up(str(over))
        return self._take()

    def _read(self, lines: LineBuffer, *, old: bool) -> None:
        if self._bytes[old] > MAX_BYTES and self._stage is not _Stage.OVER:
            raise _Over("a server said too much")
        passed = b""
        try:
            # What the new server says before it is its turn waits for it; what the old one says afterwards is nobody's.
            while self._stage is not _Stage.OVER and old is (self._stage is _Stage.OLD):
                line = lines.line(MAX_LINE)
                if line is None:
                    break
                if b"\r" in line or b"\0" in line or (line.startswith(b"* ") and _has_literal(line)):
                    raise _Over(f"unexpected line: {_shown(line)}")
                if _BYE.match(line):
                    raise _Over(f"a server said {_shown(line)}")
                if (self._old_line if old else self._new_line)(line):
                    passed += line + b"\r\n"
        finally:
            if passed:
                # Before everything that came of later lines in this piece.
                self._events.insert(0, ToClient(passed))
        if old and self._stage is not _Stage.OLD and self._stage is not _Stage.OVER:
            self._read(self._lines[False], old=False)

    # --- the old server

    def _old_line(self, line: bytes) -> bool:
        """One line of the old server; whether it is the client's."""
        if not line.startswith(b"* "):
            self._old_tagged(line)
            return False
        fetching = self._last_of_old
        if (found := _FETCH.match(line)) is not None:
            return not (fetching and self._before.fetched(int(found[1]), found[2]))
        number = _NUMBER.match(line)
        kind = number[2].upper() if number is not None else b""
        if kind == b"EXPUNGE" or _VANISHED.match(line):
            if self._session.idle_tag is None:
                raise _Over("messages went, which cannot be said between commands")
            self._before.disturbed = self._before.disturbed or fetching
            self._before.exists = None
        elif number is not None and kind == b"EXISTS":
            self._before.exists = int(number[1])
        return True

    def _old_tagged(self, line: bytes) -> None:
        was_idle = self._expected == self._session.idle_tag
        self._answered(line)
        if was_idle:
            self._events.append(ToOld(self._command(b"NOOP")))
        elif self._session.selected is None:
            self._enable()
        elif not self._last_of_old:
            self._last_of_old = True
            self._events.append(ToOld(self._fetch()))
        elif not self._before.complete:
            self._events.append(ToOld(self._fetch_again(self._before)))
        else:
            self._enable()

    # --- the new server

    def _enable(self) -> None:
        self._stage = _Stage.ENABLE
        if self._session.enabled:
            self._events.append(ToNew(self._command(b"ENABLE " + b" ".join(self._session.enabled))))
        else:
            self._select()

    def _select(self) -> None:
        if set(self._session.enabled) - set(self._notes.enabled):
            raise _Over("the new server does not enable what the old one did")
        selected = self._session.selected
        if selected is None:
            self._idle()
            return
        self._stage = _Stage.SELECT
        self._fetches = 1
        word = b"EXAMINE" if selected.examine else b"SELECT"
        self._selecting = Command(b"", word)
        self._selecting.mailbox = selected.name
        self._notes.fresh_start()
        how = b" (CONDSTORE)" if self._session.condstore else b""
        self._events.append(ToNew(self._command(b"%s %s%s" % (word, selected.name, how))))

    def _new_line(self, line: bytes) -> bool:
        """One line of the new server; whether it is the client's."""
        if self._stage is _Stage.IDLE:
            return self._idle_line(line)
        if not line.startswith(b"* "):
            status, code = self._answered(line)
            self._new_answered(status, code)
        elif self._stage is _Stage.ENABLE:
            if _ENABLED.match(line):
                self._notes.untagged(line + b"\r\n")
        else:
            self._new_untagged(line)
        return False

    def _new_untagged(self, line: bytes) -> None:
        if self._stage is _Stage.SELECT:
            self._notes.untagged(line + b"\r\n")
        if (found := _FETCH.match(line)) is not None:
            if self._stage is _Stage.FETCH:
                self._after.fetched(int(found[1]), found[2])
        elif (number := _NUMBER.match(line)) is not None:
            kind, count = number[2].upper(), int(number[1])
            if kind == b"EXISTS":
                self._after.exists = count
            elif kind == b"RECENT":
                self._after.recent = count
            elif self._stage is _Stage.FETCH:
                self._gone_at_new()
        elif _VANISHED.match(line) and self._stage is _Stage.FETCH:
            self._gone_at_new()

    def _gone_at_new(self) -> None:
        self._after.disturbed = True
        self._after.exists = None

    def _new_answered(self, status: bytes, code: bytes) -> None:
        if self._stage is _Stage.ENABLE:
            self._select()
        elif self._stage is _Stage.SELECT:
            self._notes.answered(self._selecting, status, code)
            self._stage = _Stage.FETCH
            self._events.append(ToNew(self._fetch()))
        elif not self._after.complete:
            self._events.append(ToNew(self._fetch_again(self._after)))
        else:
            self._compare()

    def _compare(self) -> None:
        now = self._notes.selected
        assert now is not None
        lines = list(announcements(self._session, self._before, self._after, now))
        self._selected = now
        self._told = b"".join(line + b"\r\n" for line in lines)
        self._idle()

    def _idle(self) -> None:
        """Nothing of the client's is left to compare: have the new server idle, if the old one did."""
        tag = self._session.idle_tag
        if tag is None:
            self._carried()
            return
        self._stage = _Stage.IDLE
        self._events.append(ToNew(tag + b" IDLE\r\n"))

    def _idle_line(self, line: bytes) -> bool:
        if line.startswith(b"* "):
            self._told += line + b"\r\n"
        elif line.startswith(b"+"):
            self._carried()
        else:
            raise _Over(f"the new server does not idle: {_shown(line)}")
        return False

    def _carried(self) -> None:
        self._stage = _Stage.OVER
        if self._told:
            self._events.append(ToClient(self._told))
        lines = self._lines[False]
        rest = lines.everything()
        lines.clear()
        self._events.append(Carried(self._selected, rest))

    # --- commands of ours

    def _command(self, text: bytes) -> bytes:
        self._sent += 1
        tag = b"%s%d" % (self._tag, self._sent)
        self._expected = tag
        return b"%s %s\r\n" % (tag, text)

    def _fetch(self) -> bytes:
        return self._command(b"UID FETCH 1:* (UID FLAGS%s)" % (b" MODSEQ" if self._session.condstore else b""))

    def _fetch_again(self, view: View) -> bytes:
        self._fetches += 1
        if self._fetches > FETCHES:
            raise _Over("the mailbox does not keep still")
        view.again()
        return self._fetch()

    def _answered(self, line: bytes) -> tuple[bytes, bytes]:
        """The tagged OK to the oldest open command: its status and code. Anything else is a surprise."""
        tag, _, text = line.partition(b" ")
        status, _, text = text.partition(b" ")
        if tag != self._expected or status.upper() != b"OK":
            raise _Over(f"unexpected line: {_shown(line)}")
        code = text[1:].partition(b"]")[0].partition(b" ")[0] if text.startswith(b"[") else b""
        return b"OK", code.upper()

    def _give_up(self, reason: str) -> None:
        self._stage = _Stage.OVER
        self._events = [event for event in self._events if isinstance(event, ToClient)]
        self._events.append(GaveUp(reason))

    def _take(self) -> list[CarryEvent]:
        events, self._events = self._events, []
        return events


def _has_literal(line: bytes) -> bool:
    return line.endswith(b"}") and not line.upper().startswith((b"* OK", b"* NO", b"* BAD")) and bool(announced(line))


def _shown(line: bytes) -> str:
    return visible(line, 120).decode()
