"""Health pages for the balancer in front, and for other front ends: `/<service>/healthcheck.htm` (SPEC V2).

As the source system has them: made in memory, nobody signs in, 200 with `200 OK<br/>` and the server's name when the
service can really be served, 503 when not. The reason names no other machine: anybody may ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gatepost.access.http.answers import RETRY_AFTER
from gatepost.activemanager.probes import HEALTH_PAGE
from gatepost.organization.model import Organization, Role, Server

if TYPE_CHECKING:
    from gatepost.access.http.client_leg import HttpClientLeg
    from gatepost.access.http.door import HttpDoor

DRAINING = "this server is going down"
NO_SERVER = "no server of this service answers"
_HTML = b"text/html; charset=utf-8"


def concerns(route: str) -> bool:
    """Whether a path asks for the health of a service."""
    return route.endswith(HEALTH_PAGE)


def answer(leg: HttpClientLeg, route: str) -> bool:
    """Answer it; False: no such page here."""
    door = leg.door
    path = route.removesuffix(HEALTH_PAGE).casefold() or "/"
    if path not in door.configuration.organization.directories_by_path:
        return False
    if leg.reader.method not in {b"GET", b"HEAD"}:
        leg.answer(405, fields=b"Allow: GET, HEAD\r\n")
        return True
    reason = why_not(door, path)
    if reason:
        leg.answer(503, f"503 {reason}<br/>".encode(), fields=RETRY_AFTER, content_type=_HTML)
    else:
        leg.answer(200, f"200 OK<br/>{door.configuration.server.fqdn}".encode(), content_type=_HTML)
    return True


def why_not(door: HttpDoor, path: str) -> str:
    """Why the service at the case-folded `path` cannot be served now; empty: it can."""
    if door.draining:
        return DRAINING
    fault = door.stores_fault()
    if fault:
        return fault
    for server, service in offering(door.configuration.organization, door.configuration.server, path):
        if door.health.healthy(server, service):
            # So that the answer rests on a probe soon, also where no request has come by yet; one server is enough.
            door.health.watch(server, service)
            return ""
    return NO_SERVER


def offering(organization: Organization, front_end: Server, path: str) -> Iterator[tuple[str, str]]:
    """The servers that could serve the case-folded `path` for this front end, each with its service's word.

    Other front ends count only where no server is reached straight: two that judged themselves by each other would
    never come up again. One at a time: anybody may ask, and of a thousand the first that is up is the answer.
    """
    through: dict[tuple[str, str], None] = {}
    straight = False
    for directory in organization.directories_by_path.get(path, ()):
        server = organization.servers.get(directory.server)
        if server is None or server.name == front_end.name:
            continue
        service = directory.service.casefold()
        site = organization.sites.get(server.site)
        if site is not None and site.through_peer and server.site != front_end.site:
            peers = organization.client_access_by_site.get(server.site, ())
            through.update(((peer.name, service), None) for peer in peers if peer.peer_endpoint is not None)
        elif server.peer_endpoint is not None and Role.MAILBOX not in server.roles:
            through[server.name, service] = None
        else:
            straight = True
            yield server.name, service
    if not straight:
        yield from through
