"""The POP3 dialogue with a client up to its sign-in (RFC 1939, 2449, 2595, 3206, 5034, 6856).

    COMMAND ──AUTH──► SASL ──response──► PARKED ──signed_in()──► SIGNED_IN    nothing is read any more
       ▲ │              │                  ▲  │
       │ └──USER, PASS──┼──────────────────┘  ├──refuse()──► COMMAND, or CLOSED after too many
       │ └──STLS──► STARTING_TLS              └──refuse(), bearer──► BEARER_ERROR ──any line──► COMMAND or CLOSED
       └────── "*", bad response

Of the extensions APOP is left out: the store holds no password that a challenge could be checked with (field case 72),
so the greeting has no timestamp.
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
    Refusal,
    Send,
    SignIn,
    StartTls,
    TokenHelp,
)
from gatepost.wire.front_state import READING, FrontState
from gatepost.wire.pop3_lines import BEARER_MECHANISMS, CRLF, MAX_LINE, LineBuffer, LineTooLong, clean
from gatepost.wire.sasl import MAX_INITIAL_RESPONSE, BadSaslMessage, GssDialogue

MAX_AUTH_LINE = MAX_INITIAL_RESPONSE + 64
"""Octets of a SASL response, or of `AUTH`, mechanism and initial response in one line (field cases 53, 54)."""
MAX_TTL_DIGITS = 3
MAX_COMMANDS = 128
"""Commands of one connection before its sign-in, good ones too: each may draw a longer answer than it costs to send."""

_UNKNOWN = b"Unknown command, or not before the sign-in."
_CODES = {
    Refusal.WRONG_CREDENTIALS: (b"[AUTH]", "Authentication failed."),
    Refusal.UNAVAILABLE: (b"[SYS/TEMP]", "Your mailbox cannot be reached now, please try again later."),
    Refusal.BUSY: (b"[SYS/TEMP]", "Too many sign-ins now, please try again later."),
    Refusal.PROTOCOL_NOT_ALLOWED: (b"[SYS/PERM]", "POP3 is not enabled for this account."),
    Refusal.INSUFFICIENT_SCOPE: (b"[AUTH]", "This token is not for POP3."),
    Refusal.OTHER_SERVER: (b"[SYS/PERM]", "Please use another server."),
    Refusal.IN_USE: (b"[IN-USE]", "Your mailbox is in use by another session."),
    Refusal.LIMIT: (b"[SYS/TEMP]", "Too many sessions, please try again later."),
}
"""Code (RFC 2449 section 8.1, RFC 3206) and the words used when the caller has none."""

_USER_PROMPT = b"+ VXNlcm5hbWU6\r\n"
_PASSWORD_PROMPT = b"+ UGFzc3dvcmQ6\r\n"
"""`Username:` and `Password:` of SASL LOGIN, in base64, as clients look for them."""

_LANGUAGES = (b"i-default Default language", b"en English")
"""Tags and names of the languages our texts are in (RFC 6856 section 3): one, under both its names."""


class Pop3Front:
    """A POP3 server as far as the sign-in.

    `tls`: the connection is protected already; `starttls`: STLS is offered; `clear_passwords`: credentials are taken
    without TLS as well; `bearer`: XOAUTH2 and OAUTHBEARER are offered; `kerberos`: GSSAPI; `bad_commands` and
    `sign_in_attempts` end the connection. `utf8`: every mailbox server understands UTF8 (RFC 6856). A client can only
    ask for it before the sign-in, when the server is not known yet; so it is offered only on the operator's word.
    `server_capabilities`: what every mailbox server behind this front end offers.
    """

    client_id: tuple[tuple[str, str], ...] = ()
    """POP3 has no client ID; here so that both protocols' machines look alike."""

    def __init__(
        self,
        *,
        tls: bool,
        starttls: bool,
        clear_passwords: bool,
        bearer: bool,
        token_help: TokenHelp = NO_HELP,
        kerberos: bool = False,
        banner: bytes = b"Gatepost ready",
        bad_commands: int,
        sign_in_attempts: int,
        utf8: bool = False,
        server_capabilities: tuple[bytes, ...] = (b"TOP", b"UIDL"),
    ) -> None:
        if b"<" in banner:
            raise ValueError("a banner with '<' would be taken for an APOP timestamp")
        self._tls = tls
        self._starttls = starttls
        self._clear_passwords = clear_passwords
        tokens = (b"XOAUTH2", b"OAUTHBEARER") if bearer else ()
        self._mechanisms = (b"PLAIN", b"LOGIN", *tokens, *((b"GSSAPI",) if kerberos else ()))
        self.exchanges: tuple[bytes, ...] = ()
        """Further mechanisms of `sasl.LED_ELSEWHERE` that are offered, as the driver says; TLS may change them."""
        self._banner = banner
        self._token_help = token_help
        self._bad_commands = bad_commands
        self._sign_in_attempts = sign_in_attempts
        self._utf8_offered = utf8
        self._server_capabilities = server_capabilities
        self.utf8 = False
        """Whether the client asked for UTF8; the mailbox server must be asked too (`BackSignIn.utf8`)."""
        self.ttl = FIRST_TTL
        """How many proxies may still hand this session on."""
        self._state = FrontState.COMMAND
        self._lines = LineBuffer()
        self._commands = self._bad = self._refused = 0
        self._user: str | None = None
        self._mechanism = ""
        self._login_name: str | None = None
        self._answer_after_error = b""
        self._gss: GssDialogue | None = None

    @property
    def buffered(self) -> int:
        """Bytes that wait, so that the driver can stop reading while a sign-in is checked."""
        return len(self._lines)

    @property
    def rest(self) -> bytes:
        """What the client sent after its sign-in; for the mailbox server, once."""
        return self._lines.rest()

    def greeting(self) -> bytes:
        """The first line, sent when the client (or its TLS) is connected."""
        return b"+OK " + self._banner + CRLF

    def receive(self, data: bytes) -> list[FrontEvent]:
        """Take bytes of the client."""
        if self._state is FrontState.STARTING_TLS or self._state is FrontState.CLOSED:
            return []
        self._lines.feed(data)
        return self._advance()

    def tls_started(self) -> list[FrontEvent]:
        """The handshake is done; all that was said in clear is forgotten (RFC 2595 section 4)."""
        self._tls = True
        self._user = None
        self.utf8 = False
        self._state = FrontState.COMMAND
        return []

    def signed_in(self, capabilities: bytes | None, text: bytes) -> bytes:  # noqa: ARG002 — IMAP's machine needs it
        """The user is in: the answer to the client. From now on the bytes are the mailbox server's."""
        self._state = FrontState.SIGNED_IN
        return b"+OK " + (clean(text) or "Signed in.").encode() + CRLF

    def refuse(self, refusal: Refusal, text: str = "") -> list[FrontEvent]:
        """Answer the parked sign-in, and go on with what the client sent meanwhile. `text` replaces our words."""
        assert self._state is FrontState.PARKED, "no sign-in waits"
        code, words = _CODES[refusal]
        answer = b"-ERR %b %b\r\n" % (code, (clean(text) or words).encode())
        events: list[FrontEvent]
        if refusal is Refusal.BUSY:
            self._refused += 1
            events = self._counted(answer)
        elif refusal not in sasl.TOKEN_REFUSED:
            self._state = FrontState.COMMAND
            events = [Send(answer)]
        else:
            self._refused += 1
            if self._mechanism in BEARER_MECHANISMS:
                # The error is told in a challenge; the client answers it before it gets its refusal (RFC 7628, 3.2.3).
                self._state = FrontState.BEARER_ERROR
                self._answer_after_error = answer
                error = sasl.bearer_error(self._mechanism, refusal, self._token_help)
                events = [Send(b"+ " + base64.b64encode(error) + CRLF)]
            else:
                events = self._counted(answer)
        return events + self._advance()

    def challenge(self, token: bytes) -> list[FrontEvent]:
        """The next token of the exchange that waits; the client answers it."""
        assert self._state is FrontState.PARKED, "no sign-in waits"
        self._state = FrontState.SASL
        return [Send(b"+ " + base64.b64encode(token) + CRLF), *self._advance()]

    def bye(self, text: str) -> bytes:
        """The line that ends the connection from our side: a time-out, a shutdown. Nothing is read after it."""
        self._close()
        return b"-ERR [SYS/TEMP] " + clean(text).encode() + CRLF

    # Reading

    def _advance(self) -> list[FrontEvent]:
        events: list[FrontEvent] = []
        while self._state in READING:
            # Known from the first bytes on, so no split of the input makes a difference.
            limit = MAX_AUTH_LINE if self._lines.starts_with(b"AUTH ") else MAX_LINE
            if self._state is not FrontState.COMMAND:
                limit = MAX_AUTH_LINE if self._gss is None else self._gss.max_response
            try:
                line = self._lines.take(limit)
            except LineTooLong:
                return events + self._end(b"Line too long.", "line too long")
            if line is None:
                break
            events += self._line(line)
        return events

    def _line(self, line: bytes) -> list[FrontEvent]:
        if self._state is FrontState.SASL:
            return self._response(line)
        if self._state is FrontState.BEARER_ERROR:
            return self._counted(self._answer_after_error)
        self._commands += 1
        if self._commands > MAX_COMMANDS:
            return self._end(b"Too many commands without a sign-in.", "too many commands")
        verb, _, argument = line.partition(b" ")
        handle = self._HANDLERS.get(verb.upper())
        if handle is None:
            return self._bad_command(_UNKNOWN)
        return handle(self, argument)

    # Answers

    def _bad_command(self, text: bytes) -> list[FrontEvent]:
        self._bad += 1
        self._state = FrontState.COMMAND
        if self._bad >= self._bad_commands:
            return self._end(b"Too many bad commands.", "too many bad commands")
        return [Send(b"-ERR " + text + CRLF)]

    def _counted(self, answer: bytes) -> list[FrontEvent]:
        self._state = FrontState.COMMAND
        if self._refused < self._sign_in_attempts:
            return [Send(answer)]
        self._close()
        return [Send(answer), Close("too many refused sign-ins")]

    def _end(self, text: bytes, reason: str) -> list[FrontEvent]:
        self._close()
        return [Send(b"-ERR " + text + CRLF), Close(reason)]

    def _close(self) -> None:
        self._state = FrontState.CLOSED
        self._lines.clear()

    def _park(self, credentials: Credentials) -> list[FrontEvent]:
        self._state = FrontState.PARKED
        self._mechanism = credentials.mechanism
        self._gss = None
        self._user = self._login_name = None
        return [SignIn(credentials)]

    # Commands

    @property
    def _protected(self) -> bool:
        return self._tls or self._clear_passwords

    def _clear_refused(self) -> list[FrontEvent]:
        """Not `[AUTH]`: a client would ask its user for another password, which cannot help here."""
        hint = b" Use STLS first." if self._starttls else b""
        return self._bad_command(b"[SYS/PERM] Signing in needs a secure connection (TLS)." + hint)

    def _capa(self, argument: bytes) -> list[FrontEvent]:  # noqa: ARG002
        # A lower bound: only what holds on whichever server the user turns out to be. PIPELINING works up to the
        # sign-in, but would promise it for later commands, which a server reads that nobody knows yet. EXPIRE,
        # LOGIN-DELAY and IMPLEMENTATION are that server's to say; LANG is answered here, not promised for later.
        lines = [*self._server_capabilities, b"RESP-CODES", b"AUTH-RESP-CODE"]
        if self._starttls and not self._tls:
            lines.append(b"STLS")
        if self._protected:
            lines += [b"USER", b"SASL " + b" ".join(self._mechanisms + self.exchanges)]
        if self._utf8_offered:
            lines.append(b"UTF8 USER")
        return [_listing(b"Capability list follows", lines)]

    def _user_command(self, argument: bytes) -> list[FrontEvent]:
        if not self._protected:
            return self._clear_refused()
        try:
            name = sasl.text(argument)
        except BadSaslMessage as error:
            return self._bad_command(b"USER: " + str(error).encode())
        if not name:
            return self._bad_command(b"USER needs a name.")
        self._user = name
        return [Send(b"+OK Send the password.\r\n")]

    def _pass_command(self, argument: bytes) -> list[FrontEvent]:
        """The password is all after `PASS `, spaces too (RFC 1939 section 7)."""
        if not self._protected:
            return self._clear_refused()
        if self._user is None:
            return self._bad_command(b"Send USER first.")
        try:
            password = sasl.text(argument)
        except BadSaslMessage as error:
            return self._bad_command(b"PASS: " + str(error).encode())
        if not password:
            return self._bad_command(b"PASS needs a password.")
        return self._park(Credentials("LOGIN", self._user, password=password))

    def _auth(self, argument: bytes) -> list[FrontEvent]:
        if not argument:
            return [_listing(b"Mechanisms follow", list(self._mechanisms + self.exchanges) if self._protected else [])]
        if not self._protected:
            return self._clear_refused()
        word, _, initial_response = argument.partition(b" ")
        if word.upper() not in self._mechanisms + self.exchanges:
            return self._bad_command(b"Unknown mechanism.")
        self._mechanism = word.upper().decode()
        self._gss = GssDialogue(word.upper()) if word.upper() in sasl.LED_ELSEWHERE else None
        self._user = self._login_name = None
        self._state = FrontState.SASL
        if initial_response:
            return self._response(initial_response)
        return [Send(_USER_PROMPT if self._mechanism == "LOGIN" else b"+ \r\n")]

    def _response(self, line: bytes) -> list[FrontEvent]:
        if line == b"*":
            return self._bad_command(b"Authentication cancelled.")
        try:
            if self._gss is not None:
                token = self._gss.respond(line)
                self._state = FrontState.PARKED
                return [token]
            credentials = self._credentials(sasl.decode_base64(line))
        except BadSaslMessage as error:
            return self._bad_command(b"Bad response: " + str(error).encode())
        return self._park(credentials) if credentials else [Send(_PASSWORD_PROMPT)]

    def _credentials(self, message: bytes) -> Credentials | None:
        """What the client's SASL message says; None when LOGIN has only its name yet. Raises `BadSaslMessage`."""
        match self._mechanism:
            case "PLAIN":
                return sasl.parse_plain(message)
            case "XOAUTH2":
                return sasl.parse_xoauth2(message)
            case "OAUTHBEARER":
                return sasl.parse_oauthbearer(message)
        value = sasl.text(message)
        if not value:
            raise BadSaslMessage("empty")
        if self._login_name is None:
            self._login_name = value
            return None
        return Credentials("LOGIN", self._login_name, password=value)

    def _stls(self, argument: bytes) -> list[FrontEvent]:
        if self._tls or not self._starttls or argument:
            return self._bad_command(b"TLS is active." if self._tls else b"STLS is not possible.")
        # What was pipelined after STLS was not protected and must not be obeyed as if it were (field case 79).
        self._lines.clear()
        self._state = FrontState.STARTING_TLS
        return [Send(b"+OK Begin TLS.\r\n"), StartTls()]

    def _quit(self, argument: bytes) -> list[FrontEvent]:  # noqa: ARG002
        self._close()
        return [Send(b"+OK Goodbye.\r\n"), Close("quit")]

    def _utf8_command(self, argument: bytes) -> list[FrontEvent]:
        if not self._utf8_offered or argument:
            return self._bad_command(b"UTF8 is not possible.")
        self.utf8 = True
        return [Send(b"+OK UTF8 enabled.\r\n")]

    def _xclient(self, argument: bytes) -> list[FrontEvent]:
        """Not offered, and nothing is believed but that fewer proxies may follow: so front ends stop a loop (C11)."""
        name, _, value = argument.upper().partition(b"=")
        if name != b"TTL" or not value.isdigit() or len(value) > MAX_TTL_DIGITS:
            return self._bad_command(_UNKNOWN)
        self.ttl = min(self.ttl, int(value))
        return [Send(b"+OK Noted.\r\n")]

    def _lang(self, argument: bytes) -> list[FrontEvent]:
        if not argument:
            return [_listing(b"Language listing follows", list(_LANGUAGES))]
        tag = argument.lower()
        if tag not in (b"*", b"i-default", b"en"):
            return self._bad_command(b"No such language.")
        return [Send(b"+OK %b Language set.\r\n" % (b"i-default" if tag == b"*" else tag))]

    _HANDLERS: ClassVar[dict[bytes, Callable[[Pop3Front, bytes], list[FrontEvent]]]] = {
        b"CAPA": _capa,
        b"USER": _user_command,
        b"PASS": _pass_command,
        b"AUTH": _auth,
        b"STLS": _stls,
        b"QUIT": _quit,
        b"UTF8": _utf8_command,
        b"LANG": _lang,
        b"XCLIENT": _xclient,
    }


def _listing(title: bytes, lines: list[bytes]) -> Send:
    return Send(CRLF.join([b"+OK " + title, *lines, b".", b""]))
