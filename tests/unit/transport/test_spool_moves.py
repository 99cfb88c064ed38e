"""What the spool keeps beside its queue: shadows, the safety net, discard events (SPEC S1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from spool_contract import LARGE, SMALL, envelope, put, read

from gatepost.store.sqlite import open_for_writing
from gatepost.transport.message import Envelope
from gatepost.transport.shadow.ports import Kept, Role
from gatepost.transport.spool.database import SCHEMA
from gatepost.transport.spool.layout import Layout
from gatepost.transport.spool.metering import Space
from gatepost.transport.spool.spool import DiskSpool, SpoolSettings

ROOMY = Space(100 * 1024**3, 50 * 1024**3)


async def opened(folder: Path, recent: int = 0) -> DiskSpool:
    settings = SpoolSettings(reserve_bytes=4096, recent_bytes=recent)
    return await DiskSpool.open(folder / "spool", settings, space=lambda: ROOMY)


@pytest.fixture(params=[0, 1 << 20], ids=["from disk", "from memory"])
async def spool(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[DiskSpool]:
    spool = await opened(tmp_path, request.param)
    yield spool
    await spool.close()


def shadow(token: str, primary: str = "HUB-02") -> Kept:
    return Kept(0, Role.SHADOW, token, primary, "1d", 1000.0)


def net(database: str, until: float = 500.0) -> Kept:
    return Kept(0, Role.SAFETY_NET, database, "", "", until)


async def keep(spool: DiskSpool, token: str, content: bytes = SMALL) -> int:
    writer = spool.writer(len(content))
    writer.write(content)
    return await spool.keep(writer, envelope(), shadow(token))


async def queued(spool: DiskSpool) -> list[int]:
    return [number async for batch in spool.messages() for number, _ in batch]


async def kept(spool: DiskSpool, role: Role = Role.SHADOW) -> list[tuple[int, str]]:
    return [(each.number, each.key) async for batch in spool.kept(role) for each in batch]


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
async def test_a_copy_is_kept_and_is_no_message_of_the_queue(spool: DiskSpool, tmp_path: Path, content: bytes) -> None:
    number = await keep(spool, "a-1", content)
    assert (spool.count, spool.kept_count) == (0, 1)
    assert await read(await spool.body(number)) == content
    await spool.close()
    again = await opened(tmp_path)
    try:
        assert await queued(again) == []
        assert await kept(again) == [(number, "a-1")]
        found = [each async for batch in again.kept(Role.SHADOW) for each in batch]
        assert found == [replace(shadow("a-1"), number=number)]
        assert (await again.envelope(number)).sender == envelope().sender
        assert await read(await again.body(number)) == content
        assert (again.count, again.kept_count) == (0, 1)
        await again.let_go([(number, "a-1")])
        assert (again.count, again.kept_count) == (0, 0)
        with pytest.raises(KeyError):
            await again.envelope(number)
        with pytest.raises(KeyError):
            await again.body(number)
    finally:
        await again.close()
    last = await opened(tmp_path)
    assert last.found.removed_files == 0
    assert not list((tmp_path / "spool" / "content").iterdir())
    await last.close()


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
async def test_a_message_goes_from_the_queue_aside_and_back(spool: DiskSpool, tmp_path: Path, content: bytes) -> None:
    number = await put(spool, content)
    await spool.set_aside(number, envelope("aside@x.test"), [shadow("t-1"), shadow("t-2")])
    assert (spool.count, spool.kept_count) == (0, 1)
    assert (await spool.envelope(number)).sender == "aside@x.test"
    await spool.update(number, envelope("changed@x.test"))
    assert (await spool.envelope(number)).sender == "changed@x.test"
    await spool.let_go([(number, "t-1")])
    assert await kept(spool) == [(number, "t-2")]
    await spool.take_back(number, envelope("back@x.test"))
    assert (spool.count, spool.kept_count) == (1, 0)
    assert await kept(spool) == []
    await spool.close()
    again = await opened(tmp_path)
    assert await queued(again) == [number]
    assert (await again.envelope(number)).sender == "back@x.test"
    assert await read(await again.body(number)) == content
    await again.remove(number)
    assert (again.count, again.kept_count) == (0, 0)
    await again.close()
    assert not list((tmp_path / "spool" / "content").iterdir())


async def test_other_reasons_take_the_place_of_those_before(spool: DiskSpool) -> None:
    """A shadow that goes to the safety net when its primary has delivered it."""
    number = await keep(spool, "t-1")
    await spool.set_aside(number, envelope(), [net("DB01")])
    assert await kept(spool) == []
    assert await kept(spool, Role.SAFETY_NET) == [(number, "DB01")]
    assert (spool.count, spool.kept_count) == (0, 1)


async def test_many_changes_of_one_message_at_once_keep_their_order(spool: DiskSpool) -> None:
    """All of them in one group of the committer, whatever their kinds."""
    number = await put(spool)
    for turn in range(5):
        spool.set_aside(number, envelope(f"a{turn}@x.test"), [shadow(f"t-{turn}")])
        spool.take_back(number, envelope(f"b{turn}@x.test"))
        spool.update(number, envelope(f"c{turn}@x.test"))
    await spool.set_aside(number, envelope("last@x.test"), [shadow("last")])
    assert await kept(spool) == [(number, "last")]
    assert (await spool.envelope(number)).sender == "last@x.test"
    assert (spool.count, spool.kept_count) == (0, 1)
    spool.let_go([(number, "last")])
    await spool.set_aside(number, envelope(), [shadow("too late")])
    assert await kept(spool) == []
    assert (spool.count, spool.kept_count) == (0, 0)


async def test_what_is_gone_is_not_set_aside(spool: DiskSpool) -> None:
    number = await put(spool)
    spool.remove(number)
    await spool.set_aside(number, envelope(), [shadow("t-1")])
    assert await kept(spool) == []
    assert (spool.count, spool.kept_count) == (0, 0)


async def test_a_copy_that_nobody_waits_for_any_more_is_let_go(spool: DiskSpool) -> None:
    writer = spool.writer(10)
    writer.write(SMALL)
    waiting = asyncio.ensure_future(spool.keep(writer, envelope(), shadow("t-1")))
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(10):
        while await kept(spool) or spool.kept_count:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)


async def test_a_spool_of_the_version_before_is_taken_on(tmp_path: Path) -> None:
    spool = await opened(tmp_path)
    await spool.close()
    path = Layout(tmp_path / "spool").database
    path.unlink()
    connection = open_for_writing(str(path), replace(SCHEMA, migrations=SCHEMA.migrations[:1]))
    connection.execute("INSERT INTO spool VALUES (1, 'ab', 8, 1)")
    connection.execute("INSERT INTO message VALUES (7, ?)", (spool._encode(envelope("old@x.test")),))
    connection.execute("INSERT INTO content VALUES (7, 0, x'')")
    connection.close()
    spool = await opened(tmp_path)
    assert spool.identity == "ab"
    assert await queued(spool) == [7]
    await spool.set_aside(7, envelope(), [shadow("t-1")])
    assert await read(await spool.body(7)) == b""
    await spool.let_go([(7, "t-1")])
    assert (spool.count, spool.kept_count) == (0, 0)
    await spool.close()


def test_envelopes_of_the_version_before_are_read() -> None:
    """New fields have defaults."""
    import msgspec

    old = {"sender": "a@x.test", "recipients": [], "received": 1.0, "expires": 2.0}
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(old), type=Envelope).watchers == []
