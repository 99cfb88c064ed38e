"""The client's side of an IMAP, POP3 or submission session, from its greeting to the relay."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from gatepost.access import mail_exchanges, tasks
from gatepost.access.addresses import client_address, own_address
from gatepost.access.carry import carry_over_for, without_compression
from gatepost.access.mail_reach import MailReach, NotReached
from gatepost.access.mail_relayed import Phase, RelayedLeg
from gatepost.access.mail_sign_in import Introduction
from gatepost.directory.certificate_sign_in import ExternalExchange
from gatepost.directory.kerberos_port import NO_KERBEROS, Accepted, Challenge, KerberosExchange
from gatepost.directory.policy.policy import TooManySessions
from gatepost.directory.port import SignInResult, User, Verdict
from gatepost.directory.scram import ScramExchange
from gatepost.organization.names import MAX_LOGIN_NAME
from gatepost.relay.relay import Relay
from gatepost.routing.decision import Target
from gatepost.wire.events import (
    ClientFacts,
    Close,
    Credentials,
    FrontEvent,
    GssToken,
    Refusal,
    Send,
    SignedIn,
    SignIn,
    StartTls,
)
from gatepost.wire.imap_front import ImapFront
from gatepost.wire.proxy_protocol import ProxyHeader

if TYPE_CHECKING:
    from gatepost.access.mail_door import MailDoor

MAX_PIPELINED = 64 * 1024
"""Bytes a client may send ahead while its sign-in is under way; then reading pauses."""


class MailClientLeg(RelayedLeg):
    """One client connection. Callbacks until the hand-over, then the relay owns the transport."""

    __slots__ = ("_bindings", "_deadline", "_events", "_failures", "_front", "_held", "_proof", "_proxy", "_reach",
                 "_starttls", "_ticket")  # fmt: skip

    door: MailDoor

    def __init__(self, door: MailDoor, *, tls: bool, starttls: bool, proxy: ProxyHeader | None) -> None:
        super().__init__(door, tls=tls or (proxy is not None and proxy.tls))
        self._starttls = starttls
        self._proxy = proxy
        self._events: list[FrontEvent] | None = None
        self._failures: list[str] = []
        self._held: tuple[str, ...] = ()
        """What the limits of sessions count it by."""
        self._proof = b""
        """What the password that was right is remembered by."""
        self._ticket: KerberosExchange | None = None
        self._bindings = mail_exchanges.NO_BINDINGS
        """What SCRAM can bind the client's channel by."""
        self._reach: MailReach | None = None
        """The sign-in that is on its way to the mailbox server."""

    # --- transport callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet, or turn the client away when there are too many."""
        door = self.door
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        transport = self._transport
        self._since = door.loop.time()
        self._deadline = self._since + door.limits.sign_in_seconds
        self._address = client_address(transport, self._proxy)
        self._front = door.front(tls=self._tls, starttls=self._starttls)
        self._offer()
        self.session = door.new_session()
        if door.draining or not door.admission.arrive(self._address[0]):
            self.phase = Phase.CLOSED
            transport.write(self._front.bye("too many connections, try again later"))
            transport.close()
            return
        door.pending.add(self)
        transport.write(self._front.greeting())

    def data_received(self, data: bytes) -> None:
        """Bytes of the dialogue; while a sign-in is under way the machine only keeps them."""
        events = self._front.receive(data)
        if events:
            self._run(events)
        elif self.phase is not Phase.DIALOGUE and self._front.buffered > MAX_PIPELINED:
            self._transport.pause_reading()

    # --- events of the front machine

    def _run(self, events: list[FrontEvent]) -> None:
        """Carry the events out. A refusal within brings further ones: they join the list that is being worked off.

        No recursion: a client may send a thousand sign-ins at once.
        """
        if self._events is not None:
            self._events += events
            return
        self._events = events
        try:
            self._carry_out(events)
        finally:
            self._events = None

    def _carry_out(self, events: list[FrontEvent]) -> None:
        for event in events:
            if type(event) is Send:
                self._transport.write(event.data)
            elif type(event) is SignIn:
                self._check(event.credentials)
            elif type(event) is GssToken:
                self._check_ticket(event)
            elif type(event) is StartTls:
                # Before the client has our OK, so that its first TLS bytes are not read as a command.
                self._transport.pause_reading()
                self.phase = Phase.HANDSHAKE
                self._task = tasks.start(self._start_tls(), f"{self.session} starttls")
            elif type(event) is Close:
                self._reason = self._reason or event.reason
                self._transport.close()

    async def _start_tls(self) -> None:
        door = self.door
        assert door.starttls is not None
        try:
            async with asyncio.timeout(max(self._deadline - door.loop.time(), 0.1)):
                transport = await door.loop.start_tls(self._transport, self, door.starttls.current, server_side=True)
            if transport is None:
                raise ConnectionResetError
        except (OSError, ssl.SSLError, TimeoutError) as error:
            # The loop does not tell a protocol of a connection that is lost within its handshake.
            self._task = None
            self._reason = f"TLS handshake failed: {getattr(error, 'verify_message', '') or type(error).__name__}"
            self._transport.abort()
            self._finish()
            return
        self._task = None
        self._transport = transport
        self._tls = True
        self.phase = Phase.DIALOGUE
        self._offer()
        self._run(self._front.tls_started())

    def _offer(self) -> None:
        """Mechanisms that TLS has a part in."""
        self._bindings = mail_exchanges.channel_bindings(self._transport)
        self._front.exchanges = mail_exchanges.offered(self.door, self._transport, self._bindings)

    def _check(self, credentials: Credentials) -> None:
        self.phase = Phase.CHECKING
        door = self.door
        self._user = credentials.authentication_id[:MAX_LOGIN_NAME]
        now = door.sign_in.token_now if credentials.token else door.sign_in.password_now
        secret = credentials.token or credentials.password
        result = now(credentials.authentication_id, secret, door.protocol, self._address[0])
        if result is not None:
            self._judged(result, credentials)
            return
        self._task = tasks.start(self._check_later(credentials), f"{self.session} sign-in")

    async def _check_later(self, credentials: Credentials) -> None:
        door = self.door
        started = door.loop.time()
        name = credentials.authentication_id
        if credentials.token:
            result = await door.sign_in.token(name, credentials.token, door.protocol, self._address[0])
        else:
            result = await door.sign_in.password(name, credentials.password, door.protocol, self._address[0])
        await self._take_verdict(result, credentials, started)

    async def _take_verdict(self, result: SignInResult, credentials: Credentials, started: float) -> None:
        door = self.door
        if result.verdict is Verdict.WRONG_CREDENTIALS or result.verdict is Verdict.BUSY:
            # The same time for a wrong password and an unknown user, whatever the check took; and whoever fills the
            # queue of checks gains nothing by asking more often.
            left = started + door.limits.refused_sign_in_delay_seconds - door.loop.time()
            await asyncio.sleep(max(left, 0.0))
        self._task = None
        if self.phase is Phase.CHECKING:
            self._judged(result, credentials)

    def _check_ticket(self, event: GssToken) -> None:
        self.phase = Phase.CHECKING
        if event.first:
            self._user = ""
            self._ticket = mail_exchanges.begin(
                self.door, event.mechanism, self._transport, self._address[0], self._bindings
            )
        self._task = tasks.start(self._check_ticket_later(event), f"{self.session} sign-in")

    async def _check_ticket_later(self, event: GssToken) -> None:
        door, exchange, token = self.door, self._ticket, event.token
        started = door.loop.time()
        credentials = Credentials(event.mechanism, "")
        outcome = NO_KERBEROS if exchange is None else await exchange.step(token)
        if isinstance(outcome, Challenge):
            self._task = None
            if self.phase is Phase.CHECKING:
                self.phase = Phase.DIALOGUE
                events = self._front.challenge(outcome.token)
                self._transport.resume_reading()
                self._run(events)
            return
        self._ticket = None
        if isinstance(outcome, Accepted):
            self._user = outcome.principal[:MAX_LOGIN_NAME]
            credentials = Credentials("GSSAPI", outcome.name, outcome.authorization_id)
            outcome = await door.sign_in.user_of_ticket(outcome.name, door.protocol, self._address[0])
        elif isinstance(exchange, ScramExchange | ExternalExchange):
            credentials = exchange.credentials
            self._user = credentials.authentication_id[:MAX_LOGIN_NAME]
        await self._take_verdict(outcome, credentials, started)

    def _judged(self, result: SignInResult, credentials: Credentials) -> None:
        user = result.user
        if result.verdict is Verdict.SIGNED_IN and user is not None:
            if not self.door.sign_in.is_name_of(credentials.authorization_id, user):
                self._refuse(Refusal.WRONG_CREDENTIALS, "another authorization identity")
                return
            self._user = user.name
            self._proof = result.proof
            if result.app_password:
                # The mailbox server does not know it.
                self.app_password, credentials = result.app_password, replace(credentials, password="")
            if credentials.token:
                credentials = replace(credentials, audiences=result.audiences)
            self.phase = Phase.CONNECTING
            self._task = tasks.start(self._connect(user, credentials), f"{self.session} connect")
        elif result.verdict is Verdict.WRONG_CREDENTIALS:
            self._refuse(Refusal.WRONG_CREDENTIALS, result.reason or "wrong credentials")
        elif result.verdict is Verdict.PROTOCOL_NOT_ALLOWED:
            refusal = Refusal.INSUFFICIENT_SCOPE if result.lacks else Refusal.PROTOCOL_NOT_ALLOWED
            self._refuse(refusal, result.reason or "protocol not allowed")
        else:
            refusal = Refusal.BUSY if result.verdict is Verdict.BUSY else Refusal.UNAVAILABLE
            self._refuse(refusal, result.reason or result.verdict.value)

    def _refuse(self, refusal: Refusal, reason: str, text: str = "", server: str = "") -> None:
        """Answer the sign-in with a refusal and go on with the dialogue. One log line each (field case 101)."""
        door = self.door
        client = self._address[0]
        fields = {"session": self.session, "user": self._user, "refusal": refusal.value, "reason": reason}
        if refusal is Refusal.BUSY:
            door.busy_log.refused(client, **fields)
        else:
            line = door.log.warning if refusal is Refusal.UNAVAILABLE else door.log.info
            line(door.refused_event, client=client, **fields, attempts=list(self._failures))
        self._outcome = "refused"
        self._reason = reason
        self._failures.clear()
        self._leave_limits()
        self.phase = Phase.DIALOGUE
        front = self._front
        events = front.refuse(refusal, text, server) if isinstance(front, ImapFront) else front.refuse(refusal, text)
        self._transport.resume_reading()
        self._run(events)

    # --- to the mailbox server

    async def _connect(self, user: User, credentials: Credentials) -> None:
        """Sign in where the active copy is, then hand over."""
        door = self.door
        self.database = user.mailbox.database or ""
        try:
            self._held = await door.sign_in.policy.enter(user.name, self._address[0])
        except TooManySessions as end:
            self._task = None
            self._refuse(Refusal.LIMIT, str(end))
            return
        reach = self._reach = MailReach(
            door, user, credentials, self._front, self._facts, self._address[0], self._deadline, self._going_to
        )
        try:
            signed_in = await reach.run()
        except NotReached as end:
            self._task = self._reach = None
            self._failures = reach.failures
            self._refuse(end.refusal, end.reason, end.text, end.server)
            return
        self._task = None
        if door.carries_over:
            told = Introduction(self._front.ttl, self._front.client_id)
            self.carry_over = carry_over_for(door, user, credentials, told, self._facts())
        self._hand_over(signed_in)

    def _going_to(self, target: Target, epoch: int) -> None:
        self._target, self.epoch = target, epoch

    def _facts(self) -> ClientFacts:
        address, own = self._address, own_address(self._transport, self._proxy)
        return ClientFacts(address[0], address[1], own[0], own[1], self._tls, self.session, self._front.ttl - 1)

    def _hand_over(self, signed_in: SignedIn) -> None:
        """From here on bytes only pass: what the client sent ahead goes first, exactly once."""
        door = self.door
        leg = self._reach.server_leg if self._reach is not None else None
        assert leg is not None
        if self._transport.is_closing():
            self._reason = "client closed"
            self._finish()
            return
        self._notes = leg.notes
        capabilities, carry_over = signed_in.capabilities, self.carry_over
        if carry_over is not None and capabilities is not None:
            capabilities = without_compression(capabilities)
        answer = self._front.signed_in(capabilities, signed_in.text)
        if signed_in.untagged or signed_in.rest:
            answer = signed_in.untagged + answer + signed_in.rest
        rest = self._front.rest
        self._outcome = "signed in"
        self._reason = ""
        self._settle()
        self.ends = door.notes() if carry_over is None else None
        watch = self.ends if carry_over is None else carry_over.tracker
        relay = Relay(self._transport, leg.transport, self._relay_ended, watch)
        if carry_over is not None:
            carry_over.joined(relay, capabilities or b"", signed_in.rest)
        self._relaying(relay)
        del self._front
        self._reach = None
        leg.relay = relay
        relay.start(answer, rest, client_full=self._full)

    # --- ends

    def _leave_limits(self) -> None:
        held, self._held = self._held, ()
        self.door.sign_in.policy.leave(held)

    def _let_go(self) -> None:
        self._leave_limits()
        if self.relay is not None:
            self.door.sign_in.still_right(self._user, self._proof)
        if self._reach is not None:
            self._reach.abort()
            self._reach = None

    def turn_away(self, text: str) -> None:
        """End the session before its relay began, in the protocol's words; within a handshake there are none."""
        self._reason = self._reason or text
        if self.phase is Phase.HANDSHAKE or self._transport.is_closing():
            self.gone = True  # nobody is told of a connection that is lost within its handshake
            self._transport.abort()
        else:
            self._transport.write(self._front.bye(text))
            self._transport.close()
        self._finish()

    def database_moved(self) -> None:
        """The epoch has changed: a sign-in under way need not wait for the server that had the database before."""
        if self._reach is not None:
            self._reach.database_moved()

    def check_deadline(self, now: float) -> None:
        """The absolute time for signing in, whatever the session is busy with (field case 103)."""
        if now < self._deadline:
            return
        if self._reach is not None or self.phase is Phase.CHECKING:
            self._reason = "sign-in took too long"
        self.turn_away("no sign-in in time")
