"""A server of SMTP or LMTP that says what a test has it say, and what a test needs to send to it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from typing import Any, cast

import pytest
import trustme
from structlog.testing import CapturingLogger

from gatepost.organization.transport import TlsLevel
from gatepost.routing.next_hop import Transfer, Way
from gatepost.transport.message import Envelope, Recipient, RecipientState
from gatepost.transport.send.connecting import Outbound
from gatepost.transport.send.options import Endpoint, SendOptions
from gatepost.transport.send.outcome import ConnectFailed
from gatepost.transport.send.sender import SmtpSender
from gatepost.transport.send.tls import TlsMaterial
from gatepost.wire.smtp_data import DataDecoder

DROP = b"(drop)"
"""An answer: the connection is closed instead."""
DROP_AT_HELLO = b"(drop at hello)"
"""Of `HANDSHAKE`: the connection is closed when the handshake has begun."""
HANG = b"(hang)"
"""Of `HANDSHAKE`: nothing more is heard."""
SILENCE = b""
"""An answer: none."""
CONTENT = b"Subject: s\r\nFrom: a@x.test\r\n\r\n.dot\r\nbody\r\n"
DEADLINE = 15.0
"""Seconds for whatever a test waits for, on a machine with much to do."""

Answer = bytes | Callable[[str], bytes]


@cache
def authority() -> trustme.CA:
    """The CA of these tests."""
    return trustme.CA()


@cache
def server_tls(name: str) -> ssl.SSLContext:
    """A server's context with a certificate for `name`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert(name).configure_cert(context)
    return context


def ca_pem() -> bytes:
    return authority().cert_pem.bytes()


class Server:
    """Listens on loopback. `answers` has a reply, or several in turn (the last one stays), for each verb.

    Also for `GREETING`, `END` (of content; with LMTP in turn for each accepted recipient) and `HANDSHAKE` (`DROP`).
    """

    def __init__(
        self,
        *offers: bytes,
        tls: ssl.SSLContext | None = None,
        lmtp: bool = False,
        chunk_seconds: float = 0.0,
        **answers: Answer | list[bytes],
    ) -> None:
        self.offers = [b"STARTTLS", *offers] if tls is not None else list(offers)
        self.tls = tls
        self.lmtp = lmtp
        self.answers: dict[str, Any] = dict(answers)
        self.slow = chunk_seconds
        self.commands: list[str] = []
        """All commands of all connections."""
        self.contents: list[bytes] = []
        self.octets = 0
        self.connections: list[Connection] = []
        self.endpoint = Endpoint("127.0.0.1", 0)

    def answer(self, verb: str, argument: str = "", default: bytes = b"250 2.0.0 ok\r\n") -> bytes:
        """The next answer to a verb."""
        found = self.answers.get(verb, default)
        if isinstance(found, list):
            return found.pop(0) if len(found) > 1 else found[0]
        return found(argument) if callable(found) else found

    @property
    def verbs(self) -> list[str]:
        """The verbs that have come."""
        return [command.split(" ")[0].upper() for command in self.commands]

    @asynccontextmanager
    async def running(self, address: str = "127.0.0.1") -> AsyncIterator[Server]:
        """While it listens."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(self), address, 0)
        self.endpoint = Endpoint(address, server.sockets[0].getsockname()[1])
        try:
            yield self
        finally:
            server.close()
            for connection in self.connections:
                connection.transport.abort()
            await asyncio.sleep(0)
            await until(lambda: all(connection.closed for connection in self.connections))

    def way(self, **changes: Any) -> Way:
        """How it is reached; without TLS if nothing else is said."""
        way = Way("mx.x.test", self.endpoint.ip, self.endpoint.port, tls=TlsLevel.NONE)
        return replace(way, **({"transfer": Transfer.LMTP} if self.lmtp else {}) | changes)


class Connection(asyncio.Protocol):
    """One connection to a `Server`."""

    transport: asyncio.Transport

    def __init__(self, server: Server) -> None:
        self.server = server
        self.buffer = b""
        self.decoder: DataDecoder | None = None
        self.chunk = -1
        self.last = False
        self.content = b""
        self.accepted = 0
        self.closed = False
        self.in_tls = False
        self.at_hello = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if not self.in_tls:
            self.server.connections.append(self)
            self.say(self.server.answer("GREETING", default=b"220 mx.x.test\r\n"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True

    def say(self, data: bytes) -> None:
        if data == DROP:
            self.transport.close()
        elif not self.transport.is_closing():
            self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        if self.at_hello in (DROP_AT_HELLO, HANG):
            if self.at_hello == DROP_AT_HELLO:
                self.transport.close()
            return
        if self.server.slow:
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(self.server.slow, self.read_on)
        self.buffer += data
        while self.buffer and not self.transport.is_closing():
            if self.decoder is not None:
                self.take_data()
            elif self.chunk >= 0:
                if not self.take_chunk():
                    return
            else:
                line, end, rest = self.buffer.partition(b"\r\n")
                if not end:
                    return
                self.buffer = rest
                self.command(line.decode("utf-8", "replace"))

    def read_on(self) -> None:
        if not self.closed:
            self.transport.resume_reading()

    def command(self, line: str) -> None:
        self.server.commands.append(line)
        verb, _, argument = line.partition(" ")
        verb = verb.upper()
        if verb in ("EHLO", "LHLO"):
            lines = [b"mx.x.test", *(offer for offer in self.server.offers if offer != b"STARTTLS" or not self.in_tls)]
            said = b"".join(b"250-%b\r\n" % text for text in lines[:-1]) + b"250 %b\r\n" % lines[-1]
            self.say(self.server.answer(verb, argument, said))
        elif verb == "STARTTLS":
            answer = self.server.answer(verb, argument, b"220 go\r\n")
            self.say(answer)
            if answer.startswith(b"220"):
                asyncio.get_running_loop().create_task(self.start_tls())
        elif verb == "DATA":
            answer = self.server.answer(verb, argument, b"354 go\r\n" if self.accepted else b"554 nobody\r\n")
            self.say(answer)
            if answer.startswith(b"354"):
                self.decoder = DataDecoder()
        elif verb == "BDAT":
            self.chunk = int(argument.split(" ")[0])
            self.last = argument.endswith("LAST")
            self.take_chunk()
        else:
            answer = self.server.answer(verb, argument, b"221 bye\r\n" if verb == "QUIT" else b"250 2.0.0 ok\r\n")
            self.accepted += verb == "RCPT" and answer.startswith(b"25")
            if verb in ("MAIL", "RSET"):
                self.accepted = 0
            self.say(answer)
            if verb == "QUIT":
                self.transport.close()

    async def start_tls(self) -> None:
        self.at_hello = answer = self.server.answer("HANDSHAKE")
        if answer == DROP:
            self.transport.close()
        if answer in (DROP, DROP_AT_HELLO, HANG):
            return
        self.in_tls = True
        assert self.server.tls is not None
        try:
            secure = await asyncio.get_running_loop().start_tls(self.transport, self, self.server.tls, server_side=True)
        except OSError:
            self.closed = True
            return
        # uvloop hands out a transport also when the connection was closed during the handshake, and tells nobody.
        self.closed = secure is None or secure.get_extra_info("ssl_object") is None
        if secure is not None:
            self.transport = secure

    def take_data(self) -> None:
        assert self.decoder is not None
        self.server.octets += len(self.buffer)
        piece = self.decoder.feed(self.buffer)
        self.content += piece[:4096] if len(self.content) < 1_000_000 else b""
        self.buffer = b""
        if self.decoder.ended:
            self.buffer, self.decoder = self.decoder.rest, None
            self.ended()

    def take_chunk(self) -> bool:
        if len(self.buffer) < self.chunk:
            return False
        self.content += self.buffer[: self.chunk]
        self.buffer = self.buffer[self.chunk :]
        self.chunk = -1
        if self.last:
            self.ended()
        else:
            self.say(self.server.answer("BDAT"))
        return True

    def ended(self) -> None:
        self.server.contents.append(self.content)
        self.content = b""
        for _ in range(self.accepted if self.server.lmtp else 1):
            self.say(self.server.answer("END"))
        self.accepted = 0


class Body:
    """A content in pieces, as a spool hands it out. `readers` counts those that are open."""

    def __init__(self, *pieces: bytes, fails_after: int = -1, size: int | None = None) -> None:
        self.pieces = pieces or (CONTENT,)
        self.size = sum(map(len, self.pieces)) if size is None else size
        self.fails_after = fails_after
        self.closed = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        for place, piece in enumerate(self.pieces):
            if place == self.fails_after:
                raise OSError(5, "bad disk")
            await asyncio.sleep(0)
            yield piece

    def close(self) -> None:
        self.closed += 1


def envelope(*addresses: str, **settings: Any) -> Envelope:
    """A message from a@x.test; to b@x.test if nobody is named."""
    recipients = [Recipient(address) for address in addresses or ("b@x.test",)]
    return Envelope(**({"sender": "a@x.test", "recipients": recipients, "received": 0.0, "expires": 0.0} | settings))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - for conditions without an event
            await asyncio.sleep(0.005)


class Stage:
    """An `Outbound` with a log that a test can read, closed at the end."""

    def __init__(self, **material: bytes) -> None:
        self.log = CapturingLogger()
        self.outbound = Outbound(cast(Any, self.log), TlsMaterial(**material), sweep_seconds=0.02)
        self.options = SendOptions("us.test")

    async def connect(self, server: Server, way: Way | None = None, **options: Any) -> SmtpSender:
        """A session with `server`."""
        async with asyncio.timeout(DEADLINE):
            return await self.outbound.connect(server.endpoint, way or server.way(), replace(self.options, **options))

    async def failure(self, server: Server, way: Way | None = None, **options: Any) -> ConnectFailed:
        """Why there is no session with `server`."""
        with pytest.raises(ConnectFailed) as raised:
            await self.connect(server, way, **options)
        assert not self.outbound.open
        return raised.value

    async def handed_over(self, server: Server, way: Way, **options: Any) -> None:
        """One message goes to `server`, in a session of its own."""
        sender = await self.connect(server, way, **options)
        message = envelope()
        outcome = await sender.send(message, message.recipients, Body())
        assert [entry.state for entry in outcome.recipients] == [RecipientState.DELIVERED]
        await sender.quit()
        await until(lambda: not self.outbound.open)

    def events(self, name: str) -> list[dict[str, Any]]:
        """The fields of log lines of that name."""
        return [dict(call.kwargs) for call in self.log.calls if call.args == (name,)]

    async def close(self) -> None:
        self.outbound.close()
        await until(lambda: not self.outbound.open)
