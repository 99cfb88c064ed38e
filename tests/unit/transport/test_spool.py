"""The spool on disk keeps the contract, and its own promises: groups, memory, facts, order, what a restart finds."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from spool_contract import LARGE, SMALL, SpoolContract, envelope, put, read

from gatepost.balancing.back_pressure import Pressure
from gatepost.transport.message import Envelope
from gatepost.transport.ports import SpoolFull
from gatepost.transport.spool.database import Database, Group
from gatepost.transport.spool.in_hand import SLOTS, InHand
from gatepost.transport.spool.layout import SpoolInUse
from gatepost.transport.spool.metering import Space
from gatepost.transport.spool.recent import Recent
from gatepost.transport.spool.spool import DiskSpool, SpoolSettings

GB = 1024**3
ROOMY = Space(100 * GB, 50 * GB)
SETTINGS = SpoolSettings(reserve_bytes=4096)


async def opened(folder: Path, settings: SpoolSettings = SETTINGS, space: Space = ROOMY) -> DiskSpool:
    return await DiskSpool.open(folder / "spool", settings, space=lambda: space)


async def everything(spool: DiskSpool) -> dict[int, Envelope]:
    return {number: found async for batch in spool.messages() for number, found in batch}


@pytest.fixture
async def spool(tmp_path: Path) -> AsyncIterator[DiskSpool]:
    spool = await opened(tmp_path)
    yield spool
    await spool.close()


class TestDiskSpool(SpoolContract):
    pass


class TestDiskSpoolReadingFromDisk(SpoolContract):
    """The same with nothing kept in memory."""

    @pytest.fixture
    async def spool(self, tmp_path: Path) -> AsyncIterator[DiskSpool]:
        spool = await opened(tmp_path, SpoolSettings(recent_bytes=0, reserve_bytes=4096))
        yield spool
        await spool.close()


async def test_a_restart_finds_what_was_there(tmp_path: Path) -> None:
    """SPEC T2."""
    spool = await opened(tmp_path)
    small, large, gone = await put(spool), await put(spool, LARGE, "large@contoso.com"), await put(spool)
    await spool.remove(gone)
    await spool.update(small, envelope("updated@contoso.com"))
    identity = spool.identity
    await spool.close()
    await spool.close()
    spool = await opened(tmp_path)
    assert {n: e.sender for n, e in (await everything(spool)).items()} == {
        small: "updated@contoso.com",
        large: "large@contoso.com",
    }
    assert await read(await spool.body(small)) == SMALL
    assert await read(await spool.body(large)) == LARGE
    assert (spool.count, spool.found.messages, spool.found.closed_well) == (2, 2, True)
    assert spool.identity == identity
    assert len(identity) == 32
    assert await put(spool) > gone, "numbers are never used again"
    await spool.close()


async def test_new_messages_are_not_among_those_of_the_start(tmp_path: Path) -> None:
    spool = await opened(tmp_path)
    old = [await put(spool) for _ in range(3)]
    await spool.close()
    spool = await opened(tmp_path)
    await put(spool)
    assert list(await everything(spool)) == old
    await spool.close()


async def test_what_waits_goes_to_disk_together(spool: DiskSpool, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[Group] = []
    apply = Database.apply
    monkeypatch.setattr(Database, "apply", lambda self, group: (groups.append(group), apply(self, group))[1])
    numbers = await asyncio.gather(*(put(spool) for _ in range(100)))
    await asyncio.gather(*(spool.remove(number) for number in numbers))
    assert sum(len(group.messages) for group in groups) == 100
    assert len(groups) < 50, "one wait for the disk for many"
    assert spool.count == 0


async def test_a_group_is_told_by_one_call(spool: DiskSpool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hand-over between threads costs more than the rest."""
    calls: list[int] = []
    answered = spool._committer._answered
    monkeypatch.setattr(
        spool._committer, "_answered", lambda a: (calls.append(sum(len(one.changes) for one in a)), answered(a))
    )
    await asyncio.gather(*(put(spool) for _ in range(100)))
    assert sum(calls) == 100
    assert len(calls) < 50


async def test_a_message_just_committed_is_not_read_back(spool: DiskSpool, monkeypatch: pytest.MonkeyPatch) -> None:
    number = await put(spool)
    with monkeypatch.context() as patched:
        patched.setattr(spool, "_readers", None)
        assert await read(await spool.body(number)) == SMALL
        assert (await spool.envelope(number)).sender == "alice@contoso.com"


def test_recent_messages_are_bounded_in_bytes() -> None:
    recent = Recent(10_000)
    for number in range(100):
        recent.add(number, b"e" * 100, b"b" * 1000)
        assert recent.size <= 10_000
    assert recent.body(99) is not None
    assert recent.body(0) is None
    recent.update(99, b"longer" * 100)
    recent.update(0, b"not here")
    for number in range(100):
        recent.forget(number)
    assert (len(recent), recent.size) == (0, 0)


async def test_a_commit_that_is_cancelled_takes_the_message_back(spool: DiskSpool) -> None:
    for content in (SMALL, LARGE):
        writer = spool.writer(None)
        writer.write(content)
        task = asyncio.ensure_future(spool.commit(writer, envelope()))
        task.cancel()
        await put(spool)
    await settled(spool, 2)
    await until_files(spool, 0)


async def settled(spool: DiskSpool, count: int) -> None:
    async with asyncio.timeout(10):
        while spool.count != count or spool._removing:  # noqa: ASYNC110 - no event for this
            await asyncio.sleep(0.005)


async def until_files(spool: DiskSpool, count: int) -> None:
    async with asyncio.timeout(10):
        while len(os.listdir(spool._opened.layout.content)) != count:  # noqa: ASYNC110 - no event for this
            await asyncio.sleep(0.005)


async def test_files_go_with_their_messages(spool: DiskSpool) -> None:
    number = await put(spool, LARGE)
    writer = spool.writer(None)
    writer.write(LARGE)
    await until_files(spool, 2)
    writer.discard()
    await until_files(spool, 1)
    await spool.remove(number)
    await until_files(spool, 0)


async def test_memory_of_a_large_message_is_bounded(spool: DiskSpool) -> None:
    """smtp-facts c.5 row 59."""
    block = bytes(64 * 1024)
    tracemalloc.start()
    try:
        writer = spool.writer(None)
        for _ in range(400):
            writer.write(bytes(block))
            if writer.full:
                await writer.drain()
        number = await spool.commit(writer, envelope())
        body = await spool.body(number)
        total = 0
        async for chunk in body.chunks():
            total += len(chunk)
        body.close()
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == 400 * 64 * 1024
    assert most < 3_000_000


async def test_facts(tmp_path: Path) -> None:
    spool = await opened(tmp_path)
    assert await spool.get("selector") is None
    under_way = spool.put("selector", b"one")
    assert await spool.get("selector") == b"one"
    await under_way
    await asyncio.gather(spool.put("selector", b"two"), spool.put("discard/1", b"a"), spool.put("discard/2", b"b"))
    await spool.put("discarded", b"another name")
    await spool.put("discard/1", None)
    await spool.close()
    spool = await opened(tmp_path)
    assert await spool.get("selector") == b"two"
    assert await spool.facts("discard/") == {"discard/2": b"b"}
    await spool.close()


async def test_a_second_hub_is_refused(spool: DiskSpool, tmp_path: Path) -> None:
    with pytest.raises(SpoolInUse, match=rf"another hub has this spool \(process {os.getpid()}\)"):
        await opened(tmp_path)
    await put(spool)


async def test_nothing_is_taken_after_close(spool: DiskSpool) -> None:
    number = await put(spool)
    writer = spool.writer(None)
    writer.write(SMALL)
    await spool.close()
    with pytest.raises(SpoolFull):
        spool.writer(10)
    for asked in (spool.commit(writer, envelope()), spool.remove(number), spool.update(number, envelope())):
        with pytest.raises(OSError):  # noqa: PT011 - any
            await asked


async def test_what_was_asked_before_close_is_done(tmp_path: Path) -> None:
    spool = await opened(tmp_path)
    number = await put(spool)
    asked = [spool.remove(number), spool.put("name", b"value")]
    await spool.close()
    await asyncio.gather(*asked)
    spool = await opened(tmp_path)
    assert (spool.count, await spool.get("name")) == (0, b"value")
    await spool.close()


async def test_pressure_follows_disk_and_queue(tmp_path: Path) -> None:
    """exchange-facts 4.12, smtp-facts c.5 row 54: by itself, both ways."""
    space = ROOMY
    told: list[Pressure] = []
    settings = SpoolSettings(max_queued_messages=10, reserve_bytes=4096)
    spool = await DiskSpool.open(tmp_path / "spool", settings, space=lambda: space, on_pressure=told.append)
    assert spool.pressure is Pressure.NORMAL
    space = Space(100 * GB, 3 * GB)
    assert await spool.meter() is Pressure.MEDIUM
    assert spool.back_pressure.refuses_strangers
    space = Space(100 * GB, GB // 2)
    assert await spool.meter() is Pressure.HIGH
    assert spool.causes() == {"disk": Pressure.HIGH}
    space = ROOMY
    assert await spool.meter() is Pressure.NORMAL
    numbers = [await put(spool) for _ in range(10)]
    assert await spool.meter() is Pressure.HIGH
    for number in numbers[:3]:
        await spool.remove(number)
    assert await spool.meter() is Pressure.NORMAL
    assert told == [Pressure.MEDIUM, Pressure.HIGH, Pressure.NORMAL, Pressure.HIGH, Pressure.NORMAL]
    await spool.close()


async def test_a_message_that_would_not_find_room_is_refused_before_it_comes(tmp_path: Path) -> None:
    spool = await opened(tmp_path, SpoolSettings(reserve_bytes=4096, min_free_bytes=1), Space(100_000, 50_000))
    with pytest.raises(SpoolFull):
        spool.writer(60_000)
    first = spool.writer(30_000)
    with pytest.raises(SpoolFull):
        spool.writer(30_000)
    first.discard()
    first.discard()
    spool.writer(30_000).discard()
    await spool.close()


async def test_free_pages_of_the_database_are_free(tmp_path: Path) -> None:
    spool = await opened(tmp_path, space=Space(100 * GB, 0))
    assert await spool.meter() is Pressure.HIGH
    spool._opened.database.free_bytes = 50 * GB
    assert await spool.meter() is Pressure.NORMAL
    await spool.close()


def test_marks_in_hand_beyond_the_slots_are_left_out(tmp_path: Path) -> None:
    hand = InHand(tmp_path / "in-hand")
    marks = [hand.mark(number + 1) for number in range(SLOTS + 1)]
    for mark in marks:
        mark.__enter__()
    again = InHand(tmp_path / "other")
    assert again.suspects == []
    for mark in marks:
        mark.__exit__(None, None, None)
    hand.close()
    hand.close()
    with hand.mark(5):
        pass
    again.close()
    later = InHand(tmp_path / "in-hand")
    assert later.suspects == []
    later.close()
