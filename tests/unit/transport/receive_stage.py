"""A receive service on loopback with an intake that the test looks into, and a client that speaks line by line."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from ipaddress import ip_address
from typing import Any, cast

import trustme
from structlog.testing import CapturingLogger

from gatepost.directory.port import SignInResult, User, Verdict
from gatepost.directory.sign_in import SignInService
from gatepost.organization.model import Protocol
from gatepost.organization.transport import (
    AddressRange,
    Binding,
    PermissionGroup,
    ReceiveAuthentication,
    ReceiveConnector,
)
from gatepost.routing.decision import Mailbox
from gatepost.transport.message import Envelope
from gatepost.transport.ports import Pressure, SpoolFull
from gatepost.transport.receive.service import ReceiveService
from gatepost.transport.receive.tls import ReceiveTls
from gatepost.wire.events import TokenHelp
from gatepost.wire.smtp_reply import Reply
from gatepost.wire.smtp_server_events import Asking

AUTHORITY = trustme.CA()
CERTIFICATE = AUTHORITY.issue_cert("hub-01.contoso.com")
PATIENCE = 20.0
"""Seconds that a test waits for something that must come."""

CONNECTOR = ReceiveConnector(
    "Default HUB-01",
    "HUB-01",
    (Binding(ip_address("127.0.0.1"), 1),),
    permission_groups=frozenset({PermissionGroup.ANONYMOUS, PermissionGroup.USERS, PermissionGroup.SERVERS}),
    authentication=frozenset(
        {
            ReceiveAuthentication.TLS,
            ReceiveAuthentication.BASIC,
            ReceiveAuthentication.BASIC_REQUIRE_TLS,
            ReceiveAuthentication.SERVERS,
        }
    ),
    tarpit_seconds=0.0,
    max_connections_per_source=100,
)


def loopback(text: str = "127.0.0.0-127.255.255.255") -> AddressRange:
    first, _, last = text.partition("-")
    return AddressRange(ip_address(first), ip_address(last or first))


class Writer:
    """Content in memory; with `keep` off only counted."""

    def __init__(self, intake: KeptIntake) -> None:
        self._intake = intake
        self.size = 0
        self.content = bytearray()
        self.discarded = False
        self.drained = 0
        self.waiting = 0
        self.biggest = 0

    @property
    def full(self) -> bool:
        return self.waiting >= self._intake.full_at

    def write(self, data: bytes) -> None:
        assert not self.discarded
        self.size += len(data)
        self.waiting += len(data)
        self.biggest = max(self.biggest, self.waiting)
        if self._intake.keep:
            self.content += data

    async def drain(self) -> None:
        await self._intake.disk.wait()
        self.drained += 1
        self.waiting = 0
        if self._intake.drain_fault is not None:
            raise self._intake.drain_fault

    def discard(self) -> None:
        self.discarded = True


class KeptIntake:
    """Takes everything for `ours.example`; the attributes make it fail."""

    def __init__(self) -> None:
        self.pressure = Pressure.NORMAL
        self.refuses_strangers = False
        self.tarpit_seconds = 0.0
        self.keep = True
        self.full_at = 256 * 1024
        self.disk = asyncio.Event()
        self.disk.set()
        self.commit = asyncio.Event()
        self.commit.set()
        self.reply = Reply(250, "Queued", "2.6.0")
        self.fault: Exception | None = None
        self.drain_fault: Exception | None = None
        self.no_room = False
        self.taken: list[tuple[Envelope, Writer]] = []
        self.writers: list[Writer] = []
        self.accepting = 0
        self.asked: set[str] = set()
        self.answers = asyncio.Event()
        """Whether the directory elsewhere answers."""
        self.answers.set()

    def sender(self, envelope: Envelope) -> Reply | None:
        return Reply(550, "Not you", "5.7.1") if envelope.sender.startswith("bad@") else None

    def recipient(self, envelope: Envelope, address: str) -> Reply | Asking | None:
        if address.startswith("elsewhere@") and address not in self.asked:
            return Asking(address)
        return Reply(550, "No such mailbox", "5.1.1") if address.startswith("unknown@") else None

    async def ask(self, name: str) -> None:
        await self.answers.wait()
        self.asked.add(name)

    def is_ours(self, address: str) -> bool:
        return address.endswith("@ours.example")

    def writer(self, size: int | None, envelope: Envelope) -> Writer:
        if self.no_room:
            raise SpoolFull
        assert envelope.recipients
        self.writers.append(Writer(self))
        return self.writers[-1]

    async def accept(self, writer: Writer, envelope: Envelope) -> Reply:
        assert not writer.discarded
        self.accepting += 1
        await self.commit.wait()
        if self.fault is not None:
            raise self.fault
        if self.reply.positive:
            self.taken.append((envelope, writer))
        return self.reply


class Accounts:
    """Knows anna; names that begin with `slow` are checked by a task. With `accepts_tokens` also `token-of-anna`."""

    def __init__(self) -> None:
        self.verdict: Verdict | None = None
        self.accepts_tokens = False
        self.lacks = ""

    def token_help(self, protocol: Protocol) -> TokenHelp:
        return TokenHelp("mail")

    def token_now(self, name: str, token: str, protocol: Protocol, client: str = "") -> SignInResult | None:
        return None if name.startswith("slow") else self._judge("anna", token.replace("token-of-anna", "secret"))

    async def token(self, name: str, token: str, protocol: Protocol, client: str) -> SignInResult:
        await asyncio.sleep(0)
        result = self._judge("anna", token.replace("token-of-anna", "secret"))
        return replace(result, lacks=self.lacks)

    def accepts_tickets(self, protocol: Protocol) -> bool:
        return False

    def accepts_scram(self, protocol: Protocol) -> bool:
        return False

    def password_now(self, name: str, password: str, protocol: Protocol, client: str = "") -> SignInResult | None:
        return None if name.startswith("slow") else self._judge(name, password)

    async def password(self, name: str, password: str, protocol: Protocol, client: str) -> SignInResult:
        await asyncio.sleep(0)
        return self._judge(name.removeprefix("slow"), password)

    def look_up(self, name: str) -> User | None:
        return User("anna@ours.example", Mailbox("DB01")) if name == "anna" else None

    def _judge(self, name: str, password: str) -> SignInResult:
        user = User("anna@ours.example", Mailbox("DB01"))
        if self.verdict is not None:
            return SignInResult(self.verdict, user if self.verdict is Verdict.PROTOCOL_NOT_ALLOWED else None)
        right = (name, password) == ("anna", "secret")
        return SignInResult(Verdict.SIGNED_IN, user) if right else SignInResult(Verdict.WRONG_CREDENTIALS)


class Client:
    """An SMTP client that shows each reply's lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def reply(self) -> str:
        """The next reply, lines joined by a bar; empty at the end of the connection."""
        lines = []
        async with asyncio.timeout(PATIENCE):
            while line := await self.reader.readline():
                lines.append(line.decode().rstrip("\r\n"))
                if line[3:4] == b" ":
                    break
        return "|".join(lines)

    async def say(self, *lines: str) -> list[str]:
        """Send lines at once; the reply to each."""
        self.writer.write("".join(f"{line}\r\n" for line in lines).encode())
        return [await self.reply() for _ in lines]

    async def begin(self, *recipients: str, sender: str = "s@far.example") -> None:
        wanted = recipients or ("a@ours.example",)
        got = await self.say(
            "EHLO client.example", f"MAIL FROM:<{sender}>", *(f"RCPT TO:<{r}>" for r in wanted), "DATA"
        )
        assert [answer[:3] for answer in got] == ["250"] * (2 + len(wanted)) + ["354"], got

    async def ended(self) -> bool:
        """Whether the connection has come to its end, after whatever is still said."""
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionError):
                await self.reader.read(-1)
        return True

    async def start_tls(self, context: ssl.SSLContext | None = None, name: str = "hub-01.contoso.com") -> None:
        await self.writer.start_tls(context or client_context(), server_hostname=name)

    def close(self) -> None:
        self.writer.close()


def client_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


def server_tls() -> ReceiveTls:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CERTIFICATE.configure_cert(context)
    return ReceiveTls(context)


class ReceiveStage:
    """Start with `open`; every client is closed at the end, and so is the service."""

    def __init__(self) -> None:
        self.intake = KeptIntake()
        self.accounts = Accounts()
        self.log = CapturingLogger()
        self.service: ReceiveService
        self.ports: list[int] = []
        self._clients: list[Client] = []
        self._stopped = False

    async def open(self, *connectors: ReceiveConnector, tls: ReceiveTls | None = None, **how: Any) -> None:
        """Listen for each binding of the connectors on a port of its own; equal bindings share one."""
        places: dict[Binding, tuple[socket.socket, Binding]] = {}
        bound = []
        for connector in connectors or (CONNECTOR,):
            for binding in connector.bindings:
                if binding not in places:
                    sock = socket.create_server((str(binding.address), 0))
                    port = sock.getsockname()[1]
                    places[binding] = (sock, replace(binding, port=port))
            bindings = tuple(places[binding][1] for binding in connector.bindings)
            bound.append(replace(connector, bindings=bindings))
        self.service = ReceiveService(
            bound,
            self.intake,
            "hub-01.contoso.com",
            cast(Any, self.log),
            tls=tls or server_tls(),
            sign_in=cast(SignInService, self.accounts),
            sweep_seconds=how.pop("sweep_seconds", 0.02),
            **how,
        )
        for sock, binding in places.values():
            await self.service.listen(sock, binding)
            self.ports.append(binding.port)

    async def client(self, *, greeted: bool = True, address: str = "127.0.0.1", at: int = 0, **how: Any) -> Client:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.ports[at], local_addr=(address, 0), limit=2**20, **how
        )
        client = Client(reader, writer)
        self._clients.append(client)
        if greeted:
            assert (await client.reply()).startswith("220 ")
        return client

    async def stop(self, grace: float = 0.0) -> None:
        self._stopped = True
        await self.service.stop(grace)

    async def close(self) -> None:
        for client in self._clients:
            client.close()
        for client in self._clients:
            with contextlib.suppress(ConnectionError, ssl.SSLError, TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await client.writer.wait_closed()
        if not self._stopped:
            await self.stop()


@contextlib.asynccontextmanager
async def receiving(*connectors: ReceiveConnector, **how: Any) -> AsyncIterator[ReceiveStage]:
    stage = ReceiveStage()
    await stage.open(*connectors, **how)
    try:
        yield stage
    finally:
        await stage.close()


async def until(condition: Any) -> None:
    """Wait until `condition()` is true."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - conditions of many kinds
            await asyncio.sleep(0.005)
