"""From the `[front_end]` table to `settings.FrontEnd`, with the faults that need the organization or the files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath

from cryptography.x509 import Certificate

from gatepost.configuration.certificates import uncovered
from gatepost.configuration.client_certificates import build_client_certificates
from gatepost.configuration.directories import build_directories
from gatepost.configuration.document import Document
from gatepost.configuration.etcd import build_etcd
from gatepost.configuration.files import Files, Named
from gatepost.configuration.front_end_keys import build_forms, build_peer_keys
from gatepost.configuration.hub import build_hub
from gatepost.configuration.kerberos import build_kerberos
from gatepost.configuration.manager import build_manager
from gatepost.configuration.policy import build_policy
from gatepost.configuration.schema import FrontEndTable
from gatepost.configuration.scram import build_scram
from gatepost.configuration.settings import FrontEnd, Limits
from gatepost.configuration.shared_store import build_shared_store
from gatepost.configuration.token_issuers import build_token_issuers
from gatepost.organization.addresses import parse_http_url
from gatepost.organization.faults import Path, error, listed, quoted, suggestion, unknown, warning
from gatepost.organization.model import (
    AuthenticationMethod,
    Endpoint,
    Finding,
    Organization,
    Protocol,
    Role,
    Server,
    TlsMode,
)

WHO = "front end"
SHARED_STATE = "shared.sqlite"
"""The shared state's file beside the registry, where none is named."""
APP_PASSWORDS = "app-passwords.sqlite"
"""The same for app passwords."""
LONGEST_IDLE_SECONDS = 1800
"""A client may be silent for 30 minutes (RFC 9051 section 5.4)."""

TRANSPORT_ROLES = frozenset({Role.HUB_TRANSPORT, Role.EDGE_TRANSPORT})
"""Servers that may run a transport and nothing else."""


@dataclass(frozen=True)
class FrontEndBuilder:
    """Builds one front end. `organization` is None when it could not be built; what needs it is then not judged."""

    document: Document
    table: FrontEndTable
    files: Files
    organization: Organization | None
    server_option: str | None = None
    """The server named on the command line instead of in the file."""

    def build(self) -> FrontEnd:
        """The front end as far as it can be built; the findings say whether it can be used."""
        table = self.table
        server = self._server()
        certificate, private_key = self._key_pair(server)
        for finding in (*self._judge(), *self._judge_machine()):
            self._add(finding)
        etcd = build_etcd(self.document, table.etcd, self.files, self.organization, server)
        return FrontEnd(
            server=server.name if server else "",
            directory=self.document.beside(table.directory),
            registry=self.document.beside(table.registry),
            certificate=certificate,
            private_key=private_key,
            server_ca=self._authorities(table.server_ca),
            workers=table.workers,
            user=table.user,
            proxy_protocol_from=tuple(table.proxy_protocol_from),
            allow_clear_passwords=table.allow_clear_passwords,
            pop3_utf8=table.pop3_utf8,
            submission_extensions=tuple(dict.fromkeys(table.submission_extensions)),
            carry_over_idle=table.carry_over_idle,
            log_file=self.document.beside(table.log_file) if table.log_file else "",
            log_requests=table.log_requests,
            limits=Limits(**table.limits.model_dump()),
            token_issuers=build_token_issuers(self.document, table.token_issuers, self.files),
            shared_state=self.document.beside(
                table.shared_state or str(PurePath(table.registry).parent / SHARED_STATE)
            ),
            app_passwords=self.document.beside(
                table.app_passwords or str(PurePath(table.registry).parent / APP_PASSWORDS)
            ),
            forms=build_forms(self.document, table.forms, self.files),
            peer_keys=build_peer_keys(
                self.document, table, self.files, server, self.organization.servers if self.organization else {}
            ),
            manager=build_manager(self.document, table.manager, self.files, self.organization),
            etcd=etcd,
            shared_store=build_shared_store(
                self.document, table.shared_store, self.files, self.organization, server, etcd
            ),
            kerberos=build_kerberos(self.document, table.kerberos, self.files, server, self.organization, table.user),
            client_certificates=build_client_certificates(self.document, table, self.files, server, self.organization),
            scram=build_scram(self.document, table.scram, self.files, server, self.organization),
            transport=build_hub(self.document, table, self.files, server, self.organization),
            policy=build_policy(self.document, table.sign_in_policy, self.files),
            directories=build_directories(self.document, table.directories, self.files, self.organization),
        )

    def _add(self, finding: Finding) -> None:
        self.files.findings.add(self.document, finding)

    def _server(self) -> Server | None:
        """The server that this front end is, if it can be one."""
        path: Path = ("front_end", "server")
        name = self.server_option or self.table.server
        if not name:
            self._add(error(path, WHO, "no server is named", 'add server = "CAS-01", or give --server'))
            return None
        if self.organization is None:
            return None
        servers = self.organization.servers
        server = servers.get(name)
        if server is None and self.server_option:
            message = f'server "{name}" of the option --server does not exist'
            self._add(error(path, WHO, message, suggestion(name, servers, "servers")))
        elif server is None:
            self._add(unknown(path, WHO, "server", "servers", name, servers))
        elif self.table.transport is not None and not server.roles.isdisjoint(TRANSPORT_ROLES):
            return server  # a hub or edge: it may listen for clients or not
        elif Role.CLIENT_ACCESS not in server.roles:
            message = f"server {name} is not a client access server"
            remedy = f'give {name} the role "client-access", or name another server'
            self._add(error(path, WHO, message, remedy, ("servers", name, "roles")))
            return None
        elif not server.endpoints:
            here: Path = ("servers", name, "endpoints")
            remedy = f"list them in [servers.{name}.endpoints], for example imaps = {{}}"
            self._add(
                error(path, WHO, f"server {name} has no endpoints, so there is nothing to listen on", remedy, here)
            )
        return server

    def _key_pair(self, server: Server | None) -> tuple[bytes, bytes]:
        """Certificate chain and private key."""
        table = self.table
        if not table.certificate:
            needing = [e.name for e in server.client_endpoints if _has_tls(e)] if server else []
            if needing or table.private_key:
                message = f"no certificate, but TLS at the endpoint {listed(needing)}" if needing else "no certificate"
                self._add(error(("front_end", "certificate"), WHO, message, 'add certificate = "pki/front.crt"'))
            elif paths := self._paths_with_page(server):
                message = f"no certificate, but a sign-in page at {listed(paths)}: its private key seals the cookies"
                self._add(error(("front_end", "certificate"), WHO, message, 'add certificate = "pki/front.crt"'))
            return b"", b""
        named = Named(self.document, ("front_end", "certificate"), table.certificate, WHO, "the certificate")
        chain = self.files.certificates(named)
        leaf = chain[1][0] if chain else None
        if table.private_key:
            key_file = Named(self.document, ("front_end", "private_key"), table.private_key, WHO, "the private key")
        else:
            key_file = replace(named, what="the private key in")
            if chain is None:
                return b"", b""  # one file, one fault
        key = self.files.private_key(key_file, leaf)
        if leaf is not None and server is not None:
            self._cover(leaf, server)
        return chain[0] if chain else b"", key or b""

    def _paths_with_page(self, server: Server | None) -> list[str]:
        """Paths of this front end's virtual directories that show the sign-in page (SPEC B6)."""
        if server is None or self.organization is None:
            return []
        own = self.organization.directories_by_server.get(server.name, ())
        return [d.path for d in own if AuthenticationMethod.FORMS in d.authentication]

    def _cover(self, leaf: Certificate, server: Server) -> None:
        """Clients compare the certificate with the name that they were told. Names at fault are not judged."""
        if self.files.findings.faulty:
            return
        missing = uncovered(leaf, public_names(self.organization, server) if self.organization else [server.fqdn])
        if missing:
            message = f"the certificate does not stand for {listed(missing)}: clients will refuse it"
            remedy = "get a certificate with every name that clients use"
            self._add(warning(("front_end", "certificate"), WHO, message, remedy))

    def _authorities(self, path: str) -> bytes:
        if not path:
            return b""
        found = self.files.certificates(
            Named(self.document, ("front_end", "server_ca"), path, WHO, "the authorities' file")
        )
        return found[0] if found else b""

    def _judge(self) -> Iterator[Finding]:
        """Faults of the table's values among themselves."""
        table = self.table
        for key in ("directory", "registry"):
            if not getattr(table, key):
                yield error(("front_end", key), WHO, f"{key} is empty", f'name its file: {key} = "state/{key}.sqlite"')
        if table.directory and table.directory == table.registry:
            message = "directory and registry are the same file"
            yield error(("front_end", "registry"), WHO, message, "give each its own file")
        own = self.organization.directories_by_server.get(table.server, ()) if self.organization else ()
        if not table.token_issuers and any(AuthenticationMethod.OAUTH in d.authentication for d in own):
            message = 'a virtual directory has "oauth", but tokens of no issuer are taken: it is not offered'
            yield warning(("front_end", "token_issuers"), WHO, message, "add [[front_end.token_issuers]]")
        idle = Limits(**table.limits.model_dump()).idle_seconds
        if idle < LONGEST_IDLE_SECONDS:
            message = f"idle_seconds is {idle:g}, but clients may be silent for 30 minutes: sessions will be cut"
            remedy = f"make it {LONGEST_IDLE_SECONDS} or more"
            yield warning(("front_end", "limits", "idle_seconds"), WHO, message, remedy)

    def _judge_machine(self) -> Iterator[Finding]:
        """What the table names and this machine does not have; it may be made before the start."""
        machine, table = self.files.machine, self.table
        if machine is None:
            return
        if table.user and not machine.has_account(table.user):
            message = f"there is no account {quoted(table.user)} on this machine"
            yield warning(("front_end", "user"), WHO, message, f"create it: useradd --system {table.user}")
        owner = table.user or "the account that runs gatepost"
        missing: dict[str, str] = {}
        for key in ("directory", "registry", "shared_state", "app_passwords", "log_file"):
            if getattr(table, key):
                folder = os.path.dirname(self.document.beside(getattr(table, key))) or "."  # noqa: PTH120 - as written
                missing.setdefault(folder, key)
        for folder, key in missing.items():
            if not machine.has_folder(folder):
                message = f"the folder {folder} of {key} does not exist"
                yield warning(("front_end", key), WHO, message, f"create it; it must belong to {owner}")


def _has_tls(endpoint: Endpoint) -> bool:
    """Whether this front end itself speaks TLS there. Behind SMTP that is the hubs' part."""
    return endpoint.tls is not TlsMode.CLEAR and endpoint.protocol is not Protocol.SMTP


def public_names(organization: Organization, server: Server) -> list[str]:
    """The names by which clients know a front end: its external URLs' and its array's, else its own."""
    names = []
    for directory in organization.directories_by_server.get(server.name, ()):
        try:
            names.append(parse_http_url(directory.external_url or "").host)
        except ValueError:
            continue  # none, or a fault that the check reports
    names += [array.fqdn.lower() for array in organization.arrays.values() if server.name in array.members]
    return list(dict.fromkeys(names)) or [server.fqdn]
