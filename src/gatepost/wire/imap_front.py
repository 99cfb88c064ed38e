"""IMAP with the client until the hand-over: greeting, CAPABILITY, ID, NOOP, STARTTLS, LOGIN, AUTHENTICATE, LOGOUT.

    bytes ──► LineBuffer ──► CommandReader ──► ImapFront ──► events
                                                  │
              STARTTLS: wait for `tls_started`    │   SignIn: parked until `signed_in` or `refuse`

Everything sent on is made anew from parsed values, so no reading of ours can differ from the mailbox server's.
Sources: RFC 3501 and 9051 (syntax, section 9), RFC 4959 (initial responses), RFC 7888 (literals), RFC 2971 (ID),
RFC 5530 and 2221 (response codes), RFC 7628 (bearer tokens).

A lone LF is taken as a line end: people and scripts type `nc`, other servers allow it, and nothing is forwarded as it
came, so it can smuggle nothing. NUL and a lone CR are refused.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import ClassVar

from gatepost.wire import sasl
from gatepost.wire.events import (
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
from gatepost.wire.front_state import ImapState as _State
from gatepost.wire.imap_command import Command, CommandReader, Fault, LiteralWanted
from gatepost.wire.imap_id import proxy_ttl
from gatepost.wire.imap_plain_login import plain_login
from gatepost.wire.imap_sasl import BEARER, KERBEROS, PASSWORD, SaslExchange
from gatepost.wire.imap_syntax import Arguments, BadSyntax, LineBuffer, LineTooLong, capability_list, human, id_fields
from gatepost.wire.imap_words import MAX_TEXT, greeting_line, offered, refusal_text

MAX_COMMANDS = 1000
"""Commands before the sign-in, good or bad: keeps what can pile up in an unread connection small.

Clients need under ten."""

_HTTP = re.compile(rb"[A-Z]+ \S+ HTTP/[0-9.]+\Z")


class ImapFront:
    """The dialogue with one client. `tls`: the connection is encrypted already; `starttls`: it can be made so.

    `clear_passwords` allows sign-ins without TLS, `bearer` offers XOAUTH2 and OAUTHBEARER, `kerberos` GSSAPI. After
    `bad_commands` commands that are not understood, or `sign_in_attempts` sign-ins refused as wrong or busy, the
    connection is ended.
    """

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
    ) -> None:
        self._tls = tls
        self._starttls = starttls
        self._clear_passwords = clear_passwords
        self._mechanisms = PASSWORD + (BEARER if bearer else ()) + (KERBEROS if kerberos else ())
        self.exchanges: tuple[bytes, ...] = ()
        """Further mechanisms of `sasl.LED_ELSEWHERE` that are offered, as the driver says; TLS may change them."""
        self._banner = banner
        self._token_help = token_help
        self._max_bad = bad_commands
        self._max_attempts = sign_in_attempts
        self._bad = self._attempts = self._commands = 0
        self._lines = LineBuffer()
        self._state = _State.COMMAND
        self._events: list[FrontEvent] = []
        self._reader = CommandReader(self._lines)
        self._tag: bytes | None = None
        self._exchange: SaslExchange | None = None
        self._credentials: Credentials | None = None
        self.client_id: tuple[tuple[str, str], ...] = ()
        """Fields of the client's last ID command, as it wrote them; untrusted."""

    @property
    def ttl(self) -> int:
        """How many proxies may still hand this session on."""
        return proxy_ttl(self.client_id)

    @property
    def rest(self) -> bytes:
        """What the client sent behind its sign-in: for the mailbox server, after its sign-in, once (field case 35)."""
        return self._lines.everything()

    @property
    def buffered(self) -> int:
        """Bytes received and not used yet; grows while parked, so the driver should pause reading."""
        return len(self._lines)

    def greeting(self) -> bytes:
        """The first line of the connection."""
        return greeting_line(self._capabilities(), self._banner)

    def receive(self, data: bytes) -> list[FrontEvent]:
        """Take bytes from the client."""
        if self._state is _State.COMMAND and not self._lines and not self._reader.in_command:
            fast = self._whole_login(data)
            if fast is not None:
                return fast
        if self._state in (_State.TLS, _State.CLOSED):
            return []  # field case 79: nothing said in clear after STARTTLS is ever looked at
        self._lines.add(data)
        return self._run()

    def tls_started(self) -> list[FrontEvent]:
        """The handshake is done. All that was learnt in clear is forgotten (RFC 9051 section 6.2.1)."""
        if self._state is _State.TLS:
            self._tls = True
            self._state = _State.COMMAND
            self._lines.clear()
            self.client_id = ()
        return []

    def signed_in(self, capabilities: bytes | None, text: bytes) -> bytes:
        """The tagged OK; `capabilities` are the mailbox server's own (field cases 46, 47). Then take `rest`."""
        assert self._state is _State.PARKED, "no sign-in is waiting"
        self._state = _State.SIGNED_IN
        code = b"" if capabilities is None else b"[CAPABILITY %s] " % capability_list(capabilities)
        return b"%s OK %s%s\r\n" % (self._tag, code, human(text, MAX_TEXT, b"Signed in"))

    def refuse(self, refusal: Refusal, text: str = "", server: str = "") -> list[FrontEvent]:
        """Answer the parked sign-in and go on with what was pipelined behind it, which may hold another sign-in.

        `text` replaces the standard words; `server` is the right server's name for `OTHER_SERVER` (RFC 2221).
        """
        assert self._state is _State.PARKED, "no sign-in is waiting"
        self._state = _State.COMMAND
        if refusal is Refusal.BUSY:
            self._attempts += 1
        elif refusal in sasl.TOKEN_REFUSED:
            self._attempts += 1
            challenge = self._exchange.error_challenge(refusal, self._token_help) if self._exchange else None
            if challenge is not None:
                self._say(b"+ %s\r\n" % challenge)
                self._state = _State.DISMISSED
                return self._run()
        self._say_refused(refusal, text, server)
        return self._run()

    def challenge(self, token: bytes) -> list[FrontEvent]:
        """The next token of the exchange that waits; the client answers it."""
        assert self._state is _State.PARKED, "no sign-in is waiting"
        self._say(b"+ %s\r\n" % base64.b64encode(token))
        self._state = _State.SASL
        return self._run()

    def bye(self, text: str) -> bytes:
        """The last line of a connection that the server ends: time-outs, shut-down."""
        self._state = _State.CLOSED
        return b"* BYE %s\r\n" % human(text.encode("utf-8", "replace"), MAX_TEXT, b"Closing")

    # What a client may do here, in words (one source for greeting, CAPABILITY and the refusals; field case 29).

    def _capabilities(self) -> bytes:
        mechanisms = self._mechanisms + self.exchanges if self._passwords_allowed() else None
        return offered(mechanisms, starttls=self._starttls and not self._tls)

    def _passwords_allowed(self) -> bool:
        return self._tls or self._clear_passwords

    # Reading

    def _whole_login(self, data: bytes) -> list[FrontEvent] | None:
        """The usual sign-in, whole in one piece: same outcome as the general way, in a third of its time."""
        found = plain_login(data) if self._passwords_allowed() and self._commands < MAX_COMMANDS else None
        if found is None:
            return None
        tag, credentials, end = found
        self._commands += 1
        self._tag = tag
        self._exchange = None
        self._credentials = credentials
        self._state = _State.PARKED
        if end < len(data):
            self._lines.add(data[end:])
        return [SignIn(credentials)]

    def _run(self) -> list[FrontEvent]:
        while (step := self._STEPS.get(self._state)) is not None:
            try:
                if not step(self):
                    break
            except LineTooLong:  # a SASL response
                self._bad_command(b"Response too long")
                self._end("response too long")
        events, self._events = self._events, []
        return events

    def _read_command(self) -> bool:
        match self._reader.next(self._wants_literals):
            case None:
                return False
            case LiteralWanted():
                self._say(b"+ OK\r\n")
            case Fault(tag, text, fatal):
                self._tag = tag
                self._bad_command(text)
                if fatal:
                    self._end(text.decode().lower())
            case Command() as command:
                self._tag = command.tag
                self._act(command)
        return True

    def _wants_literals(self, name: bytes) -> bool:
        return name == b"ID" or (name == b"LOGIN" and self._passwords_allowed())

    def _act(self, command: Command) -> None:
        action = self._COMMANDS.get(command.name) if command.tag else None
        self._commands += 1
        if self._commands > MAX_COMMANDS:
            self._say(b"* BYE Too many commands\r\n")
            self._end("too many commands")
        elif not command.is_clean:
            self._bad_command(b"Invalid character")
        elif action is None:
            if _HTTP.match(command.parts[0]):
                self._bad = self._max_bad  # a browser was sent here (field case 93)
            self._bad_command(b"Unknown command, or not possible before signing in")
        else:
            try:
                action(self, command.arguments)
            except (BadSyntax, sasl.BadSaslMessage) as error:
                self._bad_command(str(error).encode())

    # Commands

    def _capability(self, arguments: Arguments) -> None:
        arguments.end()
        self._say(b"* CAPABILITY %s\r\n" % self._capabilities())
        self._answer(b"OK", b"Capabilities listed")

    def _noop(self, arguments: Arguments) -> None:
        arguments.end()
        self._answer(b"OK", b"Nothing done")

    def _logout(self, arguments: Arguments) -> None:
        arguments.end()
        self._say(b"* BYE Signing out\r\n")
        self._answer(b"OK", b"Signed out")
        self._end("logout")

    def _id(self, arguments: Arguments) -> None:
        arguments.space()
        self.client_id = id_fields(arguments)
        self._say(b'* ID ("name" "Gatepost")\r\n')
        self._answer(b"OK", b"ID noted")

    def _start_tls(self, arguments: Arguments) -> None:
        arguments.end()
        if self._tls or not self._starttls:
            raise BadSyntax("TLS is on already" if self._tls else "TLS is not available")
        self._answer(b"OK", b"Begin TLS now")
        self._state = _State.TLS
        self._lines.clear()
        self._events.append(StartTls())

    def _login(self, arguments: Arguments) -> None:
        if not self._passwords_allowed():
            self._privacy_required()
            return
        arguments.space()
        user = arguments.astring()
        arguments.space()
        password = arguments.astring()
        arguments.end()
        self._exchange = None
        self._park(Credentials("LOGIN", sasl.text(user), password=sasl.text(password)))

    def _authenticate(self, arguments: Arguments) -> None:
        arguments.space()
        mechanism = arguments.atom().upper()
        initial: bytes | None = None
        if not arguments.at_end():
            arguments.space()
            initial = arguments.atom()
        arguments.end()
        if not self._passwords_allowed():
            self._privacy_required()
        elif mechanism not in self._mechanisms and mechanism not in self.exchanges:
            self._answer(b"NO", b"Unsupported mechanism")
        else:
            self._exchange = SaslExchange(mechanism)
            self._go_on(self._exchange.start(initial))

    def _read_response(self) -> bool:
        assert self._exchange is not None
        line = self._lines.line(self._exchange.max_response)
        if line is None:
            return False
        self._state = _State.COMMAND
        try:
            if line == b"*":
                raise sasl.BadSaslMessage("Authentication aborted")  # noqa: TRY301
            self._go_on(self._exchange.respond(line))
        except sasl.BadSaslMessage as error:
            self._bad_command(str(error).encode())
        return True

    def _go_on(self, outcome: bytes | Credentials | GssToken) -> None:
        """Ask the client for its next response, or have its credentials checked."""
        if isinstance(outcome, Credentials):
            self._park(outcome)
        elif isinstance(outcome, GssToken):
            self._credentials = Credentials(outcome.mechanism, "")
            self._state = _State.PARKED
            self._events.append(outcome)
        else:
            self._say(b"+ %s\r\n" % outcome)
            self._state = _State.SASL

    def _read_dismissal(self) -> bool:
        """The client's line after the error challenge; the refusal stands (RFC 7628 section 3.2.3)."""
        if self._lines.line(sasl.MAX_INITIAL_RESPONSE) is None:
            return False
        self._state = _State.COMMAND
        self._say_refused(Refusal.WRONG_CREDENTIALS, "", "")
        return True

    # Answers

    def _park(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._state = _State.PARKED
        self._events.append(SignIn(credentials))

    def _say(self, data: bytes) -> None:
        if self._events and isinstance(last := self._events[-1], Send):
            self._events[-1] = Send(last.data + data)
        else:
            self._events.append(Send(data))

    def _answer(self, status: bytes, text: bytes) -> None:
        self._say(b"%s %s %s\r\n" % (self._tag or b"*", status, text))

    def _privacy_required(self) -> None:
        self._answer(b"NO", b"[PRIVACYREQUIRED] TLS is needed to sign in")

    def _bad_command(self, text: bytes) -> None:
        self._exchange = None
        self._answer(b"BAD", text)
        self._bad += 1
        if self._bad >= self._max_bad:
            self._say(b"* BYE Too many bad commands\r\n")
            self._end("too many bad commands")

    def _say_refused(self, refusal: Refusal, text: str, server: str) -> None:
        assert self._credentials is not None
        words = refusal_text(refusal, text, server, self._credentials)
        self._credentials = self._exchange = None
        self._answer(b"NO", words)
        if self._attempts >= self._max_attempts:
            self._say(b"* BYE Too many failed sign-ins\r\n")
            self._end("too many failed sign-ins")

    def _end(self, reason: str) -> None:
        if self._state is not _State.CLOSED:
            self._state = _State.CLOSED
            self._lines.clear()
            self._events.append(Close(reason))

    _STEPS: ClassVar[dict[_State, Callable[[ImapFront], bool]]] = {
        _State.COMMAND: _read_command,
        _State.SASL: _read_response,
        _State.DISMISSED: _read_dismissal,
    }
    """What reads next in each state; False: more bytes are needed. In the others nothing is read."""

    _COMMANDS: ClassVar[dict[bytes, Callable[[ImapFront, Arguments], None]]] = {
        b"AUTHENTICATE": _authenticate,
        b"CAPABILITY": _capability,
        b"ID": _id,
        b"LOGIN": _login,
        b"LOGOUT": _logout,
        b"NOOP": _noop,
        b"STARTTLS": _start_tls,
    }
