"""From a listening socket to the protocol of a connection: PROXY header, implicit TLS, then the leg.

Connections that need neither come straight from the loop's own server. The others are accepted here, so that a
PROXY header is read with exact sizes before anything else sees a byte, and so that strangers are counted before
they may cost a TLS handshake.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from ipaddress import ip_address

from structlog.typing import FilteringBoundLogger

from gatepost.access import tasks
from gatepost.access.admission import Admission
from gatepost.access.tls import Reloadable
from gatepost.configuration.settings import FrontEnd
from gatepost.organization.model import Network
from gatepost.relay.accepting import BACKLOG, Acceptor, read_proxy_header
from gatepost.wire.proxy_protocol import BadProxyHeader, ProxyHeader

SECOND_LOOK_SECONDS = 0.25
"""A newcomer too many is asked in once more after this: of the connections that its address has just closed, some still
count, since accepting comes before reading. A client that closes a burst and opens another would lose part of it."""
MAX_SECOND_LOOKS = 256
"""Newcomers of one listener that wait for that at one time; further ones are closed at once."""

Factory = Callable[[ProxyHeader | None], asyncio.Protocol]
Refused = Callable[[str, str], None]
"""Told of a handshake that came to nothing: the other side's address, and why."""


class _Entry(asyncio.Protocol):
    """Stands in until the connection is there; then the leg takes over, and with it the count at the door."""

    def __init__(self, make: Callable[[], asyncio.Protocol], release: Callable[[], None]) -> None:
        self._make = make
        self._release = release

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._release()
        leg = self._make()
        transport.set_protocol(leg)
        leg.connection_made(transport)


class Listener:
    """One listening socket. `tls` is set where TLS comes first; `factory` makes the protocol of each connection.

    Failed handshakes are nobody's news, unless there is `refused` to tell.
    """

    def __init__(
        self,
        sock: socket.socket,
        factory: Factory,
        tls: Reloadable | None,
        front_end: FrontEnd,
        admission: Admission,
        log: FilteringBoundLogger,
        refused: Refused | None = None,
    ) -> None:
        self._sock = sock
        self._refused = refused
        self._factory = factory
        self._tls = tls
        self._trusted: tuple[Network, ...] = front_end.proxy_protocol_from
        self._seconds = front_end.limits.sign_in_seconds
        self._admission = admission
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._acceptor: Acceptor | None = None
        self._open = False
        self._second_looks = 0

    async def start(self) -> None:
        """Take connections from now on."""
        self._open = True
        self._sock.setblocking(False)
        if self._tls is None and not self._trusted:
            self._server = await self._loop.create_server(lambda: self._factory(None), sock=self._sock, backlog=BACKLOG)
        else:
            self._acceptor = Acceptor(self._sock, self._arrived, self._exhausted)

    def reload(self, front_end: FrontEnd) -> None:
        """Use other trusted peers; only listeners that accept by themselves can begin to trust."""
        self._trusted = front_end.proxy_protocol_from
        self._seconds = front_end.limits.sign_in_seconds
        if self._open and self._server is not None and self._trusted:
            self._switch()

    def _switch(self) -> None:
        """From the loop's server to our own accepting, on the same socket: none waiting in it is lost."""
        assert self._server is not None
        ours = self._sock.dup()
        self._server.close()
        self._server = None
        self._sock = ours
        self._acceptor = Acceptor(ours, self._arrived, self._exhausted)

    def close(self) -> None:
        """Take no more connections. Those under way go on."""
        if not self._open:
            return
        self._open = False
        if self._server is not None:
            self._server.close()
        elif self._acceptor is not None:
            self._acceptor.close()

    def _exhausted(self, error: OSError) -> None:
        self._log.error("listener.no_descriptors", error=str(error))

    def _arrived(self, sock: socket.socket, address: str) -> None:
        trusted = bool(self._trusted) and self._is_trusted(address)
        admitted = not trusted and self._admission.arrive(address)
        if not trusted and not admitted and self._second_looks >= MAX_SECOND_LOOKS:
            sock.close()
            return
        tasks.start(self._arrive(sock, address, trusted=trusted, admitted=admitted), "arrival")

    def _is_trusted(self, address: str) -> bool:
        ip = ip_address(address.partition("%")[0])
        mapped = getattr(ip, "ipv4_mapped", None)
        ip = mapped or ip
        return any(ip.version == network.version and ip in network for network in self._trusted)

    async def _admitted(self, address: str) -> bool:
        """Whether a connection of `address` may come in; if so, it is counted."""
        if self._admission.arrive(address):
            return True
        if self._second_looks >= MAX_SECOND_LOOKS:
            return False
        self._second_looks += 1
        try:
            await asyncio.sleep(SECOND_LOOK_SECONDS)
        finally:
            self._second_looks -= 1
        return self._open and self._admission.arrive(address)

    async def _arrive(self, sock: socket.socket, address: str, *, trusted: bool, admitted: bool) -> None:
        """PROXY header and handshake of one connection, within the time for signing in.

        `admitted`: `address` is the client's own, and it is counted already.
        """
        counted = [address] if admitted else []

        def release() -> None:
            while counted:
                self._admission.leave(counted.pop(), settled=False)

        try:
            async with asyncio.timeout(self._seconds):
                header = await read_proxy_header(self._loop, sock) if trusted else None
                speaks_for_itself = header is not None and (header.local or header.source is None)
                if header is not None and header.source is not None and not header.local:
                    address = header.source[0]
                if not admitted and not speaks_for_itself:
                    if not await self._admitted(address):
                        sock.close()
                        return
                    counted.append(address)
                await self._enter(sock, header, release)
        except BadProxyHeader as error:
            self._log.warning("listener.refused", client=address, reason=f"PROXY header: {error}")
            sock.close()
        except (OSError, ssl.SSLError, TimeoutError) as error:
            if self._refused is not None and isinstance(error, ssl.SSLError):
                self._refused(address, getattr(error, "verify_message", "") or error.reason or "no TLS")
            sock.close()  # a client that gave up, a port scan, or a handshake that came to nothing
        except BaseException:
            sock.close()
            raise
        finally:
            release()

    async def _enter(self, sock: socket.socket, header: ProxyHeader | None, release: Callable[[], None]) -> None:
        context = self._tls.outer if self._tls is not None else None
        await self._loop.connect_accepted_socket(
            lambda: _Entry(lambda: self._factory(header), release),
            sock,
            ssl=context,
            ssl_handshake_timeout=self._seconds if context is not None else None,
        )
