"""Many clients in a process of their own: `python -P -m gatepost.proving.client_process`.

Standard input: one JSON object with `ca` and `tasks`, then a line for each order: `poke DATABASE OLD-SERVER`, `stop`.
Standard output: one JSON array an event. The end of standard input is `stop`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import ssl
import sys
from contextlib import suppress
from typing import Any

import msgspec
import uvloop

from gatepost.proving.clients import ImapBusy, ImapIdle, Pop3, Script, Task
from gatepost.proving.connection import Address
from gatepost.proving.history import Event, Kind
from gatepost.proving.http_clients import Http, HttpPoll
from gatepost.proving.machine import raise_open_files
from gatepost.proving.submission_client import Submission

COLLECTED_OBJECTS = 50_000
"""New objects until those that are in circles are looked for: clients shall not cost what servers need."""
STOP_SECONDS = 5.0
"""For what is under way when told to stop."""


SCRIPTS: dict[str, type[Script]] = {
    Kind.IMAP_IDLE: ImapIdle,
    Kind.IMAP_BUSY: ImapBusy,
    Kind.POP3: Pop3,
    Kind.HTTP: Http,
    Kind.HTTP_POLL: HttpPoll,
    Kind.SUBMISSION: Submission,
}

_encode = msgspec.json.Encoder().encode


def _task(found: dict[str, Any]) -> Task:
    return Task(**found | {"address": Address(**found["address"])})


def _note(event: Event) -> None:
    sys.stdout.buffer.write(_encode(event) + b"\n")


async def _orders() -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def _flush() -> None:
    while True:
        await asyncio.sleep(0.05)
        sys.stdout.flush()


async def _work() -> None:
    orders = await _orders()
    given = json.loads(await orders.readline())
    tls = ssl.create_default_context(cafile=given["ca"])
    scripts: list[Script] = [
        SCRIPTS[task.kind](task, tls, _note) for task in (_task(found) for found in given["tasks"])
    ]
    gc.collect()
    gc.freeze()  # the scripts and their tasks stay for life; what they do makes no circles
    gc.set_threshold(COLLECTED_OBJECTS, 20, 50)
    running = [asyncio.create_task(script.run()) for script in scripts]
    flushing = asyncio.create_task(_flush())
    while line := await orders.readline():
        words = line.decode().split()
        if words[0] == "stop":
            break
        for script in scripts:
            if script.task.database == words[1]:
                script.poke(words[2])
    for script in scripts:
        script.stop()
    _, late = await asyncio.wait(running, timeout=STOP_SECONDS)
    for task in late:
        task.cancel()
    for task in running:
        with suppress(asyncio.CancelledError):
            await task  # a fault of a script is a fault of the proving: it is not hidden
    flushing.cancel()


def main() -> None:
    """Run until told to stop."""
    raise_open_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_work())
    sys.stdout.flush()


if __name__ == "__main__":
    main()
