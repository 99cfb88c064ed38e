"""An issuer's public keys: from a PEM file, or from a JWK set (RFC 7517). Only what can verify is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt import PyJWTError
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

MAX_KEYS = 64
"""Keys of one set; issuers have two to ten."""
MIN_RSA_BITS = 2048
MAX_RSA_BITS = 8192
"""Shorter keys can be broken (RFC 7518 section 3.3), longer ones cost too much time."""

_RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_MEMBERS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "RSA": (RSAAlgorithm, ("kty", "n", "e")),
    "EC": (ECAlgorithm, ("kty", "crv", "x", "y")),
    "OKP": (OKPAlgorithm, ("kty", "crv", "x")),
}
"""How each kind of key is read, and of which members: without the private ones, should somebody publish them."""


class BadKeys(ValueError):
    """No key here can verify anything."""


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """One public key. `kid` is empty where it has none."""

    kid: str
    algorithms: frozenset[str]
    key: Any


@dataclass(frozen=True, slots=True)
class KeySet:
    """Keys of one issuer, old and new ones side by side while it changes them."""

    keys: tuple[IssuerKey, ...]

    def knows(self, kid: str) -> bool:
        """Whether there is a key of this name."""
        return any(each.kid == kid for each in self.keys)

    def fitting(self, kid: str, algorithm: str) -> list[Any]:
        """The keys that a token may have been signed with; without a `kid` in the token all that know the algorithm."""
        return [each.key for each in self.keys if algorithm in each.algorithms and (not kid or each.kid in (kid, ""))]


def key_set_of_pem(pem: bytes) -> KeySet:
    """The one key of a PEM file. Raises `BadKeys`."""
    try:
        key = load_pem_public_key(pem)
    except ValueError as fault:
        raise BadKeys(f"no PEM public key: {fault}") from fault
    algorithms = _algorithms_of(key)
    if not algorithms:
        raise BadKeys("the key is too short, or of a kind that signs no tokens")
    return KeySet((IssuerKey("", algorithms, key),))


def key_set_of_jwks(document: object) -> KeySet:
    """The keys of a JWK set that are for signatures; others are passed over. Raises `BadKeys` when none is left."""
    entries = document.get("keys") if isinstance(document, Mapping) else None
    if not isinstance(entries, list):
        raise BadKeys("no JWK set")
    found = [key for entry in entries[:MAX_KEYS] if (key := _read(entry)) is not None]
    if not found:
        raise BadKeys("a JWK set without any key for signatures")
    return KeySet(tuple(found))


def _read(entry: object) -> IssuerKey | None:
    if not isinstance(entry, Mapping) or not _may_verify(entry):
        return None
    reading, members = _MEMBERS.get(str(entry.get("kty")), (None, ()))
    kid = entry.get("kid", "")
    if reading is None or not isinstance(kid, str):
        return None
    try:
        key = reading.from_jwk({name: entry[name] for name in members})
    except (PyJWTError, KeyError, ValueError, TypeError):
        return None
    algorithms = _algorithms_of(key)
    if "alg" in entry:
        algorithms &= {str(entry["alg"])}
    return IssuerKey(kid, algorithms, key) if algorithms else None


def _may_verify(entry: Mapping[str, Any]) -> bool:
    operations = entry.get("key_ops")
    listed = operations is None or (isinstance(operations, list) and "verify" in operations)
    return listed and entry.get("use", "sig") == "sig"


def _algorithms_of(key: object) -> frozenset[str]:
    """Of the asymmetric kinds only, so that a public key can never be taken for a shared secret (RFC 8725, 3.1)."""
    if isinstance(key, RSAPublicKey):
        return _RSA if MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS else frozenset()
    if isinstance(key, EllipticCurvePublicKey):
        return frozenset({_CURVES[key.curve.name]} if key.curve.name in _CURVES else ())
    return frozenset({"EdDSA"} if isinstance(key, Ed25519PublicKey | Ed448PublicKey) else ())
