"""A request with a connection in hand waits for its ticket: of the user, or our own for another front end.

connected ──► TicketWait ──► ticket, bound to the connection's server ──► send
                 └──► none to be had ──► 503
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any

from gatepost.access import tasks
from gatepost.access.end_point_binding import end_point_binding
from gatepost.directory.kerberos_port import NoTicket

if TYPE_CHECKING:
    from gatepost.access.http.exchange import Exchange
    from gatepost.access.http.server_leg import HttpServerLeg


class TicketWait:
    """One wait. The connection is nobody else's meanwhile, and is given back when the request goes elsewhere."""

    __slots__ = ("_exchange", "_server")

    def __init__(self, exchange: Exchange, server: HttpServerLeg) -> None:
        self._exchange = exchange
        self._server = server

    def start(self) -> None:
        """Ask for the ticket."""
        tasks.start(self._run(), f"{self._exchange.leg.session} ticket")

    def give_up(self, _exchange: Exchange, /) -> None:
        """The request waits no more."""
        self._give_back()

    def _give_back(self) -> None:
        server = self._server
        if server.bound_to:
            server.abandon()
        else:
            server.pool.give_back(server, self._exchange.leg.door.loop.time())

    async def _run(self) -> None:
        exchange, server = self._exchange, self._server
        try:
            lines = await self._lines()
        except NoTicket as none:
            if exchange.waits_for(self):
                self._give_back()
                exchange.no_ticket(str(none))
            return
        if not exchange.waits_for(self):
            return
        if server.closed:
            exchange.unreachable("the server closed the connection", refused=True)
        else:
            exchange.send(server, lines)

    async def _lines(self) -> bytes:
        exchange = self._exchange
        door, destination = exchange.leg.door, exchange.destination
        onward = door.sign_in.onward
        if onward is None:
            raise NoTicket("configuration: there is no [front_end.kerberos]")
        handshake: Any = self._server.transport.get_extra_info("ssl_object")
        certificate = handshake.getpeercert(binary_form=True) if handshake is not None else None
        binding = end_point_binding(certificate) if certificate else b""
        if not destination.peer:
            # What a server takes a ticket for may be the whole connection (RFC 4559 section 6): nobody else uses it.
            self._server.bind(exchange.user_name)
            return _line(await onward.web_token(exchange.user_name, destination.service, binding))
        assert door.peers is not None  # the destination says so
        payload = door.peers.payload(exchange.identity, exchange.leg.request_id(), destination.target, exchange.leg)
        token, seal = await onward.as_peer(destination.service, binding, payload)
        return _line(token) + door.peers.sealed_line(payload, seal)


def _line(token: bytes) -> bytes:
    return b"Authorization: Negotiate %b\r\n" % binascii.b2a_base64(token, newline=False)


def with_lines(head: bytes, lines: bytes) -> bytes:
    """`head` with more header lines behind its first line."""
    first, end, rest = head.partition(b"\r\n")
    return b"".join((first, end, lines, rest))
