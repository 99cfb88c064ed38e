"""The access layer of one worker: every listener and every session of it.

sockets ──► Listener ──► MailDoor (imap, pop3) ──► MailClientLeg ──► Relay
                    └──► HttpDoor (https, http) ──► HttpClientLeg
what all share: SignInService, Router, Admission, TLS contexts, log
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from structlog.typing import FilteringBoundLogger

from gatepost.access.admission import Admission
from gatepost.access.health import HealthService
from gatepost.access.http.door import HttpDoor
from gatepost.access.listener import Factory, Listener
from gatepost.access.mail_door import MailDoor
from gatepost.access.mail_server import KEEPALIVE
from gatepost.access.router import Router
from gatepost.access.tls import ClientContexts, Reloadable, peer_server_context, server_context
from gatepost.configuration.settings import Configuration, FrontEnd
from gatepost.directory.sign_in import SignInService
from gatepost.organization.model import PEER, Endpoint, Protocol, TlsMode
from gatepost.sharedstate.port import SharedState

ALPN = {Protocol.IMAP: "imap", Protocol.POP3: "pop3", Protocol.HTTPS: "http/1.1"}
"""Names that a listener agrees on, so that bytes of one protocol find no other behind TLS (field case 93)."""


class FrontDoor:
    """All client access of one worker."""

    def __init__(
        self,
        configuration: Configuration,
        loop: asyncio.AbstractEventLoop,
        sign_in: SignInService,
        router: Router,
        log: FilteringBoundLogger,
        shared_state: SharedState | None = None,
        stores_fault: Callable[[], str] = str,
    ) -> None:
        front_end = configuration.front_end
        self._configuration = configuration
        self._log = log
        limits = front_end.limits
        self._admission = Admission(limits.unauthenticated_per_address, limits.sessions)
        contexts = ClientContexts(front_end)
        self._tls = (
            {p: Reloadable(server_context(front_end, ALPN[p])) for p in Protocol} if front_end.certificate else {}
        )
        self._peer_tls = Reloadable(peer_server_context(front_end.peer_keys)) if front_end.peer_keys else None
        self.health = HealthService(loop, configuration, contexts, log)
        self._mail = {
            protocol: MailDoor(protocol, configuration, sign_in, router, self._admission, contexts, log, self.health)
            for protocol in (Protocol.IMAP, Protocol.POP3)
        }
        for protocol, door in self._mail.items():
            door.starttls = self._tls.get(protocol)
        self._http = HttpDoor(
            configuration,
            loop,
            sign_in,
            router,
            contexts,
            log,
            self._admission,
            shared_state=shared_state,
            health=self.health,
            stores_fault=stores_fault,
        )
        self.health.when_dead = self._http.server_dead
        self._listeners: dict[str, list[Listener]] = {}

    async def listen(self, sockets: dict[str, list[socket.socket]]) -> None:
        """Take connections from bound sockets, by endpoint name; a name that is listened on already is replaced."""
        for name, group in sockets.items():
            self.close_listeners([name])
            endpoint = self._endpoint(name)
            self._listeners[name] = [self._listener(endpoint, sock) for sock in group]
            for listener in self._listeners[name]:
                await listener.start()

    def close_listeners(self, names: Iterable[str]) -> None:
        """Take no more connections for these endpoints; their sessions stay."""
        for name in names:
            for listener in self._listeners.pop(name, []):
                listener.close()

    def reload(self, configuration: Configuration) -> None:
        """New certificate, settings and organization, for whoever comes from now on. Sessions stay as they are."""
        front_end = configuration.front_end
        fresh = {p: server_context(front_end, ALPN[p]) for p in Protocol} if front_end.certificate else {}
        for_peers = peer_server_context(front_end.peer_keys) if front_end.peer_keys else None
        self._configuration = configuration
        for protocol, context in fresh.items():
            if protocol in self._tls:
                self._tls[protocol].replace(context)
            else:
                self._tls[protocol] = Reloadable(context)
        if self._peer_tls is None or for_peers is None:
            self._peer_tls = Reloadable(for_peers) if for_peers else None
        else:
            self._peer_tls.replace(for_peers)
        contexts = ClientContexts(front_end)
        self.health.reload(configuration, contexts)
        for protocol, door in self._mail.items():
            door.reload(configuration, contexts)
            door.starttls = self._tls.get(protocol)
        self._http.reload(configuration, contexts)
        self._admission.set_limits(front_end.limits.unauthenticated_per_address, front_end.limits.sessions)
        for name, group in self._listeners.items():
            for listener in group:
                listener.reload(_without_proxies(front_end) if name == PEER else front_end)

    async def drain(self, seconds: float) -> None:
        """Take no more connections; sessions go on until they end by themselves or `seconds` have passed."""
        self.close_listeners(list(self._listeners))
        async with asyncio.TaskGroup() as group:
            for door in self._doors():
                group.create_task(door.drain(seconds))
        self.health.close()

    def sessions(self) -> list[dict[str, Any]]:
        """One entry a client connection of any protocol."""
        return [entry for door in self._doors() for entry in door.sessions()]

    def counters(self) -> dict[str, int]:
        """What happened since the worker's start, and what happens now, as numbers."""
        return self._http.counters() | self.health.counters()

    def _doors(self) -> list[MailDoor | HttpDoor]:
        return [*self._mail.values(), self._http]

    def _endpoint(self, name: str) -> Endpoint:
        return next(e for e in self._configuration.server.endpoints if e.name == name)

    def _listener(self, endpoint: Endpoint, sock: socket.socket) -> Listener:
        for level, option, value in KEEPALIVE:
            sock.setsockopt(level, option, value)  # what a listening socket has, its connections inherit
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        front_end: FrontEnd = self._configuration.front_end
        if endpoint.name == PEER:
            return self._peer_listener(sock, front_end)
        implicit = endpoint.tls is TlsMode.IMPLICIT
        tls = self._tls[endpoint.protocol] if implicit else None
        return Listener(sock, self._factory(endpoint), tls, front_end, self._admission, self._log)

    def _peer_listener(self, sock: socket.socket, front_end: FrontEnd) -> Listener:
        """For other front ends, who come straight: a PROXY header is nothing that TLS begins with."""
        assert self._peer_tls is not None
        http = self._http

        def refused(address: str, reason: str) -> None:
            if http.peers is not None:
                http.peers.handshake_failed(address, reason)

        return Listener(
            sock,
            lambda _: http.protocol(tls=True, peer=True),
            self._peer_tls,
            _without_proxies(front_end),
            self._admission,
            self._log,
            refused,
        )

    def _factory(self, endpoint: Endpoint) -> Factory:
        implicit = endpoint.tls is TlsMode.IMPLICIT
        if endpoint.protocol is Protocol.HTTPS:
            return lambda proxy: self._http.protocol(tls=implicit, proxy=proxy)
        door = self._mail[endpoint.protocol]
        return door.factory(tls=implicit, starttls=endpoint.tls is TlsMode.STARTTLS)


def _without_proxies(front_end: FrontEnd) -> FrontEnd:
    """The same settings where nobody is believed to speak for others: an assertion says who a peer's client is."""
    return replace(front_end, proxy_protocol_from=())
