"""Front ends with their certificates, made once for all tests of peers."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from gatepost.configuration.settings import PeerKeys
from gatepost.organization.model import Endpoint, Protocol, Role, Server, TlsMode, Version
from gatepost.peers.ca import Authority, KeyPair, make_authority
from gatepost.peers.identity import Peer, PeerTrust

MADE = datetime.now(UTC)
NOW = MADE.timestamp()


def front_end(name: str, address: str = "127.0.1.1", version: Version = Version.MODERN, site: str = "usa") -> Server:
    """A front end that takes peers' requests."""
    fqdn = f"{name.lower()}.contoso.com"
    peer = Endpoint("peer", Protocol.HTTPS, address, 444, TlsMode.IMPLICIT, fqdn)
    return Server(name, site, fqdn, address, version, frozenset({Role.CLIENT_ACCESS}), (peer,))


SERVERS = {
    **{name: front_end(name) for name in ("CAS-01", "CAS-02", "CAS-03", "CAS-04", "CAS-05", "CAS-06")},
    "MBX-01": Server("MBX-01", "usa", "mbx-01.contoso.com", "127.0.2.1", Version.MODERN, frozenset({Role.MAILBOX})),
}


@cache
def _ca_pair(name: str) -> KeyPair:
    return make_authority(name, MADE)


def ca_pair(name: str = "contoso") -> KeyPair:
    """The CA of an organization."""
    return _ca_pair(name)


@cache
def _pair(name: str, organization: str) -> KeyPair:
    return Authority.load(ca_pair(organization)).issue(SERVERS.get(name) or front_end(name), MADE, 30)


def pair(name: str, organization: str = "contoso") -> KeyPair:
    """A server's peer certificate and key. Also for servers that the command would refuse."""
    return _pair(name, organization)


def peer_keys(name: str, organization: str = "contoso") -> PeerKeys:
    """What the front end `name` is configured with."""
    return PeerKeys(pair(name, organization).certificate, pair(name, organization).private_key, ca_pair().certificate)


def der(pem: bytes) -> bytes:
    """The certificate as TLS shows it."""
    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)


def trust(own: str = "CAS-02", **changes: Server) -> PeerTrust:
    """Whom the front end `own` believes."""
    return PeerTrust(ca_pair().certificate, SERVERS | changes, own)


def peer(name: str, own: str = "CAS-99") -> Peer:
    """The front end `name` as another sees it."""
    return trust(own).identify(der(pair(name).certificate), NOW)
