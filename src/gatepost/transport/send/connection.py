"""The connection below a sender: its transport, its deadlines, and what the client machine has it do."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from gatepost.routing.next_hop import Way
from gatepost.transport.message import Envelope, Recipient
from gatepost.transport.send.options import Endpoint, SendOptions, TlsFacts
from gatepost.transport.send.plan import Plan
from gatepost.wire.events import Send
from gatepost.wire.smtp_client import SmtpClient
from gatepost.wire.smtp_client_events import Broken, ClientEvent, Finished, Ready, SendContent, SessionFault, Step
from gatepost.wire.smtp_data import DataEncoder

if TYPE_CHECKING:
    from gatepost.transport.send.connecting import Outbound

HIGH_WATER = 256 * 1024
"""Octets that wait for a slow server before no more content is read from disk."""
MAX_EARLY = 64 * 1024
"""Octets that a server may say before we know that it is connected."""
PROMPT_SECONDS = 0.25
"""A server that answers a content within this is given the next message's commands together with its end."""
_INTOLERANT = (SessionFault.LOST, SessionFault.PROTOCOL)
KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 300_000),
)
"""A server that is gone is noticed in five minutes, also while it would have ten to answer the content."""


@dataclass(slots=True)
class Ahead:
    """The next message of a session, planned while the one before is sent. Its content is in memory."""

    envelope: Envelope
    recipients: list[Recipient]
    plan: Plan
    content: bytes
    begun: bool = False
    """Its commands were sent, and the message before is over: what the server says is about this one."""
    wanted: bool = False
    """The server waits for the content."""
    finished: Finished | None = None


class SmtpConnection(asyncio.Protocol):
    """Drives an `SmtpClient` over a transport. What it may be used for is `SmtpSender`'s."""

    __slots__ = ("_ahead", "_drained", "_early", "_ended_at", "_envelope_deadline", "_finished", "_inline", "_leaving",
                 "_loop", "_opened", "_outbound", "_paused", "_proven", "_replies", "_said", "_seconds", "_started",
                 "_transport", "_waiter", "_why", "broken", "client", "closed", "deadline", "endpoint", "idle_since",
                 "messages_sent", "octets_sent", "options", "prompt", "session", "stood", "tls", "transactions",
                 "verified", "way")  # fmt: skip

    def __init__(self, outbound: Outbound, endpoint: Endpoint, way: Way, options: SendOptions, session: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._outbound = outbound
        self.options = options
        self._seconds = options.times.by_step()
        self._transport: asyncio.Transport | None = None
        self._started = False
        self._early = b""
        self._opened: asyncio.Future[ClientEvent] = self._loop.create_future()
        self._waiter: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._finished: Finished | None = None
        self.broken: Broken | None = None
        """How the session ended, if it was not by `quit`."""
        self._paused = False
        self._inline: bytes | None = None
        """The whole content, where it is small: it is sent as soon as the server wants it."""
        self._ahead: Ahead | None = None
        """What may be begun together with the end of the content."""
        self._said: Ahead | None = None
        """What was, until it is its turn."""
        self._ended_at = 0.0
        """When the last content's end was sent, on the loop's clock."""
        self.prompt = False
        """The last content was answered at once."""
        self.octets_sent = 0
        """Of content."""
        self._replies = 0
        self._proven: bool | None = None
        """Whether the server is that of the organization that it is taken for; None: nobody has looked."""
        self._leaving = False
        """The end of the session is our wish."""
        self._why = "closed"
        self._envelope_deadline = float("inf")
        self.client: SmtpClient
        self.endpoint = endpoint
        self.way = way
        self.session = session
        self.closed = False
        self.deadline = float("inf")
        """When the sweep ends the session, on the loop's clock."""
        self.idle_since = self._loop.time()
        self.transactions = 0
        self.messages_sent = 0
        """Messages that the server has taken for one recipient at least."""
        self.stood = False
        """It has been ready for messages."""
        self.tls: TlsFacts | None = None
        self.verified = False

    def abort(self) -> None:
        """Close now. Safe twice."""
        if not self.closed:
            self._leaving = True
            self._cut_off(SessionFault.LOST, "given up")

    # From the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport: the server may speak, or go, before `begin`."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it

    @property
    def transport(self) -> asyncio.Transport:
        """The connection's."""
        assert self._transport is not None
        return self._transport

    def begin(self, client: SmtpClient, secure: asyncio.Transport | None, facts: TlsFacts | None) -> None:
        """The dialogue begins; over `secure` where TLS is implicit, else over the connection as it is."""
        self.client = client
        if secure is not None:
            self._transport = secure
        if facts is not None:
            self.tls, self.verified = facts, facts.verified
        if not self.transport.is_closing():  # uvloop would raise RuntimeError
            self.transport.set_write_buffer_limits(HIGH_WATER)
        self._started = True
        self._touch()
        early, self._early = self._early, b""
        if early:
            self._run(client.receive(early))
        if self.closed:
            self._run(client.lost("connection closed"))

    @property
    def has_spoken(self) -> bool:
        """Whether bytes have come before `begin`."""
        return bool(self._early)

    def data_received(self, data: bytes) -> None:
        """Replies."""
        if not self._started:
            self._early += data
            if len(self._early) > MAX_EARLY:
                self.transport.abort()
            return
        self._run(self.client.receive(data))

    def connection_lost(self, exc: Exception | None) -> None:
        """The server is gone."""
        self.closed = True
        if self._started:
            self._run(self.client.lost(f"connection lost: {type(exc).__name__}" if exc else "connection closed"))
        self._ended()

    def pause_writing(self) -> None:
        """The server reads slowly."""
        self._paused = True

    def resume_writing(self) -> None:
        """It has read."""
        self._paused = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def tls_started(self, transport: asyncio.Transport, facts: TlsFacts) -> None:
        """The handshake after STARTTLS is done."""
        self._transport = transport
        if not transport.is_closing():
            transport.set_write_buffer_limits(HIGH_WATER)
        self.tls, self.verified = facts, facts.verified
        self._opened = self._loop.create_future()
        self._run(self.client.tls_started())
        self._touch()

    def stands(self) -> None:
        """The session is ready for messages."""
        self.stood = True
        self.idle_since = self._loop.time()
        if self.options.hooks is not None:
            name = self.client.extensions.name
            self.options.hooks.connected(self.session, self.endpoint, self.way.host, name, self.tls)

    def told_of_end(self, why: str) -> None:
        """The session has ended."""
        if self.options.hooks is not None:
            counts = self.messages_sent, self.octets_sent
            self.options.hooks.disconnected(self.session, self.endpoint, self.way.host, *counts, why)

    async def opened(self) -> ClientEvent:
        """Until the session stands (`Ready`), wants TLS (`StartTls`) or has failed (`Broken`)."""
        return await self._opened

    def overdue(self, now: float) -> None:
        """Called by the sweep, when `deadline` is over."""
        step = self.client.step
        text = "no answer in time" if step is not Step.CONTENT else "takes the content too slowly"
        if now >= self._envelope_deadline and step in (Step.MAIL, Step.RECIPIENT, Step.DATA):
            text = "too slow over all recipients"
        self._cut_off(SessionFault.TIMEOUT, text)

    # Carrying out what the client machine says

    def _run(self, events: list[ClientEvent]) -> None:
        for event in events:
            kind = type(event)
            if kind is Send:
                self._write(cast(Send, event).data)
            elif kind is SendContent:
                self._content()
            elif kind is Finished:
                self._over(cast(Finished, event))
            elif kind is Broken:
                self._break(cast(Broken, event))
            elif not self._opened.done():
                if kind is not Ready and self._transport is not None:
                    self._transport.pause_reading()  # the next bytes are those of the handshake
                self._opened.set_result(event)
            else:  # QUIT is answered
                self._wake()
        # Bytes are no progress, replies are: nobody keeps us by a byte now and then.
        if self.client.replies != self._replies:
            self._replies = self.client.replies
            self._touch()

    def _content(self) -> None:
        if self.client.step is not Step.CONTENT:
            return  # the same packet has brought the end of the session
        said = self._said
        if said is not None and said.begun:
            said.wanted = True
            return
        content = self._inline
        if content is None:
            self._wake()
            return
        encoder = DataEncoder()
        self.octets_sent += len(content)
        self.client.content_end()
        data = encoder.encode(content) + encoder.finish()
        self._ended_at = self._loop.time()
        ahead = self._ahead
        if ahead is not None and self.client.may_follow:
            self._ahead, self._said = None, ahead
            data += self.client.follow(ahead.plan.mail, ahead.plan.commands)
        self._write(data)

    def _over(self, finished: Finished) -> None:
        said = self._said
        if said is not None and said.begun:
            said.finished = finished
        else:
            self._finished = finished
            self.prompt = self._inline is not None and self._loop.time() - self._ended_at < PROMPT_SECONDS
            if said is not None:
                said.begun = True
        if finished.broken is not None:
            if said is not None and not said.finished and finished.broken.fault in _INTOLERANT and not self._leaving:
                self._outbound.one_by_one(self)
            self._break(finished.broken)
        self._wake()

    def _break(self, broken: Broken) -> None:
        if self.broken is None and not self._leaving:
            self.broken = broken
            self._why = f"{broken.fault.value}: {broken.text}"
        if not self._opened.done():
            self._opened.set_result(broken)
        if self._transport is not None:
            self._transport.abort()
        self._wake()

    def _wake(self) -> None:
        for waiter in (self._waiter, self._drained):
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    def _write(self, data: bytes) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.write(data)

    def _touch(self) -> None:
        """The server has done something: its time for the next step begins."""
        step = self.client.step
        if step is Step.IDLE:
            self.deadline = float("inf")
            return
        self.deadline = self._loop.time() + self._seconds[step]
        if step is Step.MAIL or step is Step.RECIPIENT or step is Step.DATA:
            self.deadline = min(self.deadline, self._envelope_deadline)

    def _cut_off(self, fault: SessionFault, text: str) -> None:
        if self._started:
            self._run(self.client.broken(fault, text) if not self.client.over else [])
        if self._transport is not None:
            self._transport.abort()

    def _ended(self) -> None:
        self._wake()
        self._outbound.ended(self, self._why)

    # Waiting

    async def _wait(self) -> None:
        """Until the server wants content, the transaction is over, or QUIT is answered."""
        if self._waiter is not None and self._finished is None and not self.closed:
            await self._waiter
        self._waiter = None

    def _result(self) -> Finished | None:
        """What has come of the transaction."""
        return self._finished

    async def _drain(self) -> None:
        """Until there is room to write, or the session is over."""
        if self._paused and not self.closed:
            self._drained = self._loop.create_future()
            await self._drained
            self._drained = None
        self._touch()


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Have the kernel notice a dead server."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    # One real socket for all three: uvloop's stand-in makes one at each call.
    real = socket.socket(sock.family, socket.SOCK_STREAM, 0, sock.fileno())
    try:
        with suppress(OSError):
            for level, option, value in KEEPALIVE:
                real.setsockopt(level, option, value)
    finally:
        real.detach()
