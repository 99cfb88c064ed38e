"""Who waits for a database between two homes, and when they go on (SPEC A3, field cases 11 and 116)."""

from __future__ import annotations

import asyncio
import random
from types import MappingProxyType
from typing import Any

import pytest
from fake_loop import FakeLoop

from gatepost.access.parking import LET_GO, TOO_LONG, TOO_MANY, Parking, ParkingFull, Patience
from gatepost.activemanager.port import Lease, Move, RegistryView
from gatepost.organization.model import Database, DatabaseCopy, Organization
from gatepost.routing.decision import ActiveCopy

MOVE = Move("DB1", "MBX-1", "MBX-2", 1, 0.0)
LEASE = Lease("manager", "CAS-01", 1, 10.0)


def view(epoch: int = 1, *, moving: bool = False, managed: bool = False, other: int = 1) -> RegistryView:
    """DB1 and DB2 at these epochs; the even ones are at MBX-2."""
    active = {
        "DB1": ActiveCopy("DB1", "MBX-2" if epoch % 2 == 0 else "MBX-1", epoch),
        "DB2": ActiveCopy("DB2", "MBX-1", other),
    }
    moves = MappingProxyType({"DB1": MOVE} if moving else {})
    return RegistryView(1, MappingProxyType(active), moves=moves, manager=LEASE if managed else None)


class Place:
    """Somebody who waits."""

    def __init__(self, parking: Parking, database: str = "DB1", user: str = "alice", seconds: float = 20.0) -> None:
        self.told: list[str] = []
        self.log: list[Place] | None = None
        parking.put(self, database, 1, seconds, user)

    def parking_over(self, fault: str) -> None:
        self.told.append(fault)
        if self.log is not None:
            self.log.append(self)


def parked(limit: int = 10, **changes: Any) -> tuple[FakeLoop, Parking]:
    """A parking, by default with a move of DB1 under way."""
    loop: Any = FakeLoop()
    return loop, Parking(loop, view(**({"moving": True} | changes)), limit)


def test_only_the_database_that_is_moved_must_wait() -> None:
    _, parking = parked()
    assert parking.must_wait("DB1")
    assert not parking.must_wait("DB2")
    parking.set_view(view(2))
    assert not parking.must_wait("DB1")


def test_a_new_epoch_lets_all_of_the_database_go() -> None:
    loop, parking = parked()
    first, other, second = Place(parking), Place(parking, "DB2"), Place(parking)
    parking.set_view(view(2))
    assert first.told == []
    loop.turn()
    assert (first.told, second.told, other.told) == ([""], [""], [])
    assert len(parking) == 1
    assert loop.timers == 1


def test_a_move_that_comes_to_nothing_lets_them_go_as_well() -> None:
    loop, parking = parked()
    place = Place(parking)
    parking.set_view(view(1, moving=True))
    assert loop.turn() == 0
    parking.set_view(view(1))
    loop.turn()
    assert place.told == [""]


def test_without_a_move_a_new_epoch_is_waited_for() -> None:
    """The server is gone; the manager's lease and what it observes change the view again and again meanwhile."""
    loop, parking = parked(moving=False)
    place = Place(parking)
    for _ in range(3):
        parking.set_view(view(1, other=2))
    parking.set_view(view(1, moving=True))
    assert loop.turn() == 0
    parking.set_view(view(2))
    loop.turn()
    assert place.told == [""]


def test_an_epoch_that_has_changed_already_is_told_at_once_but_later() -> None:
    """Whoever asks must have returned before it is told."""
    loop, parking = parked(epoch=2)
    place = Place(parking)
    assert place.told == []
    loop.turn()
    assert place.told == [""]
    assert loop.timers == 0


def test_nobody_waits_for_longer_than_said() -> None:
    """Field case 116."""
    loop, parking = parked()
    place = Place(parking, seconds=20.0)
    loop.pass_time(19.9)
    assert place.told == []
    loop.pass_time(0.2)
    assert place.told == [TOO_LONG]
    assert len(parking) == 0
    assert parking.refused == 1
    parking.set_view(view(2))
    loop.turn()
    assert place.told == [TOO_LONG]


def test_who_gives_up_is_told_nothing() -> None:
    """Also between the news and its being told."""
    loop, parking = parked()
    first, second = Place(parking), Place(parking)
    parking.give_up(first)
    parking.set_view(view(2))
    parking.give_up(second)
    loop.turn()
    loop.pass_time(30)
    assert first.told == second.told == []
    assert len(parking) == 0


def test_one_that_is_told_may_make_another_give_up() -> None:
    loop, parking = parked()
    first, second = Place(parking), Place(parking)
    first.parking_over = lambda fault: parking.give_up(second)  # type: ignore[method-assign]
    parking.set_view(view(2))
    loop.turn()
    assert second.told == []


def test_they_are_let_go_some_at_a_time() -> None:
    """Thousands must not keep the loop from everybody else."""
    loop, parking = parked(limit=1000)
    places = [Place(parking, user=f"u{n}") for n in range(2 * LET_GO + 1)]
    parking.set_view(view(2))
    went = []
    while loop.turn():
        went.append(sum(bool(place.told) for place in places))
    assert went == [LET_GO, 2 * LET_GO, 2 * LET_GO + 1]


def test_they_go_in_the_order_in_which_they_came() -> None:
    loop, parking = parked()
    log: list[Place] = []
    places = [Place(parking, user=f"u{n}") for n in range(5)]
    for place in places:
        place.log = log
    parking.set_view(view(2))
    loop.turn()
    assert log == places


def test_when_it_is_full_whoever_has_most_makes_room() -> None:
    """One user's programs do not keep the others out."""
    loop, parking = parked(limit=3)
    many = [Place(parking, user="robot") for _ in range(3)]
    one = Place(parking, user="alice")
    loop.turn()
    assert [place.told for place in many] == [[], [], [TOO_MANY]]
    assert one.told == []
    late = Place(parking, user="robot")
    loop.turn()
    assert late.told == [TOO_MANY]
    assert (len(parking), parking.refused) == (3, 2)


def test_another_limit_counts_for_who_comes_then() -> None:
    loop, parking = parked(limit=1)
    Place(parking, user="a")
    parking.set_limit(2)
    second = Place(parking, user="b")
    third = Place(parking, user="c")
    loop.turn()
    assert (second.told, third.told) == ([], [TOO_MANY])


ORGANIZATION = Organization(
    "contoso",
    databases={
        "DB1": Database("DB1", (DatabaseCopy("MBX-1", 1), DatabaseCopy("MBX-2", 2))),
        "DB2": Database("DB2", (DatabaseCopy("MBX-1", 1),)),
    },
)


@pytest.mark.parametrize(
    ("database", "server", "managed", "expected"),
    [
        ("DB1", "MBX-1", True, True),
        ("DB1", "MBX-1", False, False),
        ("DB1", "MBX-2", True, False),
        ("DB2", "MBX-1", True, False),
        ("DB3", "MBX-1", True, False),
        ("", "MBX-1", True, False),
    ],
    ids=["a failover may come", "nobody manages", "another server", "no other copy", "unknown", "no database"],
)
def test_who_may_hope_for_a_failover(database: str, server: str, managed: bool, expected: bool) -> None:
    _, parking = parked(managed=managed, moving=False)
    assert parking.may_fail_over(ORGANIZATION, database, server) is expected


# --- tasks


async def test_a_task_waits_for_the_new_home() -> None:
    loop = asyncio.get_running_loop()
    parking = Parking(loop, view(moving=True), 10)
    waiting = loop.create_task(parking.wait("DB1", 1, 20.0, "alice"))
    await asyncio.sleep(0)
    parking.set_view(view(2))
    assert await waiting
    assert not await parking.wait("DB1", 2, 0.0)


async def test_a_task_that_is_cancelled_waits_no_more() -> None:
    loop = asyncio.get_running_loop()
    parking = Parking(loop, view(moving=True), 10)
    waiting = loop.create_task(parking.wait("DB1", 1, 20.0, "alice"))
    await asyncio.sleep(0)
    assert len(parking) == 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert len(parking) == 0


async def test_a_task_is_told_when_there_is_no_room() -> None:
    parking = Parking(asyncio.get_running_loop(), view(moving=True), 1)
    Place(parking, user="alice")
    with pytest.raises(ParkingFull, match=TOO_MANY):
        await parking.wait("DB1", 1, 20.0, "alice")


# --- patience


def test_patience_counts_from_when_it_is_needed_and_never_past_the_deadline() -> None:
    assert Patience(20.0, 1000.0).left(500.0) == 20.0
    short = Patience(20.0, 505.0)
    assert short.left(500.0) == 5.0
    assert short.left(503.0) == 2.0
    assert short.step(505.0) <= 0


@pytest.mark.parametrize("seed", range(5))
def test_looks_become_rarer_and_end_with_the_time(seed: int) -> None:
    """A dead server is not asked by everybody again and again."""
    patience, now, steps = Patience(20.0, 1000.0, random.Random(seed)), 0.0, []
    while (step := patience.step(now)) > 0:
        steps.append(step)
        now += step
    assert now == pytest.approx(20.0)
    assert 4 <= len(steps) <= 7
