"""The organization's own CA: what it signs says "this is front end CAS-01 of the organization", and nothing else.

The clock and the disk belong to the caller. Keys are ECDSA P-256: every TLS library has it, and it
signs and verifies an assertion in less time (about 100 µs together) than Ed25519 does (about 115 µs).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gatepost.organization.model import Server
from gatepost.peers.names import certificate_names, server_uri

AUTHORITY_DAYS = 3650
"""Ten years: the CA is renewed by hand, on every front end."""
CERTIFICATE_DAYS = 397
"""A year and a month, so that a yearly date in the calendar comes in time."""
BACKDATED = timedelta(hours=1)
"""Certificates are valid a little before they are made: the other server's clock may be late."""
MAX_COMMON_NAME = 64
"""Characters (RFC 5280, ub-common-name)."""


class BadAuthority(ValueError):
    """The CA's files cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM; a renewed certificate comes without one."""

    certificate: bytes
    private_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Description:
    """What an operator wants to know of a certificate."""

    subject: str
    issuer: str
    is_authority: bool
    names: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    fingerprint: str
    """SHA-256 of the DER form, in hexadecimal."""


def make_authority(organization: str, now: datetime, domains: Sequence[str] = ()) -> KeyPair:
    """A new CA for the organization of that name. With `domains` it can sign only for hosts below these.

    Raises ValueError when the name is empty or a domain cannot be one.
    """
    if not organization or not organization.isprintable():
        raise ValueError("the organization's name is empty or has control characters")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(f"{organization} front ends")
    builder = (
        _builder(subject, subject, key.public_key(), now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if domains:
        permitted = [x509.DNSName(domain.lower().strip(".")) for domain in domains]
        if not all(name.value for name in permitted):
            raise ValueError("a domain is empty")
        builder = builder.add_extension(x509.NameConstraints(permitted, None), critical=True)
    return KeyPair(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM), _key_pem(key))


@dataclass(frozen=True, slots=True)
class Authority:
    """The CA with its key, ready to sign."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def load(cls, pair: KeyPair) -> Authority:
        """The CA in these PEM files. Raises `BadAuthority`."""
        try:
            certificate = x509.load_pem_x509_certificate(pair.certificate)
            key = load_pem_private_key(pair.private_key, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise BadAuthority("the CA's files hold no certificate and key in PEM form") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise BadAuthority("the CA's key is not one that gatepost ca init made (ECDSA)")
        if _public(key.public_key()) != _public(certificate.public_key()):
            raise BadAuthority("the CA's key does not belong to its certificate")
        if not is_authority(certificate):
            raise BadAuthority("the CA's certificate is not one of a CA")
        return cls(certificate, key)

    def issue(self, server: Server, now: datetime, days: int, renewed: x509.Certificate | None = None) -> KeyPair:
        """A certificate by which peers know `server`, with a new key, or for the key of `renewed`, which is not needed.

        Raises `BadAuthority` when the CA ends before the certificate would, does not sign for that host, or has not
        made `renewed` for this server.
        """
        if now + timedelta(days=days) > self.certificate.not_valid_after_utc:
            end = self.certificate.not_valid_after_utc
            raise BadAuthority(f"the CA itself ends on {end:%Y-%m-%d}: make a new one, or ask for fewer days")
        hosts, addresses = certificate_names(server)
        self._require_permitted(hosts)
        key = ec.generate_private_key(ec.SECP256R1()) if renewed is None else None
        public_key = key.public_key() if key is not None else self._key_of(renewed, server)
        names: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts]
        names += [x509.IPAddress(address) for address in addresses]
        names.append(x509.UniformResourceIdentifier(server_uri(server.name)))
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            _builder(_name(server.name), self.certificate.subject, public_key, now, days)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return KeyPair(certificate.public_bytes(Encoding.PEM), _key_pem(key) if key is not None else b"")

    def _key_of(self, renewed: x509.Certificate | None, server: Server) -> ec.EllipticCurvePublicKey:
        """The key of a certificate that this CA has made for `server`."""
        if renewed is None or not issued_by(renewed, self.certificate):
            raise BadAuthority("the certificate is not of this CA: issue a new one")
        names = renewed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        if server_uri(server.name) not in names.get_values_for_type(x509.UniformResourceIdentifier):
            raise BadAuthority(f"the certificate is not that of {server.name}")
        key = renewed.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)  # no others are signed here
        return key

    def _require_permitted(self, hosts: Sequence[str]) -> None:
        try:
            constraints = self.certificate.extensions.get_extension_for_class(x509.NameConstraints).value
        except x509.ExtensionNotFound:
            return
        permitted = [name.value for name in constraints.permitted_subtrees or () if isinstance(name, x509.DNSName)]
        for host in hosts:
            if not any(host == domain or host.endswith("." + domain) for domain in permitted):
                raise BadAuthority(f"this CA signs only for hosts below {', '.join(permitted)}, not for {host}")


def issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether `authority`, a CA, has signed `certificate` itself; times are not looked at."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return is_authority(authority)


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether the certificate says that it is a CA's."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def describe(certificate: x509.Certificate) -> Description:
    """What `gatepost ca show` prints of a certificate."""
    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = tuple(str(name.value) for name in alternatives)
    except (x509.ExtensionNotFound, ValueError):
        names = ()
    return Description(
        _common_name(certificate.subject),
        _common_name(certificate.issuer),
        is_authority(certificate),
        names,
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        certificate.fingerprint(hashes.SHA256()).hex(),
    )


def _common_name(name: x509.Name) -> str:
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else name.rfc4514_string()


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:MAX_COMMON_NAME])])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _public(key: object) -> bytes:
    encode = getattr(key, "public_bytes")  # noqa: B009 - the key types share no base class
    return bytes(encode(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
