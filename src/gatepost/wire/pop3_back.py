"""The POP3 dialogue with a mailbox server up to the user's sign-in there (RFC 1939, 2449, 2595, 5034, 6856).

    greeting ──► STLS ──► TLS ──┐
        └───────────────────────┴──► XCLIENT* ──► UTF8? ──► USER ──► PASS ──► signed in
                                                      └───► AUTH ──(challenge)──┘
    any of them ──► failed

One command at a time, or all of a sign-in at once where the server is known to take that. The server is not trusted:
every answer is one bounded line, and one that does not fit its command ends the sign-in.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import deque

from gatepost.wire import sasl
from gatepost.wire.events import (
    BackEvent,
    BackSignIn,
    BadChallenge,
    ClientFacts,
    Failed,
    FailureKind,
    Send,
    SignedIn,
    StartTls,
)
from gatepost.wire.fencing import NOT_MINE, XCLIENT_WORDS, database_word
from gatepost.wire.pop3_lines import BEARER_MECHANISMS, CRLF, MAX_COMMAND, MAX_TEXT, LineBuffer, LineTooLong, clean

MAX_ANSWER = 8192
"""Octets of a server's answer. RFC 2449 allows 512; error texts and challenges of real servers are longer."""
MAX_SESSION = 64
"""Characters of a session id that Dovecot accepts; with a longer one it refuses the whole XCLIENT."""

_ADDRESS = re.compile(r"[0-9A-Fa-f.:]{2,45}")
_CODE_KINDS = {
    "[IN-USE]": FailureKind.IN_USE,
    "[SYS/TEMP]": FailureKind.UNAVAILABLE,
    "[LOGIN-DELAY]": FailureKind.UNAVAILABLE,
}
"""Codes of RFC 2449 section 8.1 and RFC 3206 that are no verdict on our credentials (field case 130)."""

_XCLIENT = re.compile(rb"\[XCLIENT((?: [A-Z]+)*)\]")
_NOT_READING = ("signed in", "failed", "TLS")


class Pop3Back:
    """Signs in at a mailbox server. `state_name` is the step that runs, in a word, for the log."""

    def __init__(self, sign_in: BackSignIn) -> None:
        self._sign_in = sign_in
        self._lines = LineBuffer()
        self._steps: deque[tuple[str, bytes]] = deque()
        self._response: bytes | None = None
        self._token_refused = ""
        self._xclient: tuple[bytes, ...] | None = None
        """What may be said by XCLIENT beside what Dovecot knows; None: it is not offered."""
        self.state_name = "greeting"
        self.notes: list[str] = []
        """What went not as wished without being fatal, for the log (field case 41)."""

    def connected(self) -> list[BackEvent]:
        """The connection (and its TLS, when that is implicit) stands; the server speaks first."""
        sign_in = self._sign_in
        parts = (sign_in.user, sign_in.password, sign_in.authorization_id, sign_in.token)
        if not sign_in.user or any(c in part for part in parts for c in "\0\r\n"):
            # Must never become a command of its own (field case 60).
            return self._fail(FailureKind.REFUSED, "a name or password that cannot be sent")
        return []

    def receive(self, data: bytes) -> list[BackEvent]:
        """Take bytes of the server. Once signed in or failed, nothing comes back."""
        if self.state_name == "TLS":
            return self._fail(FailureKind.PROTOCOL, "bytes in clear before the handshake")
        events: list[BackEvent] = []
        if self.state_name not in _NOT_READING:
            self._lines.feed(data)
        while self.state_name not in _NOT_READING:
            try:
                line = self._lines.take(MAX_ANSWER)
            except LineTooLong:
                return events + self._fail(FailureKind.PROTOCOL, "an answer without end")
            if line is None:
                break
            events += self._line(line)
        return events

    def tls_started(self) -> list[BackEvent]:
        """The TLS that STLS began is there; the server does not greet again."""
        return self._begin() if self.state_name == "TLS" else []

    # Answers

    def _line(self, line: bytes) -> list[BackEvent]:
        word, _, text = line.partition(b" ")
        if b"\0" in line or word not in (b"+OK", b"-ERR", b"+"):
            return self._fail(FailureKind.PROTOCOL, "not a POP3 answer")
        if word == b"+":
            return self._challenge(text)
        ok = word == b"+OK"
        if self.state_name == "greeting":
            return self._greeting(ok, text)
        if self.state_name == "STLS":
            return self._stls(ok, text)
        if ok:
            return self._step_done(text)
        kind = _kind(text, FailureKind.REFUSED)
        if self.state_name == "XCLIENT" and kind is not FailureKind.NOT_MINE:
            self._note(f"XCLIENT refused: {self._shown(text)}")
            return self._step_done(text)
        return self._fail(kind, self._shown(text) + self._token_refused)

    def _greeting(self, ok: bool, text: bytes) -> list[BackEvent]:
        if not ok:
            kind = _kind(text, FailureKind.UNAVAILABLE)
            kind = kind if kind is FailureKind.NOT_MINE else FailureKind.UNAVAILABLE
            return self._fail(kind, self._shown(text))
        offered = _XCLIENT.match(text)
        self._xclient = tuple(offered[1].split()) if offered else None
        if not self._sign_in.starttls:
            return self._begin()
        self.state_name = "STLS"
        return [Send(b"STLS\r\n")]

    def _stls(self, ok: bool, text: bytes) -> list[BackEvent]:
        if not ok:
            # Required means required: nothing is sent in clear (field case 81).
            return self._fail(FailureKind.PROTOCOL, f"TLS is required but refused: {self._shown(text)}")
        self.state_name = "TLS"
        if self._lines:
            # Said in clear, by whomever; it would be read as if TLS had protected it (field case 80). No handshake.
            return self._fail(FailureKind.PROTOCOL, "bytes in clear behind the answer to STLS")
        return [StartTls()]

    def _step_done(self, text: bytes) -> list[BackEvent]:
        if self.state_name == "AUTH" and (self._response is not None or self._token_refused):
            return self._fail(FailureKind.PROTOCOL, "+OK where a challenge or a refusal was due")
        if self.state_name == "AUTH" and self._sign_in.dialogue is not None and not self._sign_in.dialogue.complete:
            return self._fail(FailureKind.PROTOCOL, "+OK before the server has proved who it is")
        self._steps.popleft()
        if not self._steps:
            self.state_name = "signed in"
            rest = self._lines.rest()
            self._lines.clear()
            return [SignedIn(text, rest=rest)]
        self.state_name, command = self._steps[0]
        return [] if self._sign_in.pipelined else [Send(command)]

    def _challenge(self, text: bytes) -> list[BackEvent]:
        if self.state_name == "AUTH":
            if self._sign_in.dialogue is not None:
                try:
                    return [Send(sasl.answer(self._sign_in.dialogue, text) + CRLF)]
                except BadChallenge as bad:
                    return self._fail(FailureKind.PROTOCOL, str(bad))
            if self._response is not None:
                response, self._response = self._response, None
                return [Send(response + CRLF)]
            if self._sign_in.mechanism in BEARER_MECHANISMS and not self._token_refused:
                # The error challenge; its answer is a dummy, the refusal itself follows (RFC 7628 section 3.2.3).
                self._token_refused = f" ({self._shown(_decoded(text))})"
                return [Send(b"AQ==\r\n" if self._sign_in.mechanism == "OAUTHBEARER" else CRLF)]
        return self._fail(FailureKind.PROTOCOL, "a challenge that was not due")

    # Commands

    def _begin(self) -> list[BackEvent]:
        """Lay out the commands of the sign-in and send the first one, or all of them."""
        steps = [("XCLIENT", line) for line in self._xclient_lines()]
        if self._sign_in.utf8:
            steps.append(("UTF8", b"UTF8\r\n"))
        steps += self._credentials()
        self._steps.extend(steps)
        self.state_name = steps[0][0]
        return [Send(b"".join(command for _, command in steps) if self._sign_in.pipelined else steps[0][1])]

    def _xclient_lines(self) -> list[bytes]:
        client = self._sign_in.client
        if client is None:
            # A front end takes it without offering it: it believes nothing else that could be said there.
            return [] if self._sign_in.ttl is None else [b"XCLIENT TTL=%d\r\n" % self._sign_in.ttl]
        if self._xclient is None:
            self._note("XCLIENT not offered: the server does not take the client's address from here")
            return []
        items = xclient_items(client)
        if not items:
            self._note("XCLIENT not sent: no address that fits")
        if client.database and all(word in self._xclient for word in XCLIENT_WORDS):
            items += [b"DATABASE=" + database_word(client.database).encode(), b"EPOCH=%d" % client.epoch]
        return pack_xclient(items)

    def _credentials(self) -> list[tuple[str, bytes]]:
        """USER and PASS, or AUTH with the initial response where the line is short enough (RFC 5034 section 4)."""
        sign_in = self._sign_in
        if sign_in.dialogue is not None:
            return [("AUTH", b"AUTH %b\r\n" % sign_in.mechanism.encode())]
        if sign_in.mechanism == "LOGIN" and not sign_in.authorization_id:
            user = b"USER %b\r\n" % sign_in.user.encode()
            password = b"PASS %b\r\n" % sign_in.password.encode()
            plain = _fits_word(sign_in.user) and _fits_rest(sign_in.password)
            if plain and max(len(user), len(password)) <= MAX_COMMAND:
                return [("USER", user), ("PASS", password)]
        if sign_in.mechanism in BEARER_MECHANISMS:
            mechanism = sign_in.mechanism
            message = sasl.bearer_message(mechanism, sign_in.user, sign_in.token)
        else:
            mechanism = "PLAIN"
            message = sasl.plain_message(sign_in.user, sign_in.password, sign_in.authorization_id)
        response = base64.b64encode(message)
        line = b"AUTH %b %b\r\n" % (mechanism.encode(), response)
        if len(line) <= MAX_COMMAND:
            return [("AUTH", line)]
        self._response = response
        return [("AUTH", b"AUTH %b\r\n" % mechanism.encode())]

    # Words

    def _fail(self, kind: FailureKind, text: str) -> list[BackEvent]:
        step, self.state_name = self.state_name, "failed"
        self._lines.clear()
        self._steps.clear()
        return [Failed(kind, clean(f"{step}: {text}"))]

    def _note(self, text: str) -> None:
        self.notes.append(clean(text))

    def _shown(self, text: bytes) -> str:
        """A server's text for the log. Some servers repeat the command they did not like, secrets and all."""
        sign_in = self._sign_in
        messages = [sasl.plain_message(sign_in.user, sign_in.password, sign_in.authorization_id)]
        messages += [sasl.bearer_message(mechanism, sign_in.user, sign_in.token) for mechanism in BEARER_MECHANISMS]
        secrets = [sign_in.password.encode(), sign_in.token.encode(), *map(base64.b64encode, messages)]
        for secret in filter(None, secrets):
            text = text.replace(secret, b"***")
        return clean(text)


def xclient_items(client: ClientFacts) -> list[bytes]:
    """What XCLIENT tells of `client`, as Dovecot's POP3 takes it; empty when there is no usable address."""
    address = client.address.partition("%")[0]
    if address.lower().startswith("::ffff:") and "." in address:
        address = address[7:]
    if not _ADDRESS.fullmatch(address):
        return []
    items = [b"ADDR=" + address.encode(), b"PORT=%d" % client.port]
    if client.session and len(client.session) <= MAX_SESSION and _fits_word(client.session):
        items.append(b"SESSION=" + client.session.encode())
    return [*items, b"TTL=%d" % client.ttl]


def pack_xclient(items: list[bytes]) -> list[bytes]:
    """`items` in as few XCLIENT commands as keep to the length of a command (field case 54)."""
    lines: list[bytes] = []
    for item in items:
        if lines and len(lines[-1]) + 1 + len(item) + len(CRLF) <= MAX_COMMAND:
            lines[-1] += b" " + item
        else:
            lines.append(b"XCLIENT " + item)
    return [line + CRLF for line in lines]


def _kind(text: bytes, otherwise: FailureKind) -> FailureKind:
    """What kind of failure an `-ERR` with this text is."""
    code, _, rest = clean(text).upper().partition(" ")
    if code == "[SYS/TEMP]" and rest.split(" ", 1)[0].encode() == NOT_MINE:
        return FailureKind.NOT_MINE
    return _CODE_KINDS.get(code, otherwise)


def _fits_word(text: str) -> bool:
    """Whether `text` can be the argument of USER: printable ASCII without spaces (RFC 1939 section 3)."""
    return text.isascii() and text.isprintable() and " " not in text


def _fits_rest(text: str) -> bool:
    """Whether `text` can follow PASS for every server: ASCII, no space that one of them might trim."""
    return text.isascii() and text.isprintable() and text == text.strip(" ")


def _decoded(challenge: bytes) -> bytes:
    try:
        return base64.b64decode(challenge[:MAX_TEXT], validate=True)
    except binascii.Error:
        return b"unreadable challenge"
