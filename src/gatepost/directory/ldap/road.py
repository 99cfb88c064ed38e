"""The way to an LDAP server: TCP and TLS by our event loop, in clear to the LDAP library by a pair of sockets.

    library (thread, blocking) ── socket pair ── Leg ═ Leg ── TLS ── server

The library would do TLS itself, with GnuTLS in Debian: when a server closes the connection within the handshake its
thread spins for ever (libldap 2.5), and certificates are read from files only. Here a handshake has a deadline, and
certificates are judged as everywhere else in Gatepost.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import lru_cache, partial
from typing import cast
from urllib.parse import urlsplit

from gatepost.directory.settings import LdapServer

PORTS = {"ldap": 389, "ldaps": 636}
_STARTTLS = b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037"
"""The extended request that asks for TLS (RFC 4511 section 4.14), as message 1."""
_SUCCESS = b"\x0a\x01\x00"
"""The result code `success` in its answer."""
_LONGEST_ANSWER = 1024
CLOSING_ROUNDS = 1000
"""Rounds of the loop that ends of ways are waited for."""


class NoRoad(OSError):
    """The server cannot be reached, or not as it should. The message is for the log."""


class Leg(asyncio.Protocol):
    """One end: what comes goes to the other end, no faster than that takes it."""

    def __init__(self, roads: Roads) -> None:
        self._roads = roads
        self.transport: asyncio.Transport | None = None
        self.other: Leg | None = None
        self.first = asyncio.get_running_loop().create_future()
        """What comes before there is another end."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio`."""
        self.transport = cast(asyncio.Transport, transport)
        self._roads.legs.add(self)

    def data_received(self, data: bytes) -> None:
        """See `asyncio`."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)
        elif not self.first.done():
            self.first.set_result(data)

    def pause_writing(self) -> None:
        """See `asyncio`."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """See `asyncio`."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """See `asyncio`: the other end is closed too, once it has what came."""
        self._roads.legs.discard(self)
        if not self.first.done():
            self.first.set_result(b"")
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class Roads:
    """All ways to the servers of one directory. Belongs to the loop it is used in."""

    def __init__(self) -> None:
        self.legs: set[Leg] = set()
        self._closed = False

    async def open(self, server: LdapServer) -> socket.socket:
        """A blocking socket that leads to `server`, TLS and all. Raises `NoRoad`. The caller closes it."""
        if self._closed:
            raise NoRoad("closed")
        ours, theirs = socket.socketpair()
        try:
            async with asyncio.timeout(server.seconds):
                outer = await self._connect(server)
        except (OSError, ssl.SSLError, TimeoutError) as fault:
            ours.close()
            theirs.close()
            raise NoRoad(f"cannot connect: {_text(fault)}") from fault
        except BaseException:
            ours.close()
            theirs.close()
            raise
        theirs.setblocking(False)
        make = partial(Leg, self)
        _, inner = await asyncio.get_running_loop().create_unix_connection(make, sock=theirs)
        outer.other, inner.other = inner, outer
        if outer.transport is None or outer.transport.is_closing():
            assert inner.transport is not None
            inner.transport.close()
        return ours

    async def close(self) -> None:
        """End all of them, and wait for that."""
        self._closed = True
        for _ in range(CLOSING_ROUNDS):
            for leg in list(self.legs):
                if leg.transport is not None:
                    leg.transport.abort()
            await asyncio.sleep(0)
            if not self.legs:
                break
        await asyncio.sleep(0)  # the loop has let go of their sockets

    async def _connect(self, server: LdapServer) -> Leg:
        loop = asyncio.get_running_loop()
        url = urlsplit(server.url)
        host, port = url.hostname or "", url.port or PORTS[url.scheme]
        context = _context(server.ca) if server.starttls or url.scheme == "ldaps" else None
        make = partial(Leg, self)
        if not server.starttls:
            name = host if context is not None else None
            _, leg = await loop.create_connection(make, host, port, ssl=context, server_hostname=name)
            return leg
        assert context is not None
        transport, leg = await loop.create_connection(make, host, port)
        try:
            transport.write(_STARTTLS)
            answer = await leg.first
            starts = _SUCCESS in answer[:16] and len(answer) <= _LONGEST_ANSWER
            secured = await loop.start_tls(transport, leg, context, server_hostname=host) if starts else None
        except BaseException:
            transport.abort()
            raise
        if secured is None:
            transport.abort()
            raise NoRoad("the server does not start TLS")
        leg.connection_made(secured)
        return leg


@lru_cache(maxsize=16)
def _context(ca: bytes) -> ssl.SSLContext:
    """Verifies a server by `ca` (PEM), or by the system's authorities."""
    return ssl.create_default_context(cadata=ca.decode("ascii") if ca else None)


def _text(fault: BaseException) -> str:
    if isinstance(fault, ConnectionError) and not str(fault):
        return "the server has closed the connection: does it speak TLS at this port (ldaps), or only STARTTLS (ldap)?"
    text = " ".join(str(fault).split())[:300]
    return text or ("no answer in time" if isinstance(fault, TimeoutError) else type(fault).__name__)
