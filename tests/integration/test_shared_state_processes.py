"""The shared state among real processes: front ends that agree, one that is killed in the middle (SPEC B2, B6)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gatepost.sharedstate.sqlite import SqliteSharedState, prepare

DEVICES = 60
DEADLINE_SECONDS = 60.0
SEEN_SECONDS = 1.0

FRONT_END = """
import asyncio, json, sys, time
from gatepost.sharedstate.sqlite import SqliteSharedState
path, choose, count, begin = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
async def main():
    state = SqliteSharedState(path, asyncio.get_running_loop())
    state.start()
    await asyncio.sleep(max(begin - time.time(), 0.0))
    servers = ["CAS-01", "CAS-02", "CAS-03", "CAS-04"]
    answers = await asyncio.gather(
        *(state.first_server(f"phone {n}", choose, time.time(), servers) for n in range(count))
    )
    print(json.dumps(answers), flush=True)
    state.close()
asyncio.run(main())
"""

KILLED = """
import asyncio, sys, time
from gatepost.sharedstate.sqlite import SqliteSharedState
async def main():
    state = SqliteSharedState(sys.argv[1], asyncio.get_running_loop())
    state.start()
    for number in range(100000):
        await state.sign_out(f"session {number}", time.time() + 900)
        print(number, flush=True)
asyncio.run(main())
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def path(tmp_path: Path) -> str:
    found = str(tmp_path / "shared.sqlite")
    prepare(found)
    return found


def test_front_ends_that_see_a_new_device_at_the_same_moment_agree(path: str) -> None:
    """Each would have chosen another server; every device has one answer, and that is what is remembered."""
    begin = time.time() + 2.0
    processes = [start(FRONT_END, path, f"CAS-0{number}", DEVICES, begin) for number in range(1, 5)]
    found = []
    for process in processes:
        output, errors = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 0, errors
        found.append(json.loads(output.splitlines()[-1]))
    assert found[0] == found[1] == found[2] == found[3]

    async def remembered() -> list[str | None]:
        state = SqliteSharedState(path, asyncio.get_running_loop())
        state.start()
        try:
            return [state.known_server(f"phone {number}") for number in range(DEVICES)]
        finally:
            state.close()

    assert asyncio.run(remembered()) == found[0]


async def test_a_front_end_killed_while_it_writes_loses_no_sign_out_that_was_said_to_be_done(path: str) -> None:
    """And the others go on at once: its lock is gone with it."""
    state = SqliteSharedState(path, asyncio.get_running_loop())
    state.start()
    process = start(KILLED, path)
    assert process.stdout is not None
    done = [int(await asyncio.to_thread(process.stdout.readline)) for _ in range(20)]
    os.kill(process.pid, signal.SIGKILL)
    rest, _ = await asyncio.to_thread(process.communicate)
    done += [int(line) for line in rest.splitlines() if line]
    async with asyncio.timeout(SEEN_SECONDS):
        while not all(state.is_signed_out(f"session {number}") for number in done):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
    assert await state.first_server("phone", "CAS-01", time.time(), ["CAS-01"]) == "CAS-01"
    assert state.known_server("phone") == "CAS-01"
    state.close()
