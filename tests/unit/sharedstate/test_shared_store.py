"""The shared store as front ends use it: contracts, conflicts, a store that is slow, hangs, fails or has lost all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import shared_state_contract
from ledger_contract import LedgerContract, LedgerStage
from memory_store import Hold
from session_counts_contract import SessionCountsContract
from shared_fleet import NOW, PATIENCE_SECONDS, Fleet, until
from shared_front_end import Counting, FrontEnd
from shared_state_contract import SharedStateContract

from gatepost.directory.policy.ledger import MemoryLedger
from gatepost.sharedstate.penalties import open_ledger
from gatepost.sharedstate.sqlite import prepare


class TestSharedLedger(LedgerContract):
    @pytest.fixture
    async def stage(self, fleet: Fleet) -> LedgerStage:
        return await fleet.ledgers()


class TestOwnFile(LedgerContract):
    @pytest.fixture
    async def stage(self, fleet: Fleet) -> AsyncIterator[LedgerStage]:
        path = str(fleet.folder / "shared.sqlite")
        prepare(path)
        opened = [open_ledger(path, asyncio.get_running_loop()) for _ in range(2)]
        yield LedgerStage(opened[0][0], opened[1][0], lambda: NOW)
        for _, writer in opened:
            writer.close()


class TestOneProcess(LedgerContract):
    @pytest.fixture
    async def stage(self) -> LedgerStage:
        ledger = MemoryLedger()
        return LedgerStage(ledger, ledger, lambda: NOW)


class TestSharedCounts(SessionCountsContract):
    @pytest.fixture
    async def counting(self, fleet: Fleet) -> Counting:
        return Counting([await fleet.add() for _ in range(3)], fleet.forget)


class TestSharedState(SharedStateContract):
    @pytest.fixture
    async def engine(self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> TwoStates:
        monkeypatch.setattr(shared_state_contract, "SEEN_SECONDS", PATIENCE_SECONDS)
        return TwoStates(await fleet.add(), await fleet.add())


class TwoStates:
    """The devices and sign-outs of two front ends."""

    def __init__(self, one: FrontEnd[Hold], other: FrontEnd[Hold]) -> None:
        self.one, self.other = one.state, other.state
        self._holds = one.hold, other.hold

    def take_away(self) -> None:
        for hold in self._holds:
            hold.fails = True

    def bring_back(self) -> None:
        for hold in self._holds:
            hold.fails = False


# --- accounts


async def test_what_the_store_holds_names_nobody(fleet: Fleet) -> None:
    stage = await fleet.ledgers()
    attempt, charged = await stage.guess("secret-word")
    stage.one.settle(attempt, charged, NOW, right=True)
    front_end = fleet.front_ends[0]
    await front_end.counts.enter([("user anna@contoso.com", 5)])
    await front_end.state.sign_out("session-id", NOW + 900)
    text = repr(fleet.memory.values)
    for word in ("anna", "198.51", "secret-word", "session-id"):
        assert word not in text


async def test_a_change_that_another_was_faster_with_is_decided_anew(fleet: Fleet) -> None:
    stage = await fleet.ledgers()
    await stage.guess("first")
    hold, tries = fleet.front_ends[0].hold, []

    def faster() -> None:
        if len(tries) < 3:
            tries.append(1)
            for key, found in list(fleet.memory.values.items()):
                fleet.memory.version += 1
                fleet.memory.values[key] = type(found)(found.value, fleet.memory.version)

    hold.before_commit = faster
    _, charged = await stage.guess("second")
    assert charged.count == 2
    assert len(tries) == 3


async def test_times_are_the_stores_where_it_tells_them(fleet: Fleet) -> None:
    """A front end whose clock is an hour ahead lets nobody through, and locks nobody out."""
    stage = await fleet.ledgers()
    fleet.memory.now = NOW - 500.0
    for number in range(5):
        await stage.guess(f"guess{number}")
    fleet.now += 3600.0
    _, charged = await stage.guess("guess5", stage.other)
    assert round(charged.at - fleet.now) == 7


async def test_a_damaged_account_begins_anew(fleet: Fleet) -> None:
    stage = await fleet.ledgers()
    await stage.guess("guess")
    for key, found in list(fleet.memory.values.items()):
        if "/penalties/" in key:
            fleet.memory.values[key] = type(found)(b"\xc1nonsense", found.version)
    _, charged = await stage.guess("another")
    assert charged.count == 1


async def test_while_the_store_is_away_a_front_end_counts_by_itself_and_joins_afterwards(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    """In its own file; a password that both have charged stays one. One line when it begins, one when it is over."""
    stage = await fleet.ledgers()
    one, _ = fleet.front_ends
    await stage.guess("known to both")
    one.hold.fails = True
    for number in range(3):
        _, charged = await stage.guess(f"alone{number}")
        assert charged.count == number + 1
        assert charged.alone
    await stage.guess("known to both")
    assert one.store.away
    assert one.store.ledger.alone == 4
    await stage.guess("of the other", stage.other)
    one.hold.fails = False
    await until(lambda: not one.store.away)

    async def joined() -> int:
        attempt, probe = await stage.guess("probe", stage.other)
        stage.other.settle(attempt, probe, NOW, right=False)
        return probe.count

    async with asyncio.timeout(PATIENCE_SECONDS):
        while await joined() != 6:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    out = capsys.readouterr().out
    assert out.count("shared_store.unavailable") == 1
    assert out.count("shared_store.available") == 1
    assert await one.own_ledger.take(10) == {}


async def test_a_right_password_that_was_charged_alone_is_taken_off_wherever_it_is_by_then(fleet: Fleet) -> None:
    stage = await fleet.ledgers()
    one, _ = fleet.front_ends
    one.hold.fails = True
    attempt, charged = await stage.guess("right")
    one.hold.fails = False
    await until(lambda: not one.store.away)
    await until(lambda: any("/penalties/" in key for key in fleet.memory.values))
    stage.one.settle(attempt, charged, NOW, right=True)
    await until(lambda: not any("/penalties/" in key for key in fleet.memory.values))


async def test_a_store_that_hangs_costs_a_bounded_wait_and_then_none(fleet: Fleet) -> None:
    front_end = await fleet.add(answer_seconds=0.05)
    stage = LedgerStage(front_end.store.ledger, front_end.store.ledger, lambda: NOW)
    front_end.hold.open.clear()
    _, charged = await stage.guess("first")
    assert charged.alone
    reads = front_end.hold.reads
    for number in range(20):  # the round under way is late by now: nobody waits for it
        _, charged = await stage.guess(f"guess{number}")
        assert charged.alone or not charged.keys
    assert front_end.hold.reads == reads
    front_end.hold.open.set()
    await until(lambda: any("/penalties/" in key for key in fleet.memory.values))


async def test_a_charge_that_nobody_waited_for_any_more_is_let_go_of(fleet: Fleet) -> None:
    front_end = await fleet.add(answer_seconds=0.05)
    other = await fleet.add()
    stage = LedgerStage(front_end.store.ledger, other.store.ledger, lambda: NOW)
    attempt, charged = await stage.guess("warm")
    stage.one.settle(attempt, charged, NOW, right=False)
    hold = front_end.hold
    hold.before_commit = hold.open.clear
    attempt, charged = await stage.guess("late")
    assert charged.alone
    hold.before_commit = None
    stage.one.settle(attempt, charged, NOW, right=True)
    hold.open.set()
    await until(lambda: not any("/penalties/" in key for key in fleet.memory.values))


async def test_a_lost_answer_does_not_stay_charged(fleet: Fleet) -> None:
    """The change was made, and nobody knows: it is let go of when the store is back."""
    stage = await fleet.ledgers()
    one, _ = fleet.front_ends
    one.hold.loses_answers = True
    attempt, charged = await stage.guess("lost")
    assert charged.alone
    one.hold.loses_answers = False
    stage.one.settle(attempt, charged, NOW, right=True)
    await until(lambda: not one.store.away)
    await until(lambda: not any("/penalties/" in key for key in fleet.memory.values))


@pytest.mark.parametrize("answer", ["comes", "is lost"])
async def test_who_leaves_while_being_charged_is_let_go_of(fleet: Fleet, answer: str) -> None:
    """Nobody will settle it."""
    front_end = await fleet.add()
    stage = LedgerStage(front_end.store.ledger, front_end.store.ledger, lambda: NOW)
    hold, reached = front_end.hold, asyncio.Event()

    def stop() -> None:
        reached.set()
        hold.open.clear()

    hold.before_commit = stop
    leaving = asyncio.ensure_future(stage.guess("never judged"))
    await asyncio.wait_for(reached.wait(), PATIENCE_SECONDS)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    hold.before_commit = None
    hold.loses_answers = answer == "is lost"
    hold.open.set()
    await until(lambda: hold.commits > 0)
    hold.loses_answers = False
    await until(lambda: not any("/penalties/" in key for key in fleet.memory.values))


async def test_a_right_password_while_the_store_is_away_is_taken_off_the_own_file(fleet: Fleet) -> None:
    front_end = await fleet.add()
    stage = LedgerStage(front_end.store.ledger, front_end.store.ledger, lambda: NOW)
    front_end.hold.fails = True
    for number in range(10):
        attempt, charged = await stage.guess(f"right {number}")
        assert charged.count == 1
        stage.one.settle(attempt, charged, NOW, right=True)


async def test_a_fault_that_nobody_expects_is_a_store_that_is_away_and_comes_back(fleet: Fleet) -> None:
    """Else the front end would count alone until it is started again."""
    front_end = await fleet.add()
    stage = LedgerStage(front_end.store.ledger, front_end.store.ledger, lambda: NOW)
    front_end.hold.fault = KeyError("of a library")
    front_end.hold.fails = True
    await stage.guess("first")
    await until(lambda: front_end.store.away)
    reads = front_end.hold.tries
    await until(lambda: front_end.hold.tries > reads + 1)
    front_end.hold.fails = False
    await until(lambda: not front_end.store.away)


async def test_nobody_storms_a_store_that_is_away(fleet: Fleet) -> None:
    """One probe at a time, whatever is asked meanwhile."""
    front_end = await fleet.add()
    stage = LedgerStage(front_end.store.ledger, front_end.store.ledger, lambda: NOW)
    front_end.hold.fails = True
    await stage.guess("first")
    await until(lambda: front_end.store.away)
    front_end.hold.open.clear()
    front_end.hold.fails = False
    await asyncio.gather(*(stage.guess(f"guess{n}", address=f"203.0.113.{n}") for n in range(50)))
    assert front_end.hold.reads <= 3
    front_end.hold.open.set()
    await until(lambda: not front_end.store.away)


async def test_sign_ins_of_many_share_rounds(fleet: Fleet) -> None:
    front_end = await fleet.add()
    stage = LedgerStage(front_end.store.ledger, front_end.store.ledger, lambda: NOW)
    before = front_end.hold.reads
    await asyncio.gather(*(stage.guess(f"guess{n}", address=f"203.0.113.{n}") for n in range(100)))
    assert front_end.hold.reads - before <= 3
