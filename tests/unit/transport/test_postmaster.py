"""The postmaster: whom reports are from, and who gets a postmaster's mail (RFC 5321, section 4.5.1)."""

from __future__ import annotations

import email
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from hub_stage import HubStage

from gatepost.directory.editing import DirectoryEditor
from gatepost.directory.port import Directory, User
from gatepost.organization.model import Organization
from gatepost.organization.transport import DomainKind, TransportConfig
from gatepost.routing.decision import Mailbox
from gatepost.transport.recipients import Recipients

KINDS = {"relayed.example": DomainKind.INTERNAL_RELAY}
DOMAINS = ("contoso.com", "fabrikam.com", "relayed.example")


class People:
    """Who has which address."""

    def __init__(self, **owners: str) -> None:
        self.owners = {address.replace("__", "@").replace("_", "."): name for address, name in owners.items()}

    def find(self, name: str) -> User | None:
        owner = self.owners.get(name)
        return User(f"{owner}@contoso.com", Mailbox("DB01")) if owner else None


def found(people: People, address: str, external: str = "") -> str:
    """To whose mailbox mail for the address goes; empty: to nobody's."""
    config = TransportConfig(external_postmaster_address=external)
    organization = Organization(
        "contoso", accepted_domains=DOMAINS, accepted_domain_kinds=KINDS, transport_config=config
    )
    mailbox = Recipients(cast(Directory, people), organization).find(address)
    return mailbox.deliver_to.partition("@")[0] if mailbox is not None else ""


@pytest.mark.parametrize("address", ["postmaster@contoso.com", "PostMaster@Fabrikam.com", "Postmaster"])
def test_one_mailbox_is_postmaster_of_every_domain(address: str) -> None:
    assert found(People(postmaster__contoso_com="anna"), address) == "anna"
    assert found(People(), address) == ""


def test_who_has_the_very_address_goes_first_then_the_configured_one() -> None:
    people = People(postmaster__contoso_com="anna", postmaster__fabrikam_com="bob", help__fabrikam_com="carol")
    assert found(people, "postmaster@fabrikam.com", "help@fabrikam.com") == "bob"
    assert found(people, "postmaster@contoso.com", "help@fabrikam.com") == "anna"
    del people.owners["postmaster@fabrikam.com"]
    assert found(people, "postmaster@fabrikam.com", "help@fabrikam.com") == "carol"
    assert found(people, "postmaster@fabrikam.com", "help@outside.example") == "anna"


@pytest.mark.parametrize(
    "address", ["postmaster@relayed.example", "postmaster@outside.example", "hostmaster@contoso.com"]
)
def test_postmasters_elsewhere_and_other_names_are_nobodys(address: str) -> None:
    """A relayed domain has its own postmaster where its mail goes on to."""
    assert found(People(postmaster__contoso_com="anna"), address) == ""


def test_reports_are_from_the_default_domains_postmaster_unless_another_is_named() -> None:
    assert (
        Organization("x", accepted_domains=("Bücher.example", "b.example")).postmaster
        == "postmaster@xn--bcher-kva.example"
    )
    config = TransportConfig(external_postmaster_address="help@contoso.com")
    assert Organization("x", accepted_domains=DOMAINS, transport_config=config).postmaster == "help@contoso.com"
    assert Organization("x").postmaster == ""


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubStage]:
    stage = HubStage(tmp_path)
    await stage.prepare()
    await stage.start()
    yield stage
    await stage.stop()


async def test_an_answer_to_a_report_arrives(hub: HubStage) -> None:
    """The report is from an address that the hub itself takes mail for, as soon as somebody has it."""
    hub.outside.replies["x@fabrikam.com"] = "550 5.1.1 Nobody"
    await hub.send("alice@contoso.com", "x@fabrikam.com")
    await hub.until(lambda: hub.mailboxes["MBX-01"].received)
    author = email.message_from_bytes(hub.mailboxes["MBX-01"].received[0].content)["From"]
    assert author == "Mail Delivery System <postmaster@contoso.com>"
    with DirectoryEditor(str(hub.folder / "directory.sqlite")) as editor:
        bob = editor.get("bob@contoso.com")
        editor.change(
            "bob@contoso.com", lambda entry: type(entry)(entry.user, (*bob.addresses, "postmaster@contoso.com"))
        )
    assert await hub.send("s@fabrikam.com", "postmaster@contoso.com", trusted=False) == {}
    await hub.until(lambda: len(hub.mailboxes["MBX-01"].received) == 2)
    assert hub.mailboxes["MBX-01"].received[1].recipients == ["bob@contoso.com"]


async def test_another_address_takes_effect_at_a_reload(hub: HubStage) -> None:
    hub.extra = '[organization.transport]\nexternal_postmaster_address = "bob.alias@contoso.com"\n'
    hub.hub.reload(hub.configuration())
    assert await hub.send("s@fabrikam.com", "postmaster@contoso.com", trusted=False) == {}
    await hub.until(lambda: hub.mailboxes["MBX-01"].received)
    assert hub.mailboxes["MBX-01"].received[0].recipients == ["bob@contoso.com"]
