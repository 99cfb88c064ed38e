"""SCRAM through the mail doors: the whole dialogue of each protocol, what is offered, and that no password goes on."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509 import load_pem_x509_certificate
from scram_client import ScramClient
from stage import AUTHORITY, FRONT_CERTIFICATE, LIMITS, Client, Stage, stage

from gatepost.directory import scram_keys
from gatepost.directory.port import User
from gatepost.directory.settings import ScramSettings
from gatepost.directory.sign_in import SignInService
from gatepost.organization.model import ClientAddress, Protocol, SignIn, SignInForm, TlsMode
from gatepost.routing.decision import Mailbox

MASTER = SignIn(SignInForm.MASTER_NAME, "gatepost", "master-secret")
ALICE = User("alice@contoso.com", Mailbox("DB01"), scram_keys.make_hash("pencil", 4096))


class OnlyAlice:
    """A directory."""

    def find(self, canonical_name: str) -> User | None:
        return ALICE if canonical_name == ALICE.name else None

    async def ask(self, canonical_name: str) -> User | None:
        return self.find(canonical_name)

    async def opens(self, user: User, tries: tuple[bytes, ...]) -> bool:
        raise AssertionError("no user here is judged by the directory")

    def on_change(self, callback: Callable[[], None]) -> None:
        pass


@asynccontextmanager
async def _opened(how: SignIn = MASTER) -> AsyncIterator[Stage]:
    async with stage(LIMITS, how, ClientAddress.NONE, TlsMode.CLEAR) as s:
        service = SignInService(OnlyAlice(), "contoso.com", waiting_limit=4, per_address=4, threads=1, dummy_hash="x")
        service.scram = ScramSettings(frozenset({Protocol.IMAP}), 4096)
        s.door.sign_in = service
        try:
            yield s
        finally:
            service.close()


async def _exchange(client: Client, mechanism: bytes, scram: ScramClient, *, initial: bool = True) -> bytes:
    """AUTHENTICATE to its end; the tagged answer."""

    def line(message: bytes) -> bytes:
        return base64.b64encode(message) + b"\r\n"

    if initial:
        answer = await client.say(b"a AUTHENTICATE " + mechanism + b" " + line(scram.first()))
    else:
        assert await client.say(b"a AUTHENTICATE " + mechanism + b"\r\n") == b"+ \r\n"
        answer = await client.say(line(scram.first()))
    if not answer.startswith(b"+ "):
        return answer
    answer = await client.say(line(scram.last(base64.b64decode(answer[2:]))))
    if not answer.startswith(b"+ "):
        return answer
    assert scram.believes(base64.b64decode(answer[2:]))
    answer = await client.say(b"\r\n")
    while answer and not answer.startswith(b"a "):
        answer = await client.line()
    return answer


@pytest.mark.parametrize("initial", [True, False])
async def test_the_whole_dialogue(initial: bool) -> None:
    """And the server is signed in at by its master user: nobody knows the password."""
    async with _opened() as s:
        client = await s.connect()
        assert b"AUTH=SCRAM-SHA-256" in await client.line()
        scram = ScramClient("alice", "pencil")
        assert (await _exchange(client, b"SCRAM-SHA-256", scram, initial=initial)).startswith(b"a OK")
        assert (await client.tagged(b"b NOOP\r\n")).startswith(b"b OK")
        assert b"alice@contoso.com*gatepost" in b"".join(s.servers["MBX-01"].lines)


async def test_a_wrong_password_and_an_unknown_user_look_alike() -> None:
    async with _opened() as s:
        client = await s.connect()
        await client.line()
        first = await _exchange(client, b"SCRAM-SHA-256", ScramClient("alice", "pencils"))
        second = await _exchange(client, b"SCRAM-SHA-256", ScramClient("nobody", "pencil"))
        assert first == second
        assert first.startswith(b"a NO [AUTHENTICATIONFAILED]")


async def test_nobody_acts_for_another() -> None:
    async with _opened() as s:
        client = await s.connect()
        await client.line()
        scram = ScramClient("alice", "pencil", b"n,a=bob,")
        assert (await _exchange(client, b"SCRAM-SHA-256", scram)).startswith(b"a NO [AUTHENTICATIONFAILED]")


async def test_a_server_that_wants_the_users_password_cannot_be_reached() -> None:
    async with _opened(SignIn()) as s:
        client = await s.connect()
        await client.line()
        answer = await _exchange(client, b"SCRAM-SHA-256", ScramClient("alice", "pencil"))
        assert answer.startswith(b"a NO [UNAVAILABLE]")
        assert "wants the user's password" in s.log_lines("imap.refused")[0]["reason"]


@pytest.mark.parametrize(("version", "plus"), [(ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, False)])
async def test_channel_binding_is_offered_where_it_can_be(version: ssl.TLSVersion, plus: bool) -> None:
    """TLS 1.3 has `tls-exporter` by default (RFC 9266), which cannot be given here."""
    async with _opened() as s:
        port = await s.listen(implicit=True)
        client = await s.connect(port, ssl=_context(version), server_hostname="front.contoso.com")
        assert (b"AUTH=SCRAM-SHA-256-PLUS" in await client.line()) is plus


@pytest.mark.parametrize("starttls", [True, False])
@pytest.mark.parametrize("kind", ["tls-unique", "tls-server-end-point"])
async def test_a_bound_channel(kind: str, starttls: bool) -> None:
    async with _opened() as s:
        client = await _within_tls_1_2(s, starttls=starttls)
        if kind == "tls-unique":
            bound = client.writer.get_extra_info("ssl_object").get_channel_binding("tls-unique")
        else:
            bound = load_pem_x509_certificate(FRONT_CERTIFICATE.cert_chain_pems[0].bytes()).fingerprint(SHA256())
        scram = ScramClient("alice", "pencil", f"p={kind},,".encode(), bound)
        assert (await _exchange(client, b"SCRAM-SHA-256-PLUS", scram)).startswith(b"a OK")


async def test_a_channel_of_somebody_in_between_is_refused() -> None:
    async with _opened() as s:
        client = await _within_tls_1_2(s, starttls=False)
        scram = ScramClient("alice", "pencil", b"p=tls-server-end-point,,", b"another certificate")
        answer = await _exchange(client, b"SCRAM-SHA-256-PLUS", scram)
        assert answer.startswith(b"a NO [AUTHENTICATIONFAILED]")


async def test_who_was_not_told_that_we_can_bind_is_refused() -> None:
    """`y`: the client can, and somebody has taken -PLUS out of our list."""
    async with _opened() as s:
        client = await _within_tls_1_2(s, starttls=False)
        answer = await _exchange(client, b"SCRAM-SHA-256", ScramClient("alice", "pencil", b"y,,"))
        assert answer.startswith(b"a NO [AUTHENTICATIONFAILED]")


async def test_an_exchange_that_the_configuration_ended() -> None:
    async with _opened() as s:
        client = await s.connect()
        await client.line()
        s.door.sign_in.scram = None
        answer = await _exchange(client, b"SCRAM-SHA-256", ScramClient("alice", "pencil"))
        assert answer.startswith(b"a NO [UNAVAILABLE]")


def _context(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    context.minimum_version = context.maximum_version = version
    return context


async def _within_tls_1_2(s: Stage, *, starttls: bool) -> Client:
    context = _context(ssl.TLSVersion.TLSv1_2)
    if not starttls:
        port = await s.listen(implicit=True)
        client = await s.connect(port, ssl=context, server_hostname="front.contoso.com")
        await client.line()
        return client
    client = await s.connect()
    await client.line()
    assert (await client.tagged(b"s STARTTLS\r\n")).startswith(b"s OK")
    async with asyncio.timeout(20):
        await client.writer.start_tls(context, server_hostname="front.contoso.com")
    assert b"AUTH=SCRAM-SHA-256-PLUS" in await client.say(b"c CAPABILITY\r\n")
    await client.line()
    return client
