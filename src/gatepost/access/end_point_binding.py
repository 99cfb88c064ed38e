"""What binds a sign-in to the TLS connection that it comes on: the server's certificate (RFC 5929 section 4)."""

from __future__ import annotations

from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes

PREFIX = b"tls-server-end-point:"


@lru_cache(256)
def end_point_binding(certificate: bytes) -> bytes:
    """The binding for a server that shows this certificate (DER); empty for one that cannot be read."""
    try:
        read = x509.load_der_x509_certificate(certificate)
        algorithm = read.signature_hash_algorithm
    except (ValueError, UnsupportedAlgorithm):
        return b""
    if algorithm is None or algorithm.name in ("md5", "sha1"):
        algorithm = hashes.SHA256()
    digest = hashes.Hash(algorithm)
    digest.update(certificate)
    return PREFIX + digest.finalize()
