"""A manager's probes at real sockets: what each kind of server is taken for, and who signs in."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trustme

from gatepost.activemanager.boot_clock import boot_seconds
from gatepost.activemanager.manager_events import Probed
from gatepost.activemanager.probes import plan
from gatepost.activemanager.probing import Prober, canary_sign_in, probe_service
from gatepost.activemanager.seen import Sight
from gatepost.configuration.manager_settings import Canary, ManagerSettings
from gatepost.lab.servers.process import free_ports
from gatepost.organization.model import (
    Database,
    DatabaseCopy,
    Endpoint,
    Organization,
    Protocol,
    Role,
    Server,
    SignIn,
    SignInForm,
    TlsMode,
    Version,
)

AUTHORITY = trustme.CA()
OTHER = trustme.CA()
AS_USERS = SignIn()
CANARY = Canary("canary-{server}", "hunter2")
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def server_context(authority: trustme.CA = AUTHORITY) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


def client_context(_server: Server | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


def organization(port: int, protocol: Protocol, tls: TlsMode, sign_in: SignIn = AS_USERS) -> Organization:
    endpoint = Endpoint(protocol.value, protocol, "127.0.0.1", port, tls, "127.0.0.1")
    server = Server("MBX-01", "usa", "m", "127.0.0.1", Version.MODERN, frozenset({Role.MAILBOX}), (endpoint,), sign_in)
    database = Database("DB01", (DatabaseCopy("MBX-01", 1),))
    return Organization("o", servers={"MBX-01": server}, databases={"DB01": database})


@asynccontextmanager
async def listening(talk: Talk, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


def says(*lines: bytes, then: bytes = b"") -> Talk:
    """Greets, then answers each line of the client with the next of `lines`; `then` for all others."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = list(lines)
        writer.write(left.pop(0) + b"\r\n")
        while await reader.readuntil(b"\n"):
            writer.write((left.pop(0) if left else then) + b"\r\n")

    return talk


async def look(
    port: int,
    protocol: Protocol = Protocol.IMAP,
    tls: TlsMode = TlsMode.CLEAR,
    canary: Canary | None = None,
    sign_in: SignIn = AS_USERS,
    seconds: float = 5.0,
) -> tuple[Sight, str]:
    probe = plan(organization(port, protocol, tls, sign_in), "MBX-01", protocol.value)
    assert probe is not None
    return await probe_service(probe, canary, None if tls is TlsMode.CLEAR else client_context(), seconds)


@pytest.mark.parametrize(
    ("protocol", "greeting", "sight"),
    [
        (Protocol.IMAP, b"* OK ready", Sight.WELL),
        (Protocol.IMAP, b"* BYE too many", Sight.ILL),
        (Protocol.POP3, b"+OK ready", Sight.WELL),
        (Protocol.POP3, b"-ERR [SYS/TEMP] no", Sight.ILL),
        (Protocol.IMAP, b"HTTP/1.1 400 Bad Request", Sight.ILL),
    ],
)
async def test_the_greeting_decides(protocol: Protocol, greeting: bytes, sight: Sight) -> None:
    async with listening(says(greeting)) as port:
        assert (await look(port, protocol))[0] is sight


async def test_nobody_there_is_refused() -> None:
    sight, reason = await look(free_ports("127.0.0.1", 1)[0])
    assert sight is Sight.REFUSED
    assert reason == "cannot connect: Connection refused"


async def test_who_says_nothing_is_silent() -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(silent) as port:
        assert await look(port, seconds=0.2) == (Sight.SILENT, "no answer within 0.2 s")


@pytest.mark.parametrize(("authority", "sight"), [(AUTHORITY, Sight.WELL), (OTHER, Sight.ILL)])
async def test_implicit_tls_is_verified(authority: trustme.CA, sight: Sight) -> None:
    async with listening(says(b"* OK ready"), server_context(authority)) as port:
        found, reason = await look(port, tls=TlsMode.IMPLICIT)
    assert found is sight
    assert ("certificate refused" in reason) == (sight is Sight.ILL)


def with_starttls(protocol: Protocol, authority: trustme.CA, then: Talk | None = None) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"* OK ready\r\n" if protocol is Protocol.IMAP else b"+OK ready\r\n")
        tag = (await reader.readuntil(b"\n")).split()[0]
        writer.write(tag + b" OK go\r\n" if protocol is Protocol.IMAP else b"+OK go\r\n")
        await writer.drain()
        await writer.start_tls(server_context(authority))
        if then is not None:
            await then(reader, writer)
        else:
            await reader.read()

    return talk


@pytest.mark.parametrize("protocol", [Protocol.IMAP, Protocol.POP3])
@pytest.mark.parametrize(("authority", "sight"), [(AUTHORITY, Sight.WELL), (OTHER, Sight.ILL)])
async def test_starttls_is_done_and_verified(protocol: Protocol, authority: trustme.CA, sight: Sight) -> None:
    """The greeting is fine; no session could be carried by that certificate all the same."""
    async with listening(with_starttls(protocol, authority)) as port:
        assert (await look(port, protocol, TlsMode.STARTTLS))[0] is sight


@pytest.mark.parametrize("answer", [b"a NO not here", b"a BAD unknown"])
async def test_starttls_that_is_not_there_is_a_fault(answer: bytes) -> None:
    async with listening(says(b"* OK ready", answer)) as port:
        assert await look(port, tls=TlsMode.STARTTLS) == (Sight.ILL, "no STARTTLS")


async def test_a_server_that_talks_without_end_is_no_answer() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"* OK ready\r\n")
        await reader.readuntil(b"\n")
        writer.write(b"* noise\r\n" * 1000)
        await reader.read()

    async with listening(talk) as port:
        assert await look(port, tls=TlsMode.STARTTLS) == (Sight.ILL, "no answer to STARTTLS")


def imap(verdict: bytes) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"* OK [CAPABILITY IMAP4rev1 AUTH=PLAIN SASL-IR] ready\r\n")
        while line := await reader.readuntil(b"\n"):
            tag, _, rest = line.partition(b" ")
            asked.append(rest)
            signs_in = rest.upper().startswith((b"LOGIN", b"AUTHENTICATE"))
            writer.write(tag + b" " + (verdict if signs_in else b"OK done") + b"\r\n")

    asked: list[bytes] = []
    talk.asked = asked  # type: ignore[attr-defined]
    return talk


@pytest.mark.parametrize(
    ("verdict", "sight"),
    [
        (b"OK [CAPABILITY IMAP4rev1] in", Sight.WELL),
        (b"NO [AUTHENTICATIONFAILED] no", Sight.ILL),
        (b"NO [UNAVAILABLE] storage", Sight.ILL),
        (b"NO [LIMIT] too many", Sight.WELL),
        (b"NO [INUSE] locked", Sight.WELL),
    ],
)
async def test_the_canary_tells_what_the_greeting_hides(verdict: bytes, sight: Sight) -> None:
    async with listening(imap(verdict)) as port:
        found, reason = await look(port, canary=CANARY)
    assert found is sight
    assert "hunter2" not in reason


async def test_the_canary_signs_in_as_users_do() -> None:
    talk = imap(b"OK in")
    async with listening(talk) as port:
        await look(port, canary=CANARY)
    assert talk.asked[0] == b'LOGIN "canary-mbx-01" "hunter2"\r\n'  # type: ignore[attr-defined]


def test_by_a_master_user_where_users_are_signed_in_so() -> None:
    how = SignIn(SignInForm.MASTER_NAME, "master", "mpw")
    server = organization(1, Protocol.IMAP, TlsMode.CLEAR, how).servers["MBX-01"]
    found = canary_sign_in(server, server.endpoints[0], CANARY)
    assert (found.user, found.password) == ("canary-mbx-01*master", "mpw")
    how = SignIn(SignInForm.MASTER_AUTHZID, "master", "mpw")
    server = organization(1, Protocol.IMAP, TlsMode.CLEAR, how).servers["MBX-01"]
    found = canary_sign_in(server, server.endpoints[0], CANARY)
    assert (found.mechanism, found.user, found.authorization_id) == ("PLAIN", "master", "canary-mbx-01")


async def test_a_pop3_canary() -> None:
    async with listening(says(b"+OK ready", then=b"+OK")) as port:
        assert await look(port, Protocol.POP3, canary=CANARY) == (Sight.WELL, "")
    async with listening(says(b"+OK ready", b"+OK", b"-ERR no")) as port:
        assert (await look(port, Protocol.POP3, canary=CANARY))[0] is Sight.ILL


async def test_a_prober_asks_again_and_sooner_where_it_is_refused() -> None:
    told: list[Probed] = []
    twice = asyncio.Event()

    def tell(event: Probed) -> None:
        told.append(event)
        if len(told) == 3:
            twice.set()

    port = free_ports("127.0.0.1", 1)[0]
    settings = ManagerSettings(probe_seconds=0.4)
    prober = Prober(settings, organization(port, Protocol.IMAP, TlsMode.CLEAR), client_context, tell, boot_seconds)
    async with asyncio.timeout(5):
        await twice.wait()
    prober.close()
    await prober.wait_closed()
    assert {event.sight for event in told} == {Sight.REFUSED}
    assert told[1].started - told[0].started < 0.35
