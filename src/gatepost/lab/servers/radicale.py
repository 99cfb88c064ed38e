"""Radicale: calendars and contacts (CalDAV, CardDAV) behind the front door, with TLS and Basic authentication."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gatepost.lab.servers.pki import CertificateFiles
from gatepost.lab.servers.process import ServerProcess, require_program

PACKAGES = ("radicale",)


class Radicale(ServerProcess):
    """One Radicale. A user's collections are below `/<name>/`."""

    def __init__(
        self,
        directory: Path,
        address: str,
        port: int,
        accounts: Mapping[str, str],
        certificate: CertificateFiles,
        *,
        name: str = "radicale",
        header: str = "",
    ) -> None:
        """`accounts` maps names to passwords; with `header` (`X-Remote-User`) that header is trusted instead.

        Raises `ServerMissing`.
        """
        program = require_program("radicale", PACKAGES)
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(name, [program, "--config", str(directory / "config")], directory, [(address, port)])
        self.address = address
        self.port = port
        users = directory / "users"
        users.touch(mode=0o600)
        users.write_text("".join(f"{user}:{password}\n" for user, password in accounts.items()))
        kind = "http_x_remote_user" if header else "htpasswd"
        values = {"base": directory, "address": address, "port": port, "kind": kind}
        tls = f"certificate = {certificate.certificate}\nkey = {certificate.private_key}\n"
        (directory / "config").write_text(_CONFIGURATION.format(**values, tls=tls))


_CONFIGURATION = """\
[server]
hosts = {address}:{port}
ssl = True
{tls}
[auth]
type = {kind}
htpasswd_filename = {base}/users
htpasswd_encryption = plain
delay = 0
[storage]
filesystem_folder = {base}/collections
[web]
type = none
"""
