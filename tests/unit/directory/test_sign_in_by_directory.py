"""Signing in where the directory judges passwords itself (LDAP): verdicts, what is remembered, outages, limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace

import argon2
import pytest

from gatepost.directory import passwords
from gatepost.directory.port import BY_DIRECTORY, DirectoryUnavailable, NotAsked, User, Verdict
from gatepost.directory.sign_in import OUTAGE_SECONDS, SUCCESS_SECONDS, UNTOLD_SECONDS, SignInService
from gatepost.organization.model import Protocol
from gatepost.routing.decision import Mailbox

IMAP = Protocol.IMAP
CLIENT = "192.0.2.1"
ANNA = User("anna@contoso.com", Mailbox("DB01"), f"{BY_DIRECTORY}1", directory="corp", reference="cn=anna")
UNTOLD = replace(ANNA, name="otto@contoso.com", password_hash=BY_DIRECTORY)
DUMMY = passwords.make_dummy_hash(argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))


class FakeDirectory:
    """Elsewhere: `find` knows only who was asked for."""

    def __init__(self) -> None:
        self.users = {ANNA.name: ANNA, UNTOLD.name: UNTOLD}
        self.known: set[str] = set()
        self.password = b"apple"
        self.judged = 0
        self.down = False
        self.judge_down = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.callbacks: list[Callable[[], None]] = []

    def find(self, canonical_name: str) -> User | None:
        if canonical_name not in self.known:
            raise NotAsked(canonical_name)
        if self.down:
            raise DirectoryUnavailable("down")
        return self.users.get(canonical_name)

    async def ask(self, canonical_name: str) -> User | None:
        self.known.add(canonical_name)
        return self.find(canonical_name)

    async def opens(self, user: User, tries: tuple[bytes, ...]) -> bool:
        self.judged += 1
        await self.gate.wait()
        if self.judge_down:
            raise DirectoryUnavailable("no server answers")
        return self.password in tries

    async def reached(self, judged: int) -> None:
        """Wait until so many checks have begun."""
        while self.judged < judged:  # noqa: ASYNC110 - each takes some rounds of the loop
            await asyncio.sleep(0)

    def on_change(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)


@pytest.fixture
async def directory() -> FakeDirectory:
    return FakeDirectory()


@pytest.fixture
def clock() -> list[float]:
    return [1000.0]


@pytest.fixture
def service(directory: FakeDirectory, clock: list[float]) -> Iterator[SignInService]:
    service = SignInService(
        directory,
        "contoso.com",
        waiting_limit=3,
        per_address=4,
        dummy_hash=DUMMY,
        clock=lambda: clock[0],
        threads=1,
        known_seconds=60.0,
    )
    yield service
    service.close()


async def _sign_in(service: SignInService, name: str = "anna", password: str = "apple") -> Verdict:
    return (await service.password(name, password, IMAP, CLIENT)).verdict


async def test_the_directory_says_what_is_right(service: SignInService, directory: FakeDirectory) -> None:
    assert await _sign_in(service) is Verdict.SIGNED_IN
    assert await _sign_in(service, password="pear") is Verdict.WRONG_CREDENTIALS
    assert await _sign_in(service, "nobody") is Verdict.WRONG_CREDENTIALS
    assert directory.judged == 2


async def test_a_right_password_is_asked_for_once(service: SignInService, directory: FakeDirectory) -> None:
    for _ in range(5):
        assert await _sign_in(service) is Verdict.SIGNED_IN
    assert directory.judged == 1
    assert service.password_now("anna", "apple", IMAP) is not None


async def test_another_password_voids_what_was_right(service: SignInService, directory: FakeDirectory) -> None:
    await _sign_in(service)
    directory.users[ANNA.name] = replace(ANNA, password_hash=f"{BY_DIRECTORY}2")
    directory.password = b"pear"
    for callback in directory.callbacks:
        callback()
    assert await _sign_in(service) is Verdict.WRONG_CREDENTIALS
    assert await _sign_in(service, password="pear") is Verdict.SIGNED_IN


async def test_where_that_does_not_show_it_is_asked_again_after_minutes(
    service: SignInService, directory: FakeDirectory, clock: list[float]
) -> None:
    """However often it is used meanwhile, and when a session ends."""
    result = await service.password("otto", "apple", IMAP, CLIENT)
    assert result.verdict is Verdict.SIGNED_IN
    directory.password = b"pear"
    for _ in range(4):
        clock[0] += UNTOLD_SECONDS / 5
        service.still_right(UNTOLD.name, result.proof)
        assert await _sign_in(service, "otto") is Verdict.SIGNED_IN
    clock[0] += UNTOLD_SECONDS / 5 + 1
    assert await _sign_in(service, "otto") is Verdict.WRONG_CREDENTIALS


async def test_where_it_shows_a_success_lasts_while_it_is_used(
    service: SignInService, directory: FakeDirectory, clock: list[float]
) -> None:
    await _sign_in(service)
    for _ in range(4):
        clock[0] += SUCCESS_SECONDS - 1
        assert await _sign_in(service) is Verdict.SIGNED_IN
    assert directory.judged == 1


async def test_a_judge_that_does_not_answer_is_unavailable_never_wrong(
    service: SignInService, directory: FakeDirectory, clock: list[float]
) -> None:
    """Who was right lately with this very password still is, for a time."""
    await _sign_in(service)
    directory.judge_down = True
    assert await _sign_in(service, password="pear") is Verdict.UNAVAILABLE
    assert await _sign_in(service, "otto") is Verdict.UNAVAILABLE
    assert await _sign_in(service) is Verdict.SIGNED_IN
    directory.down = True
    clock[0] += OUTAGE_SECONDS - 1
    assert await _sign_in(service) is Verdict.SIGNED_IN
    clock[0] += 2
    assert await _sign_in(service) is Verdict.UNAVAILABLE


async def test_equal_checks_that_run_are_one(service: SignInService, directory: FakeDirectory) -> None:
    directory.gate.clear()
    asking = [asyncio.ensure_future(_sign_in(service)) for _ in range(20)]
    await directory.reached(1)
    directory.gate.set()
    assert set(await asyncio.gather(*asking)) == {Verdict.SIGNED_IN}
    assert directory.judged == 1


async def test_the_checks_of_one_address_are_bounded(service: SignInService, directory: FakeDirectory) -> None:
    """Guessing takes the directory's connections from nobody."""
    directory.gate.clear()
    guesses = [asyncio.ensure_future(_sign_in(service, password=f"guess{n}")) for n in range(20)]
    await directory.reached(4)
    for _ in range(50):
        await asyncio.sleep(0)
    assert directory.judged == 4
    other = asyncio.ensure_future(service.password("anna", "apple", IMAP, "198.51.100.7"))
    await directory.reached(5)
    directory.gate.set()
    assert (await other).verdict is Verdict.SIGNED_IN
    verdicts = await asyncio.gather(*guesses)
    assert verdicts.count(Verdict.BUSY) == 16
    assert verdicts.count(Verdict.WRONG_CREDENTIALS) == 4


async def test_who_is_signed_in_is_asked_for_first(service: SignInService, directory: FakeDirectory) -> None:
    """Whoever may not wait is told that the directory is being asked, not that nobody is there."""
    key = b"k" * 16
    generation = passwords.generation(ANNA.password_hash, key)
    for result in (
        service.user_by_name(ANNA.name, IMAP),
        service.user_of_session(ANNA.name, key, generation, IMAP),
    ):
        assert result.verdict is Verdict.UNAVAILABLE
        assert result.asking
    with pytest.raises(NotAsked):
        service.look_up("anna")
    await service.learn(ANNA.name)
    assert service.user_by_name(ANNA.name, IMAP).verdict is Verdict.SIGNED_IN
    assert service.user_of_session(ANNA.name, key, generation, IMAP).verdict is Verdict.SIGNED_IN
    assert service.look_up("anna") == ANNA


async def test_a_names_user_is_not_taken_from_memory_for_longer_than_the_directory_allows(
    service: SignInService, clock: list[float]
) -> None:
    await _sign_in(service)
    clock[0] += 59
    assert service.password_now("anna", "apple", IMAP) is not None
    clock[0] += 2
    assert service.password_now("anna", "apple", IMAP) is None
