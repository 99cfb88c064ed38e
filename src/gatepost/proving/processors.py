"""Where processor time goes, by what `/proc` says of the processes of some sessions.

A server and all that it starts are one session of processes (`setsid`), whatever becomes of its children: the time of
those that have ended is counted at their parent once it has taken note of them.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

LEAST_SECONDS = 0.1
"""Parts that used less are not told of."""
_TICK = 1 / os.sysconf("SC_CLK_TCK")
"""Seconds in one unit of the kernel's figures."""


class Reading(NamedTuple):
    """What had been used at one moment."""

    at: float
    machine: float
    """Seconds of all processors together, by whoever."""
    parts: dict[str, float]


def read(sessions: Mapping[int, str]) -> Reading:
    """Now, of these sessions by their ids."""
    return Reading(time.monotonic(), machine_seconds(), used(sessions))


def between(first: Reading, last: Reading, clients: int) -> dict[str, Any]:
    """What was used from one reading to another, and of that a client's share."""
    parts = {name: seconds - first.parts.get(name, 0.0) for name, seconds in last.parts.items()}
    total = sum(parts.values())
    most = sorted(parts.items(), key=lambda part: -part[1])
    return {
        "seconds": round(last.at - first.at, 2),
        "machine_seconds": round(last.machine - first.machine, 2),
        "proving_seconds": round(total, 2),
        "milliseconds_per_session": round(1000 * total / clients, 2) if clients else None,
        "parts": {name: round(seconds, 2) for name, seconds in most if seconds >= LEAST_SECONDS},
    }


class Used(NamedTuple):
    """One process: its session, what it is called, and seconds of processor time with those of its ended children."""

    session: int
    name: str
    seconds: float


def parse(stat: str, command_line: bytes) -> Used:
    """One process by its `/proc/PID/stat` and `cmdline`. Raises ValueError, IndexError."""
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()  # from field 3 of proc(5) on
    return Used(int(fields[3]), part_of(name, command_line), sum(map(int, fields[11:15])) * _TICK)


def part_of(name: str, command_line: bytes) -> str:
    """What a process of Gatepost does, by its module; of others their name."""
    for word in command_line.split(b"\0"):
        if word.startswith(b"gatepost."):
            return word.decode(errors="replace").rpartition(".")[2]
    return name


def used(sessions: Mapping[int, str]) -> dict[str, float]:
    """Seconds of processor time so far, by `NAME/part`. `sessions` maps the ids of sessions to their names."""
    found: dict[str, float] = defaultdict(float)
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        with suppress(OSError, ValueError, IndexError):  # it has just ended
            stat = (directory / "stat").read_text(errors="replace")
            one = parse(stat, (directory / "cmdline").read_bytes())
            if one.session in sessions:
                found[f"{sessions[one.session]}/{one.name}"] += one.seconds
    return found


def machine_seconds(text: str = "") -> float:
    """Seconds of processor time of the whole machine so far, by `/proc/stat`: all but idle and waiting for a disk."""
    fields = [int(word) for word in (text or Path("/proc/stat").read_text()).split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) * _TICK
