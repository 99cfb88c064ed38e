"""The submission dialogue with a client up to its sign-in (RFC 6409, 4954, 3207, 5321).

    COMMAND ──AUTH──► SASL ──response──► PARKED ──signed_in()──► SIGNED_IN    nothing is read any more
       ▲ │              │                  ▲  │
       │ └─initial response────────────────┘  ├──refuse()──► COMMAND, or CLOSED after too many
       │ └──STARTTLS──► STARTING_TLS          └──refuse(), bearer──► BEARER_ERROR ──any line──► COMMAND or CLOSED
       └────── "*", bad response

A client goes on after its AUTH without another EHLO, so what it was told at its own holds for the server it comes to:
only extensions are announced that every server behind this front end is expected to have, and the back machine refuses
one that lacks them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import ClassVar

from gatepost.wire import sasl
from gatepost.wire.events import (
    FIRST_TTL,
    NO_HELP,
    Close,
    Credentials,
    FrontEvent,
    GssToken,
    Refusal,
    Send,
    SignIn,
    StartTls,
    TokenHelp,
)
from gatepost.wire.front_state import READING, FrontState
from gatepost.wire.imap_sasl import BEARER, KERBEROS, PASSWORD, SaslExchange
from gatepost.wire.pop3_lines import LineBuffer, LineTooLong, clean
from gatepost.wire.sasl import MAX_INITIAL_RESPONSE, BadSaslMessage
from gatepost.wire.smtp_command import split_command
from gatepost.wire.smtp_reply import Reply

MAX_LINE = 2048
"""Octets of a command line: RFC 5321 section 4.5.3.1.4 asks for 512, extensions for some more."""
MAX_AUTH_LINE = MAX_INITIAL_RESPONSE + 64
"""Octets of a SASL response, or of `AUTH`, mechanism and initial response in one line (field case 53)."""
MAX_NAME = 255
"""Octets of the name at EHLO that are kept."""
MAX_TTL_DIGITS = 3
MAX_COMMANDS = 128
"""Commands of one connection before its sign-in, good ones too: each may draw a longer answer than it costs to send."""

EXTENSIONS = ("PIPELINING", "SIZE", "8BITMIME", "ENHANCEDSTATUSCODES")
"""What is announced where nothing else is configured: what every submission server of today has."""
FURTHER_EXTENSIONS = ("DSN", "SMTPUTF8", "CHUNKING", "BINARYMIME")
"""What may be announced too, if every server has it."""

_REFUSALS = {
    Refusal.WRONG_CREDENTIALS: Reply(535, "Authentication credentials invalid", "5.7.8"),
    Refusal.UNAVAILABLE: Reply(454, "Your server cannot be reached now, please try again later", "4.7.0"),
    Refusal.BUSY: Reply(454, "Too many sign-ins now, please try again later", "4.7.0"),
    Refusal.PROTOCOL_NOT_ALLOWED: Reply(525, "Submission is not enabled for this account", "5.7.13"),
    Refusal.INSUFFICIENT_SCOPE: Reply(535, "This token is not for submission", "5.7.8"),
    Refusal.OTHER_SERVER: Reply(550, "Please use another server", "5.7.1"),
    Refusal.IN_USE: Reply(454, "Your mailbox is in use by another session", "4.7.0"),
    Refusal.LIMIT: Reply(454, "Too many sessions, please try again later", "4.7.0"),
}
"""Codes of RFC 4954 section 6 and RFC 5248. A temporary fault is 454, never 535 (field cases 111 and 112)."""

_SIGNED_IN = Reply(235, "Authentication successful", "2.7.0")
_AUTH_FIRST = Reply(530, "Authentication required", "5.7.0")
_TLS_FIRST = Reply(530, "Must issue a STARTTLS command first", "5.7.0")
_UNKNOWN = Reply(500, "Command not recognized", "5.5.2")
_NO_NAME = Reply(501, "A host name or an address literal is needed", "5.5.4")
_NO_ARGUMENT = Reply(501, "This command takes no argument", "5.5.4")


class SubmissionFront:
    """A submission server as far as the sign-in.

    `name` is what banner and EHLO say; `extensions` are announced (`EXTENSIONS`, and others if every server has them).
    `tls`: the connection is protected already; `starttls`: STARTTLS is offered; `clear_passwords`: credentials are
    taken without TLS as well; `bearer`: XOAUTH2 and OAUTHBEARER are offered; `kerberos`: GSSAPI; `bad_commands` and
    `sign_in_attempts` end the connection.
    """

    client_id: tuple[tuple[str, str], ...] = ()
    """SMTP has no client ID; here so that all protocols' machines look alike."""

    def __init__(
        self,
        *,
        tls: bool,
        starttls: bool,
        clear_passwords: bool,
        bearer: bool,
        token_help: TokenHelp = NO_HELP,
        kerberos: bool = False,
        bad_commands: int,
        sign_in_attempts: int,
        name: str,
        extensions: tuple[str, ...] = EXTENSIONS,
    ) -> None:
        self._tls = tls
        self._starttls = starttls
        self._clear_passwords = clear_passwords
        self._token_help = token_help
        self._mechanisms = PASSWORD + (BEARER if bearer else ()) + (KERBEROS if kerberos else ())
        self.exchanges: tuple[bytes, ...] = ()
        """Further mechanisms of `sasl.LED_ELSEWHERE` that are offered, as the driver says; TLS may change them."""
        self._name = name
        self.extensions = extensions
        """What the client is promised, in upper case without parameters."""
        self._bad_commands = bad_commands
        self._sign_in_attempts = sign_in_attempts
        self.helo = ""
        """The name that the client gave at EHLO or HELO; the server must hear it too (`BackSignIn.helo`)."""
        self.ttl = FIRST_TTL
        """How many proxies may still hand this session on."""
        self._state = FrontState.COMMAND
        self._lines = LineBuffer()
        self._commands = self._bad = self._refused = 0
        self._exchange: SaslExchange | None = None
        self._reply_after_error = Reply(535, "")

    @property
    def buffered(self) -> int:
        """Bytes that wait, so that the driver can stop reading while a sign-in is checked."""
        return len(self._lines)

    @property
    def rest(self) -> bytes:
        """What the client sent after its sign-in; for the server, once."""
        return self._lines.rest()

    def greeting(self) -> bytes:
        """The first line, sent when the client (or its TLS) is connected."""
        return Reply(220, f"{self._name} ESMTP ready").encode()

    def receive(self, data: bytes) -> list[FrontEvent]:
        """Take bytes of the client."""
        if self._state is FrontState.STARTING_TLS or self._state is FrontState.CLOSED:
            return []
        self._lines.feed(data)
        return self._advance()

    def tls_started(self) -> list[FrontEvent]:
        """The handshake is done; all that was said in clear is forgotten, EHLO too (RFC 3207 section 4.2)."""
        self._tls = True
        self.helo = ""
        self._state = FrontState.COMMAND
        return []

    def signed_in(self, capabilities: bytes | None, text: bytes) -> bytes:  # noqa: ARG002 - IMAP's machine needs them
        """The user is in: the answer to the client. From now on the bytes are the server's."""
        self._state = FrontState.SIGNED_IN
        return _SIGNED_IN.encode()

    def refuse(self, refusal: Refusal, text: str = "") -> list[FrontEvent]:
        """Answer the parked sign-in, and go on with what the client sent meanwhile. `text` replaces our words."""
        assert self._state is FrontState.PARKED, "no sign-in waits"
        reply = _REFUSALS[refusal]
        if text:
            reply = Reply(reply.code, clean(text), reply.enhanced)
        challenge = self._exchange.error_challenge(refusal, self._token_help) if self._exchange is not None else None
        events: list[FrontEvent]
        if refusal is Refusal.BUSY:
            self._refused += 1
            events = self._counted(reply)
        elif refusal not in sasl.TOKEN_REFUSED:
            self._state = FrontState.COMMAND
            events = [_say(reply)]
        else:
            self._refused += 1
            if challenge is not None:
                # The error is told in a challenge; the client answers it before it gets its refusal (RFC 7628, 3.2.3).
                self._state = FrontState.BEARER_ERROR
                self._reply_after_error = reply
                events = [_challenge(challenge)]
            else:
                events = self._counted(reply)
        self._exchange = None
        return events + self._advance()

    def challenge(self, token: bytes) -> list[FrontEvent]:
        """The next token of the exchange that waits; the client answers it."""
        assert self._state is FrontState.PARKED, "no sign-in waits"
        self._state = FrontState.SASL
        return [_challenge(base64.b64encode(token)), *self._advance()]

    def bye(self, text: str) -> bytes:
        """The line that ends the connection from our side: a time-out, a shutdown. Nothing is read after it."""
        self._close()
        return Reply(421, clean(text), "4.3.2").encode()

    # Reading

    def _advance(self) -> list[FrontEvent]:
        events: list[FrontEvent] = []
        while self._state in READING:
            # Known from the first bytes on, so no split of the input makes a difference.
            limit = MAX_AUTH_LINE if self._lines.starts_with(b"AUTH ") else MAX_LINE
            if self._state is not FrontState.COMMAND:
                limit = MAX_AUTH_LINE if self._exchange is None else self._exchange.max_response
            try:
                line = self._lines.take(limit)
            except LineTooLong:
                return events + self._end(Reply(500, "Line too long", "5.5.6"), "line too long")
            if line is None:
                break
            events += self._line(line)
        return events

    def _line(self, line: bytes) -> list[FrontEvent]:
        if self._state is FrontState.SASL:
            return self._response(line)
        if self._state is FrontState.BEARER_ERROR:
            return self._counted(self._reply_after_error)
        self._commands += 1
        if self._commands > MAX_COMMANDS:
            return self._end(Reply(421, "Too many commands without a sign-in", "4.7.0"), "too many commands")
        verb, argument = split_command(line)
        handle = self._HANDLERS.get(verb)
        if handle is None:
            return self._bad_command(_UNKNOWN)
        return handle(self, argument)

    # Answers

    def _bad_command(self, reply: Reply) -> list[FrontEvent]:
        self._bad += 1
        self._exchange = None
        self._state = FrontState.COMMAND
        if self._bad >= self._bad_commands:
            return self._end(Reply(421, "Too many bad commands", "4.7.0"), "too many bad commands")
        return [_say(reply)]

    def _counted(self, reply: Reply) -> list[FrontEvent]:
        self._state = FrontState.COMMAND
        if self._refused < self._sign_in_attempts:
            return [_say(reply)]
        self._close()
        return [_say(reply), Close("too many refused sign-ins")]

    def _end(self, reply: Reply, reason: str) -> list[FrontEvent]:
        self._close()
        return [_say(reply), Close(reason)]

    def _close(self) -> None:
        self._state = FrontState.CLOSED
        self._lines.clear()

    # Commands

    @property
    def _protected(self) -> bool:
        return self._tls or self._clear_passwords

    def _ehlo(self, argument: bytes) -> list[FrontEvent]:
        if not self._named(argument):
            return self._bad_command(_NO_NAME)
        lines = [self._name, *self.extensions]
        if self._starttls and not self._tls:
            lines.append("STARTTLS")
        if self._protected:
            lines.append("AUTH " + b" ".join(self._mechanisms + self.exchanges).decode())
        return [_say(Reply(250, "\n".join(lines)))]

    def _helo(self, argument: bytes) -> list[FrontEvent]:
        if not self._named(argument):
            return self._bad_command(_NO_NAME)
        return [_say(Reply(250, self._name))]

    def _named(self, argument: bytes) -> bool:
        """Whether the client gave a name. Users' programs give strange ones; what is no host name is not passed on."""
        self.helo = argument.split(b" ", 1)[0][:MAX_NAME].decode("utf-8", "replace")
        return bool(self.helo)

    def _auth(self, argument: bytes) -> list[FrontEvent]:
        if not self.helo:
            return self._bad_command(Reply(503, "Send EHLO first", "5.5.1"))
        if not self._protected:
            # Not 535: a client would ask its user for another password, which cannot help here (RFC 4954 section 6).
            reply = Reply(538, "Encryption required for requested authentication mechanism", "5.7.11")
            return self._bad_command(_TLS_FIRST if self._starttls else reply)
        word, _, initial_response = argument.partition(b" ")
        if word.upper() not in self._mechanisms + self.exchanges:
            return self._bad_command(Reply(504, "Unrecognized authentication type", "5.5.4"))
        self._exchange = SaslExchange(word.upper())
        self._state = FrontState.SASL
        return self._go_on(self._exchange.start, initial_response or None)

    def _response(self, line: bytes) -> list[FrontEvent]:
        if line == b"*":
            return self._bad_command(Reply(501, "Authentication cancelled", "5.7.0"))
        assert self._exchange is not None
        return self._go_on(self._exchange.respond, line)

    def _go_on(self, step: Callable[[bytes], bytes | Credentials | GssToken], data: bytes | None) -> list[FrontEvent]:
        """Ask the client for its next response, or have its credentials checked."""
        try:
            outcome = step(data)  # type: ignore[arg-type]  # `start` takes None as well
        except BadSaslMessage as error:
            return self._bad_command(Reply(501, f"Bad response: {error}", "5.5.2"))
        if isinstance(outcome, Credentials):
            self._state = FrontState.PARKED
            return [SignIn(outcome)]
        if isinstance(outcome, GssToken):
            self._state = FrontState.PARKED
            return [outcome]
        return [_challenge(outcome)]

    def _starttls_command(self, argument: bytes) -> list[FrontEvent]:
        if argument:
            return self._bad_command(_NO_ARGUMENT)
        if self._tls or not self._starttls:
            text = "TLS is active already" if self._tls else "STARTTLS is not possible"
            return self._bad_command(Reply(503, text, "5.5.1"))
        # What was pipelined after STARTTLS was not protected and must not be obeyed as if it were (field case 79).
        self._lines.clear()
        self._state = FrontState.STARTING_TLS
        return [_say(Reply(220, "Ready to start TLS", "2.0.0")), StartTls()]

    def _quit(self, argument: bytes) -> list[FrontEvent]:  # noqa: ARG002
        return self._end(Reply(221, "Goodbye", "2.0.0"), "quit")

    def _nothing(self, argument: bytes) -> list[FrontEvent]:  # noqa: ARG002
        """NOOP and RSET: there is no transaction yet."""
        return [_say(Reply(250, "Ok", "2.0.0"))]

    def _not_yet(self, argument: bytes) -> list[FrontEvent]:  # noqa: ARG002
        """Everything that makes or asks for mail (RFC 4954 section 6)."""
        return self._bad_command(_AUTH_FIRST if self._protected or not self._starttls else _TLS_FIRST)

    def _bdat(self, argument: bytes) -> list[FrontEvent]:  # noqa: ARG002
        """Octets of a message follow, whatever is answered: they are not to be read as commands (RFC 3030)."""
        return self._end(_AUTH_FIRST, "BDAT before the sign-in")

    def _xclient(self, argument: bytes) -> list[FrontEvent]:
        """Not offered, and nothing is believed but that fewer proxies may follow: so front ends stop a loop (C11)."""
        name, _, value = argument.upper().partition(b"=")
        if name != b"TTL" or not value.isdigit() or len(value) > MAX_TTL_DIGITS:
            return self._bad_command(_UNKNOWN)
        self.ttl = min(self.ttl, int(value))
        self.helo = ""
        return [Send(self.greeting())]

    _HANDLERS: ClassVar[dict[bytes, Callable[[SubmissionFront, bytes], list[FrontEvent]]]] = {
        b"EHLO": _ehlo,
        b"HELO": _helo,
        b"AUTH": _auth,
        b"STARTTLS": _starttls_command,
        b"NOOP": _nothing,
        b"RSET": _nothing,
        b"QUIT": _quit,
        b"XCLIENT": _xclient,
        b"BDAT": _bdat,
        **dict.fromkeys((b"MAIL", b"RCPT", b"DATA", b"VRFY", b"EXPN", b"HELP", b"ETRN", b"BURL"), _not_yet),
    }


def _say(reply: Reply) -> Send:
    return Send(reply.encode())


def _challenge(challenge: bytes) -> Send:
    return Send(b"334 " + challenge + b"\r\n")
