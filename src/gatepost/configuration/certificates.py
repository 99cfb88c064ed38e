"""Judging certificates and keys before a listener needs them: what OpenSSL would say later, and to whom it matters."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from cryptography.x509 import Certificate, DNSName, IPAddress, SubjectAlternativeName, load_pem_x509_certificates
from cryptography.x509.extensions import ExtensionNotFound

from gatepost.organization.addresses import is_ip_address

EXPIRES_SOON = timedelta(days=14)
"""Automatic renewal happens about 30 days before the end; what is left at 14 was probably forgotten."""


def certificates(pem: bytes) -> list[Certificate]:
    """The certificates in `pem`, one or more. Raises ValueError with what is wrong in plain words."""
    try:
        return load_pem_x509_certificates(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("holds no certificate in PEM form") from None


def key_fault(pem: bytes, leaf: Certificate | None) -> str:
    """What is wrong with the private key `pem` (for the certificate `leaf`); empty when it fits."""
    try:
        key = load_pem_private_key(pem, password=None)
    except TypeError:
        return "is locked with a passphrase"
    except (ValueError, UnsupportedAlgorithm):
        return "holds no private key in PEM form"
    if leaf is not None and _public(key.public_key()) != public_key_of(leaf):
        return "does not belong to the certificate"
    return ""


def public_key_fault(pem: bytes) -> str:
    """What is wrong with the public key `pem`; empty when it is one."""
    try:
        load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        return "holds no public key in PEM form"
    return ""


def _public(key: object) -> bytes:
    encode = getattr(key, "public_bytes")  # noqa: B009 - the key types share no base class
    return bytes(encode(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def public_key_of(certificate: Certificate) -> bytes:
    """The certificate's public key, comparable; empty when it is of an unknown kind."""
    try:
        return _public(certificate.public_key())
    except (ValueError, UnsupportedAlgorithm):
        return b""


def validity_fault(certificate: Certificate, now: datetime) -> str:
    """Why `certificate` is not valid at `now`, or soon will not be; empty when it is."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < begin:
        return f"is not valid before {begin:%Y-%m-%d %H:%M} UTC"
    if now > end:
        return f"expired on {end.astimezone(UTC):%Y-%m-%d}"
    if end - now < EXPIRES_SOON:
        return f"expires on {end.astimezone(UTC):%Y-%m-%d}"
    return ""


def uncovered(certificate: Certificate, names: Iterable[str]) -> list[str]:
    """Those of `names` for which `certificate` does not stand (RFC 9525 section 6: subject alternative names only)."""
    try:
        extension = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except (ExtensionNotFound, ValueError):
        return list(names)
    patterns = [name.casefold() for name in extension.get_values_for_type(DNSName)]
    addresses = extension.get_values_for_type(IPAddress)
    missing = []
    for name in names:
        if is_ip_address(name):
            found = ip_address(name) in addresses
        else:
            host = name.casefold().removesuffix(".")
            found = host in patterns or "*." + host.partition(".")[2] in patterns
        if not found:
            missing.append(name)
    return missing
