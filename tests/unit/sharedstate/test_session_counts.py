"""Sessions of all workers of a machine are counted together; those of a worker that has died do not count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from gatepost.sharedstate import session_counts
from gatepost.sharedstate.session_counts import SqliteSessionCounts
from gatepost.sharedstate.sqlite import prepare
from gatepost.sharedstate.writer import Writer
from gatepost.store.sqlite import StoreUnavailable


class Machine:
    """Workers at one file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.now = 1_000_000.0
        self.writers: list[Writer] = []

    def worker(self) -> SqliteSessionCounts:
        loop = asyncio.get_running_loop()
        writer = Writer(self.path, loop, faulty=self._fault, mended=lambda: None)
        self.writers.append(writer)
        return SqliteSessionCounts(writer, loop, lambda: self.now)

    def _fault(self, fault: StoreUnavailable) -> None:
        pass


@pytest.fixture
async def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Machine]:
    monkeypatch.setattr(session_counts, "ANSWER_SECONDS", 30.0)
    path = str(tmp_path / "shared.sqlite")
    prepare(path)
    made = Machine(path)
    yield made
    for writer in made.writers:
        writer.close()


async def test_workers_count_together(machine: Machine) -> None:
    one, other = machine.worker(), machine.worker()
    assert await one.enter([("user anna", 2), ("address x", 10)]) == ""
    assert await other.enter([("user anna", 2)]) == ""
    assert await one.enter([("address x", 10), ("user anna", 2)]) == "user anna"
    one.leave(["user anna", "address x"])
    assert await one.enter([("user anna", 2)]) == ""
    for counts in (one, other):
        counts.close()


async def test_a_refused_session_is_counted_nowhere(machine: Machine) -> None:
    one = machine.worker()
    assert await one.enter([("user anna", 1)]) == ""
    assert await one.enter([("address x", 1), ("user anna", 1)]) == "user anna"
    assert await one.enter([("address x", 1)]) == ""
    one.close()


async def test_a_dead_workers_sessions_do_not_count(machine: Machine) -> None:
    one, other = machine.worker(), machine.worker()
    assert await one.enter([("user anna", 1)]) == ""
    assert await other.enter([("user anna", 1)]) == "user anna"
    machine.now += 21
    assert await other.enter([("user anna", 1)]) == ""
    for counts in (one, other):
        counts.close()


async def test_a_worker_that_ends_takes_its_sessions_along(machine: Machine) -> None:
    one, other = machine.worker(), machine.worker()
    assert await one.enter([("user anna", 1)]) == ""
    one.close()
    await machine.writers[0].write(lambda _connection, _revision: "")
    assert await other.enter([("user anna", 1)]) == ""
    other.close()


async def test_whoever_leaves_while_being_counted_is_not(machine: Machine) -> None:
    one = machine.worker()
    entering = asyncio.ensure_future(one.enter([("user anna", 1)]))
    await asyncio.sleep(0)
    entering.cancel()
    await asyncio.gather(entering, return_exceptions=True)
    async with asyncio.timeout(20):
        while await one.enter([("user anna", 1)]) != "":  # noqa: ASYNC110 - the writer is a thread
            await asyncio.sleep(0.01)
    one.close()


async def test_while_the_file_is_away_nobody_is_kept_out(machine: Machine) -> None:
    connection = apsw.Connection(machine.path)
    connection.execute("DELETE FROM state")
    connection.close()
    one = machine.worker()
    assert await one.enter([("user anna", 1)]) is None
    one.close()
