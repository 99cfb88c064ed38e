"""What all commands of our SMTP server share: states, answers, counts of faults, the end of a session."""

from __future__ import annotations

from enum import Enum, auto

from gatepost.organization.transport import ReceiveConnector
from gatepost.wire import smtp_server_replies as replies
from gatepost.wire.events import Close, Send, TokenHelp
from gatepost.wire.shadow_words import ShadowOffer
from gatepost.wire.smtp_server_content import Content
from gatepost.wire.smtp_server_events import ClientClaim, Judge, ServerEvent, Wait
from gatepost.wire.smtp_server_rights import mechanisms, rights_of

MAX_IDLE_COMMANDS = 100
"""Commands without a message in between that cost a client nothing: NOOP, RSET, VRFY, those out of order. The
recipients of one message are free besides: those of a refused MAIL may have been sent ahead."""


class State(Enum):
    """Where a session is. `PARKED`: the driver has been asked for something, and what comes in is only kept."""

    GREETING = auto()
    COMMAND = auto()
    SASL = auto()
    DATA = auto()
    CHUNK = auto()
    PARKED = auto()
    CLOSED = auto()


class SmtpServerCore:
    """See `SmtpServer`, which is made of this, for the parameters."""

    def __init__(
        self,
        connector: ReceiveConnector,
        host: str,
        judge: Judge,
        *,
        tls: bool = False,
        starttls: bool = False,
        sign_in: bool = False,
        kerberos: bool = False,
        scram: bool = False,
        tokens: TokenHelp | None = None,
        xclient: bool = False,
        server: str = "",
        partner: bool = False,
        claim: ClientClaim | None = None,
        shadow: ShadowOffer | None = None,
    ) -> None:
        self._connector = connector
        self._host = connector.fqdn or host
        self._judge = judge
        self._starttls = starttls
        self._can_sign_in = sign_in
        self._kerberos = kerberos
        self._scram = scram
        self._token_help = tokens
        self._xclient = xclient
        self._shadow = shadow
        self._state = State.GREETING
        self._events: list[ServerEvent] = []
        self._out: list[bytes] = []
        """Replies since the last event."""
        self._buffer = b""
        self._at = 0
        """Where in `_buffer` what has not been read begins."""
        self._errors = self._failures = self._idle = 0
        self._after_wait = b""
        self._stopping = False
        self._in_message = False
        """MAIL has been taken, and the message neither stored nor given up."""
        self._utf8 = False
        self._recipients = 0
        self._refused_recipients = 0
        self._content: Content | None = None
        self._swallowed = 0
        """Octets of refused chunks since the last message that was taken."""
        self._chunks_failed = False
        """A chunk was refused: those that follow are swallowed until the message is given up."""
        self.tls = tls
        self.server = server
        self.partner = partner
        self.user = claim.login if claim is not None else ""
        """Who has signed in."""
        self.name = ""
        """What the client called itself."""
        self.esmtp = False
        self.lingers = False
        """At `Close`: the client may be in the midst of sending. Read on and drop for a while, or it misses why."""
        self.reason = ""
        """Why the session ended, in a few words."""
        self.messages = 0
        """Messages taken."""
        self._new_standing()

    @property
    def buffered(self) -> int:
        """Octets that wait while the session is parked."""
        return len(self._buffer) - self._at

    @property
    def in_content(self) -> bool:
        """A message's content is on its way, or it is being stored."""
        return self._content is not None

    @property
    def trusted(self) -> bool:
        """Whether the client is a server of the organization."""
        return self._rights.trusted

    @property
    def _offers_shadow(self) -> bool:
        """Whether the client is a hub of the organization, by its certificate, and may speak of shadows."""
        shadow = self._shadow
        return shadow is not None and self.tls and self._rights.certified and self.server in shadow.servers

    def _new_standing(self) -> None:
        """Something is known of the client that was not before."""
        connector = self._connector
        self._rights = rights_of(connector, user=bool(self.user), server=bool(self.server), partner=self.partner)
        self._mechanisms = () if self.user else self._possible(tls=self.tls)

    def _possible(self, *, tls: bool) -> tuple[str, ...]:
        """Mechanisms of AUTH, within TLS or without."""
        if not self._can_sign_in:
            return ()
        tokens, kerberos = self._token_help is not None, self._kerberos
        return mechanisms(self._connector, tls=tls, kerberos=kerberos, tokens=tokens, scram=self._scram)

    def _reset(self) -> None:
        self._in_message = self._utf8 = self._chunks_failed = False
        self._recipients = self._refused_recipients = 0
        self._content = None

    def _give_up(self) -> None:
        """Forget the message that has begun, if one has."""
        if self._in_message:
            self._judge.forget()
        self._reset()

    def _error(self, reply: bytes) -> None:
        """A fault of the client's: it is counted."""
        self._errors += 1
        self._out.append(reply)
        if self._errors >= self._connector.max_protocol_errors and not self._rights.trusted:
            self._end(replies.TOO_MANY_ERRORS, "too many errors")

    def _spend(self, reply: bytes = b"") -> None:
        """Count a command that costs the client nothing. Out of order ones too: they may have been sent ahead."""
        self._idle += 1
        if reply:
            self._out.append(reply)
        if self._idle > MAX_IDLE_COMMANDS + self._connector.max_recipients and not self._rights.trusted:
            self._end(replies.TOO_MANY_COMMANDS, "too many commands")

    def _slow(self, reply: bytes) -> None:
        """A refusal that strangers wait for (tarpit)."""
        seconds = self._connector.tarpit_seconds
        if seconds > 0 and not self._rights.trusted and not self.user:
            self._wait(seconds, reply)
        else:
            self._out.append(reply)

    def _wait(self, seconds: float, reply: bytes) -> None:
        self._after_wait = reply
        self._park(Wait(seconds))

    def _park(self, event: ServerEvent) -> None:
        self._state = State.PARKED
        if self._out:
            self._events.append(Send(b"".join(self._out)))
            self._out.clear()
        self._events.append(event)

    def _flush(self) -> list[ServerEvent]:
        """The events to be carried out now."""
        events = self._events
        if self._out:
            events.append(Send(b"".join(self._out)))
            self._out.clear()
        if events:
            self._events = []
        return events

    def _end(self, reply: bytes, reason: str, *, lingers: bool = True) -> None:
        """Say `reply` and end the session; nothing that came after is looked at."""
        if self._state is State.CLOSED:
            return
        self._give_up()
        if reply:
            self._out.append(reply)
        self._park(Close(reason))
        self._state = State.CLOSED
        self._buffer = b""
        self._at = 0
        self.lingers = lingers
        self.reason = reason
