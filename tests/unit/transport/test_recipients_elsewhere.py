"""Recipients whose directory must be asked first: what RCPT is told, and what a delivery waits for."""

from __future__ import annotations

import pytest
import structlog

from gatepost.directory.port import DirectoryUnavailable, NotAsked, User
from gatepost.organization.model import Organization
from gatepost.routing.decision import Mailbox
from gatepost.transport.message import Envelope, Source
from gatepost.transport.recipients import Recipients
from gatepost.transport.senders import NOT_AS_THIS_SENDER, Senders

CONTOSO = Organization("contoso", accepted_domains=("contoso.com",))
ANNA = User("anna@contoso.com", Mailbox("DB01"), login_at_server="anna.login@contoso.com")


class Elsewhere:
    """A directory that knows what it was asked for."""

    def __init__(self) -> None:
        self.users = {"anna@contoso.com": ANNA}
        self.asked: list[str] = []
        self.down = False

    def find(self, canonical_name: str) -> User | None:
        if canonical_name not in self.asked:
            raise NotAsked(canonical_name)
        return self.users.get(canonical_name)

    async def ask(self, canonical_name: str) -> User | None:
        if self.down:
            raise DirectoryUnavailable("down")
        self.asked.append(canonical_name)
        return self.find(canonical_name)

    async def opens(self, user: User, tries: tuple[bytes, ...]) -> bool:
        return False

    def on_change(self, callback: object) -> None:
        """Nothing changes."""


async def test_what_is_not_known_names_what_to_ask_for() -> None:
    """With its detail first, then without."""
    directory = Elsewhere()
    recipients = Recipients(directory, CONTOSO)
    for name in ("anna+lists@contoso.com", "anna@contoso.com"):
        with pytest.raises(NotAsked) as raised:
            recipients.find("Anna+Lists@contoso.com")
        assert raised.value.name == name
        await recipients.ask(raised.value.name)
    found = recipients.find("Anna+Lists@contoso.com")
    assert found is not None
    assert found.mailbox == Mailbox("DB01")


async def test_a_delivery_waits_for_the_directory() -> None:
    recipients = Recipients(Elsewhere(), CONTOSO)
    found = await recipients.find_by_asking("anna+lists@contoso.com")
    assert found is not None
    assert found.deliver_to == "anna.login+lists@contoso.com"
    assert await recipients.find_by_asking("nobody@contoso.com") is None


async def test_without_an_answer_it_is_a_temporary_fault() -> None:
    directory = Elsewhere()
    directory.down = True
    recipients = Recipients(directory, CONTOSO)
    with pytest.raises(DirectoryUnavailable):
        await recipients.find_by_asking("anna@contoso.com")
    await recipients.ask("anna@contoso.com")


async def test_a_users_sender_is_asked_for_first() -> None:
    """At MAIL and in `From`: the user, and who else has the address."""
    directory = Elsewhere()
    senders = Senders(directory, lambda _: True, structlog.get_logger())
    source = Source(address="192.0.2.1", user="anna@contoso.com")
    envelope = Envelope(sender="other@contoso.com", recipients=[], received=0.0, expires=0.0, source=source)
    for name in ("anna@contoso.com", "other@contoso.com"):
        with pytest.raises(NotAsked) as raised:
            senders.at_mail(envelope)
        assert raised.value.name == name
        await directory.ask(name)
    assert senders.at_mail(envelope) is NOT_AS_THIS_SENDER
