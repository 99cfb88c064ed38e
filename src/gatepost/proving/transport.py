"""A hub that is killed, filled and refused while it works: every message it answered for arrives (SPEC T2)."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gatepost.lab.servers.process import ServerProcess, free_ports
from gatepost.proving import machine
from gatepost.proving.hub_stage import HUB, SINK, HubService, new_hub, new_sink, small_disk
from gatepost.proving.senders import Senders, end

Say = Callable[[str], None]

DRAIN_SECONDS = 180.0
"""After the last message: until everything has been delivered."""
STALL_SECONDS = 240.0
"""Longest time without one acknowledged message."""
FULL_SECONDS = 2.5
"""How long the disk stays full: one metering at least."""
FILL_BYTES = (8 << 20, 64 << 10, 4 << 10)
"""The pieces that a disk is filled with."""
AGAIN_SHARE = 0.1
"""Of the kills: those that are followed by another one while the service starts."""
SUPERVISOR_SHARE = 0.2
"""Of the kills of the whole service: those of the supervisor alone."""
KILLS_FOR_FULL = 20
"""The disk is full once for each so many kills, and once at least."""


@dataclass
class Trouble:
    """What was done."""

    transport: int = 0
    """kill -9 of the transport alone."""
    service: int = 0
    """kill -9 of all processes of the service."""
    supervisor: int = 0
    """kill -9 of the supervisor alone: its transport ends by itself while the next one starts."""
    sink: int = 0
    """kill -9 of the server that takes the mail."""
    busy: int = 0
    """Times that it took nothing for a moment."""
    full: int = 0
    """Times that the disk was full."""


@dataclass
class Stage:
    """Who takes part."""

    hub: HubService
    sink: ServerProcess
    senders: Senders
    disk: Path | None
    rng: random.Random
    trouble: Trouble = field(default_factory=Trouble)


def prove_transport(
    directory: Path, *, messages: int, kills: int, sessions: int = 20, seed: int = 1, say: Say = lambda _text: None
) -> dict[str, Any]:
    """Send, kill, and judge: the report, `ok` among it. Raises `ServerNotStarted`, OSError."""
    with ExitStack() as stack:
        kind = stack.enter_context(small_disk(directory / "disk"))
        disk = directory / "disk" if kind else None
        say(f"the spool is on a small file system ({kind})" if kind else "the disk is not filled: this needs root")
        [sink_port] = free_ports(SINK, 1)
        sink = new_sink(directory / "sink", sink_port)
        hub = new_hub(directory / "hub", sink_port, (disk or directory) / "spool", {"min_free_bytes": "16MB"})
        port = hub.addresses["smtp"][1]
        stack.callback(hub.stop)
        stack.callback(sink.stop)
        sink.start()
        hub.start()
        sink.wait_ready()
        hub.wait_ready()
        return asyncio.run(_prove(directory, hub, sink, disk, kind, (messages, kills, sessions, seed, port), say))


async def _prove(
    directory: Path,
    hub: HubService,
    sink: ServerProcess,
    disk: Path | None,
    kind: str,
    size: tuple[int, int, int, int, int],
    say: Say,
) -> dict[str, Any]:
    messages, kills, sessions, seed, port = size
    before = machine.load()
    senders = Senders([(HUB, port)], range(1, messages + 1), sessions, seed)
    stage = Stage(hub, sink, senders, disk, random.Random(seed))  # noqa: S311 - no secret
    began = time.monotonic()
    makers = [
        asyncio.create_task(_kill(stage, messages, kills, say)),
        asyncio.create_task(_trouble_sink(stage, messages, max(1, kills // 2))),
    ]
    if disk is not None:
        makers.append(asyncio.create_task(_fill(stage, messages, max(1, kills // KILLS_FOR_FULL))))
    sending = asyncio.create_task(senders.run())
    stalled = not await _watch(stage, sending)
    sent = time.monotonic()
    for task in makers:
        if stalled:
            await end(task)
        await task
    drained = not stalled and await _drained(stage)
    seconds = {"sending": round(sent - began, 1), "draining": round(time.monotonic() - sent, 1)}
    log = {
        "faults": [f"{e.get('message', '')}: {e.get('traceback', '')[-300:]}" for e in hub.events("worker.fault")],
        "quarantined": sum(len(e["quarantined"]) for e in hub.events("spool.opened")),
        "poison": len(hub.events("message.poison")),
    }
    taken = (directory / "sink" / "taken").read_text()
    report = judged(senders, taken, stage.trouble, messages, kills, stalled=stalled, drained=drained, log=log)
    rate = round(messages / max(seconds["sending"], 0.001), 1)
    machine_facts = {"before": before, "during": machine.load(), "disk": kind or "not filled"}
    return report | {"seconds": seconds, "messages_per_second": rate, "machine": machine_facts, "sessions": sessions}


async def _watch(stage: Stage, sending: asyncio.Task[None]) -> bool:
    """Wait until all was sent; False when nothing moved for too long."""
    known = -1
    while not sending.done():
        await asyncio.wait([sending], timeout=STALL_SECONDS)
        now = len(stage.senders.acknowledged)
        if now == known and not sending.done():
            await end(sending)
            return False
        known = now
    await sending
    return True


async def _drained(stage: Stage) -> bool:
    deadline = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < deadline:
        left = await asyncio.to_thread(stage.hub.counter, "messages")
        loading = await asyncio.to_thread(stage.hub.counter, "loading")
        if left == 0 and loading == 0:
            return True
        await asyncio.sleep(0.2)
    return False


async def _kill(stage: Stage, messages: int, kills: int, say: Say) -> None:
    """Kill the hub at moments spread over all messages. The transport alone comes back by itself after half a second;
    twice in a row it would be held back, so all processes are killed in turn with it."""
    made = 0
    while made < kills:
        await stage.senders.reached(int(messages * (made + 0.5) / kills))
        await asyncio.sleep(stage.rng.uniform(0.0, 0.3))
        if made % 2 == 0 and stage.hub.kill_transport():
            stage.trouble.transport += 1
            made += 1
            if made < kills and stage.rng.random() < AGAIN_SHARE:
                await asyncio.sleep(stage.rng.uniform(0.5, 1.5))  # while it starts
                made += _kill_service(stage)
        else:
            made += _kill_service(stage)
        if made % 10 < 2:
            say(f"{made} kills, {len(stage.senders.acknowledged)} messages acknowledged")


def _kill_service(stage: Stage) -> int:
    if stage.rng.random() < SUPERVISOR_SHARE:
        stage.hub.kill_supervisor()
        stage.trouble.supervisor += 1
    else:
        stage.hub.kill_all()
        stage.trouble.service += 1
    stage.hub.start()
    return 1


async def _trouble_sink(stage: Stage, messages: int, times: int) -> None:
    """Kill the sink, or have it take nothing, at moments spread over all messages."""
    for number in range(times):
        await stage.senders.reached(int(messages * (number + 0.3) / times))
        await asyncio.sleep(stage.rng.uniform(0.0, 0.5))
        if number % 2:
            stage.sink.signal(signal.SIGUSR1)
            stage.trouble.busy += 1
            continue
        stage.sink.signal(signal.SIGKILL)
        stage.trouble.sink += 1
        await asyncio.to_thread(stage.sink.wait, 10.0)
        await asyncio.sleep(stage.rng.uniform(0.1, 1.5))
        stage.sink.start()


async def _fill(stage: Stage, messages: int, times: int) -> None:
    """Fill the disk to its last block, and make room again when mail has been refused for a while."""
    assert stage.disk is not None
    ballast = stage.disk / "ballast"
    for number in range(times):
        await stage.senders.reached(int(messages * (number + 0.6) / times))
        await asyncio.to_thread(_fill_up, ballast, FULL_SECONDS)
        stage.trouble.full += 1
        ballast.unlink()


def _fill_up(ballast: Path, seconds: float) -> None:
    """Fill the disk, and keep it full for so long: what becomes free meanwhile is taken too."""
    deadline = None
    with ballast.open("ab", buffering=0) as file:
        while deadline is None or time.monotonic() < deadline:
            for piece in FILL_BYTES:
                with suppress(OSError):
                    while True:
                        os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, piece)
            deadline = deadline or time.monotonic() + seconds
            time.sleep(0.02)


def judged(
    senders: Senders,
    taken: str,
    trouble: Trouble,
    messages: int,
    kills: int,
    *,
    stalled: bool,
    drained: bool,
    log: dict[str, Any],
) -> dict[str, Any]:
    """The report. `taken` is what the sink wrote."""
    lines = [line.split() for line in taken.splitlines()]
    arrived = Counter(line[0] for line in lines)
    damaged = sum(line[1] != "1" for line in lines)
    lost = sorted(senders.acknowledged - arrived.keys())
    done = trouble.transport + trouble.service + trouble.supervisor
    missed = [
        name
        for name, holds in {
            "nothing is lost": not lost,
            "every message is acknowledged in the end": len(senders.acknowledged) == messages,
            "every content is as it was sent": not damaged,
            "no reply is for good": not senders.refused_for_good,
            "everything drains": drained,
            "nothing is put aside": not log["quarantined"] and not log["poison"],
            "no fault of ours": not log["faults"],
            "all kills were made": done >= kills,
            "it never stands still": not stalled,
        }.items()
        if not holds
    ]
    duplicates = sum(count - 1 for count in arrived.values())
    report: dict[str, Any] = {
        "ok": not missed,
        "missed": missed,
        "messages": messages,
        "acknowledged": len(senders.acknowledged),
        "lost": len(lost),
        "lost_messages": lost[:100],
        "duplicates": duplicates,
        "damaged": damaged,
        "unanswered": len(senders.in_doubt),
        "unanswered_and_delivered": len(senders.in_doubt & arrived.keys()),
        "refused": dict(sorted(senders.refused.items())),
        "refused_for_good": senders.refused_for_good[:100],
        "broken_connections": senders.broken,
        "kills": done,
        "killed": {
            "transport": trouble.transport,
            "service": trouble.service,
            "supervisor": trouble.supervisor,
            "sink": trouble.sink,
        },
        "sink_busy": trouble.busy,
        "disk_full": trouble.full,
        "poison": log["poison"],
        "quarantined": log["quarantined"],
        "faults": log["faults"][:20],
    }
    report["summary"] = (
        f"{'ok' if not missed else 'MISSED: ' + ', '.join(missed)}: {report['acknowledged']} messages acknowledged, "
        f"{len(lost)} lost, {duplicates} delivered twice, over {done} kill -9 of the hub, {trouble.sink} of the next "
        f"server, {trouble.full} full disks"
    )
    return report
