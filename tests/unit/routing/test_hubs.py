"""Which hubs a front end hands mail to, and where a user's submission goes (SPEC B7, C10, C12, T12)."""

from __future__ import annotations

import pytest

from gatepost.organization.model import (
    Database,
    DatabaseCopy,
    Edition,
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
from gatepost.routing.decision import ActiveCopy, Cause, Mailbox, Proxy, Refuse, Request, Serve, decide
from gatepost.routing.hubs import hubs_by_distance

SUBMISSION, SMTP = Protocol.SUBMISSION, Protocol.SMTP


def server(
    name: str, site: str, *roles: Role, protocols: tuple[Protocol, ...] = (), version: Version = Version.MODERN
) -> Server:
    """With an endpoint for each of the protocols."""
    endpoints = tuple(Endpoint(p.value, p, "127.0.0.1", 25, TlsMode.STARTTLS, "x") for p in protocols)
    return Server(name, site, f"{name.lower()}.contoso.com", "", version, frozenset(roles), endpoints)


FRONT = server("CAS-01", "usa", Role.CLIENT_ACCESS, protocols=(SUBMISSION, SMTP))


def organization(*servers: Server, through_peer: str = "", edition: Edition = Edition.RTM) -> Organization:
    """Three sites in a row, usa - europe - asia; DB01 is on MBX-01."""
    sites = {name: Site(name, through_peer=name == through_peer) for name in ("usa", "europe", "asia")}
    links = {"a": SiteLink("a", ("usa", "europe"), 5), "b": SiteLink("b", ("europe", "asia"), 5)}
    databases = {"DB01": Database("DB01", (DatabaseCopy("MBX-01", 1),))}
    everybody = {s.name: s for s in (FRONT, *servers)}
    return Organization("contoso", edition, sites=sites, site_links=links, servers=everybody, databases=databases)


def hub(name: str, site: str, *protocols: Protocol) -> Server:
    """A hub with SMTP and what is named."""
    return server(name, site, Role.HUB_TRANSPORT, protocols=(SMTP, *protocols))


def test_hubs_by_distance() -> None:
    """The own site's first, by name; then site by site by cost; front ends never, whatever they are beside."""
    both = server("CAS-02", "usa", Role.CLIENT_ACCESS, Role.HUB_TRANSPORT, protocols=(SMTP,))
    edge = server("EDGE-01", "usa", Role.EDGE_TRANSPORT, protocols=(SMTP,))
    hubs = [hub("HUB-05", "asia"), hub("HUB-03", "europe"), hub("HUB-02", "usa"), hub("HUB-01", "usa"), both, edge]
    found = hubs_by_distance(organization(*hubs), "usa", SMTP)
    assert [[target.server for target in tier] for tier in found] == [["HUB-01", "HUB-02"], ["HUB-03"], ["HUB-05"]]
    assert hubs_by_distance(organization(*hubs), "usa", SUBMISSION) == []


def test_the_own_port_25_is_the_front_ends_unless_it_is_a_hub() -> None:
    """Else the hub's connectors listen there."""
    both = server("CAS-02", "usa", Role.CLIENT_ACCESS, Role.HUB_TRANSPORT, protocols=(SMTP, Protocol.IMAP))
    assert [e.name for e in FRONT.client_endpoints] == ["submission", "smtp"]
    assert [e.name for e in both.client_endpoints] == ["imap"]


def submit(world: Organization) -> Serve | Proxy | Refuse:
    """A submission by a user of DB01, whose epoch is 7."""
    request = Request(SUBMISSION, "CAS-01")
    found = decide(world, request, Mailbox("DB01"), ActiveCopy("DB01", "MBX-01", 7))
    assert isinstance(found, Serve | Proxy | Refuse)
    return found


@pytest.mark.parametrize(("site", "kind"), [("usa", Serve), ("asia", Proxy)])
@pytest.mark.parametrize("version", [Version.MODERN, Version.V2010])
def test_to_the_users_own_server_in_whatever_site(site: str, kind: type, version: Version) -> None:
    """Of every version and edition: C9 refuses reading mail only."""
    mailbox = server("MBX-01", site, Role.MAILBOX, protocols=(SUBMISSION,), version=version)
    found = submit(organization(mailbox, hub("HUB-01", site, SUBMISSION)))
    assert isinstance(found, kind)
    assert not isinstance(found, Refuse)
    assert (found.target.server, found.epoch, found.candidates) == ("MBX-01", 7, ())


def test_to_the_hubs_of_its_site_where_it_takes_none() -> None:
    """With no epoch: a hub has no copy, so sessions may stay there when the database moves."""
    mailbox = server("MBX-01", "europe", Role.MAILBOX, protocols=(Protocol.IMAP,))
    hubs = [hub("HUB-02", "europe", SUBMISSION), hub("HUB-01", "europe", SUBMISSION), hub("HUB-00", "usa", SUBMISSION)]
    found = submit(organization(mailbox, *hubs))
    assert isinstance(found, Proxy)
    assert [target.server for target in found.candidates] == ["HUB-01", "HUB-02"]
    assert found.epoch == 0
    found = submit(organization(mailbox, hub("HUB-01", "europe"), *hubs[2:]))
    assert isinstance(found, Proxy)
    assert found.target.server == "HUB-00"
    refused = submit(organization(mailbox, hub("HUB-01", "europe")))
    assert isinstance(refused, Refuse)
    assert refused.cause is Cause.NO_ENDPOINT


def test_through_a_front_end_of_a_site_that_is_reached_so_only() -> None:
    """C12, as for IMAP."""
    mailbox = server("MBX-01", "asia", Role.MAILBOX, protocols=(SUBMISSION,))
    far = server("CAS-03", "asia", Role.CLIENT_ACCESS, protocols=(SUBMISSION,))
    found = submit(organization(mailbox, far, through_peer="asia"))
    assert isinstance(found, Proxy)
    assert found.target.server == "CAS-03"
