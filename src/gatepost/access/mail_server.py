"""The mailbox server's side of an IMAP, POP3 or submission session until it has let the user in."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Protocol as Port
from typing import cast

from gatepost.access.tls import ClientContexts
from gatepost.configuration.settings import Limits
from gatepost.organization.model import PROXIED, ClientAddress, Endpoint, Server, TlsMode
from gatepost.wire.events import (
    BackEvent,
    ClientFacts,
    Failed,
    FailureKind,
    Send,
    SignedIn,
    StartTls,
)
from gatepost.wire.hub_greeting import HubGreeting
from gatepost.wire.imap_back import ImapBack
from gatepost.wire.pop3_back import Pop3Back
from gatepost.wire.proxy_protocol import encode_v1, encode_v2
from gatepost.wire.submission_back import SubmissionBack


class Owner(Port):
    """Who a server's connection belongs to after its sign-in."""

    def server_lost(self, exc: Exception | None) -> None:
        """It was lost while its old protocol was still the one to be told."""
        ...


MailBack = ImapBack | Pop3Back | SubmissionBack | HubGreeting

KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 300),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 600_000),
)
"""Both legs: a dead peer is noticed in ten minutes, a quiet live one is left alone (field case 45).

The user timeout bounds unanswered probes too, so their number and distance need no setting (tcp(7)).
"""


MAX_EARLY = 64 * 1024
"""Bytes a server may say before its dialogue begins: a greeting often comes before `create_connection` returns."""


CLOCK_GRAIN_SECONDS = 0.002
"""uvloop's timers count milliseconds and may ring one early."""


class AttemptFailed(Exception):
    """One attempt to reach and sign in at a mailbox server failed. `again`: another attempt may succeed."""

    def __init__(
        self, kind: FailureKind, text: str, *, again: bool, by_server: bool = False, moved: bool = False
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.again = again
        self.moved = moved
        """The database's active copy is another one by now: says nothing of the server."""
        self.by_server = by_server
        """The server itself said so, in its protocol's words."""

    @property
    def elsewhere(self) -> bool:
        """Whether another server that could take the sign-in may say something else."""
        return self.kind is FailureKind.UNAVAILABLE or self.kind is FailureKind.PROTOCOL

    @property
    def answered(self) -> bool:
        """Whether it was the answer of a service that works: to the user, not to whoever comes."""
        return self.by_server and not self.elsewhere


class MailServerLeg(asyncio.Protocol):
    """Drives a back machine over a transport. `done` gets what came of it."""

    __slots__ = (
        "_back",
        "_begun",
        "_deadline",
        "_early",
        "_loop",
        "_opening",
        "_starting_tls",
        "_step_seconds",
        "_timer",
        "closed",
        "done",
        "relay",
        "timed_out",
        "transport",
    )

    def __init__(self, back: MailBack, step_seconds: float) -> None:
        self._back = back
        self._begun = False
        self._early = b""
        self._step_seconds = step_seconds
        self._starting_tls: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._deadline = 0.0
        self._opening: asyncio.Task[None] | None = None
        self.closed = False
        self.relay: Owner | None = None
        """Who owns the connection after the hand-over."""
        self.timed_out = False
        """The connection was not there in time; whoever opens it has been cancelled for that."""
        self.transport: asyncio.Transport
        self.done: asyncio.Future[SignedIn] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport: the server may speak, or go, before `open_server` is told of it."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it

    def opening(self, task: asyncio.Task[None] | None, seconds: float) -> None:
        """`task` connects; it is cancelled, with `timed_out` set, when it has not begun the dialogue in `seconds`.

        One timer serves the connection and every step after it: a sign-in is too short for one each.
        """
        self._opening = task
        self._deadline = self._loop.time() + seconds
        self._timer = self._loop.call_later(seconds, self._ring)

    @property
    def notes(self) -> list[str]:
        """What the server did not take though it was no reason to fail (field cases 41 and 91)."""
        return self._back.notes

    def begin(self, transport: asyncio.Transport) -> None:
        """The connection is as the endpoint wants it (implicit TLS done): start the dialogue.

        What came before a handshake that `transport` is the result of is not the server's word and is dropped.
        """
        early = self._early if transport is self.transport else b""
        self._early = b""
        self._begun = True
        self.transport = transport
        self._run(self._back.connected())
        if early and not self.done.done():
            self._run(self._back.receive(early))

    def data_received(self, data: bytes) -> None:
        """Bytes of the dialogue; those that come before it begins are kept."""
        if self._begun:
            self._run(self._back.receive(data))
            return
        self._early += data
        if len(self._early) > MAX_EARLY:
            self.fail(FailureKind.PROTOCOL, "speaks before it was connected", again=False)

    def connection_lost(self, exc: Exception | None) -> None:
        """The server went away in the middle of the dialogue, or as the relay took over."""
        if self.closed:
            return
        if self.relay is not None:
            self.relay.server_lost(exc)
            return
        self.closed = True
        how = type(exc).__name__ if exc else "closed"
        self.fail(FailureKind.UNAVAILABLE, f"connection lost at {self._back.state_name}: {how}")

    def fail(self, kind: FailureKind, text: str, *, again: bool = True, by_server: bool = False) -> None:
        """Nothing will come of this attempt."""
        self._stop_timer()
        if not self.done.done():
            self.done.set_exception(AttemptFailed(kind, text, again=again, by_server=by_server))
        if self._starting_tls is not None and not self._starting_tls.done():
            self._starting_tls.set_result(None)
        self.abort()

    def give_up(self) -> None:
        """Whatever this attempt would come to is of no use: `open_server` raises `AttemptFailed` now."""
        if not self._begun and self._opening is not None:
            self.timed_out = True
            self._opening.cancel()
        else:
            self.fail(FailureKind.UNAVAILABLE, "given up")

    def abort(self) -> None:
        """Give the connection up."""
        self._stop_timer()
        self.done.cancel()
        if not self.closed and hasattr(self, "transport"):
            self.closed = True
            self.transport.abort()

    def _run(self, events: list[BackEvent]) -> None:
        for event in events:
            if type(event) is Send:
                self.transport.write(event.data)
            elif type(event) is SignedIn:
                self._stop_timer()
                if not self.done.done():
                    # Nothing more is read until the relay has taken over, so that no byte overtakes another.
                    self.transport.pause_reading()
                    self.done.set_result(event)
                return
            elif type(event) is StartTls:
                self._stop_timer()
                self.transport.pause_reading()
                if self._starting_tls is None:
                    self._starting_tls = self._loop.create_future()
                self._starting_tls.set_result(None)
                return
            elif type(event) is Failed:
                by_server = event.kind is not FailureKind.PROTOCOL
                self.fail(event.kind, event.text, again=event.kind is FailureKind.UNAVAILABLE, by_server=by_server)
                return
        # Each step moves the deadline; the timer is made once and looks at it when it rings.
        self._deadline = self._loop.time() + self._step_seconds
        if self._timer is None:
            self._timer = self._loop.call_later(self._step_seconds, self._ring)

    def _ring(self) -> None:
        """Field case 113: a server that accepts and says nothing."""
        left = self._deadline - self._loop.time()
        if left > CLOCK_GRAIN_SECONDS:
            self._timer = self._loop.call_later(left, self._ring)
            return
        self._timer = None
        if not self._begun and self._opening is not None:
            self.timed_out = True
            self._opening.cancel()
            return
        text = f"no answer at {self._back.state_name} for {self._step_seconds:g} s"
        self.fail(FailureKind.UNAVAILABLE, text, again=False)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def wants_tls(self) -> None:
        """Until the machine asks for TLS, or the attempt is over."""
        if self._starting_tls is None:
            self._starting_tls = self._loop.create_future()
        await self._starting_tls

    def tls_started(self, transport: asyncio.Transport) -> None:
        """The handshake after STARTTLS is done."""
        self.transport = transport
        self._run(self._back.tls_started())


async def open_server(
    leg: MailServerLeg,
    endpoint: Endpoint,
    server: Server,
    facts: ClientFacts | None,
    contexts: ClientContexts,
    limits: Limits,
) -> SignedIn:
    """Connect `leg` to `endpoint` and wait until the user is signed in. Raises `AttemptFailed`.

    `facts` are there when the server is told of the client.
    """
    loop = asyncio.get_running_loop()
    leg.opening(asyncio.current_task(), limits.connect_seconds)
    try:
        proxied = endpoint.client_address in PROXIED
        context = contexts(server) if endpoint.tls is not TlsMode.CLEAR else None
        implicit = endpoint.tls is TlsMode.IMPLICIT
        name = endpoint.tls_name if implicit and not proxied else None
        transport, _ = await loop.create_connection(
            lambda: leg,
            endpoint.address,
            endpoint.port,
            ssl=context if name else None,
            server_hostname=name,
        )
        if leg.closed:  # gone before we were told that it was there; nothing can be done with its transport
            return await leg.done
        keep_alive(transport)
        if proxied and facts is not None:
            source, destination = (facts.address, facts.port), (facts.local_address, facts.local_port)
            v1 = endpoint.client_address is ClientAddress.PROXY_V1
            transport.write(encode_v1(source, destination) if v1 else encode_v2(source, destination, tls=facts.tls))
            if implicit:
                transport = await _start_tls(loop, transport, leg, context, endpoint)
        leg.begin(transport)
        if endpoint.tls is TlsMode.STARTTLS and not leg.done.done():
            await leg.wants_tls()
            if not leg.done.done():
                async with asyncio.timeout(limits.server_step_seconds):
                    leg.tls_started(await _start_tls(loop, transport, leg, context, endpoint))
        return await leg.done
    except ssl.SSLCertVerificationError as error:
        leg.abort()
        text = f"certificate refused: {error.verify_message or error.reason}"
        raise AttemptFailed(FailureKind.PROTOCOL, text, again=False) from error
    except TimeoutError as error:
        leg.abort()
        raise AttemptFailed(FailureKind.UNAVAILABLE, "connecting took too long", again=True) from error
    except OSError as error:
        leg.abort()
        text = f"{type(error).__name__} {error.strerror or error.args[-1] if error.args else ''}".strip()
        raise AttemptFailed(FailureKind.UNAVAILABLE, text, again=True) from error
    except asyncio.CancelledError:
        leg.abort()
        task = asyncio.current_task()
        if not leg.timed_out or task is None or task.uncancel():
            raise
        raise AttemptFailed(FailureKind.UNAVAILABLE, "connecting took too long", again=True) from None
    except BaseException:
        leg.abort()
        raise


async def _start_tls(
    loop: asyncio.AbstractEventLoop,
    transport: asyncio.Transport,
    leg: MailServerLeg,
    context: ssl.SSLContext | None,
    endpoint: Endpoint,
) -> asyncio.Transport:
    assert context is not None
    if transport.is_closing():  # the loop would raise RuntimeError
        raise ConnectionResetError("closed before the TLS handshake")
    secure = await loop.start_tls(transport, leg, context, server_hostname=endpoint.tls_name)
    if secure is None:
        raise ConnectionResetError("closed during the TLS handshake")
    return secure


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Have the kernel notice a dead peer."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    # uvloop's stand-in for a socket makes and unmakes a real one at each call: one for all is a third of the cost.
    real = socket.socket(sock.family, socket.SOCK_STREAM, 0, sock.fileno())
    try:
        for level, option, value in KEEPALIVE:
            real.setsockopt(level, option, value)
    finally:
        real.detach()
