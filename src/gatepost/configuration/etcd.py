"""From `[front_end.etcd]` to `EtcdSettings`, with the faults that need the organization or the files (SPEC A4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from cryptography.x509.oid import NameOID

from gatepost.configuration.document import Document
from gatepost.configuration.etcd_schema import EtcdTable
from gatepost.configuration.files import Files
from gatepost.configuration.front_end_keys import WHO
from gatepost.configuration.settings import EtcdSettings
from gatepost.configuration.store_files import StoreFiles
from gatepost.organization.addresses import is_loopback, parse_http_url
from gatepost.organization.faults import Path, error, quoted, warning
from gatepost.organization.model import Finding, Organization, Server

PREFIX = "/gatepost"
"""What keys begin with where no prefix is written; the organization's name follows."""
_PATH: Path = ("front_end", "etcd")


def build_etcd(
    document: Document,
    table: EtcdTable | None,
    files: Files,
    organization: Organization | None,
    server: Server | None,
) -> EtcdSettings | None:
    """The settings as far as they can be built; None when the registry is a file. Faults are findings."""
    return _Build(document, table, files, organization, server).settings() if table is not None else None


@dataclass(frozen=True)
class _Build:
    document: Document
    table: EtcdTable
    files: Files
    organization: Organization | None
    server: Server | None

    def settings(self) -> EtcdSettings:
        """The settings, with their faults added to the findings."""
        table = self.table
        for finding in (*self._judge_endpoints(), *self._judge_prefix(), *self._judge_pairs()):
            self._add(finding)
        own = StoreFiles(self.document, table, self.files, self.server, _PATH, "etcd")
        certificate, private_key, shown = own.key_pair()
        if shown is not None and table.user and shown.subject.get_attributes_for_oid(NameOID.COMMON_NAME):
            message = f"the certificate {table.certificate} has a common name, which etcd refuses where accounts are on"
            remedy = "get one with an empty subject and its names as alternative names"
            self._add(warning((*_PATH, "certificate"), WHO, message, remedy))
        return EtcdSettings(
            endpoints=tuple(url.rstrip("/") for url in table.endpoints),
            prefix=self._prefix(),
            user=table.user,
            password=own.password(),
            ca=own.ca(),
            certificate=certificate,
            private_key=private_key,
        )

    def _add(self, finding: Finding) -> None:
        self.files.findings.add(self.document, finding)

    def _prefix(self) -> str:
        if self.table.prefix:
            return self.table.prefix.rstrip("/")
        return f"{PREFIX}/{quote(self.organization.name, safe='') if self.organization else ''}"

    def _judge_endpoints(self) -> Iterator[Finding]:
        endpoints = self.table.endpoints
        if not endpoints:
            remedy = 'name all members: endpoints = ["https://etcd-1.contoso.com:2379"]'
            yield error((*_PATH, "endpoints"), WHO, "no endpoint of etcd", remedy)
        for index, text in enumerate(endpoints):
            here: Path = (*_PATH, "endpoints", index)
            try:
                url = parse_http_url(text)
            except ValueError as fault:
                yield error(here, WHO, f"the endpoint {quoted(text)} {fault}", "write it like https://etcd-1:2379")
                continue
            if url.path.strip("/"):
                yield error(here, WHO, f"the endpoint {quoted(text)} has a path", "leave the path away")
            if url.scheme == "http" and not is_loopback(url.host):
                message = f"the endpoint {quoted(text)} is in clear text and on another machine"
                yield error(here, WHO, message, "use https: who changes what is read there takes over every session")
            if text.rstrip("/") in (other.rstrip("/") for other in endpoints[:index]):
                yield warning(here, WHO, f"the endpoint {quoted(text)} is there twice", "name each member once")

    def _judge_prefix(self) -> Iterator[Finding]:
        prefix = self.table.prefix
        if not prefix:
            return
        if not prefix.startswith("/") or not prefix.strip("/"):
            message = f"the prefix {quoted(prefix)} does not begin with a slash and a name"
            yield error((*_PATH, "prefix"), WHO, message, 'write it like "/gatepost/contoso"')
        elif not prefix.isascii() or any(character <= " " or character == "\x7f" for character in prefix):
            message = f"the prefix {quoted(prefix)} has spaces or characters that are not ASCII"
            yield error((*_PATH, "prefix"), WHO, message, 'write it like "/gatepost/contoso"')

    def _judge_pairs(self) -> Iterator[Finding]:
        """What is of no use without something else."""
        table = self.table
        if table.user and not table.password_file:
            message = "a user at etcd and no password"
            yield error((*_PATH, "user"), WHO, message, 'add password_file = "secrets/etcd"')
        if table.password_file and not table.user:
            yield error((*_PATH, "password_file"), WHO, "a password for etcd and no user", 'add user = "gatepost"')
        if table.private_key and not table.certificate:
            message = "a private key for etcd and no certificate"
            yield error((*_PATH, "private_key"), WHO, message, "add certificate, or leave private_key away")
        clear = table.endpoints and not any(url.startswith("https:") for url in table.endpoints)
        for key in ("ca", "certificate"):
            if clear and getattr(table, key):
                message = f"{key} has no use: every endpoint of etcd is in clear text"
                yield warning((*_PATH, key), WHO, message, "use https")
