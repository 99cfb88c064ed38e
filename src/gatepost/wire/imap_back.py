"""IMAP with a mailbox server until the hand-over: greeting, STARTTLS, ID, sign-in, capabilities.

    greeting ─► [STARTTLS ─► TLS] ─► [ID] ─► LOGIN | AUTHENTICATE ─► [CAPABILITY] ─► [the client's ID] ─► SignedIn

In lock-step every command waits for the answer before it; `pipelined` sends all that can be known in one piece. Our
tags end with the hand-over: when `SignedIn` is said none of our commands is open, so no answer to one can reach the
client (field case 40). The server is as untrusted as a client: lines, their number, literals and bytes are bounded
(field case 59).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import ClassVar

from gatepost.wire import sasl
from gatepost.wire.events import (
    BackEvent,
    BackSignIn,
    BadChallenge,
    Failed,
    FailureKind,
    Send,
    SignedIn,
    StartTls,
)
from gatepost.wire.fencing import NOT_MINE, REFERRAL
from gatepost.wire.imap_id import client_id_command, origin_id_command, ttl_id_command
from gatepost.wire.imap_sign_in import CannotSignIn, SignInCommand, secrets, sign_in_command
from gatepost.wire.imap_syntax import (
    LineBuffer,
    LineTooLong,
    Response,
    announced,
    capability_list,
    has_capability,
    human,
    response,
    visible,
)

MAX_LINE = 8192
"""One line of a server. The longest in practice, capability lists, stay under 2 kB."""
MAX_LITERAL = 4096
"""A literal in a server's line; only ID values come so, at most 1024 bytes each (RFC 2971)."""
MAX_LINES = 200
"""Lines before the hand-over; a chatty server says ten."""
MAX_BYTES = 131072
"""Bytes before the hand-over, literals included."""
MAX_ALERTS = 4
MAX_ALERT = 400
"""Alerts handed to the client, and the bytes of each."""
MAX_TEXT = 200
"""Bytes of a server's text in our log."""

_CONTINUATION = re.compile(rb"\+(?: .*)?\Z", re.DOTALL)
_FAILURES = {b"UNAVAILABLE": FailureKind.UNAVAILABLE, b"INUSE": FailureKind.IN_USE, b"LIMIT": FailureKind.LIMIT}
_NOT_MINE = (NOT_MINE, REFERRAL)


class _Step(Enum):
    """What an open command is for; the value names it in logs."""

    STARTTLS = "starttls"
    ORIGIN = "id"
    SIGN_IN = "sign-in"
    CAPABILITY = "capability"
    CLIENT_ID = "client id"


_SIGNING_IN = (_Step.SIGN_IN, _Step.CAPABILITY, _Step.CLIENT_ID)
_NEEDED = (_Step.STARTTLS, _Step.SIGN_IN)
"""Steps that must succeed; after the others the sign-in goes on."""


class _Over(Exception):
    """The sign-in failed; carries the `Failed`."""

    def __init__(self, kind: FailureKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class ImapBack:
    """The dialogue with one mailbox server, which ends with `SignedIn` or `Failed`; afterwards bytes are ignored."""

    def __init__(self, sign_in: BackSignIn) -> None:
        self._sign_in = sign_in
        self._lines = LineBuffer()
        self._literal: int | None = None
        self._skipping = False
        """The line being read goes on behind a literal; what it says is of no use to us."""
        self._seen_lines = self._seen_bytes = 0
        self._open: dict[bytes, _Step] = {}
        """Commands without their answer yet, in the order they were sent."""
        self._sent = 0
        self._greeted = False
        self._waits_for_tls = False
        self._ended = False
        self._before: bytes | None = None
        self._after: bytes | None = None
        """The server's capability lists before and after the sign-in, as far as it said them."""
        self._asked = False
        self._command: SignInCommand | None = None
        self._owed: list[bytes] = []
        """Lines for the continuations that the sign-in command may bring."""
        self._client_id = client_id_command(sign_in.client_id)
        """The client's own ID, until it has been sent."""
        self.notes: list[str] = []
        """For the log: what the server did not take although that was no reason to fail."""
        self._text = b""
        self._alerts: list[bytes] = []
        self._events: list[BackEvent] = []

    @property
    def state_name(self) -> str:
        """What is being waited for: `greeting`, `starttls`, `id`, `sign-in`, `capability` or `client id`."""
        if self._open:
            return next(iter(self._open.values())).value
        return "starttls" if self._waits_for_tls else "greeting"

    def connected(self) -> list[BackEvent]:
        """The connection is there. The server speaks first."""
        return []

    def receive(self, data: bytes) -> list[BackEvent]:
        """Take bytes from the server."""
        if self._ended or not data:
            return []
        if self._waits_for_tls:
            self._fail(_Over(FailureKind.PROTOCOL, "bytes in clear before the TLS handshake"))
            return self._take_events()
        try:
            if not self._lines and self._literal is None and data.find(b"\n") == len(data) - 1 <= MAX_LINE:
                # One whole line, as most packets are: no need to put it into the buffer and take it out again.
                self._line(data[:-2] if data.endswith(b"\r\n") else data[:-1])
                return self._take_events()
            self._lines.add(data)
            while not self._ended and not self._waits_for_tls and self._read():
                pass
        except LineTooLong:
            self._fail(_Over(FailureKind.PROTOCOL, "line too long"))
        except _Over as over:
            self._fail(over)
        return self._take_events()

    def tls_started(self) -> list[BackEvent]:
        """The handshake is done. What was learnt in clear is forgotten (field case 80)."""
        if self._waits_for_tls:
            self._waits_for_tls = False
            self._lines.clear()
            self._before = None
            self._alerts.clear()
            try:
                self._begin()
            except _Over as over:
                self._fail(over)
        return self._take_events()

    # Reading

    def _read(self) -> bool:
        if self._literal is not None:
            if self._lines.octets(self._literal) is None:
                return False
            self._count(self._literal)
            self._literal = None
        line = self._lines.line(MAX_LINE)
        if line is None:
            return False
        self._line(line)
        return True

    def _line(self, line: bytes) -> None:
        self._count(len(line) + 2)
        self._seen_lines += 1
        if self._seen_lines > MAX_LINES:
            raise _Over(FailureKind.PROTOCOL, "too many lines")
        if b"\0" in line or b"\r" in line:
            raise _Over(FailureKind.PROTOCOL, "invalid character in a line")
        if self._skipping:
            self._skipping = self._note_literal(line)
        elif not self._greeted:
            self._greeting(line)
        elif line.startswith(b"* "):
            self._untagged(line[2:])
        elif _CONTINUATION.match(line):
            self._continuation(line[1:])
        else:
            self._tagged(line)

    def _count(self, size: int) -> None:
        self._seen_bytes += size
        if self._seen_bytes > MAX_BYTES:
            raise _Over(FailureKind.PROTOCOL, "too many bytes")

    def _note_literal(self, line: bytes) -> bool:
        literal = announced(line)
        if literal is None:
            return False
        if literal.count is None or literal.count > MAX_LITERAL:
            raise _Over(FailureKind.PROTOCOL, "literal too large")
        self._literal = literal.count
        return True

    def _greeting(self, line: bytes) -> None:
        said = response(line[2:]) if line.startswith(b"* ") else None
        if said is None or said.status not in (b"OK", b"BYE"):
            raise _Over(FailureKind.PROTOCOL, f"unexpected greeting: {self._shown(line)}")
        if said.status == b"BYE":
            raise self._bye(said)
        self._greeted = True
        self._note_status(said)
        if not self._sign_in.starttls:
            self._begin()
        elif self._before is not None and not has_capability(self._before, b"STARTTLS"):
            raise _Over(FailureKind.PROTOCOL, "TLS is required but not offered")
        else:
            self._send(_Step.STARTTLS, b"STARTTLS")

    def _bye(self, said: Response) -> _Over:
        code = said.code + b" " if said.code_name in _NOT_MINE else b""
        return _Over(_not_mine(said) or FailureKind.UNAVAILABLE, f"BYE: {self._shown(code + said.text)}")

    def _untagged(self, line: bytes) -> None:
        said = response(line)
        if said is not None:
            if said.status == b"BYE":
                raise self._bye(said)
            self._note_status(said)
        elif line[:11].upper() == b"CAPABILITY ":
            self._note_capabilities(capability_list(line[11:]))
        else:
            self._skipping = self._note_literal(line)

    def _note_status(self, said: Response) -> None:
        if said.capabilities is not None:
            self._note_capabilities(said.capabilities)
        elif said.code_name == b"ALERT" and len(self._alerts) < MAX_ALERTS:
            self._alerts.append(b"* OK [ALERT] %s\r\n" % human(said.text, MAX_ALERT, b"Alert"))

    def _note_capabilities(self, capabilities: bytes) -> None:
        """Whether a list is the one before or after the sign-in shows by the oldest open command."""
        if next(iter(self._open.values()), None) in _SIGNING_IN:
            self._after = capabilities
        else:
            self._before = capabilities

    def _continuation(self, challenge: bytes) -> None:
        if _Step.SIGN_IN not in self._open.values() or not self._owed:
            raise _Over(FailureKind.PROTOCOL, "unexpected continuation")
        dialogue = self._sign_in.dialogue
        if dialogue is None:
            self._put(self._owed.pop(0))
            return
        try:
            self._put(sasl.answer(dialogue, challenge))
        except BadChallenge as bad:
            raise _Over(FailureKind.PROTOCOL, str(bad)) from bad

    def _tagged(self, line: bytes) -> None:
        tag, _, text = line.partition(b" ")
        step = self._open.pop(tag, None)
        said = response(text)
        if step is None or said is None or said.status not in (b"OK", b"NO", b"BAD"):
            raise _Over(FailureKind.PROTOCOL, f"unexpected line: {self._shown(line)}")
        if said.status == b"BAD" and step in _NEEDED:
            raise _Over(FailureKind.PROTOCOL, f"BAD to {step.value}: {self._shown(said.text)}")
        self._ANSWERED[step](self, said)

    # Steps, in their order

    def _begin(self) -> None:
        if self._sign_in.client is not None:
            self._send(_Step.ORIGIN, origin_id_command(self._sign_in.client))
        elif self._sign_in.ttl is not None:
            self._send(_Step.ORIGIN, ttl_id_command(self._sign_in.ttl))
        if self._sign_in.pipelined or not self._open:
            self._send_sign_in()

    def _starttls_answered(self, said: Response) -> None:
        if said.status == b"NO":
            raise _Over(_kind(said, FailureKind.PROTOCOL), f"NO to STARTTLS: {self._shown(said.text)}")
        if self._lines:
            raise _Over(FailureKind.PROTOCOL, "bytes in clear behind the answer to STARTTLS")
        self._waits_for_tls = True
        self._events.append(StartTls())

    def _origin_answered(self, said: Response) -> None:
        """Whatever the answer, the sign-in goes on: the address is a courtesy (field case 41). The epoch is none."""
        if said.status == b"NO" and said.code_name in _NOT_MINE:
            raise _Over(FailureKind.NOT_MINE, f"NO to ID: {self._shown(said.code + b' ' + said.text)}")
        if said.status != b"OK":
            self.notes.append("the client's address was refused by ID")
        if self._command is None:
            self._send_sign_in()

    def _send_sign_in(self) -> None:
        try:
            self._command = sign_in_command(self._sign_in, self._before)
        except CannotSignIn as error:
            raise _Over(FailureKind.PROTOCOL, str(error)) from error
        self._owed = [line for line in (self._command.response, self._command.dismissal) if line is not None]
        self._send(_Step.SIGN_IN, self._command.command)
        if self._sign_in.pipelined and self._command.is_one_line and has_capability(self._before, b"ID"):
            self._send_client_id()

    def _sign_in_answered(self, said: Response) -> None:
        if said.status == b"NO":
            raise _Over(_kind(said, FailureKind.REFUSED), f"NO: {self._shown(said.code + b' ' + said.text)}")
        if self._sign_in.dialogue is not None and not self._sign_in.dialogue.complete:
            raise _Over(FailureKind.PROTOCOL, "OK before the server has proved who it is")
        if said.capabilities is not None:
            self._after = said.capabilities
        else:
            self._note_status(said)
        self._text = human(said.text, MAX_ALERT, b"Signed in")
        self._go_on()

    def _capability_answered(self, said: Response) -> None:
        if said.status == b"OK" and said.capabilities is not None:
            self._after = said.capabilities
        self._go_on()

    def _client_id_answered(self, _: Response) -> None:
        self._go_on()

    def _send_client_id(self) -> None:
        command, self._client_id = self._client_id, None
        if command is not None:
            self._send(_Step.CLIENT_ID, command)

    def _go_on(self) -> None:
        """Ask for what is still missing after the sign-in; with nothing open and missing, hand over."""
        if self._after is None and not self._asked:
            self._asked = True
            self._send(_Step.CAPABILITY, b"CAPABILITY")
        if not self._open and has_capability(self._after, b"ID"):
            self._send_client_id()
        if not self._open:
            self._ended = True
            rest = self._lines.everything()
            self._lines.clear()
            self._events.append(SignedIn(self._text, self._after, rest, b"".join(self._alerts)))

    # Output

    def _send(self, step: _Step, command: bytes) -> None:
        self._sent += 1
        tag = b"gate%d" % self._sent
        self._open[tag] = step
        self._put(b"%s %s" % (tag, command))

    def _put(self, line: bytes) -> None:
        data = line + b"\r\n"
        if self._events and isinstance(last := self._events[-1], Send):
            data = last.data + data
            self._events.pop()
        self._events.append(Send(data))

    def _take_events(self) -> list[BackEvent]:
        events, self._events = self._events, []
        return events

    def _fail(self, over: _Over) -> None:
        self._ended = True
        self._waits_for_tls = False
        self._lines.clear()
        self._events.append(Failed(over.kind, visible(over.text.encode("utf-8", "replace"), MAX_TEXT).decode()))

    def _shown(self, text: bytes) -> str:
        """A server's words for the log; not at all when it repeats a secret of ours."""
        low = text.lower()
        if any(secret.lower() in low for secret in secrets(self._sign_in)):
            return "(withheld: it repeats a secret)"
        return visible(text, MAX_TEXT).decode()

    _ANSWERED: ClassVar[dict[_Step, Callable[[ImapBack, Response], None]]] = {
        _Step.STARTTLS: _starttls_answered,
        _Step.ORIGIN: _origin_answered,
        _Step.SIGN_IN: _sign_in_answered,
        _Step.CAPABILITY: _capability_answered,
        _Step.CLIENT_ID: _client_id_answered,
    }


def _kind(said: Response, otherwise: FailureKind) -> FailureKind:
    return _not_mine(said) or _FAILURES.get(said.code_name, otherwise)


def _not_mine(said: Response) -> FailureKind | None:
    return FailureKind.NOT_MINE if said.code_name in _NOT_MINE else None
