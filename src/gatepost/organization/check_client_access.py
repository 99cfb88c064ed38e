"""The check of what front ends do for each other: can those who must proxy or redirect do so (part of SPEC O2).

Judged are sites with mailboxes of 2007 and 2010, which front ends elsewhere reach by a client access server there, and
sites that are reached through a peer only.
"""

from __future__ import annotations

from collections.abc import Iterator

from gatepost.organization.addresses import HttpUrl, parse_http_url
from gatepost.organization.faults import Path, listed, quoted, warning
from gatepost.organization.model import (
    CLASS_OF_SERVICE,
    Finding,
    HttpSignIn,
    Organization,
    PathClass,
    Protocol,
    Role,
    Server,
    TlsMode,
    Version,
    VirtualDirectory,
)

ACTIVESYNC = "microsoft-server-activesync"
STICKY = frozenset({"owa", "ecp", ACTIVESYNC})
"""Services whose internal URL must name one machine: browsers stay with it, devices' connections are one a server."""
OLD = frozenset({Version.V2007, Version.V2010})


def check_client_access(organization: Organization) -> Iterator[Finding]:
    """All warnings of this kind. Servers in unknown sites are errors of another part and not judged here."""
    inside: dict[str, list[Server]] = {}
    for server in organization.servers.values():
        inside.setdefault(server.site, []).append(server)
    for site in organization.sites:
        versions = _old_versions(inside.get(site, []))
        doors = organization.client_access_by_site.get(site, ())
        others = [
            server
            for name, servers in organization.client_access_by_site.items()
            for server in servers
            if name != site and name in organization.sites
        ]
        if doors and versions and others:
            yield from _check_versions(site, versions, doors, others)
            yield from _check_ways(organization, site, doors)
        if doors and versions:
            yield from _check_web_servers(organization, doors, inside.get(site, []))
        if organization.sites[site].through_peer:
            yield from _check_through_peer(site, doors)
        if others:
            yield from _check_without_password(organization, site, inside.get(site, []))
    yield from _check_external_urls(organization)
    names = _balanced_names(organization)
    for index, directory in enumerate(organization.virtual_directories):
        if directory.server in organization.servers:
            yield from _check_directory(organization.servers[directory.server], index, directory, names)


def _balanced_names(organization: Organization) -> dict[str, str]:
    """Host names that stand for several client access servers, and what each is, for a message."""
    found: dict[str, str] = {}
    users: dict[str, str] = {}
    for directory in organization.virtual_directories:
        server = organization.servers.get(directory.server)
        url = _parse(directory.internal_url)
        if url is None or server is None or Role.CLIENT_ACCESS not in server.roles:
            continue
        first = users.setdefault(url.host, server.name)
        if first != server.name:
            found.setdefault(url.host, f"the internal URL's host is that of {first} too")
    for array in organization.arrays.values():
        found[array.fqdn.casefold()] = f"the internal URL is the name of array {array.name}"
    return found


def _old_versions(inside: list[Server]) -> list[Version]:
    """Which of the versions 2007 and 2010 the mailbox servers of a site have."""
    return sorted({server.version for server in inside if Role.MAILBOX in server.roles} & OLD)


def _check_versions(
    site: str, versions: list[Version], doors: tuple[Server, ...], others: list[Server]
) -> Iterator[Finding]:
    """Never to a newer one, and only to one that can open the mailbox (C2)."""
    path: Path = ("sites", site)
    for version in versions:
        able = [door for door in doors if door.opens(version)]
        if not able:
            found = listed(f"{door.name} ({door.version.word})" for door in doors)
            message = f"has {version.word} mailboxes, but no client access server that can open them, only {found}"
            yield warning(path, f"site {site}", message, f"add one of version {version.word}, or a front end of ours")
            continue
        late = [f"{other.name} ({other.version.word})" for other in others if other.version < able[-1].version]
        if late:
            message = (
                f"every client access server for its {version.word} mailboxes is newer than {listed(late)}, "
                "which will not proxy to it"
            )
            remedy = "upgrade the front ends of other sites first, Internet-facing ones before all"
            yield warning(path, f"site {site}", message, remedy)


def _check_ways(organization: Organization, site: str, doors: tuple[Server, ...]) -> Iterator[Finding]:
    """Between front ends there is only HTTPS with Integrated authentication: a peer endpoint, or a header (C11)."""
    web = [door for door in doors if door.name in organization.directories_by_server]
    if web and not any(_is_reachable(door) for door in web):
        name = web[0].name
        message = f"front ends of other sites must proxy to site {site}, but {listed(door.name for door in web)} "
        message += "has no peer endpoint" if len(web) == 1 else "have no peer endpoint"
        remedy = f"add peer = {{}} to [servers.{name}.endpoints], and its certificate with: gatepost ca issue {name}"
        yield warning(("servers", name, "endpoints"), f"server {name}", message, remedy)


def _check_web_servers(
    organization: Organization, doors: tuple[Server, ...], inside: list[Server]
) -> Iterator[Finding]:
    """A mailbox server of 2007 or 2010 with a web part is given no virtual directories by itself (C1)."""
    known = organization.directories_by_server
    if any(door.peer_endpoint is None and door.name in known for door in doors[1:]):
        return  # one of them is a web server behind the others
    for server in inside:
        has_web = server.endpoint(Protocol.HTTPS) is not None and server.name not in known
        if has_web and Role.MAILBOX in server.roles and server.version in OLD:
            message = (
                "has an endpoint for HTTP but no virtual directory, and its site has no web server besides the front "
            )
            message += "end: nobody answers Outlook Web App, ActiveSync and web services for its mailboxes"
            remedy = (
                f'list its virtual directories, for example service = "owa", internal_url = "{server.own_url("/owa")}"'
            )
            yield warning(("servers", server.name, "endpoints"), f"server {server.name}", message, remedy)


def _is_reachable(door: Server) -> bool:
    web = door.endpoint(Protocol.HTTPS)
    integrated = (
        door.sign_in.http in (HttpSignIn.HEADER, HttpSignIn.KERBEROS)
        and web is not None
        and web.tls is TlsMode.IMPLICIT
    )
    return door.peer_endpoint is not None or integrated


def _check_through_peer(site: str, doors: tuple[Server, ...]) -> Iterator[Finding]:
    """Without a peer there the site cannot be reached at all (C12)."""
    if any(door.peer_endpoint is not None for door in doors):
        return
    message = "is reached through a peer only, but no client access server here has a peer endpoint"
    example = doors[0].name if doors else "CAS-01"
    remedy = f"add peer = {{}} to [servers.{example}.endpoints], and its certificate with: gatepost ca issue {example}"
    yield warning(("sites", site, "through_peer"), f"site {site}", message, remedy)


def _check_without_password(organization: Organization, site: str, inside: list[Server]) -> Iterator[Finding]:
    """What a peer passed on names the user and carries no password: a server that wants one cannot serve it."""
    if not any(server.peer_endpoint is not None for server in inside):
        return
    through_peer = organization.sites[site].through_peer
    has_old = bool(_old_versions(inside))
    for server in inside:
        if server.peer_endpoint is not None or server.name not in organization.directories_by_server:
            continue
        by_version = server.version in OLD or (through_peer and server.version >= Version.MODERN)
        mailboxes = Role.MAILBOX in server.roles and by_version
        web = Role.CLIENT_ACCESS in server.roles and has_old
        if (mailboxes or web) and server.sign_in.http is HttpSignIn.BASIC:
            message = "wants the user's password by HTTP, but what other sites' front ends pass on carries none"
            remedy = f'set http = "header" in [servers.{server.name}.sign_in], and have the server trust that header'
            yield warning(("servers", server.name, "sign_in", "http"), f"server {server.name}", message, remedy)


def _check_external_urls(organization: Organization) -> Iterator[Finding]:
    """One host for one site: what differs inside a site, or is the same in two, sends clients astray (C3, C5)."""
    by_site: dict[tuple[str, str], tuple[str, str]] = {}
    by_host: dict[tuple[str, str], tuple[str, str]] = {}
    machines = {server.fqdn: server for doors in organization.client_access_by_site.values() for server in doors}
    for index, directory in enumerate(organization.virtual_directories):
        server = organization.servers.get(directory.server)
        url = _parse(directory.external_url)
        service = directory.service.casefold()
        if server is None or url is None or Role.CLIENT_ACCESS not in server.roles:
            continue
        path: Path = ("virtual_directories", index, "external_url")
        who = f"virtual directory {directory.path} of {directory.server}"
        mine = (url.host, server.name)
        host, name = by_site.setdefault((server.site, service), mine)
        if host != url.host:
            message = f"its external host is {url.host}, that of {name} in the same site is {host}: clients get either"
            yield warning(path, who, message, "give all servers of a site one external name")
        if CLASS_OF_SERVICE.get(service, PathClass.API) is PathClass.API:
            continue  # programs are never redirected
        other = machines.get(url.host)
        if other is not None and other.site != server.site:
            message = f"its external host {url.host} is {other.name} of site {other.site}: redirected clients come back"
            yield warning(path, who, message, f"give site {server.site} an external name of its own")
            continue
        site, name = by_host.setdefault((url.host, service), (server.site, server.name))
        if site != server.site:
            message = f"its external host {url.host} is that of {name} in site {site} too: redirected clients come back"
            yield warning(
                path, who, message, "give each site its own external name, or only one of them an external URL"
            )


def _check_directory(
    server: Server, index: int, directory: VirtualDirectory, balanced: dict[str, str]
) -> Iterator[Finding]:
    path: Path = ("virtual_directories", index)
    who = f"virtual directory {directory.path} of {directory.server}"
    yield from _check_balanced((*path, "internal_url"), who, server, directory, balanced)
    yield from _check_bypass((*path, "internal_bypass_url"), who, server, directory)
    external = _parse(directory.external_url)
    if external is None:
        return
    if external.scheme != "https" and directory.path_class is not PathClass.API:
        message = f"the external URL {quoted(directory.external_url)} is not https: passwords would be sent in clear"
        yield warning((*path, "external_url"), who, message, "write it with https://")
    if directory.service.casefold() == ACTIVESYNC and external.path.casefold().rstrip("/") != f"/{ACTIVESYNC}":
        message = f"devices take only https://{external.host}/Microsoft-Server-ActiveSync from an answer 451"
        yield warning((*path, "external_url"), who, message, "write the external URL with that path")


def _check_balanced(
    path: Path, who: str, server: Server, directory: VirtualDirectory, balanced: dict[str, str]
) -> Iterator[Finding]:
    """A balanced name would take a user to another machine each time; the machine itself must be named."""
    url = _parse(directory.internal_url)
    service = directory.service.casefold()
    if url is None or directory.internal_bypass_url or Role.CLIENT_ACCESS not in server.roles:
        return
    what = balanced.get(url.host)
    if what is None or service not in STICKY | {"ews"} or url.host == server.fqdn.casefold():
        return
    key = "internal_bypass_url" if service == "ews" else "internal_url"
    remedy = f'write {key} = "https://{server.fqdn}{directory.path}"'
    yield warning(path, who, f"{what}, but users stay with one machine", remedy)


def _check_bypass(path: Path, who: str, server: Server, directory: VirtualDirectory) -> Iterator[Finding]:
    """The address of one machine has to be usable between front ends (C11)."""
    bypass = directory.internal_bypass_url
    if bypass is None:
        return
    url = _parse(bypass)
    if url is None or url.scheme != "https":
        message = f"the URL {quoted(bypass)} cannot be used between front ends"
        yield warning(path, who, message, f'write it like "https://{server.fqdn}{directory.path}"')


def _parse(url: str | None) -> HttpUrl | None:
    try:
        return parse_http_url(url) if url else None
    except ValueError:
        return None  # check_directories says so
