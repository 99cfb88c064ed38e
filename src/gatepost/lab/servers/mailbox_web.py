"""The lab's own web part of a mailbox server of any version, as a process; see `gatepost.lab.web_server`."""

from __future__ import annotations

import sys
from pathlib import Path

from gatepost.lab.servers.pki import CertificateFiles
from gatepost.lab.servers.process import ServerProcess


class MailboxWeb(ServerProcess):
    """OWA, ActiveSync, EWS, Availability and OAB of one server, by HTTPS, or by HTTP without a certificate."""

    def __init__(
        self,
        directory: Path,
        name: str,
        site: str,
        address: str,
        port: int,
        certificate: CertificateFiles | None,
        *,
        version: str = "modern",
        user_header: str = "X-Remote-User",
    ) -> None:
        """`name` is what every answer tells; `version`: `2003`, `2007`, `2010`, `modern`."""
        directory.mkdir(parents=True, exist_ok=True)
        self.address = address
        self.port = port
        self._down_file = directory / "down"
        argv = [sys.executable, "-m", "gatepost.lab.web_server", "--name", name, "--site", site, "--version", version]
        argv += ["--address", address, "--port", str(port), "--user-header", user_header]
        argv += ["--down-file", str(self._down_file)]
        if certificate is not None:
            argv += ["--certificate", str(certificate.certificate), "--key", str(certificate.private_key)]
        super().__init__(f"{name} web", argv, directory, [(address, port)])

    def go_down(self, how: str = "hang") -> None:
        """From the next request on the service is dead, and connections are accepted all the same.

        `how`: `hang` (no answer), `close` (the connection ends), `error` (500). Held requests end as they would have.
        """
        written = self._down_file.with_suffix(".new")
        written.write_text(how)
        written.replace(self._down_file)

    def come_back(self) -> None:
        """Serve again; requests that hang are answered now."""
        self._down_file.unlink(missing_ok=True)
