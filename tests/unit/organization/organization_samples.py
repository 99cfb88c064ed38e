"""A clean organization for tests to spoil: two sites, a front end and a mailbox server in each, one database."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network
from typing import Any

from gatepost.organization.model import (
    ClientAccessArray,
    Database,
    DatabaseCopy,
    Endpoint,
    Organization,
    Protocol,
    Role,
    Server,
    Site,
    SiteLink,
    TlsMode,
    Version,
    VirtualDirectory,
)


def endpoint(name: str, address: str = "192.0.2.1", **changes: Any) -> Endpoint:
    """An endpoint as its name promises."""
    protocol, port, tls = {
        "imap": (Protocol.IMAP, 143, TlsMode.STARTTLS),
        "imaps": (Protocol.IMAP, 993, TlsMode.IMPLICIT),
        "pop3": (Protocol.POP3, 110, TlsMode.STARTTLS),
        "https": (Protocol.HTTPS, 443, TlsMode.IMPLICIT),
        "http": (Protocol.HTTPS, 80, TlsMode.CLEAR),
        "peer": (Protocol.HTTPS, 444, TlsMode.IMPLICIT),
    }.get(name, (Protocol.IMAP, 1143, TlsMode.STARTTLS))
    return replace(Endpoint(name, protocol, address, port, tls, "mbx-01.contoso.com"), **changes)


def server(name: str, site: str, *roles: Role, version: Version = Version.MODERN) -> Server:
    """A server that answers IMAP and HTTPS."""
    fqdn = f"{name.lower()}.contoso.com"
    endpoints = (endpoint("imaps", fqdn), endpoint("https", fqdn))
    return Server(name, site, fqdn, fqdn, version, frozenset(roles), endpoints)


def clean() -> Organization:
    """An organization without a fault."""
    return Organization(
        name="contoso",
        accepted_domains=("contoso.com",),
        sites={
            "usa": Site("usa", (ip_network("10.1.0.0/16"),), internet_facing=True),
            "asia": Site("asia", (ip_network("10.3.0.0/16"),)),
        },
        site_links={"usa-asia": SiteLink("usa-asia", ("usa", "asia"), 10)},
        servers={
            "CAS-01": server("CAS-01", "usa", Role.CLIENT_ACCESS),
            "CAS-03": server("CAS-03", "asia", Role.CLIENT_ACCESS),
            "MBX-01": server("MBX-01", "usa", Role.MAILBOX),
            "MBX-03": server("MBX-03", "asia", Role.MAILBOX),
        },
        databases={"DB01": Database("DB01", (DatabaseCopy("MBX-01", 1), DatabaseCopy("MBX-03", 2)))},
        virtual_directories=(
            VirtualDirectory("CAS-01", "owa", "/owa", "https://cas-01.contoso.com/owa", "https://www.contoso.com/owa"),
            VirtualDirectory("MBX-01", "owa", "/owa", "https://mbx-01.contoso.com/owa"),
        ),
        arrays={"outlook": ClientAccessArray("outlook", "usa", "outlook.contoso.com", ("CAS-01",))},
    )


def with_server(organization: Organization, name: str, **changes: Any) -> Organization:
    """`organization` with one server changed or added."""
    base = organization.servers.get(name) or server(name, "usa", Role.CLIENT_ACCESS)
    return replace(organization, servers={**organization.servers, name: replace(base, **changes)})


def with_endpoint(organization: Organization, added: Endpoint) -> Organization:
    """`organization` with one more endpoint of MBX-01."""
    found = organization.servers["MBX-01"]
    return with_server(organization, "MBX-01", endpoints=(*found.endpoints, added))


def with_copies(organization: Organization, *copies: DatabaseCopy) -> Organization:
    """`organization` with these copies of DB01."""
    return replace(organization, databases={"DB01": Database("DB01", copies)})


def with_directory(organization: Organization, directory: VirtualDirectory) -> Organization:
    """`organization` with one more virtual directory (number 2)."""
    return replace(organization, virtual_directories=(*organization.virtual_directories, directory))


def with_array(organization: Organization, **changes: Any) -> Organization:
    """`organization` with its array changed."""
    return replace(organization, arrays={"outlook": replace(organization.arrays["outlook"], **changes)})


def with_old_asia(organization: Organization, directory: VirtualDirectory) -> Organization:
    """Site asia runs 2010, so that CAS-01 must proxy to CAS-03; `directory` is one of CAS-03's."""
    roles = {"CAS-03": Role.CLIENT_ACCESS, "MBX-03": Role.MAILBOX}
    old = {name: server(name, "asia", role, version=Version.V2010) for name, role in roles.items()}
    door = old["CAS-03"]
    old["CAS-03"] = replace(door, endpoints=(*door.endpoints, endpoint("peer", door.fqdn)))
    mailboxes = old["MBX-03"]
    old["MBX-03"] = replace(
        mailboxes, endpoints=tuple(e for e in mailboxes.endpoints if e.protocol is not Protocol.HTTPS)
    )
    return with_directory(replace(organization, servers={**organization.servers, **old}), directory)


def with_web_part_of_2010(organization: Organization) -> Organization:
    """As the site asia of 2010, with nothing at CAS-03; MBX-03 answers HTTP, and nobody has said what."""
    found = with_old_asia(organization, VirtualDirectory("CAS-03", "owa", "/owa", "https://cas-03.contoso.com/owa"))
    mailboxes = found.servers["MBX-03"]
    web = endpoint("https", mailboxes.fqdn)
    changed = replace(mailboxes, endpoints=(*mailboxes.endpoints, web))
    return replace(found, servers={**found.servers, "MBX-03": changed})
