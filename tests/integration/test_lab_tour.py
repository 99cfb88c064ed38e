"""The lab as a newcomer meets it: the tour passes, and however the lab ends, nothing of it is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from doors import missing

from gatepost.lab import figure, hubs
from gatepost.lab.servers import dovecot
from gatepost.lab.servers.process import ServerMissing

TOUR_SECONDS = 100.0
"""Some 40 s on two idle cores; a machine that is busy with other work takes three times as long."""
LAB_SECONDS = 60.0
"""From the command to its prompt."""


def tour(*options: str) -> dict[str, object]:
    """Run the tour and answer its summary."""
    argv = [sys.executable, "-m", "gatepost", "lab", "--tour", "--json", *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=110, stdin=subprocess.DEVNULL)
    assert done.stdout, done.stderr
    report: dict[str, object] = json.loads(done.stdout)
    failed = [step for step in report["steps"] if not step["ok"]]  # type: ignore[attr-defined]
    assert failed == []
    assert done.returncode == 0
    return report


def lab_processes(directory: Path) -> list[str]:
    """Command lines that name this lab's directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(directory) in line and "lab --directory" not in line:
                found.append(line)
    return found


def wait_until_gone(directory: Path, seconds: float) -> None:
    """Wait until no process of this lab is left."""
    deadline = time.monotonic() + seconds
    while left := lab_processes(directory):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_the_tour_passes_with_dovecot() -> None:
    """Every step comes out as expected, in the time that was promised."""
    if not dovecot.installed():
        missing(ServerMissing("dovecot", dovecot.PACKAGES))
    report = tour()
    assert report["mailbox_servers"] == "dovecot"
    assert report["seconds"] < TOUR_SECONDS  # type: ignore[operator]


def test_the_tour_passes_with_the_labs_own_mailbox_servers() -> None:
    """A machine without Dovecot sees the same."""
    report = tour("--built-in")
    assert report["mailbox_servers"] == "built-in"
    assert report["seconds"] < TOUR_SECONDS  # type: ignore[operator]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_however_the_lab_ends(scratch: Path, how: signal.Signals) -> None:
    """Ctrl-C, SIGTERM and kill -9 of the lab end every process it started. What it prints names all its servers."""
    directory = scratch / f"lab-{how.name}"
    argv = [sys.executable, "-m", "gatepost", "lab", "--built-in", "--directory", str(directory)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as lab:
        try:
            assert lab.stdout is not None
            printed = []
            for line in lab.stdout:
                printed.append(line)
                if line.startswith("Up after"):
                    break
            text = "".join(printed)
            assert all(f"    {name} " in text for name in (*figure.FRONT_ENDS, *figure.MAILBOX_SERVERS, *hubs.HUBS))
            assert "swaks --server" in text
            assert "queue list" in text
            assert lab_processes(directory)
        finally:
            os.kill(lab.pid, how)
        assert lab.wait(30) == (-how if how is signal.SIGKILL else 0)
    wait_until_gone(directory, 30)


def test_a_used_directory_is_left_alone(scratch: Path) -> None:
    """The lab writes into a new or empty directory only."""
    directory = scratch / "used"
    directory.mkdir()
    (directory / "mine").write_text("precious")
    argv = [sys.executable, "-m", "gatepost", "lab", "--directory", str(directory)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    assert "is not empty" in done.stderr
    assert [path.name for path in directory.iterdir()] == ["mine"]
