"""What a configuration says to the parts of a hub (SPEC T1, O4)."""

from __future__ import annotations

from gatepost.configuration.hub_settings import HubSettings
from gatepost.configuration.settings import Configuration
from gatepost.organization.transport import ReceiveConnector
from gatepost.transport.headers.trace import trace_token
from gatepost.transport.intake import IntakeSettings
from gatepost.transport.next_hop_targets import Ourselves
from gatepost.transport.operating import NotFound
from gatepost.transport.own_addresses import interface_addresses
from gatepost.transport.receive.tls import ReceiveTls, receive_tls
from gatepost.transport.send.tls import TlsMaterial


def hub_settings(configuration: Configuration) -> HubSettings:
    """`[front_end.transport]`, which a hub has."""
    transport = configuration.front_end.transport
    assert transport is not None, "a hub has [front_end.transport]"
    return transport


def connectors_of(configuration: Configuration) -> tuple[ReceiveConnector, ...]:
    """This server's receive connectors."""
    return configuration.organization.receive_connectors_by_server.get(configuration.front_end.server, ())


def intake_settings(configuration: Configuration) -> IntakeSettings:
    """What the organization says of messages that come in."""
    server, connectors = configuration.server, connectors_of(configuration)
    return IntakeSettings(
        server.fqdn,
        trace_token(configuration.organization.name, server.name),
        server.transport.message_expiration,
        limits={c.name: (c.max_header_size, c.max_hop_count) for c in connectors},
        delays={c.name: c.max_acknowledgement_delay for c in connectors},
    )


def sending_material(configuration: Configuration) -> TlsMaterial:
    """Whom sending connections believe, and what they show."""
    front_end = configuration.front_end
    keys = front_end.peer_keys
    if keys is None:
        return TlsMaterial(front_end.server_ca, b"", b"", b"")
    return TlsMaterial(front_end.server_ca, keys.organization_ca, keys.certificate, keys.private_key)


def receiving_tls(configuration: Configuration) -> ReceiveTls | None:
    """What receive connectors do TLS with; None: there is no certificate. Raises `ssl.SSLError`, ValueError."""
    front_end = configuration.front_end
    if not front_end.certificate:
        return None
    keys = front_end.peer_keys
    return receive_tls(
        front_end.certificate,
        front_end.private_key,
        organization_ca=keys.organization_ca if keys is not None else b"",
        organization_pair=(keys.certificate, keys.private_key) if keys is not None else None,
        servers=configuration.organization.servers,
        own_name=configuration.server.name,
    )


def ourselves(configuration: Configuration) -> Ourselves:
    """The names and addresses by which others mean this hub."""
    server, connectors = configuration.server, connectors_of(configuration)
    names = {server.fqdn.lower()} | {c.fqdn.lower() for c in connectors if c.fqdn}
    bound = {b.address for c in connectors if c.enabled for b in c.bindings}
    addresses = {server.address, *(str(address) for address in bound if not address.is_unspecified)}
    if any(address.is_unspecified for address in bound):
        addresses |= interface_addresses()
    return Ourselves(frozenset(names), frozenset(addresses))


def other_hub(configuration: Configuration, name: str) -> str:
    """The server that mail may be redirected to, as the organization spells it. Raises `NotFound`."""
    organization, own = configuration.organization, configuration.server
    found = next((s for s in organization.servers.values() if s.name.casefold() == name.casefold()), None)
    if found is None:
        raise NotFound(f"there is no server {name}")
    if not found.carries_mail:
        # It would take the mail as for mailboxes of its own, and senders would hear that there are none.
        raise NotFound(f"{found.name} is no hub and no edge: mail for others cannot be handed to it")
    if found.name == own.name:
        raise NotFound(f"the mail is at {found.name} already")
    return found.name
