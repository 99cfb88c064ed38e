"""Bodies that are wanted whole before anything is decided have one time for all of it, however they come."""

from __future__ import annotations

import pytest
from http_harness import Client, World, basic, get, response

from gatepost.access.http import collected
from gatepost.access.http.collected import WHOLE_SECONDS
from gatepost.access.http.exchange import Exchange
from gatepost.organization.model import AuthenticationMethod, VirtualDirectory

TIMES = b"<Envelope><Body><GetUserAvailabilityRequest/></Body></Envelope>"
_WITH_PAGE = VirtualDirectory("CAS-01", "owa", "/owa", None, authentication=frozenset({AuthenticationMethod.FORMS}))


async def trickle(world: World, client: Client, pieces: int) -> bytes:
    """Send an octet every 10 seconds; what was answered."""
    got = b""
    for _ in range(pieces):
        if not client.transport.closed:
            got += await client.send(b"a")
        await world.pass_time(10)
    return got + client.transport.take()


@pytest.fixture
def form(monkeypatch: pytest.MonkeyPatch, world: World) -> Client:
    """A stranger who has announced a sign-in form of 16,000 octets."""
    forms = world.door.forms
    monkeypatch.setattr(forms, "_paths", {"/owa/auth.owa": (forms._auth, _WITH_PAGE)})
    return world.client()


FORM = b"POST /owa/auth.owa HTTP/1.1\r\nHost: mail.contoso.com\r\nContent-Length: 16000\r\n\r\n"


async def test_a_form_that_comes_octet_by_octet_ends_in_a_minute(world: World, form: Client) -> None:
    """Nobody has signed in: the connection must not be held for days."""
    assert await form.send(FORM) == b""
    assert (await trickle(world, form, 5)) == b""
    assert (await trickle(world, form, 2)).startswith(b"HTTP/1.1 408 ")
    assert world.log.of("http.refused")[-1]["reason"] == "the body took too long"


async def test_a_form_that_does_not_come_ends_in_a_minute(world: World, form: Client) -> None:
    await form.send(FORM)
    await world.pass_time(WHOLE_SECONDS + 1)
    assert form.transport.take().startswith(b"HTTP/1.1 408 ")


async def test_an_availability_request_has_the_same_time() -> None:
    """It is held in memory, and its user in no queue yet."""
    world = World()
    client = world.client()
    head = f"POST /ews/x HTTP/1.1\r\nHost: mail.contoso.com\r\n{basic('alice')}\r\nContent-Type: text/xml\r\n"
    await client.send(f"{head}Content-Length: 9000\r\n\r\n".encode())
    assert (await trickle(world, client, 7)).startswith(b"HTTP/1.1 408 ")
    assert world.loop.connects == []


async def test_the_servers_time_begins_when_the_body_is_there() -> None:
    """A server that thinks for long about a request whose body was wanted whole is waited for as for any other."""
    world = World()
    client = world.client()
    await client.send(get("/ews/x", "Content-Type: text/xml", method="POST", body=TIMES))
    await world.pass_time(10 * WHOLE_SECONDS)
    await client.serve(response())
    assert client.transport.take().startswith(b"HTTP/1.1 200 ")


def long_request(user: str, octets: int = 9000) -> bytes:
    """An Availability request whose last octet does not come."""
    head = f"POST /ews/x HTTP/1.1\r\nHost: mail.contoso.com\r\n{basic(user)}\r\nContent-Type: text/xml\r\n"
    return f"{head}Content-Length: {octets}\r\n\r\n".encode() + b" " * (octets - 1)


async def test_one_user_cannot_fill_the_memory_with_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over many connections; others' bodies are collected all the same, and what ends leaves room."""
    monkeypatch.setattr(collected, "MAX_OF_USER", 30_000)
    world = World()
    clients = [world.client() for _ in range(4)]
    answers = [await client.send(long_request("alice")) for client in clients]
    assert [answer[:13] for answer in answers] == [b"", b"", b"", b"HTTP/1.1 503 "]
    assert b"\r\nRetry-After: " in answers[3]
    assert await world.client().send(long_request("carol")) == b""
    clients[0].transport.lose()
    assert await world.client().send(long_request("alice")) == b""
    assert world.door.collecting.octets == 4 * 8999


async def test_all_bodies_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collected, "MAX_OF_ALL", 20_000)
    world = World()
    assert [(await world.client().send(long_request(user)))[:13] for user in ("alice", "carol", "bob")] == [
        b"",
        b"",
        b"HTTP/1.1 503 ",
    ]


async def test_nothing_is_counted_when_nothing_is_collected() -> None:
    """However it ends: complete, too large, too slow, given up; and what was sent on is not kept beside it."""
    world = World()
    done, large, slow, gone = (world.client() for _ in range(4))
    await done.send(get("/ews/x", "Content-Type: text/xml", method="POST", body=TIMES))
    exchange = done.leg.exchange
    assert isinstance(exchange, Exchange)
    assert exchange.collected is None
    await large.send(get("/ews/x", "Content-Type: text/xml", "Content-Length: 300000", method="POST"))
    await gone.send(long_request("carol"))
    gone.transport.lose()
    await slow.send(long_request("carol"))
    await world.pass_time(WHOLE_SECONDS + 1)
    assert slow.transport.take().startswith(b"HTTP/1.1 408 ")
    assert world.door.collecting.octets == 0
    assert world.door.collecting._by_user == {}
