"""The front door as a whole after a change of the registry's view: which bounds hold, what is logged, who is found."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, cast

import pytest
from stage import LIMITS, Client, Stage, stage

from gatepost.access import front_door as module
from gatepost.access.front_door import FrontDoor
from gatepost.access.moves import Round
from gatepost.access.sessions import SessionFilter
from gatepost.activemanager.port import Observation, RegistryView
from gatepost.configuration.settings import Limits
from gatepost.directory.sign_in import SignInService
from gatepost.organization.model import Protocol

ALL = SessionFilter()


class Noted(Round):
    """A round whose bounds are noted."""

    made: ClassVar[list[tuple[int, float, float]]] = []

    def __init__(self, loop: Any, leavers: Any, **how: Any) -> None:
        self.made.append((len(leavers), how["window"], how["forced"]))
        super().__init__(loop, leavers, **how, chance=random.Random(1))


class House:
    """A stage whose mail sessions are those of a whole front door."""

    def __init__(self, s: Stage) -> None:
        self.stage = s
        loop = asyncio.get_running_loop()
        sign_in = cast(SignInService, s.sign_in)
        self.door = FrontDoor(s.configuration, loop, sign_in, s.router, cast(Any, s.capture))
        s.door = self.door._mail[Protocol.IMAP]
        s.door.starttls = s.tls

    async def sign_in(self) -> Client:
        client = await self.stage.connect()
        await client.line()
        assert (await client.tagged(b"a1 LOGIN alice secret-apw\r\n")).startswith(b"a1 OK")
        return client


@pytest.fixture
async def opened(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> AsyncIterator[House]:
    """A house with the limits that the test names."""
    Noted.made = []
    monkeypatch.setattr(module, "Round", Noted)
    limits: Limits = replace(LIMITS, **getattr(request, "param", {}))
    async with stage(limits) as s:
        first = s.door
        made = House(s)
        yield made
        await first.drain(0)
        await made.door.drain(0)


@pytest.mark.parametrize(
    "opened", [{"move_window_seconds": 0.05, "move_forced_seconds": 3.0, "move_sessions_per_second": 20}], indirect=True
)
async def test_a_move_keeps_its_limits(opened: House) -> None:
    """`move_window_seconds` at least, longer for more sessions than `move_sessions_per_second`; then by force."""
    client = await opened.sign_in()
    opened.door.set_view(opened.stage.view("MBX-02", 2))
    assert (await client.rest()).startswith(b"* BYE [UNAVAILABLE]")
    assert Noted.made == [(1, 0.05, 3.0)]
    four = [await opened.sign_in() for _ in range(4)]
    opened.door.set_view(opened.stage.view("MBX-01", 3))
    for client in four:
        assert (await client.rest()).startswith(b"* BYE [UNAVAILABLE]")
    assert Noted.made[1:] == [(4, 0.2, 3.0)]
    lines = opened.stage.log_lines("sessions.moved")
    assert [(line["databases"], line["closed"]) for line in lines if "closed" in line][:1] == [(["DB01"], 1)]


async def test_a_view_that_moves_nothing_ends_nothing(opened: House) -> None:
    """Words, observations, a database that is new: sessions go on."""
    client = await opened.sign_in()
    view = opened.stage.view("MBX-01", 1)
    sick = Observation("MBX-01", "imap", healthy=False, since=0.0)
    opened.door.set_view(replace(view, revision=9, observed=MappingProxyType({("MBX-01", "imap"): sick})))
    opened.door.set_view(RegistryView(10))  # the registry has lost it: not a move
    assert Noted.made == []
    assert (await client.tagged(b"a2 NOOP\r\n")).startswith(b"a2 OK")


async def test_sessions_are_found_and_counted(opened: House) -> None:
    """By filter, bounded in what is listed but not in what is counted."""
    clients = [await opened.sign_in() for _ in range(3)]
    found = await opened.door.find(ALL, 2)
    assert (len(found.sessions), found.total, found.protocols) == (2, 3, {"imap": 3})
    assert (await opened.door.find(SessionFilter(database="DB01", server="MBX-01"), 9)).total == 3
    assert (await opened.door.find(SessionFilter(server="MBX-02"), 9)).total == 0
    one = found.sessions[0]["session"]
    heard = asyncio.gather(*(client.rest() for client in clients))
    assert await opened.door.kick(SessionFilter(session=one), "by the test", 2.0) == [(one, "closed")]
    assert (await opened.door.find(ALL, 9)).total == 2
    assert {outcome for _, outcome in await opened.door.kick(ALL, "by the test", 2.0)} == {"closed"}
    assert all(words.startswith(b"* BYE") for words in await heard)
    assert await opened.door.kick(ALL, "nobody is left", 2.0) == []
    assert [line["session"] for line in opened.stage.log_lines("sessions.kicked")[:1]] == [one]


async def test_all_doors_hear_of_moves_from_the_front_doors_own_parking(opened: House) -> None:
    """Empty at first, it must not be taken for none: a door with one of its own would park nobody in a failover."""
    parking = opened.door._parking
    assert len(parking) == 0
    assert all(door.parking is parking for door in (*opened.door._mail.values(), opened.door._http))
