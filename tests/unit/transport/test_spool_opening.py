"""What a start makes of what a crash, a disk or somebody's hand left in the spool's directory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import apsw
import pytest
from spool_contract import LARGE, SMALL, put, read

from gatepost.store.sqlite import StoreUnavailable
from gatepost.transport.message import Envelope
from gatepost.transport.spool import in_hand
from gatepost.transport.spool.in_hand import InHand
from gatepost.transport.spool.layout import Layout, SpoolInUse
from gatepost.transport.spool.metering import Space
from gatepost.transport.spool.opening import MISSING, SHORT, UNREADABLE, SpoolDamaged
from gatepost.transport.spool.salvage import salvage
from gatepost.transport.spool.spool import DiskSpool, SpoolSettings

GB = 1024**3


async def opened(folder: Path) -> DiskSpool:
    space = Space(100 * GB, 50 * GB)
    return await DiskSpool.open(folder, SpoolSettings(reserve_bytes=4096), space=lambda: space)


async def everything(spool: DiskSpool) -> dict[int, Envelope]:
    return {number: found async for batch in spool.messages() for number, found in batch}


async def filled(folder: Path, *contents: bytes) -> list[int]:
    spool = await opened(folder)
    numbers = [await put(spool, content) for content in contents]
    await spool.close()
    return numbers


def change(folder: Path, statement: str, *values: apsw.SQLiteValue) -> None:
    connection = apsw.Connection(str(Layout(folder).database))
    connection.execute(statement, values)
    connection.close()


async def test_files_without_a_message_are_removed(tmp_path: Path) -> None:
    (large,) = await filled(tmp_path, LARGE)
    layout = Layout(tmp_path)
    layout.file(99).write_bytes(b"half a mess")
    (layout.content / "of somebody").write_bytes(b"")
    spool = await opened(tmp_path)
    assert os.listdir(layout.content) == [layout.file(large).name]
    assert spool.found.removed_files == 2
    assert await read(await spool.body(large)) == LARGE
    await spool.close()


@pytest.mark.parametrize("size", [0, 1, len(LARGE) - 1])
async def test_a_short_file_puts_its_message_aside(tmp_path: Path, size: int) -> None:
    """smtp-facts c.5 row 53."""
    bad, good, small = await filled(tmp_path, LARGE, LARGE, SMALL)
    layout = Layout(tmp_path)
    os.truncate(layout.file(bad), size)
    for _ in range(2):  # the second start finds nothing new
        spool = await opened(tmp_path)
        assert list(await everything(spool)) == [good, small]
        assert [(one.number, one.reason) for one in await spool.quarantined()] == [(bad, SHORT)]
        assert spool.count == 2
        with pytest.raises(KeyError):
            await spool.envelope(bad)
        found = spool.found.quarantined
        await spool.close()
    assert found == ()
    assert (layout.quarantine / layout.file(bad).name).stat().st_size == size


async def test_a_missing_file_puts_its_message_aside(tmp_path: Path) -> None:
    (bad,) = await filled(tmp_path, LARGE)
    Layout(tmp_path).file(bad).unlink()
    spool = await opened(tmp_path)
    assert spool.found.quarantined == ((bad, MISSING),)
    assert await everything(spool) == {}
    assert await put(spool, LARGE) > bad
    await spool.close()


@pytest.mark.parametrize("blob", [b"", b"\xc1", b"\x80", b"text"])
async def test_an_envelope_that_cannot_be_read_puts_its_message_aside(tmp_path: Path, blob: bytes) -> None:
    bad, good = await filled(tmp_path, SMALL, SMALL)
    change(tmp_path, "UPDATE message SET envelope = ? WHERE number = ?", blob, bad)
    spool = await opened(tmp_path)
    with pytest.raises(OSError, match=UNREADABLE):
        await spool.envelope(bad)
    assert list(await everything(spool)) == [good]
    await spool.put("wait", b"for the quarantine")
    assert [(one.number, one.reason) for one in await spool.quarantined()] == [(bad, UNREADABLE)]
    assert spool.count == 1
    await spool.close()


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
async def test_a_quarantined_message_is_taken_back_or_forgotten(tmp_path: Path, content: bytes) -> None:
    """As `Resume-Message` and `Remove-Message` do with poison messages."""
    back, gone, other = await filled(tmp_path, content, content, content)
    spool = await opened(tmp_path)
    for number in (back, gone):
        await spool.quarantine(number, "poison")
    await spool.remove(gone)
    assert [one.envelope.sender for one in await spool.quarantined() if one.envelope] == ["alice@contoso.com"] * 2
    assert await read(await spool.body(gone)) == content, "for whoever looks into it"
    await asyncio.gather(spool.resume(back), spool.resume(4711), spool.forget(gone), spool.forget(other))
    assert (await spool.envelope(back)).sender == "alice@contoso.com"
    assert (spool.count, await spool.quarantined()) == (2, [])
    with pytest.raises(KeyError):
        await spool.body(gone)
    await spool.close()
    spool = await opened(tmp_path)
    assert list(await everything(spool)) == [back, other]
    for number in (back, other):
        assert await read(await spool.body(number)) == content
    assert len(os.listdir(Layout(tmp_path).content)) == (2 if content is LARGE else 0)
    await spool.close()


async def test_a_small_content_that_is_missing_is_a_fault_of_its_message(tmp_path: Path) -> None:
    bad, good = await filled(tmp_path, SMALL, SMALL)
    change(tmp_path, "DELETE FROM content WHERE number = ?", bad)
    spool = await opened(tmp_path)
    with pytest.raises(OSError, match="no content"):
        await spool.body(bad)
    await spool.quarantine(bad, "no content")
    assert await read(await spool.body(good)) == SMALL
    with pytest.raises(KeyError):
        await spool.envelope(bad)
    await spool.close()


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
async def test_a_content_that_is_not_as_it_was_written_is_never_sent(tmp_path: Path, content: bytes) -> None:
    (bad,) = await filled(tmp_path, content)
    changed = content[:-1] + b"?"
    if content is SMALL:
        change(tmp_path, "UPDATE content SET body = ? WHERE number = ?", changed, bad)
    else:
        Layout(tmp_path).file(bad).write_bytes(changed)
    spool = await opened(tmp_path)
    sent = []

    async def send() -> None:
        body = await spool.body(bad)
        try:
            async for chunk in body.chunks():
                sent.append(chunk)  # noqa: PERF401 - what came before the fault counts
        finally:
            body.close()

    with pytest.raises(OSError, match="not as it was written"):
        await send()
    assert len(b"".join(sent)) < len(content), "whoever sends stops before the end"
    await spool.close()


async def test_a_quarantined_message_keeps_its_content(tmp_path: Path) -> None:
    small, large = await filled(tmp_path, SMALL, LARGE)
    for _ in range(2):
        spool = await opened(tmp_path)
        await spool.quarantine(small, "poison")
        await spool.quarantine(large, "poison")
        await spool.quarantine(4711, "nobody")
        assert (await everything(spool), spool.count) == ({}, 0)
        await spool.close()
    assert Layout(tmp_path).file(large).read_bytes() == LARGE
    connection = apsw.Connection(str(Layout(tmp_path).database))
    assert connection.execute("SELECT number, body FROM content").fetchall() == [(small, SMALL)]
    assert connection.execute("SELECT number FROM quarantined").fetchall() == [(small,), (large,)]
    connection.close()


def killed_with(folder: Path, *numbers: int) -> None:
    """Marks as a process leaves them that is killed with these messages in hand."""
    path = Layout(folder).in_hand
    hand = InHand(path)
    with ExitStack() as marks:
        for number in numbers:
            marks.enter_context(hand.mark(number))
        left = path.read_bytes()
    hand.close()
    path.write_bytes(left)


async def test_messages_in_hand_when_the_process_died_are_counted(tmp_path: Path) -> None:
    """exchange-facts 4.6: poison messages."""
    innocent, guilty = await filled(tmp_path, SMALL, SMALL)
    for crashes in (1, 2):
        killed_with(tmp_path, guilty, 4711)
        spool = await opened(tmp_path)
        assert spool.found.suspects == (guilty,)
        assert {n: e.crashes for n, e in (await everything(spool)).items()} == {innocent: 0, guilty: crashes}
        await spool.close()
    spool = await opened(tmp_path)
    assert spool.found.suspects == ()
    await spool.close()


async def test_marks_of_an_earlier_boot_are_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut is no message's fault."""
    (number,) = await filled(tmp_path, SMALL)
    killed_with(tmp_path, number)
    boot = tmp_path / "boot"
    boot.write_text("another-boot\n")
    monkeypatch.setattr(in_hand, "_BOOT", boot)
    spool = await opened(tmp_path)
    assert spool.found.suspects == ()
    await spool.close()


async def test_a_torn_file_of_marks_is_ignored(tmp_path: Path) -> None:
    (number,) = await filled(tmp_path, SMALL)
    killed_with(tmp_path, number)
    os.truncate(Layout(tmp_path).in_hand, 100)
    spool = await opened(tmp_path)
    assert spool.found.suspects == ()
    await spool.close()


async def test_numbers_are_not_used_again_after_a_crash(tmp_path: Path) -> None:
    (last,) = await filled(tmp_path, SMALL)
    change(tmp_path, "UPDATE spool SET closed = 0, next = next + 1000000")  # as it is while the spool is open
    spool = await opened(tmp_path)
    assert not spool.found.closed_well
    assert await put(spool) > last + 1_000_000
    await spool.close()


def overwrite(first: float, last: float) -> Callable[[Path], None]:
    """Damage these parts of the file's length."""

    def damage(path: Path) -> None:
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.seek(int(first * size))
            file.write(b"\xa5" * (int(last * size) - int(first * size)))

    return damage


@pytest.mark.parametrize(
    "damage",
    [overwrite(0.0, 0.01), overwrite(0.0, 1.0), lambda path: os.truncate(path, 5 * 4096)],
    ids=["head", "all", "cut"],
)
async def test_a_damaged_database_is_refused_with_the_way_on(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    await filled(tmp_path, *[SMALL * 100] * 100)
    damage(Layout(tmp_path).database)
    for _ in range(2):  # and the directory is not left locked
        with pytest.raises(SpoolDamaged, match=r"damaged .* aside, start the hub.* salvage"):
            await opened(tmp_path)


async def test_salvage_takes_what_can_be_read(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    contents = [b"%d\r\n" % number * 1000 for number in range(600)]
    contents[5] = LARGE
    await filled(old, *contents)
    overwrite(0.5, 0.51)(Layout(old).database)
    kept = await filled(new, b"already there")
    saved = salvage(old, new)
    assert 0 < len(saved.lost) < 40
    assert saved.taken == 600 - len(saved.lost)
    spool = await opened(new)
    numbers = [number for number in await everything(spool) if number not in kept]
    wanted = [content for number, content in enumerate(contents, 1) if number not in saved.lost]
    assert [await read(await spool.body(number)) for number in numbers] == wanted
    assert await put(spool) > max(numbers)
    await spool.close()


async def test_salvage_of_what_is_no_database(tmp_path: Path) -> None:
    await filled(tmp_path / "old", SMALL)
    overwrite(0.0, 1.0)(Layout(tmp_path / "old").database)
    with pytest.raises(StoreUnavailable):
        salvage(tmp_path / "old", tmp_path / "new")


async def test_salvage_leaves_out_a_message_without_its_whole_file(tmp_path: Path) -> None:
    _, bad = await filled(tmp_path / "old", LARGE, LARGE)
    os.truncate(Layout(tmp_path / "old").file(bad), 10)
    saved = salvage(tmp_path / "old", tmp_path / "new")
    assert (saved.taken, saved.lost) == (1, (bad,))


async def test_salvage_of_a_spool_in_use(tmp_path: Path) -> None:
    spool = await opened(tmp_path / "old")
    with pytest.raises(SpoolInUse):
        salvage(tmp_path / "old", tmp_path / "new")
    await spool.close()
    with pytest.raises(SpoolInUse):
        salvage(tmp_path / "old", tmp_path / "old")


async def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Not a directory"):
        await opened(tmp_path / "file" / "spool")


async def test_the_spool_is_its_owners_alone(tmp_path: Path) -> None:
    await filled(tmp_path / "spool", LARGE)
    for path in [tmp_path / "spool", *(tmp_path / "spool").rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
