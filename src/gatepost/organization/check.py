"""The check of an organization as a whole (SPEC O2): every fault with its object and what to do.

`check` is pure, so the same judgement serves a file, a command that changes the organization, and tests. The parts:
this module has names, sites, links, databases and arrays; `check_servers` endpoints and sign-in; `check_directories`
virtual directories; `check_client_access` whether front ends can proxy and redirect to each other; `check_transport`
mail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gatepost.organization.addresses import is_host_name
from gatepost.organization.check_client_access import check_client_access
from gatepost.organization.check_directories import check_directories
from gatepost.organization.check_front_mail import check_front_mail
from gatepost.organization.check_servers import check_servers
from gatepost.organization.check_transport import check_transport
from gatepost.organization.faults import Path, error, listed, quoted, repeated, unknown, warning
from gatepost.organization.model import (
    ClientAccessArray,
    Database,
    Finding,
    Network,
    Organization,
    Role,
    Server,
    Severity,
    SiteLink,
)

MAX_NAME = 255
"""Characters of an object's name; names go into logs and commands."""


def check(organization: Organization) -> list[Finding]:
    """All faults of `organization`, errors first, each group in the order of the objects."""
    found = [
        *_check_names(organization),
        *_check_domains(organization),
        *_check_sites(organization),
        *_check_links(organization),
        *check_servers(organization),
        *_check_databases(organization),
        *check_directories(organization),
        *_check_arrays(organization),
        *check_client_access(organization),
        *check_front_mail(organization),
        *check_transport(organization),
    ]
    return sorted(found, key=lambda finding: finding.severity is not Severity.ERROR)


def _check_names(organization: Organization) -> Iterator[Finding]:
    """Names are printable and differ by more than case: commands and old clients ignore case."""
    if not organization.name:
        yield error(("organization", "name"), "organization", "the name is empty", "give it a name")
    kinds: list[tuple[str, str, Iterable[str]]] = [
        ("sites", "site", organization.sites),
        ("site_links", "site link", organization.site_links),
        ("servers", "server", organization.servers),
        ("databases", "database", organization.databases),
        ("arrays", "array", organization.arrays),
        ("receive_connectors", "receive connector", organization.receive_connectors),
        ("send_connectors", "send connector", organization.send_connectors),
    ]
    for table, word, names in kinds:
        for name in names:
            if not name or len(name) > MAX_NAME or not name.isprintable() or name != name.strip():
                message = "the name is empty, too long, or has control characters or spaces around it"
                yield error((table, name), f"{word} {quoted(name)}", message, "choose a plain name")
        for _, name, earlier in repeated(names, str.casefold):
            message = f"the name differs from {word} {quoted(earlier)} only in case"
            yield error((table, name), f"{word} {name}", message, "rename one of the two")


def _check_domains(organization: Organization) -> Iterator[Finding]:
    path: Path = ("organization", "accepted_domains")
    for index, domain in enumerate(organization.accepted_domains):
        if not is_host_name(domain):
            message = f"accepted domain {quoted(domain)} is not a domain name"
            yield error((*path, index), "organization", message, 'write it like "contoso.com"')
    for index, domain, _ in repeated(organization.accepted_domains, str.casefold):
        message = f"accepted domain {quoted(domain)} is listed twice"
        yield error((*path, index), "organization", message, "remove one of the two")


def _check_sites(organization: Organization) -> Iterator[Finding]:
    """A subnet belongs to one site; a site with mailboxes has a way in."""
    owners: dict[Network, str] = {}
    for site in organization.sites.values():
        for index, net in enumerate(site.subnets):
            owner = owners.setdefault(net, site.name)
            if owner != site.name:
                message = f"subnet {net} is also a subnet of site {quoted(owner)}"
                yield error(("sites", site.name, "subnets", index), f"site {site.name}", message, "keep it in one site")
    by_site = servers_by_site(organization)
    if not by_site.keys() <= organization.sites.keys():
        return  # a server with a misspelt site would be missed in its own
    for name, inside in by_site.items():
        doors = [server.name for server in inside if Role.CLIENT_ACCESS in server.roles]
        if not doors and any(Role.MAILBOX in server.roles for server in inside):
            remedy = 'add a server with the role "client-access" to this site'
            yield warning(("sites", name), f"site {name}", "has mailbox servers but no client access server", remedy)
        yield from _check_internet_facing(organization, name, doors)


def _check_internet_facing(organization: Organization, site: str, doors: list[str]) -> Iterator[Finding]:
    """Several Internet-facing front ends of one site need one name, which an array gives."""
    in_arrays = {member for array in organization.arrays.values() for member in array.members}
    alone = [name for name in doors if name not in in_arrays]
    if organization.sites[site].internet_facing and len(doors) > 1 and alone:
        message = f"more than one Internet-facing client access server, and not in an array: {listed(alone)}"
        yield warning(("sites", site), f"site {site}", message, "put all of them in one array of this site")


def servers_by_site(organization: Organization) -> dict[str, list[Server]]:
    """The servers of each site that has any."""
    found: dict[str, list[Server]] = {}
    for server in organization.servers.values():
        found.setdefault(server.site, []).append(server)
    return found


def _check_links(organization: Organization) -> Iterator[Finding]:
    for link in organization.site_links.values():
        yield from _check_link(organization, link)


def _check_link(organization: Organization, link: SiteLink) -> Iterator[Finding]:
    path: Path = ("site_links", link.name)
    who = f"site link {link.name}"
    if link.cost < 1:
        yield error((*path, "cost"), who, f"the cost is {link.cost}", "make it 1 or more")
    if len(link.sites) < 2:
        yield error((*path, "sites"), who, "joins fewer than two sites", "name the two sites that it joins")
    for index, name in enumerate(link.sites):
        if name not in organization.sites:
            yield unknown((*path, "sites", index), who, "site", "sites", name, organization.sites)
    for index, name, _ in repeated(link.sites):
        yield error((*path, "sites", index), who, f"site {quoted(name)} is listed twice", "remove one of the two")


def _check_databases(organization: Organization) -> Iterator[Finding]:
    for database in organization.databases.values():
        yield from _check_copies(organization, database)


def _check_copies(organization: Organization, database: Database) -> Iterator[Finding]:
    path: Path = ("databases", database.name, "copies")
    who = f"database {database.name}"
    if not database.copies:
        remedy = 'name at least one server, for example copies = [{ server = "MBX-01", preference = 1 }]'
        yield error(path, who, "has no copies", remedy)
    if len(database.copies) == 1:
        message = f"has one copy only, on {database.copies[0].server}: if that server is lost, nothing takes over"
        yield warning(path, who, message, "add a copy on a second mailbox server")
    for index, copy in enumerate(database.copies):
        server = organization.servers.get(copy.server)
        here = (*path, index)
        if server is None:
            yield unknown((*here, "server"), who, "server", "servers", copy.server, organization.servers)
        elif Role.MAILBOX not in server.roles:
            message = f"has a copy on {server.name}, which is not a mailbox server"
            remedy = f'give {server.name} the role "mailbox" or move the copy'
            yield error((*here, "server"), who, message, remedy, ("servers", server.name, "roles"))
        if copy.preference < 1:
            yield error((*here, "preference"), who, f"the preference is {copy.preference}", "make it 1 or more")
    for index, name, _ in repeated(copy.server for copy in database.copies):
        yield error((*path, index, "server"), who, f"has two copies on {name}", "remove one of the two")
    for index, preference, _ in repeated(str(copy.preference) for copy in database.copies):
        message = f"two copies have the preference {preference}"
        yield error((*path, index, "preference"), who, message, "give each copy its own preference")


def _check_arrays(organization: Organization) -> Iterator[Finding]:
    for array in organization.arrays.values():
        yield from _check_array(organization, array)


def _check_array(organization: Organization, array: ClientAccessArray) -> Iterator[Finding]:
    """Members are client access servers; a balancer in front serves one site only (SPEC B7)."""
    path: Path = ("arrays", array.name)
    who = f"array {array.name}"
    if array.site not in organization.sites:
        yield unknown((*path, "site"), who, "site", "sites", array.site, organization.sites)
    if not is_host_name(array.fqdn):
        message = f"{quoted(array.fqdn)} is not a host name"
        yield error((*path, "fqdn"), who, message, 'write it like "outlook.contoso.com"')
    if not array.members:
        yield error((*path, "members"), who, "has no members", "name its client access servers")
    for index, name in enumerate(array.members):
        server = organization.servers.get(name)
        here = (*path, "members", index)
        if server is None:
            yield unknown(here, who, "server", "servers", name, organization.servers)
        elif Role.CLIENT_ACCESS not in server.roles:
            message = f"member {name} is not a client access server"
            remedy = f'give {name} the role "client-access" or remove it'
            yield error(here, who, message, remedy, ("servers", name, "roles"))
        elif server.site != array.site and server.site in organization.sites and array.site in organization.sites:
            message = f"member {name} is in site {server.site}, the array is in site {array.site}"
            yield warning(here, who, message, "keep the servers of one site in an array")
    for index, name, _ in repeated(array.members):
        yield error((*path, "members", index), who, f"member {quoted(name)} is listed twice", "remove one of the two")
