"""Organizations for the tests of mail routing: sites with hubs, links, mailbox servers, connectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gatepost.organization.model import (
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
)
from gatepost.organization.transport import AddressSpace, DomainKind, SendConnector, SmartHost
from gatepost.routing.mail.outcome import Refused, Routed
from gatepost.routing.mail.router import MailRouter
from gatepost.routing.next_hop import NextHop
from gatepost.routing.outcome import Mailbox

PORTS = {Protocol.SMTP: 25, Protocol.LMTP: 24}


def endpoint(protocol: Protocol, fqdn: str, tls: TlsMode = TlsMode.STARTTLS) -> Endpoint:
    """An endpoint at the server's own name."""
    return Endpoint(protocol.value, protocol, fqdn, PORTS[protocol], tls, fqdn)


def server(name: str, site: str, role: Role, *protocols: Protocol, version: Version = Version.MODERN) -> Server:
    """A server with these endpoints."""
    fqdn = f"{name.lower()}.contoso.com"
    endpoints = tuple(endpoint(protocol, fqdn) for protocol in protocols)
    return Server(name, site, fqdn, fqdn, version, frozenset({role}), endpoints)


def hub(name: str, site: str, version: Version = Version.MODERN) -> Server:
    """A hub that takes mail."""
    return server(name, site, Role.HUB_TRANSPORT, Protocol.SMTP, version=version)


def edge(name: str, site: str) -> Server:
    """An edge that takes mail."""
    return server(name, site, Role.EDGE_TRANSPORT, Protocol.SMTP)


def mailbox_server(name: str, site: str, *protocols: Protocol, version: Version = Version.MODERN) -> Server:
    """A mailbox server, by LMTP where nothing is said."""
    return server(name, site, Role.MAILBOX, *(protocols or (Protocol.LMTP,)), version=version)


def connector(name: str, spaces: str, *sources: str, **changes: Any) -> SendConnector:
    """A send connector; `spaces` are parted by blanks, `contoso.com;5`."""
    parts = (space.partition(";") for space in spaces.split())
    read = tuple(AddressSpace(pattern, int(cost or 1)) for pattern, _, cost in parts)
    return replace(SendConnector(name, read, sources), **changes)


def smart(*hosts: str) -> tuple[SmartHost, ...]:
    """Smart hosts at port 25."""
    return tuple(SmartHost(host) for host in hosts)


def world(
    links: Mapping[str, int] | None = None,
    *,
    sites: str = "",
    connectors: tuple[SendConnector, ...] = (),
    more: tuple[Server, ...] = (),
    without_hubs: str = "",
    hub_sites: str = "",
    kinds: Mapping[str, DomainKind] | None = None,
    limits: Mapping[str, int] | None = None,
) -> Organization:
    """Sites with two hubs (H-a-1, H-a-2 in a) and a mailbox server each (M-a, database DB-a), joined by `links`.

    A link is `"a b"` or `"a b c"` with its cost. `more` are added, and replace those of the same name.
    """
    links = links or {}
    names = sorted({site for link in links for site in link.split()} | set(sites.split()))
    servers: dict[str, Server] = {}
    for site in names:
        if site not in without_hubs.split():
            servers |= {f"H-{site}-{n}": hub(f"H-{site}-{n}", site) for n in (1, 2)}
        servers[f"M-{site}"] = mailbox_server(f"M-{site}", site)
    servers |= {each.name: each for each in more}
    return Organization(
        "contoso",
        accepted_domains=("contoso.com", *(kinds or {})),
        accepted_domain_kinds=dict(kinds or {}),
        sites={name: Site(name, hub_site=name in hub_sites.split()) for name in names},
        site_links={
            link: SiteLink(link, tuple(link.split()), cost, max_message_size=(limits or {}).get(link, 0))
            for link, cost in links.items()
        },
        servers=servers,
        databases={f"DB-{name}": Database(f"DB-{name}", (DatabaseCopy(f"M-{name}", 1),)) for name in names},
        send_connectors={each.name: each for each in connectors},
    )


def active(organization: Organization) -> dict[str, str]:
    """Every database on its first copy."""
    return {name: database.copies[0].server for name, database in organization.databases.items()}


def to_site(organization: Organization, own: str, site: str, size: int = 1000, down: str = "") -> Routed | Refused:
    """The route from server `own` for a mailbox in `site`, while the sites `down` cannot be reached."""
    router = MailRouter(organization, own)
    mailbox = Mailbox(f"DB-{site}")
    return router.route("anna@contoso.com", mailbox, active(organization), size, frozenset(down.split()))


def outside(
    organization: Organization, own: str, address: str = "b@example.org", size: int = 1000, down: str = ""
) -> Routed | Refused:
    """The route from server `own` for somebody who has no mailbox here."""
    return MailRouter(organization, own).route(address, None, {}, size, frozenset(down.split()))


def hop(route: Routed | Refused) -> NextHop:
    """The next hop of a route that is one."""
    assert isinstance(route, Routed), route
    return route.next_hop


def texts(route: Routed | Refused) -> list[str]:
    """The reasons."""
    return [step.text for step in route.reasons]
