"""Which addresses a client is told (SPEC C8): pure, from the organization, the mailbox's server and the client's site.

External URLs are those of the mailbox's own site, if that is Internet-facing, else of this front end, of its site, of
any Internet-facing site. Internal ones are told to clients within the organization's subnets only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

from gatepost.organization.model import (
    PEER,
    Endpoint,
    Organization,
    Protocol,
    Role,
    Server,
    Site,
    TlsMode,
    Version,
    VirtualDirectory,
)


class Service(Enum):
    """What a client asks for; the value are the words of virtual directories that offer it, case-folded."""

    EWS = ("ews",)
    AVAILABILITY = ("as",)
    OAB = ("oab",)
    ECP = ("ecp",)
    OWA = ("owa",)
    ACTIVESYNC = ("microsoft-server-activesync", "activesync", "eas")


EXCHANGE_2003 = ("exchange",)
"""The word under which a 2003 server offers Outlook Web App (C7)."""
_ENDINGS = {Service.EWS: "/Exchange.asmx", Service.OAB: "/", Service.ECP: "/", Service.OWA: "/"}
"""What a client needs after a virtual directory's own URL."""


@dataclass(frozen=True, slots=True)
class Urls:
    """What a client is told about one mailbox. A service that the mailbox's server does not offer is not in it."""

    name: str
    """The name under which clients reach this front end."""
    origin: str
    """The same as a URL without a path: with the port, where that is not 443."""
    external: dict[Service, str]
    internal: dict[Service, str]
    """Empty for clients outside the organization's subnets."""
    mail: tuple[Endpoint, ...]
    """IMAP and POP3 of this front end, with TLS; implicit TLS first."""


def urls_for(organization: Organization, front_end: Server, mailbox: Server | None, client_site: Site | None) -> Urls:
    """The addresses for a mailbox on the server `mailbox`; None: whatever `front_end` offers to anybody.

    `client_site` is the site whose subnets hold the client's address.
    """
    external: dict[Service, str] = {}
    internal: dict[Service, str] = {}
    name = public_name(organization, front_end)
    origin = _origin(front_end, name)
    inner_origin = _origin(front_end, _array_name(organization, front_end) or front_end.fqdn)
    outside = list(_external_servers(organization, front_end, mailbox))
    inside = list(_internal_servers(organization, front_end, mailbox, client_site)) if client_site is not None else []
    for service in Service:
        words = EXCHANGE_2003 if service is Service.OWA and _is_2003(mailbox) else service.value
        offered = _offering(organization, mailbox, words)
        if offered is None:
            continue
        url = _first(organization, outside, words, external=True)
        if url is None and service is not Service.AVAILABILITY:
            url = origin + offered.path
        if url is not None:
            external[service] = _complete(service, url)
        if client_site is not None and service is not Service.AVAILABILITY:
            url = _first(organization, inside, words, external=False) or inner_origin + offered.path
            internal[service] = _complete(service, url)
    return Urls(name, origin, external, internal, mail_endpoints(front_end))


def own_answer(organization: Organization, server: str) -> bool:
    """Whether a front end answers Autodiscover itself for mailboxes on `server`, rather than `server`.

    A modern mailbox server with a virtual directory for it answers for its mailboxes; for older ones the front end
    does, as in the source system.
    """
    found = organization.servers.get(server)
    if found is None or found.version < Version.MODERN:
        return True
    return not any(d.service.casefold() == "autodiscover" for d in organization.directories_by_server.get(server, ()))


def elsewhere(organization: Organization, front_end: Server, mailbox: Server) -> str | None:
    """The URL of Autodiscover in the mailbox's site, if a client must ask there; else None.

    The rule: the mailbox's server is newer than this front end, which then must not proxy to it (C2), and a client
    access server of that Internet-facing site that is new enough has an external URL for Autodiscover, on another host.
    """
    if mailbox.version <= front_end.version or not _is_internet_facing(organization, mailbox.site):
        return None
    there = _client_access(organization, mailbox.site, mailbox.version)
    url = _first(organization, there, ("autodiscover",), external=True)
    if url is None or urlsplit(url).hostname == public_name(organization, front_end).lower():
        return None
    return url.rstrip("/") + "/autodiscover.xml"


def public_name(organization: Organization, front_end: Server) -> str:
    """The name under which clients reach `front_end`: of its external URLs, its array, itself."""
    own = [d.external_url for d in organization.virtual_directories if d.server == front_end.name and d.external_url]
    hosts = [urlsplit(url).hostname or "" for url in own]
    return next((name for name in hosts if name), "") or _array_name(organization, front_end) or front_end.fqdn


def _array_name(organization: Organization, front_end: Server) -> str:
    """The name of the array that `front_end` is in; empty: it is in none."""
    return next((array.fqdn for array in organization.arrays.values() if front_end.name in array.members), "")


def _origin(front_end: Server, name: str) -> str:
    """The URL of `front_end` under `name`: its listener's port is not said if one of them is the usual one."""
    web = [e for e in front_end.endpoints if e.protocol is Protocol.HTTPS and e.name != PEER]
    ports = [e.port for e in web if e.tls is TlsMode.IMPLICIT]
    return f"https://{name}" if not ports or 443 in ports else f"https://{name}:{ports[0]}"


def mail_endpoints(server: Server) -> tuple[Endpoint, ...]:
    """IMAP and POP3 endpoints that a client outside may use: with TLS, implicit first."""
    found = [e for e in server.endpoints if e.protocol in {Protocol.IMAP, Protocol.POP3} and e.tls is not TlsMode.CLEAR]
    return tuple(sorted(found, key=lambda e: (e.protocol is Protocol.POP3, e.tls is not TlsMode.IMPLICIT)))


def _complete(service: Service, url: str) -> str:
    ending = _ENDINGS.get(service, "")
    return url if ending and url.lower().endswith((".asmx", ending.lower())) else url.rstrip("/") + ending


def _is_2003(mailbox: Server | None) -> bool:
    return mailbox is not None and mailbox.version is Version.V2003


def _is_internet_facing(organization: Organization, site: str) -> bool:
    found = organization.sites.get(site)
    return found is not None and found.internet_facing


def _offering(organization: Organization, mailbox: Server | None, words: tuple[str, ...]) -> VirtualDirectory | None:
    """The virtual directory by which the mailbox is opened in the end, so that no address leads nowhere."""
    if mailbox is None:
        return next((d for d in organization.virtual_directories if d.service.casefold() in words), None)
    servers = [mailbox]
    if mailbox.version in {Version.V2007, Version.V2010}:
        servers += _client_access(organization, mailbox.site, mailbox.version)
    return next(_directories(organization, servers, words), None)


def _client_access(organization: Organization, site: str, at_least: Version) -> list[Server]:
    """Client access servers of `site` no older than `at_least`; oldest first: those are the mailbox's own kind."""
    found = [
        server
        for server in organization.servers.values()
        if server.site == site and Role.CLIENT_ACCESS in server.roles and server.version >= at_least
    ]
    return sorted(found, key=lambda server: (server.version, server.name))


def _external_servers(organization: Organization, front_end: Server, mailbox: Server | None) -> Iterator[Server]:
    """Whose external URLs to look at, in this order."""
    oldest = Version.V2003 if mailbox is None else mailbox.version
    if mailbox is not None and mailbox.site != front_end.site and _is_internet_facing(organization, mailbox.site):
        yield from _client_access(organization, mailbox.site, oldest)
    yield front_end
    for site in (front_end.site, *sorted(organization.sites)):
        if _is_internet_facing(organization, site):
            yield from _client_access(organization, site, oldest)


def _internal_servers(
    organization: Organization, front_end: Server, mailbox: Server | None, client_site: Site
) -> Iterator[Server]:
    """Whose internal URLs to look at: the mailbox's site, this front end, the client's site."""
    oldest = Version.V2003 if mailbox is None else mailbox.version
    if mailbox is not None and mailbox.site != front_end.site:
        yield from _client_access(organization, mailbox.site, oldest)
    yield front_end
    yield from _client_access(organization, client_site.name, oldest)


def _directories(
    organization: Organization, servers: list[Server], words: tuple[str, ...]
) -> Iterator[VirtualDirectory]:
    for server in servers:
        for directory in organization.directories_by_server.get(server.name, ()):
            if directory.service.casefold() in words:
                yield directory


def _first(organization: Organization, servers: list[Server], words: tuple[str, ...], *, external: bool) -> str | None:
    urls = (d.external_url if external else d.internal_url for d in _directories(organization, servers, words))
    return next((url for url in urls if url), None)
