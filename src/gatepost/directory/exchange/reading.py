"""Reads the entries of an Exchange organization, and of Active Directory's sites, from one domain controller.

Every search is bounded and comes by pages; nothing is written. What the entries mean is `found`'s matter.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gatepost.directory.ldap.engine import open_searching
from gatepost.directory.ldap.entries import Entry, texts_of
from gatepost.directory.ldap.road import Roads
from gatepost.directory.ldap.session import LdapSession
from gatepost.directory.pool import Broken
from gatepost.directory.port import DirectoryUnavailable
from gatepost.directory.settings import LdapSettings

MOST = 20_000
"""Entries of one kind; the largest forests have some thousands of subnets."""

_SERVER = (
    "networkAddress", "msExchServerSite", "msExchCurrentServerRoles", "serialNumber", "versionNumber",
    "msExchMDBAvailabilityGroupLink", "objectClass",
)  # fmt: skip
_DIRECTORY = (
    "msExchInternalHostName", "msExchExternalHostName", "msExchInternalNLBBypassHostName",
    "msExchInternalAuthenticationMethods", "objectClass",
)  # fmt: skip
_DATABASE = ("msExchOwningServer", "msExchMasterServerOrAvailabilityGroup")
_COPY = ("msExchHostServerLink", "msExchActivationPreference")


class CannotRead(DirectoryUnavailable):
    """Active Directory cannot be read, or has no configuration partition. The message is for the operator."""


@dataclass(frozen=True, slots=True)
class Entries:
    """What was read. Attributes' names are in lower case."""

    organizations: tuple[Entry, ...] = ()
    sites: tuple[Entry, ...] = ()
    subnets: tuple[Entry, ...] = ()
    site_links: tuple[Entry, ...] = ()
    servers: tuple[Entry, ...] = ()
    directories: tuple[Entry, ...] = ()
    databases: tuple[Entry, ...] = ()
    copies: tuple[Entry, ...] = ()
    groups: tuple[Entry, ...] = ()
    """Database availability groups."""


def read_entries(session: LdapSession, *, only_sites: bool = False) -> Entries:
    """Everything, or the sites with subnets and links alone. Raises `CannotRead`, `Broken`, `DirectoryUnavailable`."""
    root = session.read("", ("configurationNamingContext",))
    found = texts_of(root, "configurationnamingcontext") if root is not None else []
    if not found:
        raise CannotRead("the server has no configuration partition: it is no domain controller")

    def pages(base: str, kind: str, attributes: tuple[str, ...]) -> tuple[Entry, ...]:
        return tuple(session.pages(base, f"(objectClass={kind})", attributes, MOST))

    sites = f"CN=Sites,{found[0]}"
    exchange = f"CN=Microsoft Exchange,CN=Services,{found[0]}"
    read = Entries(
        sites=pages(sites, "site", ("msExchTransportSiteFlags",)),
        subnets=pages(sites, "subnet", ("siteObject",)),
        site_links=pages(sites, "siteLink", ("siteList", "cost", "msExchCost", "delivContLength")),
    )
    if only_sites:
        return read
    return Entries(
        pages(exchange, "msExchOrganizationContainer", ("cn",)),
        read.sites,
        read.subnets,
        read.site_links,
        pages(exchange, "msExchExchangeServer", _SERVER),
        pages(exchange, "msExchVirtualDirectory", _DIRECTORY),
        pages(exchange, "msExchPrivateMDB", _DATABASE),
        pages(exchange, "msExchMDBCopy", _COPY),
        pages(exchange, "msExchMDBAvailabilityGroup", ("cn",)),
    )


async def read_directory(settings: LdapSettings, *, only_sites: bool = False) -> Entries:
    """As `read_entries`, from the first of the servers that answers. Raises `CannotRead`, `DirectoryUnavailable`."""
    roads = Roads()
    loop = asyncio.get_running_loop()

    def read(number: int) -> Entries:
        session = open_searching(settings.servers[number], settings, roads, loop)
        try:
            return read_entries(session, only_sites=only_sites)
        finally:
            session.close()

    reasons = []
    try:
        for number, server in enumerate(settings.servers):
            try:
                return await asyncio.to_thread(read, number)
            except Broken as fault:
                reasons.append(f"{server.url}: {fault}")
    finally:
        await roads.close()
    raise CannotRead("no domain controller answers: " + "; ".join(reasons))
