"""HTTP Bearer at the door (RFC 6750): what is asked for, what goes on; no fault looks like a wrong token."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from http_harness import HEADER_SIGN_IN, PASSWORD, World, get, head_of, mailbox_server, response

from gatepost.access.http.bearer import read_bearer
from gatepost.directory.port import SignInResult, User, Verdict
from gatepost.organization.model import HttpSignIn, PathClass, Protocol, SignIn
from gatepost.routing.decision import Mailbox
from gatepost.wire.events import TokenHelp

OWN = SignIn(token_audience="mbx-1")
MASTER = SignIn(http=HttpSignIn.MASTER, master_user="gatepost", master_password="hush")
TOKEN = "eyJ.token-of-alice.x"


class FakeTokens:
    """Judges tokens for a `FakeSignIn`; `known` are answered at once."""

    def __init__(self, world: World) -> None:
        self.results: dict[str, SignInResult] = {}
        self.known: set[str] = set()
        self.asked: list[str] = []
        sign_in = world.sign_in
        sign_in.accepts_tokens = True
        sign_in.token = self._token  # type: ignore[attr-defined]
        sign_in.token_now = self._token_now  # type: ignore[attr-defined]
        sign_in.token_help = lambda protocol: TokenHelp("mail")  # type: ignore[method-assign]
        world.door.takes_token = lambda route: True  # type: ignore[method-assign]

    def put(self, token: str, result: SignInResult, *, known: bool = False) -> None:
        self.results[token] = result
        if known:
            self.known.add(token)

    async def _token(self, name: str, token: str, protocol: Protocol, client: str) -> SignInResult:
        assert (name, protocol) == ("", Protocol.HTTPS)
        self.asked.append(token)
        await asyncio.sleep(0)
        return self.results.get(token, SignInResult(Verdict.WRONG_CREDENTIALS, reason="not good"))

    def _token_now(self, name: str, token: str, protocol: Protocol, client: str) -> SignInResult | None:
        return self.results[token] if token in self.known else None


def alice(*audiences: str) -> SignInResult:
    return SignInResult(Verdict.SIGNED_IN, User("alice", Mailbox("DB1")), audiences=audiences)


def shown(token: str = TOKEN, path: str = "/owa/", scheme: str = "Bearer") -> bytes:
    return get(path, f"Authorization: {scheme} {token}", user="")


async def asked(world: World, request: bytes) -> bytes:
    """What a client gets; refusals come late."""
    client = world.client()
    early = await client.send(request)
    await world.pass_time(5)
    return early + client.transport.take()


def make(sign_in: SignIn) -> tuple[World, FakeTokens]:
    world = World([mailbox_server("MBX-1", sign_in=sign_in), mailbox_server("MBX-2")])
    return world, FakeTokens(world)


async def test_a_token_lets_the_request_on_and_does_not_reach_a_server_it_is_not_meant_for() -> None:
    world, tokens = make(HEADER_SIGN_IN)
    tokens.put(TOKEN, alice("mbx-1", "mbx-9"))
    client = world.client()
    await client.send(shown())
    told = await client.serve(response())
    assert b"X-Remote-User: alice\r\n" in told
    assert TOKEN.encode() not in told
    assert b"Bearer" not in told


async def test_a_token_that_is_meant_for_the_server_is_passed_on() -> None:
    world, tokens = make(OWN)
    tokens.put(TOKEN, alice("mail", "mbx-1"))
    client = world.client()
    await client.send(shown())
    assert f"Authorization: Bearer {TOKEN}\r\n".encode() in await client.serve(response())


@pytest.mark.parametrize(
    ("sign_in", "audiences"),
    [(OWN, ("mail",)), (OWN, ()), (OWN, ("MBX-1",)), (SignIn(), ("mbx-1",)), (SignIn(), ("",))],
)  # fmt: skip
async def test_a_server_that_wants_a_password_does_not_get_a_token_instead(
    sign_in: SignIn, audiences: tuple[str, ...]
) -> None:
    """503, not 401: it is no fault of the client's."""
    world, tokens = make(sign_in)
    tokens.put(TOKEN, alice(*audiences))
    answer = await asked(world, shown())
    assert head_of(answer)[0].startswith("HTTP/1.1 503")


async def test_a_server_of_a_master_user_is_signed_in_at_by_basic() -> None:
    world, tokens = make(MASTER)
    tokens.put(TOKEN, alice())
    client = world.client()
    await client.send(shown())
    told = await client.serve(response())
    assert b"Authorization: Basic YWxpY2UqZ2F0ZXBvc3Q6aHVzaA==\r\n" in told  # alice*gatepost:hush


async def test_a_token_that_is_known_is_not_judged_again() -> None:
    world, tokens = make(HEADER_SIGN_IN)
    tokens.put(TOKEN, alice(), known=True)
    client = world.client()
    for _ in range(3):
        assert head_of(await client.ask(shown(), response()))[0] == "HTTP/1.1 200 OK"
    assert tokens.asked == []


async def test_another_token_on_the_same_connection_is_another_user() -> None:
    world, tokens = make(HEADER_SIGN_IN)
    tokens.put("a.b.c", alice(), known=True)
    tokens.put("d.e.f", SignInResult(Verdict.SIGNED_IN, User("carol", Mailbox("DB1"))), known=True)
    client = world.client()
    for token, name in (("a.b.c", b"alice"), ("d.e.f", b"carol"), ("a.b.c", b"alice")):
        await client.send(shown(token))
        assert b"X-Remote-User: %b\r\n" % name in await client.serve(response())


async def test_challenges_by_class_of_path() -> None:
    """Programs and phones hear of tokens; a browser without one could not get it; errors are for who has shown one."""
    for kind in PathClass:
        world, _ = make(HEADER_SIGN_IN)
        world.router.path_class = lambda path, kind=kind: (kind, "owa")  # type: ignore[misc]
        answer = await asked(world, get(user=""))
        assert answer.startswith(b"HTTP/1.1 401")
        offered = b'WWW-Authenticate: Bearer realm="contoso", scope="mail"\r\n' in answer
        assert offered is (kind is not PathClass.INTERACTIVE)
        assert b"WWW-Authenticate: Basic" in answer
        assert b"error=" not in answer
        answer = await asked(world, shown("other.x.y"))
        assert answer.startswith(b"HTTP/1.1 401")
        assert b'WWW-Authenticate: Bearer realm="contoso", scope="mail", error="invalid_token"\r\n' in answer


async def test_a_missing_scope_is_403() -> None:
    world, tokens = make(HEADER_SIGN_IN)
    lacks = replace(alice(), verdict=Verdict.PROTOCOL_NOT_ALLOWED, reason="lacks", lacks="mail.web")
    tokens.put(TOKEN, lacks)
    answer = await asked(world, shown())
    assert answer.startswith(b"HTTP/1.1 403")
    assert b'scope="mail.web", error="insufficient_scope"\r\n' in answer


async def test_who_may_not_use_the_protocol_hears_nothing_of_scopes() -> None:
    world, tokens = make(HEADER_SIGN_IN)
    tokens.put(TOKEN, replace(alice(), verdict=Verdict.PROTOCOL_NOT_ALLOWED))
    answer = await asked(world, shown())
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"Bearer" not in answer


@pytest.mark.parametrize("path", ["/ews/exchange.asmx", "/Microsoft-Server-ActiveSync", "/owa/"])
@pytest.mark.parametrize("verdict", [Verdict.UNAVAILABLE, Verdict.BUSY])
async def test_a_temporary_fault_is_503_with_retry_after(path: str, verdict: Verdict) -> None:
    world, tokens = make(HEADER_SIGN_IN)
    tokens.put(TOKEN, SignInResult(verdict, reason="the issuer is down"))
    first, fields, _ = head_of(await asked(world, shown(path=path)))
    assert first.startswith("HTTP/1.1 503")
    assert int(fields["retry-after"]) > 0
    assert "www-authenticate" not in fields


async def test_a_malformed_token_is_400() -> None:
    world, tokens = make(HEADER_SIGN_IN)
    for token in ("", "two words", "a=b", "\xe9"):
        answer = await asked(world, shown(token))
        assert answer.startswith(b"HTTP/1.1 400"), token
        assert b'error="invalid_request"' in answer
    assert tokens.asked == []


async def test_where_a_directory_takes_no_tokens_they_are_no_credentials() -> None:
    world, tokens = make(HEADER_SIGN_IN)
    world.door.takes_token = lambda route: False  # type: ignore[method-assign]
    tokens.put(TOKEN, alice(), known=True)
    answer = await asked(world, shown())
    assert answer.startswith(b"HTTP/1.1 401")
    assert b"Bearer" not in answer


async def test_basic_still_counts_beside_tokens() -> None:
    world, _ = make(HEADER_SIGN_IN)
    client = world.client()
    assert head_of(await client.ask(get(user="alice"), response()))[0] == "HTTP/1.1 200 OK"
    assert PASSWORD


@pytest.mark.parametrize(
    ("value", "token"),
    [
        (None, None),
        (b"Basic YTpi", None),
        (b"Bearer a.b-c_d~e+f/g==", "a.b-c_d~e+f/g=="),
        (b"bEARER   x ", "x"),
        (b"Bearer", ""),
        (b"Bearer x y", ""),
        (b"Bearer x\xff", ""),
        (b"BearerX x", None),
    ],
)
def test_how_a_token_is_written(value: bytes | None, token: str | None) -> None:
    """RFC 6750 section 2.1."""
    assert read_bearer(value) == token
