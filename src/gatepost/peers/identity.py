"""Who a TLS peer is: exactly one other front end of the organization, or nobody (SPEC C11).

TLS has verified the chain already. It is looked at again here, for the handshake may have been long ago: the CA and the
organization can have changed since.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from gatepost.organization.model import Role, Server, Version
from gatepost.peers.ca import issued_by
from gatepost.peers.names import server_of_uri

PeerPublicKey = EllipticCurvePublicKey | Ed25519PublicKey
"""The kinds of keys that assertions are signed with; elliptic curves are P-256 only."""

MAX_CERTIFICATE_BYTES = 16384
"""A peer certificate has under 1 kB."""


class PeerRefused(Exception):
    """The other side is no front end that this one knows. The text is the reason, for the log."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another front end at the end of a TLS connection."""

    name: str
    version: Version
    public_key: PeerPublicKey | None = field(repr=False)
    """Of its certificate; None: it has shown a ticket, and none."""
    expires: float
    """End of its certificate, seconds since 1970."""


class PeerTrust:
    """Whom the server `own_name` believes: certificates of `organization_ca` (PEM) for servers of the organization
    that have one of `roles`.

    Raises ValueError when `organization_ca` holds no certificate.
    """

    def __init__(
        self,
        organization_ca: bytes,
        servers: Mapping[str, Server],
        own_name: str,
        roles: frozenset[Role] = frozenset({Role.CLIENT_ACCESS}),
    ) -> None:
        self._authorities = x509.load_pem_x509_certificates(organization_ca)
        self._servers = servers
        self._own_name = own_name
        self._roles = roles

    def identify(self, certificate: bytes | None, now: float) -> Peer:
        """Who shows this `certificate` (DER; None: none was shown). `now` is in seconds since 1970.

        Raises `PeerRefused`.
        """
        if not certificate:
            raise PeerRefused("no client certificate")
        if len(certificate) > MAX_CERTIFICATE_BYTES:
            raise PeerRefused("the certificate is too large")
        try:
            read = x509.load_der_x509_certificate(certificate)
            key = read.public_key()
            names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            uris = names.get_values_for_type(x509.UniformResourceIdentifier)
            hosts = [host.casefold() for host in names.get_values_for_type(x509.DNSName)]
        except (ValueError, UnsupportedAlgorithm, x509.ExtensionNotFound):
            raise PeerRefused("the certificate cannot be read or names nobody") from None
        expires = self._judge(read, now)
        server = self._server(uris)
        if server.fqdn.casefold() not in hosts:
            # Issued for another machine that had this name, or before the name was changed: the operator must look.
            raise PeerRefused(f"the certificate of {server.name} does not name {server.fqdn}: renew it")
        if not isinstance(key, Ed25519PublicKey):  # noqa: SIM102 - for the type checker
            if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
                raise PeerRefused(f"the key of {server.name} is neither P-256 nor Ed25519")
        return Peer(server.name, server.version, key, expires)

    def identify_principal(self, principal: str) -> Peer:
        """Who has shown a good ticket of this Kerberos `principal`. Raises `PeerRefused`: users are no front ends."""
        found = [server for server in self._servers.values() if principal and server.kerberos_principal == principal]
        if len(found) != 1 or not self._roles & found[0].roles:
            roles = " or ".join(sorted(role.value.replace("-", " ") for role in self._roles))
            raise PeerRefused(f"{principal} is the kerberos_principal of no {roles} server of the organization")
        if found[0].name == self._own_name:
            raise PeerRefused("it is this front end itself")
        return Peer(found[0].name, found[0].version, None, math.inf)

    def _judge(self, certificate: x509.Certificate, now: float) -> float:
        """The end of a certificate that is good now."""
        if not any(issued_by(certificate, authority) for authority in self._authorities):
            raise PeerRefused("the certificate is not signed by the organization's CA")
        expires = certificate.not_valid_after_utc.timestamp()
        if not certificate.not_valid_before_utc.timestamp() <= now <= expires:
            raise PeerRefused("the certificate is not valid now")
        return expires

    def _server(self, uris: list[str]) -> Server:
        """The one server that the URIs name."""
        names = [name for name in map(server_of_uri, uris) if name is not None]
        if len(names) != 1:
            raise PeerRefused(f"the certificate names {len(names) or 'no'} servers")
        server = self._servers.get(names[0])
        if server is None or not self._roles & server.roles:
            roles = " or ".join(sorted(role.value.replace("-", " ") for role in self._roles))
            raise PeerRefused(f"{names[0]!r} is no {roles} server of the organization")
        if server.name == self._own_name:
            raise PeerRefused("it is this front end itself")
        return server
