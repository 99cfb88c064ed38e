"""Gatepost itself as a real process: `gatepost serve` on a configuration written into a directory."""

from __future__ import annotations

import csv
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gatepost.lab.servers.process import POLL_SECONDS, READY_SECONDS, Address, ServerNotStarted, ServerProcess
from gatepost.lab.toml_text import Table, toml_text

EVENT_SECONDS = 20.0
"""Until a log line is there; a session's is written when it has ended."""
COMMAND_SECONDS = 90.0
"""One run of a `gatepost` command, on a busy machine."""


@dataclass(frozen=True, slots=True)
class LabUser:
    """A user of the directory. One of `database` and `home_server` is set."""

    name: str
    password: str = field(repr=False)
    database: str = ""
    home_server: str = ""
    aliases: tuple[str, ...] = ()
    login_at_server: str = ""


class CommandFailed(RuntimeError):
    """A `gatepost` command ended with another status than 0; the text holds its output."""


class Gatepost(ServerProcess):
    """One front end. `addresses` maps endpoint names (`imap`, `imaps`, `https`…) to where it listens."""

    def __init__(self, name: str, directory: Path, configuration: Path, addresses: Mapping[str, Address]) -> None:
        """`configuration` is the file `write_configuration` wrote; its `front_end.server` is `name`."""
        argv = [sys.executable, "-m", "gatepost", "serve", "-c", str(configuration)]
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(name, argv, directory, list(addresses.values()))
        self.configuration = configuration
        self.addresses = dict(addresses)

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait for a greeting too: ports accept as soon as the supervisor has them, before a worker is there."""
        super().wait_ready(seconds)
        greeting = self.addresses.get("imap") or self.addresses.get("pop3") or self.addresses.get("smtp")
        if greeting is None:
            return
        try:
            with socket.create_connection(greeting, timeout=seconds) as probe:
                greeted = probe.recv(1)
        except OSError:
            greeted = b""
        if not greeted:
            self.stop()
            raise ServerNotStarted(f"{self.name} does not greet\n{self.log_tail()}")

    def command(self, *arguments: str, status: int | None = 0) -> str:
        """Run `gatepost ARGUMENTS… -c CONFIGURATION`; its standard output. Raises `CommandFailed`."""
        return gatepost_command(self.configuration, *arguments, status=status)

    def events(self, name: str = "") -> list[dict[str, Any]]:
        """The lines of its log, oldest first; only those of one event (`imap.session`…) if named."""
        found = []
        text = self.output.read_text(errors="replace") if self.output.exists() else ""
        for line in text.splitlines(keepends=True):
            if line.startswith("{") and line.endswith("\n"):  # the last one may still be on its way
                entry = json.loads(line)
                if not name or entry.get("event") == name:
                    found.append(entry)
        return found

    def wait_for_event(self, name: str, seconds: float = EVENT_SECONDS, **fields: object) -> dict[str, Any]:
        """The first log line of that event whose fields have these values; waits for it. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while True:
            for entry in self.events(name):
                if all(entry.get(key) == value for key, value in fields.items()):
                    return entry
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {name} with {fields} in the log of {self.name}\n{self.log_tail()}")
            time.sleep(POLL_SECONDS)

    def workers(self) -> list[int]:
        """Process ids of its workers: not the manager, nor a child that reads the configuration anew and ends."""
        return [child for child, line in self._children() if b"gatepost.service.worker\0" in line]

    def manager(self) -> int | None:
        """The process id of its manager, if it has one."""
        return next((child for child, line in self._children() if b"manager_process" in line), None)

    def _children(self) -> list[tuple[int, bytes]]:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        found = []
        for child in children:
            with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                found.append((int(child), Path(f"/proc/{child}/cmdline").read_bytes()))
        return found


def gatepost_command(configuration: Path, *arguments: str, status: int | None = 0) -> str:
    """Run `gatepost ARGUMENTS… -c CONFIGURATION`; as `run_gatepost`."""
    return run_gatepost(*arguments, "-c", str(configuration), status=status)


def run_gatepost(*arguments: str, status: int | None = 0) -> str:
    """Run `gatepost ARGUMENTS…`; its output, with standard error unless all went well.

    Raises `CommandFailed` on another exit status than `status` (None: any will do).
    """
    argv = [sys.executable, "-m", "gatepost", *arguments]
    done = subprocess.run(  # noqa: S603 - arguments are ours
        argv, capture_output=True, text=True, timeout=COMMAND_SECONDS, stdin=subprocess.DEVNULL, check=False
    )
    if status is not None and done.returncode != status:
        raise CommandFailed(f"{' '.join(argv[2:])} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + ("" if done.returncode == 0 else done.stderr)


def write_configuration(path: Path, front_end: Table, organization: Table) -> Path:
    """Write one file with both: `front_end` is the table of that name, `organization` holds the top-level ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(toml_text({"front_end": front_end, **organization}))
    return path


def import_users(configuration: Path, users: Iterable[LabUser], scratch: Path) -> None:
    """Put users into the directory by `gatepost user import`. Raises `CommandFailed`."""
    file = scratch / "users.csv"
    file.touch(mode=0o600)
    with file.open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(USER_COLUMNS)
        writer.writerows(_row(user) for user in users)
    gatepost_command(configuration, "user", "import", str(file))
    file.unlink()


USER_COLUMNS = ("name", "password", "database", "home_server", "addresses", "login_at_server")


def _row(user: LabUser) -> Sequence[str]:
    aliases = " ".join(user.aliases)
    return (user.name, user.password, user.database, user.home_server, aliases, user.login_at_server)


def give_to(path: Path, uid: int, gid: int) -> None:
    """Make an account the owner of a directory and all below."""
    for entry in (path, *path.rglob("*")):
        os.chown(entry, uid, gid)
