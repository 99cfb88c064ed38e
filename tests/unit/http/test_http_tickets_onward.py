"""Mailbox servers that want tickets of their users (constrained delegation): each request waits for its own."""

from __future__ import annotations

import asyncio

import pytest
from http_harness import Client, World, get, mailbox_server, response

from gatepost.access.end_point_binding import end_point_binding
from gatepost.directory.kerberos_port import NoTicket
from gatepost.organization.model import HttpSignIn, SignIn
from gatepost.wire.events import SaslDialogue

BY_TICKET = SignIn(http=HttpSignIn.KERBEROS)


class FakeOnward:
    """Has `ticket NUMBER for USER`; `fault` instead; `gate` holds it back."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bytes]] = []
        self.dropped: list[tuple[str, str]] = []
        self.fault = ""
        self.gate = asyncio.Event()
        self.gate.set()

    async def web_token(self, user: str, service: str, binding: bytes) -> bytes:
        self.asked.append((user, service, binding))
        number = len(self.asked)
        await self.gate.wait()
        if self.fault:
            raise NoTicket(self.fault)
        return f"ticket {number} for {user}".encode()

    async def dialogue(self, user: str, service: str) -> SaslDialogue:
        raise NotImplementedError

    async def as_peer(self, service: str, binding: bytes, payload: bytes) -> tuple[bytes, bytes]:
        raise NotImplementedError

    def refused(self, user: str, service: str) -> None:
        self.dropped.append((user, service))

    def peer_refused(self, service: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


@pytest.fixture
async def world() -> World:
    """alice and carol are on MBX-1."""
    return World([mailbox_server("MBX-1", sign_in=BY_TICKET), mailbox_server("MBX-2", sign_in=BY_TICKET)])


@pytest.fixture
def onward(world: World) -> FakeOnward:
    world.sign_in.onward = found = FakeOnward()
    return found


async def _send(world: World, client: Client, request: bytes) -> bytes:
    """What the client has got when all has come to rest."""
    got = await client.send(request)
    await world.settle()
    return got + client.transport.take()


async def test_the_server_gets_a_ticket_and_no_password(world: World, onward: FakeOnward) -> None:
    client = world.client()
    await _send(world, client, get())
    told = await client.serve(response())
    assert b"\r\nAuthorization: Negotiate dGlja2V0IDEgZm9yIGFsaWNl\r\n" in told
    assert told.count(b"Authorization:") == 1
    assert onward.asked == [("alice", "HTTP/mbx-1.contoso.com", b"")]
    assert client.transport.take().endswith(b"hello")


async def test_each_request_has_a_ticket_of_its_own(world: World, onward: FakeOnward) -> None:
    """Each is taken once; on the same connection, which nobody else uses."""
    client, other = world.client(), world.client()
    for _ in range(2):
        await _send(world, client, get())
        await client.serve(response())
    await _send(world, other, get(user="carol"))
    assert [user for user, _, _ in onward.asked] == ["alice", "alice", "carol"]
    assert len(world.servers) == 2


async def test_a_body_waits_for_the_ticket_too(world: World, onward: FakeOnward) -> None:
    onward.gate.clear()
    client = world.client()
    await _send(world, client, get(method="POST", body=b"0123456789"))
    assert world.servers[0].take() == b""
    onward.gate.set()
    await world.settle()
    told = world.servers[0].take()
    assert b"Negotiate" in told
    assert told.endswith(b"0123456789")


async def test_no_ticket_is_a_temporary_fault_and_the_log_has_the_reason(world: World, onward: FakeOnward) -> None:
    onward.fault = "configuration: svc-mail may not get a ticket"
    client = world.client()
    answer = await _send(world, client, get())
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After" in answer
    assert b"svc-mail" not in answer
    assert world.log.of("http.refused")[0]["reason"] == "MBX-1: configuration: svc-mail may not get a ticket"


async def test_without_kerberos_there_is_none(world: World) -> None:
    client = world.client()
    assert (await _send(world, client, get())).startswith(b"HTTP/1.1 503 ")


async def test_a_ticket_that_the_server_refuses_is_thrown_away(world: World, onward: FakeOnward) -> None:
    """Its key may be another by now. The user was judged right here, so it is no wrong password."""
    client = world.client()
    await _send(world, client, get())
    await client.serve(response("401 Unauthorized", "WWW-Authenticate: Negotiate"))
    answer = client.transport.take()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"WWW-Authenticate" not in answer
    assert onward.dropped == [("alice", "HTTP/mbx-1.contoso.com")]


async def test_a_client_that_goes_away_meanwhile_leaves_nothing_behind(world: World, onward: FakeOnward) -> None:
    onward.gate.clear()
    client = world.client()
    await _send(world, client, get())
    client.transport.lose()
    onward.gate.set()
    await world.settle()
    assert world.servers[0].take() == b""
    assert world.servers[0].aborted  # bound to alice already


async def test_a_server_that_closes_meanwhile_gets_nothing(world: World, onward: FakeOnward) -> None:
    onward.gate.clear()
    client = world.client()
    await _send(world, client, get())
    world.servers[0].lose()
    onward.gate.set()
    await world.settle()
    assert world.servers[0].take() == b""


def test_what_cannot_be_read_binds_to_nothing() -> None:
    assert end_point_binding(b"no certificate") == b""
