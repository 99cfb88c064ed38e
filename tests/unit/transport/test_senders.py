"""Who may send as whom (SPEC T1; exchange-facts 4.9: ExchangeUsers have no Accept-Any-Sender)."""

from __future__ import annotations

import asyncio
import smtplib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hub_stage import ADDRESS, SECONDS, HubStage
from structlog.testing import CapturingLogger

from gatepost.directory.editing import DirectoryEditor, Entry
from gatepost.directory.passwords import make_hash
from gatepost.directory.port import Directory, DirectoryUnavailable, User
from gatepost.organization.transport import PermissionGroup, ReceiveConnector
from gatepost.routing.decision import Mailbox
from gatepost.transport.headers.author import author_addresses
from gatepost.transport.headers.filter import MAX_FROM, HeaderFacts
from gatepost.transport.message import Envelope, Source
from gatepost.transport.senders import NOT_AS_THIS_SENDER, NOT_NOW, Senders
from gatepost.wire.smtp_reply import Reply

CLIENT = ReceiveConnector("Client", "HUB-01", (), permission_groups=frozenset({PermissionGroup.USERS}))
INTERNET = ReceiveConnector("Internet", "HUB-01", (), permission_groups=frozenset({PermissionGroup.ANONYMOUS}))
PARTNER = ReceiveConnector("Partner", "HUB-01", (), permission_groups=frozenset({PermissionGroup.PARTNERS}))
PASSWORD = "anna-secret"


class People:
    """Anna, Bob and Carol with their further addresses; `fault` is what a look-up raises."""

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self.users = {
            "anna@contoso.com": User("anna@contoso.com", Mailbox("DB01")),
            "bob@contoso.com": User("bob@contoso.com", Mailbox("DB01")),
            "carol@contoso.com": User("carol@contoso.com", Mailbox("DB01")),
        }
        self.others = {"sales@fabrikam.com": "anna@contoso.com", "robert@contoso.com": "bob@contoso.com"}

    def find(self, name: str) -> User | None:
        if self.fault is not None:
            raise self.fault
        return self.users.get(self.others.get(name, name))

    def grant(self, *words: str) -> None:
        """Let Anna send as these."""
        self.users["anna@contoso.com"] = replace(self.users["anna@contoso.com"], send_as=words)


@pytest.fixture
def people() -> People:
    return People()


@pytest.fixture
def senders(people: People) -> Senders:
    def is_ours(address: str) -> bool:
        return address.endswith(("@contoso.com", "@fabrikam.com"))

    made = Senders(cast(Directory, people), is_ours, cast(Any, CapturingLogger()))
    made.configure((CLIENT, INTERNET, PARTNER), "contoso.com")
    return made


def by(sender: str, user: str = "anna@contoso.com", connector: str = "Client", **how: Any) -> Envelope:
    return Envelope(sender, [], 0.0, 0.0, source=Source(connector=connector, user=user, **how))


@pytest.mark.parametrize(
    ("sender", "taken"),
    [
        ("anna@contoso.com", True),
        ("Anna@Contoso.COM", True),
        ("sales@fabrikam.com", True),
        ("anna+lists@contoso.com", True),
        ("sales+x@fabrikam.com", True),
        ("", True),
        ("bob@contoso.com", False),
        ("anna@fabrikam.com", False),
        ("nobody@contoso.com", False),
        ("anna@elsewhere.example", False),
        ('"anna "@contoso.com', False),
    ],
)
def test_a_user_sends_by_any_address_of_the_own_mailbox(senders: Senders, sender: str, taken: bool) -> None:
    """And by the null sender, which notices of what became of a message must have (RFC 8098)."""
    assert senders.at_mail(by(sender)) == (None if taken else NOT_AS_THIS_SENDER)


def test_the_reply_is_the_source_systems() -> None:
    said = "550 5.7.60 SMTP; Client does not have permissions to send as this sender\r\n"
    assert NOT_AS_THIS_SENDER.encode().decode() == said


@pytest.mark.parametrize(
    ("grant", "sender", "taken"),
    [
        ("bob@contoso.com", "bob@contoso.com", True),
        ("bob@contoso.com", "robert@contoso.com", True),
        ("robert@contoso.com", "bob@contoso.com", True),
        ("bob@contoso.com", "bob+x@contoso.com", True),
        ("bob@contoso.com", "carol@contoso.com", False),
        ("all@contoso.com", "all@contoso.com", True),
        ("@news.example", "anything@news.example", True),
        ("@news.example", "x@sub.news.example", False),
        ("@contoso.com", "carol@contoso.com", True),
    ],
)
def test_a_grant_is_of_a_whole_mailbox_an_address_or_a_domain(
    senders: Senders, people: People, grant: str, sender: str, taken: bool
) -> None:
    people.grant(grant)
    assert senders.at_mail(by(sender)) == (None if taken else NOT_AS_THIS_SENDER)


def test_a_directory_that_does_not_answer_is_no_refusal(senders: Senders, people: People) -> None:
    people.fault = DirectoryUnavailable("gone")
    assert senders.at_mail(by("bob@contoso.com")) == NOT_NOW
    assert senders.at_header(by(""), facts(b"bob@contoso.com")) == NOT_NOW
    assert NOT_NOW.code == 451


def test_servers_send_as_anybody_and_users_where_the_connector_lets_them(senders: Senders) -> None:
    assert senders.at_mail(by("bob@contoso.com", internal=True)) is None
    senders.configure((replace(CLIENT, accept_any_sender=True),), "contoso.com")
    assert senders.at_mail(by("bob@contoso.com")) is None
    assert senders.at_header(by(""), facts(b"bob@contoso.com")) is None


def test_a_user_who_is_no_more_sends_as_nobody(senders: Senders, people: People) -> None:
    del people.users["anna@contoso.com"]
    assert senders.at_mail(by("anna@contoso.com")) == NOT_AS_THIS_SENDER


@pytest.mark.parametrize(
    ("connector", "said", "taken"),
    [("Internet", None, True), ("Internet", False, False), ("Partner", None, False), ("Partner", True, True)],
)
def test_the_accepted_domains_of_who_has_not_signed_in(
    senders: Senders, connector: str, said: bool | None, taken: bool
) -> None:
    """Anonymous has Accept-Authoritative-Domain-Sender, Partners has not; the switch says otherwise."""
    one = {"Internet": INTERNET, "Partner": PARTNER}[connector]
    senders.configure((replace(one, accept_authoritative_domain_sender=said),), "contoso.com")
    found = senders.at_mail(by("anna@contoso.com", "", connector))
    assert found == (None if taken else NOT_AS_THIS_SENDER)
    assert senders.at_mail(by("s@far.example", "", connector)) is None
    assert senders.at_mail(by("", "", connector)) is None


# The From field


def facts(value: bytes, fields: int = 1) -> HeaderFacts:
    return HeaderFacts(from_field=value, from_fields=fields)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"anna@x.com", ("anna@x.com",)),
        (b"Anna <anna@x.com>", ("anna@x.com",)),
        (b'"a, b <c@d>" <anna@x.com>, bob@x.com', ("anna@x.com", "bob@x.com")),
        (b"a (c (d\\) <e@f>)) <x@y.de> (z)", ("x@y.de",)),
        (b'"q q"@x.de', ('"q q"@x.de',)),
        ("=?utf-8?Q?J=C3=B6rg?= <jörg@x.de>".encode(), ("jörg@x.de",)),
        (b"list: a@x.de, b@x.de;", ()),
        (b"<a@x.de> b@x.de", ()),
        (b"<a@x.de> <b@x.de>", ()),
        (b"a@x.de (", ()),
        (b'a@x.de, "b', ()),
        (b"<a@x.de", ()),
        (b"a@x.de,", ()),
        (b"", ()),
        (b"Anna", ()),
        (b"\xff <a@x.de>", ()),
        (b"<@relay.example:a@x.de>", ()),
    ],
)
def test_all_addresses_of_from_are_read_or_none(value: bytes, found: tuple[str, ...]) -> None:
    assert author_addresses(value) == found


@pytest.mark.parametrize(
    ("value", "fields", "taken"),
    [
        (b"Anna <sales@fabrikam.com>", 1, True),
        (b"", 0, True),
        (b"anna@contoso.com, bob@contoso.com", 1, False),
        (b'"anna@contoso.com" <bob@contoso.com>', 1, False),
        (b"anna@contoso.com", 2, False),
        (b"anna@contoso.com" + b" " * (MAX_FROM - 16), 1, False),
        (b"undisclosed:;", 1, False),
    ],
)
def test_from_must_be_the_users_whole(senders: Senders, value: bytes, fields: int, taken: bool) -> None:
    envelope = by("")
    assert senders.at_header(envelope, facts(value, fields)) == (None if taken else NOT_AS_THIS_SENDER)


def test_from_of_others_is_not_looked_at(senders: Senders) -> None:
    """Strangers' mail, servers', and a connector that lets it be."""
    other = facts(b"bob@contoso.com")
    assert senders.at_header(by("", "", "Internet"), other) is None
    assert senders.at_header(by("", internal=True), other) is None
    senders.configure((replace(CLIENT, check_from_field=False),), "contoso.com")
    assert senders.at_header(by(""), other) is None


# A hub


USERS = """
[receive_connectors.Users]
server = "HUB-01"
bindings = ["127.0.61.1:{port}"]
remote_ranges = ["127.0.63.0/24"]
permission_groups = ["users"]
authentication = ["tls", "basic"]
"""


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubStage]:
    stage = HubStage(tmp_path)
    stage.extra = USERS.format(port=stage.port)
    await stage.prepare()
    with DirectoryEditor(str(tmp_path / "directory.sqlite")) as editor:
        user = User("anna@contoso.com", Mailbox("DB01"), make_hash(PASSWORD), send_as=("bob@contoso.com",))
        editor.add(Entry(user, ("postmaster@contoso.com",)))
    await stage.start()
    yield stage
    await stage.stop()


async def submit(sender: str, author: str, stage: HubStage) -> tuple[int, bytes]:
    """Send a message as Anna; the last answer."""

    def go() -> tuple[int, bytes]:
        with smtplib.SMTP(ADDRESS, stage.port, "client.example", SECONDS, ("127.0.63.7", 0)) as client:
            client.ehlo()
            client.login("anna", PASSWORD)
            code, words = client.mail(sender)
            if code != 250:
                return code, words
            client.rcpt("alice@contoso.com")
            return client.data(f"From: {author}\r\nSubject: x\r\n\r\ntext\r\n")

    return await asyncio.to_thread(go)


async def test_a_hub_holds_its_users_to_their_addresses(hub: HubStage) -> None:
    assert Reply(*_code(await submit("alice@contoso.com", "anna@contoso.com", hub))) == NOT_AS_THIS_SENDER
    assert Reply(*_code(await submit("anna@contoso.com", "alice@contoso.com", hub))) == NOT_AS_THIS_SENDER
    assert (await submit("anna@contoso.com", "Anna <anna@contoso.com>", hub))[0] == 250
    assert (await submit("bob.alias@contoso.com", "bob@contoso.com", hub))[0] == 250
    await hub.until(lambda: len(hub.mailboxes["MBX-01"].received) == 2)
    assert [kept.sender for kept in hub.mailboxes["MBX-01"].received] == ["anna@contoso.com", "bob.alias@contoso.com"]
    assert [line["address"] for line in hub.events("message.sender_refused")] == ["alice@contoso.com"] * 2


def _code(answer: tuple[int, bytes]) -> tuple[int, str, str]:
    enhanced, _, text = answer[1].decode().partition(" ")
    return answer[0], text, enhanced
