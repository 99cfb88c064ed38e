"""The names in a peer certificate: by them one front end knows another (SPEC C11)."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import quote, unquote

from gatepost.organization.model import Server

URI_PREFIX = "gatepost:server:"
"""What the URI of a peer certificate begins with; the server's name follows, percent-encoded."""


def server_uri(name: str) -> str:
    """The URI that names the server `name`."""
    return URI_PREFIX + quote(name, safe="")


def server_of_uri(uri: str) -> str | None:
    """The server that `uri` names; None when it is another kind of URI, or not in the one spelling that we write."""
    if not uri.startswith(URI_PREFIX):
        return None
    name = unquote(uri[len(URI_PREFIX) :])
    return name if name and server_uri(name) == uri else None


def certificate_names(server: Server) -> tuple[list[str], list[IPv4Address | IPv6Address]]:
    """Host names and addresses that the peer certificate of `server` stands for, the full host name first."""
    endpoint = server.peer_endpoint
    candidates = [server.fqdn, *([endpoint.tls_name] if endpoint else []), server.address]
    candidates += [endpoint.address] if endpoint else []
    hosts: dict[str, None] = {}
    addresses: dict[IPv4Address | IPv6Address, None] = {}
    for candidate in candidates:
        try:
            addresses[ip_address(candidate)] = None
        except ValueError:
            hosts[candidate.lower()] = None
    return list(hosts), [address for address in addresses if not address.is_unspecified]
