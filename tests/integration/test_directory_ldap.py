"""Users in a real OpenLDAP: the directory's contract, and what is LDAP's own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from directory_contract import ANNA, OTTO, PATIENCE_SECONDS, DirectoryContract
from doors import Servers
from ldap_kit import SERVICE, SERVICE_PASSWORD, Changing, opened, running, settings

from gatepost.directory.cached import CachedDirectory
from gatepost.directory.ldap.mapping import PRESETS
from gatepost.directory.port import DirectoryUnavailable, User
from gatepost.directory.settings import LdapServer, LdapSettings
from gatepost.lab.servers.pki import CertificateAuthority
from gatepost.lab.servers.slapd import SUFFIX, Slapd
from gatepost.organization.model import Protocol
from gatepost.routing.decision import Mailbox


class LdapOfATest:
    """See `directory_contract.Engine`."""

    def __init__(self, server: Slapd, directory: CachedDirectory) -> None:
        self.server = server
        self.directory = directory
        self._changing: Changing | None = None

    @property
    def changing(self) -> Changing:
        if self._changing is None:
            self._changing = Changing(self.server)
        return self._changing

    def put(self, user: User, addresses: tuple[str, ...] = ()) -> None:
        self.changing.put(user, addresses)

    def remove(self, name: str) -> None:
        self.changing.remove(name)

    def take_away(self) -> None:
        if self._changing is not None:
            self._changing.close()
            self._changing = None
        self.server.kill()

    def bring_back(self) -> None:
        self.server.start()
        self.server.wait_ready()


@pytest.fixture
async def engine(servers: Servers, tmp_path: Path) -> AsyncIterator[LdapOfATest]:
    with running(servers, tmp_path) as server:
        directory = opened(settings(server, ca=servers.authority.certificate.read_bytes()))
        engine = LdapOfATest(server, directory)
        engine.put(ANNA, ("sales@contoso.com",))
        engine.put(OTTO)
        yield engine
        directory.close()
        await directory.wait_closed()


class TestLdapDirectory(DirectoryContract):
    seen_seconds = PATIENCE_SECONDS
    tells_hashes = False


# --- Active Directory's attributes

AD = replace(PRESETS["active-directory"], account_domains=("contoso.com",), netbios_domain="CONTOSO")
ANNA_IN_AD = f"""\
dn: cn=Anna A,{SUFFIX}
objectClass: user
objectCategory: person
cn: Anna A
sn: A
userPassword: apw
userPrincipalName: Anna.A@contoso.com
sAMAccountName: anna
mail: anna.a@contoso.com
proxyAddresses: SMTP:anna.a@contoso.com
proxyAddresses: smtp:sales@contoso.com
proxyAddresses: sip:talk@contoso.com
homeMDB: cn=DB01,cn=Databases,{SUFFIX}
userAccountControl: 512
pwdLastSet: 133000000000000000

"""
OTHERS_IN_AD = f"""\
dn: cn=Otto,{SUFFIX}
objectClass: user
objectCategory: person
cn: Otto
sn: O
userPrincipalName: otto@contoso.com
sAMAccountName: otto
msExchHomeServerName: /o=Contoso/ou=Administrative Group/cn=Configuration/cn=Servers/cn=OLD-01
userAccountControl: 514
protocolSettings: IMAP4§0§4§ISO-8859-1
protocolSettings: POP3§1§4

dn: cn=Account named like an address,{SUFFIX}
objectClass: user
objectCategory: person
cn: Account named like an address
sn: T
userPrincipalName: thief@contoso.com
sAMAccountName: anna.a
proxyAddresses: smtp:anna.a@contoso.com
homeMDB: cn=DB02,cn=Databases,{SUFFIX}

dn: cn=First,{SUFFIX}
objectClass: user
objectCategory: person
cn: First
sn: F
userPrincipalName: first@contoso.com
proxyAddresses: smtp:twice@contoso.com
homeMDB: cn=DB02,cn=Databases,{SUFFIX}

dn: cn=Second,{SUFFIX}
objectClass: user
objectCategory: person
cn: Second
sn: S
userPrincipalName: second@contoso.com
proxyAddresses: smtp:twice@contoso.com
homeMDB: cn=DB02,cn=Databases,{SUFFIX}

dn: cn=No mailbox,{SUFFIX}
objectClass: user
objectCategory: person
cn: No mailbox
sn: N
userPrincipalName: none@contoso.com

"""


@pytest.fixture(scope="module")
def active_directory(servers: Servers) -> Iterator[Slapd]:
    with running(servers, servers.scratch, ANNA_IN_AD + OTHERS_IN_AD) as server:
        yield server


@pytest.fixture
async def ad(servers: Servers, active_directory: Slapd) -> AsyncIterator[CachedDirectory]:
    ca = servers.authority.certificate.read_bytes()
    directory = opened(settings(active_directory, ca=ca, mapping=AD))
    yield directory
    directory.close()
    await directory.wait_closed()


@pytest.mark.parametrize(
    "name",
    ["anna.a@contoso.com", "sales@contoso.com", "anna@contoso.com", "contoso\\anna@contoso.com", "contoso\\anna"],
    ids=["UPN", "proxy address", "account", "DOMAIN-account", "without a domain"],
)
async def test_a_user_of_active_directory_has_many_names(ad: CachedDirectory, name: str) -> None:
    found = await ad.ask(name)
    assert found is not None
    assert found.name == "anna.a@contoso.com"
    assert found.mailbox == Mailbox("DB01")
    assert found.reference == f"cn=Anna A,{SUFFIX}"


@pytest.mark.parametrize(
    "name",
    [
        "talk@contoso.com",  # sip: is no mail address
        "sip:talk@contoso.com", "smtp:sales@contoso.com", "fabrikam\\anna@contoso.com", "\\anna@contoso.com",
        "contoso\\@contoso.com", "contoso\\sales@contoso.com", "anna@fabrikam.com", "cn=anna a", "none@contoso.com",
    ],
)  # fmt: skip
async def test_what_is_no_name_of_a_user(ad: CachedDirectory, name: str) -> None:
    assert await ad.ask(name) is None


async def test_the_stronger_name_wins_and_equals_are_nobodys(ad: CachedDirectory) -> None:
    """An address that somebody else put on his own account, or an account called like it, takes nothing over."""
    found = await ad.ask("anna.a@contoso.com")
    assert found is not None
    assert found.mailbox == Mailbox("DB01")
    assert await ad.ask("twice@contoso.com") is None


async def test_disabled_old_and_without_imap(ad: CachedDirectory) -> None:
    found = await ad.ask("otto@contoso.com")
    assert found is not None
    assert found.disabled
    assert found.mailbox == Mailbox(home_server="OLD-01")
    assert Protocol.IMAP not in found.protocols
    assert Protocol.POP3 in found.protocols
    assert Protocol.SUBMISSION in found.protocols


async def test_a_bind_judges_the_password(ad: CachedDirectory) -> None:
    found = await ad.ask("anna@contoso.com")
    assert found is not None
    assert await ad.opens(found, (b"apw",))
    assert await ad.opens(found, (b"wrong", b"apw"))
    for wrong in (b"wrong", b"", b"apw\0", "apẃ".encode(), b"x" * 1024):
        assert not await ad.opens(found, (wrong,)), wrong
    gone = replace(found, reference=f"cn=Gone,{SUFFIX}")
    assert not await ad.opens(gone, (b"apw",))
    assert not await ad.opens(replace(found, reference=""), (b"apw",)), "nobody in particular"


async def test_another_password_is_another_version(
    servers: Servers, active_directory: Slapd, ad: CachedDirectory
) -> None:
    before = await ad.ask("anna@contoso.com")
    assert before is not None
    assert before.tells_of_password
    changing = Changing(active_directory)
    changing.replace(f"cn=Anna A,{SUFFIX}", "pwdLastSet", "133000000000000001")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        after = await ad.ask("anna@contoso.com")
        assert after is not None
        if after.password_hash != before.password_hash:
            break
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    changing.close()


# --- several servers, TLS, referrals


@asynccontextmanager
async def _directory(given: Any) -> AsyncIterator[CachedDirectory]:
    directory = opened(given)
    try:
        yield directory
    finally:
        directory.close()
        await directory.wait_closed()


async def test_the_second_server_answers_while_the_first_is_killed_or_hangs(servers: Servers, tmp_path: Path) -> None:
    """And nobody but the first waits; the first server is asked again once it is back."""
    ca = servers.authority.certificate.read_bytes()
    with running(servers, tmp_path, ANNA_IN_AD) as first, running(servers, tmp_path, ANNA_IN_AD) as second:
        given = settings(first, second, ca=ca, mapping=AD, try_seconds=0.7)
        async with _directory(given) as directory:
            found = await directory.ask("anna@contoso.com")
            assert found is not None
            first.freeze()
            await asyncio.sleep(0.15)  # what is known is no longer fresh
            assert await directory.ask("anna@contoso.com") == found
            assert await directory.opens(found, (b"apw",))
            began = time.monotonic()
            for number in range(50):
                assert await directory.ask(f"nobody{number}@contoso.com") is None
            assert time.monotonic() - began < 10 * given.try_seconds, "each waited for the server that hangs"
            first.thaw()
            first.kill()
            second.freeze()
            await asyncio.sleep(0.15)
            with pytest.raises(DirectoryUnavailable):
                await directory.ask("other@contoso.com")
            assert await directory.ask("anna@contoso.com") == found, "as it was last"
            second.thaw()
            await _until_answered(directory)
            second.kill()
            first.start()
            first.wait_ready()
            await _until_answered(directory)


async def _until_answered(directory: CachedDirectory) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    number = 0
    while True:
        number += 1
        try:
            assert await directory.ask(f"unknown{number}@contoso.com") is None
            return
        except DirectoryUnavailable:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


async def test_starttls_is_verified_as_well(servers: Servers, active_directory: Slapd) -> None:
    ca = servers.authority.certificate.read_bytes()
    given = settings(active_directory, ca=ca, mapping=AD)
    starttls = replace(given.servers[0], url=active_directory.url, starttls=True)
    async with _directory(replace(given, servers=(starttls,))) as directory:
        assert await directory.ask("anna@contoso.com") is not None
    stranger = CertificateAuthority.create(servers.scratch / "stranger").certificate.read_bytes()
    for server in (replace(starttls, ca=stranger), replace(given.servers[0], ca=stranger)):
        async with _directory(replace(given, servers=(server,))) as directory:
            with pytest.raises(DirectoryUnavailable):
                await directory.ask("anna@contoso.com")


async def test_a_certificate_for_another_name_is_refused(servers: Servers, active_directory: Slapd) -> None:
    ca = servers.authority.certificate.read_bytes()
    given = settings(active_directory, ca=ca, mapping=AD)
    port = active_directory.tls_url.rsplit(":", 1)[1]
    address = active_directory.ready[1][0]
    given = replace(given, servers=(replace(given.servers[0], url=f"ldaps://{address}:{port}"),))
    async with _directory(given) as directory:
        assert await directory.ask("anna@contoso.com") is not None
    road = await asyncio.start_server(partial(_pass_on, address, int(port)), "127.0.0.1", 0)
    other = f"ldaps://127.0.0.1:{road.sockets[0].getsockname()[1]}"
    async with _directory(replace(given, servers=(replace(given.servers[0], url=other),))) as directory:
        with pytest.raises(DirectoryUnavailable):
            await directory.ask("anna@contoso.com")
    road.close()
    await road.wait_closed()


async def _pass_on(address: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    to_reader, to_writer = await asyncio.open_connection(address, port)

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(4096):
                target.write(data)
                await target.drain()
        target.close()

    await asyncio.gather(copy(reader, to_writer), copy(to_reader, writer))


async def test_an_account_that_may_not_search_is_an_outage(servers: Servers, active_directory: Slapd) -> None:
    """A password of the service that was changed: nobody is told that theirs is wrong."""
    ca = servers.authority.certificate.read_bytes()
    given = replace(settings(active_directory, ca=ca, mapping=AD), bind_password="old")
    async with _directory(given) as directory:
        with pytest.raises(DirectoryUnavailable, match="refused"):
            await directory.ask("anna@contoso.com")


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x30\x84\xff\xff\xff\xff" + b"x" * 100, None]
)
async def test_what_is_no_ldap_server_is_an_outage_in_bounded_time(servers: Servers, answer: bytes | None) -> None:
    """Also one that accepts and says nothing (None), in clear as in a TLS handshake."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            if answer is None:
                await reader.read(-1)
            else:
                await reader.read(1)
                writer.write(answer)
                await writer.drain()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for url, starttls in (
        (f"ldap://127.0.0.1:{port}", False),
        (f"ldap://127.0.0.1:{port}", True),
        (f"ldaps://127.0.0.1:{port}", False),
    ):
        one = LdapServer(url, starttls, servers.authority.certificate.read_bytes(), seconds=0.5)
        given = LdapSettings((one,), SUFFIX, AD, SERVICE, SERVICE_PASSWORD, seconds=2.0, try_seconds=0.5)
        began = time.monotonic()
        async with _directory(given) as directory:
            with pytest.raises(DirectoryUnavailable):
                await directory.ask("anna@contoso.com")
        assert time.monotonic() - began < PATIENCE_SECONDS
    server.close()
    await server.wait_closed()


async def test_a_referral_is_followed_to_a_configured_server_only(servers: Servers, tmp_path: Path) -> None:
    ca = servers.authority.certificate.read_bytes()
    with ExitStack() as stack:
        real = stack.enter_context(running(servers, tmp_path, ANNA_IN_AD))
        other = stack.enter_context(running(servers, tmp_path, extra=f"referral {real.tls_url}"))
        elsewhere = replace(settings(other, ca=ca, mapping=AD), base="dc=example,dc=org")
        async with _directory(elsewhere) as directory:
            with pytest.raises(DirectoryUnavailable, match=r"referred to ldaps://.*none of the servers"):
                await directory.ask("anna@contoso.com")
        both = replace(elsewhere, servers=(*elsewhere.servers, *settings(real, ca=ca).servers))
        async with _directory(both) as directory:
            with pytest.raises(DirectoryUnavailable, match="has no entry"):
                await directory.ask("anna@contoso.com")
