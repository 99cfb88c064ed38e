"""Which receive connector takes a connection, which ones collide, and the defaults (SPEC T1, exchange-facts 4.9)."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from gatepost.organization.model import Role, Server, Version
from gatepost.organization.transport import (
    AddressRange,
    Binding,
    PermissionGroup,
    ReceiveAuthentication,
    ReceiveConnector,
)
from gatepost.routing.receiving import choose_connector, collisions, default_connectors, plain_address


def span(text: str) -> AddressRange:
    if "-" in text:
        first, last = text.split("-")
        return AddressRange(ip_address(first), ip_address(last))
    network = ip_network(text)
    return AddressRange(network[0], network[-1])


def connector(name: str, *bindings: str, ranges: str = "", enabled: bool = True, server: str = "S") -> ReceiveConnector:
    bound = tuple(Binding(ip_address(b.rpartition(":")[0].strip("[]")), int(b.rpartition(":")[2])) for b in bindings)
    return ReceiveConnector(name, server, bound, tuple(span(r) for r in ranges.split()), enabled=enabled)


def chosen(connectors: list[ReceiveConnector], remote: str, local: str = "10.0.0.1", port: int = 25) -> str:
    found = choose_connector(connectors, ip_address(local), port, plain_address(remote))
    return found.name if found is not None else ""


def test_the_source_systems_example() -> None:
    connectors = [
        connector("everybody", "0.0.0.0:25", ranges="0.0.0.0-255.255.255.255"),
        connector("network", "0.0.0.0:25", ranges="192.168.1.0-192.168.1.255"),
        connector("one", "0.0.0.0:25", ranges="192.168.1.75"),
    ]
    for order in (connectors, connectors[::-1]):
        assert chosen(order, "192.168.1.75") == "one"
        assert chosen(order, "192.168.1.100") == "network"
        assert chosen(order, "192.0.2.1") == "everybody"
        assert chosen(order, "::ffff:192.168.1.75") == "one"
        assert chosen(order, "2001:db8::1") == ""


def test_a_binding_to_the_very_address_goes_before_the_range() -> None:
    connectors = [
        connector("all", "0.0.0.0:25", ranges="192.0.2.1"),
        connector("address", "10.0.0.2:25", ranges="192.0.2.0/24"),
    ]
    assert chosen(connectors, "192.0.2.1", local="10.0.0.2") == "address"
    assert chosen(connectors, "192.0.2.1", local="10.0.0.1") == "all"
    assert chosen(connectors, "198.51.100.1", local="10.0.0.2") == ""


def test_who_has_no_range_at_the_address_falls_to_all_addresses() -> None:
    connectors = [connector("partner", "10.0.0.2:25", ranges="192.0.2.1"), connector("default", "0.0.0.0:25")]
    assert chosen(connectors, "198.51.100.1", local="10.0.0.2") == "default"


def test_port_family_and_switched_off_ones() -> None:
    connectors = [
        connector("v4", "0.0.0.0:25"),
        connector("v6", "[::]:25"),
        connector("off", "0.0.0.0:587", enabled=False),
    ]
    assert chosen(connectors, "192.0.2.1") == "v4"
    assert chosen(connectors, "2001:db8::1", local="2001:db8::2") == "v6"
    assert chosen(connectors, "192.0.2.1", port=587) == ""


def test_equal_and_crossing_ranges_collide_nested_ones_do_not() -> None:
    def pairs(*connectors: ReceiveConnector) -> list[tuple[str, str]]:
        return [(c.first.name, c.second.name) for c in collisions(connectors)]

    inner = connector("inner", "0.0.0.0:25", ranges="10.0.0.0/25")
    outer = connector("outer", "0.0.0.0:25", ranges="10.0.0.0/24")
    crossing = connector("crossing", "0.0.0.0:25", ranges="10.0.0.100-10.0.1.5")
    assert pairs(inner, outer) == []
    assert pairs(outer, crossing) == [("outer", "crossing")]
    assert pairs(inner, crossing) == [("inner", "crossing")]
    assert pairs(outer, connector("same", "0.0.0.0:25", ranges="10.0.0.0/24")) == [("outer", "same")]
    assert pairs(outer, connector("elsewhere", "0.0.0.0:26", ranges="10.0.0.0/24")) == []
    assert pairs(outer, connector("other", "0.0.0.0:25", ranges="10.0.0.0/24", server="T")) == []
    assert pairs(outer, connector("off", "0.0.0.0:25", ranges="10.0.0.0/24", enabled=False)) == []
    assert ("all", "everybody") in pairs(connector("all", "0.0.0.0:25"), connector("everybody", "0.0.0.0:25"))


def server(*roles: Role) -> Server:
    return Server("HUB-01", "usa", "hub-01.example", "10.0.0.1", Version.MODERN, frozenset(roles))


def test_the_connectors_of_a_hub_that_has_none() -> None:
    servers, clients = default_connectors(server(Role.HUB_TRANSPORT, Role.MAILBOX))
    assert servers.name == "Default HUB-01"
    assert {b.port for b in servers.bindings} == {25}
    assert PermissionGroup.ANONYMOUS not in servers.permission_groups
    assert PermissionGroup.SERVERS in servers.permission_groups
    assert ReceiveAuthentication.SERVERS in servers.authentication
    assert clients.name == "Client HUB-01"
    assert {(b.port, b.implicit_tls) for b in clients.bindings} == {(587, False), (465, True)}
    assert clients.permission_groups == {PermissionGroup.USERS}
    assert ReceiveAuthentication.BASIC_REQUIRE_TLS in clients.authentication
    assert ReceiveAuthentication.SERVERS not in clients.authentication
    assert not list(collisions((servers, clients)))


def test_the_connector_of_an_edge_that_has_none() -> None:
    (everybody,) = default_connectors(server(Role.EDGE_TRANSPORT))
    assert PermissionGroup.ANONYMOUS in everybody.permission_groups
    assert chosen([everybody], "2001:db8::1", local="2001:db8::2") == everybody.name


@pytest.mark.parametrize("roles", [(), (Role.MAILBOX,), (Role.CLIENT_ACCESS,)])
def test_other_servers_have_none(roles: tuple[Role, ...]) -> None:
    assert default_connectors(server(*roles)) == ()
