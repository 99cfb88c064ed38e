"""Which receive connector a connection belongs to (SPEC T1), which ones collide, and those of a server without any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from gatepost.organization.model import Role, Server
from gatepost.organization.transport import (
    Address,
    AddressRange,
    Binding,
    PermissionGroup,
    ReceiveAuthentication,
    ReceiveConnector,
)

SMTP_PORT = 25
SUBMISSION_PORT = 587
SUBMISSIONS_PORT = 465

_EVERYWHERE: tuple[Address, ...] = (IPv4Address(0), IPv6Address(0))
_EVERYBODY = (
    AddressRange(IPv4Address(0), IPv4Address(2**32 - 1)),
    AddressRange(IPv6Address(0), IPv6Address(2**128 - 1)),
)


@dataclass(frozen=True, slots=True)
class Collision:
    """Two connectors between which no rule decides for some clients."""

    first: ReceiveConnector
    second: ReceiveConnector
    binding: Binding
    first_range: AddressRange
    second_range: AddressRange


def plain_address(text: str) -> Address:
    """`text` as an address: no scope id, and an IPv4 address mapped into IPv6 is the IPv4 one. Raises ValueError."""
    address = ip_address(text.partition("%")[0])
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def choose_connector(
    connectors: Iterable[ReceiveConnector], local: Address, port: int, remote: Address
) -> ReceiveConnector | None:
    """The connector for a client `remote` that has connected to `local`, `port`; None: nobody serves it.

    A binding to that very address goes before one to all addresses, then the smallest range that holds the client
    (exchange-facts 4.9). Ties, which the organization's check reports, go to the first name.
    """
    best: tuple[bool, int, str] | None = None
    chosen = None
    for connector in connectors:
        if not connector.enabled:
            continue
        bound = [b.address for b in connector.bindings if b.port == port and _binds(b.address, local)]
        sizes = [range_.size for range_ in ranges_of(connector) if remote in range_]
        if bound and sizes:
            rank = (local not in bound, min(sizes), connector.name)
            if best is None or rank < best:
                best, chosen = rank, connector
    return chosen


def ranges_of(connector: ReceiveConnector) -> tuple[AddressRange, ...]:
    """The remote ranges of a connector, written out."""
    return connector.remote_ranges or _EVERYBODY


def collisions(connectors: Iterable[ReceiveConnector]) -> Iterator[Collision]:
    """The pairs of enabled connectors of one server that share a binding and have equal ranges there, or ranges that
    overlap though neither holds the other whole. A binding's TLS does not count: one port speaks one way.
    """
    enabled = [connector for connector in connectors if connector.enabled]
    for at, first in enumerate(enabled):
        for second in enabled[at + 1 :]:
            if first.server == second.server:
                yield from _between(first, second)


def default_connectors(server: Server) -> tuple[ReceiveConnector, ...]:
    """The connectors of a hub or edge for which none are written; empty for other servers.

    A hub takes mail of the organization's servers at port 25 and of its users at 587 (STARTTLS) and 465 (TLS at once,
    RFC 8314); an edge takes everybody's at port 25.
    """
    if Role.EDGE_TRANSPORT in server.roles:
        return (
            ReceiveConnector(
                f"Default internal receive connector {server.name}",
                server.name,
                _bindings(SMTP_PORT),
                permission_groups=frozenset(
                    {PermissionGroup.ANONYMOUS, PermissionGroup.SERVERS, PermissionGroup.PARTNERS}
                ),
                authentication=frozenset({ReceiveAuthentication.TLS, ReceiveAuthentication.SERVERS}),
            ),
        )
    if Role.HUB_TRANSPORT not in server.roles:
        return ()
    passwords = {ReceiveAuthentication.TLS, ReceiveAuthentication.BASIC, ReceiveAuthentication.BASIC_REQUIRE_TLS}
    return (
        ReceiveConnector(
            f"Default {server.name}",
            server.name,
            _bindings(SMTP_PORT),
            permission_groups=frozenset({PermissionGroup.SERVERS, PermissionGroup.USERS}),
            authentication=frozenset({*passwords, ReceiveAuthentication.SERVERS}),
        ),
        ReceiveConnector(
            f"Client {server.name}",
            server.name,
            (*_bindings(SUBMISSION_PORT), *_bindings(SUBMISSIONS_PORT, implicit_tls=True)),
            permission_groups=frozenset({PermissionGroup.USERS}),
            authentication=frozenset(passwords),
        ),
    )


def _bindings(port: int, *, implicit_tls: bool = False) -> tuple[Binding, ...]:
    return tuple(Binding(address, port, implicit_tls) for address in _EVERYWHERE)


def _binds(binding: Address, local: Address) -> bool:
    return binding == local or (binding.is_unspecified and binding.version == local.version)


def _between(first: ReceiveConnector, second: ReceiveConnector) -> Iterator[Collision]:
    places = {(b.address, b.port) for b in second.bindings}
    shared = next((b for b in first.bindings if (b.address, b.port) in places), None)
    if shared is None:
        return
    for one in ranges_of(first):
        for other in ranges_of(second):
            if one.first in other or other.first in one:
                nested = (one.first in other and one.last in other) or (other.first in one and other.last in one)
                if not nested or one == other:
                    yield Collision(first, second, shared, one, other)
