"""An HTTP front door in memory: client and server connections are objects, time stands still until it is moved."""

from __future__ import annotations

import asyncio
import base64
import itertools
from dataclasses import dataclass, field, replace
from typing import Any

from gatepost.access.http.client_leg import HttpClientLeg
from gatepost.access.http.door import HttpDoor
from gatepost.access.registry_age import RegistryAge
from gatepost.activemanager.port import RegistryView
from gatepost.configuration.settings import Configuration, FrontEnd, Limits
from gatepost.directory import passwords
from gatepost.directory.kerberos_port import KerberosAcceptor, KerberosOnward
from gatepost.directory.policy.policy import SignInPolicy
from gatepost.directory.policy.settings import PolicySettings
from gatepost.directory.port import NotAsked, SignInResult, User, Verdict
from gatepost.organization.model import (
    ClientAccessArray,
    Endpoint,
    HttpSignIn,
    Organization,
    PathClass,
    Protocol,
    Role,
    Server,
    SignIn,
    Site,
    TlsMode,
    Version,
    VirtualDirectory,
)
from gatepost.routing.decision import ActiveCopy, Cause, Decision, Mailbox, Refuse, Serve, Target, find_directory
from gatepost.routing.directories import path_class
from gatepost.wire.events import TokenHelp
from gatepost.wire.proxy_protocol import ProxyHeader

PASSWORD = "open sesame"


def basic(name: str, password: str = PASSWORD) -> str:
    """An Authorization line."""
    return "Authorization: Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def get(path: str = "/owa/", *lines: str, user: str = "alice", method: str = "GET", body: bytes = b"") -> bytes:
    """A request of `user`."""
    lines = ("Host: mail.contoso.com", *([basic(user)] if user else []), *lines)
    if body:
        lines = (*lines, f"Content-Length: {len(body)}")
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode() + body


def response(status: str = "200 OK", *lines: str, body: bytes = b"hello") -> bytes:
    """A server's response with a length."""
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


class MemoryTransport:
    """A transport that remembers what was written; `closed` covers `close` and `abort`."""

    def __init__(self, protocol: Any, peer: tuple[str, int] = ("192.0.2.7", 40000), *, tls: bool = True) -> None:
        self.protocol = protocol
        self.peer = peer
        self.tls = tls
        self.written = bytearray()
        self.reading = True
        self.closed = False
        self.aborted = False
        self.eof = False
        self.unsent = 0
        """Octets that the peer has not taken yet; while there are any, a closed transport is not gone."""

    def write(self, data: bytes) -> None:
        assert not self.closed, "written to a closed transport"
        self.written += data

    def take(self) -> bytes:
        data = bytes(self.written)
        self.written.clear()
        return data

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if not self.unsent:
                asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.aborted, self.unsent = True, 0
        gone, self.closed = self.closed, False
        self.close()
        assert self.closed or gone

    def lose(self, error: Exception | None = None) -> None:
        """The peer closes."""
        if not self.closed:
            self.closed = True
            self.protocol.eof_received()
            self.protocol.connection_lost(error)

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return not self.tls

    def write_eof(self) -> None:
        self.eof = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_extra_info(self, name: str) -> Any:
        return {"peername": self.peer, "sockname": ("127.0.1.1", 443)}.get(name)

    def set_write_buffer_limits(self, high: int) -> None:
        assert high > 0

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol


class FakeTimer:
    """A timer's handle."""

    def __init__(self) -> None:
        self.off = False

    def cancel(self) -> None:
        self.off = True

    def cancelled(self) -> bool:
        return self.off


class FakeLoop:
    """The loop as the door sees it. `now` moves by `World.pass_time`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[tuple[float, int, Any, Any, FakeTimer]] = []
        self._order = itertools.count()
        self.connects: list[tuple[str, int, Any]] = []
        self.servers: list[MemoryTransport] = []
        self.refuse: list[OSError] = []
        self.gate: asyncio.Event | None = None
        """When set, connecting waits for it."""

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Any, *args: Any) -> Any:
        handle = FakeTimer()
        self.timers.append((when, next(self._order), callback, args, handle))
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any) -> Any:
        return self.call_at(self.now + delay, callback, *args)

    def call_soon(self, callback: Any, *args: Any) -> Any:
        return asyncio.get_running_loop().call_soon(callback, *args)

    async def create_connection(
        self, factory: Any, host: str, port: int, ssl: Any = None, server_hostname: str | None = None
    ) -> tuple[Any, Any]:
        self.connects.append((host, port, server_hostname))
        if self.gate is not None:
            await self.gate.wait()
        if self.refuse:
            raise self.refuse.pop(0)
        protocol = factory()
        transport = MemoryTransport(protocol, (host, port))
        self.servers.append(transport)
        protocol.connection_made(transport)
        return transport, protocol


class FakeSignIn:
    """Knows every name with `PASSWORD`; `now` says whether it answers at once."""

    accepts_tokens = False

    def token_help(self, protocol: Protocol) -> TokenHelp:
        """Nobody is told of whom to get a token from."""
        return TokenHelp()

    def __init__(self, databases: dict[str, str]) -> None:
        self.databases = databases
        self.policy = SignInPolicy(PolicySettings(penalty=None))
        self.now = True
        self.app_password = 0
        """The number of the app password that `PASSWORD` is held for."""
        self.verdict: SignInResult | None = None
        self.asked: list[tuple[str, str]] = []
        self.clients: list[str] = []
        """Addresses whose passwords were checked."""
        self.logins: dict[str, str] = {}
        self.hashes: dict[str, str] = {}
        """Stored hashes of users who have not all the same."""
        self.directory_changes = 0
        self.looks = 0
        """How often the user of a lasting sign-in was looked up."""
        self.kerberos: KerberosAcceptor | None = None
        self.onward: KerberosOnward | None = None
        self.elsewhere = False
        """Whether the directory must be asked (`learn`) before it is known what it says of a name."""
        self.known: set[str] = set()
        self.answers = asyncio.Event()
        """Whether it answers."""
        self.answers.set()

    def accepts_tickets(self, protocol: Protocol) -> bool:
        return self.kerberos is not None

    async def user_of_ticket(self, name: str, protocol: Protocol, client: str = "") -> SignInResult:
        if name not in self.databases:
            return SignInResult(Verdict.WRONG_CREDENTIALS, reason="unknown user")
        return SignInResult(Verdict.SIGNED_IN, self._user(name))

    async def learn(self, canonical_name: str) -> None:
        await self.answers.wait()
        self.known.add(canonical_name)

    def accepts_certificates(self, protocol: Protocol) -> bool:
        return False

    def _must_ask(self, name: str) -> bool:
        return self.elsewhere and name not in self.known

    def user_of_session(self, name: str, key: bytes, generation: bytes, protocol: Protocol) -> SignInResult:
        self.looks += 1
        if self._must_ask(name):
            return SignInResult(Verdict.UNAVAILABLE, asking=True)
        if self.verdict is not None:
            return self.verdict
        if name not in self.databases or generation != passwords.generation(self.hashes.get(name, ""), key):
            return SignInResult(Verdict.WRONG_CREDENTIALS, reason="the password was changed")
        return SignInResult(Verdict.SIGNED_IN, self._user(name))

    def _user(self, name: str) -> User:
        return User(
            name, Mailbox(self.databases[name]), self.hashes.get(name, ""), login_at_server=self.logins.get(name, "")
        )

    def _result(self, name: str, password: str) -> SignInResult:
        self.asked.append((name, password))
        if self.verdict is not None:
            return self.verdict
        if password != PASSWORD or name not in self.databases:
            return SignInResult(Verdict.WRONG_CREDENTIALS, reason="wrong password")
        return SignInResult(Verdict.SIGNED_IN, self._user(name), app_password=self.app_password)

    def password_now(
        self, name: str, password: str, protocol: Protocol, client: str = "", service: str = "", *, page: bool = False
    ) -> SignInResult | None:
        assert protocol is Protocol.HTTPS
        result = self._result(name, password) if self.now else None
        return result if result is not None and result.verdict is Verdict.SIGNED_IN else None

    def look_up(self, name: str) -> User | None:
        if self._must_ask(name):
            raise NotAsked(name)
        name = name.removesuffix("@contoso.com")
        return User(name, Mailbox(self.databases[name])) if name in self.databases else None

    def user_by_name(self, name: str, protocol: Protocol) -> SignInResult:
        if self._must_ask(name):
            return SignInResult(Verdict.UNAVAILABLE, asking=True)
        return self._result(name, PASSWORD)

    async def password(
        self, name: str, password: str, protocol: Protocol, client: str, service: str = "", *, page: bool = False
    ) -> SignInResult:
        self.clients.append(client)
        return self._result(name, password)


class FakeRouter:
    """A database is on a server; decisions are remembered like the real router's."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.remembered: dict[Any, Decision] = {}
        self.looks = 0
        """How often the registry was asked anew."""
        self.when_asked: Any = lambda: None
        """What is found out then."""
        self.age = RegistryAge(300.0, look=self._look)
        self.forgotten: list[str] = []

    async def _look(self, seconds: float) -> bool:
        self.looks += 1
        self.when_asked()
        return True

    def forget(self, database: str) -> None:
        self.forgotten.append(database)

    @property
    def view(self) -> RegistryView:
        world = self.world
        return RegistryView(
            1, {name: ActiveCopy(name, server, world.epochs.get(name, 1)) for name, server in world.active.items()}
        )

    def path_class(self, path: str) -> tuple[PathClass, str]:
        return path_class(self.world.organization, "CAS-01", path)

    def decide(
        self,
        protocol: Protocol,
        mailbox: Mailbox,
        path: str = "",
        *,
        follows_451: bool = True,
        from_peer: bool = False,
    ) -> Decision:
        server = self.world.active.get(mailbox.database or "")
        if server is None:
            return Refuse(Cause.NO_ACTIVE_COPY, "the database has no active copy")
        directory = find_directory(self.world.organization, server, path)
        if directory is None:
            return Refuse(Cause.NO_VIRTUAL_DIRECTORY, "no virtual directory")
        epoch = self.world.epochs.get(mailbox.database or "", 1)
        key = (server, directory, epoch)
        if key not in self.remembered:
            endpoint = self.world.organization.servers[server].endpoint(Protocol.HTTPS)
            assert endpoint is not None
            self.remembered[key] = Serve(Target(server, endpoint, directory), epoch=epoch)
        return self.remembered[key]


@dataclass
class FakeLog:
    """Lines as (event, fields)."""

    lines: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def info(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))
        self.changed.set()

    def warning(self, event: str, **fields: Any) -> None:
        self.info(event, **fields)

    def __post_init__(self) -> None:
        self.changed = asyncio.Event()

    def of(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.lines if name == event]


def mailbox_server(name: str, **changes: Any) -> Server:
    """A mailbox server with an https endpoint."""
    fqdn = f"{name.lower()}.contoso.com"
    endpoint = Endpoint("https", Protocol.HTTPS, f"127.0.2.{name[-1]}", 443, TlsMode.IMPLICIT, fqdn)
    made = Server(name, "usa", fqdn, fqdn, Version.MODERN, frozenset({Role.MAILBOX}), (endpoint,))
    return replace(made, **changes)


def directories(server: str, *paths: str) -> list[VirtualDirectory]:
    """Virtual directories with default URLs; the service is the path's last word."""
    fqdn = f"{server.lower()}.contoso.com"
    return [VirtualDirectory(server, p.strip("/").split("/")[-1], p, f"https://{fqdn}{p}") for p in paths]


class World:
    """An organization of one front end and two mailbox servers, with everything fake but the front door."""

    def __init__(
        self,
        servers: list[Server] | None = None,
        virtual: list[VirtualDirectory] | None = None,
        limits: Limits | None = None,
        **front_end: Any,
    ) -> None:
        servers = servers or [mailbox_server("MBX-1"), mailbox_server("MBX-2")]
        virtual = virtual or [d for s in servers for d in directories(s.name, "/owa", "/ews", "/dav", "/jmap")]
        listeners = (
            Endpoint("imaps", Protocol.IMAP, "127.0.1.1", 993, TlsMode.IMPLICIT, "cas-01.contoso.com"),
            Endpoint("pop3", Protocol.POP3, "127.0.1.1", 110, TlsMode.STARTTLS, "cas-01.contoso.com"),
            Endpoint("https", Protocol.HTTPS, "127.0.1.1", 443, TlsMode.IMPLICIT, "cas-01.contoso.com"),
        )
        front = Server(
            "CAS-01",
            "usa",
            "cas-01.contoso.com",
            "127.0.1.1",
            Version.MODERN,
            frozenset({Role.CLIENT_ACCESS}),
            listeners,
        )
        array = ClientAccessArray("outlook", "usa", "outlook.contoso.com", ("CAS-01",))
        external = VirtualDirectory("CAS-01", "owa", "/owa", None, "https://mail.contoso.com/owa")
        self.organization = Organization(
            "contoso",
            accepted_domains=("contoso.com",),
            sites={"usa": Site("usa")},
            servers={s.name: s for s in (front, *servers)},
            virtual_directories=(external, *virtual),
            arrays={"outlook": array},
        )
        self.configuration = Configuration(
            self.organization, FrontEnd("CAS-01", "", "", limits=limits or Limits(), **front_end)
        )
        self.active: dict[str, str] = {"DB1": "MBX-1", "DB2": "MBX-2"}
        self.epochs: dict[str, int] = {}
        """Of databases that have moved; others are at epoch 1."""
        self.sign_in = FakeSignIn({"alice": "DB1", "bob": "DB2", "carol": "DB1"})
        self.loop = FakeLoop()
        self.log = FakeLog()
        self.router = FakeRouter(self)
        loop: Any = self.loop
        sign_in: Any = self.sign_in
        router: Any = self.router
        self.door = HttpDoor(self.configuration, loop, sign_in, router, self.context, self.log)

    def context(self, server: Server, *, peer: bool = False) -> Any:
        """Stands for a TLS context."""
        return object()

    def client(self, *, tls: bool = True, proxy: ProxyHeader | None = None, address: str = "192.0.2.7") -> Client:
        """A client that has connected."""
        return Client(self, tls=tls, proxy=proxy, address=address)

    @property
    def servers(self) -> list[MemoryTransport]:
        """Connections made to servers, in their order."""
        return self.loop.servers

    async def refused(self) -> None:
        """Until a request has been refused."""
        while not self.log.of("http.refused"):
            self.log.changed.clear()
            await self.log.changed.wait()

    async def settle(self) -> None:
        """Let callbacks and tasks run until nothing is left to do."""
        for _ in range(12):
            await asyncio.sleep(0)

    async def pass_time(self, seconds: float) -> None:
        """Move the clock, run what is due, sweep."""
        self.loop.now += seconds
        due = sorted((t for t in self.loop.timers if t[0] <= self.loop.now), key=lambda t: t[:2])
        self.loop.timers = [t for t in self.loop.timers if t[0] > self.loop.now]
        for _, _, callback, args, handle in due:
            if not handle.cancelled():
                callback(*args)
        self.door.sweep(self.loop.now)
        await self.settle()


class Client:
    """A client's connection."""

    def __init__(self, world: World, *, tls: bool, proxy: ProxyHeader | None, address: str) -> None:
        self.world = world
        self.leg: HttpClientLeg = world.door.protocol(tls=tls, proxy=proxy)
        self.transport = MemoryTransport(self.leg, (address, 40000), tls=tls)
        self.leg.connection_made(self.transport)  # type: ignore[arg-type]

    async def send(self, data: bytes) -> bytes:
        """Send; what came back since the last time."""
        if not self.transport.closed:
            self.transport.protocol.data_received(data)
        await self.world.settle()
        return self.transport.take()

    async def ask(self, request: bytes, answer: bytes = b"", server: int = -1) -> bytes:
        """Send a request, have the server answer, return what the client gets."""
        own = await self.send(request)
        if answer:
            await self.serve(answer, server)
        return own + self.transport.take()

    async def serve(self, answer: bytes, server: int = -1) -> bytes:
        """Have a server send; returns what it had got, keeps what the client gets."""
        transport = self.world.servers[server]
        got = transport.take()
        transport.protocol.data_received(answer)
        await self.world.settle()
        return got


def head_of(data: bytes | bytearray) -> tuple[str, dict[str, str], bytes]:
    """First line, fields (lower-case names), rest."""
    head, _, rest = bytes(data).partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return first, fields, rest


HEADER_SIGN_IN = SignIn(http=HttpSignIn.HEADER)
