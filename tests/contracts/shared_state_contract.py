"""What every shared state promises. Each engine's test file has a subclass of this with its fixtures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol as Port

from gatepost.balancing.choice import rendezvous
from gatepost.sharedstate.port import SharedState

SEEN_SECONDS = 1.0
"""A change is known to every front end within this time."""
NOW = 1_800_000_000.0
CAS = ["CAS-01", "CAS-02", "CAS-03"]


class SharedStateEngine(Port):
    """What a test needs of an engine: two front ends' holds on it, and ways to break and mend it."""

    one: SharedState
    other: SharedState

    def take_away(self) -> None: ...
    def bring_back(self) -> None: ...


async def until(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds; fails after `SEEN_SECONDS`."""

    async def look() -> None:
        while not condition():  # noqa: ASYNC110 - a port has no event for this
            await asyncio.sleep(0.005)

    await asyncio.wait_for(look(), SEEN_SECONDS)


class SharedStateContract:
    """Subclasses provide the fixture `engine`, an empty `SharedStateEngine`."""

    async def test_nothing_is_known_at_first(self, engine: SharedStateEngine) -> None:
        assert engine.one.known_server("phone") is None
        assert not engine.one.is_signed_out("session")

    async def test_the_first_choice_stays(self, engine: SharedStateEngine) -> None:
        """SPEC B2: then the same server every time."""
        assert await engine.one.first_server("phone", "CAS-01", NOW) == "CAS-01"
        assert await engine.one.first_server("phone", "CAS-02", NOW) == "CAS-01"
        assert engine.one.known_server("phone") == "CAS-01"
        assert engine.one.known_server("tablet") is None

    async def test_every_front_end_sees_it(self, engine: SharedStateEngine) -> None:
        await engine.one.first_server("phone", "CAS-02", NOW)
        await until(lambda: engine.other.known_server("phone") == "CAS-02")
        assert await engine.other.first_server("phone", "CAS-03", NOW) == "CAS-02"

    async def test_two_front_ends_at_once_agree(self, engine: SharedStateEngine) -> None:
        for number in range(10):
            key = f"phone {number}"
            answers = await asyncio.gather(
                *(
                    state.first_server(key, choose, NOW)
                    for state, choose in zip([engine.one, engine.other] * 3, CAS * 2, strict=True)
                )
            )
            assert len(set(answers)) == 1
            assert {engine.one.known_server(key), engine.other.known_server(key)} == set(answers)

    async def test_a_move_is_pushed_to_the_others(self, engine: SharedStateEngine) -> None:
        await engine.one.first_server("phone", "CAS-01", NOW)
        await until(lambda: engine.other.known_server("phone") == "CAS-01")
        await engine.one.move_server("phone", "CAS-03", NOW + 5)
        assert engine.one.known_server("phone") == "CAS-03"
        await until(lambda: engine.other.known_server("phone") == "CAS-03")

    async def test_a_server_that_is_no_candidate_any_more_is_replaced(self, engine: SharedStateEngine) -> None:
        await engine.one.first_server("phone", "CAS-09", NOW, ["CAS-09"])
        assert await engine.other.first_server("phone", "CAS-02", NOW, CAS) == "CAS-02"
        assert await engine.one.first_server("phone", "CAS-01", NOW, CAS) == "CAS-02"

    async def test_a_sign_out_is_known_at_once_and_pushed_to_the_others(self, engine: SharedStateEngine) -> None:
        assert await engine.one.sign_out("session", NOW + 900)
        assert engine.one.is_signed_out("session")
        await until(lambda: engine.other.is_signed_out("session"))
        assert not engine.other.is_signed_out("another session")

    async def test_while_it_is_away_front_ends_still_agree_on_a_device(self, engine: SharedStateEngine) -> None:
        """By the key alone, whatever each would have chosen; and nothing raises."""
        engine.take_away()
        for number in range(20):
            key = f"phone {number}"
            first = await engine.one.first_server(key, "CAS-01", NOW, CAS)
            assert first == await engine.other.first_server(key, "CAS-02", NOW, CAS[::-1]) == rendezvous(CAS, key)[0]
        assert await engine.one.first_server("phone", "CAS-02", NOW) == "CAS-02"

    async def test_sign_outs_while_it_is_away_reach_the_others_when_it_is_back(self, engine: SharedStateEngine) -> None:
        """And whoever signs out is told that they have not yet."""
        engine.take_away()
        assert not await engine.one.sign_out("session", NOW + 900)
        assert engine.one.is_signed_out("session")
        assert not engine.other.is_signed_out("session")
        engine.bring_back()
        await until(lambda: engine.other.is_signed_out("session"))

    async def test_what_is_known_stays_known_while_it_is_away(self, engine: SharedStateEngine) -> None:
        await engine.one.first_server("phone", "CAS-02", NOW)
        await engine.one.sign_out("session", NOW + 900)
        engine.take_away()
        assert engine.one.known_server("phone") == "CAS-02"
        assert engine.one.is_signed_out("session")
