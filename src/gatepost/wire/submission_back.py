"""The submission dialogue with a user's own server up to the sign-in there (RFC 6409, 4954, 3207; Postfix' XCLIENT).

    greeting ─► EHLO ─► STARTTLS ─► TLS ─► EHLO ─┐                       ┌─► AUTH ──(challenge)──┐
                  └──────────────────────────────┴─► XCLIENT? ─► EHLO ───┴───────────────────────┴─► EHLO ─► signed in
    any of them ──► failed

The client's own name is said at each EHLO, so that the server knows what it would know without us. The last one comes
after the sign-in: it says what the server can now, and with it the session begins as the client believes it to be, with
nothing but EHLO and a sign-in behind it. A server that lacks what the client was promised is refused there, and one
that would take XCLIENT from the client.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence

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
from gatepost.wire.pop3_lines import BEARER_MECHANISMS, CRLF, MAX_TEXT, clean
from gatepost.wire.smtp_address import BadAddress, normal_domain
from gatepost.wire.smtp_client_extensions import offers
from gatepost.wire.smtp_client_reply import BadReply, ReplyReader
from gatepost.wire.smtp_reply import Reply

MAX_COMMAND = 512
"""Octets of a command with its CRLF (RFC 5321 section 4.5.3.1.4): what we send keeps to it (field case 53)."""

_ADDRESS = re.compile(r"[0-9A-Fa-f.:]{2,45}")
_SESSION = re.compile(r"[!-*,-<>-~]{1,64}")
_NOT_READING = ("signed in", "failed", "TLS")
_CONTINUE = 334
_SIGNED_IN = 235


class SubmissionBack:
    """Signs in at a submission server. `state_name` is the step that runs, in a word, for the log."""

    def __init__(self, sign_in: BackSignIn) -> None:
        self._sign_in = sign_in
        self._name = _greeting_name(sign_in.helo)
        self._answers = ReplyReader()
        self._answers.whole = True
        self._offers: dict[str, list[str]] = {}
        self._responses: list[bytes] = []
        """What AUTH has yet to say."""
        self._token_refused = ""
        self._tls = False
        self._told = sign_in.client is None and sign_in.ttl is None
        """The server has been told of the client, or is not to be."""
        self._in = False
        """The server has taken the sign-in, or has been told by XCLIENT who it is."""
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
            try:
                self._answers.feed(data)
            except BadReply as error:
                return self._fail(FailureKind.PROTOCOL, str(error))
        while self.state_name not in _NOT_READING:
            try:
                reply = self._answers.take()
            except BadReply as error:
                return events + self._fail(FailureKind.PROTOCOL, str(error))
            if reply is None:
                break
            events += self._reply(reply)
        return events

    def tls_started(self) -> list[BackEvent]:
        """The TLS that STARTTLS began is there; the server does not greet again, and forgets our EHLO."""
        if self.state_name != "TLS":
            return []
        self._tls = True
        return self._ehlo()

    # Answers

    def _reply(self, reply: Reply) -> list[BackEvent]:
        step = self.state_name
        if reply.code == 421:
            return self._fail(self._kind(reply, FailureKind.UNAVAILABLE), self._shown(reply))
        if step == "AUTH":
            return self._auth_answer(reply)
        if step == "XCLIENT":
            return self._xclient_answer(reply)
        wanted = 220 if step in {"greeting", "STARTTLS"} else 250
        if reply.code != wanted:
            return self._refused(reply)
        if step == "greeting":
            return self._ehlo()
        if step == "STARTTLS":
            return self._starttls_answer()
        self._offers = offers(reply)
        return self._next()

    def _refused(self, reply: Reply) -> list[BackEvent]:
        """Greeting, EHLO or STARTTLS came to nothing."""
        if self.state_name == "STARTTLS":
            # Required means required: nothing is sent in clear (field case 81).
            return self._fail(FailureKind.PROTOCOL, f"TLS is required but refused: {self._shown(reply)}")
        if reply.transient or self.state_name == "greeting":
            return self._fail(self._kind(reply, FailureKind.UNAVAILABLE), self._shown(reply))
        return self._fail(FailureKind.PROTOCOL, self._shown(reply))

    def _starttls_answer(self) -> list[BackEvent]:
        self.state_name = "TLS"
        if self._answers:
            # Said in clear, by whomever; it would be read as if TLS had protected it (field case 80). No handshake.
            return self._fail(FailureKind.PROTOCOL, "bytes in clear behind the answer to STARTTLS")
        return [StartTls()]

    def _xclient_answer(self, reply: Reply) -> list[BackEvent]:
        if reply.code == 220:  # the session begins anew (Postfix, XCLIENT_README)
            return self._ehlo()
        kind = self._kind(reply, FailureKind.UNAVAILABLE)
        if self._sign_in.login or kind is FailureKind.NOT_MINE:
            kind = kind if reply.transient else FailureKind.PROTOCOL
            return self._fail(kind, self._shown(reply))
        self._note(f"XCLIENT refused: {self._shown(reply)}")
        return self._next()

    def _auth_answer(self, reply: Reply) -> list[BackEvent]:
        dialogue = self._sign_in.dialogue
        if reply.code == _CONTINUE:
            if dialogue is not None:
                try:
                    return [Send(sasl.answer(dialogue, reply.text.encode("ascii", "replace")) + CRLF)]
                except BadChallenge as bad:
                    return self._fail(FailureKind.PROTOCOL, str(bad))
            if self._responses:
                return [Send(self._responses.pop(0) + CRLF)]
            if self._sign_in.mechanism in BEARER_MECHANISMS and not self._token_refused:
                # The error challenge; its answer is a dummy, the refusal itself follows (RFC 7628 section 3.2.3).
                self._token_refused = f" ({self._masked(_decoded(reply.text))})"
                return [Send(b"AQ==\r\n" if self._sign_in.mechanism == "OAUTHBEARER" else CRLF)]
            return self._fail(FailureKind.PROTOCOL, "a challenge that was not due")
        if reply.positive:
            if reply.code != _SIGNED_IN or self._responses or self._token_refused:
                return self._fail(FailureKind.PROTOCOL, "success where a challenge or a refusal was due")
            if dialogue is not None and not dialogue.complete:
                return self._fail(FailureKind.PROTOCOL, "success before the server has proved who it is")
            self._in = True
            return self._ehlo()
        kind = FailureKind.UNAVAILABLE if reply.transient else FailureKind.REFUSED
        return self._fail(self._kind(reply, kind), self._shown(reply) + self._token_refused)

    # Steps

    def _ehlo(self) -> list[BackEvent]:
        self.state_name = "EHLO"
        return [Send(b"EHLO %b\r\n" % self._name)]

    def _next(self) -> list[BackEvent]:
        """EHLO has been answered: what comes now."""
        if self._sign_in.starttls and not self._tls:
            self.state_name = "STARTTLS"
            return [Send(b"STARTTLS\r\n")]  # asked for though it is not offered: who strips the offer gains nothing
        if not self._told:
            self._told = True
            line = self._xclient()
            if line:
                self.state_name = "XCLIENT"
                self._in = bool(self._sign_in.login)
                return [Send(line)]
        if self._sign_in.login and not self._in:
            return self._fail(FailureKind.PROTOCOL, "the user cannot be named: XCLIENT LOGIN is not offered")
        return self._signed_in() if self._in else self._auth()

    def _signed_in(self) -> list[BackEvent]:
        missing = [word for word in self._sign_in.extensions if word not in self._offers]
        if missing:
            text = f"the server lacks {' '.join(missing)}, which clients are promised (submission_extensions)"
            return self._fail(FailureKind.PROTOCOL, text)
        if "XCLIENT" in self._offers:
            # It believes our address, and would believe whoever speaks through us: any user could be any other.
            text = "the server would take XCLIENT from the client: tell it the client's address, or do not trust ours"
            return self._fail(FailureKind.PROTOCOL, text)
        self.state_name = "signed in"
        rest = self._answers.rest()
        self._answers.clear()
        return [SignedIn(b"", rest=rest)]

    def _xclient(self) -> bytes:
        """The XCLIENT line; empty when there is none to send."""
        client, login = self._sign_in.client, self._sign_in.login
        if client is None:
            # A front end takes it without offering it: it believes nothing else that could be said there.
            return b"XCLIENT TTL=%d\r\n" % (self._sign_in.ttl or 0)
        words = self._offers.get("XCLIENT", [])
        if not words or (login and "LOGIN" not in words):
            self._note("XCLIENT not offered: the server does not take the client's address from here")
            return b""
        items = xclient_items(client, words, login)
        if not items:
            self._note("XCLIENT not sent: no address that fits")
            return b""
        line = b"XCLIENT"
        for item in items:
            # One line: each XCLIENT begins the session anew. What does not fit comes last, and is not needed.
            if len(line) + 1 + len(item) + len(CRLF) <= MAX_COMMAND:
                line += b" " + item
        return line + CRLF

    def _auth(self) -> list[BackEvent]:
        """AUTH with the initial response where the line is short enough (RFC 4954 section 4)."""
        sign_in = self._sign_in
        offered = self._offers.get("AUTH", [])
        mechanism = sign_in.mechanism
        if mechanism == "LOGIN" and ("PLAIN" in offered or sign_in.authorization_id):
            mechanism = "PLAIN"
        if mechanism not in offered:
            what = f"it offers {' '.join(offered)}" if offered else "it offers no AUTH"
            return self._fail(FailureKind.PROTOCOL, f"no AUTH {mechanism}: {what}")
        self.state_name = "AUTH"
        if sign_in.dialogue is not None:
            return [Send(b"AUTH %b\r\n" % mechanism.encode())]
        if mechanism == "LOGIN":
            self._responses = [base64.b64encode(part.encode()) for part in (sign_in.user, sign_in.password)]
            return [Send(b"AUTH LOGIN\r\n")]
        if mechanism in BEARER_MECHANISMS:
            message = sasl.bearer_message(mechanism, sign_in.user, sign_in.token)
        else:
            message = sasl.plain_message(sign_in.user, sign_in.password, sign_in.authorization_id)
        response = base64.b64encode(message)
        line = b"AUTH %b %b\r\n" % (mechanism.encode(), response)
        if len(line) <= MAX_COMMAND:
            return [Send(line)]
        self._responses = [response]
        return [Send(b"AUTH %b\r\n" % mechanism.encode())]

    # Words

    def _kind(self, reply: Reply, otherwise: FailureKind) -> FailureKind:
        first = reply.text.split("\n")[-1].split(" ", 1)[0].upper().encode("ascii", "replace")
        return FailureKind.NOT_MINE if reply.transient and first == NOT_MINE else otherwise

    def _fail(self, kind: FailureKind, text: str) -> list[BackEvent]:
        step, self.state_name = self.state_name, "failed"
        self._answers.clear()
        self._responses.clear()
        return [Failed(kind, clean(f"{step}: {text}"))]

    def _note(self, text: str) -> None:
        self.notes.append(clean(text))

    def _shown(self, reply: Reply) -> str:
        return self._masked(str(reply))

    def _masked(self, text: str) -> str:
        """A server's text for the log. Some servers repeat the command they did not like, secrets and all."""
        sign_in = self._sign_in
        messages = [sasl.plain_message(sign_in.user, sign_in.password, sign_in.authorization_id)]
        messages += [sasl.bearer_message(mechanism, sign_in.user, sign_in.token) for mechanism in BEARER_MECHANISMS]
        messages.append(sign_in.password.encode())
        secrets = [sign_in.password, sign_in.token, *(base64.b64encode(message).decode() for message in messages)]
        for secret in filter(None, secrets):
            text = text.replace(secret, "***")
        return clean(text)


def xclient_items(client: ClientFacts, words: Sequence[str], login: str = "") -> list[bytes]:
    """What SMTP's XCLIENT tells of `client`, as far as the server offers the `words`; empty: no usable address.

    The most needed come first. Values are xtext; an IPv6 address is marked as such.
    """
    address = _address(client)
    if not address or "ADDR" not in words:
        return []
    if ":" in address:
        address = f"IPV6:{address}"
    # Without it the server would keep the name that it has found for ourselves.
    known = [("ADDR", address), ("PORT", f"{client.port}"), ("NAME", "[UNAVAILABLE]")]
    if login:
        known.insert(0, ("LOGIN", _xtext(login)))
    if _SESSION.fullmatch(client.session):
        known.append(("SESSION", client.session))
    known.append(("TTL", f"{client.ttl}"))
    local = client.local_address
    if local and _ADDRESS.fullmatch(local):
        known += [("DESTADDR", f"IPV6:{local}" if ":" in local else local), ("DESTPORT", f"{client.local_port}")]
    if client.database and all(word.decode() in words for word in XCLIENT_WORDS):
        known += [("DATABASE", _xtext(database_word(client.database))), ("EPOCH", f"{client.epoch}")]
    return [f"{word}={value}".encode() for word, value in known if word in words]


def _greeting_name(helo: str) -> bytes:
    """What is said at EHLO for a client that said `helo`: in ASCII (RFC 5890). Whoever said nothing has no name."""
    try:
        return normal_domain(helo).encode("ascii")
    except (BadAddress, UnicodeEncodeError):
        return b"unknown"


def _address(client: ClientFacts) -> str:
    """The client's address as text that fits; empty: it does not."""
    address = client.address.partition("%")[0]
    if address.lower().startswith("::ffff:") and "." in address:
        address = address[7:]
    return address if _ADDRESS.fullmatch(address) else ""


def _xtext(value: str) -> str:
    """As RFC 3461 section 4 has it, of the octets in UTF-8."""
    return "".join(chr(o) if 33 <= o <= 126 and o not in b"+=" else f"+{o:02X}" for o in value.encode())


def _decoded(challenge: str) -> str:
    try:
        return base64.b64decode(challenge[:MAX_TEXT], validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return "unreadable challenge"
