"""MariaDB with a cluster of its own, nothing kept safe on disk. Its administrator is `root` without a password.

It refuses to run as root, so root hands it to Debian's account `mysql`; without root it runs as who started it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from gatepost.lab.servers.pki import CertificateFiles
from gatepost.lab.servers.process import ServerNotStarted, ServerProcess, as_account, require_program

PACKAGES = ("mariadb-server",)
ACCOUNT = "mysql"
COMMAND_SECONDS = 60.0
SETTINGS = {
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-buffer-pool-size": "16M",
    "innodb-log-file-size": "8M",
    "sync-binlog": "0",
    "skip-log-bin": "",
    "skip-name-resolve": "",
    "performance-schema": "0",
    "character-set-server": "utf8mb4",
}


class MariaDB(ServerProcess):
    """One server with its own data, made at the first start. With `certificate` it offers TLS."""

    def __init__(
        self,
        directory: Path,
        address: str,
        port: int,
        *,
        certificate: CertificateFiles | None = None,
        name: str = "mariadb",
    ) -> None:
        """Raises `ServerMissing`."""
        program = require_program("mariadbd", PACKAGES)
        self._install = require_program("mariadb-install-db", PACKAGES)
        self._client = require_program("mariadb", PACKAGES)
        directory.mkdir(parents=True, exist_ok=True)
        self.address = address
        self.port = port
        self.data = directory / "data"
        self._run_folder = directory / "run"
        argv = [program, "--no-defaults", f"--datadir={self.data}", f"--bind-address={address}", f"--port={port}"]
        argv += [f"--socket={self._run_folder / 'socket'}", f"--pid-file={self._run_folder / 'pid'}"]
        argv += [f"--{key}={value}" if value else f"--{key}" for key, value in SETTINGS.items()]
        self._key: Path | None = None
        if certificate is not None:
            self._key = directory / "server.key"
            shutil.copy(certificate.private_key, self._key)
            argv += [f"--ssl-cert={certificate.certificate}", f"--ssl-key={self._key}"]
        super().__init__(name, self._as_owner(argv), directory, [(address, port)])

    @staticmethod
    def _as_owner(argv: Sequence[str]) -> list[str]:
        return as_account(ACCOUNT, argv) if os.geteuid() == 0 else list(argv)

    def start(self) -> None:
        """Start it, with new data if there is none. Raises `ServerNotStarted`."""
        if not self.data.exists():
            for folder in (self.data, self._run_folder):
                folder.mkdir(mode=0o700)
            if os.geteuid() == 0:
                for path in (self.data, self._run_folder, *([self._key] if self._key else [])):
                    shutil.chown(path, ACCOUNT, ACCOUNT)
            argv = [self._install, "--no-defaults", f"--datadir={self.data}", "--skip-test-db"]
            argv += ["--auth-root-authentication-method=normal", "--skip-name-resolve", "--innodb-log-file-size=8M"]
            self._run(self._as_owner(argv))
        super().start()

    def execute(self, sql: str, *, database: str = "") -> str:
        """Run statements as the administrator; answers what they print. Raises `ServerNotStarted`."""
        where = ["--no-defaults", f"--socket={self._run_folder / 'socket'}", "--user=root", "--skip-column-names"]
        return self._run([self._client, *where, "--batch", *([database] if database else [])], sql)

    def _run(self, argv: Sequence[str], given: str = "") -> str:
        try:
            done = subprocess.run(  # noqa: S603 - arguments are ours
                argv, input=given, capture_output=True, text=True, cwd="/", timeout=COMMAND_SECONDS, check=True
            )
        except subprocess.CalledProcessError as error:
            raise ServerNotStarted(f"{self.name}: {error.stderr.strip()[-2000:]}") from error
        except subprocess.TimeoutExpired as error:
            raise ServerNotStarted(f"{self.name}: {argv[0]} took longer than {COMMAND_SECONDS:.0f} s") from error
        return done.stdout
