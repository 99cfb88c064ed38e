"""A modern mailbox in another site: straight, or through a front end of its site (SPEC C10, C12)."""

from __future__ import annotations

from gatepost.balancing.affinity import Affinity
from gatepost.organization.model import Endpoint, Protocol, Server
from gatepost.routing.case import Case
from gatepost.routing.outcome import Cause, Decision, Refuse, Target
from gatepost.routing.targets import fit_by_version, mailbox_target, version_mismatch

HTTPS_PORT = 443


def decide_modern(case: Case) -> Decision:
    """Any front end reaches any site, unless the organization says that this one is reached by a peer only."""
    site = case.organization.sites.get(case.server.site)
    if site is None or not site.through_peer:
        case.passed("C12", f"site {case.server.site} is reached straight")
    elif case.request.from_peer:
        case.passed("C12", "it came from a front end, so it goes straight")
    else:
        return _through_peer(case)
    target = mailbox_target(case, "C10")
    return target if isinstance(target, Refuse) else case.one("C10", target)


def _through_peer(case: Case) -> Decision:
    """By the peer endpoint for HTTP, by the endpoint of the protocol for mail."""
    site = case.server.site
    case.fact("C12", f"site {site} is reached through one of its client access servers only")
    protocol = case.request.protocol
    url_path = None
    if protocol is Protocol.HTTPS:
        straight = mailbox_target(case, "C10")
        if isinstance(straight, Refuse):
            return straight
        url_path = straight
    doors = {
        server.name: endpoint
        for server in case.organization.client_access_by_site.get(site, ())
        if (endpoint := server.peer_endpoint if protocol is Protocol.HTTPS else server.endpoint(protocol)) is not None
    }
    if not doors:
        kind = "a peer endpoint" if protocol is Protocol.HTTPS else f"an endpoint for {protocol.value}"
        message = f"no client access server of site {site} has {kind}"
        return case.refuse(Cause.NO_CLIENT_ACCESS_SERVER, "C12", message)
    fit = fit_by_version(case, (case.organization.servers[name] for name in doors))
    if not fit:
        return version_mismatch(case)
    targets = [_target(server, doors[server.name], url_path) for server in fit]
    return case.several("C10", targets, Affinity.ROUND_ROBIN)


def _target(server: Server, endpoint: Endpoint, straight: Target | None) -> Target:
    """The peer in place of the mailbox server; the path stays as the client wrote it, since the peer decides anew."""
    if straight is None or straight.directory is None:
        return Target(server.name, endpoint)
    port = "" if endpoint.port == HTTPS_PORT else f":{endpoint.port}"
    url = f"https://{endpoint.tls_name}{port}{straight.directory.path}"
    return Target(server.name, endpoint, straight.directory, url, peer=True)
