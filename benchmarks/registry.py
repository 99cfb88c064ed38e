"""How long it takes until every worker knows that a database has moved.

    python benchmarks/registry.py [--engine sqlite|etcd-1|etcd-3|all] [--watchers N] [--moves N] [--databases N]
        [--json FILE]

Watchers are processes of their own, each with a worker's event loop and `watch_registry`. Another process activates a
copy, waits until all have seen it and a random moment more, and activates the next. A figure is the time from the end
of `Registry.activate`, when the operator is told "activated", to the moment at which the last watcher's callback ran;
`call` is how long `activate` itself took. All processes read the same monotonic clock. etcd runs on this machine with
the timing of the lab, and etcd-3 has three members. The goal is a p99 under 100 ms with 8 watchers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path

import uvloop

from gatepost.activemanager.open import open_registry, watch_registry
from gatepost.activemanager.port import OwnedRegistry, RegistryView
from gatepost.configuration.settings import EtcdSettings, FrontEnd
from gatepost.lab.servers.etcd import EtcdCluster
from gatepost.lab.servers.process import ServerMissing

GOAL_MILLISECONDS = 100
MOVED = "DB00000"
ENGINES = ("sqlite", "etcd-1", "etcd-3")
ADDRESS = "127.0.57.1"
SEEN_SECONDS = 20.0
"""For all watchers to know; then something is broken."""


def watcher(front_end: FrontEnd, told: Connection) -> None:
    """Send the time at which each epoch of the moved database was seen; ends when the other side closes."""

    async def follow() -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(told.fileno(), ended.set)  # nothing is ever sent to us: readable is closed
        watch = watch_registry(front_end, loop)
        known = 0

        def changed(view: RegistryView) -> None:
            nonlocal known
            now = view.active.get(MOVED)
            if now is not None and now.epoch > known:
                known = now.epoch
                told.send((known, time.monotonic()))

        watch.on_change(changed)
        watch.start()
        await ended.wait()
        loop.remove_reader(told.fileno())
        watch.close()
        await asyncio.sleep(0.05)

    uvloop.run(follow())


@contextmanager
def watchers(front_end: FrontEnd, count: int) -> Iterator[list[Connection]]:
    """So many watchers, from the first to the last moment of the block."""
    context = multiprocessing.get_context("spawn")
    processes, ends = [], []
    for _ in range(count):
        ours, theirs = context.Pipe()
        process = context.Process(target=watcher, args=(front_end, theirs))
        process.start()
        theirs.close()
        processes.append(process)
        ends.append(ours)
    try:
        yield ends
    finally:
        for end in ends:
            end.close()
        for process in processes:
            process.join(SEEN_SECONDS)


def seen_by_all(ends: list[Connection], epoch: int) -> float:
    """The moment at which the last one saw the epoch. Raises SystemExit when one does not."""
    missing, last = set(ends), 0.0
    deadline = time.monotonic() + SEEN_SECONDS
    while missing:
        ready = wait(list(missing), timeout=max(0.0, deadline - time.monotonic()))
        if not ready:
            sys.exit(f"{len(missing)} watchers do not know epoch {epoch} after {SEEN_SECONDS:.0f} s")
        for end in ready:
            assert isinstance(end, Connection)
            known, moment = end.recv()
            if known >= epoch:
                missing.discard(end)
                last = max(last, moment)
    return last


def measure(front_end: FrontEnd, count: int, moves: int, databases: int) -> dict[str, float]:
    """Figures of one engine, in milliseconds."""
    with closing(open_registry(front_end)) as registry:
        fill(registry, databases)
        known: list[float] = []
        calls: list[float] = []
        rng = random.Random(1)
        with watchers(front_end, count) as ends:
            seen_by_all(ends, 1)
            for move in range(moves):
                time.sleep(rng.uniform(0.0, 0.1))  # at no particular moment of a watcher's timer
                begun = time.monotonic()
                now = registry.activate(MOVED, f"MBX-{move % 2 + 1:02}")
                done = time.monotonic()
                calls.append(1000 * (done - begun))
                known.append(1000 * (seen_by_all(ends, now.epoch) - done))
    return {
        "known_p50": round(percentile(known, 50), 1),
        "known_p99": round(percentile(known, 99), 1),
        "known_max": round(max(known), 1),
        "call_p50": round(percentile(calls, 50), 1),
        "call_p99": round(percentile(calls, 99), 1),
    }


def fill(registry: OwnedRegistry, databases: int) -> None:
    """Activate every database once."""
    for number in range(databases):
        registry.activate(f"DB{number:05}", "MBX-01")


def percentile(values: list[float], percent: int) -> float:
    """The value that so many percent are at or below."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


@contextmanager
def engine(name: str, folder: Path) -> Iterator[FrontEnd]:
    """A front end whose registry is of that engine and empty."""
    registry = str(folder / "registry.sqlite")
    if name == "sqlite":
        yield FrontEnd("CAS-01", "", registry)
        return
    with EtcdCluster(folder / name, ADDRESS, int(name.removeprefix("etcd-"))) as cluster:
        yield FrontEnd("CAS-01", "", registry, etcd=EtcdSettings(cluster.urls, "/gatepost/benchmark"))


def main() -> int:
    """Measure and print; exit status 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description="Time from an activation to the last worker's knowing.")
    parser.add_argument("--engine", choices=(*ENGINES, "all"), default="all")
    parser.add_argument("--watchers", type=int, default=8)
    parser.add_argument("--moves", type=int, default=300)
    parser.add_argument("--databases", type=int, default=100)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    wish = parser.parse_args()
    figures: dict[str, object] = {"watchers": wish.watchers, "moves": wish.moves, "databases": wish.databases}
    figures |= {"cores": len(os.sched_getaffinity(0)), "goal_known_p99_ms": GOAL_MILLISECONDS}
    missed = False
    for name in ENGINES if wish.engine == "all" else (wish.engine,):
        with tempfile.TemporaryDirectory(prefix="gp-") as folder:
            try:
                with engine(name, Path(folder)) as front_end:
                    found = measure(front_end, wish.watchers, wish.moves, wish.databases)
            except ServerMissing as fault:
                print(f"{name}: {fault}", file=sys.stderr)
                continue
        figures[name] = found
        missed |= found["known_p99"] >= GOAL_MILLISECONDS
    written = json.dumps(figures, indent=1)
    print(written)
    if wish.json:
        wish.json.write_text(written + "\n")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
