"""TLS of receive connectors: for everybody, and for servers of the organization, who show their certificate."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from gatepost.configuration.key_pairs import load_key_pair
from gatepost.organization.model import Role, Server
from gatepost.organization.transport import PermissionGroup, ReceiveAuthentication, ReceiveConnector
from gatepost.peers.identity import PeerRefused, PeerTrust

TRANSPORT_ROLES = frozenset({Role.HUB_TRANSPORT, Role.EDGE_TRANSPORT, Role.CLIENT_ACCESS, Role.MAILBOX})
"""Who sends mail within the organization: hubs and edges, front ends for their users, mailbox servers' submissions."""


class Shows(Enum):
    """Whose certificate a client has to show."""

    NONE = "none"
    SERVER = "server"
    PARTNER = "partner"


@dataclass(frozen=True, slots=True)
class ReceiveTls:
    """The contexts of one configuration; a new one takes its place as a whole.

    `mutual` asks for a certificate of the organization's CA, `partners` for one of a known authority. OpenSSL ends the
    handshake of a client over any other certificate, and strangers do show theirs when they are asked. So a client is
    only asked when it calls itself by the name of a server of the organization (`server_names`, lower case), or where a
    connector is for partners and not for everybody.
    """

    context: ssl.SSLContext
    mutual: ssl.SSLContext | None = None
    partners: ssl.SSLContext | None = None
    trust: PeerTrust | None = None
    server_names: frozenset[str] = frozenset()

    def context_for(self, connector: ReceiveConnector, name: str = "") -> tuple[ssl.SSLContext, Shows]:
        """The context for a client that calls itself `name` at EHLO."""
        groups = connector.permission_groups
        if (
            self.mutual is not None
            and ReceiveAuthentication.SERVERS in connector.authentication
            and name.casefold().removesuffix(".") in self.server_names
        ):
            return self.mutual, Shows.SERVER
        if self.partners is not None and PermissionGroup.PARTNERS in groups and PermissionGroup.ANONYMOUS not in groups:
            return self.partners, Shows.PARTNER
        return self.context, Shows.NONE

    def server_at(self, certificate: bytes | None, now: float) -> str:
        """The name of the server that showed this certificate (DER). Raises `PeerRefused`."""
        if self.trust is None:
            raise PeerRefused("no CA of the organization is known here")
        return self.trust.identify(certificate, now).name


def receive_tls(
    certificate: bytes,
    private_key: bytes,
    *,
    organization_ca: bytes = b"",
    organization_pair: tuple[bytes, bytes] | None = None,
    servers: Mapping[str, Server] | None = None,
    own_name: str = "",
    partner_ca: bytes = b"",
) -> ReceiveTls:
    """Contexts from PEM. `organization_pair` are certificate and key of the organization's CA for this server.

    `partner_ca`: the authorities whose certificates partners show; empty: those the system knows. Raises
    `ssl.SSLError`, ValueError.
    """
    context = _context(certificate, private_key)
    partners = _context(certificate, private_key)
    partners.verify_mode = ssl.CERT_REQUIRED
    if partner_ca:
        partners.load_verify_locations(cadata=partner_ca.decode("ascii", "ignore"))
    else:
        partners.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    if not organization_ca or organization_pair is None or servers is None:
        return ReceiveTls(context, partners=partners)
    mutual = _context(*organization_pair)
    mutual.minimum_version = ssl.TLSVersion.TLSv1_3
    mutual.verify_mode = ssl.CERT_REQUIRED
    mutual.verify_flags |= ssl.VERIFY_X509_STRICT
    mutual.load_verify_locations(cadata=organization_ca.decode("ascii", "ignore"))
    # Every connection shows its certificate: none is resumed on a ticket that was given to an earlier one.
    mutual.num_tickets = 0
    trust = PeerTrust(organization_ca, servers, own_name, TRANSPORT_ROLES)
    names = frozenset(server.fqdn.casefold() for name, server in servers.items() if name != own_name)
    return ReceiveTls(context, mutual, partners, trust, names)


def _context(certificate: bytes, private_key: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_SINGLE_ECDH_USE
    context.num_tickets = 1
    load_key_pair(context, certificate, private_key)
    return context
