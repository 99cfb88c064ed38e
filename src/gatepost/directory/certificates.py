"""Clients' certificates as identities: which name one stands for, and whether it has been revoked.

    TLS (OpenSSL: signed by our CA, in time, for clients) ── certificate ── CRL, reread ── name ── directory

TLS judges the chain. Here the leaf is judged once more in time, since connections last, and against the CRL, whose file
may change at any moment. A CRL that is missing or outdated is a fault of ours: nobody is told that theirs is wrong.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509.oid import NameOID, ObjectIdentifier

from gatepost.directory.settings import CertificateSettings, NameSource

UPN = ObjectIdentifier("1.3.6.1.4.1.311.20.2.3")
"""Microsoft's user principal name, an otherName of the subject alternative name."""
MAX_CRL = 64 * 1024 * 1024
"""Octets; about a million revoked certificates."""
MAX_NAMES = 100
"""Alternative names of one certificate that are looked at."""
_PEM = b"-----BEGIN"


class CertificateRefused(ValueError):
    """The certificate is nobody's. The message is for the log."""


class CertificateNotJudged(RuntimeError):
    """The certificate cannot be judged now. The message is for the log."""


class Certificates:
    """Judges the certificates that TLS has verified. Raises ValueError for authorities that cannot be read."""

    def __init__(self, settings: CertificateSettings) -> None:
        self.settings = settings
        self._authorities = x509.load_pem_x509_certificates(settings.ca)
        self._crls: list[x509.CertificateRevocationList] = []
        self._read_of: tuple[int, int, int] | None = None
        """Time, size and number of the file that `_crls` were read of."""

    def name_of(self, der: bytes, now: datetime) -> str:
        """The user's name in it, as it is written. Raises `CertificateRefused` and `CertificateNotJudged`."""
        certificate = _loaded(der)
        if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
            raise CertificateRefused("the certificate has expired")
        if self.settings.crl:
            self._look(certificate, now)
        for source in self.settings.names:
            for name in _NAMES[source](certificate):
                if name:
                    return name
        raise CertificateRefused("no name in the certificate where one is looked for")

    def _look(self, certificate: x509.Certificate, now: datetime) -> None:
        self._reread()
        found = [crl for crl in self._crls if crl.issuer == certificate.issuer]
        if not found:
            raise CertificateNotJudged(f"no CRL of {certificate.issuer.rfc4514_string()}")
        for crl in found:
            until = crl.next_update_utc
            if until is not None and until < now:
                raise CertificateNotJudged(f"the CRL of {crl.issuer.rfc4514_string()} is outdated since {until:%F %T}")
            if crl.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None:
                raise CertificateRefused("the certificate was revoked")

    def _reread(self) -> None:
        path = self.settings.crl
        try:
            status = os.stat(path)  # noqa: PTH116 - at each sign-in
            mark = (status.st_mtime_ns, status.st_size, status.st_ino)
            if mark == self._read_of:
                return
            self._crls = read_crls(_content(path, status), self._authorities)
        except (OSError, ValueError) as fault:
            self._read_of = None
            raise CertificateNotJudged(f"the CRL {path} cannot be read: {fault}") from fault
        self._read_of = mark


def _content(path: str, status: os.stat_result) -> bytes:
    """Raises OSError, and ValueError for what is no file of a CRL: a pipe would hold everything up."""
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_CRL:
        raise ValueError("no file, or larger than any CRL")
    return Path(path).read_bytes()


def read_crls(data: bytes, authorities: list[x509.Certificate]) -> list[x509.CertificateRevocationList]:
    """The CRLs in a file, several as PEM or one as DER, each signed by one of `authorities`. Raises ValueError.

    Each must be the whole of its authority's: in a part of it, as a delta CRL is, others would count as not revoked.
    """
    if len(data) > MAX_CRL:
        raise ValueError("larger than any CRL")
    crls = [x509.load_pem_x509_crl(part) for part in _parts(data)] if _PEM in data else [x509.load_der_x509_crl(data)]
    for crl in crls:
        if not any(_has_signed(authority, crl) for authority in authorities):
            raise ValueError(f"the CRL of {crl.issuer.rfc4514_string()} is signed by none of the authorities")
        if part := _why_a_part(crl):
            raise ValueError(f"the CRL of {crl.issuer.rfc4514_string()} is {part}: its whole CRL is needed")
    return crls


def _why_a_part(crl: x509.CertificateRevocationList) -> str:
    """Why a certificate that is not in it may be revoked all the same (RFC 5280 section 5.2); empty: it may not."""
    try:
        extensions = list(crl.extensions)
    except x509.DuplicateExtension as fault:
        raise ValueError(str(fault)) from fault
    for extension in extensions:
        value = extension.value
        if isinstance(value, x509.DeltaCRLIndicator):
            return "a delta CRL"
        if isinstance(value, x509.IssuingDistributionPoint):
            if value.only_contains_ca_certs or value.only_contains_attribute_certs:
                return "not of users' certificates"
            if value.only_some_reasons or value.indirect_crl:
                return "of some reasons only, or of several authorities"
        elif extension.critical:
            return f"with a critical extension that is not known, {extension.oid.dotted_string}"
    return ""


def _parts(data: bytes) -> Iterator[bytes]:
    first, *others = data.split(_PEM)
    del first
    for other in others:
        yield _PEM + other


def _has_signed(authority: x509.Certificate, crl: x509.CertificateRevocationList) -> bool:
    if authority.subject != crl.issuer:
        return False
    try:
        return crl.is_signature_valid(authority.public_key())  # type: ignore[arg-type]  # an unfit key raises TypeError
    except (TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False


@lru_cache(maxsize=4096)
def _loaded(der: bytes) -> x509.Certificate:
    try:
        return x509.load_der_x509_certificate(der)
    except ValueError as fault:
        raise CertificateRefused(f"a certificate that cannot be read: {fault}") from fault


def _alternative_names(certificate: x509.Certificate) -> x509.SubjectAlternativeName | tuple[()]:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as fault:
        raise CertificateRefused(f"extensions that cannot be read: {fault}") from fault


def _upns(certificate: x509.Certificate) -> Iterator[str]:
    for name in list(_alternative_names(certificate))[:MAX_NAMES]:
        if isinstance(name, x509.OtherName) and name.type_id == UPN:
            yield _utf8_string(name.value)


def _emails(certificate: x509.Certificate) -> Iterator[str]:
    for name in list(_alternative_names(certificate))[:MAX_NAMES]:
        if isinstance(name, x509.RFC822Name):
            yield name.value


def _common_names(certificate: x509.Certificate) -> Iterator[str]:
    for attribute in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[:MAX_NAMES]:
        yield attribute.value if isinstance(attribute.value, str) else ""


_NAMES = {NameSource.UPN: _upns, NameSource.EMAIL: _emails, NameSource.COMMON_NAME: _common_names}


def _utf8_string(der: bytes) -> str:
    """A DER UTF8String; empty for anything else. A name is short: a length of one or two octets more will do."""
    if len(der) < 2 or der[0] != 0x0C:
        return ""
    length, start = der[1], 2
    if length == 0x81 and len(der) > 2:
        length, start = der[2], 3
    elif length > 0x7F:
        return ""
    value = der[start:]
    if len(value) != length:
        return ""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return ""


def utc_now() -> datetime:
    """This moment."""
    return datetime.now(UTC)
