"""Several directories as one: by domain, in order, and never past one that does not answer."""

from __future__ import annotations

import math

import pytest

from gatepost.directory.port import DirectoryUnavailable, User
from gatepost.directory.several import DirectoriesInOrder, Part
from gatepost.routing.decision import Mailbox


class FakeDirectory:
    """See `OwnedDirectory`. Judges its own name as everybody's password."""

    def __init__(self, name: str, *users: str) -> None:
        self.name = name
        self.users = {user: User(user, Mailbox("DB01"), directory=name) for user in users}
        self.down = False
        self.asked: list[str] = []
        self.known_seconds = math.inf

    @property
    def available(self) -> bool:
        return not self.down

    def find(self, canonical_name: str) -> User | None:
        self.asked.append(canonical_name)
        if self.down:
            raise DirectoryUnavailable(f"{self.name} is down")
        return self.users.get(canonical_name)

    async def ask(self, canonical_name: str) -> User | None:
        return self.find(canonical_name)

    async def opens(self, user: User, tries: tuple[bytes, ...]) -> bool:
        return self.name.encode() in tries

    def on_change(self, callback: object) -> None:
        self.callback = callback

    def start(self) -> None: ...

    def close(self) -> None: ...

    async def wait_closed(self) -> None: ...


@pytest.fixture
def corp() -> FakeDirectory:
    return FakeDirectory("corp", "anna@contoso.com", "both@contoso.com")


@pytest.fixture
def partners() -> FakeDirectory:
    return FakeDirectory("partners", "otto@fabrikam.com", "anna@contoso.com")


@pytest.fixture
def rest() -> FakeDirectory:
    return FakeDirectory("rest", "both@contoso.com", "carl@example.org")


@pytest.fixture
def directory(corp: FakeDirectory, partners: FakeDirectory, rest: FakeDirectory) -> DirectoriesInOrder:
    return DirectoriesInOrder(
        [Part("corp", corp), Part("partners", partners, frozenset({"fabrikam.com"})), Part("rest", rest)]
    )


async def test_the_first_that_knows_the_user_answers(directory: DirectoriesInOrder) -> None:
    found = await directory.ask("both@contoso.com")
    assert found is not None
    assert found.directory == "corp"
    found = directory.find("carl@example.org")
    assert found is not None
    assert found.directory == "rest"
    assert await directory.ask("nobody@example.org") is None


async def test_a_domain_is_asked_of_those_that_list_it_and_of_no_other(
    directory: DirectoriesInOrder, corp: FakeDirectory, partners: FakeDirectory
) -> None:
    """So that no directory can answer for another's domain."""
    found = await directory.ask("otto@fabrikam.com")
    assert found is not None
    assert found.directory == "partners"
    assert corp.asked == []
    found = await directory.ask("anna@contoso.com")
    assert found is not None
    assert found.directory == "corp"
    assert partners.asked == ["otto@fabrikam.com"]


async def test_one_that_does_not_answer_is_not_passed_over(
    directory: DirectoriesInOrder, corp: FakeDirectory, rest: FakeDirectory
) -> None:
    """Whoever the later one knows by that name may be another user."""
    corp.down = True
    for name in ("both@contoso.com", "carl@example.org"):
        with pytest.raises(DirectoryUnavailable, match="corp"):
            await directory.ask(name)
        with pytest.raises(DirectoryUnavailable, match="corp"):
            directory.find(name)
    assert rest.asked == []
    assert directory.available
    assert await directory.ask("otto@fabrikam.com") is not None


async def test_a_password_is_judged_where_the_user_is(directory: DirectoriesInOrder) -> None:
    found = await directory.ask("otto@fabrikam.com")
    assert found is not None
    assert await directory.opens(found, (b"partners",))
    assert not await directory.opens(found, (b"corp",))
    with pytest.raises(DirectoryUnavailable):
        await directory.opens(User("x@contoso.com", Mailbox("DB01"), directory="gone"), (b"corp",))


def test_what_is_remembered_elsewhere_is_good_for_the_shortest_time(
    directory: DirectoriesInOrder, partners: FakeDirectory
) -> None:
    assert directory.known_seconds == math.inf
    partners.known_seconds = 60.0
    assert directory.known_seconds == 60.0
