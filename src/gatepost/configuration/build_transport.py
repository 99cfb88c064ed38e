"""From the file's tables of transport to the frozen values of `organization.transport`, with what need not be written.

A hub or edge that no receive connector names has the standard ones (SPEC T1): as a front end listens at its endpoints,
so they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from gatepost.configuration.transport_schema import ReceiveConnectorTable, SendConnectorTable
from gatepost.organization.addresses import is_ip_address
from gatepost.organization.model import Endpoint, Protocol, Role, Server, TlsMode
from gatepost.organization.transport import (
    EDGE_SETTINGS,
    HUB_SETTINGS,
    Binding,
    PermissionGroup,
    ReceiveAuthentication,
    ReceiveConnector,
    SendConnector,
    TransportSettings,
)

ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - a connector for all of the machine's addresses is what is meant
_WITH_PASSWORDS = frozenset({
    ReceiveAuthentication.TLS, ReceiveAuthentication.BASIC, ReceiveAuthentication.BASIC_REQUIRE_TLS,
})  # fmt: skip


def default_settings(roles: Iterable[Role]) -> TransportSettings:
    """What a server with these roles has where nothing is written (SPEC T6)."""
    found = set(roles)
    return EDGE_SETTINGS if Role.EDGE_TRANSPORT in found and Role.HUB_TRANSPORT not in found else HUB_SETTINGS


def build_settings(written: Mapping[str, Any], roles: Iterable[Role]) -> TransportSettings:
    """The settings of one server; None is what was not written and has no default of its own."""
    return replace(default_settings(roles), **{key: value for key, value in written.items() if value is not None})


def build_receive_connectors(
    tables: Mapping[str, ReceiveConnectorTable], servers: Mapping[str, Server]
) -> dict[str, ReceiveConnector]:
    """The written connectors, then the standard ones of servers that none names."""
    found = {name: _receive(name, table) for name, table in tables.items()}
    named = {connector.server for connector in found.values()}
    for server in servers.values():
        if server.name not in named:
            found |= {c.name: c for c in standard_connectors(server) if c.name not in found}
    return found


def standard_connectors(server: Server) -> tuple[ReceiveConnector, ...]:
    """What counts while the file lists no receive connector of `server`: one for servers, one for clients.

    `Default NAME` is at the smtp endpoint, `Client NAME` at the endpoints for submission, unless these are those of a
    front end on the same server. An edge has the first only, and there everybody may send to the organization.
    """
    return tuple(_standard_connectors(server)) if server.carries_mail else ()


def _standard_connectors(server: Server) -> Iterator[ReceiveConnector]:
    is_hub = Role.HUB_TRANSPORT in server.roles
    smtp = tuple(b for e in server.endpoints if e.protocol is Protocol.SMTP for b in _bindings(e))
    if smtp and is_hub:
        groups = frozenset({PermissionGroup.SERVERS, PermissionGroup.USERS})
        methods = _WITH_PASSWORDS | {ReceiveAuthentication.SERVERS}
        yield ReceiveConnector(f"Default {server.name}", server.name, smtp, (), groups, methods)
    elif smtp:
        groups = frozenset({PermissionGroup.ANONYMOUS, PermissionGroup.SERVERS, PermissionGroup.PARTNERS})
        methods = frozenset({ReceiveAuthentication.TLS, ReceiveAuthentication.SERVERS})
        yield ReceiveConnector(
            f"Default internal receive connector {server.name}", server.name, smtp, (), groups, methods
        )
    for_users = tuple(b for e in server.endpoints if e.protocol is Protocol.SUBMISSION for b in _bindings(e))
    if for_users and is_hub and Role.CLIENT_ACCESS not in server.roles:
        groups = frozenset({PermissionGroup.USERS})
        yield ReceiveConnector(f"Client {server.name}", server.name, for_users, (), groups, _WITH_PASSWORDS)


def _bindings(endpoint: Endpoint) -> Iterator[Binding]:
    """Where a server listens at its endpoint: at its address, or everywhere where that is a name."""
    for address in (endpoint.address,) if is_ip_address(endpoint.address) else ANY_ADDRESS:
        yield Binding(ip_address(address), endpoint.port, endpoint.tls is TlsMode.IMPLICIT)


def _receive(name: str, table: ReceiveConnectorTable) -> ReceiveConnector:
    plain = {key: getattr(table, key) for key in PLAIN_RECEIVE}
    with_tls = (replace(binding, implicit_tls=True) for binding in table.implicit_tls_bindings)
    return ReceiveConnector(
        name=name,
        bindings=(*table.bindings, *with_tls),
        remote_ranges=tuple(table.remote_ranges),
        permission_groups=frozenset(table.permission_groups),
        authentication=frozenset(table.authentication),
        proxy_protocol_from=tuple(table.proxy_protocol_from),
        xclient_from=tuple(table.xclient_from),
        **plain,
    )


PLAIN_RECEIVE = tuple(
    key
    for key in ReceiveConnectorTable.model_fields
    if key not in {"bindings", "implicit_tls_bindings", "remote_ranges", "permission_groups", "authentication"}
    and not key.endswith("_from")
)
"""Keys that are taken over as they are."""
PLAIN_SEND = tuple(
    key
    for key in SendConnectorTable.model_fields
    if key not in {"address_spaces", "source_servers", "smart_hosts", "password_file"}
)


def build_send_connector(name: str, table: SendConnectorTable, password: str) -> SendConnector:
    """A send connector; `password` is the content of its file."""
    return SendConnector(
        name=name,
        address_spaces=tuple(table.address_spaces),
        source_servers=tuple(table.source_servers),
        smart_hosts=tuple(table.smart_hosts),
        password=password,
        **{key: getattr(table, key) for key in PLAIN_SEND},
    )
