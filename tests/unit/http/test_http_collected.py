"""Bodies that are wanted whole before anything is decided have one time for all of it, however they come."""

from __future__ import annotations

import pytest
from http_harness import Client, World, basic, get, response

from gatepost.access.http.collected import WHOLE_SECONDS
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
