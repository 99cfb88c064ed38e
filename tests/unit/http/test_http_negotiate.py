"""HTTP Negotiate at the door: what is offered, what goes on, and faults that never look like a wrong password."""

from __future__ import annotations

import asyncio
import base64

import pytest
from http_harness import HEADER_SIGN_IN, World, basic, get, head_of, mailbox_server, response

from gatepost.access.http.negotiate import read_negotiate
from gatepost.directory.kerberos_port import Accepted, Challenge
from gatepost.directory.port import SignInResult, Verdict
from gatepost.organization.model import Protocol


class FakeKerberos:
    """Takes `ticket of NAME`; `more` asks for another token first."""

    def __init__(self) -> None:
        self.verdict: SignInResult | None = None
        self.begun = 0

    def serves(self, protocol: Protocol) -> bool:
        return True

    def begin(self, protocol: Protocol, client: str) -> FakeKerberos:
        self.begun += 1
        return self

    def close(self) -> None:
        pass

    async def step(self, token: bytes) -> Challenge | Accepted | SignInResult:
        await asyncio.sleep(0)
        if self.verdict is not None:
            return self.verdict
        if token == b"more":
            return Challenge(b"yes?")
        if token.startswith(b"ticket of "):
            name = token.removeprefix(b"ticket of ").decode()
            return Accepted(name, f"{name.partition('@')[0]}@AD", b"it is us")
        return SignInResult(Verdict.WRONG_CREDENTIALS, reason="Kerberos: not a token")


@pytest.fixture
async def world() -> World:
    """MBX-1 is told who the user is; MBX-2, with bob, wants the user's own password."""
    return World([mailbox_server("MBX-1", sign_in=HEADER_SIGN_IN), mailbox_server("MBX-2")])


@pytest.fixture
def kerberos(world: World) -> FakeKerberos:
    world.sign_in.kerberos = found = FakeKerberos()
    world.door.takes_ticket = lambda route: True  # type: ignore[method-assign]
    return found


def _with(token: bytes) -> bytes:
    line = b"Authorization: Negotiate " + base64.b64encode(token)
    return get(user="").replace(b"\r\n\r\n", b"\r\n" + line + b"\r\n\r\n")


async def test_a_ticket_lets_the_request_on(world: World, kerberos: FakeKerberos) -> None:
    """And the answer has our token, so that the client knows whom it speaks to."""
    answer = await world.client().ask(_with(b"ticket of alice"), response())
    first, fields, body = head_of(answer)
    assert first == "HTTP/1.1 200 OK"
    assert fields["www-authenticate"] == f"Negotiate {base64.b64encode(b'it is us').decode()}"
    assert body == b"hello"


async def test_the_ticket_does_not_reach_a_server(world: World, kerberos: FakeKerberos) -> None:
    client = world.client()
    await client.send(_with(b"ticket of alice"))
    told = await client.serve(response())
    assert b"GET /owa/" in told
    assert b"Negotiate" not in told


async def test_a_server_that_wants_the_users_password_gets_none(world: World, kerberos: FakeKerberos) -> None:
    """Nobody knows it: a fault of the configuration, told as a temporary one, and the reason is in the log."""
    answer = await world.client().send(_with(b"ticket of bob"))
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert "wants the user's password" in world.log.of("http.refused")[0]["reason"]


async def test_both_ways_are_offered(world: World, kerberos: FakeKerberos) -> None:
    answer = await world.client().send(get(user=""))
    assert answer.index(b"WWW-Authenticate: Negotiate\r\n") < answer.index(b"WWW-Authenticate: Basic ")


async def test_without_integrated_authentication_a_ticket_is_no_credential(world: World) -> None:
    world.sign_in.kerberos = kerberos = FakeKerberos()
    world.door.takes_ticket = lambda route: False  # type: ignore[method-assign]
    answer = await world.client().send(_with(b"ticket of alice"))
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"Negotiate" not in answer
    assert kerberos.begun == 0


async def test_another_round(world: World, kerberos: FakeKerberos) -> None:
    client = world.client()
    first, fields, _ = head_of(await client.send(_with(b"more")))
    assert first == "HTTP/1.1 401 Unauthorized"
    assert fields["www-authenticate"] == f"Negotiate {base64.b64encode(b'yes?').decode()}"
    assert (await client.ask(_with(b"ticket of alice"), response())).endswith(b"hello")
    assert kerberos.begun == 1


@pytest.mark.parametrize(
    ("verdict", "status"),
    [(Verdict.UNAVAILABLE, b"503"), (Verdict.BUSY, b"503"), (Verdict.WRONG_CREDENTIALS, b"401")],
)
async def test_what_a_refusal_looks_like(world: World, kerberos: FakeKerberos, verdict: Verdict, status: bytes) -> None:
    """A keytab that cannot be read is no wrong password."""
    kerberos.verdict = SignInResult(verdict, reason="Kerberos: so it is")
    client = world.client()
    written = await client.send(_with(b"any"))
    await world.pass_time(5)
    written += client.transport.take()
    assert written.startswith(b"HTTP/1.1 " + status)


async def test_basic_goes_on_beside_it(world: World, kerberos: FakeKerberos) -> None:
    line = basic("alice").encode()
    asked = get(user="").replace(b"\r\n\r\n", b"\r\n" + line + b"\r\n\r\n")
    assert (await world.client().ask(asked, response())).endswith(b"hello")


@pytest.mark.parametrize(
    ("value", "token"),
    [
        (None, None), (b"Basic eA==", None), (b"Negotiate eA==", b"x"), (b"negotiate  eA== ", b"x"),
        (b"Negotiate ?", b""), (b"Negotiate", None), (b"Negotiate eA", b""),
    ],
)  # fmt: skip
def test_the_field(value: bytes | None, token: bytes | None) -> None:
    assert read_negotiate(value) == token
