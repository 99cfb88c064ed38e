"""PostgreSQL for servers that need a database: TCP on one loopback address, no password, nothing kept safe on disk.

It refuses to run as root, so root hands it to Debian's account `postgres`; without root it runs as who started it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gatepost.lab.servers.process import (
    STOP_SECONDS,
    ServerMissing,
    ServerNotStarted,
    ServerProcess,
    as_account,
    require_program,
)

PACKAGES = ("postgresql",)
ACCOUNT = "postgres"
SUPERUSER = "gatepost"
COMMAND_SECONDS = 60.0
"""One run of initdb or psql: half a second, or the machine is busy."""
PROGRAMS = Path("/usr/lib/postgresql")
"""Debian's directory: one below for each version."""
SETTINGS = {
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "16MB",
    "max_connections": "100",
}
"""Little memory; and tests keep nothing, so there is no wait for the disk."""


def programs() -> Path:
    """The directory of the newest installed version's programs. Raises `ServerMissing`."""
    found = [path.parent for path in PROGRAMS.glob("*/bin/postgres")]
    if not found:
        raise ServerMissing("postgres", PACKAGES)
    return max(found, key=lambda path: [int(part) for part in path.parent.name.split(".")])


class PostgreSQL(ServerProcess):
    """One server with its own cluster, made at the first start."""

    def __init__(self, directory: Path, address: str, port: int, *, name: str = "postgresql") -> None:
        """Raises `ServerMissing`."""
        self._programs = programs()
        self._psql = require_program("psql", PACKAGES)
        directory.mkdir(parents=True, exist_ok=True)
        self.address = address
        self.port = port
        self.cluster = directory / "cluster"
        argv = [str(self._programs / "postgres"), "-D", str(self.cluster), "-p", str(port)]
        for key, value in (SETTINGS | {"listen_addresses": address}).items():
            argv += ["-c", f"{key}={value}"]
        # SIGINT is its fast shutdown; SIGTERM would wait for clients to leave.
        super().__init__(name, self._as_owner(argv, signal.SIGINT), directory, [(address, port)])

    @staticmethod
    def _as_owner(argv: Sequence[str], at_death: signal.Signals = signal.SIGTERM) -> list[str]:
        return as_account(ACCOUNT, argv, at_death) if os.geteuid() == 0 else list(argv)

    def start(self) -> None:
        """Start it, with a new cluster if there is none. Raises `ServerNotStarted`."""
        if not self.cluster.exists():
            self.cluster.mkdir(mode=0o700)
            if os.geteuid() == 0:
                shutil.chown(self.cluster, ACCOUNT, ACCOUNT)
            trusting = ["--auth=trust", f"--username={SUPERUSER}", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
            self._run(self._as_owner([str(self._programs / "initdb"), "-D", str(self.cluster), *trusting]))
        super().start()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End it at once: its clients are disconnected."""
        if self.running:
            with suppress(ProcessLookupError):
                self.signal(signal.SIGINT)
            self.wait(seconds)
        super().stop(seconds)

    def execute(self, sql: str, *, database: str = "postgres", user: str = SUPERUSER) -> str:
        """Run statements (each in its own transaction); answers what they print. Raises `ServerNotStarted`."""
        where = ["--host", self.address, "--port", str(self.port), "--username", user, "--dbname", database]
        return self._run([self._psql, *where, "--no-psqlrc", "-qAt", "-v", "ON_ERROR_STOP=1", "-f", "-"], sql)

    def _run(self, argv: Sequence[str], given: str = "") -> str:
        try:
            done = subprocess.run(  # noqa: S603 - arguments are ours
                argv, input=given, capture_output=True, text=True, cwd="/", timeout=COMMAND_SECONDS, check=True
            )
        except subprocess.CalledProcessError as error:
            raise ServerNotStarted(f"{self.name}: {error.stderr.strip()}") from error
        except subprocess.TimeoutExpired as error:
            raise ServerNotStarted(f"{self.name}: {argv[0]} took longer than {COMMAND_SECONDS:.0f} s") from error
        return done.stdout
