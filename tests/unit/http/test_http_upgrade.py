"""Upgraded connections over real sockets: peers that close or reset at the very moment of the change."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trustme
from http_harness import World, get, mailbox_server

from gatepost.access.http.door import HttpDoor
from gatepost.access.http.server_leg import HttpServerLeg
from gatepost.organization.model import Endpoint, Protocol, TlsMode, VirtualDirectory

AUTHORITY = trustme.CA()
CERTIFICATE = AUTHORITY.issue_cert("mbx-1.contoso.com", "mail.contoso.com")
CLIENT_CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
AUTHORITY.configure_trust(CLIENT_CONTEXT)
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
REQUEST = get("/owa/ws", "Connection: Upgrade", "Upgrade: websocket")
CLOSING_FRAME = b"\x81\x02hi\x88\x02\x03\xe8"
"""A text message and a normal close (RFC 6455 sections 5.5.1 and 7.4.1)."""


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST instead of FIN."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Stage:
    """A door on real sockets before one server, which writes `answer` to each upgrade and then ends as `end` says."""

    def __init__(self, *, tls: bool) -> None:
        self.tls = tls
        self.answer = SWITCH + CLOSING_FRAME
        self.end = "close"
        self.heard = asyncio.Queue[bytes]()
        self.door: HttpDoor
        self.world: World
        self.port = 0

    def server_context(self) -> ssl.SSLContext | None:
        if not self.tls:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        CERTIFICATE.configure_cert(context)
        return context

    def client_context(self, *_: object) -> ssl.SSLContext:
        return CLIENT_CONTEXT

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The mailbox server."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.answer)
            if self.end == "reset":
                await writer.drain()
                reset(writer)
                return
            if self.end == "wait":
                self.heard.put_nowait(await reader.read())
        writer.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client."""
        context = self.client_context() if self.tls else None
        name = "mail.contoso.com" if self.tls else None
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname=name)

    async def all_gone(self) -> None:
        """Until no session and no connection to the server is left."""
        async with asyncio.timeout(5):
            while self.door.sessions() or self.door._connections["MBX-1"].open:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def stage(*, tls: bool) -> AsyncIterator[Stage]:
    made = Stage(tls=tls)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=made.server_context())
    port = server.sockets[0].getsockname()[1]
    mode = TlsMode.IMPLICIT if tls else TlsMode.CLEAR
    endpoint = Endpoint("https", Protocol.HTTPS, "127.0.0.1", port, mode, "mbx-1.contoso.com")
    directory = VirtualDirectory("MBX-1", "owa", "/owa", f"{'https' if tls else 'http'}://mbx-1.contoso.com/owa")
    servers = [mailbox_server("MBX-1", endpoints=(endpoint,)), mailbox_server("MBX-2")]
    made.world = world = World(servers, [directory])
    loop: Any = asyncio.get_running_loop()
    sign_in: Any = world.sign_in
    router: Any = world.router
    made.door = HttpDoor(world.configuration, loop, sign_in, router, made.client_context, world.log)
    front = await loop.create_server(lambda: made.door.protocol(tls=True), "127.0.0.1", 0, ssl=made.server_context())
    made.port = front.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        front.close()
        server.close()
        await made.door.drain(0)
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("tls", [False, True])
async def test_a_server_that_closes_with_its_101_is_heard_to_the_end(tls: bool) -> None:
    """101, a message and the end in one packet: the client gets all of it and then the end; nothing is left."""
    async with stage(tls=tls) as s:
        for _ in range(20):
            reader, writer = await s.connect()
            writer.write(REQUEST + b"early")
            got = await asyncio.wait_for(reader.read(), 5)
            assert got.startswith(b"HTTP/1.1 101 ")
            assert got.endswith(b"\r\n\r\n" + CLOSING_FRAME)
            writer.close()
        await s.all_gone()
        lines = s.world.log.of("http.connection")
        assert {line["reason"].partition(":")[0] for line in lines} <= {"server closed", "server lost"}


@pytest.mark.parametrize("tls", [False, True])
async def test_a_server_that_resets_with_its_101_leaves_nothing(tls: bool) -> None:
    """Whether the client sees the 101 or not, its connection ends, and so does ours to the server."""
    async with stage(tls=tls) as s:
        s.end = "reset"
        for _ in range(20):
            reader, writer = await s.connect()
            writer.write(REQUEST + b"early")
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 5)
            writer.close()
        await s.all_gone()


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_client_that_leaves_with_its_request_leaves_nothing(tls: bool, how: str) -> None:
    """It goes while the server is being asked, or as the 101 comes: the server's connection ends."""
    async with stage(tls=tls) as s:
        s.end = "wait"
        for turn in range(20):
            reader, writer = await s.connect()
            writer.write(REQUEST)
            if turn % 2:
                await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
                writer.write(b"bye")
            if how == "close":
                writer.close()
            else:
                await writer.drain()
                reset(writer)
        await s.all_gone()


@pytest.mark.parametrize("side", ["client", "server"])
async def test_a_side_that_is_lost_as_the_relay_takes_over_ends_it(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop may have the news ready for the protocol from before the change: it gets it, and the relay ends."""
    servers: list[HttpServerLeg] = []
    monkeypatch.setattr(HttpServerLeg, "connection_made", _noting(servers, HttpServerLeg.connection_made))
    async with stage(tls=False) as s:
        s.end = "wait"
        reader, writer = await s.connect()
        writer.write(REQUEST)
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        (leg,) = s.door._legs
        (leg if side == "client" else servers[0]).connection_lost(None)
        # That side's transport is really there, unlike its news: it is closed by hand.
        (leg.transport if side == "client" else servers[0].transport).abort()
        await s.all_gone()
        assert s.world.log.of("http.connection")[0]["reason"] == f"{side} closed"
        assert s.door._connections["MBX-1"].open == 0
        writer.close()


def _noting(made: list[HttpServerLeg], real: Any) -> Any:
    def connection_made(leg: HttpServerLeg, transport: asyncio.BaseTransport) -> None:
        made.append(leg)
        real(leg, transport)

    return connection_made


async def test_a_client_that_is_full_as_the_relay_takes_over_holds_the_server_up() -> None:
    """A server that sends megabytes at once after its 101 to a client that does not read fills no memory."""
    size = 32 << 20
    async with stage(tls=False) as s:
        s.answer = SWITCH + b"x" * size
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", s.port))
        await loop.sock_sendall(sock, REQUEST)
        async with asyncio.timeout(5):
            while not s.door.relays:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.1)
        (leg,) = s.door._legs
        assert leg.transport.get_write_buffer_size() < 2 << 20
        sock.close()
        await s.all_gone()
