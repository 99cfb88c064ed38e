"""Redis for what front ends share: one server, with or without TLS and a password. Nothing is written to a disk."""

from __future__ import annotations

from pathlib import Path

from gatepost.lab.servers.pki import CertificateAuthority
from gatepost.lab.servers.process import Address, ServerProcess, require_program

PACKAGES = ("redis-server",)
KILLED_SECONDS = 10.0


class RedisServer(ServerProcess):
    """One server. `url` is where clients find it."""

    def __init__(
        self, directory: Path, address: Address, *, authority: CertificateAuthority | None = None, password: str = ""
    ) -> None:
        """With `authority` it speaks TLS only, and clients must show a certificate. Raises `ServerMissing`."""
        program = require_program("redis-server", PACKAGES)
        directory.mkdir(parents=True, exist_ok=True)
        host, port = address
        self.url = f"{'rediss' if authority else 'redis'}://{host}:{port}/0"
        argv = [program, "--bind", host, "--save", "", "--appendonly", "no", "--dir", str(directory)]
        if authority is not None:
            files = authority.issue("redis", host)
            argv += ["--port", "0", "--tls-port", str(port), "--tls-cert-file", str(files.certificate)]
            argv += ["--tls-key-file", str(files.private_key)]
            argv += ["--tls-ca-cert-file", str(authority.directory / "ca.crt")]
        else:
            argv += ["--port", str(port)]
        if password:
            argv += ["--requirepass", password]
        super().__init__("redis", argv, directory, [address])
