"""Which protocols a user may use from where, and which addresses are one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from gatepost.directory.policy.settings import Rule
from gatepost.organization.model import Network, Protocol

_SERVICES = {"microsoft-server-activesync": "activesync"}
SERVICE_WORDS = ("activesync", "ews", "owa", "ecp", "oab", "autodiscover", "rpc", "mapi", "dav", "jmap")
"""Services by HTTPS as rules and app passwords name them."""


def service_word(service: str) -> str:
    """The word of an HTTP service, whose name is that of a virtual directory."""
    folded = service.casefold()
    return _SERVICES.get(folded, folded)


@lru_cache(maxsize=4096)
def parse_client(client: str) -> IPv4Address | IPv6Address | None:
    """The client's address; one that is mapped into IPv6 is the IPv4 address. None: not known."""
    try:
        address = ip_address(client.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_in(client: str, networks: Iterable[Network]) -> bool:
    """Whether the client is in one of the networks."""
    address = parse_client(client)
    return address is not None and any(address in network for network in networks)


@lru_cache(maxsize=4096)
def group_of(client: str, ipv4_prefix: int, ipv6_prefix: int) -> str:
    """What stands for the client where addresses with a prefix in common are one."""
    address = parse_client(client)
    if address is None:
        return client
    prefix = ipv4_prefix if isinstance(address, IPv4Address) else ipv6_prefix
    return str(ip_network((address, prefix), strict=False))


def allowed(
    rules: Iterable[Rule], name: str, groups: frozenset[str], protocol: Protocol, client: str, service: str = ""
) -> bool:
    """Whether the first of `rules` that concerns this sign-in allows it. `name` is canonical."""
    for rule in rules:
        if (
            (not (rule.protocols or rule.services) or protocol in rule.protocols or service in rule.services)
            and (not rule.users or name in rule.users or f"@{name.rpartition('@')[2]}" in rule.users)
            and (not rule.groups or not rule.groups.isdisjoint(groups))
            and (not rule.networks or is_in(client, rule.networks))
        ):
            return rule.allow
    return True
