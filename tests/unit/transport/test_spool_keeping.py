"""What the spool keeps beside its queue: shadows, safety net, discard events (SPEC S1, S2; exchange-facts 4.4, 4.5)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from zlib import crc32

import apsw
import msgspec
import pytest
from spool_contract import LARGE, SMALL, envelope, put, read

from gatepost.store.sqlite import Schema, open_for_writing
from gatepost.transport.message import Envelope
from gatepost.transport.ports import SpoolFull
from gatepost.transport.shadow.ports import Kept, Role
from gatepost.transport.spool import aside, committing, keeping
from gatepost.transport.spool.changes import Change, Kind, Move, grouped
from gatepost.transport.spool.database import SCHEMA, Changed, Database, Group
from gatepost.transport.spool.layout import Layout
from gatepost.transport.spool.metering import Space
from gatepost.transport.spool.opening import MISSING
from gatepost.transport.spool.salvage import salvage
from gatepost.transport.spool.spool import DiskSpool, SpoolSettings
from gatepost.wire.shadow_messages import Discarded

GB = 1024**3
ROOMY = Space(100 * GB, 50 * GB)
SETTINGS = SpoolSettings(reserve_bytes=4096)
TABLES = {"message", "content", "file", "aside", "shadow", "safety_net", "delivery", "discard"}
BOTH = pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])


async def opened(folder: Path) -> DiskSpool:
    return await DiskSpool.open(folder / "spool", SETTINGS, space=lambda: ROOMY)


@pytest.fixture
async def spool(tmp_path: Path) -> AsyncIterator[DiskSpool]:
    spool = await opened(tmp_path)
    yield spool
    await spool.close()


@pytest.fixture
def soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(committing, "IDLE_SECONDS", 0.02)


def shadow(token: str = "t-1", number: int = 0, primary: str = "HUB-02") -> Kept:
    return Kept(number, Role.SHADOW, token, primary, "ab12", 5000.0)


def copy(until: float = 5000.0, number: int = 0) -> Kept:
    return Kept(number, Role.SAFETY_NET, "net", "", "", until)


def delivered(*databases: str, at: float) -> Envelope:
    one = envelope()
    one.databases, one.delivered = list(databases), at
    return one


async def keep(spool: DiskSpool, kept: Kept, content: bytes = SMALL, one: Envelope | None = None) -> int:
    writer = spool.writer(len(content))
    writer.write(content)
    return await spool.keep(writer, one or envelope("kept@contoso.com"), kept)


async def all_kept(spool: DiskSpool, role: Role = Role.SHADOW) -> list[Kept]:
    return [one async for batch in spool.kept(role) for one in batch]


async def queue(spool: DiskSpool) -> list[int]:
    return [number async for batch in spool.messages() for number, _ in batch]


async def content_of(spool: DiskSpool, number: int) -> bytes:
    return await read(await spool.body(number))


def rows(spool: DiskSpool, statement: str) -> list[tuple[apsw.SQLiteValue, ...]]:
    connection = apsw.Connection(str(spool._opened.layout.database))
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


def everything_on_disk(spool: DiskSpool) -> dict[str, int]:
    counts = {table: int(str(rows(spool, f"SELECT count(*) FROM {table}")[0][0])) for table in TABLES}
    return {table: count for table, count in counts.items() if count}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - no event for this
            await asyncio.sleep(0.005)


@BOTH
async def test_a_kept_copy_is_on_disk_and_not_in_the_queue(tmp_path: Path, content: bytes) -> None:
    """SPEC S1."""
    spool = await opened(tmp_path)
    number = await keep(spool, shadow(), content)
    assert (spool.count, spool.kept_count) == (0, 1)
    for _ in range(2):
        assert await content_of(spool, number) == content
        assert (await spool.envelope(number)).sender == "kept@contoso.com"
        assert (await spool.envelope(number)).size == len(content)
        assert await all_kept(spool) == [shadow(number=number)]
        assert await queue(spool) == []
        assert (spool.count, spool.kept_count, spool.found.messages) == (0, 1, 0)
        await spool.close()
        spool = await opened(tmp_path)
    assert await put(spool) > number, "numbers are never used again"
    await spool.close()


@BOTH
@pytest.mark.parametrize("restart", [False, True])
async def test_a_message_leaves_the_queue_and_comes_back(tmp_path: Path, content: bytes, restart: bool) -> None:
    """SPEC S1, S2: kept while another hub is responsible, queued again when that is gone."""
    spool = await opened(tmp_path)
    number = await put(spool, content)
    await spool.set_aside(number, envelope("aside@contoso.com"), [shadow("t-1"), shadow("t-2", primary="HUB-03")])
    assert (spool.count, spool.kept_count) == (0, 1)
    if restart:
        await spool.close()
        spool = await opened(tmp_path)
    assert await queue(spool) == []
    assert await all_kept(spool) == [shadow("t-1", number), shadow("t-2", number, "HUB-03")]
    assert await content_of(spool, number) == content
    await spool.take_back(number, envelope("back@contoso.com"))
    assert (spool.count, spool.kept_count) == (1, 0)
    if restart:
        await spool.close()
        spool = await opened(tmp_path)
    assert await all_kept(spool) == []
    assert (await spool.envelope(number)).sender == "back@contoso.com"
    assert await content_of(spool, number) == content
    await spool.remove(number)
    assert everything_on_disk(spool) == {}
    await until(lambda: os.listdir(spool._opened.layout.content) == [])
    await spool.close()


async def test_what_was_taken_back_meanwhile_is_not_among_those_of_the_start(tmp_path: Path) -> None:
    spool = await opened(tmp_path)
    number, queued = await keep(spool, shadow()), await put(spool)
    await spool.close()
    spool = await opened(tmp_path)
    await spool.take_back(number, envelope())
    assert await queue(spool) == [queued], "whoever took it back has queued it"
    await spool.close()
    spool = await opened(tmp_path)
    assert await queue(spool) == [number, queued]
    await spool.close()


@BOTH
async def test_a_message_goes_with_the_last_of_its_keys(spool: DiskSpool, content: bytes) -> None:
    """exchange-facts 4.4: released only when every fork is done."""
    number = await put(spool, content)
    await spool.set_aside(number, delivered("DB1", at=100.0), [shadow("t-1"), shadow("t-2"), copy()])
    await spool.let_go([(number, "t-1"), (number, "unknown"), (99, "t-2")])
    await spool.let_go([(number, "t-2")])
    assert await content_of(spool, number) == content
    assert spool.kept_count == 1
    await spool.let_go([(number, "net")])
    assert spool.kept_count == 0
    with pytest.raises(KeyError):
        await spool.envelope(number)
    with pytest.raises(KeyError):
        await spool.body(number)
    assert everything_on_disk(spool) == {}
    await until(lambda: os.listdir(spool._opened.layout.content) == [])


async def test_letting_go_of_many_at_once(spool: DiskSpool) -> None:
    numbers = await asyncio.gather(*(keep(spool, shadow(f"t-{n}")) for n in range(150)))
    await spool.let_go([(number, f"t-{n}") for n, number in enumerate(numbers)])
    await spool.let_go([])
    assert everything_on_disk(spool) == {}
    assert spool.kept_count == 0


async def test_a_shadow_becomes_the_safety_nets(spool: DiskSpool) -> None:
    """exchange-facts 4.5: the shadow server's part of the safety net."""
    number = await keep(spool, shadow())
    await spool.set_aside(number, delivered("DB1", "DB2", at=100.0), [copy()])
    assert await all_kept(spool) == []
    assert await all_kept(spool, Role.SAFETY_NET) == [copy(number=number)]
    assert spool.kept_count == 1
    assert (await spool.envelope(number)).databases == ["DB1", "DB2"]
    await spool.set_aside(number, delivered("DB2", at=200.0), [copy(6000.0)])
    assert await spool.kept_since("DB1", 0.0, 1000.0) == []
    assert await spool.kept_since("DB2", 200.0, 200.0) == [copy(6000.0, number)]


async def test_updates_reach_kept_messages_too(spool: DiskSpool) -> None:
    """Progress of single recipients is kept, so that a resubmission repeats only what is unfinished."""
    kept, queued = await keep(spool, shadow()), await put(spool)
    spool.update(queued, envelope("new1@contoso.com"))
    await spool.update(kept, envelope("new2@contoso.com"))
    assert (await spool.envelope(queued)).sender == "new1@contoso.com"
    assert (await spool.envelope(kept)).sender == "new2@contoso.com"
    assert (spool.count, spool.kept_count) == (1, 1)


async def test_nothing_comes_of_a_message_that_is_gone(spool: DiskSpool) -> None:
    number, quarantined, queued = await put(spool), await put(spool), await put(spool)
    spool.quarantine(quarantined, "looks bad")
    spool.remove(number)
    await asyncio.gather(
        spool.set_aside(number, envelope(), [shadow()]),
        spool.set_aside(quarantined, envelope(), [shadow()]),
        spool.take_back(queued, envelope("not@contoso.com")),
        spool.let_go([(queued, "t-1")]),
    )
    await spool.set_aside(number, envelope(), [shadow()])
    await spool.take_back(number, envelope())
    assert (spool.count, spool.kept_count) == (1, 0)
    assert everything_on_disk(spool) == {"message": 1, "content": 2}
    with pytest.raises(KeyError):
        await spool.envelope(number)
    assert (await spool.envelope(queued)).sender != "not@contoso.com"


async def test_a_removal_of_a_kept_message_is_none(spool: DiskSpool) -> None:
    number = await keep(spool, shadow(), LARGE)
    await spool.remove(number)
    assert await content_of(spool, number) == LARGE
    assert spool.kept_count == 1


async def test_what_is_asked_together_is_done_in_its_order(spool: DiskSpool) -> None:
    """In one transaction, there and back and there again."""
    number = await put(spool)
    spool.put("a", b"group of its own")
    spool.set_aside(number, envelope("1@x"), [shadow("t-1")])
    spool.update(number, envelope("2@x"))
    spool.take_back(number, envelope("3@x"))
    spool.update(number, envelope("4@x"))
    last = spool.set_aside(number, envelope("5@x"), [shadow("t-2")])
    assert (await spool.envelope(number)).sender == "5@x", "not yet on disk"
    await last
    assert (await spool.envelope(number)).sender == "5@x"
    assert await all_kept(spool) == [shadow("t-2", number)]
    assert (spool.count, spool.kept_count) == (0, 1)
    spool.let_go([(number, "t-2")])
    await spool.take_back(number, envelope("late@x"))
    assert everything_on_disk(spool) == {}


def test_a_group_is_parted_only_where_a_message_goes_back_on_its_way() -> None:
    """Few steps matter more than short ones."""
    there = [Move(Kind.SET_ASIDE, None, number, b"") for number in range(100)]
    done = [Change(Kind.UPDATE, None, 500, b""), Change(Kind.REMOVE, None, 501)]
    group = grouped([*done, *there, *done, Move(Kind.LET_GO, keys=[(7, "t")])])
    assert group.then is None
    group = grouped([*there, Move(Kind.TAKE_BACK, None, 99, b""), Change(Kind.UPDATE, None, 500, b"")])
    assert [len(list(step.updates)) for step in group.steps()] == [0, 1]


async def test_discard_events_outlive_the_process(tmp_path: Path) -> None:
    """exchange-facts 4.4: discard notifications are persisted."""
    spool = await opened(tmp_path)
    events = [Discarded(f"t-{n}", None, ["DB1"], 100.0 + n) for n in range(200)]
    await spool.note_discards("HUB-02", events)
    await spool.note_discards("HUB-03", [Discarded("z", [0, 2]), Discarded("a")])
    await spool.note_discards("HUB-03", [])
    await spool.close()
    spool = await opened(tmp_path)
    assert await spool.discards() == {"HUB-02": events, "HUB-03": [Discarded("z", [0, 2]), Discarded("a")]}
    spool.note_discards("HUB-03", [Discarded("z")])
    await spool.forget_discards("HUB-02", [event.token for event in events[1:]])
    assert await spool.discards() == {"HUB-02": events[:1], "HUB-03": [Discarded("a"), Discarded("z")]}
    spool.forget_discards("HUB-03", ["z"])
    await spool.note_discards("HUB-03", [Discarded("z", None, ["DB9"])])
    assert (await spool.discards())["HUB-03"][1].databases == ["DB9"], "noted after it was forgotten"
    await spool.close()


async def test_a_discard_event_is_durable_no_later_than_the_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of every transaction: what is removed has its event on disk."""
    spool = await opened(tmp_path)
    numbers = [await put(spool) for _ in range(20)]
    monkeypatch.setattr(spool._committer, "_group_changes", 3)
    seen: list[tuple[int, int]] = []
    apply = Database.apply

    def watched(database: Database, group: Group) -> Changed:
        changed = apply(database, group)
        counted = database.connection.execute("SELECT (SELECT count(*) FROM message), (SELECT count(*) FROM discard)")
        seen.append(tuple(counted.fetchall()[0]))  # type: ignore[arg-type]
        return changed

    monkeypatch.setattr(Database, "apply", watched)
    for number in numbers:
        spool.note_discards("HUB-02", [Discarded(f"t-{number}")])
        last = spool.remove(number)
    await last
    assert len(seen) > 5
    assert all(20 - left <= events for left, events in seen)
    await spool.close()


async def test_the_safety_net_is_found_by_database_and_time(tmp_path: Path) -> None:
    """exchange-facts 4.5: for a database and an interval."""
    spool = await opened(tmp_path)
    numbers = [await put(spool) for _ in range(4)]
    for number, at, databases in zip(numbers, (10.0, 20.0, 30.0, 40.0), (["A"], ["A", "B"], ["B"], ["A"]), strict=True):
        await spool.set_aside(number, delivered(*databases, at=at), [copy()])

    async def found(database: str, since: float, until: float) -> list[int]:
        return [one.number for one in await spool.kept_since(database, since, until)]

    assert await found("A", 0.0, 100.0) == [numbers[0], numbers[1], numbers[3]]
    assert await found("A", 20.0, 39.9) == [numbers[1]]
    assert await found("B", 20.0, 30.0) == [numbers[1], numbers[2]]
    assert await found("C", 0.0, 100.0) == []
    await spool.close()
    spool = await opened(tmp_path)
    await spool.take_back(numbers[1], envelope())
    assert await found("A", 0.0, 100.0) == [numbers[0], numbers[3]]
    assert await found("B", 0.0, 100.0) == [numbers[2]]
    await spool.close()


def test_queries_of_the_safety_net_go_by_an_index(tmp_path: Path) -> None:
    Layout(tmp_path).make()
    connection = Database(Layout(tmp_path)).connection

    def plan(statement: str, values: tuple[apsw.SQLiteValue, ...]) -> str:
        return "\n".join(str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + statement, values))

    for statement, values in (
        (keeping._SINCE, ("A", 1.0, 2.0)),
        (keeping._SHADOWS, (0, "", 10)),
        (keeping._SAFETY_NET, (0, 10)),
        (aside._EXPIRE, (1.0, 10)),
        (aside._FORSAKEN, ("[1]",)),
        (aside._unkeeping("shadow", 2), (1, "a", 2, "b")),
        (aside._unkeeping("safety_net", 2), (1, "a", 2, "b")),
        (aside._moving("message", "aside", 2), (1, b"", 2, b"")),
    ):
        found = plan(statement, values)
        assert not [line for line in found.split("\n") if line.startswith("SCAN") and line[5:].split()[0] in TABLES], (
            found
        )
        assert "TEMP B-TREE" not in found, found
    connection.close()


async def test_the_safety_net_expires_some_at_a_time(spool: DiskSpool) -> None:
    """exchange-facts 4.5: SafetyNetHoldTime."""
    numbers = [await put(spool, LARGE if n == 3 else SMALL) for n in range(10)]
    for n, number in enumerate(numbers):
        kept = [copy(100.0 + n)] if n else [copy(100.0), shadow()]
        await spool.set_aside(number, delivered("A", at=1.0), kept)
    assert not await spool.expire(99.0)
    assert spool.kept_count == 10
    assert await spool.expire(104.0, most=3)
    assert spool.kept_count == 8, "the first is still a shadow"
    first, second = await asyncio.gather(spool.expire(104.0), spool.expire(104.0))
    assert not first
    assert not second
    assert [one.number for one in await spool.kept_since("A", 0.0, 10.0)] == numbers[5:]
    assert await all_kept(spool) == [shadow(number=numbers[0])]
    assert await content_of(spool, numbers[0]) == SMALL
    await until(lambda: os.listdir(spool._opened.layout.content) == [])
    assert not await spool.expire(1e9)
    assert everything_on_disk(spool) == {"aside": 1, "content": 1, "shadow": 1}


async def test_a_keep_that_is_cancelled_takes_the_copy_back(spool: DiskSpool) -> None:
    writer = spool.writer(None)
    writer.write(SMALL)
    task = asyncio.ensure_future(spool.keep(writer, envelope(), shadow()))
    task.cancel()
    await spool.put("wait", b"")
    await spool.put("wait", None)
    assert everything_on_disk(spool) == {}
    assert spool.kept_count == 0


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


async def test_a_spool_of_the_first_version_is_brought_up(tmp_path: Path) -> None:
    """Made as it was made then: its messages, contents and facts stay, and the new tables work."""
    layout = Layout(tmp_path / "spool")
    layout.make()
    first = Schema(SCHEMA.what, SCHEMA.application_id, SCHEMA.migrations[:1])
    connection = open_for_writing(str(layout.database), first)
    connection.execute("INSERT INTO spool VALUES (1, 'ab12', 7, 1)")
    connection.close()
    blob = msgspec.msgpack.encode(envelope("old@contoso.com"))
    connection = apsw.Connection(str(layout.database))
    connection.execute("INSERT INTO message VALUES (3, ?)", (blob,))
    connection.execute("INSERT INTO content VALUES (3, ?, ?)", (crc32(SMALL), SMALL))
    connection.execute("INSERT INTO quarantined VALUES (4, ?, 'looks bad', 1.0)", (blob,))
    connection.close()
    spool = await opened(tmp_path)
    assert (spool.identity, spool.first_new_number, spool.count, spool.kept_count) == ("ab12", 7, 1, 0)
    assert await queue(spool) == [3]
    await spool.set_aside(3, envelope(), [shadow()])
    assert await content_of(spool, 3) == SMALL
    await spool.take_back(3, envelope())
    await spool.remove(3)
    assert everything_on_disk(spool) == {}
    assert [one.number for one in await spool.quarantined()] == [4]
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
