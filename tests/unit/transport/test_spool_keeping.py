"""What the spool keeps beside its queue: shadows, safety net, discard events (SPEC S1, S2; exchange-facts 4.4, 4.5)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest
from keeping_stage import (
    BOTH,
    TABLES,
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

from gatepost.transport.shadow.ports import Role
from gatepost.transport.spool import aside, keeping
from gatepost.transport.spool.changes import Change, Kind, Move, grouped
from gatepost.transport.spool.database import Changed, Database, Group
from gatepost.transport.spool.layout import Layout
from gatepost.transport.spool.spool import DiskSpool
from gatepost.wire.shadow_messages import Discarded


@pytest.fixture
async def spool(tmp_path: Path) -> AsyncIterator[DiskSpool]:
    spool = await opened(tmp_path)
    yield spool
    await spool.close()


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
    assert everything_on_disk(spool) == {"aside": 1, "content": 1, "safety_net": 1, "delivery": 1}


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
    until = copy().until
    assert [row[:2] for row in await spool.safety_net_sums()] == [("A", 3), ("B", 2)]
    assert {row[3] for row in await spool.safety_net_sums()} == {until}
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
