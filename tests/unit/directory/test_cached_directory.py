"""What is remembered of a directory elsewhere: ages, one question a name, outages, changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from gatepost.directory.cached import CachedDirectory
from gatepost.directory.port import DirectoryBusy, DirectoryUnavailable, NotAsked, User
from gatepost.directory.settings import Ages
from gatepost.routing.decision import Mailbox

ANNA = User("anna@contoso.com", Mailbox("DB01"), "hash")
AGES = Ages(positive_seconds=100.0, negative_seconds=10.0, outage_seconds=1000.0, users=4)


class FakeEngine:
    """Users in memory; counts what it is asked."""

    def __init__(self) -> None:
        self.users = {"anna@contoso.com": ANNA, "sales@contoso.com": ANNA}
        self.asked: list[str] = []
        self.fault: Exception | None = None
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.invalid: list[Callable[[str], None]] = []
        self.closed = False

    async def find(self, canonical_name: str) -> User | None:
        self.asked.append(canonical_name)
        await self.go_on.wait()
        if self.fault is not None:
            raise self.fault
        return self.users.get(canonical_name)

    async def opens(self, user: User, tries: tuple[bytes, ...]) -> bool:
        return tries == (b"right",)

    def on_invalid(self, callback: Callable[[str], None]) -> None:
        self.invalid.append(callback)

    async def close(self) -> None:
        self.closed = True


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
async def directory(engine: FakeEngine, clock: Clock) -> AsyncIterator[CachedDirectory]:
    directory = CachedDirectory("corp", engine, AGES, clock, probe_seconds=0.01)
    yield directory
    directory.close()
    await directory.wait_closed()
    assert engine.closed


async def test_a_user_is_asked_for_once_in_their_age(
    directory: CachedDirectory, engine: FakeEngine, clock: Clock
) -> None:
    for _ in range(3):
        assert await directory.ask("anna@contoso.com") == ANNA
        clock.now += 33
    assert engine.asked == ["anna@contoso.com"]
    clock.now += 2
    await directory.ask("anna@contoso.com")
    assert len(engine.asked) == 2


async def test_that_nobody_has_a_name_has_its_own_age(
    directory: CachedDirectory, engine: FakeEngine, clock: Clock
) -> None:
    assert await directory.ask("new@contoso.com") is None
    clock.now += 9
    assert await directory.ask("new@contoso.com") is None
    assert directory.find("new@contoso.com") is None
    assert len(engine.asked) == 1
    clock.now += 2
    engine.users["new@contoso.com"] = ANNA
    assert await directory.ask("new@contoso.com") == ANNA


async def test_many_who_ask_for_one_name_are_one_question(directory: CachedDirectory, engine: FakeEngine) -> None:
    engine.go_on.clear()
    asking = [asyncio.ensure_future(directory.ask("anna@contoso.com")) for _ in range(100)]
    await asyncio.sleep(0)
    engine.go_on.set()
    assert await asyncio.gather(*asking) == [ANNA] * 100
    assert engine.asked == ["anna@contoso.com"]


async def test_who_gives_up_takes_nothing_from_the_others(directory: CachedDirectory, engine: FakeEngine) -> None:
    engine.go_on.clear()
    first = asyncio.ensure_future(directory.ask("anna@contoso.com"))
    second = asyncio.ensure_future(directory.ask("anna@contoso.com"))
    await asyncio.sleep(0)
    first.cancel()
    engine.go_on.set()
    assert await second == ANNA
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_what_is_not_known_says_so_and_is_being_asked(directory: CachedDirectory, engine: FakeEngine) -> None:
    with pytest.raises(NotAsked) as raised:
        directory.find("anna@contoso.com")
    assert raised.value.name == "anna@contoso.com"
    assert await directory.ask(raised.value.name) == ANNA
    assert directory.find("anna@contoso.com") == ANNA
    assert engine.asked == ["anna@contoso.com"]


async def test_in_an_outage_a_user_is_as_they_were_for_a_time(
    directory: CachedDirectory, engine: FakeEngine, clock: Clock
) -> None:
    await directory.ask("anna@contoso.com")
    engine.fault = DirectoryUnavailable("down")
    clock.now += 101
    assert await directory.ask("anna@contoso.com") == ANNA
    assert directory.find("anna@contoso.com") == ANNA
    assert not directory.available
    clock.now += 900
    with pytest.raises(DirectoryUnavailable, match="down"):
        await directory.ask("anna@contoso.com")
    with pytest.raises(DirectoryUnavailable):
        directory.find("anna@contoso.com")


async def test_in_an_outage_nobody_is_said_to_be_unknown(
    directory: CachedDirectory, engine: FakeEngine, clock: Clock
) -> None:
    await directory.ask("new@contoso.com")
    clock.now += 11
    engine.fault = DirectoryUnavailable("down")
    for name in ("new@contoso.com", "other@contoso.com"):
        with pytest.raises(DirectoryUnavailable):
            await directory.ask(name)
        with pytest.raises(DirectoryUnavailable):
            directory.find(name)


async def test_an_outage_ends_by_itself(directory: CachedDirectory, engine: FakeEngine) -> None:
    told = asyncio.Event()
    directory.on_change(told.set)
    engine.fault = DirectoryUnavailable("down")
    with pytest.raises(DirectoryUnavailable):
        await directory.ask("anna@contoso.com")
    assert not told.is_set()
    engine.fault = None
    await asyncio.wait_for(told.wait(), 20)
    assert directory.available


async def test_whatever_an_engine_trips_over_is_an_outage(directory: CachedDirectory, engine: FakeEngine) -> None:
    engine.fault = KeyError("a fault of ours")
    with pytest.raises(DirectoryUnavailable, match="KeyError"):
        await directory.ask("anna@contoso.com")
    engine.fault = None
    told = asyncio.Event()
    directory.on_change(told.set)
    await asyncio.wait_for(told.wait(), 20)


async def test_another_answer_than_before_is_told(directory: CachedDirectory, engine: FakeEngine, clock: Clock) -> None:
    told: list[int] = []
    directory.on_change(lambda: told.append(1))
    await directory.ask("anna@contoso.com")
    clock.now += 101
    await directory.ask("anna@contoso.com")
    assert not told, "the same as before"
    engine.users["anna@contoso.com"] = replace(ANNA, disabled=True)
    clock.now += 101
    await directory.ask("anna@contoso.com")
    assert len(told) == 1
    del engine.users["anna@contoso.com"]
    clock.now += 101
    assert await directory.ask("anna@contoso.com") is None
    assert len(told) == 2


async def test_the_same_answer_is_the_same_object(directory: CachedDirectory, clock: Clock) -> None:
    first = await directory.ask("anna@contoso.com")
    clock.now += 101
    assert await directory.ask("anna@contoso.com") is first


async def test_a_change_that_is_told_makes_all_names_of_the_user_stale(
    directory: CachedDirectory, engine: FakeEngine, clock: Clock
) -> None:
    await directory.ask("anna@contoso.com")
    await directory.ask("sales@contoso.com")
    told: list[int] = []
    directory.on_change(lambda: told.append(1))
    clock.now += 1
    engine.invalid[0]("anna@contoso.com")
    assert told
    clock.now += 1
    await directory.ask("anna@contoso.com")
    await directory.ask("sales@contoso.com")
    await directory.ask("sales@contoso.com")
    assert engine.asked == ["anna@contoso.com", "sales@contoso.com"] * 2


async def test_a_change_of_anything_makes_everything_stale_and_keeps_it_for_an_outage(
    directory: CachedDirectory, engine: FakeEngine, clock: Clock
) -> None:
    await directory.ask("anna@contoso.com")
    await directory.ask("new@contoso.com")
    clock.now += 1
    engine.invalid[0]("")
    engine.fault = DirectoryUnavailable("down")
    assert await directory.ask("anna@contoso.com") == ANNA
    with pytest.raises(DirectoryUnavailable):
        await directory.ask("new@contoso.com")


async def test_an_answer_from_before_a_change_is_stale(
    directory: CachedDirectory, engine: FakeEngine, clock: Clock
) -> None:
    """It was on its way when the change was told."""
    engine.go_on.clear()
    asking = asyncio.ensure_future(directory.ask("anna@contoso.com"))
    await asyncio.sleep(0)
    clock.now += 1
    engine.invalid[0]("anna@contoso.com")
    engine.go_on.set()
    await asking
    await directory.ask("anna@contoso.com")
    assert len(engine.asked) == 2


async def test_guessed_names_push_no_user_out(directory: CachedDirectory, engine: FakeEngine) -> None:
    await directory.ask("anna@contoso.com")
    for number in range(100):
        await directory.ask(f"guess{number}@contoso.com")
    assert directory.find("anna@contoso.com") == ANNA
    assert len(directory._nobody) == AGES.users // 2


async def test_the_number_of_users_is_bounded(directory: CachedDirectory, engine: FakeEngine) -> None:
    for number in range(20):
        name = f"user{number}@contoso.com"
        engine.users[name] = replace(ANNA, name=name)
        await directory.ask(name)
    assert len(directory._users) == AGES.users


async def test_the_engine_judges_passwords(directory: CachedDirectory) -> None:
    assert await directory.opens(ANNA, (b"right",))
    assert not await directory.opens(ANNA, (b"wrong",))


async def test_a_closed_directory_is_unavailable(directory: CachedDirectory, engine: FakeEngine) -> None:
    engine.go_on.clear()
    asking = asyncio.ensure_future(directory.ask("anna@contoso.com"))
    await asyncio.sleep(0)
    directory.close()
    with pytest.raises(DirectoryUnavailable, match="closed"):
        await asking
    with pytest.raises(DirectoryUnavailable, match="closed"):
        await directory.ask("anna@contoso.com")


async def test_what_is_told_by_reference_is_asked_anew_by_every_name(
    directory: CachedDirectory, engine: FakeEngine
) -> None:
    """An engine may know who has changed and not how they were called."""
    known = replace(ANNA, reference="CN=Anna,DC=x")
    engine.users = dict.fromkeys(engine.users, known)
    for name in engine.users:
        await directory.ask(name)
    engine.users = dict.fromkeys(engine.users, replace(known, disabled=True))
    engine.invalid[0]("CN=Otto,DC=x")
    assert [(await directory.ask(name)).disabled for name in engine.users] == [False, False]  # type: ignore[union-attr]
    engine.invalid[0]("CN=Anna,DC=x")
    assert [(await directory.ask(name)).disabled for name in engine.users] == [True, True]  # type: ignore[union-attr]


async def test_a_directory_that_is_busy_is_not_away(directory: CachedDirectory, engine: FakeEngine) -> None:
    """Who cannot be answered in time hears of it; for everybody else nothing has changed."""
    engine.fault = DirectoryBusy("every connection is busy")
    with pytest.raises(DirectoryBusy):
        await directory.ask("anna@contoso.com")
    assert directory.available
