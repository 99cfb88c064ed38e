"""Messages that move between queue, shadows and safety net, in a process that is killed at any moment.

GATEPOST_SPOOL_KILLS=200 pytest tests/integration/test_spool_keeping_processes.py
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import apsw
import pytest
from spool_contract import envelope, read

from gatepost.transport.ports import SpoolFull
from gatepost.transport.shadow.ports import Kept, Role
from gatepost.transport.spool.layout import Layout
from gatepost.transport.spool.spool import DiskSpool, SpoolSettings
from gatepost.wire.shadow_messages import Discarded

pytestmark = pytest.mark.integration

KILLS = int(os.environ.get("GATEPOST_SPOOL_KILLS", "20"))
DEADLINE_SECONDS = 60
MB = 1024 * 1024
QUEUE, SHADOW, NET, GONE = "queue", "shadow", "net", "gone"

HUB = """
import asyncio, random, sys
from pathlib import Path
import uvloop
from gatepost.transport.message import Envelope, Recipient
from gatepost.transport.shadow.ports import Kept, Role
from gatepost.transport.spool.spool import DiskSpool, SpoolSettings
from gatepost.wire.shadow_messages import Discarded

WAYS = {"queue": ("shadow", "net", "gone"), "shadow": ("queue", "net", "gone"), "net": ("gone", "queue")}

def say(line):
    sys.stdout.write(line + chr(10))
    sys.stdout.flush()

async def client(spool, rng):
    while True:
        size = rng.choice((10, 5000, 60_000, 70_000))
        seed = rng.randrange(256)
        envelope = Envelope(f"{seed}-{size}@contoso.com", [Recipient("b@x")], 1.0, 2.0, databases=["DB"], delivered=7.0)
        writer = spool.writer(None)
        writer.write(bytes([seed]) * size)
        shadow, net = Kept(0, Role.SHADOW, "t", "HUB-02", "ab", 9.0), Kept(0, Role.SAFETY_NET, "net", "", "", 8.0)
        at = rng.choice(("queue", "shadow"))
        number = await (spool.commit(writer, envelope) if at == "queue" else spool.keep(writer, envelope, shadow))
        say(f"{number} is {at} {envelope.sender}")
        for _ in range(rng.randrange(6)):
            to = rng.choice(WAYS[at])
            say(f"{number} to {to}")
            if to == "gone":
                spool.note_discards("HUB-02", [Discarded(str(number))])
            if to == "queue":
                await spool.take_back(number, envelope)
            elif to == "gone" and at == "queue":
                await spool.remove(number)
            elif to == "gone":
                await spool.let_go([(number, "t" if at == "shadow" else "net")])
            else:
                await spool.set_aside(number, envelope, [shadow if to == "shadow" else net])
            say(f"{number} is {to} {envelope.sender}")
            at = to
            if at == "gone":
                break

async def main():
    spool = await DiskSpool.open(Path(sys.argv[1]), SpoolSettings(reserve_bytes=4096, recent_bytes=100_000))
    say("open")
    await asyncio.gather(*(client(spool, random.Random(int(sys.argv[2]) * 100 + n)) for n in range(12)))

uvloop.run(main())
"""


def said_until_killed(folder: Path, seed: int, seconds: float) -> list[str]:
    """Whole lines that the hub has said."""
    hub = subprocess.Popen(
        [sys.executable, "-c", HUB, folder, str(seed)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert hub.stdout is not None
    assert hub.stderr is not None
    said = b""
    try:
        assert hub.stdout.readline() == b"open\n", hub.stderr.read()
        os.set_blocking(hub.stdout.fileno(), False)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(0.005)
            with suppress(BlockingIOError):
                said += os.read(hub.stdout.fileno(), 1 << 20)
        assert hub.poll() is None, hub.stderr.read()
    finally:
        hub.send_signal(signal.SIGKILL)
        hub.wait(DEADLINE_SECONDS)
    while True:
        try:
            more = os.read(hub.stdout.fileno(), 1 << 20)
        except BlockingIOError:
            break
        if not more:
            break
        said += more
    hub.communicate()
    return said.decode().split("\n")[:-1]


async def check(folder: Path, where: dict[int, str], sender: dict[int, str], perhaps: dict[int, str]) -> dict[int, str]:
    """Everything is where it was said to be, whole and nowhere else; where it is now."""
    spool = await DiskSpool.open(folder, SpoolSettings(reserve_bytes=4096, recent_bytes=0))
    assert spool.found.quarantined == ()
    found: dict[int, list[str]] = {}
    async for batch in spool.messages():
        for number, _ in batch:
            found.setdefault(number, []).append(QUEUE)
    for role, word in ((Role.SHADOW, SHADOW), (Role.SAFETY_NET, NET)):
        async for kept in spool.kept(role):
            for one in kept:
                found.setdefault(one.number, []).append(word)
    assert sorted(one.number for one in await spool.kept_since("DB", 7.0, 7.0)) == sorted(
        number for number, places in found.items() if places == [NET]
    )
    events = {event.token for each in (await spool.discards()).values() for event in each}
    large = 0
    for number, places in found.items():
        assert len(places) == 1, f"{number} is in {places}"
        known = await spool.envelope(number)
        seed, size = known.sender.partition("@")[0].split("-")
        assert await read(await spool.body(number)) == bytes([int(seed)]) * int(size)
        assert sender.get(number, known.sender) == known.sender
        large += int(size) > 64 * 1024
    for number, place in where.items():
        now = found.get(number, [GONE])[0]
        assert now in {place, perhaps.get(number, place)}, f"{number}: {place} to {perhaps.get(number)}, is {now}"
        assert now != GONE or str(number) in events, "the event is on disk no later"
    queued = sum(places == [QUEUE] for places in found.values())
    assert (spool.count, spool.kept_count) == (queued, len(found) - queued)
    assert len(os.listdir(Layout(folder).content)) == large, "no orphans"
    await spool.close()
    connection = apsw.Connection(str(Layout(folder).database))
    rows: list[tuple[int]] = connection.execute("SELECT count(*) FROM content").fetchall()  # type: ignore[assignment]
    connection.close()
    assert rows[0][0] == len(found) - large
    return {number: places[0] for number, places in found.items()}


async def test_killed_while_messages_are_kept(scratch_disk: Path) -> None:
    """SPEC S1, S2: a copy that was promised is there, and a message is in one place, whole."""
    rng = random.Random(KILLS)
    folder = scratch_disk / "spool"
    where: dict[int, str] = {}
    sender: dict[int, str] = {}
    moves = 0
    for kill in range(KILLS):
        perhaps: dict[int, str] = {}
        for line in said_until_killed(folder, kill, rng.uniform(0.0, 0.3)):
            number, verb, place, *rest = line.split()
            if verb == "to":
                perhaps[int(number)] = place
            else:
                where[int(number)] = place
                sender[int(number)] = rest[0]
                perhaps.pop(int(number), None)
                moves += 1
        now = await check(folder, where, sender, perhaps)
        where = now if kill % 5 else {}
        if not where:
            sender.clear()
            shutil.rmtree(folder)
    assert moves > 20 * KILLS


@pytest.mark.parametrize("size", [5000, 300_000])
async def test_a_full_disk_refuses_copies_and_lets_go_of_them(tmpfs: Path, size: int) -> None:
    """smtp-facts c.5 row 54, for shadows: what is known moves on, on the reserve's room."""
    settings = SpoolSettings(reserve_bytes=2 * MB, min_free_bytes=1, recent_bytes=0)
    spool = await DiskSpool.open(tmpfs / "spool", settings)
    (tmpfs / "ballast").write_bytes(bytes(10 * MB))
    numbers: list[int] = []
    refused = 0

    async def other_hub() -> None:
        nonlocal refused
        while refused < 30:
            try:
                writer = spool.writer(None)
                writer.write(b"x" * size)
                await writer.drain()
                numbers.append(await spool.keep(writer, envelope(), Kept(0, Role.SHADOW, "t", "HUB-02", "ab", 9.0)))
            except SpoolFull:
                refused += 1
                await asyncio.sleep(0.005)

    async with asyncio.timeout(DEADLINE_SECONDS):
        await asyncio.gather(*(other_hub() for _ in range(6)))
    taken, gone, net = numbers[::3], numbers[1::3], numbers[2::3]
    copy = Kept(0, Role.SAFETY_NET, "net", "", "", 8.0)
    async with asyncio.timeout(DEADLINE_SECONDS):
        await asyncio.gather(
            spool.note_discards("HUB-02", [Discarded(str(number)) for number in gone]),
            spool.let_go([(number, "t") for number in gone]),
            *(spool.take_back(number, envelope()) for number in taken),
            *(spool.set_aside(number, envelope(), [copy]) for number in net),
        )
        assert not await spool.expire(8.0)
    assert (spool.count, spool.kept_count) == (len(taken), 0)
    for number in taken[::10]:
        assert await read(await spool.body(number)) == b"x" * size
    (tmpfs / "ballast").unlink()
    await spool.close()
    spool = await DiskSpool.open(tmpfs / "spool", settings)
    assert (spool.count, spool.kept_count, spool.found.quarantined) == (len(taken), 0, ())
    assert len((await spool.discards())["HUB-02"]) == len(gone)
    await spool.close()
