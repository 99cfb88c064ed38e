"""Short-lived tokens by which a mailbox server signs a user in on our word (RFC 7519, RFC 7523 section 3).

    login, server ── our key ──► JWT: sub, aud, exp, jti ── SASL OAUTHBEARER ──► the server, which has our public key

A token names one user and one server and is good for a minute, so what is caught on one server is of no use at another.
It has neither `iat` nor `nbf`: a server whose clock is a little behind would refuse it as one from the future.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from functools import lru_cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from jwt.algorithms import ECAlgorithm

from gatepost.organization.model import Server

ISSUER = "gatepost"
TOKEN_SECONDS = 60
"""How long a token is good. Clocks may differ by less than that."""
ALGORITHM = "ES256"


class LoginSigner:
    """Signs with one key. `kid` is its thumbprint (RFC 7638), so another key has another name by itself."""

    def __init__(self, pem: bytes) -> None:
        """Raises ValueError for anything but a P-256 key in PEM form without a passphrase."""
        try:
            key = load_pem_private_key(pem, None)
        except (ValueError, TypeError) as fault:
            raise ValueError(f"is no private key: {fault}") from fault
        if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
            raise ValueError("is no key of the curve P-256")  # noqa: TRY004 - what a file holds
        self._key = key
        self._public: dict[str, Any] = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        members = {name: self._public[name] for name in ("crv", "kty", "x", "y")}
        digest = hashlib.sha256(json.dumps(members, sort_keys=True, separators=(",", ":")).encode()).digest()
        self.kid = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def token(self, login: str, audience: str, now: float) -> str:
        """A token for the user whom the server `audience` knows as `login`; `now` as `time.time`. About 0.1 ms."""
        claims = {
            "iss": ISSUER,
            "sub": login,
            "aud": audience,
            "exp": int(now) + TOKEN_SECONDS,
            "jti": secrets.token_urlsafe(12),
        }
        return jwt.encode(claims, self._key, ALGORITHM, headers={"kid": self.kid})

    @property
    def public_pem(self) -> bytes:
        """The public key for servers, PEM."""
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    @property
    def public_jwk(self) -> dict[str, Any]:
        """The public key for servers that read JWK sets (RFC 7517)."""
        return {**self._public, "kid": self.kid, "use": "sig", "alg": ALGORITHM}


def make_key() -> bytes:
    """A new private key, PEM."""
    return generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@lru_cache(16)
def signer_of(pem: bytes) -> LoginSigner:
    """The signer of a key, read once. Raises ValueError as `LoginSigner`."""
    return LoginSigner(pem)


def audience_of(server: Server) -> str:
    """What tokens for `server` have as `aud`."""
    return server.sign_in.token_audience or server.fqdn


def login_token(server: Server, login: str) -> str:
    """A token that signs `login` in at `server` now, whose form of sign-in is `assertion`."""
    return signer_of(server.sign_in.assertion_key).token(login, audience_of(server), time.time())
