"""Bearer tokens: JWTs verified here with a public key (RFC 7519, RFC 8725)."""

from __future__ import annotations

from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from gatepost.configuration.settings import TokenSettings
from gatepost.organization.names import BadLoginName, canonical_login_name

LEEWAY_SECONDS = 30
"""How far the issuer's clock may be from ours."""

MAX_TOKEN_CHARACTERS = 16384
"""Bearer tokens pass 12 kB (field case 53); a longer one is not looked at."""

_FAMILIES: tuple[tuple[type[Any], tuple[str, ...]], ...] = (
    (RSAPublicKey, ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
    (EllipticCurvePublicKey, ("ES256", "ES384", "ES512", "ES256K")),
    (Ed25519PublicKey, ("EdDSA",)),
    (Ed448PublicKey, ("EdDSA",)),
)


class JwtVerifier:
    """The `TokenVerifier` for JWTs of one issuer, signed with one key.

    The algorithms are those of the settings that fit the key; what the token says of itself never widens them, so
    `none` and a public key used as an HMAC secret fail. `exp`, `iss` and `aud` must be there and right; `nbf` and
    `iat` must be right where they are there (many issuers leave `nbf` out).
    """

    def __init__(self, settings: TokenSettings, default_domain: str) -> None:
        """Raises ValueError when the key cannot be read or fits none of the algorithms."""
        self._settings = settings
        self._default_domain = default_domain
        key: Any = load_pem_public_key(settings.key)
        fitting = next((names for kind, names in _FAMILIES if isinstance(key, kind)), ())
        self._algorithms = [name for name in settings.algorithms if name in fitting]
        if not self._algorithms:
            raise ValueError(f"the key fits none of the algorithms {', '.join(settings.algorithms)}")
        self._key = key

    async def verify(self, user_name: str, token: str) -> str | None:
        """The canonical login name that the token speaks for; None when it is not valid or not `user_name`'s.

        About 0.1 ms on the loop; needs no network, so it never raises `TokenVerifierUnavailable`.
        """
        owner = self._owner(token)
        if owner is None or not user_name:
            return owner
        try:
            return owner if canonical_login_name(user_name, self._default_domain) == owner else None
        except BadLoginName:
            return None

    def _owner(self, token: str) -> str | None:
        if len(token) > MAX_TOKEN_CHARACTERS:
            return None
        settings = self._settings
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                self._key,
                algorithms=self._algorithms,
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud"]},
            )
            claim = claims.get(settings.user_claim)
            unverified = settings.user_claim == "email" and claims.get("email_verified") is False
            return None if unverified or not isinstance(claim, str) else self._canonical(claim)
        except (jwt.PyJWTError, BadLoginName, ValueError):
            return None

    def _canonical(self, claim: str) -> str:
        return canonical_login_name(claim, self._default_domain)
