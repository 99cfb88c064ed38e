"""The longest subnet of an address, whatever subnets there are."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.organization.subnets import Network, Subnets

_V4 = st.builds(
    lambda bits, length: IPv4Network((bits >> (32 - length) << (32 - length), length)),
    st.integers(0, 2**32 - 1),
    st.integers(0, 32),
)
_V6 = st.builds(
    lambda bits, length: IPv6Network((bits >> (128 - length) << (128 - length), length)),
    st.integers(0, 2**128 - 1),
    st.integers(0, 128),
)
_ADDRESSES = st.one_of(st.integers(0, 2**32 - 1).map(IPv4Address), st.integers(2**100, 2**128 - 1).map(IPv6Address))


@given(st.lists(st.one_of(_V4, _V6), max_size=20, unique=True), _ADDRESSES)
def test_it_is_the_longest_of_those_that_hold_the_address(
    networks: list[Network], address: IPv4Address | IPv6Address
) -> None:
    subnets = Subnets((network, str(network)) for network in networks)
    holding = [n for n in networks if n.version == address.version and address in n]
    wanted = max(holding, key=lambda network: network.prefixlen) if holding else None
    assert subnets.find(str(address)) == ((wanted, str(wanted)) if wanted is not None else None)


@pytest.mark.parametrize(
    ("address", "site"),
    [("10.1.2.3", "usa"), ("::ffff:10.1.2.3", "usa"), ("::ffff:10.2.2.3", None), ("::1", "all"), ("0.0.0.0", None)],
)  # fmt: skip
def test_an_address_mapped_into_ipv6_is_the_ipv4_address(address: str, site: str | None) -> None:
    found = Subnets([(ip_network("10.1.0.0/16"), "usa"), (ip_network("::/0"), "all")]).find(address)
    assert (found[1] if found else None) == site


def test_ten_thousand_subnets_cost_no_more_than_their_lengths() -> None:
    networks = [ip_network(f"10.{n >> 8}.{n & 255}.0/24") for n in range(10_000)]
    subnets = Subnets((network, str(network)) for network in networks)
    assert subnets.find("10.39.15.77") == (ip_network("10.39.15.0/24"), "10.39.15.0/24")
    assert subnets.find("10.40.0.1") is None
