"""The check of virtual directories: paths, URLs, and whether those who must proxy to them can (part of SPEC O2)."""

from __future__ import annotations

from collections.abc import Iterator

from gatepost.organization.addresses import HttpUrl, is_loopback, normal_path, parse_http_url, path_fault
from gatepost.organization.faults import Path, error, listed, quoted, unknown, warning
from gatepost.organization.model import (
    AuthenticationMethod,
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

PROXIED_SERVICES = frozenset({"owa", "ecp", "microsoft-server-activesync", "ews", "as"})
"""Services that one client access server proxies to another (the source's table), case-folded."""
ACTIVESYNC = "microsoft-server-activesync"
_OLD = frozenset({Version.V2007, Version.V2010})


def check_directories(organization: Organization) -> Iterator[Finding]:
    """All faults of the virtual directories."""
    taken: dict[tuple[str, str], int] = {}
    reach = _Reach(organization)
    for index, directory in enumerate(organization.virtual_directories):
        path: Path = ("virtual_directories", index)
        who = f"virtual directory {directory.path} of {directory.server}"
        yield from _check_path(path, who, directory)
        if taken.setdefault((directory.server, directory.path.casefold()), index) != index:
            message = "the server has this path twice, and case makes no difference"
            yield error((*path, "path"), who, message, "remove one of the two")
        server = organization.servers.get(directory.server)
        if server is None:
            yield unknown((*path, "server"), who, "server", "servers", directory.server, organization.servers)
            continue
        yield from _check_external_url(organization, path, who, server, directory)
        yield from _check_internal_url(path, who, server, directory)
        yield from _check_reach(reach, path, who, server, directory)
        yield from _check_forms(path, who, directory)


def _check_path(path: Path, who: str, directory: VirtualDirectory) -> Iterator[Finding]:
    if not directory.service:
        yield error((*path, "service"), who, "the service is empty", 'name it, for example service = "owa"')
    fault = path_fault(directory.path)
    if normal_path(directory.path) != directory.path:
        fault = "does not begin with one slash, or ends with one"
    if fault:
        yield error((*path, "path"), who, f"the path {quoted(directory.path)} {fault}", 'write it like "/owa"')


def _check_forms(path: Path, who: str, directory: VirtualDirectory) -> Iterator[Finding]:
    """Only a person can fill in the sign-in page (SPEC B6)."""
    if AuthenticationMethod.FORMS in directory.authentication and directory.path_class is not PathClass.INTERACTIVE:
        message = (
            f"asks for sign-in by a page, but its class is {directory.path_class.value}: programs cannot fill it in"
        )
        remedy = 'leave "forms" out of authentication, or set path_class = "interactive"'
        yield warning((*path, "authentication"), who, message, remedy)


def _check_external_url(
    organization: Organization, path: Path, who: str, server: Server, directory: VirtualDirectory
) -> Iterator[Finding]:
    """An external URL makes a site act as if it were exposed to the Internet, and clients fail (the source's note)."""
    if directory.external_url is None:
        return
    here = (*path, "external_url")
    if _parse(directory.external_url) is None:
        message = f"the external URL {quoted(directory.external_url)} {_fault(directory.external_url)}"
        yield error(here, who, message, 'write it like "https://mail.contoso.com/owa"')
    site = organization.sites.get(server.site)
    if site is not None and not site.internet_facing:
        message = f"has an external URL, but site {site.name} is not Internet-facing: clients will fail to connect"
        remedy = f"remove external_url, or set internet_facing = true for site {site.name}"
        yield warning(here, who, message, remedy)


def _check_internal_url(path: Path, who: str, server: Server, directory: VirtualDirectory) -> Iterator[Finding]:
    if directory.internal_url is None:
        return
    here = (*path, "internal_url")
    url = _parse(directory.internal_url)
    if url is None:
        message = f"the internal URL {quoted(directory.internal_url)} {_fault(directory.internal_url)}"
        yield error(here, who, message, f'write it like "{server.own_url(directory.path)}"')
        return
    if server.sign_in.http is HttpSignIn.HEADER and url.scheme == "http" and not is_loopback(url.host):
        message = "the internal URL is clear, but a header names the user"
        yield error(here, who, message, 'use an https URL, or http = "basic" for this server')
    yield from _check_endpoint_of(here, who, server, url)


def _check_endpoint_of(here: Path, who: str, server: Server, url: HttpUrl) -> Iterator[Finding]:
    """The endpoint has the address to connect to; without one the URL leads nowhere."""
    web = [endpoint for endpoint in server.endpoints if endpoint.protocol is Protocol.HTTPS]
    if not web:
        message = f"server {server.name} has no https endpoint, so nothing can connect to the internal URL"
        remedy = f"add https = {{}} to [servers.{server.name}.endpoints]"
        yield error(here, who, message, remedy, ("servers", server.name, "endpoints"))
    elif not any(e.port == url.port and (e.tls is TlsMode.CLEAR) == (url.scheme == "http") for e in web):
        answers = listed(f"{endpoint.name} on port {endpoint.port}" for endpoint in web)
        message = f"the internal URL leads to {url.scheme} on port {url.port}, but {server.name} answers {answers}"
        yield warning(here, who, message, "make the URL and the endpoint agree")


class _Reach:
    """Who must proxy to whom, worked out once for all directories (SPEC C2 to C5, C8)."""

    def __init__(self, organization: Organization) -> None:
        servers = organization.servers.values()
        self._old_sites = {s.site for s in servers if Role.MAILBOX in s.roles and s.version in _OLD}
        self._newest = {site: doors[0].version for site, doors in organization.client_access_by_site.items()}

    def others_proxy_to(self, server: Server, directory: VirtualDirectory) -> bool:
        """Whether a client access server elsewhere must proxy to this directory."""
        service = directory.service.casefold()
        if server.version is Version.V2003:
            return service == ACTIVESYNC and Role.MAILBOX in server.roles
        if Role.CLIENT_ACCESS not in server.roles or service not in PROXIED_SERVICES:
            return False
        return server.site in self._old_sites and self._has_others(server, server.version)

    def _has_others(self, server: Server, at_least: Version) -> bool:
        return any(newest >= at_least for site, newest in self._newest.items() if site != server.site)


def _check_reach(reach: _Reach, path: Path, who: str, server: Server, directory: VirtualDirectory) -> Iterator[Finding]:
    """What must be proxied to needs an internal URL and, among old servers, Integrated authentication (C3 to C10)."""
    yield from _check_missing_url(reach, (*path, "internal_url"), who, server, directory)
    if not reach.others_proxy_to(server, directory):
        return
    if (directory.internal_url or "").startswith("http:") and server.version is not Version.V2003:
        message = "other sites must proxy to it, but its internal URL is not https"
        yield warning((*path, "internal_url"), who, message, "between front ends there is only HTTPS")
    if AuthenticationMethod.INTEGRATED not in directory.authentication:
        message = "others must proxy to it, but it lacks Integrated authentication"
        remedy = 'add "integrated" to authentication'
        if AuthenticationMethod.FORMS in directory.authentication:
            remedy = 'keep "forms" for browsers and add "integrated" for front ends of other sites'
        yield warning((*path, "authentication"), who, message, remedy)


def _check_missing_url(
    reach: _Reach, here: Path, who: str, server: Server, directory: VirtualDirectory
) -> Iterator[Finding]:
    """A directory that was made by hand gets no internal URL (O3)."""
    if directory.internal_url is not None:
        return
    remedy = f'set internal_url = "{server.own_url(directory.path)}"'
    if Role.MAILBOX in server.roles:
        message = "has no internal URL, so no front end can reach it"
        if server.version >= Version.MODERN:
            yield error(here, who, message, remedy, ("servers", server.name))
        else:
            yield warning(here, who, message, remedy)
    elif reach.others_proxy_to(server, directory):
        yield warning(here, who, "other sites must proxy to it, but it has no internal URL", remedy)


def _parse(url: str) -> HttpUrl | None:
    try:
        return parse_http_url(url)
    except ValueError:
        return None


def _fault(url: str) -> str:
    """What is wrong with `url`; empty when nothing is."""
    try:
        parse_http_url(url)
    except ValueError as fault:
        return str(fault)
    return ""
