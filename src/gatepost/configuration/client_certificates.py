"""`[front_end.client_certificates]`: its shape, and its settings with the faults of files and of the organization."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field

from gatepost.configuration.document import Document
from gatepost.configuration.files import Files, Named
from gatepost.configuration.scram import servers_wanting_passwords
from gatepost.configuration.tables import Table
from gatepost.configuration.words import by_value, reader
from gatepost.directory.certificates import read_crls
from gatepost.directory.settings import CertificateSettings, NameSource
from gatepost.organization.faults import Path, error, listed, warning
from gatepost.organization.model import (
    CLIENT_PROTOCOLS,
    AuthenticationMethod,
    Finding,
    Organization,
    Protocol,
    Server,
    TlsMode,
)

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from gatepost.configuration.schema import FrontEndTable

WHO = "front end"
PATH: Path = ("front_end", "client_certificates")

CertificateWord = Annotated[Protocol, BeforeValidator(reader({p.value: p for p in CLIENT_PROTOCOLS}))]
NameWord = Annotated[NameSource, BeforeValidator(reader(by_value(NameSource)))]


class ClientCertificatesTable(Table):
    """Sign-in by clients' certificates: SASL EXTERNAL, and HTTP requests to virtual directories whose `authentication`
    has `certificate` (`docs/client-certificates.md`). Without this table clients are asked for none."""

    ca: str = Field(examples=['"pki/users-ca.crt"'])
    """File with the authorities that sign users' certificates, PEM: roots and, where clients do not send them,
    intermediates. A certificate of another one ends the handshake."""
    crl: str = Field(default="", examples=['"pki/users.crl"'])
    """File with the authorities' CRLs, one as DER or several as PEM. Workers read it when it changes, so their account
    must be able to. With it, a certificate whose authority has no CRL in it, or an outdated one, is not judged."""
    optional: list[CertificateWord] = Field(default=[], examples=['["imap", "submission"]'])
    """Protocols whose clients are asked for one and may go on without: `imap`, `pop3`, `https`, `submission`."""
    required: list[CertificateWord] = Field(default=[], examples=['["https"]'])
    """Protocols whose clients must have one, whatever they sign in with."""
    names: list[NameWord] = Field(default=[NameSource.UPN, NameSource.EMAIL], examples=['["email", "common-name"]'])
    """Where the user's name is, in this order: `upn` (Microsoft's principal name) and `email` of the subject
    alternative name, `common-name` of the subject."""


def build_client_certificates(
    document: Document, table: FrontEndTable, files: Files, server: Server | None, organization: Organization | None
) -> CertificateSettings | None:
    """The settings as far as they can be built; None where clients are asked for none. Faults are findings."""
    asked = table.client_certificates
    if asked is None:
        return None
    found = files.certificates(Named(document, (*PATH, "ca"), asked.ca, WHO, "the users' CA"))
    for finding in _judge(asked):
        files.findings.add(document, finding)
    if asked.crl:
        for finding in _judge_crl(document, asked, files, found[1] if found else [], table.user):
            files.findings.add(document, finding)
    if server is not None and organization is not None:
        for finding in _judge_served(asked, server, organization):
            files.findings.add(document, finding)
    return CertificateSettings(
        ca=found[0] if found else b"",
        crl=document.beside(asked.crl) if asked.crl else "",
        optional=frozenset(asked.optional),
        required=frozenset(asked.required),
        names=tuple(asked.names),
    )


def _judge(table: ClientCertificatesTable) -> Iterator[Finding]:
    if not table.optional and not table.required:
        message = "no protocol: no client is asked for a certificate"
        yield error((*PATH, "optional"), WHO, message, 'for example optional = ["imap"]')
    both = sorted(p.value for p in {*table.optional} & {*table.required})
    if both:
        message = f"{listed(both)} is in optional and in required"
        yield error((*PATH, "optional"), WHO, message, "leave it in one of them")
    if not table.names:
        message = "no name is looked for: a certificate would be nobody's"
        yield error((*PATH, "names"), WHO, message, 'for example ["upn", "email"]')


def _judge_crl(
    document: Document, table: ClientCertificatesTable, files: Files, authorities: list[Certificate], account: str
) -> Iterator[Finding]:
    named = Named(document, (*PATH, "crl"), table.crl, WHO, "the CRL")
    data = files.content(named)
    if data is None:
        return
    path = document.beside(table.crl)
    if account and files.machine is not None and not files.machine.may_read(account, path):
        message = f"the account {account} may not read {table.crl}: nobody could sign in by a certificate"
        yield error(named.key, WHO, message, f"chmod a+r {table.crl}")
    if not authorities:
        return
    try:
        crls = read_crls(data, authorities)
    except ValueError as fault:
        yield error(named.key, WHO, f"the CRL {table.crl}: {fault}", "give the CRL of the authorities in ca")
        return
    for crl in crls:
        until = crl.next_update_utc
        if until is not None and until < files.now:
            message = f"the CRL {table.crl} is outdated since {until.isoformat()}: nobody can sign in by a certificate"
            yield warning(named.key, WHO, message, "fetch the present one")


def _judge_served(table: ClientCertificatesTable, server: Server, organization: Organization) -> Iterator[Finding]:
    for key, protocols in (("optional", table.optional), ("required", table.required)):
        for protocol in protocols:
            endpoints = [e for e in server.client_endpoints if e.protocol is protocol]
            if not any(endpoint.tls is not TlsMode.CLEAR for endpoint in endpoints):
                message = f"server {server.name} has no endpoint with TLS for {protocol.value}"
                yield warning((*PATH, key), WHO, message, "give it one, or leave the protocol out")
            wanting = [] if protocol is Protocol.HTTPS else servers_wanting_passwords(organization, server, protocol)
            if wanting:
                message = (
                    f"{listed(wanting)} wants users' own passwords for {protocol.value}: who signs in by a "
                    f"certificate is told to come back later"
                )
                remedy = 'have it take a master user (sign_in.form = "master-name")'
                yield warning((*PATH, key), WHO, message, remedy)
    own = organization.directories_by_server.get(server.name, ())
    allowing = [d.path for d in own if AuthenticationMethod.CERTIFICATE in d.authentication]
    if Protocol.HTTPS in (*table.optional, *table.required) and not allowing:
        message = f"no virtual directory of {server.name} has the authentication certificate"
        yield warning((*PATH, "optional"), WHO, message, 'add "certificate" to those that take it')
