"""What it costs a hub to keep messages on disk: commits a second, cost by length of the queue, start of a long one.

    python benchmarks/spool.py [--sizes 5000,50000] [--writers 1,20] [--queued 0,100000] [--seconds S]
        [--directory D] [--json FILE]

Each writer commits a message, waits until it is on disk, and removes it, over and over, as a hub does whose mail goes
out at once. `per_second` are messages a second; `loop_us` is the processor time a message costs the event loop's
thread, `all_us` that of all threads, both in microseconds. `fdatasyncs_per_second` says what the disk gives one thread
that writes 4 KB at a time: one writer cannot be faster. `queued` repeats the first size with so many messages in the
spool already (of 1 kB each): the cost must not grow. For each such queue the spool is opened anew and all its envelopes
are read: `open_seconds`, `read_seconds`, and the most memory of that process over that of an empty spool. The goal is
8000 a second of 5 kB with 20 writers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

from gatepost.transport.message import Envelope, Recipient, Source
from gatepost.transport.spool.spool import DiskSpool

GOAL = 8000
GOAL_SIZE, GOAL_WRITERS = 5000, 20
QUEUED_SIZE = 1000
FILLERS = 500


def envelope() -> Envelope:
    """As a receive connection makes it."""
    source = Source("Default HUB-01", "192.0.2.17", "mail.fabrikam.com", "ESMTPS", tls="TLSv1.3 TLS_AES_256_GCM_SHA384")
    return Envelope(
        "alice@contoso.com",
        [Recipient("bob@fabrikam.com")],
        1_800_000_000.0,
        1_800_172_800.0,
        source=source,
        message_id="<20260101120000.4711@mail.fabrikam.com>",
        subject="Figures of the last quarter",
    )


def disk(directory: Path, seconds: float = 0.5) -> float:
    """Waits for the disk a second, one after another."""
    descriptor = os.open(directory / "probe", os.O_RDWR | os.O_CREAT)
    done = 0
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        os.pwrite(descriptor, bytes(4096), 4096 * (done % 100))
        os.fdatasync(descriptor)
        done += 1
    os.close(descriptor)
    return done / seconds


async def rate(spool: DiskSpool, size: int, writers: int, seconds: float) -> dict[str, float]:
    """Commit and remove for so long."""
    content = os.urandom(size)
    done = 0
    begun = time.perf_counter()

    async def write() -> None:
        nonlocal done
        while time.perf_counter() - begun < seconds:
            writer = spool.writer(size)
            writer.write(content)
            number = await spool.commit(writer, envelope())
            spool.remove(number)
            done += 1

    loop_cpu, all_cpu = time.thread_time(), time.process_time()
    await asyncio.gather(*(write() for _ in range(writers)))
    spent = time.perf_counter() - begun
    return {
        "per_second": round(done / spent),
        "loop_us": round(1e6 * (time.thread_time() - loop_cpu) / done, 1),
        "all_us": round(1e6 * (time.process_time() - all_cpu) / done, 1),
    }


async def fill(spool: DiskSpool, count: int) -> None:
    """So many messages more."""
    content = os.urandom(QUEUED_SIZE)

    async def write(number: int) -> None:
        for _ in range(number):
            writer = spool.writer(None)
            writer.write(content)
            await spool.commit(writer, envelope())

    await asyncio.gather(*(write(count // FILLERS + (n < count % FILLERS)) for n in range(FILLERS)))


def start(directory: Path, answer: Connection) -> None:
    """Open and read all envelopes, in a process of its own."""

    async def read() -> dict[str, float]:
        begun = time.perf_counter()
        spool = await DiskSpool.open(directory)
        opened = time.perf_counter()
        count = 0
        async for batch in spool.messages():
            count += len(batch)
        ended = time.perf_counter()
        await spool.close()
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"messages": count, "open": opened - begun, "read": ended - opened, "memory_kb": most}

    answer.send(uvloop.run(read()))


def started(directory: Path) -> dict[str, float]:
    """What `start` has found."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=start, args=(directory, theirs))
    process.start()
    found: dict[str, float] = ours.recv()
    process.join()
    return found


async def measure(wish: argparse.Namespace, directory: Path) -> dict[str, object]:
    """All figures but those of the start."""
    figures: dict[str, object] = {"fdatasyncs_per_second": round(disk(directory))}
    empty = started(directory / "spool")
    spool = await DiskSpool.open(directory / "spool")
    for size in wish.sizes:
        for writers in wish.writers:
            figures[f"{size}_bytes_{writers}_writers"] = await rate(spool, size, writers, wish.seconds)
    queued: dict[str, object] = {}
    figures["queued"] = queued
    for count in wish.queued:
        await fill(spool, count - spool.count)
        found: dict[str, float] = await rate(spool, wish.sizes[0], wish.writers[-1], wish.seconds)
        await spool.close()
        begun = await asyncio.to_thread(started, directory / "spool")
        found |= {
            "messages": begun["messages"],
            "open_seconds": round(begun["open"], 2),
            "read_seconds": round(begun["read"], 2),
            "memory_mb": round((begun["memory_kb"] - empty["memory_kb"]) / 1024, 1),
        }
        queued[str(count)] = found
        spool = await DiskSpool.open(directory / "spool")
    await spool.close()
    return figures


def numbers(text: str) -> list[int]:
    """`1,20`."""
    return [int(word) for word in text.split(",")]


def main() -> int:
    """Measure and print; exit status 1 when the goal is missed."""
    parser = argparse.ArgumentParser(description="What it costs to keep messages on disk.")
    parser.add_argument("--sizes", type=numbers, default=[GOAL_SIZE, 50_000])
    parser.add_argument("--writers", type=numbers, default=[1, GOAL_WRITERS])
    parser.add_argument("--queued", type=numbers, default=[0, 100_000])
    parser.add_argument("--seconds", type=float, default=2.0, help="of each rate")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on the disk to measure")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    wish = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="gp-spool-", dir=wish.directory))
    try:
        figures = uvloop.run(measure(wish, directory))
    finally:
        shutil.rmtree(directory)
    figures |= {"cores": len(os.sched_getaffinity(0)), "goal": GOAL}
    written = json.dumps(figures, indent=1)
    print(written)
    if wish.json:
        wish.json.write_text(written + "\n")
    reached = figures.get(f"{GOAL_SIZE}_bytes_{GOAL_WRITERS}_writers")
    return int(isinstance(reached, dict) and reached["per_second"] < GOAL)


if __name__ == "__main__":
    sys.exit(main())
