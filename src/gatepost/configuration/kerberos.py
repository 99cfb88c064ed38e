"""From `[front_end.kerberos]` to `directory.settings.KerberosSettings`, with the faults that need the keytab."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from gatepost.configuration.document import Document
from gatepost.configuration.files import Files, Named
from gatepost.configuration.kerberos_schema import KerberosTable
from gatepost.configuration.keytab import BadKeytab, keytab_principals
from gatepost.directory.kerberos_port import SERVICES, peer_service
from gatepost.directory.settings import KerberosSettings
from gatepost.organization.faults import Path, error, listed, warning
from gatepost.organization.model import Finding, Organization, Server

WHO = "front end"
PATH: Path = ("front_end", "kerberos")


def build_kerberos(
    document: Document,
    table: KerberosTable | None,
    files: Files,
    server: Server | None,
    organization: Organization | None,
    account: str,
) -> KerberosSettings | None:
    """The settings as far as they can be built. `account`: whose rights the workers have; empty: ours."""
    if table is None:
        for finding in _judge_wanted(server, organization):
            files.findings.add(document, finding)
        return None
    named = Named(document, (*PATH, "keytab"), table.keytab, WHO, "the keytab")
    path = document.beside(table.keytab)
    data = files.secret(named)
    present: tuple[str, ...] | None = None
    findings = [*_judge(table)]
    if data is not None:
        try:
            present = keytab_principals(data)
        except BadKeytab as bad:
            findings.append(error(named.key, WHO, f"{table.keytab}: {bad}", "export it again: docs/kerberos.md"))
        if account and files.machine is not None and not files.machine.may_read(account, path):
            message = f"the account {account} may not read {table.keytab}: nobody could sign in by Kerberos"
            findings.append(error(named.key, WHO, message, f"chown {account} {table.keytab}"))
    names = table.service_principals or [*_of_our_services(present or ())]
    if present is not None:
        findings += _judge_names(table, names, present)
        findings += _judge_accounts(table, server, present)
        if server is not None:
            findings += _judge_served(names, server, organization)
    findings += _judge_delegation(table, organization)
    for finding in findings:
        files.findings.add(document, finding)
    return KerberosSettings(
        keytab=path,
        service_principals=tuple(names),
        realms=tuple(table.realms.items()),
        netbios_domains=tuple((name.upper(), domain) for name, domain in table.netbios_domains.items()),
        delegation_principal=table.delegation_principal,
        peer_principal=server.kerberos_principal if server is not None else "",
    )


def _judge(table: KerberosTable) -> Iterator[Finding]:
    if find_spec("gssapi") is None:
        yield error(PATH, WHO, "Kerberos needs gssapi, which is not installed", "pip install gatepost[kerberos]")
    if not table.realms:
        yield error((*PATH, "realms"), WHO, "no realm: nobody could sign in", 'for example { "AD.X.COM" = "x.com" }')
    for realm, domain in table.realms.items():
        if realm != realm.upper():
            message = f"realm {realm} is not in capitals, as realms are: tickets of {realm.upper()} will be refused"
            yield warning((*PATH, "realms", realm), WHO, message, f'write "{realm.upper()}"')
        if not domain:
            yield error((*PATH, "realms", realm), WHO, f"realm {realm} has no domain", 'for example "contoso.com"')
    for name, domain in table.netbios_domains.items():
        if not domain:
            yield error((*PATH, "netbios_domains", name), WHO, f"{name} has no domain", 'for example "contoso.com"')


def _of_our_services(principals: tuple[str, ...]) -> Iterator[str]:
    services = {service.casefold() for service in SERVICES.values()}
    for principal in principals:
        name = principal.rpartition("@")[0]
        if name.count("/") == 1 and name.partition("/")[0].casefold() in services:
            yield name


def _judge_names(table: KerberosTable, names: list[str], present: tuple[str, ...]) -> Iterator[Finding]:
    """Every name needs its key, or clients get tickets that nobody here can open."""
    here: Path = (*PATH, "service_principals")
    services = {service.casefold(): service for service in SERVICES.values()}
    if not names:
        message = f"{table.keytab} has no key of {listed(sorted(SERVICES.values()))}"
        yield error((*PATH, "keytab"), WHO, message, "export the keys of such service principals into it")
    keys = {principal.rpartition("@")[0].casefold() for principal in present}
    for index, name in enumerate(table.service_principals):
        service, slash, host = name.partition("/")
        if not slash or not host or "@" in name or service.casefold() not in services:
            message = f'"{name}" is no service principal of a mail protocol'
            yield error((*here, index), WHO, message, 'write HTTP, imap, pop or smtp: "imap/mail.contoso.com"')
        elif name.casefold() not in keys:
            message = f"{table.keytab} has no key of {name}: tickets for it could not be opened"
            yield error((*here, index), WHO, message, f"export the key of {name} into it")


def _judge_served(names: list[str], server: Server, organization: Organization | None) -> Iterator[Finding]:
    """Clients make the principal's name of the host name that they connect to."""
    given = {name.casefold() for name in names}
    hosts = {server.fqdn.casefold()}
    if organization is not None:
        hosts |= {array.fqdn.casefold() for array in organization.arrays.values() if server.name in array.members}
    for protocol in dict.fromkeys(endpoint.protocol for endpoint in server.client_endpoints):
        service = SERVICES.get(protocol)
        offered = [name for name in given if service and name.startswith(f"{service.casefold()}/")]
        missing = [f"{service}/{host}" for host in sorted(hosts) if f"{service}/{host}".casefold() not in given]
        if offered and len(missing) == len(hosts):
            message = f"no key for {listed(missing)}: clients that connect to this name get no ticket that fits"
            yield warning((*PATH, "service_principals"), WHO, message, "add it, or have clients use another name")


def _judge_accounts(table: KerberosTable, server: Server | None, present: tuple[str, ...]) -> Iterator[Finding]:
    """What we ask tickets as needs its key here, under that very name."""
    accounts = [((*PATH, "delegation_principal"), WHO, table.delegation_principal)]
    if server is not None:
        path: Path = ("servers", server.name, "kerberos_principal")
        accounts.append((path, f"server {server.name}", server.kerberos_principal))
        endpoint = server.peer_endpoint
        if server.kerberos_principal and endpoint is not None:
            service = peer_service(server, endpoint)
            if service.casefold() not in {principal.casefold() for principal in present}:
                message = f"{table.keytab} has no key of {service}: tickets of other front ends could not be opened"
                yield error(path, f"server {server.name}", message, f"export the key of {service} into it")
    for here, who, account in accounts:
        if account and account not in present:
            message = f"{table.keytab} has no key of {account}: no tickets could be asked for as it"
            yield error(here, who, message, f"export the key of {account} into it")


def _judge_delegation(table: KerberosTable, organization: Organization | None) -> Iterator[Finding]:
    """Servers that want tickets of users, and an account that can get them."""
    wanting = _wanting(organization)
    if wanting and not table.delegation_principal:
        message = f"{listed(wanting)} wants tickets of users, and no account is named that may ask for them"
        yield error((*PATH, "delegation_principal"), WHO, message, 'for example "svc-mail@AD.CONTOSO.COM"')


def _judge_wanted(server: Server | None, organization: Organization | None) -> Iterator[Finding]:
    """Without the table nothing of Kerberos can be had."""
    wanting = _wanting(organization)
    if wanting:
        message = f"{listed(wanting)} wants tickets of users, and there is no [front_end.kerberos]"
        yield error(("front_end",), WHO, message, "add it: docs/kerberos.md")
    if server is not None and server.kerberos_principal:
        message = f"{server.name} has a kerberos_principal, and there is no [front_end.kerberos] with its key"
        yield error(("front_end",), WHO, message, "add it: docs/kerberos.md")


def _wanting(organization: Organization | None) -> list[str]:
    servers = organization.servers if organization is not None else {}
    return [server.name for server in servers.values() if server.sign_in.delegates]
