"""The client's side of an IMAP or POP3 session, from its greeting to the relay."""

from __future__ import annotations

import asyncio
import ssl
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

from gatepost.access import tasks
from gatepost.access.addresses import client_address, own_address
from gatepost.access.carry import CarryOver, carry_over_for, without_compression
from gatepost.access.mail_reach import MailReach, NotReached
from gatepost.access.mail_sign_in import Introduction
from gatepost.access.sessions import times
from gatepost.directory.port import SignInResult, User, Verdict
from gatepost.organization.names import MAX_LOGIN_NAME, BadLoginName, canonical_login_name
from gatepost.relay.noting import ImapTails, Notes
from gatepost.relay.relay import Relay
from gatepost.routing.decision import Proxy, Serve, Target
from gatepost.wire.events import (
    ClientFacts,
    Close,
    Credentials,
    FrontEvent,
    Refusal,
    Send,
    SignedIn,
    SignIn,
    StartTls,
)
from gatepost.wire.imap_front import ImapFront
from gatepost.wire.proxy_protocol import ProxyHeader

GONE = "the mailbox server has gone, please connect again"

if TYPE_CHECKING:
    from gatepost.access.mail_door import MailDoor

MAX_PIPELINED = 64 * 1024
"""Bytes a client may send ahead while its sign-in is under way; then reading pauses."""


class Phase(Enum):
    """Where a session is; the word is the one in `sessions` and in the log."""

    DIALOGUE = "dialogue"
    HANDSHAKE = "handshake"
    CHECKING = "checking"
    CONNECTING = "connecting"
    RELAYING = "relaying"
    LEAVING = "leaving"
    """The relay is over on the server's side; the client has yet to close."""
    CLOSED = "closed"


class MailClientLeg(asyncio.Protocol):
    """One client connection. Callbacks until the hand-over, then the relay owns the transport."""

    __slots__ = (
        "_address", "_deadline", "_door", "_events", "_failures", "_front", "_full", "_notes", "_outcome", "_proof",
        "_proxy", "_reach", "_reason", "_settled", "_since", "_starttls", "_target", "_task", "_tls", "_transport",
        "_user", "carry_over", "database", "ends", "epoch", "gone", "phase", "relay", "session",
    )  # fmt: skip

    def __init__(self, door: MailDoor, *, tls: bool, starttls: bool, proxy: ProxyHeader | None) -> None:
        self._door = door
        self._tls = tls or (proxy is not None and proxy.tls)
        self._starttls = starttls
        self._proxy = proxy
        self._events: list[FrontEvent] | None = None
        self._failures: list[str] = []
        self._full = False
        """The transport wants nothing written: the client reads too slowly."""
        self._notes: list[str] = []
        """What the mailbox server did not take though it was no reason to fail, such as the client's address."""
        self._outcome = "no sign-in"
        self._proof = b""
        """What the password that was right is remembered by."""
        self._reach: MailReach | None = None
        """The sign-in that is on its way to the mailbox server."""
        self._reason = ""
        self._settled = False
        self._target: Target | None = None
        self._task: asyncio.Task[None] | None = None
        self._user = ""
        self.carry_over: CarryOver | None = None
        """What it takes to carry the session over to another server, where that is wanted."""
        self.database = ""
        """The database of the user's mailbox; empty before the sign-in, and for a mailbox of 2003."""
        self.epoch = 0
        """The epoch of the database that the server was chosen by."""
        self.ends: Notes | None = None
        """Where the relayed session may be ended."""
        self.gone = False
        """The client's connection is closed."""
        self.phase = Phase.DIALOGUE
        self.relay: Relay | None = None
        self.session = ""

    # --- transport callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet, or turn the client away when there are too many."""
        door = self._door
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        transport = self._transport
        self._since = door.loop.time()
        self._deadline = self._since + door.limits.sign_in_seconds
        self._address = client_address(transport, self._proxy)
        self._front = door.front(tls=self._tls, starttls=self._starttls)
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

    def pause_writing(self) -> None:
        """What the dialogue says is bounded and goes on; the relay must know."""
        self._full = True

    def resume_writing(self) -> None:
        """The client has read enough."""
        self._full = False

    def connection_lost(self, exc: Exception | None) -> None:
        """The client went away before the relay began."""
        self.gone = True
        if self.phase is Phase.CLOSED:
            return
        if self.relay is not None:
            # It was lost as the relay took over, and the loop had this protocol down for the news.
            self.relay.client_lost(exc)
            return
        self._reason = self._reason or ("client lost: " + type(exc).__name__ if exc else "client closed")
        self._finish()

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
            elif type(event) is StartTls:
                # Before the client has our OK, so that its first TLS bytes are not read as a command.
                self._transport.pause_reading()
                self.phase = Phase.HANDSHAKE
                self._task = tasks.start(self._start_tls(), f"{self.session} starttls")
            elif type(event) is Close:
                self._reason = self._reason or event.reason
                self._transport.close()

    async def _start_tls(self) -> None:
        door = self._door
        assert door.starttls is not None
        try:
            async with asyncio.timeout(max(self._deadline - door.loop.time(), 0.1)):
                transport = await door.loop.start_tls(self._transport, self, door.starttls.current, server_side=True)
            if transport is None:
                raise ConnectionResetError
        except (OSError, ssl.SSLError, TimeoutError) as error:
            # The loop does not tell a protocol of a connection that is lost within its handshake.
            self._task = None
            self._reason = f"TLS handshake failed: {type(error).__name__}"
            self._transport.abort()
            self._finish()
            return
        self._task = None
        self._transport = transport
        self._tls = True
        self.phase = Phase.DIALOGUE
        self._run(self._front.tls_started())

    def _check(self, credentials: Credentials) -> None:
        self.phase = Phase.CHECKING
        door = self._door
        self._user = credentials.authentication_id[:MAX_LOGIN_NAME]
        if not credentials.token:
            result = door.sign_in.password_now(credentials.authentication_id, credentials.password, door.protocol)
            if result is not None:
                self._judged(result, credentials)
                return
        self._task = tasks.start(self._check_later(credentials), f"{self.session} sign-in")

    async def _check_later(self, credentials: Credentials) -> None:
        door = self._door
        started = door.loop.time()
        name = credentials.authentication_id
        if credentials.token:
            result = await door.sign_in.token(name, credentials.token, door.protocol)
        else:
            result = await door.sign_in.password(name, credentials.password, door.protocol, self._address[0])
        if result.verdict is Verdict.WRONG_CREDENTIALS or result.verdict is Verdict.BUSY:
            # The same time for a wrong password and an unknown user, whatever the check took; and whoever fills the
            # queue of checks gains nothing by asking more often.
            left = started + door.limits.refused_sign_in_delay_seconds - door.loop.time()
            await asyncio.sleep(max(left, 0.0))
        self._task = None
        if self.phase is Phase.CHECKING:
            self._judged(result, credentials)

    def _judged(self, result: SignInResult, credentials: Credentials) -> None:
        user = result.user
        if result.verdict is Verdict.SIGNED_IN and user is not None:
            if not self._may_act_as(credentials.authorization_id, user.name):
                self._refuse(Refusal.WRONG_CREDENTIALS, "another authorization identity")
                return
            self._user = user.name
            self._proof = result.proof
            self.phase = Phase.CONNECTING
            self._task = tasks.start(self._connect(user, credentials), f"{self.session} connect")
        elif result.verdict is Verdict.WRONG_CREDENTIALS:
            self._refuse(Refusal.WRONG_CREDENTIALS, result.reason or "wrong credentials")
        elif result.verdict is Verdict.PROTOCOL_NOT_ALLOWED:
            self._refuse(Refusal.PROTOCOL_NOT_ALLOWED, result.reason or "protocol not allowed")
        else:
            refusal = Refusal.BUSY if result.verdict is Verdict.BUSY else Refusal.UNAVAILABLE
            self._refuse(refusal, result.reason or result.verdict.value)

    def _may_act_as(self, authorization_id: str, name: str) -> bool:
        """Nobody may act as somebody else; an authorization identity must be the user's own."""
        if not authorization_id:
            return True
        try:
            canonical = canonical_login_name(authorization_id, self._door.configuration.organization.default_domain)
        except BadLoginName:
            return False
        return canonical == name

    def _refuse(self, refusal: Refusal, reason: str, text: str = "", server: str = "") -> None:
        """Answer the sign-in with a refusal and go on with the dialogue. One log line each (field case 101)."""
        door = self._door
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
        self.phase = Phase.DIALOGUE
        front = self._front
        events = front.refuse(refusal, text, server) if isinstance(front, ImapFront) else front.refuse(refusal, text)
        self._transport.resume_reading()
        self._run(events)

    # --- to the mailbox server

    async def _connect(self, user: User, credentials: Credentials) -> None:
        """Sign in where the active copy is, then hand over."""
        door = self._door
        self.database = user.mailbox.database or ""
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
        door = self._door
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
        self.phase = Phase.RELAYING
        self.ends = door.notes() if carry_over is None else None
        watch = self.ends if carry_over is None else carry_over.tracker
        self.relay = Relay(self._transport, leg.transport, self._relay_ended, watch)
        self.relay.last_words = self._server_went
        if carry_over is not None:
            carry_over.joined(self.relay, capabilities or b"", signed_in.rest)
        door.pending.discard(self)
        door.relaying.add(self)
        del self._front
        self._reach = None
        leg.relay = self.relay
        self.relay.start(answer, rest, client_full=self._full)

    async def carry(self, decision: Serve | Proxy) -> bool:
        """Have the session go on at the decision's server without its client noticing; whether it does.

        Where it does not, it is as before or has been ended with BYE; it never waits for the end of a command.
        """
        carry_over, before = self.carry_over, self._target
        if carry_over is None or before is None:
            return False
        if not await carry_over.to(decision.target, before.server, decision.epoch):
            self._notes = [*self._notes, f"not carried over: {carry_over.reason}"]
            return False
        self._target = decision.target
        return True

    def _relay_ended(self, relay: Relay) -> None:
        self._reason = relay.reason
        self.gone = True
        door = self._door
        door.relaying.discard(self)
        if door.draining and not door.relaying:
            door.all_ended.set()
        self._finish()

    # --- ends

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

    def cut(self, reason: str) -> None:
        """End the session at once, without a word."""
        self._reason = self._reason or reason
        if self.relay is not None:
            self.relay.abort(reason)
        else:
            self._transport.abort()
            self._finish()

    def give_up(self) -> None:
        """End the session: something is wrong with it that nobody thought of."""
        self._reason = ""
        self.cut("internal fault")

    def leave(self, reason: str, text: str) -> None:
        """End a relayed session that `at_boundary` is true of: its server hears nothing more, its client the words."""
        relay = self.relay
        assert relay is not None
        self.phase = Phase.LEAVING
        relay.leave(reason, self.farewell(text))

    def farewell(self, text: str) -> bytes:
        """What the client of a relayed session is told at its end, nothing where it could not be understood."""
        if self.ends is not None:
            return self.ends.farewell(text)
        return self._door.farewell(f"[UNAVAILABLE] {text}") if self.at_boundary() else b""

    def _server_went(self) -> bytes:
        """The words for a server that is gone without any: a client takes them better than a connection cut."""
        carry_over, ends = self.carry_over, self.ends
        if carry_over is not None:
            return self._door.farewell(f"[UNAVAILABLE] {GONE}") if carry_over.tracker.takes_last_words else b""
        return ends.farewell(GONE) if isinstance(ends, ImapTails) and not ends.is_over else b""

    def at_boundary(self) -> bool:
        """Whether a relayed session may be ended, after a moment of silence, without cutting anything."""
        if self.carry_over is not None:
            return self.carry_over.at_boundary
        return self.ends is not None and self.ends.at_rest()

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

    def _settle(self) -> None:
        if not self._settled:
            self._settled = True
            self._door.admission.settle(self._address[0])

    def _finish(self) -> None:
        """The session is over: nothing of it stays, and one line tells of it."""
        if self.phase is Phase.CLOSED:
            return
        self.phase = Phase.CLOSED
        door = self._door
        door.pending.discard(self)
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._reach is not None:
            self._reach.abort()
            self._reach = None
        door.admission.leave(self._address[0], settled=self._settled)
        relay = self.relay
        if relay is not None:
            door.sign_in.still_right(self._user, self._proof)
        carried_from = self.carry_over.servers if self.carry_over is not None else []
        self.carry_over = None
        fields: dict[str, Any] = {
            "session": self.session,
            "user": self._user,
            "outcome": self._outcome,
            "reason": self._reason,
            "server": self.server,
            "tls": self._tls,
            "seconds": round(door.loop.time() - self._since, 3),
            "bytes_in": relay.bytes_in if relay is not None else 0,
            "bytes_out": relay.bytes_out if relay is not None else 0,
        }
        if carried_from:
            fields["carried_from"] = carried_from
        if self._notes:
            fields["notes"] = self._notes
        if self._outcome == "no sign-in" and self._target is None:
            # Also of those that go before their password is judged, which nothing slows down.
            door.strangers_log.refused(self._address[0], **fields)
        else:
            door.log.info(door.event, client=self._address[0], **fields)

    # --- for operators, and for who ends sessions

    @property
    def door(self) -> MailDoor:
        """What it came in by."""
        return self._door

    @property
    def server(self) -> str:
        """Where it is, or is being, signed in; empty while that is not known."""
        return self._target.server if self._target is not None else ""

    @property
    def bytes_seen(self) -> int:
        """Bytes relayed both ways."""
        return self.relay.bytes_in + self.relay.bytes_out if self.relay is not None else 0

    def describe(self) -> dict[str, Any]:
        """This session as the operator sees it."""
        return {
            "session": self.session,
            "protocol": self._door.protocol.value,
            "phase": self.phase.value,
            "client": self._address[0],
            "user": self._user,
            "database": self.database,
            "server": "" if self.phase is Phase.LEAVING else self.server,
            "epoch": self.epoch,
            **times(self._door.loop.time() - self._since),
        }
