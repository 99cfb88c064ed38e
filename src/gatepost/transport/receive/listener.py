"""A listening socket of receive connectors. Where TLS comes first, connections are counted before their handshake."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from gatepost.organization.transport import Binding, ReceiveConnector
from gatepost.relay import tasks
from gatepost.relay.accepting import BACKLOG, Acceptor, read_proxy_header
from gatepost.routing.receiving import plain_address
from gatepost.transport.receive.admission import Place
from gatepost.transport.receive.connection import ReceiveConnection
from gatepost.transport.receive.leg import PROXY_SECONDS
from gatepost.transport.receive.tls import Shows
from gatepost.wire.proxy_protocol import BadProxyHeader, ProxyHeader

if TYPE_CHECKING:
    from gatepost.transport.receive.service import ReceiveService


class ReceiveListener:
    """Takes connections of `sock` for the connectors of `binding`."""

    def __init__(self, service: ReceiveService, sock: socket.socket, binding: Binding) -> None:
        self._service = service
        self._sock = sock
        self.binding = binding
        self._server: asyncio.Server | None = None
        self._acceptor: Acceptor | None = None

    async def start(self) -> None:
        """Take connections from now on."""
        self._sock.setblocking(False)
        if self.binding.implicit_tls:
            self._acceptor = Acceptor(self._sock, self._arrived, self._exhausted)
        else:
            self._server = await self._service.loop.create_server(
                lambda: ReceiveConnection(self._service, self.binding), sock=self._sock, backlog=BACKLOG
            )

    def close(self) -> None:
        """Take no more connections. Those under way go on."""
        if self._server is not None:
            self._server.close()
        if self._acceptor is not None:
            self._acceptor.close()

    def _exhausted(self, error: OSError) -> None:
        self._service.log.error("receive.no_descriptors", error=str(error))

    def _arrived(self, sock: socket.socket, address: str) -> None:
        tasks.start(self._arrive(sock, address), "arrival")

    async def _arrive(self, sock: socket.socket, address: str) -> None:
        """PROXY header and handshake of one connection."""
        service = self._service
        place: Place | None = None
        try:
            peer = plain_address(address)
            proxy: ProxyHeader | None = None
            if service.expects_proxy(self.binding, peer):
                async with asyncio.timeout(PROXY_SECONDS):
                    proxy = await read_proxy_header(service.loop, sock)
                if not proxy.local and proxy.source is not None:
                    address = proxy.source[0]
            local = plain_address(sock.getsockname()[0])
            connector = service.connector_for(self.binding, local, plain_address(address))
            place = service.counts.arrive(connector, address) if connector is not None else None
            if connector is None or place is None or service.tls is None:
                service.log.info("receive.refused", client=address, port=self.binding.port, reason="no place")
                sock.close()
                return
            await self._enter(sock, proxy, connector, place)
            place = None
        except BadProxyHeader as error:
            service.log.warning("receive.refused", client=address, reason=f"PROXY header: {error}")
            sock.close()
        except (OSError, TimeoutError, ValueError):
            sock.close()  # a client that gave up, a port scan, or a handshake that came to nothing
        except BaseException:
            sock.close()
            raise
        finally:
            if place is not None:
                place.leave()

    async def _enter(
        self, sock: socket.socket, proxy: ProxyHeader | None, connector: ReceiveConnector, place: Place
    ) -> None:
        service = self._service
        assert service.tls is not None
        context, shows = service.tls.context_for(connector)
        partner = shows is Shows.PARTNER
        await service.loop.connect_accepted_socket(
            lambda: ReceiveConnection(
                service, self.binding, proxy=proxy, connector=connector, place=place, partner=partner
            ),
            sock,
            ssl=context,
            ssl_handshake_timeout=service.handshake_seconds,
        )
