"""A small certificate authority: P-256 keys, certificates for names and addresses."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_DAYS = 30
CLOCK_SKEW = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """PEM files of one certificate and its key."""

    certificate: Path
    private_key: Path


def _san(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


class CertificateAuthority:
    """Signs server certificates into `directory`. `certificate` is the file that clients trust."""

    def __init__(self, directory: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self.directory = directory
        self.certificate = directory / "ca.crt"
        self._key = key
        self._issuer = certificate

    @classmethod
    def create(cls, directory: Path, name: str = "Gatepost lab CA") -> Self:
        """A new authority; writes `ca.crt`. The key stays in memory."""
        directory.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            cls._builder(_name(name), _name(name), key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        (directory / "ca.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return cls(directory, key, certificate)

    @staticmethod
    def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_SKEW)
            .not_valid_after(now + dt.timedelta(days=VALID_DAYS))
        )

    def issue(self, file_name: str, *names: str, for_clients: bool = False, subject: bool = True) -> CertificateFiles:
        """A server certificate for DNS names and IP addresses; writes `<file_name>.crt` and `.key`.

        With `for_clients` it is good for a TLS client too. Without `subject` the names stand in the extension alone.
        """
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, *([ExtendedKeyUsageOID.CLIENT_AUTH] if for_clients else [])]
        key = ec.generate_private_key(ec.SECP256R1())
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            self._builder(_name(names[0]) if subject else x509.Name([]), self._issuer.subject, key)
            .add_extension(x509.SubjectAlternativeName([_san(n) for n in names]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(authority_key, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        files = CertificateFiles(self.directory / f"{file_name}.crt", self.directory / f"{file_name}.key")
        files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files.private_key.touch(mode=0o600)
        files.private_key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files
