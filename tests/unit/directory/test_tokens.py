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

from gatepost.directory.settings import TokenIssuer
from gatepost.directory.tokens.key_set import BadKeys
from gatepost.directory.tokens.verifier import MAX_TOKEN_CHARACTERS, Tokens
from gatepost.organization.model import Protocol

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


class Verifier:
    """Of one issuer with one key; answers the owner, or None."""

    def __init__(self, algorithm: str, changes: dict[str, Any]) -> None:
        values: dict[str, Any] = {"key": public(algorithm), "audiences": (AUDIENCE,)} | changes
        self.tokens = Tokens([TokenIssuer(ISSUER, **values)], "contoso.com")

    async def verify(self, token: str, protocol: Protocol = Protocol.IMAP) -> str | None:
        found = await self.tokens.verify(token, protocol)
        assert bool(found.owner) != bool(found.reason)
        return found.owner or None


def verifier(algorithm: str = "ES256", **changes: Any) -> Verifier:
    return Verifier(algorithm, changes)


def encoded(part: object) -> str:
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.mark.parametrize("algorithm", KEYS)
async def test_a_good_token_names_its_owner(algorithm: str) -> None:
    good = token(algorithm)
    assert await verifier(algorithm).verify(good) == "anna@contoso.com"


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
    assert await verifier().verify(token(**changes)) is None


@pytest.mark.parametrize(
    "changes", [{"nbf": None}, {"iat": None}, {"aud": ["files", "mail"]}, {"email_verified": True}]
)
async def test_what_a_token_may_say(changes: dict[str, Any]) -> None:
    assert await verifier().verify(token(**changes)) == "anna@contoso.com"


async def test_another_claim_may_name_the_user() -> None:
    """Without a domain it gets the organization's."""
    found = verifier(user_claim="preferred_username")
    assert await found.verify(token(preferred_username="Anna")) == "anna@contoso.com"
    assert await found.verify(token()) is None


async def test_unsigned_is_none() -> None:
    """`alg: none`, in every spelling, with and without a signature (RFC 8725 section 2.1)."""
    for name in ("none", "None", "NONE", ""):
        for signature in ("", encoded(b"x")):
            forged = f"{encoded({'alg': name, 'typ': 'JWT'})}.{encoded(claims())}.{signature}"
            assert await verifier().verify(forged) is None


@pytest.mark.parametrize("algorithm", KEYS)
async def test_the_public_key_is_no_secret(algorithm: str) -> None:
    """HS256 with the public key as its secret, which everybody has (RFC 8725 section 2.1)."""
    body = f"{encoded({'alg': 'HS256', 'typ': 'JWT'})}.{encoded(claims())}"
    signature = hmac.new(public(algorithm), body.encode(), hashlib.sha256).digest()
    assert await verifier(algorithm).verify(f"{body}.{encoded(signature)}") is None


async def test_another_key_or_algorithm_is_none() -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    assert await verifier().verify(jwt.encode(claims(), other, "ES256")) is None
    assert await verifier().verify(token("RS256")) is None
    with_key = jwt.encode(claims(), other, "ES256", headers={"jku": "https://evil", "kid": "1"})
    assert await verifier().verify(with_key) is None


async def test_a_changed_token_is_none() -> None:
    header, _, signature = token().split(".")
    assert await verifier().verify(f"{header}.{encoded(claims(email='otto@contoso.com'))}.{signature}") is None


@given(st.one_of(st.text(), st.lists(st.binary(), min_size=3, max_size=3).map(lambda p: ".".join(map(encoded, p)))))
async def test_rubbish_is_none(rubbish: str) -> None:
    assert await verifier().verify(rubbish) is None


async def test_a_huge_token_is_not_looked_at() -> None:
    assert await verifier().verify(token(filler="x" * MAX_TOKEN_CHARACTERS)) is None
    assert await verifier().verify(token(filler="x" * 9000)) == "anna@contoso.com"


@pytest.mark.parametrize("key", [b"not a key", public("EdDSA")[:-40]], ids=["text", "cut short"])
async def test_a_key_that_is_none_is_a_fault_of_the_configuration(key: bytes) -> None:
    with pytest.raises(BadKeys):
        verifier(key=key)


@pytest.mark.parametrize("algorithms", [(), ("RS256",), ("HS256", "none")])
async def test_only_the_listed_algorithms_count(algorithms: tuple[str, ...]) -> None:
    """Whatever the key could do, and whatever the token says (RFC 8725 section 3.1)."""
    assert await verifier(algorithms=algorithms).verify(token()) is None


@pytest.mark.parametrize(
    ("typ", "good"),
    [
        ("JWT", True),
        ("jwt", True),
        ("at+jwt", True),
        ("application/at+JWT", True),
        (None, True),
        ("gatepost-peer+jwt", False),
        ("logout+jwt", False),
        ("dpop+jwt", False),
        (7, False),
    ],
)
async def test_a_token_made_for_something_else_is_none(typ: object, good: bool) -> None:
    """RFC 8725 section 3.11, RFC 9068 section 4."""
    made = f"{encoded({'alg': 'ES256', 'typ': typ} if typ else {'alg': 'ES256'})}.{encoded(claims())}"
    signed = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256).sign(made.encode(), KEYS["ES256"])
    assert (await verifier().verify(f"{made}.{encoded(signed)}") is not None) is good


async def test_only_access_tokens_where_that_is_asked_for() -> None:
    strict = verifier(token_types=("at+jwt",))
    assert await strict.verify(token()) is None
    assert await strict.verify(jwt.encode(claims(), KEYS["ES256"], "ES256", headers={"typ": "at+jwt"}))


async def test_what_is_critical_and_not_understood_is_none() -> None:
    """RFC 7515 section 4.1.11."""
    made = jwt.encode(claims(), KEYS["ES256"], "ES256", headers={"crit": ["x"], "x": 1})
    assert await verifier().verify(made) is None


async def test_a_token_bound_to_a_key_is_none() -> None:
    """RFC 8705 and RFC 9449: whoever shows it must show the key too, which nobody can here."""
    assert await verifier().verify(token(cnf={"jkt": "x"})) is None


async def test_scopes_are_asked_for_by_protocol() -> None:
    """As `scope` (RFC 8693) or `scp`, one text or a list; a missing one is told, and is no wrong token."""
    found = verifier(scopes=("mail",), protocol_scopes=(("imap", ("mail.imap",)),)).tokens
    for name, value in [("scope", "mail mail.imap"), ("scp", ["mail", "mail.imap"]), ("scope", ["mail", "mail.imap"])]:
        assert (await found.verify(token(**{name: value}), Protocol.IMAP)).lacks == ""
    judged = await found.verify(token(scope="mail"), Protocol.IMAP)
    assert (judged.owner, judged.lacks) == ("anna@contoso.com", "mail.imap")
    assert (await found.verify(token(scope="mail"), Protocol.POP3)).lacks == ""
    assert (await found.verify(token(scope="mail.imap"), Protocol.IMAP)).lacks == "mail"
    assert found.help(Protocol.IMAP).scope == "mail mail.imap"


async def test_an_issuer_speaks_for_its_domains_only() -> None:
    assert await verifier(domains=("contoso.com",)).verify(token()) == "anna@contoso.com"
    assert await verifier(domains=("fabrikam.com",)).verify(token()) is None


async def test_several_issuers_each_with_its_own_key_and_audiences() -> None:
    """The key of one verifies nothing of another, though both sign in the same way."""
    other = "https://id.fabrikam.com"
    found = Tokens(
        [
            TokenIssuer(ISSUER, ("mail", "post"), key=public("ES256")),
            TokenIssuer(other, ("files",), key=public("EdDSA"), user_claim="upn"),
        ],
        "contoso.com",
    )
    assert (await found.verify(token(aud="post"), Protocol.IMAP)).owner == "anna@contoso.com"
    theirs = token("EdDSA", iss=other, aud="files", upn="bob@fabrikam.com")
    judged = await found.verify(theirs, Protocol.IMAP)
    assert (judged.owner, judged.audiences) == ("bob@fabrikam.com", ("files",))
    assert not (await found.verify(token("ES256", iss=other, aud="files", upn="bob@x.y"), Protocol.IMAP)).owner
    assert not (await found.verify(token(aud="files"), Protocol.IMAP)).owner
    assert not (await found.verify(token("EdDSA"), Protocol.IMAP)).owner


async def test_until_when_a_token_is_good_is_told() -> None:
    exp = int(time.time()) + 77
    assert (await verifier().tokens.verify(token(exp=exp), Protocol.IMAP)).until == exp
