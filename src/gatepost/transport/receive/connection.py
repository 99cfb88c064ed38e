"""What the SMTP machine of a receive connection says, carried out: answers, passwords, TLS, messages stored."""

from __future__ import annotations

import asyncio
import ssl
import time
from contextlib import suppress

from gatepost.directory.kerberos_port import NO_KERBEROS, Accepted, Challenge, KerberosExchange
from gatepost.directory.port import DirectoryUnavailable, SignInResult, User, Verdict
from gatepost.directory.scram import ScramExchange
from gatepost.directory.sign_in import SignInService
from gatepost.organization.model import Protocol
from gatepost.organization.names import MAX_LOGIN_NAME
from gatepost.peers.identity import PeerRefused
from gatepost.relay import tasks
from gatepost.routing.receiving import plain_address
from gatepost.transport.headers.words import printable
from gatepost.transport.ports import SpoolFull
from gatepost.transport.receive.incoming import NO_RESOURCES, NOT_KEPT
from gatepost.transport.receive.leg import MAX_AHEAD, Hold, Phase, ReceiveLeg
from gatepost.transport.receive.tls import Shows
from gatepost.transport.receive.trace import tls_word
from gatepost.transport.shadow.answering import AnsweringChannel
from gatepost.wire import smtp_server_replies as replies
from gatepost.wire.events import Close, Credentials, GssToken, Refusal, Send, SignIn, StartTls
from gatepost.wire.mailbox_address import mailbox_address
from gatepost.wire.scram import PLAIN_NAME
from gatepost.wire.smtp_server_events import Impersonate, LookUp, OpenChannel, ServerEvent, Store, Wait

_REFUSALS = {
    Verdict.UNAVAILABLE: Refusal.UNAVAILABLE,
    Verdict.BUSY: Refusal.BUSY,
    Verdict.PROTOCOL_NOT_ALLOWED: Refusal.PROTOCOL_NOT_ALLOWED,
}


def _for_themselves(sign_in: SignInService, result: SignInResult, authorization_id: str) -> SignInResult:
    """Nobody here may speak for another."""
    if result.user is not None and not sign_in.is_name_of(authorization_id, result.user):
        return SignInResult(Verdict.WRONG_CREDENTIALS, reason="another authorization identity")
    return result


class ReceiveConnection(ReceiveLeg):
    """A client of `binding`. `proxy`, `connector`, `place` and `partner` are known already where TLS came first."""

    def _run(self, events: list[ServerEvent]) -> None:
        for event in events:
            if type(event) is Send:
                self._transport.write(event.data)
            elif type(event) is Store:
                self.phase = Phase.PARKED
                tasks.start(self._store(event), "store")
            elif type(event) is Wait:
                self.phase = Phase.PARKED
                self._timer = self._service.loop.call_later(event.seconds, self._waited)
            elif type(event) is LookUp:
                self.phase = Phase.PARKED
                tasks.start(self._look_up(event.name), "look up a recipient")
            elif type(event) is SignIn:
                self._check(event.credentials)
            elif type(event) is GssToken:
                self._check_ticket(event)
            elif type(event) is StartTls:
                # Before the client has our reply, so that its first TLS octets are not read as a command.
                self._pause(Hold.HANDSHAKE)
                self.phase = Phase.HANDSHAKE
                tasks.start(self._start_tls(), "starttls")
            elif type(event) is Impersonate:
                self._impersonate(event)
            elif type(event) is OpenChannel:
                self._open_channel(event)
            elif type(event) is Close:
                self._close()

    def _answer(self, events: list[ServerEvent]) -> None:
        """What the client was waiting for is there."""
        if self.phase is Phase.GONE or self.phase is Phase.LINGERING:
            return
        self.heard = self._service.loop.time()
        self.phase = Phase.TALKING
        self._run(events)
        session = self.session
        if session is not None and session.buffered <= MAX_AHEAD:
            self._resume(Hold.AHEAD)
        if self._ended and self.phase is Phase.TALKING:
            self._transport.close()

    # --- content

    async def _store(self, event: Store) -> None:
        session, incoming = self.session, self._incoming
        assert session is not None
        reply = NOT_KEPT
        try:
            if self._draining is not None:
                await asyncio.wait([self._draining])
            reply = await incoming.store(eight_bit=event.eight_bit)
        finally:
            # Also after a fault of our own, which the loop reports: the client has its message still.
            self._answer(session.stored(reply))

    async def _drain(self) -> None:
        incoming = self._incoming
        writer = incoming.writer
        try:
            if writer is not None:
                await writer.drain()
        except SpoolFull:
            incoming.fail(NO_RESOURCES)
        except OSError as fault:
            self._service.log.error("receive.not_kept", reason=str(fault))
            incoming.fail(NOT_KEPT)
        finally:
            self._draining = None
            self._resume(Hold.WRITER)

    def _waited(self) -> None:
        self._timer = None
        if self.session is not None:
            self._answer(self.session.waited())

    async def _look_up(self, name: str) -> None:
        try:
            await self._service.intake.ask(name)
        finally:
            if self.session is not None and self.phase is Phase.PARKED:
                self._answer(self.session.looked_up())

    # --- who it is

    def _check(self, credentials: Credentials) -> None:
        sign_in = self._service.sign_in
        self.phase = Phase.PARKED
        name, password = credentials.authentication_id, credentials.password
        token = credentials.token
        if sign_in is None:  # taken away since the session began
            self._judged(SignInResult(Verdict.UNAVAILABLE, reason="no passwords are checked here"), name)
            return
        now = sign_in.token_now if token else sign_in.password_now
        known = now(name, token or password, Protocol.SUBMISSION, self._address)
        if known is not None:
            self._judged(known, name)
        else:
            tasks.start(self._check_slowly(name, password, token), "sign-in")

    async def _check_slowly(self, name: str, password: str, token: str) -> None:
        sign_in = self._service.sign_in
        result = SignInResult(Verdict.UNAVAILABLE, reason="the credentials could not be checked")
        try:
            if sign_in is not None and token:
                result = await sign_in.token(name, token, Protocol.SUBMISSION, self._address)
            elif sign_in is not None:
                result = await sign_in.password(name, password, Protocol.SUBMISSION, self._address)
        finally:
            self._judged(result, name)

    def _check_ticket(self, event: GssToken) -> None:
        sign_in = self._service.sign_in
        self.phase = Phase.PARKED
        if event.first:
            self._exchange = self._begin_exchange(sign_in, event.mechanism)
        tasks.start(self._check_ticket_slowly(event.token), "sign-in")

    def _begin_exchange(self, sign_in: SignInService | None, mechanism: str) -> KerberosExchange | None:
        if sign_in is None:
            return None
        if mechanism == PLAIN_NAME:
            submission = Protocol.SUBMISSION
            return sign_in.begin_scram(mechanism, submission, self._address, {}, offers_plus=False)
        return None if sign_in.kerberos is None else sign_in.kerberos.begin(Protocol.SUBMISSION, self._address)

    async def _check_ticket_slowly(self, token: bytes) -> None:
        sign_in, session, exchange = self._service.sign_in, self.session, self._exchange
        assert session is not None
        outcome: Challenge | Accepted | SignInResult = NO_KERBEROS
        name = ""
        try:
            if sign_in is not None and exchange is not None:
                outcome = await exchange.step(token)
            if isinstance(outcome, Accepted) and sign_in is not None:
                outcome = await self._user_of_ticket(sign_in, outcome)
            elif isinstance(exchange, ScramExchange) and isinstance(outcome, SignInResult) and sign_in is not None:
                name = exchange.credentials.authentication_id
                outcome = _for_themselves(sign_in, outcome, exchange.credentials.authorization_id)
        finally:
            if isinstance(outcome, Challenge):
                self._answer(session.challenge(outcome.token))
            else:
                self._exchange = None
                self._judged(NO_KERBEROS if isinstance(outcome, Accepted) else outcome, name)

    async def _user_of_ticket(self, sign_in: SignInService, accepted: Accepted) -> SignInResult:
        result = await sign_in.user_of_ticket(accepted.name, Protocol.SUBMISSION, self._address)
        return _for_themselves(sign_in, result, accepted.authorization_id)

    def _judged(self, result: SignInResult, name: str) -> None:
        """What came of a sign-in as `name`."""
        session, user = self.session, result.user
        assert session is not None
        if result.verdict is Verdict.SIGNED_IN and user is not None:
            self._answer(session.signed_in(user.name))
            return
        self._service.log.info(
            "receive.sign_in_refused",
            client=self._address,
            user=user.name if user is not None else self._shown(name),
            reason=result.reason,
        )
        refusal = _REFUSALS.get(result.verdict, Refusal.WRONG_CREDENTIALS)
        self._answer(session.refuse(Refusal.INSUFFICIENT_SCOPE if result.lacks else refusal))

    def _shown(self, name: str) -> str:
        """A name that was typed, for the log: who has it, else itself where it is an address. What is neither may be
        a password that was typed in the wrong place."""
        known: User | None = None
        with suppress(DirectoryUnavailable):
            known = self._service.sign_in.look_up(name) if self._service.sign_in is not None else None
        if known is not None:
            return known.name
        return printable(name, MAX_LOGIN_NAME) if mailbox_address(name) is not None else ""

    async def _start_tls(self) -> None:
        service, session, connector, tls = self._service, self.session, self._connector, self._service.tls
        assert session is not None
        assert connector is not None
        try:
            if tls is None:
                raise ConnectionResetError("TLS was taken away")
            context, shows = tls.context_for(connector, session.name)
            async with asyncio.timeout(max(min(self.deadline - service.loop.time(), service.handshake_seconds), 0.1)):
                transport = await service.loop.start_tls(self._transport, self, context, server_side=True)
            if transport is None:
                raise ConnectionResetError
        except (OSError, ssl.SSLError, TimeoutError) as error:
            # The loop does not tell a protocol of a connection that is lost within its handshake.
            self._transport.abort()
            service.log.info(
                "receive.no_tls", client=self._address, reason=getattr(error, "reason", "") or type(error).__name__
            )
            self._finish("TLS handshake failed")
            return
        if self.phase is not Phase.HANDSHAKE:
            transport.abort()
            return
        self._transport = transport
        self._hold = Hold.NONE
        self._tls = tls_word(transport)
        self._partner = shows is Shows.PARTNER
        if shows is Shows.SERVER:
            try:
                certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
                self._server = tls.server_at(certificate, time.time())
            except PeerRefused as refused:
                service.log.warning("receive.server_refused", client=self._address, reason=str(refused))
        self._answer(session.tls_started(server=self._server, partner=self._partner))

    def _impersonate(self, event: Impersonate) -> None:
        """A listed peer speaks for a client: a new session, whose connector that client's address chooses."""
        claim, service = event.claim, self._service
        if claim.address:
            self._address = claim.address
        connector = service.connector_for(self._binding, self._local, plain_address(self._address))
        if connector is None:
            self._turn_away(replies.NO_SERVICE, "no connector for the address")
            return
        if self._place is not None:
            self._place.leave()
        self._place = service.counts.arrive(connector, self._address, one_source=bool(claim.address))
        if self._place is None:
            self._turn_away(replies.TOO_MANY_CONNECTIONS, "too many connections")
            return
        self._connector, self._claim = connector, claim
        self._server, self._partner = "", False
        self._begin(connector)
        assert self.session is not None
        self.phase = Phase.TALKING
        self._run(self.session.greet())
        if event.rest:
            self._run(self.session.receive(event.rest))

    def _open_channel(self, event: OpenChannel) -> None:
        """The connection, and its place, are a shadow channel's from here on."""
        service = self._service
        if service.shadow is None:  # taken away since the session began
            self._transport.abort()
            return
        ssl_object = self._transport.get_extra_info("ssl_object")
        channel = AnsweringChannel(
            service.shadow.answering,
            event.hub,
            ssl_object.getpeercert(binary_form=True),
            service.log,
            service.channels,
            self._place,
        )
        self._place = None
        self._finish("a shadow channel")
        channel.take(self._transport, reading=not self._hold, writing=not self._hold & Hold.CLIENT)
        if event.rest:
            channel.data_received(event.rest)
        if self._ended:
            self._transport.close()
