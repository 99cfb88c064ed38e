"""Issuers that are asked: keys that are fetched and change, introspection, and faults that are never a wrong token."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from gatepost.directory.port import JudgedToken, TokenVerifierUnavailable
from gatepost.directory.settings import TokenIssuer, TokenMethod
from gatepost.directory.tokens import issuer_keys
from gatepost.directory.tokens.issuer_client import MAX_ANSWER_BYTES, IssuerClient
from gatepost.directory.tokens.key_set import BadKeys, key_set_of_jwks
from gatepost.directory.tokens.verifier import Tokens
from gatepost.organization.model import Protocol

ISSUER = "https://id.contoso.com"
JWKS = f"{ISSUER}/keys"
KEYS = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("one", "two", "three")}
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
Handler = Callable[[httpx2.Request], httpx2.Response]


def jwk(kid: str, key: Any = None, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = ECAlgorithm.to_jwk((key or KEYS[kid]).public_key(), as_dict=True)
    return found | {"kid": kid, "use": "sig"} | changes


def token(kid: str = "one", key: str = "", **changes: Any) -> str:
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": "mail", "exp": now + 600, "email": "anna@contoso.com"} | changes
    return jwt.encode(claims, KEYS[key or kid], "ES256", headers={"kid": kid} if kid else None)


class Body(httpx2.AsyncByteStream):
    """Octets that come over a wire."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._content), 16384):
            yield self._content[start : start + 16384]


class Issuer:
    """Answers as an issuer does; `fault` is raised or answered instead."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {
            "/.well-known/openid-configuration": {
                "issuer": ISSUER,
                "jwks_uri": JWKS,
                "introspection_endpoint": f"{ISSUER}/introspect",
            },
            "/keys": {"keys": [jwk("one")]},
            "/introspect": {"active": False},
        }
        self.asked: list[str] = []
        self.requests: list[httpx2.Request] = []
        self.fault: Exception | httpx2.Response | None = None
        self.held: asyncio.Event | None = None

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request.url.path)
        self.requests.append(request)
        if self.held is not None:
            await self.held.wait()
        if isinstance(self.fault, Exception):
            raise self.fault
        if self.fault is not None:
            content = self.fault.content or b"x"
            return httpx2.Response(self.fault.status_code, headers=self.fault.headers, stream=Body(content))
        document = self.documents.get(request.url.path)
        if document is None:
            return httpx2.Response(404, stream=Body(b""))
        return httpx2.Response(200, stream=Body(json.dumps(document).encode()))

    def keys(self, *kids: str) -> None:
        self.documents["/keys"] = {"keys": [jwk(kid) for kid in kids]}

    def fetches(self) -> int:
        return self.asked.count("/keys")


class World:
    def __init__(self, issuer: Issuer, **changes: Any) -> None:
        self.clock = 1000.0
        self.now = time.time()
        values: dict[str, Any] = {"audiences": ("mail",), "seconds": 20.0} | changes
        self.tokens = Tokens(
            [TokenIssuer(ISSUER, **values)],
            "contoso.com",
            clock=lambda: self.clock,
            now=lambda: self.now,
            make_client=lambda settings: IssuerClient(settings, httpx2.MockTransport(issuer)),
        )

    async def judge(self, token: str) -> JudgedToken:
        return await self.tokens.verify(token, Protocol.IMAP)

    async def good(self, token: str) -> bool:
        return bool((await self.judge(token)).owner)


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def world(issuer: Issuer) -> World:
    return World(issuer)


async def settled(world: World) -> None:
    """Until a fetch behind is over."""
    one = next(iter(world.tokens._judges.values()))
    running = one.keys._running if one.keys is not None else None
    if running is not None:
        await running


# --- keys


async def test_keys_are_found_by_discovery_and_fetched_once(world: World, issuer: Issuer) -> None:
    for _ in range(3):
        assert await world.good(token())
    assert issuer.asked == ["/.well-known/openid-configuration", "/keys"]


async def test_metadata_of_rfc_8414_will_do(issuer: Issuer) -> None:
    issuer.documents["/.well-known/oauth-authorization-server"] = issuer.documents.pop(
        "/.well-known/openid-configuration"
    )
    assert await World(issuer).good(token())


async def test_metadata_of_another_issuer_are_refused(world: World, issuer: Issuer) -> None:
    """RFC 8414 section 3.3."""
    issuer.documents["/.well-known/openid-configuration"]["issuer"] = "https://evil.example"
    with pytest.raises(TokenVerifierUnavailable, match="another issuer"):
        await world.judge(token())


async def test_keys_in_clear_text_are_refused(world: World, issuer: Issuer) -> None:
    issuer.documents["/.well-known/openid-configuration"]["jwks_uri"] = "http://id.contoso.com/keys"
    with pytest.raises(TokenVerifierUnavailable, match="clear text"):
        await world.judge(token())


async def test_a_written_jwks_uri_needs_no_discovery(issuer: Issuer) -> None:
    assert await World(issuer, jwks_uri=JWKS).good(token())
    assert issuer.asked == ["/keys"]


async def test_an_unknown_key_is_looked_for_at_once(world: World, issuer: Issuer) -> None:
    """The issuer has begun to sign with a new key; the old one's tokens stay good while it is published."""
    assert await world.good(token("one"))
    issuer.keys("one", "two")
    assert await world.good(token("two"))
    assert await world.good(token("one"))
    assert issuer.fetches() == 2


async def test_a_withdrawn_key_counts_no_longer(world: World, issuer: Issuer) -> None:
    assert await world.good(token("one"))
    issuer.keys("two")
    world.clock += 301.0
    assert await world.good(token("one")), "stale keys are used while new ones are fetched"
    await settled(world)
    assert not await world.good(token("one"))
    assert await world.good(token("two"))


async def test_strangers_cannot_make_us_fetch(world: World, issuer: Issuer) -> None:
    """One fetch for all unknown keys in ten seconds; what was looked for is wrong, what was not may be new."""
    assert await world.good(token("one"))
    assert not await world.good(token("x1", "two"))
    assert issuer.fetches() == 2
    for n in range(2, 50):
        with pytest.raises(TokenVerifierUnavailable):
            await world.judge(token(f"x{n}", "two"))
        assert not await world.good(token("x1", "two"))
    assert issuer.fetches() == 2
    assert await world.good(token("one")), "known keys are not concerned"
    world.clock += issuer_keys.AGAIN_SECONDS
    assert not await world.good(token("x2", "two"))
    assert issuer.fetches() == 3


async def test_what_is_kept_of_unknown_keys_is_bounded(
    world: World, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_keys, "MAX_ABSENT", 4)
    for n in range(10):
        assert not await world.good(token(f"x{n}", "two"))
        world.clock += issuer_keys.AGAIN_SECONDS
    one = next(iter(world.tokens._judges.values()))
    assert one.keys is not None
    assert len(one.keys._absent) == 4


async def test_a_new_key_is_not_missed_by_a_fetch_that_began_before(world: World, issuer: Issuer) -> None:
    assert await world.good(token("one"))
    world.clock += 301.0
    issuer.held = asyncio.Event()
    assert await world.good(token("one"))  # begins a fetch behind
    late = asyncio.ensure_future(world.judge(token("two")))
    await asyncio.sleep(0)
    issuer.keys("one", "two")
    issuer.held.set()
    assert (await late).owner


async def test_without_a_kid_every_key_is_tried(world: World, issuer: Issuer) -> None:
    issuer.keys("one", "two")
    assert await world.good(token("", "two"))
    assert not await world.good(token("", "three"))
    issuer.keys("one", "two", "three")
    world.clock += issuer_keys.ABSENT_SECONDS
    assert await world.good(token("", "three"))


async def test_a_kid_does_not_make_another_key_fit(world: World, issuer: Issuer) -> None:
    issuer.keys("one", "two")
    assert not await world.good(token("one", "two"))
    assert issuer.fetches() == 1, "a known key is not looked for"


FAULTS: list[Exception | httpx2.Response] = [
    httpx2.ConnectError("refused"),
    httpx2.ReadTimeout("slow"),
    OSError("gone"),
    httpx2.Response(500),
    httpx2.Response(302, headers={"location": "https://evil.example/keys"}),
    httpx2.Response(200, content=b"<html>garbage"),
    httpx2.Response(200, content=b"\xff\xfe"),
    httpx2.Response(200, content=b"[" * 100_000),
    httpx2.Response(200, content=b"[]"),
    httpx2.Response(200, content=b'{"keys": []}'),
    httpx2.Response(200, content=b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}'),
    httpx2.Response(200, headers={"content-encoding": "gzip"}),
    # What would be keys, if anybody read so far.
    httpx2.Response(200, content=json.dumps({"keys": [jwk("one"), jwk("two")], "x": "x" * MAX_ANSWER_BYTES}).encode()),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: repr(fault)[:40])
async def test_a_fault_of_the_issuer_is_temporary(issuer: Issuer, fault: Exception | httpx2.Response) -> None:
    """With keys known they go on being used; without any nobody hears "wrong token"; recovery by itself."""
    fresh, known = World(issuer, jwks_uri=JWKS), World(issuer, jwks_uri=JWKS)
    assert await known.good(token())
    issuer.fault = fault
    with pytest.raises(TokenVerifierUnavailable):
        await fresh.judge(token())
    known.clock += 3600.0
    assert await known.good(token())
    await settled(known)
    with pytest.raises(TokenVerifierUnavailable):
        await known.judge(token("two"))
    assert await known.good(token())
    issuer.fault = None
    fresh.clock += 11.0
    assert await fresh.good(token())


async def test_last_known_keys_are_good_for_a_bounded_age(issuer: Issuer) -> None:
    world = World(issuer, outage_seconds=1000.0, keys_seconds=100.0)
    assert await world.good(token())
    issuer.fault = httpx2.ConnectError("down")
    world.clock += 1099.0
    assert await world.good(token())
    await settled(world)
    world.clock += 20.0
    with pytest.raises(TokenVerifierUnavailable):
        await world.judge(token())
    issuer.fault = None
    world.clock += 11.0
    assert await world.good(token())


async def test_an_issuer_that_is_down_is_not_asked_for_each_token(world: World, issuer: Issuer) -> None:
    issuer.fault = httpx2.ConnectError("down")
    for _ in range(20):
        with pytest.raises(TokenVerifierUnavailable):
            await world.judge(token())
    assert len(issuer.asked) == 1


async def test_an_issuer_that_hangs_is_given_up(issuer: Issuer) -> None:
    issuer.held = asyncio.Event()
    with pytest.raises(TokenVerifierUnavailable, match="TimeoutError"):
        await World(issuer, seconds=0.05).judge(token())


async def test_who_gives_up_does_not_end_the_fetch_for_others(world: World, issuer: Issuer) -> None:
    issuer.held = asyncio.Event()
    first, second = (asyncio.ensure_future(world.judge(token())) for _ in range(2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    issuer.held.set()
    assert (await second).owner
    assert issuer.fetches() == 1


def test_only_keys_for_signatures_are_taken() -> None:
    """Short keys, keys for encryption, shared secrets and unknown kinds are passed over."""
    short = json.loads(RSAAlgorithm.to_jwk(rsa.generate_private_key(public_exponent=65537, key_size=1024).public_key()))
    passed_over = [
        jwk("one", use="enc"),
        jwk("one", key_ops=["sign"]),
        jwk("one") | {"kid": 7},
        jwk("one", crv="P-999"),
        jwk("one", x="%%"),
        {"kty": "EC"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "s"},
        {"kty": ["RSA"]},
        short,
        "text",
        None,
    ]
    with pytest.raises(BadKeys):
        key_set_of_jwks({"keys": passed_over})
    ed = ed25519.Ed25519PrivateKey.generate()
    taken = [
        json.loads(RSAAlgorithm.to_jwk(RSA.public_key())) | {"kid": "r", "alg": "PS256"},
        json.loads(OKPAlgorithm.to_jwk(ed.public_key())) | {"kid": "e"},
    ]
    found = key_set_of_jwks({"keys": passed_over + taken})
    assert len(found.fitting("r", "PS256")) == 1
    assert found.fitting("r", "RS256") == []
    assert len(found.fitting("e", "EdDSA")) == 1
    assert found.fitting("e", "ES256") == []


def test_a_private_key_that_was_published_is_read_as_a_public_one() -> None:
    found = key_set_of_jwks({"keys": [json.loads(RSAAlgorithm.to_jwk(RSA)) | {"key_ops": ["verify"]}]})
    assert isinstance(found.keys[0].key, rsa.RSAPublicKey)


# --- introspection


def introspecting(issuer: Issuer, **changes: Any) -> World:
    values = {"method": TokenMethod.INTROSPECTION, "client_id": "us", "client_secret": "hush:1"} | changes
    return World(issuer, **values)


def active(issuer: Issuer, **changes: Any) -> None:
    claims = {"active": True, "aud": "mail", "email": "anna@contoso.com", "exp": time.time() + 600} | changes
    issuer.documents["/introspect"] = {key: value for key, value in claims.items() if value is not None}


async def test_the_issuer_is_asked_with_our_credentials(issuer: Issuer) -> None:
    world = introspecting(issuer)
    active(issuer)
    judged = await world.judge("opaque")
    assert judged.owner == "anna@contoso.com"
    assert judged.known_until == pytest.approx(world.now + 60.0)
    request = issuer.requests[-1]
    assert request.headers["authorization"] == httpx2.BasicAuth("us", "hush%3A1")._auth_header
    assert request.content == b"token=opaque&token_type_hint=access_token"


async def test_what_is_not_active_is_wrong_and_not_asked_about_again_at_once(issuer: Issuer) -> None:
    world = introspecting(issuer)
    for _ in range(3):
        assert not await world.good("opaque")
    assert issuer.asked.count("/introspect") == 1
    active(issuer)
    world.clock += 6.0
    assert await world.good("opaque")


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "files"},
        {"aud": None},
        {"iss": "https://evil.example"},
        {"exp": 1},
        {"exp": "soon"},
        {"exp": True},
        {"nbf": 9e9},
        {"token_type": "DPoP"},
        {"cnf": {"jkt": "x"}},
        {"email": None},
    ],
)
async def test_an_active_token_must_be_for_us_and_in_time(issuer: Issuer, changes: dict[str, Any]) -> None:
    active(issuer, **changes)
    assert not await introspecting(issuer).good("opaque")


@pytest.mark.parametrize(
    "fault",
    [
        *FAULTS[:8],
        httpx2.Response(401, content=b"{}"),
        httpx2.Response(200, content=b'{"active": "true"}'),
        httpx2.Response(200, content=b"{}"),
    ],
    ids=lambda fault: repr(fault)[:40],
)
async def test_a_fault_of_introspection_is_temporary(issuer: Issuer, fault: Exception | httpx2.Response) -> None:
    """Also where it is our own credentials that are wrong: that is no fault of the user's."""
    world = introspecting(issuer, introspection_uri=f"{ISSUER}/introspect")
    issuer.fault = fault
    with pytest.raises(TokenVerifierUnavailable) as raised:
        await world.judge("opaque-secret")
    assert "opaque-secret" not in str(raised.value)
    issuer.fault = None
    active(issuer)
    assert await world.good("opaque-secret")


async def test_one_question_for_all_who_show_the_same_token(issuer: Issuer) -> None:
    world = introspecting(issuer)
    active(issuer)
    issuer.held = asyncio.Event()
    waiting = [asyncio.ensure_future(world.judge("opaque")) for _ in range(20)]
    for _ in range(3):
        await asyncio.sleep(0)
    waiting[0].cancel()
    issuer.held.set()
    assert all([(await each).owner for each in waiting[1:]])
    assert issuer.asked.count("/introspect") == 1


async def test_a_jwt_of_another_issuer_is_shown_to_nobody(issuer: Issuer) -> None:
    world = introspecting(issuer)
    active(issuer)
    assert not await world.good(token(iss="https://id.fabrikam.com"))
    assert issuer.asked == []
    assert await world.good(token())


async def test_a_closed_verifier_asks_nobody(world: World, issuer: Issuer) -> None:
    world.tokens.start()
    world.tokens.close()
    await world.tokens.wait_closed()


async def test_what_was_absent_is_there_when_a_fetch_under_way_brings_it(world: World, issuer: Issuer) -> None:
    """A key that was looked for in vain and is published after that counts with the next fetch, whoever began it."""
    assert await world.good(token("one"))
    assert not await world.good(token("two"))
    issuer.keys("one", "two")
    world.clock += 301.0
    assert await world.good(token("one"))  # begins a fetch behind
    assert await world.good(token("two"))
