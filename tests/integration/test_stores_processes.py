"""The embedded stores among real processes: written at once, killed at any moment, on a full disk."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import apsw
import pytest

from gatepost.activemanager.port import RegistryView
from gatepost.activemanager.sqlite import SqliteRegistry
from gatepost.activemanager.sqlite_watch import SqliteRegistryWatch
from gatepost.directory.editing import DirectoryEditor, Entry
from gatepost.directory.port import User
from gatepost.directory.sqlite import SqliteDirectory
from gatepost.routing.decision import ActiveCopy, Mailbox

pytestmark = pytest.mark.integration

SEEN_SECONDS = 0.5
DEADLINE_SECONDS = 60

WRITER = """
import sys
from gatepost.directory.editing import DirectoryEditor, Entry
from gatepost.directory.port import User
from gatepost.routing.decision import Mailbox
path, prefix, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
for n in range(count):
    name = f"{prefix}-{n}@contoso.com"
    with DirectoryEditor(path) as editor:
        editor.add(Entry(User(name, Mailbox("DB01"), "x" * 300), (f"alias-{name}",)))
    print(name, flush=True)
"""

ACTIVATOR = """
import sys
from gatepost.activemanager.sqlite import SqliteRegistry
path, server, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
for n in range(count):
    print(SqliteRegistry(path).activate("DB01", server).epoch, flush=True)
"""

FULL_DISK = """
import resource, sys
from gatepost.directory.editing import DirectoryEditor, Entry
from gatepost.directory.port import DirectoryUnavailable, User
from gatepost.routing.decision import Mailbox
path, limit = sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
users = (Entry(User(f"u{n}@contoso.com", Mailbox("DB01"), "x" * 300)) for n in range(20000))
try:
    with DirectoryEditor(path) as editor:
        editor.add_all(users, lambda number, error: False)
except DirectoryUnavailable as fault:
    print("refused:", fault)
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> list[str]:
    """Its output lines; fails with what it said when it failed."""
    out, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, err
    return out.split("\n")[:-1]


def names(path: str) -> set[str]:
    with DirectoryEditor(path) as editor:
        return {entry.user.name for entry in editor.entries()}


def assert_sound(path: str) -> None:
    connection = apsw.Connection(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


async def test_two_processes_write_while_one_watches(tmp_path: Path) -> None:
    """Both make the file, no change is lost, and the watcher knows all of them in time."""
    path = str(tmp_path / "directory.sqlite")
    directory = SqliteDirectory(path, asyncio.get_running_loop())
    told = asyncio.Event()
    directory.on_change(told.set)
    directory.start()
    writers = [start(WRITER, path, prefix, 40) for prefix in ("a", "b")]
    written = [
        name for lines in await asyncio.gather(*(asyncio.to_thread(finish, w) for w in writers)) for name in lines
    ]
    assert len(written) == 80

    async def all_seen() -> None:
        while any(directory.find(name) is None for name in written):
            told.clear()
            await told.wait()

    await asyncio.wait_for(all_seen(), SEEN_SECONDS)
    directory.close()
    assert names(path) == set(written)
    assert_sound(path)


async def test_a_change_by_another_process_is_seen_in_time(tmp_path: Path) -> None:
    """From the moment the writer says it is done, with the timer as it is set for workers."""
    path = str(tmp_path / "registry.sqlite")
    registry = SqliteRegistry(path)
    registry.activate("DB01", "MBX-00")
    watch = SqliteRegistryWatch(path, asyncio.get_running_loop())
    told: asyncio.Queue[RegistryView] = asyncio.Queue()
    watch.on_change(told.put_nowait)
    watch.start()
    assert (await asyncio.wait_for(told.get(), SEEN_SECONDS)).active["DB01"].epoch == 1
    lines = await asyncio.to_thread(finish, start(ACTIVATOR, path, "MBX-01", 1))
    assert lines == ["2"]
    view = await asyncio.wait_for(told.get(), SEEN_SECONDS)
    assert view.active == {"DB01": ActiveCopy("DB01", "MBX-01", 2)}
    watch.close()


def test_epochs_of_several_processes_are_all_different(tmp_path: Path) -> None:
    """And none is left out: each activation took the next one."""
    path = str(tmp_path / "registry.sqlite")
    activators = [start(ACTIVATOR, path, f"MBX-0{n}", 25) for n in range(3)]
    epochs = [int(line) for activator in activators for line in finish(activator)]
    assert sorted(epochs) == list(range(1, 76))
    assert SqliteRegistry(path).view().active["DB01"].epoch == 75


async def test_killed_while_writing_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """kill -9 at a random moment, again and again, with a worker holding the file all the time."""
    path = str(tmp_path / "directory.sqlite")
    names(path)  # makes the file
    directory = SqliteDirectory(path, asyncio.get_running_loop())
    directory.start()
    acknowledged: set[str] = set()
    chance = random.Random(7)
    for round_ in range(8):
        writer = start(WRITER, path, f"r{round_}", 10_000)
        assert writer.stdout is not None
        for _ in range(chance.randrange(1, 15)):
            acknowledged.add(writer.stdout.readline().strip())
        await asyncio.sleep(chance.random() / 500)  # the moment within a transaction is left to chance
        os.kill(writer.pid, signal.SIGKILL)
        rest, _ = writer.communicate(timeout=DEADLINE_SECONDS)
        acknowledged.update(line for line in rest.split("\n")[:-1] if line)
        assert all(directory.find(name) is not None for name in acknowledged)
    directory.close()
    stored = names(path)
    assert acknowledged <= stored
    assert len(stored) <= len(acknowledged) + 8  # at most the one that each round had not yet said
    assert_sound(path)


def test_a_full_disk_is_said_and_leaves_what_was_there(tmp_path: Path) -> None:
    path = str(tmp_path / "directory.sqlite")
    with DirectoryEditor(path) as editor:
        editor.add(Entry(User("anna@contoso.com", Mailbox("DB01"))))
    lines = finish(start(FULL_DISK, path, 200_000))
    assert len(lines) == 1
    assert lines[0].startswith(f"refused: {path}: ")
    assert names(path) == {"anna@contoso.com"}
    assert_sound(path)
    with DirectoryEditor(path) as editor:
        editor.add(Entry(User("otto@contoso.com", Mailbox("DB01"))))
    assert len(names(path)) == 2
