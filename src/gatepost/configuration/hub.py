"""From `[front_end.transport]` to `HubSettings`, with the faults that need the organization or the files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import PurePath

from gatepost.configuration.document import Document
from gatepost.configuration.files import Files, Named
from gatepost.configuration.front_end_keys import WHO
from gatepost.configuration.hub_schema import ContentHookTable, HubTable
from gatepost.configuration.hub_settings import ContentHookSettings, DkimSettings, HubSettings
from gatepost.configuration.schema import FrontEndTable
from gatepost.organization.addresses import parse_http_url
from gatepost.organization.faults import Path, error, listed, warning
from gatepost.organization.model import Finding, Organization, Protocol, Role, Server, TlsMode, Version
from gatepost.organization.transport import ReceiveAuthentication

CONNECTIVITY_LOG = "connectivity"
"""The connectivity log's folder within the spool, where none is named."""
_PATH: Path = ("front_end", "transport")


def build_hub(
    document: Document, front_end: FrontEndTable, files: Files, server: Server | None, organization: Organization | None
) -> HubSettings | None:
    """The transport's settings as far as they can be built; None when there is none. Faults are findings."""
    table = front_end.transport
    if table is None:
        return None
    if server is not None and organization is not None:
        for finding in _judge_certificates(front_end, server, organization):
            files.findings.add(document, finding)
    return _Build(document, table, files, server).settings()


def _judge_certificates(front_end: FrontEndTable, server: Server, organization: Organization) -> Iterator[Finding]:
    """What connectors promise and cannot keep without a certificate."""
    own = [c for c in organization.receive_connectors_by_server.get(server.name, ()) if c.enabled]
    if not front_end.certificate:
        strict = [c.name for c in own if c.require_tls or any(b.implicit_tls for b in c.bindings)]
        users = [c.name for c in own if ReceiveAuthentication.BASIC_REQUIRE_TLS in c.authentication]
        path: Path = ("front_end", "certificate")
        remedy = 'add certificate = "pki/mail.crt" and private_key = "pki/mail.key"'
        if strict:
            yield error(path, WHO, f"no certificate, but TLS is required at {listed(strict)}", remedy)
        elif users:
            message = f"no certificate: there is no TLS, so nobody can sign in at {listed(users)}"
            yield warning(path, WHO, message, remedy)
    others = [
        other.name
        for other in organization.servers.values()
        if other.takes_mail and other is not server and _is_mutual(other)
    ]
    if not front_end.peer_certificate and others:
        message = f"no peer_certificate: {listed(sorted(others))} and {server.name} cannot hand each other mail"
        if organization.transport_config.shadow_redundancy_enabled and Role.HUB_TRANSPORT in server.roles:
            message += ", nor keep shadows of it"
        yield warning(
            ("front_end", "peer_certificate"), WHO, message, f"make one with: gatepost ca issue {server.name}"
        )


def _is_mutual(other: Server) -> bool:
    endpoint = other.endpoint(Protocol.SMTP)
    return endpoint is not None and other.version is Version.MODERN and endpoint.tls is not TlsMode.CLEAR


def parse_resolver(text: str) -> tuple[str, int]:
    """Address and port of `address`, `address:port` or `[address]:port`. Raises ValueError."""
    host, port = text, 53
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = int(rest.removeprefix(":")) if rest else 53
    elif text.count(":") == 1:
        host, _, rest = text.partition(":")
        port = int(rest)
    if not 0 < port < 65536:
        raise ValueError(f"{port} is no port")
    return str(ip_address(host)), port


@dataclass(frozen=True)
class _Build:
    document: Document
    table: HubTable
    files: Files
    server: Server | None

    def settings(self) -> HubSettings:
        """The settings, with their faults added to the findings."""
        table = self.table
        for finding in self._judge():
            self.files.findings.add(self.document, finding)
        spool = self.document.beside(table.spool)
        log = self.document.beside(table.connectivity_log) if table.connectivity_log else ""
        return HubSettings(
            spool=spool,
            resolvers=tuple(table.resolvers),
            connectivity_log=log or str(PurePath(spool) / CONNECTIVITY_LOG),
            dkim=tuple(self._dkim()),
            content_hook=self._hook(table.content_hook) if table.content_hook is not None else None,
            ending_seconds=table.ending_seconds,
        )

    def _judge(self) -> Iterator[Finding]:
        if not self.table.spool:
            yield error((*_PATH, "spool"), WHO, "spool is empty", 'name its folder: spool = "state/spool"')
        for index, resolver in enumerate(self.table.resolvers):
            try:
                parse_resolver(resolver)
            except ValueError:
                message = f'"{resolver}" is no address of a DNS server'
                yield error(
                    (*_PATH, "resolvers", index), WHO, message, 'write it like "192.0.2.53" or "127.0.0.1:5353"'
                )
        roles = {Role.HUB_TRANSPORT, Role.EDGE_TRANSPORT}
        if self.server is not None and not self.server.roles & roles:
            message = f"server {self.server.name} is neither a hub nor an edge transport server"
            remedy = f'give {self.server.name} the role "hub-transport", or remove the table'
            yield error(_PATH, WHO, message, remedy, ("servers", self.server.name, "roles"))

    def _dkim(self) -> Iterator[DkimSettings]:
        for domain, table in self.table.dkim.items():
            path = (*_PATH, "dkim", domain)
            key = self.files.private_key(
                Named(self.document, (*path, "private_key"), table.private_key, WHO, "the DKIM key"), None
            )
            if not table.selector:
                self.files.findings.add(
                    self.document, error((*path, "selector"), WHO, "selector is empty", 'for example "2027a"')
                )
            if key is not None:
                yield DkimSettings(domain.lower(), table.selector, key)

    def _hook(self, table: ContentHookTable) -> ContentHookSettings:
        path: Path = (*_PATH, "content_hook")
        add = self.files.findings.add
        if bool(table.command) == bool(table.url):
            message = "a content hook is either a command or a url"
            add(self.document, error(path, WHO, message, "write one of the two"))
        if table.url:
            try:
                parse_http_url(table.url)
            except ValueError as fault:
                add(self.document, error((*path, "url"), WHO, f"url: {fault}", "write an http or https URL"))
        if table.command and not table.command[0].startswith("/"):
            message = f'the command "{table.command[0]}" has no whole path'
            add(self.document, warning((*path, "command"), WHO, message, "begin it with a slash"))
        return ContentHookSettings(tuple(table.command), table.url, table.seconds, table.max_bytes, table.unavailable)
