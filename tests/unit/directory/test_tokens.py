"""JWT bearer tokens: only what the issuer signed, for us, now (RFC 7519, RFC 8725)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from gatepost.configuration.settings import TokenSettings
from gatepost.directory.tokens import MAX_TOKEN_CHARACTERS, JwtVerifier

KEYS: dict[str, Any] = {
    "RS256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
ISSUER, AUDIENCE = "https://id.contoso.com", "mail"


def public(algorithm: str) -> bytes:
    pem: bytes = KEYS[algorithm].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def claims(**changes: object) -> dict[str, object]:
    now = int(time.time())
    standard: dict[str, object] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "exp": now + 600,
        "nbf": now - 5,
        "iat": now - 5,
        "email": "Anna@Contoso.com",
    }
    return {key: value for key, value in (standard | changes).items() if value is not None}


def token(algorithm: str = "ES256", **changes: Any) -> str:
    return jwt.encode(claims(**changes), KEYS[algorithm], algorithm)


def verifier(algorithm: str = "ES256", **changes: Any) -> JwtVerifier:
    return JwtVerifier(TokenSettings(public(algorithm), ISSUER, AUDIENCE, **changes), "contoso.com")


def encoded(part: object) -> str:
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.mark.parametrize("algorithm", KEYS)
async def test_a_good_token_names_its_owner(algorithm: str) -> None:
    good = token(algorithm)
    assert await verifier(algorithm).verify("", good) == "anna@contoso.com"
    assert await verifier(algorithm).verify("ANNA", good) == "anna@contoso.com"


@pytest.mark.parametrize("name", ["otto", "anna@fabrikam.com", "two words"])
async def test_a_token_for_another_is_none(name: str) -> None:
    assert await verifier().verify(name, token()) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": int(time.time()) - 60},
        {"exp": None},
        {"exp": "soon"},
        {"nbf": int(time.time()) + 86400},
        {"iat": int(time.time()) + 86400},
        {"iss": "https://id.fabrikam.com"},
        {"iss": None},
        {"aud": "files"},
        {"aud": None},
        {"email": None},
        {"email": 7},
        {"email": ["anna@contoso.com"]},
        {"email": "two words"},
        {"email": ""},
        {"email_verified": False},
    ],
)
async def test_what_a_token_must_say(changes: dict[str, Any]) -> None:
    assert await verifier().verify("", token(**changes)) is None


@pytest.mark.parametrize(
    "changes", [{"nbf": None}, {"iat": None}, {"aud": ["files", "mail"]}, {"email_verified": True}]
)
async def test_what_a_token_may_say(changes: dict[str, Any]) -> None:
    assert await verifier().verify("", token(**changes)) == "anna@contoso.com"


async def test_another_claim_may_name_the_user() -> None:
    """Without a domain it gets the organization's."""
    found = verifier(user_claim="preferred_username")
    assert await found.verify("", token(preferred_username="Anna")) == "anna@contoso.com"
    assert await found.verify("", token()) is None


async def test_unsigned_is_none() -> None:
    """`alg: none`, in every spelling, with and without a signature (RFC 8725 section 2.1)."""
    for name in ("none", "None", "NONE", ""):
        for signature in ("", encoded(b"x")):
            forged = f"{encoded({'alg': name, 'typ': 'JWT'})}.{encoded(claims())}.{signature}"
            assert await verifier().verify("", forged) is None


@pytest.mark.parametrize("algorithm", KEYS)
async def test_the_public_key_is_no_secret(algorithm: str) -> None:
    """HS256 with the public key as its secret, which everybody has (RFC 8725 section 2.1)."""
    body = f"{encoded({'alg': 'HS256', 'typ': 'JWT'})}.{encoded(claims())}"
    signature = hmac.new(public(algorithm), body.encode(), hashlib.sha256).digest()
    assert await verifier(algorithm).verify("", f"{body}.{encoded(signature)}") is None


async def test_another_key_or_algorithm_is_none() -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    assert await verifier().verify("", jwt.encode(claims(), other, "ES256")) is None
    assert await verifier().verify("", token("RS256")) is None
    with_key = jwt.encode(claims(), other, "ES256", headers={"jku": "https://evil", "kid": "1"})
    assert await verifier().verify("", with_key) is None


async def test_a_changed_token_is_none() -> None:
    header, _, signature = token().split(".")
    assert await verifier().verify("", f"{header}.{encoded(claims(email='otto@contoso.com'))}.{signature}") is None


@given(st.one_of(st.text(), st.lists(st.binary(), min_size=3, max_size=3).map(lambda p: ".".join(map(encoded, p)))))
async def test_rubbish_is_none(rubbish: str) -> None:
    assert await verifier().verify("", rubbish) is None


async def test_a_huge_token_is_not_looked_at() -> None:
    assert await verifier().verify("", token(filler="x" * MAX_TOKEN_CHARACTERS)) is None
    assert await verifier().verify("", token(filler="x" * 9000)) == "anna@contoso.com"


@pytest.mark.parametrize(
    ("key", "algorithms"),
    [
        (b"not a key", ("ES256",)),
        (public("RS256"), ("ES256",)),
        (public("ES256"), ("HS256", "none")),
        (public("EdDSA"), ()),
    ],
)
def test_a_key_that_fits_nothing_is_a_fault_of_the_configuration(key: bytes, algorithms: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"."):
        JwtVerifier(TokenSettings(key, ISSUER, AUDIENCE, algorithms), "contoso.com")
