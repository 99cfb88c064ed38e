"""HTTP requests while their database moves or fails over, and at a server that has not the database (SPEC A3)."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from http_harness import PASSWORD, Client, World, get, head_of, mailbox_server, response

from gatepost.access import registry_age
from gatepost.access.http.movable import MAX_REPLAYED
from gatepost.activemanager.port import Lease, Move, RegistryView
from gatepost.configuration.settings import Limits
from gatepost.organization.model import Database, DatabaseCopy, SignIn

LEASE = Lease("manager", "CAS-01", 1, 10.0)
REFUSED = ConnectionRefusedError(111, "Connection refused")
NOT_MINE = response("421 Misdirected Request", body=b"not mine")


class Fleet(World):
    """Two servers with copies of both databases."""

    def __init__(self, *, send_epoch: bool = False, **limits: Any) -> None:
        how = SignIn(send_epoch=send_epoch)
        super().__init__(
            [mailbox_server("MBX-1", sign_in=how), mailbox_server("MBX-2", sign_in=how)], limits=Limits(**limits)
        )
        copies = (DatabaseCopy("MBX-1", 1), DatabaseCopy("MBX-2", 2))
        databases = {name: Database(name, copies) for name in ("DB1", "DB2")}
        self.organization = replace(self.organization, databases=databases)
        self.configuration = replace(self.configuration, organization=self.organization)
        self.door.reload(self.configuration, self.context)
        self.managed = True
        self.tell()

    def tell(self, *moving: str) -> None:
        """Have the door know what the registry says now."""
        moves = {name: Move(name, "MBX-1", "MBX-2", 1, 0.0) for name in moving}
        view: RegistryView = replace(
            self.router.view, moves=MappingProxyType(moves), manager=LEASE if self.managed else None
        )
        self.door.parking.set_view(view)

    def move(self, database: str = "DB1", server: str = "MBX-2") -> None:
        """It has another home."""
        self.active[database] = server
        self.epochs[database] = self.epochs.get(database, 1) + 1
        self.tell()

    @property
    def asked(self) -> list[str]:
        """Addresses that connections were made to, in order."""
        return [address for address, _, _ in self.loop.connects]


MBX_1, MBX_2 = "127.0.2.1", "127.0.2.2"


async def test_a_request_during_a_move_waits_and_goes_to_the_new_server() -> None:
    """Whatever its method: nothing has been sent anywhere."""
    for method, body in (("GET", b""), ("POST", b"text"), ("DELETE", b"")):
        world = Fleet()
        world.tell("DB1")
        client = world.client()
        assert await client.send(get("/owa/x", method=method, body=body)) == b""
        assert world.asked == []
        world.move()
        await world.settle()
        assert world.asked == [MBX_2]
        got = await client.serve(response(body=b"new"))
        assert got.startswith(method.encode())
        assert got.endswith(body)
        assert client.transport.take().endswith(b"new")


async def test_other_databases_do_not_wait() -> None:
    world = Fleet()
    world.tell("DB1")
    await world.client().ask(get(user="bob"), response())
    assert world.asked == [MBX_2]


async def test_a_request_on_a_connection_that_has_served_before_waits_as_well() -> None:
    """The pool's connection to the old server is no way around the move."""
    world = Fleet()
    client = world.client()
    await client.ask(get(), response())
    world.tell("DB1")
    assert await client.send(get()) == b""
    world.move()
    await world.settle()
    assert world.asked == [MBX_1, MBX_2]


async def test_a_move_that_takes_too_long_is_503_with_retry_after() -> None:
    world = Fleet(parking_seconds=20.0)
    world.tell("DB1")
    client = world.client()
    await client.send(get("/ews/x"))
    await world.pass_time(19)
    assert client.transport.take() == b""
    await world.pass_time(2)
    first, fields, body = head_of(client.transport.take())
    assert first.startswith("HTTP/1.1 503 ")
    assert int(fields["retry-after"]) > 0
    assert b"ErrorMailboxStoreUnavailable" in body
    assert world.asked == []


async def test_who_leaves_while_parked_leaves_nothing_behind() -> None:
    world = Fleet()
    world.tell("DB1")
    client = world.client()
    await client.send(get())
    assert len(world.door.parking) == 1
    client.transport.lose()
    assert len(world.door.parking) == 0
    world.move()
    await world.settle()
    assert world.asked == []
    assert world.door.slots.used == 0


async def test_too_many_parked_are_told_to_come_back() -> None:
    world = Fleet(parked=1)
    world.tell("DB1")
    first, second = world.client(), world.client()
    await first.send(get())
    assert head_of(await second.send(get()))[0].startswith("HTTP/1.1 503 ")
    world.move()
    await world.settle()
    await first.serve(response())
    assert first.transport.take().startswith(b"HTTP/1.1 200 ")


# --- a failover


@pytest.mark.parametrize(("method", "body"), [("GET", b""), ("POST", b"text")])
async def test_a_server_that_cannot_be_reached_is_waited_for_or_the_next(method: str, body: bytes) -> None:
    """Not even a POST can have run: there was no connection."""
    world = Fleet()
    world.loop.refuse = [REFUSED]
    client = world.client()
    assert await client.send(get(method=method, body=body)) == b""
    assert len(world.door.parking) == 1
    world.move()
    await world.settle()
    await client.serve(response())
    assert client.transport.take().startswith(b"HTTP/1.1 200 ")
    assert world.asked == [MBX_1, MBX_2]
    assert world.log.of("http.refused") == []


async def test_a_server_that_comes_back_is_used_again() -> None:
    world = Fleet()
    world.loop.refuse = [REFUSED]
    client = world.client()
    await client.send(get())
    await world.pass_time(2)
    assert world.asked == [MBX_1, MBX_1]
    await client.serve(response())
    assert client.transport.take().startswith(b"HTTP/1.1 200 ")


async def test_a_failover_that_does_not_come_is_503() -> None:
    """After `parking_seconds`, and few attempts."""
    world = Fleet(parking_seconds=20.0)
    world.loop.refuse = [REFUSED] * 20
    client = world.client()
    await client.send(get())
    for _ in range(19):
        await world.pass_time(1)
    assert client.transport.take() == b""
    await world.pass_time(2)
    assert head_of(client.transport.take())[0].startswith("HTTP/1.1 503 ")
    assert 4 <= len(world.asked) <= 8


@pytest.mark.parametrize("why", ["nobody manages", "no other copy"])
async def test_without_hope_nobody_waits(why: str) -> None:
    world = Fleet()
    if why == "nobody manages":
        world.managed = False
        world.tell()
    else:
        alone = {"DB1": Database("DB1", (DatabaseCopy("MBX-1", 1),))}
        organization = replace(world.organization, databases=alone)
        world.door.reload(replace(world.configuration, organization=organization), world.context)
    world.loop.refuse = [REFUSED]
    client = world.client()
    assert (await client.send(get())).startswith(b"HTTP/1.1 503 ")


# --- in flight


async def in_flight(world: Fleet, request: bytes) -> Client:
    """A request whose server dies before it answers; nobody else is there yet."""
    client = world.client()
    await client.send(request)
    world.servers[0].lose(ConnectionResetError())
    await world.settle()
    return client


def dav(method: str, body: bytes, *lines: str) -> bytes:
    return get("/dav/x", *lines, method=method, body=body)


@pytest.mark.parametrize(
    "request_",
    [get("/owa/x"), dav("PROPFIND", b""), dav("REPORT", b"<query/>"), dav("PUT", b"")],
    ids=["GET", "PROPFIND", "REPORT with a body", "PUT without one"],
)
async def test_what_leaves_no_doubt_is_sent_once_more_to_the_new_server(request_: bytes) -> None:
    """The whole request, byte for byte; the client notices nothing."""
    world = Fleet()
    client = await in_flight(world, request_)
    assert client.transport.take() == b""
    world.move()
    await world.settle()
    got = await client.serve(response(body=b"from the new one"))
    assert got.split(b" ")[0] == request_.split(b" ")[0]
    assert got.partition(b"\r\n\r\n")[2] == request_.partition(b"\r\n\r\n")[2]
    assert client.transport.take().endswith(b"from the new one")


async def test_a_kept_connection_lost_to_a_dead_server_leads_to_the_next() -> None:
    """kill -9 closes all of them at once; a new one is refused; then another server has the database."""
    world = Fleet()
    client = world.client()
    await client.ask(get(), response())
    await client.send(get("/owa/again"))
    world.loop.refuse = [REFUSED]
    world.servers[0].lose(ConnectionResetError())
    await world.settle()
    assert client.transport.take() == b""
    world.move()
    await world.settle()
    assert (await client.serve(response())).startswith(b"GET /owa/again ")
    assert client.transport.take().startswith(b"HTTP/1.1 200 ")
    assert world.asked == [MBX_1, MBX_1, MBX_2]


@pytest.mark.parametrize(
    "request_",
    [
        get("/owa/x", method="POST", body=b"send this"),
        get("/owa/x", method="POST"),
        dav("PUT", b"BEGIN:VCALENDAR"),
        dav("PUT", b"", "If-None-Match: *"),
        dav("DELETE", b"", 'If-Match: "1"'),
        dav("REPORT", b"x" * (MAX_REPLAYED + 1)),
    ],
    ids=["POST", "POST without a body", "PUT", "PUT if new", "DELETE if same", "more than is kept"],
)
async def test_what_may_have_run_is_not_sent_again(request_: bytes) -> None:
    """503 and `Retry-After`: the client must look first. A condition would not hold the second time."""
    world = Fleet()
    client = await in_flight(world, request_)
    first, fields, _ = head_of(client.transport.take())
    assert first.startswith("HTTP/1.1 503 ")
    assert "retry-after" in fields
    world.move()
    await world.settle()
    assert MBX_2 not in world.asked


async def test_it_is_sent_once_more_and_no_more() -> None:
    world = Fleet()
    client = await in_flight(world, get())
    world.move()
    await world.settle()
    world.servers[-1].lose(ConnectionResetError())
    await world.settle()
    assert head_of(client.transport.take())[0].startswith("HTTP/1.1 503 ")


async def test_a_response_that_has_begun_is_not_begun_again() -> None:
    world = Fleet()
    client = world.client()
    await client.send(get())
    await client.serve(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
    world.move()
    world.servers[0].lose(ConnectionResetError())
    await world.settle()
    assert client.transport.aborted
    assert world.asked == [MBX_1]


async def test_when_the_registry_has_moved_on_already_it_goes_there_at_once() -> None:
    world = Fleet()
    client = world.client()
    await client.send(get())
    world.move()
    world.servers[0].lose(ConnectionResetError())
    await world.settle()
    assert world.asked == [MBX_1, MBX_2]
    await client.serve(response())
    assert client.transport.take().startswith(b"HTTP/1.1 200 ")


async def test_a_body_that_has_come_in_part_is_sent_again_and_goes_on() -> None:
    """The rest follows on the new connection."""
    world = Fleet()
    client = world.client()
    whole = dav("REPORT", b"0123456789")
    await client.send(whole[:-4])
    world.servers[0].lose(ConnectionResetError())
    await world.settle()
    world.move()
    await world.settle()
    await client.send(whole[-4:])
    got = await client.serve(response())
    assert got.endswith(b"\r\n\r\n0123456789")


async def test_a_chunked_body_is_sent_again_in_chunks() -> None:
    world = Fleet()
    client = await in_flight(
        world, get("/dav/x", "Transfer-Encoding: chunked", method="REPORT") + b"5\r\nhello\r\n0\r\n\r\n"
    )
    world.move()
    await world.settle()
    got = await client.serve(response())
    assert got.endswith(b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n")


# --- fencing


async def test_the_epoch_goes_to_servers_that_want_it_and_no_client_says_it() -> None:
    """By two header fields, with the database of the request."""
    for send_epoch in (True, False):
        world = Fleet(send_epoch=send_epoch)
        world.epochs["DB1"] = 7
        world.tell()
        client = world.client()
        await client.send(get("/owa/", "X-Gatepost-Epoch: 99", "X-Gatepost-Database: DB2"))
        _, fields, _ = head_of(await client.serve(response()))
        told = {name: value for name, value in fields.items() if name.startswith("x-gatepost-")}
        assert told == ({"x-gatepost-database": "DB1", "x-gatepost-epoch": "7"} if send_epoch else {})


@pytest.fixture(autouse=True)
def _looks_follow_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_age, "AGAIN_SECONDS", 0)


async def wrong_server(world: Fleet, request: bytes, server: str = "MBX-2") -> Client:
    """A request at a server that answers 421; the registry, asked, says `server`."""
    world.router.when_asked = lambda: world.move("DB1", server)
    client = world.client()
    await client.send(request)
    await client.serve(NOT_MINE)
    await world.settle()
    return client


@pytest.mark.parametrize(("method", "body"), [("GET", b""), ("POST", b"text")])
async def test_421_has_the_registry_asked_anew_and_the_request_sent_there(method: str, body: bytes) -> None:
    """Field case 12. 421 says that nothing was done, so any method may go again."""
    world = Fleet(send_epoch=True)
    client = await wrong_server(world, get(method=method, body=body))
    assert (world.router.looks, world.router.forgotten) == (1, ["DB1"])
    assert world.asked == [MBX_1, MBX_2]
    got = await client.serve(response())
    assert got.endswith(b"\r\n\r\n" + body)
    assert b"X-Gatepost-Epoch: 2\r\n" in got
    assert client.transport.take().startswith(b"HTTP/1.1 200 ")


async def test_servers_that_send_to_each_other_are_no_endless_loop() -> None:
    """One look, one more attempt, 503. The client never sees 421, which would say that it asked the wrong front end."""
    world = Fleet()
    client = await wrong_server(world, get())
    await client.serve(NOT_MINE)
    await world.settle()
    assert world.router.looks == 1
    assert world.asked == [MBX_1, MBX_2]
    first, fields, _ = head_of(client.transport.take())
    assert first.startswith("HTTP/1.1 503 ")
    assert "retry-after" in fields


async def test_a_body_that_was_not_kept_is_not_sent_again() -> None:
    """A server that is not told the epoch says 421 for reasons of its own."""
    world = Fleet()
    client = await wrong_server(world, get(method="POST", body=b"text"))
    assert world.router.looks == 0
    assert head_of(client.transport.take())[0].startswith("HTTP/1.1 503 ")


async def test_who_leaves_while_the_registry_is_asked_leaves_nothing_behind() -> None:
    world = Fleet()
    client = world.client()
    world.router.when_asked = client.transport.lose
    await client.send(get())
    await client.serve(NOT_MINE)
    await world.settle()
    assert world.asked == [MBX_1]
    assert world.door.slots.used == 0
    assert PASSWORD not in str(world.log.lines)
