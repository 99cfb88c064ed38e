"""The machine that a proving runs on: its limits, its load, its connections."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Any

ESTABLISHED = "01"
"""A connection's state in `/proc/net/tcp`."""


def raise_open_files() -> int:
    """Allow this process and its children as many open files as the machine lets it; answers how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def load() -> dict[str, Any]:
    """Processors and how many processes wanted one, over 1 and 5 minutes."""
    one, five, _ = os.getloadavg()
    return {"processors": os.cpu_count(), "load_1m": round(one, 2), "load_5m": round(five, 2)}


def connections_at(address: str, ports: set[int], table: str) -> set[str]:
    """The far ends of established connections at these ports of an address, by the text of `/proc/net/tcp`."""
    wanted = "".join(f"{int(part):02X}" for part in reversed(address.split(".")))
    found = set()
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 4 or fields[3] != ESTABLISHED:
            continue
        host, _, port = fields[1].partition(":")
        if host == wanted and int(port, 16) in ports:
            found.add(fields[2])
    return found


def tcp_table() -> str:
    """`/proc/net/tcp` now."""
    return Path("/proc/net/tcp").read_text()


def last_change(file: str) -> str:
    """Another text after each change of an SQLite file."""
    found = []
    for name in (file, f"{file}-wal"):
        with suppress(OSError):
            status = Path(name).stat()
            found.append(f"{status.st_ino} {status.st_size} {status.st_mtime_ns}")
    return ", ".join(found)
