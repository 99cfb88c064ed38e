"""The check of what front ends do for mail on its way in: submissions, and port 25 under one name (part of SPEC O2)."""

from __future__ import annotations

from collections.abc import Iterator

from gatepost.organization.faults import listed, warning
from gatepost.organization.model import ClientAddress, Endpoint, Finding, Organization, Protocol, Role, Server, Version


def check_front_mail(organization: Organization) -> Iterator[Finding]:
    """All faults of endpoints `smtp`, `submission` and `submissions` of front ends, and of the hubs behind them."""
    front_ends = [server for server in organization.servers.values() if _is_front_end(server)]
    for server in front_ends:
        yield from _check_submission(organization, server)
    balancing = [server for server in front_ends if _own(server, Protocol.SMTP)]
    hubs = [hub for found in organization.hubs_by_site.values() for hub in found if not _is_front_end(hub)]
    if not balancing:
        return
    if not hubs:
        for server in balancing:
            message = "takes mail on port 25, but the organization has no hub to hand it to"
            remedy = 'add a server with roles = ["hub-transport"] and the endpoint smtp'
            yield warning(_place(server, "smtp"), f"server {server.name}", message, remedy)
    for hub in hubs:
        endpoint = hub.endpoint(Protocol.SMTP)
        if endpoint is not None and endpoint.client_address is ClientAddress.NONE:
            # What a hub allows its neighbours, such as to relay, strangers would be allowed too.
            message = f"takes every stranger for {listed(server.name for server in balancing)}, which hands it mail"
            remedy = (
                'set client_address of its endpoint smtp to "proxy-v2", "proxy-v1" or "xclient", as the hub takes it'
            )
            yield warning(_place(hub, endpoint.name), f"server {hub.name}", message, remedy)


def _check_submission(organization: Organization, server: Server) -> Iterator[Finding]:
    own = _own(server, Protocol.SUBMISSION)
    if not own:
        return
    others = (other for other in organization.servers.values() if not _is_front_end(other))
    if not any(other.endpoint(Protocol.SUBMISSION) is not None for other in others):
        message = "takes submissions, but no mailbox server or hub does, to which they could go"
        remedy = "list submission or submissions among the endpoints of the mailbox servers, or of hubs"
        yield warning(_place(server, own[0].name), f"server {server.name}", message, remedy)


def _own(server: Server, protocol: Protocol) -> list[Endpoint]:
    return [endpoint for endpoint in server.client_endpoints if endpoint.protocol is protocol]


def _is_front_end(server: Server) -> bool:
    return Role.CLIENT_ACCESS in server.roles and server.version >= Version.MODERN


def _place(server: Server, endpoint: str) -> tuple[str, ...]:
    return "servers", server.name, "endpoints", endpoint
