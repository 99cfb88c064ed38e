"""A spool among real processes and on real file systems: killed at any moment, shared by mistake, full, failing.

GATEPOST_SPOOL_KILLS=200 pytest tests/integration/test_spool_processes.py -k killed
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from doors import REQUIRED
from spool_contract import SMALL, SpoolContract, envelope, put, read

from gatepost.balancing.back_pressure import Pressure
from gatepost.transport.ports import SpoolFull
from gatepost.transport.spool.layout import Layout
from gatepost.transport.spool.spool import DiskSpool, SpoolSettings

pytestmark = pytest.mark.integration

KILLS = int(os.environ.get("GATEPOST_SPOOL_KILLS", "30"))
DEADLINE_SECONDS = 60
MB = 1024 * 1024

HUB = """
import asyncio, random, sys
from pathlib import Path
import uvloop
from gatepost.transport.message import Envelope, Recipient
from gatepost.transport.spool.spool import DiskSpool, SpoolSettings

async def client(spool, rng):
    while True:
        size = rng.choice((10, 300, 5000, 60_000, 70_000, 300_000))
        writer = spool.writer(None)
        seed = rng.randrange(256)
        writer.write(bytes([seed]) * size)
        if writer.full:
            await writer.drain()
        number = await spool.commit(writer, Envelope(f"{seed}-{size}@contoso.com", [Recipient("b@x")], 1.0, 2.0))
        say(f"+{number} {seed}-{size}@contoso.com 0")
        kept = rng.random()
        if kept < 0.6:
            envelope = await spool.envelope(number)
            envelope.recipients[0].attempts = 7
            with spool.in_hand(number):
                await spool.update(number, envelope)
            say(f"+{number} {seed}-{size}@contoso.com 7")
        if kept < 0.4:
            say(f"?{number}")
            await spool.remove(number)
            say(f"-{number}")
        if kept > 0.9:
            writer = spool.writer(None)
            writer.write(bytes(200_000))
            await asyncio.sleep(0.001)
            writer.discard()

def say(line):
    sys.stdout.write(line + chr(10))
    sys.stdout.flush()

async def main():
    spool = await DiskSpool.open(Path(sys.argv[1]), SpoolSettings(reserve_bytes=4096, recent_bytes=100_000))
    say("open")
    await asyncio.gather(*(client(spool, random.Random(int(sys.argv[2]) * 100 + n)) for n in range(12)))

uvloop.run(main())
"""


class Told:
    """What a hub has said of its messages before it was killed."""

    def __init__(self) -> None:
        self.there: dict[int, tuple[str, int]] = {}
        """Acknowledged, with sender and number of attempts at least."""
        self.perhaps: set[int] = set()
        """Being removed when it died."""
        self.gone: set[int] = set()
        self.highest = 0

    def hear(self, line: str) -> None:
        kind, words = line[0], line[1:].split()
        number = int(words[0])
        self.highest = max(self.highest, number)
        if kind == "+":
            self.there[number] = (words[1], int(words[2]))
        elif kind == "?":
            self.perhaps.add(number)
        else:
            self.perhaps.discard(number)
            self.there.pop(number)
            self.gone.add(number)


def run_and_kill(folder: Path, seed: int, seconds: float, told: Told) -> None:
    hub = subprocess.Popen(
        [sys.executable, "-c", HUB, folder, str(seed)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert hub.stdout is not None
    assert hub.stderr is not None
    try:
        assert hub.stdout.readline() == "open\n", hub.stderr.read()
        os.set_blocking(hub.stdout.fileno(), False)
        deadline = time.monotonic() + seconds
        said = b""
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 0.01))
            said += read_now(hub.stdout.fileno())
        assert hub.poll() is None, hub.stderr.read()
    finally:
        hub.send_signal(signal.SIGKILL)
        hub.wait(DEADLINE_SECONDS)
    while more := read_now(hub.stdout.fileno()):
        said += more
    hub.communicate()
    for line in said.decode().split("\n")[:-1]:  # behind the last line end is what a write was killed in
        told.hear(line)


def start_and_kill(folder: Path, seconds: float) -> None:
    hub = subprocess.Popen(
        [sys.executable, "-c", HUB, folder, "2"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(seconds)
    hub.kill()
    hub.wait(DEADLINE_SECONDS)


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS)


def read_now(descriptor: int) -> bytes:
    with suppress(BlockingIOError):
        return os.read(descriptor, 1 << 20)
    return b""


async def check(folder: Path, told: Told, before: set[int]) -> set[int]:
    """Everything acknowledged is there and whole, nothing removed is; what is there now."""
    spool = await DiskSpool.open(folder, SpoolSettings(reserve_bytes=4096, recent_bytes=0))
    assert spool.found.quarantined == ()
    found = {number: one async for batch in spool.messages() for number, one in batch}
    assert spool.count == len(found)
    assert told.there.keys() - told.perhaps <= found.keys()
    assert not told.gone & found.keys()
    for number, (sender, attempts) in told.there.items():
        if number in found:
            assert found[number].sender == sender
            assert found[number].recipients[0].attempts >= attempts
    with_file = 0
    for number, one in found.items():
        seed, size = one.sender.partition("@")[0].split("-")
        if number not in before:
            assert await read(await spool.body(number)) == bytes([int(seed)]) * int(size)
        with_file += int(size) > 64 * 1024
    assert len(os.listdir(Layout(folder).content)) == with_file, "no orphans"
    number = await put(spool)
    assert number > max(told.highest, *found), "no number is used again"
    await spool.remove(number)
    known = set(found)
    if len(known) > 3000:
        await asyncio.gather(*(spool.remove(number) for number in known))
        told.there.clear()
        known = set()
    await spool.close()
    return known


async def test_killed_at_any_moment(scratch_disk: Path) -> None:
    """SPEC T2: kill -9 at any moment loses none."""
    rng = random.Random(KILLS)
    told = Told()
    before: set[int] = set()
    for kill in range(KILLS):
        run_and_kill(scratch_disk / "spool", kill, rng.uniform(0.0, 0.3), told)
        before = await check(scratch_disk / "spool", told, before)
        told.perhaps.clear()
        told.there = {number: what for number, what in told.there.items() if number in before}
    assert len(told.gone) > 10 * KILLS


async def test_killed_while_it_starts(scratch_disk: Path) -> None:
    told = Told()
    run_and_kill(scratch_disk / "spool", 1, 0.3, told)
    for number in range(8):
        start_and_kill(scratch_disk / "spool", 0.1 + 0.03 * number)
    spool = await DiskSpool.open(scratch_disk / "spool", SpoolSettings(reserve_bytes=4096))
    found = {number async for batch in spool.messages() for number, _ in batch}
    assert told.there.keys() - told.perhaps <= found
    assert not told.gone & found
    await spool.close()


async def test_a_message_that_kills_the_process_is_found(tmp_path: Path) -> None:
    """exchange-facts 4.6: the third start knows which one it was."""
    spool = await DiskSpool.open(tmp_path, SpoolSettings(reserve_bytes=4096))
    innocent, guilty = await put(spool), await put(spool)
    await spool.close()
    program = f"""
        import asyncio, os, signal
        from pathlib import Path
        from gatepost.transport.spool.spool import DiskSpool, SpoolSettings
        async def main():
            spool = await DiskSpool.open(Path({str(tmp_path)!r}), SpoolSettings(reserve_bytes=4096))
            async for batch in spool.messages():
                for number, _ in batch:
                    with spool.in_hand(number):
                        if number == {guilty}:
                            os.kill(os.getpid(), signal.SIGKILL)
        asyncio.run(main())
    """
    for _ in range(2):
        died = run(sys.executable, "-c", textwrap.dedent(program))
        assert died.returncode == -signal.SIGKILL
    spool = await DiskSpool.open(tmp_path, SpoolSettings(reserve_bytes=4096))
    assert spool.found.suspects == (guilty,)
    assert [(await spool.envelope(number)).crashes for number in (innocent, guilty)] == [0, 2]
    await spool.close()


async def test_two_hubs_on_one_spool(tmp_path: Path) -> None:
    spool = await DiskSpool.open(tmp_path, SpoolSettings(reserve_bytes=4096))
    number = await put(spool)
    other = run(sys.executable, "-c", HUB, tmp_path, "1")
    assert other.returncode != 0
    assert f"another hub has this spool (process {os.getpid()}); each needs its own" in other.stderr
    assert await read(await spool.body(number)) == SMALL
    await spool.close()


class TestSpoolOnSmallFileSystem(SpoolContract):
    @pytest.fixture
    async def spool(self, tmpfs: Path) -> AsyncIterator[DiskSpool]:
        spool = await DiskSpool.open(tmpfs / "spool", SpoolSettings(reserve_bytes=MB, min_free_bytes=4 * MB))
        yield spool
        await spool.close()


@pytest.mark.parametrize("size", [5000, 60_000, 300_000])
async def test_a_full_disk_and_room_again(tmpfs: Path, size: int) -> None:
    """smtp-facts c.5 row 54: refused before or during the message, removals and reads go on, and it recovers."""
    folder = tmpfs / "spool"
    spool = await DiskSpool.open(folder, SpoolSettings(reserve_bytes=2 * MB, min_free_bytes=1, recent_bytes=0))
    (tmpfs / "ballast").write_bytes(bytes(10 * MB))
    numbers: list[int] = []
    refused = 0

    async def client() -> None:
        nonlocal refused
        while refused < 30:
            try:
                writer = spool.writer(None)  # who announces nothing is not refused before
                writer.write(b"x" * size)
                await writer.drain()
                numbers.append(await spool.commit(writer, envelope()))
            except SpoolFull:
                refused += 1
                await asyncio.sleep(0.005)

    async with asyncio.timeout(DEADLINE_SECONDS):
        await asyncio.gather(*(client() for _ in range(6)))
    assert numbers
    assert spool.pressure is Pressure.HIGH or await spool.meter() is Pressure.HIGH
    for number in numbers[::10]:
        assert await read(await spool.body(number)) == b"x" * size
    async with asyncio.timeout(DEADLINE_SECONDS):
        await asyncio.gather(*(spool.remove(number) for number in numbers[::2]))
    left = numbers[1::2]
    assert spool.count == len(left)
    if size > 64 * 1024:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(os.listdir(folder / "content")) != len(left):  # noqa: ASYNC110 - no event for this
                await asyncio.sleep(0.01)
    (tmpfs / "ballast").unlink()
    await recovered(spool)
    left.append(await put(spool, b"y" * size))
    await spool.close()
    spool = await DiskSpool.open(folder, SpoolSettings(reserve_bytes=2 * MB, min_free_bytes=1))
    assert [number async for batch in spool.messages() for number, _ in batch] == sorted(left)
    assert await read(await spool.body(left[-1])) == b"y" * size
    assert spool.found.removed_files == 0
    await spool.close()


async def test_start_on_a_full_disk(tmpfs: Path) -> None:
    folder = tmpfs / "spool"
    spool = await DiskSpool.open(folder, SpoolSettings(reserve_bytes=2 * MB, min_free_bytes=1))
    numbers = [await put(spool, b"x" * 20_000) for _ in range(100)]
    await spool.close()
    fill(tmpfs / "ballast")
    spool = await DiskSpool.open(folder, SpoolSettings(reserve_bytes=2 * MB, min_free_bytes=1))
    assert spool.pressure is Pressure.HIGH
    for number in numbers:
        assert await read(await spool.body(number)) == b"x" * 20_000
        await spool.remove(number)
    (tmpfs / "ballast").unlink()
    await recovered(spool)
    await put(spool)
    await spool.close()


async def recovered(spool: DiskSpool) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while await spool.meter() is not Pressure.NORMAL:  # noqa: ASYNC110 - metered by itself every two seconds only
            await asyncio.sleep(0.05)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    assert shutil.disk_usage(path.parent).free == 0


FAILING = """
import asyncio, sys
from pathlib import Path
from gatepost.transport.ports import SpoolFull
from gatepost.transport.message import Envelope, Recipient
from gatepost.transport.spool.spool import DiskSpool, SpoolSettings

async def main():
    spool = await DiskSpool.open(Path(sys.argv[1]), SpoolSettings(reserve_bytes=4096))
    refused = 0
    for n in range(60):
        size = (100, 100_000)[n % 2]
        try:
            writer = spool.writer(None)
            writer.write(bytes([n]) * size)
            number = await spool.commit(writer, Envelope(f"{n}-{size}@contoso.com", [Recipient("b@x")], 1.0, 2.0))
            print(f"+{number} {n}-{size}@contoso.com 0", flush=True)
        except (OSError, SpoolFull) as fault:
            refused += 1
            await spool.meter()
            await asyncio.sleep(0.02)
    print(f"refused {refused}", flush=True)
    await spool.close()

asyncio.run(main())
"""


async def test_a_disk_whose_syncs_fail(scratch_disk: Path) -> None:
    """smtp-facts c.4 row 41: what was acknowledged is there, though every seventh wait for the disk fails."""
    strace = shutil.which("strace")
    if strace is None:
        if REQUIRED:
            pytest.fail("strace is missing: apt-get install -y strace")
        pytest.skip("strace is missing: apt-get install -y strace")
    (scratch_disk / "spool").mkdir()
    failing = ("-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=40+7")
    program = (sys.executable, "-c", FAILING, scratch_disk / "spool")
    ended = run(strace, "-f", "-qq", "-o", "/dev/null", *failing, *program)
    if "ptrace" in ended.stderr and not ended.stdout:
        pytest.skip(f"strace may not trace here: {ended.stderr.strip()}")
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert int(lines[-1].removeprefix("refused ")) > 0
    told = Told()
    for line in lines[:-1]:
        told.hear(line)
    assert len(told.there) > 10
    await check(scratch_disk / "spool", told, set())
