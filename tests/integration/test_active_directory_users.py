"""Users of a real domain controller: their names, their passwords, and that their changes are noticed in seconds."""

from __future__ import annotations

import asyncio
import imaplib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import pytest
from ad_kit import ADMINISTRATOR, GUID, PASSWORDS, Administrator, Domain, dn_of
from directory_contract import PATIENCE_SECONDS
from doors import FrontDoor, Servers, start

from gatepost.directory.cached import CachedDirectory
from gatepost.directory.ldap.engine import LdapEngine
from gatepost.directory.port import DirectoryUnavailable, User
from gatepost.directory.settings import Ages
from gatepost.lab.clients import imap, imap_messages, web_visit
from gatepost.lab.servers.exchange_entries import change
from gatepost.lab.servers.pki import CertificateAuthority
from gatepost.lab.servers.samba import ADMIN_PASSWORD
from gatepost.lab.toml_text import Table
from gatepost.organization.model import Protocol
from gatepost.routing.decision import Mailbox

T = TypeVar("T")
LONG = Ages(positive_seconds=3600.0, negative_seconds=3600.0)
"""Answers that no test lives to see grow old: what is seen to change was told."""


@pytest.fixture
async def directory(domain: Domain) -> AsyncIterator[CachedDirectory]:
    found = CachedDirectory("corp", LdapEngine("corp", domain.settings()), LONG)
    yield found
    found.close()
    await found.wait_closed()


@pytest.fixture
def administrator(domain: Domain) -> Iterator[Administrator]:
    with Administrator(domain) as found:
        yield found


async def _ask(directory: CachedDirectory, name: str) -> User:
    found = await directory.ask(name)
    assert found is not None, name
    return found


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not await condition():
        assert time.monotonic() < deadline, "was not noticed"
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "name",
    [
        "alice@contoso.com", "alice.x@contoso.com", "contoso\\alice", "contoso\\alice@contoso.com",
        f"{GUID}@contoso.com",
    ],
    ids=["UPN", "proxy address", "DOMAIN-account", "DOMAIN-account with a domain", "mailbox GUID"],
)  # fmt: skip
async def test_a_user_has_many_names(directory: CachedDirectory, name: str) -> None:
    found = await _ask(directory, name)
    assert (found.name, found.mailbox, found.reference) == ("alice@contoso.com", Mailbox("DB01"), dn_of("alice"))
    assert not found.disabled


async def test_who_has_an_account_and_no_mailbox_is_nobody(directory: CachedDirectory) -> None:
    for name in ("administrator@contoso.com", "contoso\\guest", f"{GUID}", "8bcbbad4@contoso.com"):
        assert await directory.ask(name) is None, name


async def test_a_bind_judges_the_password(directory: CachedDirectory) -> None:
    found = await _ask(directory, "alice@contoso.com")
    assert await directory.opens(found, (PASSWORDS["alice"].encode(),))
    assert not await directory.opens(found, (b"wrong",))


async def test_both_kinds_of_tls_are_verified(domain: Domain, servers: Servers) -> None:
    stranger = CertificateAuthority.create(servers.scratch / "AD-stranger").certificate.read_bytes()
    given = domain.settings(changes_seconds=0)
    for url, starttls in ((domain.server.url, False), (f"ldap://{domain.server.address}", True)):
        for ca, answers in ((given.servers[0].ca, True), (stranger, False)):
            server = replace(given.servers[0], url=url, starttls=starttls, ca=ca)
            directory = CachedDirectory("corp", LdapEngine("corp", replace(given, servers=(server,))), LONG)
            if answers:
                await _ask(directory, "alice@contoso.com")
            else:
                with pytest.raises(DirectoryUnavailable):
                    await directory.ask("alice@contoso.com")
            directory.close()
            await directory.wait_closed()


async def test_a_mailbox_of_no_database_and_a_user_without_imap(
    domain: Domain, directory: CachedDirectory, administrator: Administrator
) -> None:
    dn = administrator.add_user("old", domain.entries.database("DB01"))
    server = "/o=Contoso/ou=First/cn=Configuration/cn=Servers/cn=EX-OLD"
    administrator.replace(dn, "msExchHomeServerName", server)
    administrator.replace(dn, "protocolSettings", "IMAP4§0§1§4§ISO-8859-1", "POP3§1§1§4")
    administrator.replace(dn, "homeMDB")

    async def as_it_is() -> bool:
        found = await directory.ask("old@contoso.com")
        return found is not None and found.mailbox == Mailbox(home_server="EX-OLD")

    await _until(as_it_is)
    protocols = (await _ask(directory, "old@contoso.com")).protocols
    assert Protocol.IMAP not in protocols
    assert {Protocol.POP3, Protocol.HTTPS} < protocols
    administrator.delete(dn)


# --- changes


async def test_a_moved_and_a_disabled_user_are_noticed(
    domain: Domain, directory: CachedDirectory, administrator: Administrator
) -> None:
    """By every name that was asked for, though the answers were good for an hour."""
    dn = administrator.add_user("moving", domain.entries.database("DB01"))
    names = ("moving@contoso.com", "contoso\\moving")

    async def there() -> bool:
        return None not in [await directory.ask(name) for name in names]

    await _until(there)
    for name in names:
        assert (await _ask(directory, name)).mailbox == Mailbox("DB01")
    told = asyncio.Event()
    directory.on_change(told.set)
    administrator.replace(dn, "homeMDB", domain.entries.database("DB02"))

    async def moved() -> bool:
        return {(await _ask(directory, name)).mailbox for name in names} == {Mailbox("DB02")}

    await _until(moved)
    assert told.is_set()
    administrator.replace(dn, "userAccountControl", "546")  # a normal account, no password needed, disabled

    async def disabled() -> bool:
        return all([(await _ask(directory, name)).disabled for name in names])

    await _until(disabled)
    administrator.delete(dn)


async def test_another_principal_name_takes_the_old_one_away(
    domain: Domain, directory: CachedDirectory, administrator: Administrator
) -> None:
    """The entry does not say any more how it was called; it is known by its distinguished name."""
    dn = administrator.add_user("renamed", domain.entries.database("DB01"))

    async def there() -> bool:
        return await directory.ask("renamed@contoso.com") is not None

    await _until(there)
    assert await directory.ask("other@contoso.com") is None
    administrator.replace(dn, "userPrincipalName", "other@contoso.com")
    administrator.replace(dn, "sAMAccountName", "other")

    async def renamed() -> bool:
        return (
            await directory.ask("renamed@contoso.com") is None and await directory.ask("other@contoso.com") is not None
        )

    await _until(renamed)
    administrator.delete(dn)


async def test_a_new_user_is_noticed_where_nobody_was(
    domain: Domain, directory: CachedDirectory, administrator: Administrator
) -> None:
    assert await directory.ask("late@contoso.com") is None
    dn = administrator.add_user("late", domain.entries.database("DB02"))

    async def there() -> bool:
        return await directory.ask("late@contoso.com") is not None

    await _until(there)
    administrator.delete(dn)


async def test_a_deleted_user_is_noticed_by_an_account_that_may_see_it(
    domain: Domain, administrator: Administrator
) -> None:
    given = replace(domain.settings(), bind_name=ADMINISTRATOR, bind_password=ADMIN_PASSWORD)
    directory = CachedDirectory("corp", LdapEngine("corp", given), LONG)
    dn = administrator.add_user("leaving", domain.entries.database("DB01"))

    async def there() -> bool:
        return await directory.ask("leaving@contoso.com") is not None

    await _until(there)
    administrator.delete(dn)

    async def gone() -> bool:
        return await directory.ask("leaving@contoso.com") is None

    await _until(gone)
    directory.close()
    await directory.wait_closed()


async def test_changes_are_told_again_after_the_controller_was_away(
    domain: Domain, directory: CachedDirectory, administrator: Administrator
) -> None:
    """And what changed meanwhile is not missed."""
    dn = administrator.add_user("patient", domain.entries.database("DB01"))

    async def there() -> bool:
        return await directory.ask("patient@contoso.com") is not None

    await _until(there)
    domain.server.stop()
    domain.server.load(change(dn, {"homeMDB": domain.entries.database("DB02")}))
    domain.server.start()
    domain.server.wait_ready()

    async def moved() -> bool:
        return (await _ask(directory, "patient@contoso.com")).mailbox == Mailbox("DB02")

    await _until(moved)
    with Administrator(domain) as again:
        again.delete(dn)


# --- a whole front door


@pytest.fixture(scope="module")
def door(servers: Servers, domain: Domain) -> Iterator[FrontDoor]:
    """A front door whose users are in Active Directory; answers are good for an hour."""
    servers.dovecot("MBX-01")  # whose address the web part then has
    web = servers.mailbox_web("MBX-01")

    def configure(front_end: Table, organization: Table) -> None:
        table = {"name": "corp", "positive_seconds": 3600.0, "negative_seconds": 3600.0, "ldap": domain.table()}
        front_end["directories"] = [table]
        server = organization["servers"]["MBX-01"]
        server["endpoints"]["https"] = {"port": web.port}
        server["sign_in"] |= {"http": "header", "http_header": "X-Remote-User"}

    with start(servers, configure, users=[]) as found:
        yield found


def _imap(door: FrontDoor, name: str, password: str) -> str:
    """The mailbox server that the first message names, or why it was refused for good."""

    def visit() -> str:
        client = imap(door.addresses["imaps"], door.client_context)
        try:
            client.login(name, password)
            return ", ".join(re.findall(r"on (MBX-\d\d)\.", imap_messages(client)[0].decode()))
        except imaplib.IMAP4.error as error:
            return str(error)
        finally:
            client.shutdown()

    return _settled(visit, lambda text: "UNAVAILABLE" in text)


def _web(door: FrontDoor, name: str, password: str) -> tuple[int, str]:
    """Status and mailbox server."""

    def visit() -> tuple[int, str]:
        answer = web_visit(door.addresses["https"], door.client_context, "/owa/", name, password)
        return answer.status, answer.headers.get("x-beserver", "")

    return _settled(visit, lambda answer: answer[0] == 503)


def _settled(visit: Callable[[], T], is_temporary: Callable[[T], bool]) -> T:
    """What a client sees in the end, who comes again after a temporary refusal: a busy machine may need the time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while is_temporary(found := visit()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _becomes(what: Callable[[], object], wanted: object) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := what()) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


@pytest.mark.parametrize("name", ["alice@contoso.com", "alice", "CONTOSO\\alice", "alice.x@contoso.com"])
def test_a_user_signs_in_by_each_name(door: FrontDoor, name: str) -> None:
    assert _imap(door, name, PASSWORDS["alice"]) == "MBX-01"
    assert _web(door, name, PASSWORDS["alice"]) == (200, "MBX-01")


def test_a_wrong_password_is_refused(door: FrontDoor) -> None:
    assert "AUTHENTICATIONFAILED" in _imap(door, "alice@contoso.com", "wrong")
    assert _web(door, "CONTOSO\\alice", "wrong")[0] == 401


def test_the_front_door_follows_a_move_and_a_closed_account(
    door: FrontDoor, domain: Domain, administrator: Administrator
) -> None:
    password = PASSWORDS["bob"]
    assert _imap(door, "bob", password) == "MBX-02"
    administrator.replace(dn_of("bob"), "homeMDB", domain.entries.database("DB01"))
    _becomes(lambda: _imap(door, "bob", password), "MBX-01")
    assert _web(door, "bob", password)[0] == 200
    administrator.replace(dn_of("bob"), "userAccountControl", "514")
    _becomes(lambda: "AUTHENTICATIONFAILED" in _imap(door, "bob", password), True)
    assert _web(door, "bob", password)[0] == 401
    administrator.replace(dn_of("bob"), "userAccountControl", "512")
    _becomes(lambda: _imap(door, "bob", password), "MBX-01")
    administrator.replace(dn_of("bob"), "homeMDB", domain.entries.database("DB02"))


def test_the_configured_directory_is_imported_from(door: FrontDoor) -> None:
    """Without naming a controller: the configuration of a front end names one."""
    text = door.command("organization", "import-ad", "--dry-run", "--leave-out", "DB01", "--leave-out", "DB02")
    assert "+[servers.EX-16]" in text
    assert "+[servers.MBX-01]" not in text


def test_the_sites_come_into_the_front_door_s_own_file(door: FrontDoor) -> None:
    """And what it is asked next it answers by them."""
    door.command("organization", "import-ad", "--only-sites", "--yes")
    text = door.command("explain", "alice@contoso.com", "--protocol", "https", "--client", "10.2.7.9")
    assert "client:    10.2.7.9, site asia (subnet 10.2.7.0/24)" in text
    assert _imap(door, "alice", PASSWORDS["alice"]) == "MBX-01"
    assert "nothing to change" in door.command("organization", "import-ad", "--only-sites", "--yes")
