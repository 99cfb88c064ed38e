"""A front door in one process: real sockets and machines, a scripted mailbox server, a directory of one line."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

import trustme
from structlog.testing import CapturingLogger

from gatepost.access.admission import Admission
from gatepost.access.listener import Listener
from gatepost.access.mail_door import MailDoor
from gatepost.access.router import Router
from gatepost.access.tls import ClientContexts, Reloadable, server_context
from gatepost.activemanager.port import RegistryView
from gatepost.configuration.settings import Configuration, FrontEnd, Limits
from gatepost.directory.kerberos_port import KerberosAcceptor, KerberosOnward
from gatepost.directory.policy.policy import SignInPolicy
from gatepost.directory.policy.settings import PolicySettings
from gatepost.directory.port import SignInResult, User, Verdict
from gatepost.directory.sign_in import SignInService
from gatepost.organization.model import (
    ClientAddress,
    Database,
    DatabaseCopy,
    Endpoint,
    Organization,
    Protocol,
    Role,
    Server,
    SignIn,
    Site,
    TlsMode,
    Version,
)
from gatepost.routing.decision import ActiveCopy, Mailbox
from gatepost.wire.events import TokenHelp

LIMITS = Limits(server_step_seconds=0.3, connect_seconds=1.0, refused_sign_in_delay_seconds=0.0)
AUTHORITY = trustme.CA()
FRONT_CERTIFICATE = AUTHORITY.issue_cert("front.contoso.com")
SERVER_CERTIFICATE = AUTHORITY.issue_cert("mbx.contoso.com", "127.0.0.1")


class OneUser:
    """A sign-in service that knows alice; `verdict` overrides."""

    accepts_tokens = False

    def token_help(self, protocol: Protocol) -> TokenHelp:
        """Nobody is told of whom to get a token from."""
        return TokenHelp()

    def __init__(self) -> None:
        self.policy = SignInPolicy(PolicySettings(penalty=None))
        self.verdict: Verdict | None = None
        self.app_password = 0
        """The number of the app password that hers is held for."""
        self.clients: list[str] = []
        """Addresses whose passwords were checked."""
        self.ended: list[tuple[str, bytes]] = []
        """Whose sessions have ended, with their proofs."""
        self.user = User("alice@contoso.com", Mailbox("DB01"), login_at_server="alice")
        self.kerberos: KerberosAcceptor | None = None
        self.onward: KerberosOnward | None = None

    def accepts_tickets(self, protocol: Protocol) -> bool:
        """Where something judges them."""
        return self.kerberos is not None

    def accepts_scram(self, protocol: Protocol) -> bool:
        """Not here."""
        return False

    def accepts_certificates(self, protocol: Protocol) -> bool:
        """Not here."""
        return False

    async def user_of_ticket(self, name: str, protocol: Protocol, client: str = "") -> SignInResult:
        """Alice alone has a mailbox."""
        if name != self.user.name:
            return SignInResult(Verdict.WRONG_CREDENTIALS, reason="unknown user")
        return SignInResult(Verdict.SIGNED_IN, self.user)

    def is_name_of(self, written: str, user: User) -> bool:
        """Hers, with or without its domain."""
        return written in {"", "alice", user.name}

    def password_now(self, name: str, password: str, protocol: Protocol, client: str = "") -> SignInResult | None:
        """Known at once when the name says so."""
        return self._judge(name, password) if name.startswith("alice") else None

    def still_right(self, name: str, proof: bytes) -> None:
        """A session of somebody who was let in has ended."""
        self.ended.append((name, proof))

    async def password(self, name: str, password: str, protocol: Protocol, client: str) -> SignInResult:
        """Anybody else."""
        self.clients.append(client)
        await asyncio.sleep(0)
        return self._judge(name, password)

    def _judge(self, name: str, password: str) -> SignInResult:
        if self.verdict is not None:
            return SignInResult(self.verdict, reason=self.verdict.value)
        right = (name, password) == ("alice", "secret-apw")
        if not right:
            return SignInResult(Verdict.WRONG_CREDENTIALS)
        if self.app_password:
            return SignInResult(Verdict.SIGNED_IN, self.user, app_password=self.app_password)
        return SignInResult(Verdict.SIGNED_IN, self.user, proof=b"right")


class MailboxServer:
    """An IMAP server that lets everybody in and answers every later line; what it got is in `lines`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[bytes] = []
        self.greeting: bytes | None = b"* OK [CAPABILITY IMAP4rev1 ID SASL-IR AUTH=PLAIN STARTTLS] ready\r\n"
        self.login_answer = b"%s OK [CAPABILITY IMAP4rev1 IDLE " + name.encode() + b"] in\r\n"
        self.port = 0
        self.tls: ssl.SSLContext | None = None
        self.connections = 0
        self.refuses_id = False
        self.writers: list[asyncio.StreamWriter] = []

    async def open(self) -> asyncio.Server:
        """Listen on a free port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            if self.greeting is not None:
                writer.write(self.greeting)
            while line := await reader.readline():
                self.lines.append(line)
                tag, _, rest = line.partition(b" ")
                login = rest.upper().startswith((b"LOGIN", b"AUTHENTICATE"))
                word = b"BAD" if self.refuses_id and rest.startswith(b"ID ") else b"OK"
                done = b"%s %s done by %s\r\n" % (tag, word, self.name.encode())
                writer.write(self.login_answer % tag if login else done)
                if rest.upper().startswith(b"LOGOUT"):
                    break
        writer.close()


class Stage:
    """The door with two mailbox servers; DB01 is active on MBX-01 unless moved."""

    def __init__(
        self,
        limits: Limits,
        sign_in: SignIn,
        client_address: ClientAddress,
        tls: TlsMode,
        protocol: Protocol = Protocol.IMAP,
        kind: Callable[[str], Any] = MailboxServer,
    ) -> None:
        """`kind` makes the scripted servers, which speak `protocol`."""
        self.servers = {name: kind(name) for name in ("MBX-01", "MBX-02")}
        self.protocol = protocol
        self.limits = limits
        self._how = sign_in
        self._client_address = client_address
        self._tls = tls
        self.sign_in = OneUser()
        self.capture = CapturingLogger()
        self._closers: list[Callable[[], Any]] = []
        self._clients: list[Client] = []

    async def open(self) -> None:
        """Start the servers and make the door."""
        for server in self.servers.values():
            if self._tls is TlsMode.IMPLICIT:
                server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                SERVER_CERTIFICATE.configure_cert(server.tls)
            self._closers.append((await server.open()).close)
        self.configuration = Configuration(self._organization(), self._front_end())
        self.router = Router(self.configuration, self.view("MBX-01", 1))
        self.admission = Admission(self.limits.unauthenticated_per_address, self.limits.sessions)
        contexts = ClientContexts(self.configuration.front_end)
        service = cast(SignInService, self.sign_in)
        log = cast(Any, self.capture)
        self.door = MailDoor(self.protocol, self.configuration, service, self.router, self.admission, contexts, log)
        self.tls = Reloadable(server_context(self.configuration.front_end, "imap"))
        self.door.starttls = self.tls

    def view(self, server: str, epoch: int) -> RegistryView:
        """The registry's word: DB01 is active on `server`."""
        return RegistryView(epoch, MappingProxyType({"DB01": ActiveCopy("DB01", server, epoch)}))

    def _front_end(self) -> FrontEnd:
        chain = b"".join(pem.bytes() for pem in FRONT_CERTIFICATE.cert_chain_pems)
        return FrontEnd(
            "CAS-01",
            "",
            "",
            certificate=chain,
            private_key=FRONT_CERTIFICATE.private_key_pem.bytes(),
            server_ca=AUTHORITY.cert_pem.bytes(),
            allow_clear_passwords=True,
            limits=self.limits,
        )

    def _organization(self) -> Organization:
        servers = {
            "CAS-01": Server(
                "CAS-01", "usa", "front.contoso.com", "127.0.0.1", Version.MODERN, frozenset({Role.CLIENT_ACCESS})
            )
        }
        for name, server in self.servers.items():
            endpoint = Endpoint(
                self.protocol.value,
                self.protocol,
                "127.0.0.1",
                server.port,
                self._tls,
                "mbx.contoso.com",
                self._client_address,
            )
            servers[name] = Server(
                name,
                "usa",
                "mbx.contoso.com",
                "127.0.0.1",
                Version.MODERN,
                frozenset({Role.MAILBOX}),
                (endpoint,),
                self._how,
            )
        copies = (DatabaseCopy("MBX-01", 1), DatabaseCopy("MBX-02", 2))
        return Organization(
            "contoso", sites={"usa": Site("usa")}, servers=servers, databases={"DB01": Database("DB01", copies)}
        )

    def servers_of_databases(self) -> list[tuple[str, Server]]:
        """The mailbox servers as the organization has them."""
        return [(name, self.configuration.organization.servers[name]) for name in self.servers]

    async def listen(self, *, implicit: bool = False, trusted: tuple[Any, ...] = ()) -> int:
        """A listener in front of the door; answers its port."""
        sock = socket.create_server(("127.0.0.1", 0))
        front_end = replace(self.configuration.front_end, proxy_protocol_from=trusted)
        factory = self.door.factory(tls=implicit, starttls=not implicit)
        log = cast(Any, self.capture)
        listener = Listener(sock, factory, self.tls if implicit else None, front_end, self.admission, log)
        await listener.start()
        self._closers.append(listener.close)
        return int(sock.getsockname()[1])

    async def connect(self, port: int | None = None, **kwargs: Any) -> Client:
        """A client of the door; its greeting is not read yet."""
        if "sock" not in kwargs:
            kwargs |= {"host": "127.0.0.1", "port": port or await self.listen()}
        client = Client(*await asyncio.open_connection(**kwargs))
        self._clients.append(client)
        return client

    async def close(self) -> None:
        """End everything."""
        for client in self._clients:
            client.writer.transport.abort()
        await self.door.drain(0)
        for close in self._closers:
            close()
        await asyncio.sleep(0.01)

    def log_lines(self, event: str) -> list[dict[str, Any]]:
        """The fields of each line logged for `event`."""
        return [dict(call.kwargs) for call in self.capture.calls if call.args == (event,)]


class Client:
    """A client's end with deadlines on everything."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def line(self) -> bytes:
        """One line, or what came before the end."""
        async with asyncio.timeout(5):
            return await self.reader.readline()

    async def rest(self) -> bytes:
        """Everything until the connection ends; a reset, where bytes of ours were left unread, is an end as well."""
        async with asyncio.timeout(5):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def say(self, data: bytes) -> bytes:
        """Send and take one line."""
        self.writer.write(data)
        return await self.line()

    async def tagged(self, data: bytes) -> bytes:
        """Send one command and take lines until its tagged answer, which is answered."""
        tag = data.split(b" ", 1)[0] + b" "
        line = await self.say(data)
        while line and not line.startswith(tag):
            line = await self.line()
        return line

    def close(self) -> None:
        """Go away."""
        self.writer.close()


@contextlib.asynccontextmanager
async def stage(
    limits: Limits = LIMITS,
    sign_in: SignIn = SignIn(),  # noqa: B008 - a frozen value
    client_address: ClientAddress = ClientAddress.NONE,
    tls: TlsMode = TlsMode.CLEAR,
    protocol: Protocol = Protocol.IMAP,
    kind: Callable[[str], Any] = MailboxServer,
) -> AsyncIterator[Stage]:
    """An open stage that is closed at the end."""
    opened = Stage(limits, sign_in, client_address, tls, protocol, kind)
    await opened.open()
    try:
        yield opened
    finally:
        await opened.close()


async def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """Wait for what the loop brings about."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.002)
