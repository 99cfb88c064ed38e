"""The files with which this front end shows another machine's store who it is: etcd, Redis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol as Port

from cryptography.x509 import Certificate

from gatepost.configuration.document import Document
from gatepost.configuration.files import Files, Named
from gatepost.configuration.front_end_keys import SERVER_MARK, WHO
from gatepost.organization.faults import Path
from gatepost.organization.model import Server


class StoreTable(Port):
    """What the tables of both have. Empty: none."""

    password_file: str
    ca: str
    certificate: str
    private_key: str


@dataclass(frozen=True)
class StoreFiles:
    """Reads them; faults are findings. `path` leads to `table`, `store` is a word for messages."""

    document: Document
    table: StoreTable
    files: Files
    server: Server | None
    path: Path
    store: str

    def password(self) -> str:
        """Empty without one."""
        if not self.table.password_file:
            return ""
        return self.files.password(self.named("password_file", self.table.password_file, "the password")) or ""

    def ca(self) -> bytes:
        """The authorities, PEM; empty: the system's."""
        if not self.table.ca:
            return b""
        found = self.files.certificates(self.named("ca", self.table.ca, "the authorities' file"))
        return found[0] if found else b""

    def key_pair(self) -> tuple[bytes, bytes, Certificate | None]:
        """Our certificate and its private key, PEM, both empty without a usable pair; and the certificate as it is."""
        table = self.table
        if not table.certificate:
            return b"", b"", None
        chain = self.files.certificates(self.named("certificate", table.certificate, "the certificate"))
        own = chain[1][0] if chain else None
        if chain is None and not table.private_key:
            return b"", b"", None  # one file, one fault
        key = "private_key" if table.private_key else "certificate"
        named = self.named(key, table.private_key or table.certificate, "the private key")
        private_key = self.files.private_key(named, own)
        return (chain[0], private_key, own) if chain and private_key else (b"", b"", own)

    def named(self, key: str, path: str, what: str) -> Named:
        """The file that `key` names, where `path` may hold the server's name."""
        word = self.server.name.lower() if self.server else ""
        path = path.replace(SERVER_MARK, word)
        return Named(self.document, (*self.path, key), path, WHO, f"{what} for {self.store}")
