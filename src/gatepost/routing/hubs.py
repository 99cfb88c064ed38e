"""Hubs that a front end hands mail to: strangers' sessions on port 25 (SPEC B7, T12), and users' submissions (C10)."""

from __future__ import annotations

from gatepost.balancing.affinity import Affinity
from gatepost.organization.model import Organization, Protocol, Role, Server, Version
from gatepost.routing.case import Case
from gatepost.routing.mail.paths import Paths
from gatepost.routing.outcome import Cause, Proxy, Refuse, Serve, Target


def hubs_by_distance(
    organization: Organization, site: str, protocol: Protocol, paths: Paths | None = None
) -> list[tuple[Target, ...]]:
    """The hubs that answer `protocol`, site by site: those of `site` first, then of the others by cost from there.

    Each site's are in the order of their names. Front ends are not among them, whatever roles they have beside: a
    session is handed on once, never to another front end.
    """
    found = (paths or Paths(organization)).all_from(site).values()
    ways = sorted(found, key=lambda path: (path.cost, path.hops, path.sites[-1].casefold()))
    tiers = (_answering(organization.hubs_by_site.get(way.sites[-1], ()), protocol) for way in ways)
    return [tier for tier in tiers if tier]


def decide_submission(case: Case) -> Serve | Proxy | Refuse:
    """Submission by a user: to the mailbox's own server, in whatever site; to hubs of that site where it takes none.

    Where that site has no such hubs either they are of the nearest site that has: any hub may send a user's mail.
    """
    server, protocol = case.server, case.request.protocol
    endpoint = server.endpoint(protocol)
    if endpoint is not None:
        return case.one("C10", Target(server.name, endpoint))
    case.passed("C10", f"{server.name} has no endpoint for {protocol.value}: a hub takes it")
    tiers = hubs_by_distance(case.organization, server.site, protocol)
    if not tiers:
        message = f"neither {server.name} nor a hub has an endpoint for {protocol.value}"
        return case.refuse(Cause.NO_ENDPOINT, "O1", message)
    case.epoch = 0  # a hub has no copy of the database: the session may stay where it is when that moves
    return case.several("C10", list(tiers[0]), Affinity.ROUND_ROBIN)


def _answering(hubs: tuple[Server, ...], protocol: Protocol) -> tuple[Target, ...]:
    return tuple(
        Target(hub.name, endpoint)
        for hub in sorted(hubs, key=lambda hub: hub.name)
        if (endpoint := hub.endpoint(protocol)) is not None and not _is_front_end(hub)
    )


def _is_front_end(server: Server) -> bool:
    return Role.CLIENT_ACCESS in server.roles and server.version >= Version.MODERN
