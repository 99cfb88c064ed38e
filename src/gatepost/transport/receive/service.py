"""Receiving mail in one process: connectors, listeners, connections, their deadlines and their end (SPEC T1)."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

from structlog.typing import FilteringBoundLogger

from gatepost.directory.sign_in import SignInService
from gatepost.organization.transport import Address, Binding, ReceiveConnector
from gatepost.peers.identity import PeerRefused
from gatepost.routing.receiving import choose_connector
from gatepost.transport.ports import Intake
from gatepost.transport.receive.admission import ConnectorCounts
from gatepost.transport.receive.leg import ReceiveLeg
from gatepost.transport.receive.listener import ReceiveListener
from gatepost.transport.receive.tls import ReceiveTls
from gatepost.transport.shadow.answering import AnsweringChannel, ShadowPart

SWEEP_SECONDS = 1.0
"""How often deadlines are looked at."""
REMEMBERED_CHOICES = 10_000
"""Clients whose connector is remembered; then all are forgotten."""


class ReceiveService:
    """Takes mail for `connectors`, all of one server, and gives it to `intake`. Belongs to the loop it is made in.

    `host` is the server's name. Without `tls` none is offered, without `sign_in` nobody can sign in.
    """

    def __init__(
        self,
        connectors: Iterable[ReceiveConnector],
        intake: Intake[Any],
        host: str,
        log: FilteringBoundLogger,
        *,
        tls: ReceiveTls | None = None,
        sign_in: SignInService | None = None,
        handshake_seconds: float = 30.0,
        sweep_seconds: float = SWEEP_SECONDS,
        shadow: ShadowPart | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.intake = intake
        self.host = host
        self.log = log
        self.tls = tls
        self.sign_in = sign_in
        self.handshake_seconds = handshake_seconds
        self.counts = ConnectorCounts()
        self._shadow = shadow
        self.connections: set[ReceiveLeg] = set()
        self.channels: set[AnsweringChannel] = set()
        self.stopping = False
        self._connectors = tuple(connectors)
        self._choices: dict[tuple[Address, int, Address], ReceiveConnector | None] = {}
        self._listeners: list[ReceiveListener] = []
        self._sweep_seconds = sweep_seconds
        self._timer: asyncio.TimerHandle | None = None

    async def listen(self, sock: socket.socket, binding: Binding) -> None:
        """Take connections of `sock`, which is bound as `binding` says."""
        listener = ReceiveListener(self, sock, binding)
        self._listeners.append(listener)
        await listener.start()
        if self._timer is None:
            self._timer = self.loop.call_later(self._sweep_seconds, self._sweep)

    @property
    def shadow(self) -> ShadowPart | None:
        """What hubs of the organization are offered of shadow redundancy; may be replaced. None: it is off.

        Channels of who is none of them any more end at once.
        """
        return self._shadow

    @shadow.setter
    def shadow(self, part: ShadowPart | None) -> None:
        self._shadow = part
        self._judge_channels()

    def close_listeners(self, wanted: Callable[[Binding], bool]) -> None:
        """Take no more connections at these bindings; those under way go on."""
        for listener in [listener for listener in self._listeners if wanted(listener.binding)]:
            listener.close()
            self._listeners.remove(listener)

    def reload(
        self, connectors: Iterable[ReceiveConnector], host: str, tls: ReceiveTls | None, sign_in: SignInService | None
    ) -> None:
        """Use these for connections that begin later."""
        self._connectors = tuple(connectors)
        self._choices.clear()
        self.host = host
        self.tls = tls
        self.sign_in = sign_in
        self._judge_channels()

    def connector_for(self, binding: Binding, local: Address, remote: Address) -> ReceiveConnector | None:
        """The connector for a client; see `choose_connector`."""
        key = (local, binding.port, remote)
        if key not in self._choices:
            if len(self._choices) >= REMEMBERED_CHOICES:
                self._choices.clear()
            self._choices[key] = choose_connector(self._connectors, local, binding.port, remote)
        return self._choices[key]

    def expects_proxy(self, binding: Binding, peer: Address) -> bool:
        """Whether connections of `peer` begin with a PROXY header: a connector of this binding lists it."""
        return any(
            peer in addresses
            for connector in self._connectors
            if connector.enabled and connector.proxy_protocol_from
            for addresses in connector.proxy_protocol_from
            if any(b.port == binding.port and b.address == binding.address for b in connector.bindings)
        )

    async def stop(self, grace: float) -> None:
        """End: no new connections, 421 to those that are idle, and `grace` seconds for messages under way."""
        self.stopping = True
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections):
            connection.stop()
        for channel in list(self.channels):
            channel.stop()
        deadline = self.loop.time() + grace
        while self.channels or any(c.session is not None and c.session.in_content for c in self.connections):
            if self.loop.time() >= deadline:
                break
            await asyncio.sleep(min(0.05, grace))
        for connection in list(self.connections):
            connection.cut()
        for channel in list(self.channels):
            channel.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for _ in range(20):
            if not self.connections and not self.channels:
                break
            await asyncio.sleep(0.05)  # the last words are on their way
        for connection in list(self.connections):
            connection.abort()

    def _judge_channels(self) -> None:
        """Channels live long: organization and CA may be others than when they were opened."""
        servers = self._shadow.offer.servers if self._shadow is not None else frozenset()
        for channel in list(self.channels):
            name = channel.hub.server
            try:
                known = self.tls is not None and self.tls.server_at(channel.certificate, time.time()) == name
            except PeerRefused:
                known = False
            if not known or name not in servers:
                channel.abort("it is no hub of the organization any more")

    def _sweep(self) -> None:
        self._timer = self.loop.call_later(self._sweep_seconds, self._sweep)
        now = self.loop.time()
        for connection in list(self.connections):
            connection.sweep(now)
        for channel in list(self.channels):
            channel.sweep(now)
