"""Blocking connections in bounded threads: servers that fail, hang, come back; nobody waits for one that hangs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest

from gatepost.directory.pool import Broken, Pool
from gatepost.directory.port import DirectoryBusy, DirectoryUnavailable

PATIENCE_SECONDS = 20.0


class FakeServer:
    """A server whose connections answer their own number, or do what the test says."""

    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0
        self.down = False
        self.hangs = False
        self.drops_kept = False
        self.cut = threading.Event()
        self.under_way = 0
        self.most_under_way = 0
        self._lock = threading.Lock()

    def connect(self) -> FakeSession:
        if self.down:
            raise Broken("refused")
        with self._lock:
            self.opened += 1
            return FakeSession(self, self.opened)


class FakeSession:
    def __init__(self, server: FakeServer, number: int) -> None:
        self.server = server
        self.number = number
        self.used = 0

    def answer(self) -> int:
        server = self.server
        with server._lock:
            server.under_way += 1
            server.most_under_way = max(server.most_under_way, server.under_way)
        try:
            self.used += 1
            if server.drops_kept and self.used > 1:
                raise Broken("the server has closed it")
            if server.hangs:
                assert server.cut.wait(PATIENCE_SECONDS)
                raise Broken("cut")
            time.sleep(0.001)
            return self.number
        finally:
            with server._lock:
                server.under_way -= 1

    def cut(self) -> None:
        self.server.cut.set()

    def close(self) -> None:
        with self.server._lock:
            self.server.closed += 1


Start = Callable[..., Pool[FakeSession]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    pools: list[Pool[FakeSession]] = []

    def begin(
        *servers: FakeServer, threads: int = 2, seconds: float = 5.0, try_seconds: float = 2.0
    ) -> Pool[FakeSession]:
        connect = {f"s{n}": server.connect for n, server in enumerate(servers)}
        pools.append(
            Pool("users", connect, threads=threads, seconds=seconds, try_seconds=try_seconds, first_pause=0.05)
        )
        return pools[-1]

    yield begin
    for pool in pools:
        await pool.close()


async def _ask(pool: Pool[FakeSession]) -> int:
    return await pool.run(FakeSession.answer)


async def test_a_connection_is_kept(start: Start) -> None:
    server = FakeServer()
    pool = start(server)
    assert [await _ask(pool) for _ in range(5)] == [1] * 5
    assert server.opened == 1


async def test_threads_are_bounded(start: Start) -> None:
    server = FakeServer()
    pool = start(server, threads=3)
    await asyncio.gather(*(_ask(pool) for _ in range(50)))
    assert server.most_under_way <= 3
    assert server.opened <= 3


async def test_a_kept_connection_that_the_server_closed_is_replaced(start: Start) -> None:
    server = FakeServer()
    server.drops_kept = True
    pool = start(server)
    assert [await _ask(pool) for _ in range(3)] == [1, 2, 3]
    assert server.closed == 2


async def test_the_next_server_is_asked_and_the_first_again_when_it_is_back(start: Start) -> None:
    first, second = FakeServer(), FakeServer()
    first.down = True
    pool = start(first, second)
    assert await _ask(pool) == 1
    assert (first.opened, second.opened) == (0, 1)
    first.down = False
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not first.opened:
        assert time.monotonic() < deadline
        await _ask(pool)
        await asyncio.sleep(0.01)


async def test_with_all_servers_down_it_is_unavailable_at_once_and_ends_by_itself(start: Start) -> None:
    server = FakeServer()
    server.down = True
    pool = start(server)
    with pytest.raises(DirectoryUnavailable, match="refused"):
        await _ask(pool)
    with pytest.raises(DirectoryUnavailable, match="down"):
        await _ask(pool)
    server.down = False
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            assert await _ask(pool) == 1
            return
        except DirectoryUnavailable:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)


async def test_a_server_that_hangs_is_given_up_cut_and_passed_over(start: Start) -> None:
    """Its threads come free again; the others ask the second server without waiting."""
    first, second = FakeServer(), FakeServer()
    first.hangs = True
    pool = start(first, second, try_seconds=0.1)
    assert await _ask(pool) == 1
    assert second.opened == 1
    assert await asyncio.to_thread(first.cut.wait, PATIENCE_SECONDS)
    began = time.monotonic()
    await asyncio.gather(*(_ask(pool) for _ in range(20)))
    assert time.monotonic() - began < PATIENCE_SECONDS


async def test_no_thread_free_in_time_is_busy_and_not_the_servers_fault(start: Start) -> None:
    pool = start(FakeServer(), threads=1, seconds=0.2, try_seconds=10.0)
    gate = threading.Event()
    first = asyncio.ensure_future(pool.run(lambda _: gate.wait(PATIENCE_SECONDS)))
    await asyncio.sleep(0)
    with pytest.raises(DirectoryBusy):
        await _ask(pool)
    with pytest.raises(DirectoryUnavailable):
        await first
    gate.set()


async def test_too_many_that_wait_are_refused_at_once(start: Start) -> None:
    server = FakeServer()
    server.hangs = True
    pool = start(server, threads=1, seconds=0.3, try_seconds=0.3)
    asked = [asyncio.ensure_future(_ask(pool)) for _ in range(100)]
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(result, DirectoryUnavailable) for result in results)
    assert any("too many" in str(result) for result in results)


async def test_what_a_question_raises_is_its_answer(start: Start) -> None:
    """The connection stays, and so does the server."""
    server = FakeServer()
    pool = start(server)

    def refuse(_: FakeSession) -> int:
        raise KeyError("no such thing")

    for _ in range(3):
        with pytest.raises(KeyError):
            await pool.run(refuse)
    assert await _ask(pool) == 1
    assert server.opened == 1


async def test_a_closed_pool_takes_nothing(start: Start) -> None:
    server = FakeServer()
    pool = start(server)
    await _ask(pool)
    await pool.close()
    assert server.closed == 1
    with pytest.raises(DirectoryUnavailable):
        await _ask(pool)
