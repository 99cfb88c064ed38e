"""An authority for users' certificates, with CRLs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID, ObjectIdentifier

UPN = ObjectIdentifier("1.3.6.1.4.1.311.20.2.3")
NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)


@dataclass
class Issued:
    """A user's certificate and key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def der(self) -> bytes:
        """As TLS shows it."""
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def pem(self) -> bytes:
        """Key and certificate in one file."""
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return key + self.certificate.public_bytes(Encoding.PEM)

    def write(self, folder: Path, name: str = "user.pem") -> str:
        """The path of that file."""
        path = folder / name
        path.write_bytes(self.pem)
        return str(path)


@dataclass
class UsersAuthority:
    """Signs users' certificates."""

    name: str = "Contoso users"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        self.subject = _name(self.name)
        builder = _builder(self.subject, self.subject, self.key, NOW - DAY, NOW + 3650 * DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        self.certificate = builder.add_extension(usage, critical=True).sign(self.key, SHA256())
        self.pem = self.certificate.public_bytes(Encoding.PEM)

    def issue(
        self,
        *names: x509.GeneralName,
        common_name: str = "somebody",
        begins: datetime = NOW - DAY,
        ends: datetime = NOW + DAY,
        names_der: bytes = b"",
    ) -> Issued:
        """A certificate with these alternative names, or with what `names_der` has in their place."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(common_name), self.subject, key, begins, ends)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if names_der:
            value = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, names_der)
            builder = builder.add_extension(value, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        return Issued(builder.sign(self.key, SHA256()), key)

    def crl(
        self,
        *revoked: Issued,
        ends: datetime = NOW + DAY,
        signed_by: UsersAuthority | None = None,
        extension: x509.ExtensionType | None = None,
    ) -> bytes:
        """The CRL, PEM; `extension` is critical."""
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.subject)
        builder = builder.last_update(min(NOW - DAY, ends - DAY)).next_update(ends)
        for each in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(each.certificate.serial_number)
            builder = builder.add_revoked_certificate(entry.revocation_date(NOW - DAY).build())
        if extension is not None:
            builder = builder.add_extension(extension, critical=True)
        key = (signed_by or self).key
        return builder.sign(key, SHA256()).public_bytes(Encoding.PEM)


def upn(name: str) -> x509.GeneralName:
    """Microsoft's user principal name."""
    value = name.encode()
    length = bytes([len(value)]) if len(value) < 128 else bytes([0x81, len(value)])
    return x509.OtherName(UPN, b"\x0c" + length + value)


def email(address: str) -> x509.GeneralName:
    """An rfc822Name."""
    return x509.RFC822Name(address)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    return builder.serial_number(x509.random_serial_number()).not_valid_before(begins).not_valid_after(ends)
