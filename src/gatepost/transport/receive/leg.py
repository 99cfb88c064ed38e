"""One connection of a receive connector up to its first command, and its end; what lies between is in `connection`.

PROXY ──header──► WAITING ──a moment──► TALKING ◄──► PARKED (checks a password, stores, waits)
                                          │  └──STARTTLS──► HANDSHAKE ──► TALKING
                                          └──► LINGERING ──end of file, or a while──► GONE
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from enum import Enum, IntFlag, auto
from typing import TYPE_CHECKING, cast

from gatepost.balancing.back_pressure import Pressure
from gatepost.directory.kerberos_port import KerberosExchange
from gatepost.organization.model import Protocol
from gatepost.organization.transport import Address, Binding, ReceiveAuthentication, ReceiveConnector
from gatepost.relay import tasks
from gatepost.routing.receiving import plain_address
from gatepost.transport.message import Source
from gatepost.transport.receive.admission import Place
from gatepost.transport.receive.incoming import Incoming
from gatepost.transport.receive.trace import protocol_word, tls_word
from gatepost.wire import smtp_server_replies as replies
from gatepost.wire.events import TokenHelp
from gatepost.wire.proxy_protocol import BadProxyHeader, ProxyHeader, parse
from gatepost.wire.smtp_command import MailCommand
from gatepost.wire.smtp_server import SmtpServer
from gatepost.wire.smtp_server_events import ClientClaim, ServerEvent

if TYPE_CHECKING:
    from gatepost.transport.receive.service import ReceiveService

MAX_AHEAD = 64 * 1024
"""Octets a client may send ahead while it is waited for something; then reading pauses."""
GREETING_SECONDS = 0.001
"""Clients are greeted after this at the earliest: who talks before is seen."""
PROXY_SECONDS = 10.0
"""Longest wait for a PROXY header."""
LINGER_SECONDS = 10.0
"""How long what a client still sends is dropped after an answer that ended its session in the midst of something."""
MAX_LINGERING = 16 * 1024 * 1024
"""And how many octets of it: who only sends would keep the loop busy."""


class Phase(Enum):
    """Where a connection is."""

    PROXY = auto()
    WAITING = auto()
    TALKING = auto()
    PARKED = auto()
    HANDSHAKE = auto()
    LINGERING = auto()
    GONE = auto()


class Hold(IntFlag):
    """Why nothing is read from the client."""

    NONE = 0
    WRITER = 1
    """The disk is slower than the client."""
    CLIENT = 2
    """The client does not read our answers."""
    AHEAD = 4
    """It has sent enough ahead."""
    HANDSHAKE = 8


class ReceiveLeg(asyncio.Protocol):
    """See `ReceiveConnection`, which carries out what the session says."""

    def __init__(
        self,
        service: ReceiveService,
        binding: Binding,
        *,
        proxy: ProxyHeader | None = None,
        connector: ReceiveConnector | None = None,
        place: Place | None = None,
        partner: bool = False,
    ) -> None:
        self._service = service
        self._binding = binding
        self._proxy = proxy
        self._connector = connector
        self._place = place
        self._partner = partner
        self._claim: ClientClaim | None = None
        self._head = b""
        """The beginning of a PROXY header."""
        self._hold = Hold.NONE
        self._timer: asyncio.TimerHandle | None = None
        self._draining: asyncio.Task[None] | None = None
        self._server = ""
        """The server of the organization at the other end."""
        self._tls = ""
        """TLS version and cipher."""
        self._address = ""
        self._exchange: KerberosExchange | None = None
        self._ended = False
        """The client sends nothing more."""
        self._dropped = 0
        """Octets that came after the last answer."""
        self.phase = Phase.WAITING
        self.deadline = float("inf")
        """When the connection ends whatever it does (loop time)."""
        self.heard = 0.0
        """When the client last sent something, or was answered."""
        self.session: SmtpServer | None = None

    @abstractmethod
    def _run(self, events: list[ServerEvent]) -> None:
        """Carry the session's events out."""

    @abstractmethod
    async def _drain(self) -> None:
        """Wait until content can be written again."""

    @abstractmethod
    def _answer(self, events: list[ServerEvent]) -> None:
        """Go on: what the client was waiting for is there."""

    # --- transport callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Find out who the client is, and whether it may come in."""
        service = self._service
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        self.heard = service.loop.time()
        service.connections.add(self)
        peer = transport.get_extra_info("peername")
        own = transport.get_extra_info("sockname")
        if not peer or not own:  # gone already
            self._transport.abort()
            return
        self._local: Address = plain_address(own[0])
        self._peer: Address = plain_address(peer[0])
        self._address = str(self._peer)
        if self._binding.implicit_tls:
            self._tls = tls_word(transport)
            self._arrive()
        elif service.expects_proxy(self._binding, self._peer):
            self.phase = Phase.PROXY
            self.deadline = self.heard + PROXY_SECONDS
        else:
            self._arrive()

    def data_received(self, data: bytes) -> None:
        """Octets of the client."""
        session = self.session
        if session is None or self.phase is Phase.LINGERING:
            if self.phase is Phase.PROXY:
                self._read_proxy(data)
            elif self.phase is Phase.LINGERING:
                self._dropped += len(data)
                if self._dropped > MAX_LINGERING:
                    self._transport.abort()
            return
        self.heard = self._service.loop.time()
        events = session.receive(data)
        if events:
            self._run(events)
        if self.phase is Phase.PARKED and session.buffered > MAX_AHEAD:
            self._pause(Hold.AHEAD)
        incoming = self._incoming
        writer = incoming.writer
        if writer is not None and self._draining is None and incoming.failure is None and writer.full:
            self._pause(Hold.WRITER)
            self._draining = tasks.start(self._drain(), "drain")

    def eof_received(self) -> bool:
        """The client sends nothing more. While its message is being stored it still gets the answer."""
        self._ended = True
        return self.phase is Phase.PARKED and not self._tls

    def pause_writing(self) -> None:
        """The client does not read what we say: it may not say more either."""
        self._pause(Hold.CLIENT)

    def resume_writing(self) -> None:
        """The client has read enough."""
        self._resume(Hold.CLIENT)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._finish("client lost" if exc is not None else "client closed")

    # --- who it is

    def _read_proxy(self, data: bytes) -> None:
        self._head += data
        try:
            parsed = parse(self._head)
        except BadProxyHeader as error:
            self._service.log.warning("receive.refused", client=self._address, reason=f"PROXY header: {error}")
            self._transport.abort()
            return
        if parsed is None:
            return
        self._proxy, used = parsed
        rest, self._head = self._head[used:], b""
        self._arrive()
        if rest:
            self.data_received(rest)

    def _arrive(self) -> None:
        """The client's address is known: choose the connector, count, and greet in a moment."""
        service = self._service
        self.phase = Phase.WAITING
        if self._proxy is not None and not self._proxy.local and self._proxy.source is not None:
            self._address = str(plain_address(self._proxy.source[0]))
        if service.stopping:
            self._turn_away(replies.STOPPING, "the service is stopping")
            return
        if service.intake.pressure is Pressure.HIGH:
            # Nobody could send anything: who balances over several servers sees at the greeting that this one is full.
            self._turn_away(replies.NO_ROOM, "back pressure")
            return
        connector = self._connector or service.connector_for(self._binding, self._local, plain_address(self._address))
        if connector is None:
            self._turn_away(replies.NO_SERVICE, "no connector for the address")
            return
        self._connector = connector
        speaks = self._speaks_for_others(connector)
        # A peer that brings many clients is counted as itself only until it says whose connection this is.
        self._place = self._place or service.counts.arrive(connector, self._address, one_source=not speaks)
        if self._place is None:
            self._turn_away(replies.TOO_MANY_CONNECTIONS, "too many connections")
            return
        self.deadline = service.loop.time() + connector.connection_seconds
        self._begin(connector)
        self._timer = service.loop.call_later(max(connector.greeting_delay, GREETING_SECONDS), self._greet)

    def _speaks_for_others(self, connector: ReceiveConnector) -> bool:
        # Once a connection: whom a front end has spoken for does not speak for others, not even at a listed address,
        # as a webmail on the front end's own machine, whose sessions the front end could not hand on otherwise.
        if self._claim is not None:
            return False
        client = plain_address(self._address)
        return any(client in addresses for addresses in connector.xclient_from)

    def _turn_away(self, reply: bytes, reason: str) -> None:
        self._service.log.info("receive.refused", client=self._address, port=self._binding.port, reason=reason)
        self._transport.write(reply)
        self._linger()

    def _begin(self, connector: ReceiveConnector) -> None:
        """A session, with what is known of the client."""
        service = self._service
        self._incoming = Incoming(service.intake, self._source, self._is_trusted, self._certified_server)
        self.session = SmtpServer(
            connector,
            service.host,
            self._incoming,
            tls=bool(self._tls),
            starttls=service.tls is not None and ReceiveAuthentication.TLS in connector.authentication,
            sign_in=service.sign_in is not None,
            kerberos=service.sign_in is not None and service.sign_in.accepts_tickets(Protocol.SUBMISSION),
            scram=service.sign_in is not None and service.sign_in.accepts_scram(Protocol.SUBMISSION),
            tokens=self._token_help(),
            xclient=self._speaks_for_others(connector),
            server=self._server,
            partner=self._partner,
            claim=self._claim,
            shadow=service.shadow.offer if service.shadow is not None else None,
        )

    def _token_help(self) -> TokenHelp | None:
        sign_in = self._service.sign_in
        if sign_in is None or not sign_in.accepts_tokens:
            return None
        return sign_in.token_help(Protocol.SUBMISSION)

    def _greet(self) -> None:
        self._timer = None
        session = self.session
        if session is not None and self.phase is Phase.WAITING:
            self.phase = Phase.TALKING
            self._run(session.greet())

    def _is_trusted(self) -> bool:
        return self.session is not None and self.session.trusted

    def _certified_server(self) -> str:
        return self.session.server if self.session is not None else ""

    def _source(self, command: MailCommand) -> Source:
        """The facts of the connection for a message that begins now."""
        session, connector, claim = self.session, self._connector, self._claim
        assert session is not None
        assert connector is not None
        return Source(
            connector=connector.name,
            address=self._address,
            name=claim.helo if claim is not None and claim.helo else session.name,
            protocol=protocol_word(
                esmtp=session.esmtp, tls=session.tls, signed_in=bool(session.user), utf8=command.smtputf8
            ),
            user=session.user,
            tls=self._tls,
            internal=session.trusted,
        )

    # --- the end

    def sweep(self, now: float) -> None:
        """End the connection if its time is over."""
        session, connector = self.session, self._connector
        if session is None or connector is None or self.phase is Phase.LINGERING:
            if now >= self.deadline:
                self._transport.abort()
            return
        if self.phase is Phase.HANDSHAKE or self._incoming.stored:
            return  # its own deadline; the answer is about to come
        silent = self.phase is not Phase.PARKED and not self._hold & Hold.WRITER
        if now >= self.deadline or (silent and now - self.heard >= connector.inactivity_seconds):
            self._run(session.time_out())

    def stop(self) -> None:
        """The service ends: say so as soon as what is under way has been answered."""
        session = self.session
        if session is None:
            self._transport.abort()
            return
        if self.phase is Phase.WAITING:
            self.phase = Phase.TALKING
        self._run(session.stop())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            if self.phase is Phase.PARKED:
                self._answer(session.waited())

    def cut(self) -> None:
        """End now, whatever is under way."""
        if self.session is not None and self.phase is not Phase.LINGERING:
            self._run(self.session.time_out(replies.STOPPING, "the service is stopping"))
        if self.phase is not Phase.GONE:
            self._transport.close()

    def abort(self) -> None:
        """Do not even wait until our last words have been sent."""
        self._transport.abort()

    def _close(self) -> None:
        if self.session is not None and self.session.lingers and not self._ended:
            self._linger()
        else:
            self._transport.close()

    def _linger(self) -> None:
        """Let the client read our last words: closing at once would reset what it still sends, and them with it."""
        self.phase = Phase.LINGERING
        self.deadline = self._service.loop.time() + LINGER_SECONDS
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._resume(Hold.WRITER | Hold.AHEAD)

    def _finish(self, reason: str) -> None:
        if self.phase is Phase.GONE:
            return
        self.phase = Phase.GONE
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._service.connections.discard(self)
        if self._place is not None:
            self._place.leave()
        session = self.session
        if session is None:
            return
        session.lost()
        self._service.log.debug(
            "receive.ended",
            client=self._address,
            connector=self._connector.name if self._connector is not None else "",
            name=session.name,
            user=session.user,
            tls=self._tls,
            messages=session.messages,
            reason=session.reason or reason,
        )

    def _pause(self, hold: Hold) -> None:
        if not self._hold and self.phase is not Phase.GONE:
            self._transport.pause_reading()
        self._hold |= hold

    def _resume(self, hold: Hold) -> None:
        if self._hold and not self._hold & ~hold and self.phase is not Phase.GONE:
            self._transport.resume_reading()
        self._hold &= ~hold
