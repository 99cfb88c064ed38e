"""What every shared session count promises. Each engine's test file has a subclass of this with its fixtures."""

from __future__ import annotations

import asyncio
from typing import Protocol as Port

from gatepost.directory.policy.sessions import SessionCounts

DEADLINE_SECONDS = 30.0


class CountsStage(Port):
    """Front ends that count together."""

    def front_end(self) -> SessionCounts: ...
    def die(self, counts: SessionCounts) -> None: ...


async def until_let_in(counts: SessionCounts, keys: list[tuple[str, int]]) -> None:
    """What nobody waits for takes its time."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while await counts.enter(keys) != "":  # noqa: ASYNC110 - a port has no event for this
            await asyncio.sleep(0.02)


class SessionCountsContract:
    """Subclasses provide the fixture `counting`."""

    async def test_front_ends_count_together(self, counting: CountsStage) -> None:
        one, other = counting.front_end(), counting.front_end()
        assert await one.enter([("user anna", 2), ("address x", 10)]) == ""
        assert await other.enter([("user anna", 2)]) == ""
        assert await one.enter([("address x", 10), ("user anna", 2)]) == "user anna"
        one.leave(["user anna", "address x"])
        await until_let_in(other, [("user anna", 2)])
        assert await one.enter([("user anna", 2)]) == "user anna"

    async def test_a_refused_session_is_counted_nowhere(self, counting: CountsStage) -> None:
        one, other = counting.front_end(), counting.front_end()
        assert await one.enter([("user anna", 1)]) == ""
        assert await other.enter([("address x", 1), ("user anna", 1)]) == "user anna"
        await until_let_in(one, [("address x", 1)])

    async def test_at_once_no_more_than_the_limit_get_in(self, counting: CountsStage) -> None:
        front_ends = [counting.front_end() for _ in range(3)]
        answers = await asyncio.gather(*(front_ends[n % 3].enter([("user anna", 5)]) for n in range(30)))
        assert answers.count("") == 5
        assert answers.count("user anna") == 25

    async def test_a_dead_front_ends_sessions_do_not_count(self, counting: CountsStage) -> None:
        one, other = counting.front_end(), counting.front_end()
        assert await one.enter([("user anna", 1)]) == ""
        assert await other.enter([("user anna", 1)]) == "user anna"
        counting.die(one)
        await until_let_in(other, [("user anna", 1)])
