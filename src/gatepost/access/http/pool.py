"""Kept-alive connections to servers.

A `Pool` holds connections that are alike in everything that matters: server, address, port, TLS mode and name, the
form of sign-in. A `ServerConnections` counts the connections of all pools of one server and keeps the queue of those
who wait for one (SPEC B4). A connection that a server has bound to a user never comes back to a pool.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from gatepost.access import tasks
from gatepost.access.http.server_leg import HttpServerLeg
from gatepost.access.http.waiting_room import WaitingRoom
from gatepost.organization.model import Endpoint, TlsMode

if TYPE_CHECKING:
    from gatepost.access.http.door import HttpDoor
    from gatepost.access.http.exchange import Exchange

MAX_IDLE = 256
"""Unused connections of one pool; the last used are used first, so that the rest grow old."""
MAX_WAITING = 1000
"""Requests that wait for one server; more would only wait in vain."""


class ServerConnections:
    """All connections of this worker to one server, and what became of them since the worker's start."""

    __slots__ = ("limit", "open", "opened", "pools", "reused", "waiting")

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        self.limit = limit
        self.open = 0
        self.opened = 0
        self.reused = 0
        self.pools: list[Pool] = []
        self.waiting: WaitingRoom[Exchange] = WaitingRoom(loop, MAX_WAITING, _turn_away)

    def __repr__(self) -> str:
        idle = sum(len(pool.idle) for pool in self.pools)
        return f"<ServerConnections open={self.open} idle={idle} waiting={len(self.waiting)}>"

    def counters(self) -> dict[str, int]:
        """Connections and requests, now and since the start."""
        return {
            "open": self.open,
            "opened": self.opened,
            "reused": self.reused,
            "waiting": len(self.waiting),
            "refused": self.waiting.refused,
        }

    def freed(self) -> None:
        """A connection is gone: the first who waits may open another."""
        self.open -= 1
        self.wake()

    def wake(self) -> None:
        """Let those who wait in, as far as there is room."""
        while self.waiting and self.open < self.limit:
            exchange = self.waiting.pop()
            if not exchange.over:
                exchange.destination.pool.connect(exchange)

    def close_one_idle(self) -> bool:
        """Close an unused connection of whatever pool, to make room."""
        for pool in self.pools:
            while pool.idle:
                leg = pool.idle.pop(0)
                if not leg.closed:
                    leg.abandon()
                    return True
        return False


class Pool:
    """Connections that any request for one kind of destination may use."""

    __slots__ = ("_context", "_door", "_endpoint", "_rules", "_server", "idle", "retired", "server_name")

    def __init__(
        self,
        door: HttpDoor,
        server: ServerConnections,
        name: str,
        endpoint: Endpoint,
        context: ssl.SSLContext | None,
        *,
        peer: bool = False,
    ) -> None:
        """With `peer` the server is another front end, whose responses say a little more."""
        self._door = door
        self._server = server
        self._endpoint = endpoint
        self._context = context
        self._rules = door.peer_response_rules if peer else door.response_rules
        self.server_name = name
        self.idle: list[HttpServerLeg] = []
        self.retired = False
        """The configuration has changed since: connections are closed instead of kept."""
        server.pools.append(self)

    def take(self) -> HttpServerLeg | None:
        """An unused connection that is still open, if there is one."""
        idle = self.idle
        while idle:
            leg = idle.pop()
            if not leg.closed:
                self._server.reused += 1
                return leg
        return None

    def give_back(self, leg: HttpServerLeg, now: float) -> None:
        """`leg` is free again: for the first who waits, or to be kept."""
        server = self._server
        waiting = server.waiting
        while waiting.present and not self.retired and waiting.first().destination.pool is self:
            exchange = waiting.pop()
            if not exchange.over:
                server.reused += 1
                exchange.connected(leg)
                return
        # Who waits now wants another kind of connection: when this one is gone there is room for it.
        if waiting.present or self.retired or len(self.idle) >= MAX_IDLE:
            leg.abandon()
        else:
            leg.idle_until = now + leg.keep_seconds
            self.idle.append(leg)

    def ask(self, exchange: Exchange) -> None:
        """Open a connection for `exchange`, or let it wait until there is room."""
        server = self._server
        if server.open < server.limit and not server.waiting:
            self.connect(exchange)
        else:
            server.waiting.put(exchange.user_name, exchange)
            server.close_one_idle()

    def give_up(self, exchange: Exchange) -> None:
        """`exchange` is over: if it waits, it does so no more."""
        self._server.waiting.cancel(exchange)

    def connect(self, exchange: Exchange) -> None:
        """Open a connection for `exchange`; the count is taken at once."""
        self._server.open += 1
        self._server.opened += 1
        tasks.start(self._connect(exchange), f"http connect {self._server} {self.server_name}")

    async def _connect(self, exchange: Exchange) -> None:
        endpoint = self._endpoint
        leg = HttpServerLeg(self._rules, self._server, self)
        secure = endpoint.tls is not TlsMode.CLEAR
        try:
            async with asyncio.timeout(self._door.limits.connect_seconds):
                await self._door.loop.create_connection(
                    lambda: leg,
                    endpoint.address,
                    endpoint.port,
                    ssl=self._context if secure else None,
                    server_hostname=(endpoint.tls_name or endpoint.address) if secure else None,
                )
            leg.require_open()
        except OSError as error:
            leg.not_counted()
            self._server.freed()
            if exchange.waits_for(self):
                exchange.unreachable(_reason(error), refused=True)
            return
        except BaseException:
            leg.not_counted()
            self._server.freed()
            raise
        if exchange.waits_for(self):
            exchange.connected(leg)
        else:  # it is over, or has gone elsewhere meanwhile
            self.give_back(leg, self._door.loop.time())

    def sweep(self, now: float) -> None:
        """Close what has not been used for long. The list is in order of use, the oldest first."""
        while self.idle and (self.idle[0].closed or self.idle[0].idle_until < now):
            self.idle.pop(0).abandon()

    def retire(self) -> None:
        """Close unused connections; those in use are closed after their response."""
        self.retired = True
        self.close_idle()

    def close_idle(self) -> None:
        """Close unused connections."""
        while self.idle:
            self.idle.pop().abandon()


def _turn_away(exchange: Exchange, reason: str) -> None:
    exchange.unreachable(f"all connections are in use: {reason}", refused=False)


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate refused: {getattr(error, 'verify_message', '') or error}"
    if isinstance(error, TimeoutError):
        return "connecting took too long"
    return f"cannot connect: {error.strerror or error or type(error).__name__}"
