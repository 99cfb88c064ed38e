"""`[front_end.scram]`: its shape, and its settings with the faults that need the organization."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import BeforeValidator, Field

from gatepost.configuration.document import Document
from gatepost.configuration.files import Files
from gatepost.configuration.tables import Table, default_of
from gatepost.configuration.words import reader
from gatepost.directory.settings import ScramSettings
from gatepost.organization.faults import Path, error, listed, warning
from gatepost.organization.model import ClientAddress, Finding, Organization, Protocol, Role, Server, SignInForm

WHO = "front end"
PATH: Path = ("front_end", "scram")
_PROTOCOLS = (Protocol.IMAP, Protocol.POP3, Protocol.SUBMISSION)

ScramWord = Annotated[Protocol, BeforeValidator(reader({p.value: p for p in _PROTOCOLS}))]


class ScramTable(Table):
    """SCRAM-SHA-256: sign-in without the password crossing, for users whose stored hash is SCRAM's keys
    (`docs/directories.md`). Without this table it is not offered."""

    protocols: list[ScramWord] = Field(default=list(_PROTOCOLS), examples=['["imap"]'])
    """Where it is offered: `imap`, `pop3`, `submission`, which means a hub's users too."""
    iterations: int = Field(default=default_of(ScramSettings, "iterations"), ge=4096, le=1_000_000, examples=["4096"])
    """Of the keys that `gatepost user` makes. With users elsewhere, what their keys have: what strangers are told for
    names that nobody has must look the same."""


def build_scram(
    document: Document, table: ScramTable | None, files: Files, server: Server | None, organization: Organization | None
) -> ScramSettings | None:
    """The settings; None where SCRAM is not offered. Faults are findings."""
    if table is None:
        return None
    for finding in _judge(table, server, organization):
        files.findings.add(document, finding)
    return ScramSettings(frozenset(table.protocols), table.iterations)


def _judge(table: ScramTable, server: Server | None, organization: Organization | None) -> Iterator[Finding]:
    if not table.protocols:
        yield error((*PATH, "protocols"), WHO, "no protocol: SCRAM is offered nowhere", 'for example ["imap"]')
    if organization is None or server is None or Role.CLIENT_ACCESS not in server.roles:
        return
    for protocol in table.protocols:
        wanting = servers_wanting_passwords(organization, server, protocol)
        if wanting:
            message = (
                f"{listed(wanting)} wants users' own passwords for {protocol.value}: who signs in by SCRAM, as clients "
                f"then do, is told to come back later"
            )
            remedy = 'have it take a master user (sign_in.form = "master-name"), or leave the protocol out'
            yield warning((*PATH, "protocols"), WHO, message, remedy)


def servers_wanting_passwords(organization: Organization, front_end: Server, protocol: Protocol) -> list[str]:
    """Mailbox servers that are reached by `protocol` and want users' own passwords, which must be known."""
    return sorted(
        server.name
        for server in organization.servers.values()
        if server.name != front_end.name and Role.MAILBOX in server.roles and server.sign_in.form is SignInForm.USER
        for endpoint in server.endpoints
        if endpoint.protocol is protocol and endpoint.client_address is not ClientAddress.XCLIENT_LOGIN
    )
