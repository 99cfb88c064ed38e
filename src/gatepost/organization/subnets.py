"""Which subnet an address is in, the longest one (SPEC O1): a large forest has thousands of them."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Network = IPv4Network | IPv6Network


class Subnets:
    """Subnets with the names of their sites: one look-up for each length of prefix that there is."""

    def __init__(self, subnets: Iterable[tuple[Network, str]]) -> None:
        self._by_length: dict[int, dict[int, dict[int, tuple[Network, str]]]] = {4: {}, 6: {}}
        """By IP version, length of the prefix (longest first) and the prefix's bits."""
        for network, site in sorted(subnets, key=lambda subnet: -subnet[0].prefixlen):
            bits = int(network.network_address) >> (network.max_prefixlen - network.prefixlen)
            self._by_length[network.version].setdefault(network.prefixlen, {}).setdefault(bits, (network, site))

    def find(self, address: str) -> tuple[Network, str] | None:
        """The longest subnet that holds `address`, and its site. Raises ValueError when it is no IP address.

        An IPv4 address that is mapped into IPv6, as dual-stack sockets show it, is the IPv4 address.
        """
        ip: IPv4Address | IPv6Address = ip_address(address)
        if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        number = int(ip)
        for length, known in self._by_length[ip.version].items():
            found = known.get(number >> (ip.max_prefixlen - length))
            if found is not None:
                return found
        return None
