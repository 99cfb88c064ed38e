"""The leg to a mailbox server when the server is faster than the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from gatepost.access.mail_server import MAX_EARLY, AttemptFailed, MailServerLeg, open_server
from gatepost.access.tls import ClientContexts
from gatepost.configuration.settings import Limits
from gatepost.organization.model import ClientAddress, Endpoint, Protocol, Role, Server, TlsMode, Version
from gatepost.wire.events import BackSignIn, ClientFacts, FailureKind
from gatepost.wire.imap_back import ImapBack

GREETING = b"* OK [CAPABILITY IMAP4rev1 SASL-IR LITERAL+ ID] ready\r\n"


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep it."""
        self.written += bytes(data)

    def abort(self) -> None:
        """Note it."""
        self.aborted = True


def leg() -> MailServerLeg:
    """A leg that signs in with LOGIN."""
    return MailServerLeg(ImapBack(BackSignIn(mechanism="LOGIN", user="ann", password="pw", pipelined=True)), 20.0)


async def test_a_greeting_before_the_dialogue_begins_is_not_lost() -> None:
    """A server that greets before `create_connection` has returned is answered as soon as the dialogue begins."""
    server, wire = leg(), Wire()
    server.connection_made(wire)
    server.data_received(GREETING[:9])
    server.data_received(GREETING[9:])
    assert wire.written == b""
    server.begin(wire)
    assert b"LOGIN" in wire.written
    server.abort()


async def test_clear_bytes_before_implicit_tls_are_not_the_server_s() -> None:
    """What came in clear before the handshake is dropped, so that nobody between can speak for the server."""
    server, clear, secure = leg(), Wire(), Wire()
    server.connection_made(clear)
    server.data_received(GREETING)
    server.begin(secure)
    assert secure.written == b""
    server.data_received(GREETING)
    assert b"LOGIN" in secure.written
    server.abort()


async def test_a_server_cannot_fill_memory_before_the_dialogue() -> None:
    """More than the cap ends the attempt."""
    server, wire = leg(), Wire()
    server.connection_made(wire)
    server.data_received(b"x" * (MAX_EARLY + 1))
    assert wire.aborted
    failure = server.done.exception()
    assert isinstance(failure, AttemptFailed)
    assert not failure.again


@contextlib.asynccontextmanager
async def resetting_server(said: bytes) -> AsyncIterator[int]:
    """Accepts, says `said` and resets the connection; a number of its port."""

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()


@pytest.mark.parametrize("proxied", [True, False])
@pytest.mark.parametrize("tls", [TlsMode.IMPLICIT, TlsMode.STARTTLS])
async def test_a_server_that_resets_before_its_handshake_is_unavailable(
    tls: TlsMode, proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is closed by the time the handshake is to begin: a failed attempt, and no fault of ours."""
    server_leg = leg()
    loop = asyncio.get_running_loop()

    async def gone() -> None:
        while not server_leg.closed:  # noqa: ASYNC110 - the transport has no event for it
            await asyncio.sleep(0)

    class SlowLoop:
        """The running loop, but a connection is handed out only when its end has been noticed."""

        def __getattr__(self, name: str) -> object:
            return getattr(loop, name)

        async def create_connection(self, *args: Any, **kwargs: Any) -> object:
            made = await loop.create_connection(*args, **kwargs)
            await asyncio.wait_for(gone(), 5)
            return made

    monkeypatch.setattr("gatepost.access.mail_server.asyncio.get_running_loop", SlowLoop)
    address = ClientAddress.PROXY_V2 if proxied else ClientAddress.NONE
    async with resetting_server(b"") as port:
        endpoint = Endpoint("imap", Protocol.IMAP, "127.0.0.1", port, tls, "mbx.contoso.com", address)
        server = Server("MBX-01", "usa", "mbx", "127.0.0.1", Version.MODERN, frozenset({Role.MAILBOX}), (endpoint,))
        contexts = cast(ClientContexts, lambda _server: ssl.create_default_context())
        facts = ClientFacts("192.0.2.1", 1234, "192.0.2.2", 143)
        with pytest.raises(AttemptFailed) as failed:
            await open_server(server_leg, endpoint, server, facts, contexts, Limits())
    assert (failed.value.kind, failed.value.again) == (FailureKind.UNAVAILABLE, True)
