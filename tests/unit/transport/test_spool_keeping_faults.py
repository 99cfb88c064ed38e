"""Kept messages on a full disk, after a crash, in a damaged or an old spool (SPEC T2, S1)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from zlib import crc32

import apsw
import msgspec
import pytest
from keeping_stage import (
    BOTH,
    ROOMY,
    all_kept,
    content_of,
    copy,
    delivered,
    everything_on_disk,
    keep,
    opened,
    queue,
    shadow,
    until,
)
from spool_contract import LARGE, SMALL, envelope, put

from gatepost.store.sqlite import Schema, open_for_writing
from gatepost.transport.ports import SpoolFull
from gatepost.transport.spool import committing
from gatepost.transport.spool.database import SCHEMA, Changed, Database, Group
from gatepost.transport.spool.layout import Layout
from gatepost.transport.spool.opening import MISSING
from gatepost.transport.spool.salvage import salvage
from gatepost.transport.spool.spool import DiskSpool, SpoolSettings
from gatepost.wire.shadow_messages import Discarded


@pytest.fixture
async def spool(tmp_path: Path) -> AsyncIterator[DiskSpool]:
    spool = await opened(tmp_path)
    yield spool
    await spool.close()


@pytest.fixture
def soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(committing, "IDLE_SECONDS", 0.02)


class _Full:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = True
        apply = Database.apply

        def failing(database: Database, group: Group) -> Changed:
            if self.full:
                raise apsw.FullError("database or disk is full")
            return apply(database, group)

        monkeypatch.setattr(Database, "apply", failing)


@BOTH
@pytest.mark.usefixtures("soon_again")
async def test_a_full_disk_refuses_copies_and_keeps_what_became_of_the_others(
    spool: DiskSpool, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    """smtp-facts c.5 row 54, for shadows: no copy is promised, nothing that is known is lost."""
    aside, back, gone = await put(spool), await keep(spool, shadow("t-2")), await keep(spool, shadow("t-3"))
    disk = _Full(monkeypatch)
    waiting = [
        asyncio.ensure_future(one)
        for one in (
            spool.note_discards("HUB-02", [Discarded("d-1")]),
            spool.set_aside(aside, envelope(), [shadow("t-1")]),
            spool.take_back(back, envelope()),
            spool.let_go([(gone, "t-3")]),
            spool.expire(1e9),
        )
    ]
    with pytest.raises(SpoolFull):
        await keep(spool, shadow("t-4"), content)
    assert not any(one.done() for one in waiting)
    assert (spool.count, spool.kept_count) == (1, 2)
    disk.full = False
    async with asyncio.timeout(10):
        await asyncio.gather(*waiting)
    assert (spool.count, spool.kept_count) == (1, 1)
    assert await all_kept(spool) == [shadow("t-1", aside)]
    assert await spool.discards() == {"HUB-02": [Discarded("d-1")]}
    await until(lambda: os.listdir(spool._opened.layout.content) == [])


async def test_kept_messages_do_not_press_on_the_queue(tmp_path: Path) -> None:
    """Back pressure counts what waits; the disk counts everything."""
    settings = SpoolSettings(reserve_bytes=4096, max_queued_messages=10)
    spool = await DiskSpool.open(tmp_path / "spool", settings, space=lambda: ROOMY)
    for n in range(12):
        await keep(spool, shadow(f"t-{n}"))
    await spool.meter()
    assert spool.causes() == {}
    await spool.close()


async def test_a_kept_message_without_its_file_is_put_aside(tmp_path: Path) -> None:
    """smtp-facts c.5 row 53, for shadows."""
    spool = await opened(tmp_path)
    bad, good = await keep(spool, shadow("t-1"), LARGE), await keep(spool, shadow("t-2"), LARGE)
    await spool.close()
    Layout(tmp_path / "spool").file(bad).unlink()
    spool = await opened(tmp_path)
    assert spool.found.quarantined == ((bad, MISSING),)
    assert await all_kept(spool) == [shadow("t-2", good)]
    assert (spool.count, spool.kept_count) == (0, 1)
    assert [one.number for one in await spool.quarantined()] == [bad]
    await spool.close()


@BOTH
async def test_a_quarantined_copy_keeps_its_content(spool: DiskSpool, content: bytes) -> None:
    number = await keep(spool, shadow(), content)
    await spool.quarantine(number, "looks bad")
    assert spool.kept_count == 0
    assert await all_kept(spool) == []
    assert await content_of(spool, number) == content
    await spool.resume(number)
    assert (spool.count, spool.kept_count) == (1, 0)
    await spool.remove(number)
    assert everything_on_disk(spool) == {}


async def test_a_kept_message_in_hand_when_the_process_died_is_counted(tmp_path: Path) -> None:
    spool = await opened(tmp_path)
    number = await keep(spool, shadow())
    with spool.in_hand(number):
        marks = spool._opened.layout.in_hand.read_bytes()
    await spool.close()
    (tmp_path / "spool" / "in-hand").write_bytes(marks)
    spool = await opened(tmp_path)
    assert spool.found.suspects == (number,)
    assert (await spool.envelope(number)).crashes == 1
    await spool.close()


def first_version(layout: Layout) -> None:
    """A spool as it was made then, with a message in the queue and one that is quarantined."""
    layout.make()
    open_for_writing(str(layout.database), Schema(SCHEMA.what, SCHEMA.application_id, SCHEMA.migrations[:1])).close()
    blob = msgspec.msgpack.encode(envelope("old@contoso.com"))
    connection = apsw.Connection(str(layout.database))
    connection.execute("INSERT INTO spool VALUES (1, 'ab12', 7, 1)")
    connection.execute("INSERT INTO message VALUES (3, ?)", (blob,))
    connection.execute("INSERT INTO content VALUES (3, ?1, ?2), (4, ?1, ?2)", (crc32(SMALL), SMALL))
    connection.execute("INSERT INTO quarantined VALUES (4, ?, 'looks bad', 1.0)", (blob,))
    connection.close()


async def test_a_spool_of_the_first_version_is_brought_up(tmp_path: Path) -> None:
    """Its messages, contents and facts stay, and the new tables work."""
    first_version(Layout(tmp_path / "spool"))
    spool = await opened(tmp_path)
    assert (spool.identity, spool.first_new_number, spool.count, spool.kept_count) == ("ab12", 7, 1, 0)
    assert await queue(spool) == [3]
    await spool.set_aside(3, envelope(), [shadow()])
    assert await content_of(spool, 3) == SMALL
    await spool.take_back(3, envelope())
    await spool.remove(3)
    assert everything_on_disk(spool) == {"content": 1}
    assert [one.number for one in await spool.quarantined()] == [4]
    await spool.close()


async def test_salvage_of_a_spool_of_the_first_version(tmp_path: Path) -> None:
    first_version(Layout(tmp_path / "old"))
    saved = salvage(tmp_path / "old", tmp_path / "spool")
    assert (saved.taken, saved.lost) == (1, ())
    spool = await opened(tmp_path)
    assert [await content_of(spool, number) for number in await queue(spool)] == [SMALL]
    await spool.close()


async def test_salvage_takes_kept_messages_too(tmp_path: Path) -> None:
    spool = await opened(tmp_path)
    queued = await put(spool, LARGE)
    await keep(spool, shadow(), LARGE)
    net = await put(spool)
    await spool.set_aside(net, delivered("A", at=10.0), [shadow("t-2"), copy()])
    await spool.note_discards("HUB-02", [Discarded("d-1")])
    await spool.close()
    (tmp_path / "new").mkdir()
    saved = salvage(tmp_path / "spool", tmp_path / "new" / "spool")
    assert (saved.taken, saved.lost) == (3, ())
    spool = await opened(tmp_path / "new")
    assert (spool.count, spool.kept_count) == (1, 2)
    assert await queue(spool) == [queued]
    assert sorted(one.key for one in await all_kept(spool)) == ["t-1", "t-2"]
    assert [one.key for one in await spool.kept_since("A", 0.0, 20.0)] == ["net"]
    assert await spool.discards() == {"HUB-02": [Discarded("d-1")]}
    for one in await all_kept(spool):
        assert await content_of(spool, one.number) == (LARGE if one.key == "t-1" else SMALL)
    await spool.close()


async def test_the_spool_takes_nothing_aside_after_close(tmp_path: Path) -> None:
    spool = await opened(tmp_path)
    number = await put(spool)
    await spool.close()
    with pytest.raises(OSError, match="closed"):
        await spool.set_aside(number, envelope(), [shadow()])
    with pytest.raises(OSError, match="closed"):
        await spool.let_go([(1, "t"), (2, "t")] * 60)
