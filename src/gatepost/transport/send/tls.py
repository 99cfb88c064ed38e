"""TLS with the next server: what each level demands, and which hosts go without because theirs does not work."""

from __future__ import annotations

import asyncio
import ssl
from collections import OrderedDict
from dataclasses import dataclass, field

from gatepost.configuration.key_pairs import load_key_pair
from gatepost.organization.addresses import is_ip_address
from gatepost.organization.transport import TlsLevel
from gatepost.peers.names import server_of_uri
from gatepost.routing.next_hop import Way
from gatepost.transport.send.options import Endpoint
from gatepost.wire.smtp_address import BadAddress, normal_domain
from gatepost.wire.smtp_client_events import TlsUse

NOTE_SECONDS = 3600.0
"""How long a host whose handshake failed is spoken to without TLS."""
MAX_NOTES = 10000


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """What we trust and show. All PEM."""

    authorities: bytes = b""
    """Who signs certificates of verified servers; empty: the system's list."""
    organization_ca: bytes = b""
    certificate: bytes = field(default=b"", repr=False)
    """Ours as a server of the organization, for mutual TLS."""
    private_key: bytes = field(default=b"", repr=False)


class TlsContexts:
    """One context for each kind of rule, made on first use. No session is resumed: each connection is judged anew."""

    def __init__(self, material: TlsMaterial) -> None:
        self._material = material
        self._any: ssl.SSLContext | None = None
        self._verified: ssl.SSLContext | None = None
        self._mutual: ssl.SSLContext | None = None

    def of(self, way: Way) -> ssl.SSLContext:
        """The context for this way. Raises `ssl.SSLError`, ValueError when our own material cannot be used."""
        if way.mutual:
            if self._mutual is None:
                self._mutual = self._mutual_context()
            return self._mutual
        if way.tls is TlsLevel.VERIFIED:
            if self._verified is None:
                self._verified = self._verified_context()
            return self._verified
        if self._any is None:
            self._any = _context()
            self._any.check_hostname = False
            self._any.verify_mode = ssl.CERT_NONE
        return self._any

    def _verified_context(self) -> ssl.SSLContext:
        context = _context()
        if self._material.authorities:
            context.load_verify_locations(cadata=self._material.authorities.decode("ascii", "ignore"))
        else:
            context.load_default_certs()
        return context

    def _mutual_context(self) -> ssl.SSLContext:
        material = self._material
        if not (material.organization_ca and material.certificate):
            raise ValueError("no certificate of the organization for mutual TLS")
        context = _context()
        context.load_verify_locations(cadata=material.organization_ca.decode("ascii", "ignore"))
        load_key_pair(context, material.certificate, material.private_key)
        return context


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def use(way: Way) -> TlsUse:
    """Whether STARTTLS is said on this way."""
    if way.mutual or way.tls in {TlsLevel.ENCRYPTED, TlsLevel.VERIFIED}:
        return TlsUse.REQUIRED
    return TlsUse.NEVER if way.tls is TlsLevel.NONE else TlsUse.IF_OFFERED


def verifies(way: Way) -> bool:
    """Whether TLS on this way says who the server is."""
    return way.mutual or way.tls is TlsLevel.VERIFIED


def shows_server(transport: asyncio.BaseTransport, name: str) -> bool:
    """Whether the certificate at the other end, which has been verified, is that of this server of the organization."""
    ssl_object = transport.get_extra_info("ssl_object")
    certificate = ssl_object.getpeercert() if ssl_object is not None else None
    if not certificate:
        return False
    uris = [str(value) for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
    return [server for server in map(server_of_uri, uris) if server is not None] == [name]


def server_name(way: Way, context: ssl.SSLContext) -> str | None:
    """The name that the certificate must carry, also said in the handshake; addresses only where one is checked."""
    name = (way.tls_name or way.host).removesuffix(".")
    if is_ip_address(name) and not context.check_hostname:
        return None
    try:
        return name if name.isascii() else normal_domain(name)
    except BadAddress:
        return name


class NotedHosts:
    """Hosts that are met otherwise for a while: those whose handshake failed where TLS is opportunistic get mail
    without it (field case 25), those that do not bear commands behind a content get them one message at a time."""

    def __init__(self, seconds: float = NOTE_SECONDS) -> None:
        self._seconds = seconds
        self._until: OrderedDict[Endpoint, float] = OrderedDict()

    def note(self, endpoint: Endpoint, now: float) -> None:
        """Something failed with this host."""
        self._until.pop(endpoint, None)
        self._until[endpoint] = now + self._seconds
        if len(self._until) > MAX_NOTES:
            self._until.popitem(last=False)

    def __contains__(self, asked: tuple[Endpoint, float]) -> bool:
        """Whether the host is noted at this moment: `(endpoint, now) in noted`."""
        endpoint, now = asked
        until = self._until.get(endpoint)
        if until is None:
            return False
        if now >= until:
            del self._until[endpoint]
            return False
        return True
