"""The check of receive connectors (part of SPEC O2): who is for which client, and who may send."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from gatepost.organization.addresses import is_host_name
from gatepost.organization.faults import Path, error, listed, quoted, unknown, warning
from gatepost.organization.model import Finding, Organization, Role, Version
from gatepost.organization.transport import (
    AddressRange,
    Binding,
    PermissionGroup,
    ReceiveAuthentication,
    ReceiveConnector,
)
from gatepost.organization.transport_text import binding_text, range_text, read_range

EVERYBODY = (read_range("0.0.0.0/0"), read_range("::/0"))
TRUSTED_BITS = 24
"""A range of more addresses than 10.0.0.0/8 has is no private network."""

_OUTSIDE = {PermissionGroup.ANONYMOUS, PermissionGroup.PARTNERS}
_TRUSTING = {ReceiveAuthentication.EXTERNALLY_SECURED}
_PASSWORDS = {ReceiveAuthentication.BASIC, ReceiveAuthentication.BASIC_REQUIRE_TLS}


def check_receive_connectors(organization: Organization) -> Iterator[Finding]:
    """All faults of receive connectors."""
    for connector in organization.receive_connectors.values():
        yield from _check_one(organization, connector)
        yield from _check_authentication(connector)
        yield from _check_permissions(connector)
    for server, connectors in organization.receive_connectors_by_server.items():
        in_use = [connector for connector in connectors if connector.enabled]
        for one, other in combinations(in_use, 2):
            yield from _check_pair(one, other)
        yield from _check_listeners(organization, server, in_use)


def check_strangers(organization: Organization) -> Iterator[Finding]:
    """Whether the Internet's mail for the organization is taken anywhere."""
    carriers = [s for s in organization.servers.values() if s.carries_mail and s.version is Version.MODERN]
    hubs = [server.name for server in carriers if Role.HUB_TRANSPORT in server.roles]
    if not organization.accepted_domains or not hubs or any(Role.EDGE_TRANSPORT in s.roles for s in carriers):
        return
    own = [c for hub in hubs for c in organization.receive_connectors_by_server.get(hub, ()) if c.enabled]
    # Who trusts all clients of some addresses has a filter or another relay in front.
    if not own or any(c.permission_groups & _OUTSIDE or c.authentication & _TRUSTING for c in own):
        return
    domains = listed(organization.accepted_domains)
    message = f"no connector takes mail from strangers, so none from the Internet comes for {domains}"
    remedy = 'add "anonymous" to permission_groups of a connector at port 25, or an edge'
    path, who = _place(own[0])
    yield warning((*path, "permission_groups"), who, message, remedy)


def ranges_of(connector: ReceiveConnector) -> tuple[AddressRange, ...]:
    """Its ranges; everybody where it names none."""
    return connector.remote_ranges or EVERYBODY


def _check_one(organization: Organization, connector: ReceiveConnector) -> Iterator[Finding]:
    path, who = _place(connector)
    server = organization.servers.get(connector.server)
    if server is None:
        yield unknown((*path, "server"), who, "server", "servers", connector.server, organization.servers)
    elif not server.carries_mail:
        message = f"{connector.server} is no hub and no edge"
        remedy = f'give {connector.server} the role "hub-transport", or name another server'
        yield error((*path, "server"), who, message, remedy, ("servers", connector.server, "roles"))
    if not connector.bindings:
        yield error((*path, "bindings"), who, "listens nowhere", 'name an address and port: bindings = ["0.0.0.0:25"]')
    if connector.fqdn and not is_host_name(connector.fqdn):
        message = f"{quoted(connector.fqdn)} is not a host name"
        yield error((*path, "fqdn"), who, message, 'write it like "mail.contoso.com"')
    if connector.banner and not (connector.banner.isascii() and connector.banner.isprintable()):
        message = "the banner has line ends or characters that are not ASCII"
        yield error((*path, "banner"), who, message, "write one line of plain text")
    if connector.inactivity_seconds >= connector.connection_seconds:
        message = "inactivity_seconds is not less than connection_seconds"
        yield error((*path, "inactivity_seconds"), who, message, "make it less")


def _check_authentication(connector: ReceiveConnector) -> Iterator[Finding]:
    """What goes with what (exchange-facts 4.9)."""
    path, who = _place(connector)
    here: Path = (*path, "authentication")
    offered = connector.authentication
    if ReceiveAuthentication.BASIC_REQUIRE_TLS in offered:
        needed = (ReceiveAuthentication.BASIC, ReceiveAuthentication.TLS)
        missing = [method.value for method in needed if method not in offered]
        if missing:
            message = f"basic-require-tls needs {' and '.join(missing)} beside it"
            yield error(here, who, message, f'add "{missing[0]}"')
    if ReceiveAuthentication.KERBEROS in offered and ReceiveAuthentication.TLS not in offered:
        yield error(here, who, "kerberos needs tls beside it: it is offered within TLS only", 'add "tls"')
    if ReceiveAuthentication.EXTERNALLY_SECURED in offered:
        if ReceiveAuthentication.TLS not in offered:
            yield error(here, who, "externally-secured needs tls beside it", 'add "tls"')
        if PermissionGroup.SERVERS not in connector.permission_groups:
            message = "externally-secured takes all clients for servers, which permission_groups does not let in"
            yield error((*path, "permission_groups"), who, message, 'add "servers"')
        yield from _check_open_relay(connector)
    needs_tls = connector.require_tls or any(binding.implicit_tls for binding in connector.bindings)
    if needs_tls and ReceiveAuthentication.TLS not in offered:
        what = "require_tls" if connector.require_tls else "a binding with TLS from the first byte"
        yield error(here, who, f"{what} needs tls", 'add "tls" to authentication')


def _check_open_relay(connector: ReceiveConnector) -> Iterator[Finding]:
    path, who = _place(connector)
    wide = [remote for remote in ranges_of(connector) if _is_wide(remote)]
    if wide:
        clients = "everybody" if not connector.remote_ranges else f"everybody in {listed(map(range_text, wide))}"
        message = f"is an open relay: {clients} is taken for a server of the organization and may send to all the world"
        remedy = "name the few trusted addresses in remote_ranges"
        yield warning((*path, "authentication"), who, message, remedy)


def _is_wide(remote: AddressRange) -> bool:
    """Whether there are strangers among the clients: more of them than the widest private network has."""
    bits = remote.first.max_prefixlen
    return remote.size > 1 << (TRUSTED_BITS if bits == 32 else bits - TRUSTED_BITS)


def _check_permissions(connector: ReceiveConnector) -> Iterator[Finding]:
    """Each group has a way to be known; passwords do not cross in clear."""
    path, who = _place(connector)
    here: Path = (*path, "permission_groups")
    groups, offered = connector.permission_groups, connector.authentication
    if not groups:
        message = "permission_groups is empty, so nobody may send"
        yield warning(here, who, message, 'write who may, for example ["anonymous"]')
    if PermissionGroup.USERS in groups and not offered & _PASSWORDS:
        message = "users may send, but cannot sign in"
        remedy = 'add "basic" and "basic-require-tls" to authentication'
        yield warning(here, who, message, remedy)
    by_certificate = {ReceiveAuthentication.SERVERS, ReceiveAuthentication.EXTERNALLY_SECURED}
    if PermissionGroup.SERVERS in groups and not offered & by_certificate:
        message = "servers of the organization may send, but none can be known as one"
        yield warning(here, who, message, 'add "servers" to authentication')
    if PermissionGroup.PARTNERS in groups and ReceiveAuthentication.TLS not in offered:
        message = "partners may send, but without TLS none can show a certificate"
        yield warning(here, who, message, 'add "tls" to authentication')
    only_in_tls = ReceiveAuthentication.BASIC_REQUIRE_TLS in offered or connector.require_tls
    all_implicit = bool(connector.bindings) and all(binding.implicit_tls for binding in connector.bindings)
    if ReceiveAuthentication.BASIC in offered and not only_in_tls and not all_implicit:
        strangers = " of everybody who connects" if PermissionGroup.ANONYMOUS in groups else ""
        message = f"passwords{strangers} may cross in clear"
        yield warning((*path, "authentication"), who, message, 'add "basic-require-tls"')


def _check_pair(one: ReceiveConnector, other: ReceiveConnector) -> Iterator[Finding]:
    """Which of two connectors a client meets must be certain. Reported at the later one."""
    path, who = _place(other)
    ports = {(b.address, b.port): b for b in one.bindings}
    shared = [(b, ports[b.address, b.port]) for b in other.bindings if (b.address, b.port) in ports]
    if not shared:
        return
    at = binding_text(shared[0][0])
    here, rests_on = (*path, "remote_ranges"), (*_place(one)[0], "remote_ranges")
    if any(mine.implicit_tls != theirs.implicit_tls for mine, theirs in shared):
        message = f"begins with TLS at {at} and connector {one.name} does not, or the other way round"
        yield error((*path, "bindings"), who, message, "give one of the two another port")
        return
    for mine in ranges_of(other):
        for theirs in ranges_of(one):
            if (mine.first, mine.last) == (theirs.first, theirs.last):
                clients = "all clients" if not other.remote_ranges else range_text(mine)
                message = f"is for the same clients as connector {one.name}, {clients}, at the same binding, {at}"
                remedy = "give one of the two other remote_ranges or another binding"
                yield error(here, who, message, remedy, rests_on)
                return
            if _cross(mine, theirs):
                message = (
                    f"range {range_text(mine)} and range {range_text(theirs)} of connector {one.name} overlap at {at}, "
                    f"and neither is inside the other"
                )
                yield error(here, who, message, "make one range part of the other, or part them", rests_on)
                return


def _cross(one: AddressRange, other: AddressRange) -> bool:
    """Whether some addresses are in both ranges, and each has some that the other has not."""
    if one.first.version != other.first.version:
        return False
    overlap = max(int(one.first), int(other.first)) <= min(int(one.last), int(other.last))
    return overlap and not (_inside(one, other) or _inside(other, one))


def _inside(one: AddressRange, other: AddressRange) -> bool:
    return int(other.first) <= int(one.first) and int(one.last) <= int(other.last)


def _check_listeners(organization: Organization, name: str, connectors: list[ReceiveConnector]) -> Iterator[Finding]:
    """A server's front end and its hub cannot listen at one port."""
    server = organization.servers.get(name)
    if server is None or Role.CLIENT_ACCESS not in server.roles:
        return
    taken = {endpoint.port: endpoint for endpoint in server.client_endpoints}
    for connector in connectors:
        path, who = _place(connector)
        for binding in connector.bindings:
            endpoint = taken.get(binding.port)
            if endpoint is not None and _same_place(binding, endpoint.address):
                message = f"{binding_text(binding)} is taken by endpoint {endpoint.name} of {name}"
                yield error((*path, "bindings"), who, message, "give one of the two another port")


def _same_place(binding: Binding, address: str) -> bool:
    return binding.address.is_unspecified or str(binding.address) == address


def _place(connector: ReceiveConnector) -> tuple[Path, str]:
    return ("receive_connectors", connector.name), f"receive connector {connector.name}"
