"""The leg to a mailbox server when the server is faster than the event loop."""

from __future__ import annotations

import asyncio

from gatepost.access.mail_server import MAX_EARLY, AttemptFailed, MailServerLeg
from gatepost.wire.events import BackSignIn
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
