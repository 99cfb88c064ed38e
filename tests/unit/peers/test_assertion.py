"""The assertion by which a user's identity crosses to a peer (SPEC C11): who can make it, who can use it, how often."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from hypothesis import given
from hypothesis import strategies as st
from peer_samples import NOW, pair

from gatepost.organization.model import Version
from gatepost.peers import assertion
from gatepost.peers.assertion import (
    CLOCK_SKEW,
    MAX_VIA,
    TYPE,
    AssertionRefused,
    AssertionSigner,
    AssertionVerifier,
    Claims,
    Client,
    features,
)

SECONDS = 60.0
CLIENT = Client("192.0.2.7", 40000, tls=True, host="mail.contoso.com")
USER = "alice@contoso.com"


def key_of(name: str) -> Any:
    """The public key that TLS shows of a front end."""
    return x509.load_pem_x509_certificate(pair(name).certificate).public_key()


def signer(name: str = "CAS-01") -> AssertionSigner:
    return AssertionSigner(pair(name).private_key, name, SECONDS)


def sign(name: str = "CAS-01", audience: str = "CAS-02", user: str = USER, now: float = NOW, **changes: Any) -> bytes:
    """An assertion of the front end `name`."""
    arguments = {"client": CLIENT, "via": (), "version": Version.MODERN, **changes}
    its = signer(name)
    return its.sign(its.payload(user, "0f1e-7", audience, now=now, **arguments))


def verifier(name: str = "CAS-02") -> AssertionVerifier:
    return AssertionVerifier(name, SECONDS)


def verify(value: bytes, presenter: str = "CAS-01", now: float = NOW, at: AssertionVerifier | None = None) -> Claims:
    """What CAS-02 makes of it when the TLS peer `presenter` shows it."""
    return (at or verifier()).verify(value, presenter, key_of(presenter), now)


def refused(value: bytes, presenter: str = "CAS-01", now: float = NOW, at: AssertionVerifier | None = None) -> str:
    """The reason."""
    with pytest.raises(AssertionRefused) as caught:
        verify(value, presenter, now, at)
    return str(caught.value)


def claims_of(value: bytes) -> dict[str, Any]:
    """What it says, without a look at the signature."""
    found: dict[str, Any] = jwt.decode(value, options={"verify_signature": False})
    return found


def signed(name: str = "CAS-01", header: dict[str, Any] | None = None, payload: bytes = b"", **changes: Any) -> bytes:
    """One with any claims at all, rightly signed: what a broken or hostile peer could send. None takes a claim out."""
    claims = {**claims_of(sign(name)), **changes}
    body = payload or json.dumps({k: v for k, v in claims.items() if v is not None}).encode()
    key: Any = load_pem_private_key(pair(name).private_key, None)
    return jwt.PyJWS().encode(body, key, "ES256", {"typ": TYPE, **(header or {})}).encode()


def segment(data: Any) -> bytes:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def test_what_is_said_arrives() -> None:
    """User, request, client and way."""
    value = sign(via=("CAS-03",))
    assert verify(value) == Claims("CAS-01", USER, "0f1e-7", CLIENT, ("CAS-03", "CAS-01"))


def test_it_says_no_more_than_it_must() -> None:
    """And no secret: the claims of form 1, all of them."""
    claims = claims_of(sign())
    assert set(claims) == {"iss", "aud", "sub", "rid", "jti", "iat", "exp", "pv", "cli", "via"}
    assert claims["exp"] - claims["iat"] == SECONDS
    assert claims["pv"] == 1


UNDERSTOOD = {
    Version.V2003: set(),
    Version.V2007: set(),
    Version.V2010: set(),
    Version.MODERN: {"client", "via"},
}


@pytest.mark.parametrize("version", list(Version))
def test_a_peer_of_an_older_version_gets_only_what_it_understands(version: Version) -> None:
    """User, request, expiry and audience are for all; and what an older one is sent is taken by a newer one too."""
    assert features(version) == UNDERSTOOD[version]
    value = sign(version=version, via=("CAS-03",))
    claims = claims_of(value)
    assert {"iss", "aud", "sub", "rid", "jti", "iat", "exp", "pv"} <= set(claims)
    assert ("cli" in claims) == ("client" in UNDERSTOOD[version])
    assert ("via" in claims) == ("via" in UNDERSTOOD[version])
    assert verify(value).user == USER


def test_a_peer_may_say_more_than_is_known_here() -> None:
    """A later Gatepost adds claims; a later form says so in `pv` and is refused."""
    assert verify(signed(colour="green")).user == USER
    assert refused(signed(pv=2)) == "a form that is not known here"


def test_replay_to_another_server_fails() -> None:
    """CAS-02 got it for itself and cannot use it at CAS-03, nor can a thief."""
    value = sign(audience="CAS-02")
    assert refused(value, at=verifier("CAS-03")) == "made for another server"
    assert verify(value).user == USER


def test_an_assertion_that_another_peer_presents_is_refused() -> None:
    """It is bound to the key of the TLS peer: a good peer's certificate does not help with another's assertion."""
    value = sign("CAS-01", "CAS-02")
    assert refused(value, presenter="CAS-03") == "not signed with the key of the peer that presents it"


def test_a_peer_cannot_speak_in_anothers_name() -> None:
    """Rightly signed with its own key, wrongly named."""
    assert refused(signed("CAS-03", iss="CAS-01"), presenter="CAS-03") == (
        "made by another front end than the one that presents it"
    )


def test_it_is_taken_once() -> None:
    """And so is the same with another valid signature: what counts is its own identifier."""
    at = verifier()
    value = sign()
    assert verify(value, at=at).user == USER
    assert refused(value, at=at) == "taken before"
    _, payload, _ = value.split(b".")
    key: Any = load_pem_private_key(pair("CAS-01").private_key, None)
    again = jwt.PyJWS().encode(base64.urlsafe_b64decode(payload + b"=="), key, "ES256", {"typ": TYPE}).encode()
    assert again != value
    assert refused(again, at=at) == "taken before"


def test_the_same_request_sent_again_has_another_assertion() -> None:
    """A kept connection turned out to be closed: the second attempt is no replay."""
    at, by = verifier(), signer()
    for _ in range(2):
        assert (
            verify(by.sign(by.payload(USER, "0f1e-7", "CAS-02", CLIENT, (), NOW, Version.MODERN)), at=at).request_id
            == "0f1e-7"
        )


def test_peers_do_not_use_up_each_others_identifiers() -> None:
    """The same identifier of two peers is two."""
    at = verifier()
    verify(signed("CAS-01", jti="one"), at=at)
    assert verify(signed("CAS-03", jti="one"), presenter="CAS-03", at=at).issuer == "CAS-03"


@pytest.mark.parametrize(("late", "good"), [(SECONDS - 0.1, True), (SECONDS, False), (10 * SECONDS, False)])
def test_it_is_good_for_its_seconds(late: float, good: bool) -> None:
    """From when it was made, by our clock: an issuer whose clock is behind loses what it is behind."""
    if good:
        assert verify(sign(), now=NOW + late).user == USER
    else:
        assert refused(sign(), now=NOW + late) == "expired"


def test_nobody_makes_one_that_lasts() -> None:
    """However late its end, it is good for this server's seconds."""
    value = signed(exp=NOW + 1e6)
    assert refused(value, now=NOW + SECONDS) == "expired"
    assert refused(signed(exp=NOW + 5), now=NOW + 5) == "expired"


def test_thirty_seconds_between_two_clocks_are_borne() -> None:
    """Ahead: not more. Behind: half of its time is left."""
    assert CLOCK_SKEW == 30
    assert verify(sign(now=NOW + CLOCK_SKEW)).user == USER
    assert refused(sign(now=NOW + CLOCK_SKEW + 0.1)) == "made in the future: compare the clocks"
    assert verify(sign(now=NOW - CLOCK_SKEW)).user == USER


def test_a_forged_signature_is_refused() -> None:
    """Of a key that nobody knows, of no key, cut off."""
    head, payload, signature = sign().split(b".")
    stranger = sign("CAS-04").split(b".")[2]
    for forged in (stranger, b"", signature[:-4], segment(b"\0" * 64)):
        assert refused(b".".join((head, payload, forged)))


def test_changed_claims_are_refused() -> None:
    """Another user under the same signature."""
    head, payload, signature = sign().split(b".")
    claims = json.loads(base64.urlsafe_b64decode(payload + b"=="))
    changed = segment({**claims, "sub": "root@contoso.com"})
    assert refused(b".".join((head, changed, signature))) == "not signed with the key of the peer that presents it"


GOOD = sign()


@given(where=st.integers(0, len(GOOD) - 2), change=st.integers(1, 255))
def test_no_changed_octet_passes(where: int, change: int) -> None:
    """Wherever it is changed, but in the last letter of the signature, some of whose bits mean nothing in base64."""
    value = bytearray(GOOD)
    value[where] ^= change
    assert refused(bytes(value))


@pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "RS256", "ES384", "EdDSA", "", 7, None])
def test_the_header_chooses_no_algorithm(algorithm: Any) -> None:
    """It is the key's: `none`, the public key as a shared secret, another curve are all refused before any look."""
    _, payload, signature = sign().split(b".")
    head = segment({"alg": algorithm, "typ": TYPE})
    public = key_of("CAS-01").public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    secret = segment(hmac.digest(public, head + b"." + payload, "sha256"))
    for forged in (signature, secret, b""):
        reason = refused(b".".join((head, payload, forged)))
        assert reason == "its header is not that of an assertion signed with this key"


@pytest.mark.parametrize(
    "header",
    [
        {"typ": "JWT"},
        {"typ": "gatepost-cookie+jwt"},
        {"kid": "../../key"},
        {"jku": "https://attacker.example/keys"},
        {"crit": ["x"], "x": 1},
        {"b64": False},
    ],
)
def test_tokens_made_for_something_else_are_no_assertions(header: dict[str, Any]) -> None:
    """Though rightly signed: the type is our own, and nothing more may be in the header (RFC 8725 section 3.11)."""
    with pytest.raises(AssertionRefused):
        verify(signed(header=header))


def test_a_claim_that_stands_twice_is_refused() -> None:
    """Two readers could take two users."""
    good = json.dumps(claims_of(sign()))
    twice = good[:-1] + ', "sub": "root@contoso.com"}'
    assert refused(signed(payload=twice.encode())) == "no assertion"
    assert verify(signed(payload=good.encode())).user == USER
    _, payload, signature = sign().split(b".")
    double = segment(b'{"alg":"none","alg":"ES256","typ":"%b"}' % TYPE.encode())
    assert refused(b".".join((double, payload, signature)))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sub": None}, "names no user"),
        ({"sub": ""}, "names no user"),
        ({"sub": 7}, "names no user"),
        ({"sub": ["alice"]}, "names no user"),
        ({"sub": "alice\r\nX-Admin: 1"}, "names no user"),
        ({"sub": "a" * 321}, "names no user"),
        ({"aud": None}, "made for another server"),
        ({"aud": ["CAS-02", "CAS-03"]}, "made for another server"),
        ({"aud": "cas-02"}, "made for another server"),
        ({"iss": None}, "made by another front end than the one that presents it"),
        ({"iat": None}, "iat is no time"),
        ({"iat": True}, "iat is no time"),
        ({"iat": "now"}, "iat is no time"),
        ({"iat": -1}, "iat is no time"),
        ({"iat": 10**400}, "iat is no time"),
        ({"exp": None}, "exp is no time"),
        ({"exp": "never"}, "exp is no time"),
        ({"rid": None}, "rid is no identifier"),
        ({"rid": "a b"}, "rid is no identifier"),
        ({"rid": "x" * 65}, "rid is no identifier"),
        ({"jti": None}, "jti is no identifier"),
        ({"jti": {}}, "jti is no identifier"),
        ({"pv": None}, "a form that is not known here"),
        ({"pv": True}, "a form that is not known here"),
        ({"pv": 1.0}, "a form that is not known here"),
        ({"pv": "1"}, "a form that is not known here"),
        ({"cli": "192.0.2.7"}, "the client's address cannot be read"),
        ({"cli": {"addr": "nowhere", "port": 1, "tls": True, "host": ""}}, "the client's address cannot be read"),
        ({"cli": {"addr": "fe80::1%eth0", "port": 1, "tls": True, "host": ""}}, "the client's address cannot be read"),
        ({"cli": {"addr": "192.0.2.7", "port": True, "tls": True, "host": ""}}, "the client's address cannot be read"),
        ({"cli": {"addr": "192.0.2.7", "port": 70000, "tls": True, "host": ""}}, "the client's address cannot be read"),
        ({"cli": {"addr": "192.0.2.7", "port": 1, "tls": 1, "host": ""}}, "the client's address cannot be read"),
        (
            {"cli": {"addr": "192.0.2.7", "port": 1, "tls": True, "host": "a\r\nb"}},
            "the client's address cannot be read",
        ),
        ({"via": "CAS-01"}, "via cannot be read"),
        ({"via": [1]}, "via cannot be read"),
        ({"via": [""]}, "via cannot be read"),
        ({"via": ["CAS-01"] * (MAX_VIA + 1)}, "via cannot be read"),
        ({"via": ["x" * 129]}, "via cannot be read"),
    ],
)
def test_claims_of_a_wrong_shape_are_refused(changes: dict[str, Any], reason: str) -> None:
    """Rightly signed: a peer is not believed blindly either."""
    assert refused(signed(**changes)) == reason


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b".",
        b"..",
        b"a.b.c",
        b"a.b.c.d",
        b"\xff.\xff.\xff",
        b"." * 100,
        b"e" * 5000,
        segment(b"[]") + b".e30.",
        segment(b"{" * 3000) + b".e30.",
        segment(b"[" * 2900) + b".e30.",
        segment(b'{"alg":NaN}') + b".e30.",
    ],
)
def test_what_is_no_assertion_is_refused(value: bytes) -> None:
    """Whatever bytes a field can hold."""
    assert refused(value)


@pytest.mark.parametrize("payload", [b"[]", b'"alice"', b"null", b"{", b"[" * 2000, b'{"iat": NaN}', b"\xff"])
def test_a_payload_that_is_no_object_is_refused(payload: bytes) -> None:
    """Rightly signed."""
    assert refused(signed(payload=payload))


def test_one_that_is_too_large_is_not_looked_at() -> None:
    """Though rightly signed."""
    assert refused(signed(colour="x" * 4000)) == "no assertion"


def test_the_longest_names_fit() -> None:
    """A name of four-octet letters, and as many hops as are forwarded, by names of full length."""
    user = "\U00010428" * 308 + "@contoso.com"
    client = Client("2001:db8::1", 65535, tls=True, host="h" * 253 + ":65535")
    value = sign(user=user, client=client, via=tuple(f"{n:0100}" for n in range(assertion.MAX_HOPS)))
    assert verify(value).user == user
    assert verify(value).client == client


def test_the_memory_of_what_was_taken_is_bounded_and_takes_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is full the oldest goes, and with it everything that was made before it."""
    monkeypatch.setattr(assertion, "REMEMBERED", 10)
    at = verifier()
    values = [sign(now=NOW + n * 0.01) for n in range(15)]
    for value in values:
        assert verify(value, now=NOW + 1, at=at).user == USER
    for value in values:
        assert refused(value, now=NOW + 1, at=at) == "taken before"
    # One that was delayed on the way and comes now: nobody knows whether it was taken.
    assert refused(sign(now=NOW), now=NOW + 1, at=at) == "taken before"
    assert verify(sign(now=NOW + 1), now=NOW + 1, at=at).user == USER
    assert len(at._taken["CAS-01"]._made) == 10


def test_one_peers_flood_costs_another_peer_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has room of its own."""
    monkeypatch.setattr(assertion, "REMEMBERED", 3)
    at = verifier()
    delayed = sign("CAS-03", now=NOW - 20)
    for n in range(20):
        verify(sign("CAS-01", now=NOW + n * 0.01), now=NOW + 1, at=at)
    assert verify(delayed, presenter="CAS-03", now=NOW + 1, at=at).issuer == "CAS-03"


def test_what_has_ended_is_forgotten() -> None:
    """Memory is for the living only."""
    at = verifier()
    for n in range(100):
        verify(sign(now=NOW + n), now=NOW + n, at=at)
    assert len(at._taken["CAS-01"]._made) == int(SECONDS)


def test_an_ed25519_key_signs_too() -> None:
    """Certificates of another CA program may have one; the algorithm is the key's, not the header's."""
    key = ed25519.Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    its = AssertionSigner(pem, "CAS-01", SECONDS)
    value = its.sign(its.payload(USER, "r", "CAS-02", CLIENT, (), NOW, Version.MODERN))
    assert verifier().verify(value, "CAS-01", key.public_key(), NOW).user == USER
    with pytest.raises(AssertionRefused):
        verify(value)
    with pytest.raises(AssertionRefused):
        verifier().verify(sign(), "CAS-01", key.public_key(), NOW)


def test_other_keys_cannot_sign() -> None:
    """Told when the front end starts, not with the first request."""
    for key in (rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())):
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with pytest.raises(ValueError, match="neither P-256 nor Ed25519"):
            AssertionSigner(pem, "CAS-01", SECONDS)


def test_no_key_is_shown() -> None:
    """Neither signer nor verifier say anything of it."""
    assert "PRIVATE" not in repr(signer().__dict__)
