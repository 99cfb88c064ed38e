"""The keys that sign for the organization's domains."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

MIN_RSA_BITS = 1024
"""RFC 8301, section 3.2: verifiers refuse less. 2048 is what to use."""


class DkimKeyFault(ValueError):
    """The key cannot sign. The text says why and what to do, without anything of the key."""


@dataclass(frozen=True, slots=True)
class DkimKey:
    """One key: whom it signs for and where its public half is published (`selector._domainkey.domain`)."""

    domain: str
    selector: str
    private_key_pem: bytes = field(repr=False)

    def load(self) -> RSAPrivateKey | Ed25519PrivateKey:
        """The key itself. Raises `DkimKeyFault`."""
        where = f"DKIM key {self.selector}._domainkey.{self.domain}"
        try:
            key = load_pem_private_key(self.private_key_pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as fault:
            raise DkimKeyFault(
                f"{where}: this is no private key in PEM without a password; make one with: openssl genrsa 2048"
            ) from fault
        if isinstance(key, RSAPrivateKey):
            if key.key_size < MIN_RSA_BITS:
                raise DkimKeyFault(f"{where}: an RSA key of {key.key_size} bits is refused by verifiers; use 2048")
            return key
        if isinstance(key, Ed25519PrivateKey):
            return key
        raise DkimKeyFault(f"{where}: neither RSA nor Ed25519; make one with: openssl genrsa 2048")

    def record(self) -> str:
        """The TXT record that publishes the public half. Raises `DkimKeyFault`."""
        key = self.load()
        if isinstance(key, RSAPrivateKey):
            octets = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
            return f"v=DKIM1; k=rsa; p={b64encode(octets).decode('ascii')}"
        octets = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return f"v=DKIM1; k=ed25519; p={b64encode(octets).decode('ascii')}"
