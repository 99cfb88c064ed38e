"""Log lines and the thread that writes them."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from gatepost.service import logs


class Disk:
    """Stands for os.write: keeps what it takes; `room` bytes are left (None: endless)."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.room: int | None = None
        self.written = threading.Event()
        self.open = threading.Event()
        self.open.set()

    def write(self, _descriptor: int, data: bytes) -> int:
        assert self.open.wait(10)
        if self.room == 0:
            self.written.set()
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = data if self.room is None else data[: self.room]
        if self.room is not None:
            self.room -= len(taken)
        self.content += taken
        self.written.set()
        return len(taken)


@pytest.fixture
def regular(tmp_path: Path) -> int:
    """A descriptor of a regular file."""
    return logs.open_log(str(tmp_path / "log"))


def settled(writer: logs.LineWriter, disk: Disk) -> None:
    """Waits until a batch has been tried."""
    assert disk.written.wait(10)
    disk.written.clear()
    deadline = time.monotonic() + 10
    while writer._waiting_bytes and time.monotonic() < deadline:
        time.sleep(0.005)


def events(content: bytes) -> list[dict[str, Any]]:
    """The lines that are whole."""
    found = []
    for line in content.split(b"\n"):
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def test_lines_reach_the_file_in_order(tmp_path: Path) -> None:
    """What was written is there after close, in order."""
    writer = logs.LineWriter(logs.open_log(str(tmp_path / "log")))
    for number in range(5000):
        writer.write(b"%d\n" % number)
    writer.close()
    assert (tmp_path / "log").read_bytes() == b"".join(b"%d\n" % n for n in range(5000))


def test_full_disk_counts_and_reports(regular: int) -> None:
    """A line cut by a full disk is dropped and counted; when there is room a report comes first, on its own line."""
    disk = Disk()
    disk.room = 10
    writer = logs.LineWriter(regular, disk.write)
    writer.write(b'{"event":"first"}\n')
    writer.write(b'{"event":"second"}\n')
    deadline = time.monotonic() + 10
    while writer.dropped < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
    assert writer.dropped == 2
    disk.room = None
    writer.write(b'{"event":"third"}\n')
    writer.close()
    assert [(e["event"], e.get("lines")) for e in events(bytes(disk.content))] == [
        ("log.lines_dropped", 2),
        ("third", None),
    ]
    os.close(regular)


def test_reader_that_stands_still_holds_up_nobody(regular: int) -> None:
    """While the thread is stuck in a write, `write` returns at once, and what waits is bounded."""
    disk = Disk()
    disk.open.clear()
    writer = logs.LineWriter(regular, disk.write)
    line = bytes(999) + b"\n"
    began = time.monotonic()
    for _ in range(3 * logs.MAX_WAITING_BYTES // 1000):
        writer.write(line)
    assert time.monotonic() - began < 2.0
    assert writer._waiting_bytes <= logs.MAX_WAITING_BYTES
    assert writer.dropped >= logs.MAX_WAITING_BYTES // 1000
    disk.open.set()
    writer.close()
    os.close(regular)


def test_lines_are_never_cut_for_a_pipe() -> None:
    """Several processes write to one pipe: each write is at most PIPE_BUF and ends with a line's end."""
    reading, writing = os.pipe()
    writes: list[bytes] = []

    def write(descriptor: int, data: bytes) -> int:
        writes.append(data)
        return os.write(descriptor, data)

    writer = logs.LineWriter(writing, write)
    for number in range(40):
        writer.write(b"%d " % number + bytes(500).replace(b"\0", b"x") + b"\n")
    writer.close()
    assert len(b"".join(writes).splitlines()) == 40
    assert all(len(data) <= 4096 and data.endswith(b"\n") for data in writes)
    os.close(reading)
    os.close(writing)


def test_replacing_the_file(tmp_path: Path) -> None:
    """After `replace` lines go to the new descriptor and the old one is closed."""
    old = logs.open_log(str(tmp_path / "old"))
    writer = logs.LineWriter(old)
    writer.replace(logs.open_log(str(tmp_path / "new")))
    writer.write(b"line\n")
    writer.close()
    assert (tmp_path / "new").read_bytes() == b"line\n"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(old)


def test_log_is_not_opened_through_a_link(tmp_path: Path) -> None:
    """Root must not append to what a link in a foreign folder leads to."""
    (tmp_path / "log").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic"):
        logs.open_log(str(tmp_path / "log"))


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.one_of(st.text(max_size=20), st.integers(), st.floats(), st.binary(max_size=5), st.none()),
        max_size=5,
    )
)
def test_every_event_becomes_one_line(event: dict[str, Any]) -> None:
    """Whatever is logged becomes one valid JSON line without a character that steers a terminal."""
    line = logs.encode(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    json.loads(line)
    assert not any(c < " " or "\x7f" <= c <= "\x9f" or "\u2028" <= c <= "\u202e" for c in line[:-1].decode())


@pytest.mark.parametrize("value", ["\ud800", 2**70, {1: {2: object()}}, float("nan"), b"\xff"])
def test_odd_values_do_not_raise(value: object) -> None:
    """Lone surrogates, huge numbers, foreign objects: the line comes, in whatever words."""
    assert json.loads(logs.encode({"event": "odd", "value": value}))["event"] == "odd"


@pytest.mark.parametrize("key", sorted(logs.SECRET_KEYS))
def test_secrets_are_masked(key: str) -> None:
    """By the key's name, also one level down."""
    event = logs.mask(None, "info", {"event": "x", key: "hunter2", "more": {key: "hunter2", "user": "u"}})
    assert "hunter2" not in str(event)
    assert event["more"]["user"] == "u"


def test_time_is_utc_with_milliseconds() -> None:
    """ISO 8601, and the cached second does not stick."""
    assert logs.timestamp(0.9996) == "1970-01-01T00:00:00.999Z"
    assert logs.timestamp(86400.25) == "1970-01-02T00:00:00.250Z"
    assert logs.timestamp(0.0) == "1970-01-01T00:00:00.000Z"


def test_every_line_says_which_process_wrote_it(regular: int) -> None:
    """Those of loggers too that a store or service gets for itself, before or after this one is made."""
    disk = Disk()
    writer = logs.LineWriter(regular, disk.write)
    before = structlog.get_logger("gatepost")
    log = logs.configure(writer, process="worker-3")
    for logger in (log, before, structlog.get_logger("gatepost"), log.bind(session="x")):
        logger.warning("directory.unavailable", reason="away")
    writer.close()
    structlog.reset_defaults()
    lines = events(bytes(disk.content))
    assert [(line["process"], line["reason"]) for line in lines] == [("worker-3", "away")] * 4
    os.close(regular)


def test_traceback_holds_no_local_values(regular: int) -> None:
    """The text of an exception shows where, not what the frames held."""
    disk = Disk()
    writer = logs.LineWriter(regular, disk.write)
    log = logs.configure(writer, process="test")

    def inner(password: str) -> None:
        raise RuntimeError(f"{len(password)} characters")

    try:
        inner("2retnuh"[::-1])  # the source line is in the traceback
    except RuntimeError:
        log.exception("test.fault")
    writer.close()
    structlog.reset_defaults()
    (event,) = events(bytes(disk.content))
    assert "RuntimeError: 7 characters" in event["traceback"]
    assert (event["event"], event["level"], event["process"]) == ("test.fault", "error", "test")
    assert "hunter2" not in str(event)
    os.close(regular)
