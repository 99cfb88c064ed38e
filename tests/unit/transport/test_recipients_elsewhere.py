"""Recipients whose directory must be asked first: what RCPT is told, and what a delivery waits for."""

from __future__ import annotations

import pytest

from gatepost.directory.port import DirectoryUnavailable, NotAsked, User
from gatepost.routing.decision import Mailbox
from gatepost.transport.recipients import Recipients

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
    recipients = Recipients(directory, "contoso.com")
    for name in ("anna+lists@contoso.com", "anna@contoso.com"):
        with pytest.raises(NotAsked) as raised:
            recipients.find("Anna+Lists@contoso.com")
        assert raised.value.name == name
        await recipients.ask(raised.value.name)
    found = recipients.find("Anna+Lists@contoso.com")
    assert found is not None
    assert found.mailbox == Mailbox("DB01")


async def test_a_delivery_waits_for_the_directory() -> None:
    recipients = Recipients(Elsewhere(), "contoso.com")
    found = await recipients.find_by_asking("anna+lists@contoso.com")
    assert found is not None
    assert found.deliver_to == "anna.login+lists@contoso.com"
    assert await recipients.find_by_asking("nobody@contoso.com") is None


async def test_without_an_answer_it_is_a_temporary_fault() -> None:
    directory = Elsewhere()
    directory.down = True
    recipients = Recipients(directory, "contoso.com")
    with pytest.raises(DirectoryUnavailable):
        await recipients.find_by_asking("anna@contoso.com")
    await recipients.ask("anna@contoso.com")
