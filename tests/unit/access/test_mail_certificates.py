"""EXTERNAL through the mail doors with real TLS: who is let in, who is refused and in which words."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from stage import AUTHORITY, LIMITS, Client, Stage, stage
from users_pki import DAY, NOW, Issued, UsersAuthority, upn

from gatepost.access.tls import Reloadable, server_context
from gatepost.directory.certificates import Certificates
from gatepost.directory.port import User
from gatepost.directory.settings import CertificateSettings
from gatepost.directory.sign_in import SignInService
from gatepost.organization.model import ClientAddress, Protocol, SignIn, SignInForm, TlsMode
from gatepost.routing.decision import Mailbox

MASTER = SignIn(SignInForm.MASTER_NAME, "gatepost", "master-secret")
USERS, OTHER = UsersAuthority(), UsersAuthority("Others")
ALICE = User("alice@contoso.com", Mailbox("DB01"))
IMAP = frozenset({Protocol.IMAP})


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
async def _opened(crl: str = "", *, required: bool = False) -> AsyncIterator[Stage]:
    settings = CertificateSettings(USERS.pem, crl, frozenset() if required else IMAP, IMAP if required else frozenset())
    async with stage(LIMITS, MASTER, ClientAddress.NONE, TlsMode.CLEAR) as s:
        service = SignInService(OnlyAlice(), "contoso.com", waiting_limit=4, per_address=4, threads=1, dummy_hash="x")
        service.certificates = Certificates(settings)
        s.door.sign_in = service
        front_end = replace(s.configuration.front_end, client_certificates=settings)
        s.tls = s.door.starttls = Reloadable(server_context(front_end, "imap", Protocol.IMAP))
        try:
            yield s
        finally:
            service.close()


def _context(shown: Issued | None, folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    if shown is not None:
        context.load_cert_chain(shown.write(folder))
    return context


async def _connect(s: Stage, shown: Issued | None, folder: Path) -> Client:
    port = await s.listen(implicit=True)
    return await s.connect(port, ssl=_context(shown, folder), server_hostname="front.contoso.com")


EXTERNAL = b"a AUTHENTICATE EXTERNAL =\r\n"


async def test_a_users_certificate_signs_in(tmp_path: Path) -> None:
    """And the server is signed in at by its master user."""
    async with _opened() as s:
        client = await _connect(s, USERS.issue(upn("alice@contoso.com")), tmp_path)
        assert b"AUTH=EXTERNAL" in await client.line()
        assert (await client.tagged(EXTERNAL)).startswith(b"a OK")
        assert b"alice@contoso.com*gatepost" in b"".join(s.servers["MBX-01"].lines)


async def test_behind_starttls_too(tmp_path: Path) -> None:
    async with _opened() as s:
        client = await s.connect()
        assert b"EXTERNAL" not in await client.line()
        assert (await client.tagged(b"s STARTTLS\r\n")).startswith(b"s OK")
        context = _context(USERS.issue(upn("alice")), tmp_path)
        async with asyncio.timeout(20):
            await client.writer.start_tls(context, server_hostname="front.contoso.com")
        assert b"AUTH=EXTERNAL" in await client.say(b"c CAPABILITY\r\n")
        await client.line()
        assert (await client.tagged(b"a AUTHENTICATE EXTERNAL YWxpY2U=\r\n")).startswith(b"a OK")


async def test_nobody_acts_for_another(tmp_path: Path) -> None:
    async with _opened() as s:
        client = await _connect(s, USERS.issue(upn("alice")), tmp_path)
        await client.line()
        answer = await client.tagged(b"a AUTHENTICATE EXTERNAL Ym9i\r\n")
        assert answer.startswith(b"a NO [AUTHENTICATIONFAILED]")


async def test_without_one_the_ordinary_sign_in_is_there(tmp_path: Path) -> None:
    async with _opened() as s:
        client = await _connect(s, None, tmp_path)
        greeting = await client.line()
        assert b"EXTERNAL" not in greeting
        assert b"AUTH=PLAIN" in greeting
        assert (await client.tagged(EXTERNAL)).startswith(b"a NO Unsupported mechanism")


async def test_one_of_nobody_is_refused_and_the_dialogue_goes_on(tmp_path: Path) -> None:
    async with _opened() as s:
        client = await _connect(s, USERS.issue(upn("nobody")), tmp_path)
        await client.line()
        assert (await client.tagged(EXTERNAL)).startswith(b"a NO [AUTHENTICATIONFAILED]")
        assert (await client.tagged(b"b NOOP\r\n")).startswith(b"b OK")
        assert s.log_lines("imap.refused")[0]["reason"] == "unknown user"


async def test_a_revoked_one_is_refused_from_the_next_crl_on(tmp_path: Path) -> None:
    shown, crl = USERS.issue(upn("alice")), tmp_path / "users.crl"
    crl.write_bytes(USERS.crl())
    async with _opened(str(crl)) as s:
        client = await _connect(s, shown, tmp_path)
        await client.line()
        crl.with_suffix(".new").write_bytes(USERS.crl(shown))
        crl.with_suffix(".new").rename(crl)
        assert (await client.tagged(EXTERNAL)).startswith(b"a NO [AUTHENTICATIONFAILED]")
        assert s.log_lines("imap.refused")[0]["reason"] == "the certificate was revoked"


async def test_an_outdated_crl_is_no_fault_of_the_users(tmp_path: Path) -> None:
    crl = tmp_path / "users.crl"
    crl.write_bytes(USERS.crl(ends=NOW - DAY))
    async with _opened(str(crl)) as s:
        client = await _connect(s, USERS.issue(upn("alice")), tmp_path)
        await client.line()
        assert (await client.tagged(EXTERNAL)).startswith(b"a NO [UNAVAILABLE]")


@pytest.mark.parametrize(
    "shown",
    [
        OTHER.issue(upn("alice")),
        USERS.issue(upn("alice"), begins=NOW - 3 * DAY, ends=NOW - DAY),
    ],
)
async def test_tls_refuses_what_another_authority_signed_and_what_has_expired(shown: Issued, tmp_path: Path) -> None:
    """Within TLS 1.3 the client learns it from its first read."""
    async with _opened() as s:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await _greeted(s, shown, tmp_path)


async def test_where_one_is_required_nobody_comes_without(tmp_path: Path) -> None:
    async with _opened(required=True) as s:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await _greeted(s, None, tmp_path)
        client = await _connect(s, USERS.issue(upn("alice")), tmp_path)
        assert b"AUTH=EXTERNAL" in await client.line()


async def _greeted(s: Stage, shown: Issued | None, folder: Path) -> None:
    client = await _connect(s, shown, folder)
    if not await client.line():
        raise ConnectionResetError
