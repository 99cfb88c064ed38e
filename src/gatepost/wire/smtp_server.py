"""The server's side of SMTP for one receive connector (SPEC T1; RFC 5321, 2920, 3207, 4954 and more).

    GREETING ──greet()──► COMMAND ◄──► SASL            COMMAND ──DATA──► DATA ──end──► PARKED ──stored()──► COMMAND
                           │   ▲                               ──BDAT──► CHUNK ─LAST─►   "
                           ▼   │
              PARKED (Store, SignIn, Wait, LookUp, StartTls, Impersonate, OpenChannel) ──► CLOSED

Bytes in, events and bytes out; whatever is decided outside is asked of a `Judge`, at once. A line that ends in LF
alone, or has a CR within, ends the session, and nothing after it is looked at: no two servers can see different
commands in one stream (smtp-facts c.1, case 1). `bare_line_feeds` of a connector takes lines with LF alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from gatepost.wire import smtp_server_replies as replies
from gatepost.wire.events import Refusal, StartTls
from gatepost.wire.sasl import MAX_INITIAL_RESPONSE
from gatepost.wire.shadow_words import encode_hub, parse_hub
from gatepost.wire.smtp_command import BadCommand, parse_greeting, split_command
from gatepost.wire.smtp_reply import Reply
from gatepost.wire.smtp_server_auth import SmtpServerAuth
from gatepost.wire.smtp_server_core import State
from gatepost.wire.smtp_server_events import Impersonate, OpenChannel, ServerEvent
from gatepost.wire.smtp_server_mail import SmtpServerMail
from gatepost.wire.smtp_xclient import parse_xclient

MAX_COMMAND = 4096
"""Octets of a command line with its end: RFC 5321 has 512, extensions add their parameters (RFC 3461: 1000)."""
MAX_AUTH_LINE = MAX_INITIAL_RESPONSE + 64

_WEB = frozenset({b"GET", b"POST", b"PUT", b"HEAD", b"CONNECT", b"OPTIONS"})
"""Verbs of a browser that was led to us; what follows them may be a page's commands."""
_WITHOUT_TLS = frozenset({b"EHLO", b"HELO", b"NOOP", b"STARTTLS", b"QUIT", b"XCLIENT"})
"""What is answered before STARTTLS where TLS is required (RFC 3207, section 4)."""


class SmtpServer(SmtpServerAuth):
    """One session. `host` is our name; `tls`: the connection is protected already; `starttls`: it can be.

    `sign_in`: passwords can be checked, `kerberos`: tickets too, `scram`: SCRAM is offered, `tokens`: bearer tokens,
    with what is told of them; `xclient`: the peer may speak for others.
    `server`: the server of the organization at the other end, `partner`: its certificate is verified. `claim` is what a
    listed peer said of the client: its user is believed. `shadow` is what hubs of the organization are offered of
    shadow redundancy.
    """

    _handshaking = False

    # --- what the driver calls

    def greet(self) -> list[ServerEvent]:
        """The banner. What came before it is a fault of the client's."""
        if self._state is State.GREETING:
            self._state = State.COMMAND
            self._out.append(f"220 {self._connector.banner or self._host + ' ESMTP'}\r\n".encode("ascii", "replace"))
        return self._flush()

    def receive(self, data: bytes) -> list[ServerEvent]:
        """Octets of the client."""
        state = self._state
        if state is State.CLOSED:
            return []
        if state is State.GREETING:
            self._end(replies.TALKS_TOO_EARLY, "spoke before the greeting")
            return self._flush()
        if self._handshaking:
            self._end(b"", "octets after STARTTLS")
            return self._flush()
        if self._buffer:
            self._buffer = self._buffer[self._at :] + data
        else:
            self._buffer = data
        self._at = 0
        return self._run() if state is not State.PARKED else []

    def stored(self, reply: Reply) -> list[ServerEvent]:
        """What became of the message of `Store`."""
        if self._state is State.CLOSED:
            return []
        self._reset()
        if reply.positive:
            self.messages += 1
            self._idle = self._errors = self._swallowed = 0
        return self._go_on(reply.encode(), ends=reply.code == 421)

    def signed_in(self, user: str) -> list[ServerEvent]:
        """The credentials of `SignIn` are right; `user` is the canonical name."""
        if self._state is State.CLOSED:
            return []
        self.user = user
        self._new_standing()
        return self._go_on(replies.SIGNED_IN)

    def challenge(self, token: bytes) -> list[ServerEvent]:
        """The next token of the exchange that waits (`GssToken`); the client answers it."""
        if self._state is State.CLOSED:
            return []
        assert self._sasl is not None
        self._state = State.SASL
        self._out.append(self._sasl.ask(token))
        return self._run()

    def refuse(self, refusal: Refusal) -> list[ServerEvent]:
        """The credentials of `SignIn` are wrong, or could not be judged; only the first is told as a wrong password."""
        if self._state is State.CLOSED:
            return []
        if refusal is not Refusal.UNAVAILABLE:
            self._failures += 1
        if refusal in {Refusal.UNAVAILABLE, Refusal.BUSY, Refusal.LIMIT}:
            return self._go_on(replies.SIGN_IN_UNAVAILABLE)
        if refusal is Refusal.PROTOCOL_NOT_ALLOWED:
            return self._go_on(replies.NO_SUBMISSION)
        if self._told_of_token(refusal):
            return self._run()
        self._slow(replies.WRONG_CREDENTIALS)
        return self._flush() if self._events else self._go_on(b"")

    def waited(self) -> list[ServerEvent]:
        """The time of `Wait` is over."""
        return [] if self._state is State.CLOSED else self._go_on(self._after_wait)

    def looked_up(self) -> list[ServerEvent]:
        """What `LookUp` asks for is known, or cannot be known now."""
        asked, self._asked = self._asked, None
        if self._state is State.CLOSED or asked is None:
            return []
        self._state = State.COMMAND
        asked()
        return self._flush() if self._events else self._go_on(b"")

    def tls_started(self, *, server: str = "", partner: bool = False) -> list[ServerEvent]:
        """The handshake is done; all that the client said before is forgotten (RFC 3207, section 4.2)."""
        if self._state is State.CLOSED:
            return []
        self.tls = True
        self.server = server
        self.partner = partner
        self.name = ""
        self.esmtp = False
        self._handshaking = False
        self._new_standing()
        return self._go_on(b"")

    def stop(self) -> list[ServerEvent]:
        """The service ends: 421 now, or as soon as what is under way has been answered."""
        self._stopping = True
        if self._state is State.GREETING:
            self._state = State.COMMAND
        return self._run()

    def time_out(self, reply: bytes = replies.TIMED_OUT, reason: str = "timed out") -> list[ServerEvent]:
        """End the session at any moment with a 421."""
        self._end(reply, reason)
        return self._flush()

    def lost(self) -> None:
        """The connection is gone."""
        if self._state is not State.CLOSED:
            self._state = State.CLOSED
            self._give_up()

    # --- lines

    def _go_on(self, reply: bytes, *, ends: bool = False) -> list[ServerEvent]:
        self._state = State.COMMAND
        if ends:
            self._end(reply, "refused for the moment")
            return self._flush()
        if reply:
            self._out.append(reply)
        return self._run()

    def _run(self) -> list[ServerEvent]:
        """Work off what has come in, as far as it goes."""
        while True:
            state = self._state
            if state is State.COMMAND or state is State.SASL:
                if self._ends_now():
                    break
                line = self._take_line() if self._at < len(self._buffer) else None
                if line is None:
                    break
                if state is State.SASL:
                    self._respond(line)
                else:
                    self._command(line)
            elif state is State.DATA:
                if not self._buffer:
                    break
                self._read_data()
            elif state is State.CHUNK:
                if not self._read_chunk():
                    break
            else:
                break
        if self._at and self._at >= len(self._buffer):
            self._buffer = b""
            self._at = 0
        return self._flush()

    def _ends_now(self) -> bool:
        """Whether a limit or the end of the service has ended the session, now that the last answer is given."""
        if self._failures >= self._connector.max_logon_failures:
            self._end(replies.TOO_MANY_FAILURES, "too many failed sign-ins")
            return True
        if self._stopping and self._content is None:
            self._end(replies.STOPPING, "the service is stopping")
            return True
        return False

    def _take_line(self) -> bytes | None:
        """The next line without its end, None while it is incomplete or when it has ended the session."""
        buffer, at = self._buffer, self._at
        limit = MAX_COMMAND
        if self._state is State.SASL and self._sasl is not None:
            limit = self._sasl.max_response + 2
        elif buffer[at : at + 5].upper() == b"AUTH ":
            limit = MAX_AUTH_LINE
        end = buffer.find(b"\n", at, at + limit)
        if end < 0:
            if len(buffer) - at >= limit:
                self._end(replies.LINE_TOO_LONG, "a line too long")
            return None
        self._at = end + 1
        if end > at and buffer[end - 1] == 13:
            line = buffer[at : end - 1]
        elif self._connector.bare_line_feeds:
            line = buffer[at:end]
        else:
            self._end(replies.BAD_LINE_END, "a bare line feed")
            return None
        if b"\r" in line:
            self._end(replies.BAD_LINE_END, "a bare carriage return")
            return None
        return line

    def _command(self, line: bytes) -> None:
        verb, argument = split_command(line)
        command = self._COMMANDS.get(verb)
        if b"\0" in line or not verb:
            self._error(replies.SYNTAX)
        elif verb in _WEB:
            self._end(replies.NO_SMTP, "speaks HTTP")
        elif command is None:
            self._error(replies.UNKNOWN)
        elif self._connector.require_tls and not self.tls and verb not in _WITHOUT_TLS:
            self._error(replies.TLS_REQUIRED)
        else:
            command(self, argument)

    # --- commands

    def _ehlo(self, argument: bytes) -> None:
        self._greeting(argument, esmtp=True)

    def _helo(self, argument: bytes) -> None:
        self._greeting(argument, esmtp=False)

    def _greeting(self, argument: bytes, *, esmtp: bool) -> None:
        try:
            name = parse_greeting(argument)
        except BadCommand as bad:
            self._error(bad.reply.encode())
            return
        self._give_up()
        self.name = name
        self.esmtp = esmtp
        if not esmtp:
            self._spend(Reply(250, f"{self._host} Hello").encode())
            return
        self._spend(
            replies.extensions(
                self._connector,
                self._host,
                starttls=self._starttls and not self.tls,
                sign_in=self._mechanisms,
                tls=self.tls,
                xclient=self._xclient,
                shadow=self._shadow.own if self._shadow is not None and self._offers_shadow else None,
            )
        )

    def _rset(self, argument: bytes) -> None:
        if argument:
            self._error(replies.NO_ARGUMENT)
            return
        self._give_up()
        self._spend(replies.OK)

    def _noop(self, _argument: bytes) -> None:
        self._spend(replies.OK)

    def _vrfy(self, argument: bytes) -> None:
        self._spend(replies.NO_VERIFY if argument else replies.NEEDS_ARGUMENT)

    def _help(self, _argument: bytes) -> None:
        self._spend(replies.HELP)

    def _not_here(self, _argument: bytes) -> None:
        self._error(replies.NOT_HERE)

    def _quit(self, argument: bytes) -> None:
        if argument:
            self._error(replies.NO_ARGUMENT)
        else:
            self._end(replies.CLOSING, "quit", lingers=False)

    def _start_tls(self, argument: bytes) -> None:
        if argument:
            self._error(replies.NO_ARGUMENT)
        elif not self._starttls or self.tls:
            self._error(replies.NOT_HERE)
        elif self._in_message:
            self._error(replies.NOT_NOW)
        elif self._at < len(self._buffer):
            self._end(replies.INJECTED, "octets after STARTTLS")
        else:
            self._handshaking = True
            self._out.append(replies.READY_FOR_TLS)
            self._park(StartTls())

    def _introduce(self, argument: bytes) -> None:
        """XCLIENT: the peer speaks for another from here on."""
        if not self._xclient:
            self._error(replies.NOT_HERE)
        elif self._in_message:
            self._error(replies.NOT_NOW)
        else:
            try:
                claim = parse_xclient(argument)
            except ValueError:
                self._error(replies.BAD_CLAIM)
                return
            self._park(Impersonate(claim, self._buffer[self._at :]))
            self._state = State.CLOSED

    def _open_channel(self, argument: bytes) -> None:
        """XSHADOW: what follows is a shadow channel, in whatever packet it comes."""
        if self._shadow is None or not self._offers_shadow:
            self._error(replies.NOT_HERE)
            return
        if not self.esmtp:
            self._error(replies.GREET_FIRST)
            return
        if self._in_message:
            self._error(replies.NOT_NOW)
            return
        try:
            hub = parse_hub(argument.decode("ascii"))
        except ValueError:
            self._error(replies.BAD_HUB)
            return
        if hub.server != self.server:
            self._error(replies.NOT_THAT_HUB)
            return
        self._out.append(Reply(250, encode_hub(self._shadow.own), "2.0.0").encode())
        self._park(OpenChannel(hub, self._buffer[self._at :]))
        self._state = State.CLOSED

    _COMMANDS: ClassVar[dict[bytes, Callable[[SmtpServer, bytes], None]]] = {
        b"MAIL": SmtpServerMail.mail, b"RCPT": SmtpServerMail.rcpt, b"DATA": SmtpServerMail.data,
        b"BDAT": SmtpServerMail.bdat, b"EHLO": _ehlo, b"HELO": _helo, b"RSET": _rset, b"NOOP": _noop, b"QUIT": _quit,
        b"STARTTLS": _start_tls, b"AUTH": SmtpServerAuth.auth, b"VRFY": _vrfy, b"HELP": _help, b"XCLIENT": _introduce,
        b"XSHADOW": _open_channel,
        b"EXPN": _not_here, b"TURN": _not_here, b"ETRN": _not_here,
    }  # fmt: skip
