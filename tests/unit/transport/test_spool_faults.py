"""A disk that is full or fails: what is refused leaves nothing, what is known is not lost, and it works again."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import apsw
import pytest
from spool_contract import LARGE, SMALL, envelope, put, read

from gatepost.balancing.back_pressure import Pressure
from gatepost.store.sqlite import StoreUnavailable
from gatepost.transport.ports import SpoolFull
from gatepost.transport.spool import committing, database, writing
from gatepost.transport.spool.database import Changed, Database, Group
from gatepost.transport.spool.metering import Space
from gatepost.transport.spool.reserve import Reserve
from gatepost.transport.spool.spool import DiskSpool, SpoolSettings

GB = 1024**3


@pytest.fixture(autouse=True)
def _soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(committing, "IDLE_SECONDS", 0.02)


@pytest.fixture
async def spool(tmp_path: Path) -> AsyncIterator[DiskSpool]:
    space = Space(100 * GB, 50 * GB)
    spool = await DiskSpool.open(tmp_path / "spool", SpoolSettings(reserve_bytes=4096), space=lambda: space)
    yield spool
    await spool.close()


class Disk:
    """Lets the database's transactions fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fault: Callable[[Group], Exception | None] = lambda group: None
        self.opened_anew = 0
        apply, reopen = Database.apply, Database.reopen

        def failing(database: Database, group: Group) -> Changed:
            fault = self.fault(group)
            if fault is not None:
                raise fault
            return apply(database, group)

        def counted(database: Database) -> None:
            self.opened_anew += 1
            reopen(database)

        monkeypatch.setattr(Database, "apply", failing)
        monkeypatch.setattr(Database, "reopen", counted)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - no event for this
            await asyncio.sleep(0.005)


def files(spool: DiskSpool) -> list[str]:
    return os.listdir(spool._opened.layout.content)


async def test_new_messages_are_refused_on_a_full_disk_and_removals_go_on(spool: DiskSpool, disk: Disk) -> None:
    """smtp-facts c.5 row 54."""
    number, other = await put(spool), await put(spool, LARGE)
    disk.fault = lambda group: apsw.FullError("full") if group.messages else None
    writers = [spool.writer(None) for _ in range(3)]
    for writer, content in zip(writers, (SMALL, LARGE, SMALL), strict=True):
        writer.write(content)
    commits = [spool.commit(writer, envelope()) for writer in writers]
    removal, update = spool.remove(number), spool.update(other, envelope("updated@contoso.com"))
    for commit in commits:
        with pytest.raises(SpoolFull):
            await commit
    await asyncio.gather(removal, update)
    assert (await spool.envelope(other)).sender == "updated@contoso.com"
    await until(lambda: len(files(spool)) == 1)
    disk.fault = lambda group: None
    await spool.meter()
    await until(lambda: spool.fault is None)
    assert await read(await spool.body(await put(spool))) == SMALL
    assert spool.count == 2


async def test_the_reserve_makes_room_for_removals(
    spool: DiskSpool, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = await put(spool)
    full = True
    reserve = spool._opened.reserve
    disk.fault = lambda group: apsw.FullError("full") if full and not reserve.released else None
    begun = spool.writer(10)
    await spool.remove(number)
    assert reserve.released
    assert not spool._opened.layout.reserve.exists()
    assert spool.pressure is Pressure.HIGH
    assert "fault" in spool.causes()
    with pytest.raises(SpoolFull):
        spool.writer(10)
    begun.write(SMALL)
    with pytest.raises(SpoolFull):  # though the disk would take it now
        await spool.commit(begun, envelope())
    full = False
    await spool.meter()
    await until(lambda: not reserve.released)
    assert spool.pressure is Pressure.NORMAL
    assert spool._opened.layout.reserve.stat().st_size == 4096
    await put(spool)


async def test_a_reserve_that_finds_no_room_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", full)
    reserve = Reserve(tmp_path / "reserve", 4096)
    with pytest.raises(OSError, match="full"):
        reserve.make()
    assert reserve.released
    assert not reserve.release()
    assert os.listdir(tmp_path) == []


async def test_a_disk_that_fails_refuses_and_recovers(spool: DiskSpool, disk: Disk) -> None:
    """smtp-facts c.4 rows 40 and 41: positive only after every write; what became of a message is not lost."""
    number, kept = await put(spool), await put(spool)
    disk.fault = lambda group: apsw.IOError("disk I/O error")
    writer = spool.writer(None)
    writer.write(SMALL)
    commit = spool.commit(writer, envelope())
    removal, update = spool.remove(number), spool.update(kept, envelope("updated@contoso.com"))
    fact = spool.put("name", b"value")
    with pytest.raises(OSError, match="disk I/O error"):
        await commit
    await until(lambda: disk.opened_anew > 2)
    assert not any(asyncio.isfuture(asked) and asked.done() for asked in (removal, update, fact))
    assert spool.pressure is Pressure.HIGH
    with pytest.raises(SpoolFull):
        spool.writer(None)
    disk.fault = lambda group: None
    await asyncio.gather(removal, update, fact)
    assert spool.pressure is Pressure.NORMAL
    assert spool.count == 1
    assert (await spool.envelope(kept)).sender == "updated@contoso.com"
    assert await read(await spool.body(await put(spool))) == SMALL


async def test_recovery_is_noticed_though_nothing_is_asked(spool: DiskSpool, disk: Disk) -> None:
    disk.fault = lambda group: apsw.IOError("disk I/O error")
    with pytest.raises(OSError, match="disk I/O error"):
        await put(spool)
    await spool.meter()
    assert spool.pressure is Pressure.HIGH
    disk.fault = lambda group: None
    await spool.meter()
    await until(lambda: spool.pressure is Pressure.NORMAL)


async def test_what_waits_for_the_disk_is_told_when_the_spool_closes(tmp_path: Path, disk: Disk) -> None:
    spool = await DiskSpool.open(tmp_path / "spool", SpoolSettings(reserve_bytes=4096))
    number = await put(spool)
    disk.fault = lambda group: apsw.IOError("disk I/O error")
    asked = [spool.remove(number), spool.update(number, envelope())]
    await spool.close()
    for one in asked:
        with pytest.raises(OSError, match="closed before the disk took it"):
            await one
    disk.fault = lambda group: None
    spool = await DiskSpool.open(tmp_path / "spool", SpoolSettings(reserve_bytes=4096))
    assert (await spool.envelope(number)).sender == "alice@contoso.com"
    await spool.close()


async def test_a_mistake_of_ours_is_told_and_blocks_nobody(spool: DiskSpool, disk: Disk) -> None:
    number = await put(spool)
    disk.fault = lambda group: TypeError("a mistake") if group.updates or group.messages else None
    asked = spool.update(number, envelope())
    with pytest.raises(TypeError):
        await asked
    with pytest.raises(TypeError):
        await put(spool)
    await spool.remove(number)
    assert spool.fault is None


@pytest.mark.parametrize(
    ("number", "raised"), [(errno.ENOSPC, SpoolFull), (errno.EDQUOT, SpoolFull), (errno.EIO, OSError)]
)
@pytest.mark.parametrize("blocks", [0, 2])
async def test_a_fault_in_the_middle_of_a_large_message(
    spool: DiskSpool, monkeypatch: pytest.MonkeyPatch, number: int, raised: type[Exception], blocks: int
) -> None:
    before = await put(spool, LARGE)
    left = blocks

    def failing(descriptor: int, data: memoryview) -> int:
        nonlocal left
        if left <= 0:
            raise OSError(number, os.strerror(number))
        left -= 1
        return os.write(descriptor, data[: len(data) // 2])

    with monkeypatch.context() as patched:
        patched.setattr(writing, "write_some", failing)
        writer = spool.writer(None)

        async def send() -> None:
            for _ in range(40):
                writer.write(bytes(100_000))
                await asyncio.sleep(0)
                if writer.full:
                    await writer.drain()
            await spool.commit(writer, envelope())

        with pytest.raises(raised):
            await send()
        writer.write(b"more")
        with pytest.raises(raised):
            await spool.commit(writer, envelope())
        await until(lambda: len(files(spool)) == 1)
    assert spool.count == 1
    assert await read(await spool.body(before)) == LARGE
    assert await read(await spool.body(await put(spool, LARGE))) == LARGE
    assert spool._promised == 0


async def test_dev_full(spool: DiskSpool, monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(writing, "write_some", lambda _, data: os.write(full, data))
    with pytest.raises(SpoolFull):
        await put(spool, LARGE)
    os.close(full)
    await until(lambda: files(spool) == [])


@pytest.mark.parametrize("module", ["file", "directory"])
async def test_a_sync_that_fails_refuses_the_message(
    spool: DiskSpool, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    def failing(_: object) -> None:
        raise OSError(errno.EIO, "not on disk")

    with monkeypatch.context() as patched:
        if module == "file":
            patched.setattr(os, "fdatasync", failing)
        else:
            patched.setattr(committing, "sync_directory", failing)
        with pytest.raises(OSError, match="not on disk"):
            await put(spool, LARGE)
    await until(lambda: files(spool) == [])
    await spool.meter()
    await until(lambda: spool.pressure is Pressure.NORMAL)
    await put(spool, LARGE)
    assert spool.count == 1


async def test_the_journal_stays_small(spool: DiskSpool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool._committer, "_journal_bytes", 400_000)
    journal = f"{spool._opened.layout.database}-wal"
    for _ in range(100):
        numbers = await asyncio.gather(*(put(spool, bytes(5000)) for _ in range(10)))
        await asyncio.gather(*(spool.remove(number) for number in numbers))
        assert os.stat(journal).st_size < 2_000_000
    assert spool._opened.layout.database.stat().st_size < 1_000_000, "space is used again"


async def test_a_checkpoint_that_fails_is_tried_again(spool: DiskSpool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool._committer, "_journal_bytes", 10_000)
    checkpoint = Database.checkpoint
    failed = 0

    def failing(self: Database, *, wait: bool = False) -> None:
        nonlocal failed
        if failed < 2:
            failed += 1
            raise apsw.IOError("checkpoint")
        checkpoint(self, wait=wait)

    monkeypatch.setattr(Database, "checkpoint", failing)
    numbers = [await put(spool, bytes(5000))]
    await until(lambda: spool.pressure is Pressure.HIGH)
    await spool.remove(numbers.pop())
    await until(lambda: failed == 2 and spool._committer.fault is not None)
    await spool.meter()
    await until(lambda: spool.pressure is Pressure.NORMAL)
    numbers.append(await put(spool, bytes(5000)))
    assert await read(await spool.body(numbers[0])) == bytes(5000)


async def test_free_space_is_given_back_little_by_little(spool: DiskSpool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "KEPT_FREE_PAGES", 10)
    monkeypatch.setattr(database, "GIVEN_BACK_PAGES", 50)
    monkeypatch.setattr(spool._committer, "_journal_bytes", 200_000)
    path = spool._opened.layout.database
    numbers = await asyncio.gather(*(put(spool, bytes(20_000)) for _ in range(200)))
    await until(lambda: path.stat().st_size > 3_000_000)
    await asyncio.gather(*(spool.remove(number) for number in numbers))
    await until(lambda: spool._opened.database.free_bytes < 100 * 4096 and path.stat().st_size < 1_500_000)


async def test_reads_fail_as_faults_of_the_disk(spool: DiskSpool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "_recent", type(spool._recent)(0))
    number = await put(spool)

    def failing(*_: object) -> None:
        raise StoreUnavailable("the file cannot be read")

    with monkeypatch.context() as patched:
        patched.setattr("gatepost.store.sqlite.Store.connection", failing)
        with pytest.raises(OSError, match="cannot be read"):
            await spool.body(number)
    assert await read(await spool.body(number)) == SMALL
