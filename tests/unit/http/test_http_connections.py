"""Connections to servers: who may use them again, what happens when there is none, moves, drains, upgrades."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace

import pytest
from http_harness import World, directories, get, head_of, mailbox_server, response

from gatepost.configuration.settings import Configuration, Limits


async def test_connections_are_shared_by_users(world: World) -> None:
    """Plain Basic binds nothing: the next request, of another user of that server, takes the same connection."""
    await world.client().ask(get(user="alice"), response())
    await world.client().ask(get(user="carol"), response())
    assert len(world.servers) == 1


@pytest.mark.parametrize(
    "line", ["Persistent-Auth: true", "WWW-Authenticate: Negotiate oYG2", "WWW-Authenticate: NTLM"]
)
async def test_a_bound_connection_is_never_shared(world: World, line: str) -> None:
    """A server that signs a user in on the connection: it serves this user on this client connection only."""
    client = world.client()
    answer = await client.ask(get(user="alice"), response("200 OK", line))
    assert line.partition(":")[0].lower().encode() not in answer.lower()
    await world.client().ask(get(user="alice"), response())
    assert len(world.servers) == 2, "not for the same user on another client connection either"
    await client.ask(get(user="alice"), response(), 0)
    assert len(world.servers) == 2, "it is kept for its own"
    await client.ask(get(user="carol"), response())
    assert world.servers[0].aborted, "another user on that client connection: given up"


async def test_a_bound_connection_is_closed_with_its_client(world: World) -> None:
    """Pinned to the client's connection, and closed with it."""
    client = world.client()
    await client.ask(get(), response("200 OK", "Persistent-Auth: true"))
    client.transport.lose()
    assert world.servers[0].aborted


async def test_a_closed_connection_is_not_used(world: World) -> None:
    """A pooled connection that the server has closed meanwhile is passed over."""
    client = world.client()
    await client.ask(get(), response())
    world.servers[0].lose()
    assert (await client.ask(get(method="POST", body=b"x"), response())).endswith(b"hello")


async def test_a_stale_connection_is_replaced_once(world: World) -> None:
    """The server closes a kept connection just as a GET is sent: sent again, once (field case 19)."""
    client = world.client()
    await client.ask(get(), response())
    await client.send(get("/owa/second"))
    world.servers[0].lose(ConnectionResetError())
    await world.settle()
    assert client.transport.take() == b""
    assert world.servers[1].written.startswith(b"GET /owa/second ")
    world.servers[1].lose(ConnectionResetError())
    await world.settle()
    assert client.transport.take().startswith(b"HTTP/1.1 503 ")
    assert len(world.servers) == 2


@pytest.mark.parametrize("request_", [get(method="POST"), get(method="POST", body=b"x"), get(method="PUT", body=b"x")])
async def test_what_may_have_happened_is_not_repeated(world: World, request_: bytes) -> None:
    """A POST, or a body that has been sent, is never sent twice: 503."""
    client = world.client()
    await client.ask(get(), response())
    await client.send(request_)
    world.servers[0].lose()
    await world.settle()
    assert client.transport.take().startswith(b"HTTP/1.1 503 ")
    assert len(world.servers) == 1


async def test_a_fresh_connection_that_dies_is_a_fault(world: World) -> None:
    """Only kept connections are replaced: a server that closes on every request is not asked for ever."""
    client = world.client()
    await client.send(get())
    world.servers[0].lose()
    await world.settle()
    assert client.transport.take().startswith(b"HTTP/1.1 503 ")
    assert len(world.servers) == 1


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        OSError(113, "No route to host"),
        TimeoutError(),
        ssl.SSLCertVerificationError(1, "certificate verify failed"),
        ssl.SSLError(1, "wrong version number"),
    ],
)
async def test_a_server_that_cannot_be_reached_is_503(world: World, error: OSError) -> None:
    """Down, unreachable, hung, wrong certificate: 503 with Retry-After and a reason in the log; the client stays."""
    world.loop.refuse = [error]
    client = world.client()
    first, fields, _ = head_of(await client.send(get()))
    assert first == "HTTP/1.1 503 Service Unavailable"
    assert fields["retry-after"] == "10"
    (line,) = world.log.of("http.refused")
    assert (line["user"], line["server"]) == ("alice", "MBX-1")
    assert line["reason"].startswith("MBX-1: ")
    assert (await client.ask(get(), response())).endswith(b"hello")


async def test_a_server_that_answers_no_connect_is_given_up() -> None:
    """connect_seconds bounds one attempt."""
    world = World(limits=Limits(connect_seconds=0.05))
    world.loop.gate = asyncio.Event()
    client = world.client()
    await client.send(get())
    await asyncio.wait_for(world.refused(), 5)
    assert client.transport.take().startswith(b"HTTP/1.1 503 ")
    assert world.door._connections["MBX-1"].open == 0


async def test_a_moved_database_is_followed_by_the_next_request(world: World) -> None:
    """The decision is per request, on a connection that stays (B5)."""
    client = world.client()
    await client.ask(get(), response())
    world.active["DB1"] = "MBX-2"
    _, fields, _ = head_of(await client.ask(get(), response()))
    assert fields["x-beserver"] == "MBX-2"


async def test_a_refused_connection_is_tried_where_the_database_is_now(world: World) -> None:
    """The old server is down already, the move arrives while we try it: one more decision, one more try."""
    world.loop.gate = asyncio.Event()
    world.loop.refuse = [ConnectionRefusedError(111, "refused")]
    client = world.client()
    await client.send(get(method="POST", body=b"x"))
    world.active["DB1"] = "MBX-2"
    world.loop.gate.set()
    await world.settle()
    assert [c[0] for c in world.loop.connects] == ["127.0.2.1", "127.0.2.2"]
    await client.serve(response())
    assert client.transport.take().endswith(b"hello")


async def test_refusals_of_the_decision(world: World) -> None:
    """No directory: 404. No active copy: 503, temporary."""
    client = world.client()
    assert (await client.send(get("/nowhere"))).startswith(b"HTTP/1.1 404 ")
    del world.active["DB1"]
    _, fields, _ = head_of(await client.send(get()))
    assert "retry-after" in fields


def bounded(connections: int) -> World:
    """A world whose first server takes so many connections."""
    return World([mailbox_server("MBX-1", max_connections=connections), mailbox_server("MBX-2")])


async def test_connections_to_a_server_are_bounded() -> None:
    """Over `max_connections` requests wait in their order, and are told to come back when it takes too long (B4)."""
    world = bounded(1)
    clients = [world.client() for _ in range(4)]
    for number, client in enumerate(clients):
        await client.send(get(f"/owa/{number}"))
    assert len(world.servers) == 1
    await clients[0].serve(response(body=b"zero"))
    assert b"GET /owa/1 " in world.servers[0].written
    assert len(world.servers) == 1
    await world.pass_time(2.5)
    for late in clients[2:]:
        assert late.transport.take().startswith(b"HTTP/1.1 503 ")
    await clients[1].serve(response(body=b"one"))
    assert clients[1].transport.take().endswith(b"one")
    assert (await clients[2].ask(get(), response(body=b"again"))).endswith(b"again")


async def test_one_who_left_is_passed_over() -> None:
    """A client that leaves the queue does not keep the next from its turn."""
    world = bounded(1)
    clients = [world.client() for _ in range(3)]
    for client in clients:
        await client.send(get())
    clients[1].transport.lose()
    await clients[0].serve(response())
    await clients[2].serve(response(body=b"third"))
    assert clients[2].transport.take().endswith(b"third")


async def test_a_connection_that_ends_makes_room() -> None:
    """The first in the queue opens another when one of the bound is closed."""
    world = bounded(1)
    first, second = world.client(), world.client()
    await first.send(get())
    await second.send(get("/owa/second"))
    await first.serve(response("200 OK", "Connection: close"))
    assert len(world.servers) == 2
    assert b"GET /owa/second " in world.servers[1].written
    assert world.door._connections["MBX-1"].open == 1


async def test_unused_connections_grow_old(world: World) -> None:
    """After a minute without use, or earlier where the server says so (Keep-Alive), they are closed."""
    client = world.client()
    await client.ask(get(), response())
    await client.ask(get(user="bob"), response("200 OK", "Keep-Alive: timeout=5, max=100"))
    await world.pass_time(4.5)
    assert [s.closed for s in world.servers] == [False, True]
    await world.pass_time(60)
    assert world.servers[0].closed
    assert world.door._connections["MBX-1"].open == 0


async def test_a_reload_retires_connections(world: World) -> None:
    """After a reload with another certificate authority no old connection is used for a new request."""
    busy, idle = world.client(), world.client()
    await busy.send(get())
    await idle.ask(get(user="bob"), response())
    configuration = Configuration(
        world.organization, replace(world.configuration.front_end, allow_clear_passwords=True)
    )
    world.router.remembered.clear()
    world.door.reload(configuration, world.context)
    assert world.servers[1].closed
    await busy.serve(response(), 0)
    assert busy.transport.take().endswith(b"hello")
    assert world.servers[0].closed
    await busy.ask(get(), response())
    assert len(world.servers) == 3


async def test_a_drain_lets_responses_end(world: World) -> None:
    """Idle connections close at once; busy ones after their response, which says so."""
    idle, busy = world.client(), world.client()
    await idle.ask(get(), response())
    await busy.send(get())
    drain = asyncio.create_task(world.door.drain(5))
    await world.settle()
    assert idle.transport.closed
    assert not busy.transport.closed
    await busy.serve(response())
    answer = busy.transport.take()
    assert b"\r\nConnection: close\r\n" in answer
    assert answer.endswith(b"hello")
    await asyncio.wait_for(drain, 5)
    assert world.door.sessions() == []
    assert world.client().transport.take().startswith(b"HTTP/1.1 503 ")


async def test_a_drain_has_a_deadline(world: World) -> None:
    """What is still under way then is cut, an upgraded connection too."""
    busy, socket = world.client(), world.client()
    await busy.send(get())
    await socket.send(get("/owa/ws", "Connection: Upgrade", "Upgrade: websocket", user="bob"))
    await socket.serve(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
    await world.door.drain(0.01)
    await world.settle()
    assert (busy.transport.aborted, socket.transport.aborted) == (True, True)
    assert world.door.sessions() == []


async def test_an_upgrade_passes_octets(world: World) -> None:
    """WebSocket (RFC 6455): 101 with the server's fields, then whatever comes, both ways, until one closes."""
    client = world.client()
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    await client.send(get("/owa/ws", "Connection: keep-alive, Upgrade", "Upgrade: websocket", key) + b"early")
    _, fields, _ = head_of(world.servers[0].take())
    assert (fields["upgrade"], fields["connection"]) == ("websocket", "Upgrade")
    assert fields["sec-websocket-key"] == key.partition(": ")[2]
    answer = (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: x\r\n\r\n"
    )
    await client.serve(answer + b"\x81\x02hi")
    first, fields, rest = head_of(client.transport.take())
    assert first == "HTTP/1.1 101 Switching Protocols"
    assert (fields["upgrade"], fields["connection"].lower()) == ("websocket", "upgrade")
    assert (fields["sec-websocket-accept"], fields["x-beserver"], rest) == ("x", "MBX-1", b"\x81\x02hi")
    assert world.servers[0].take() == b"early"
    await client.send(b"up")
    world.servers[0].protocol.data_received(b"down")
    assert (world.servers[0].take(), client.transport.take()) == (b"up", b"down")
    await world.pass_time(3000)
    assert not client.transport.closed
    client.transport.lose()
    await world.settle()
    assert world.servers[0].closed
    (line,) = world.log.of("http.connection")
    assert (line["requests"], line["outcome"], line["reason"]) == (1, "signed in", "client closed")
    assert world.door._connections["MBX-1"].open == 0


async def test_an_upgrade_that_is_declined_is_a_response(world: World) -> None:
    """The server goes on in HTTP: so do we, and what was sent ahead is a request again."""
    client = world.client()
    await client.send(get("/owa/ws", "Connection: Upgrade", "Upgrade: websocket") + get("/owa/next"))
    await client.serve(response("426 Upgrade Required"))
    await client.serve(response(body=b"next"))
    assert client.transport.take().endswith(b"next")


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        (["Connection: Upgrade", "Upgrade: h2c"], b""),
        (["Connection: Upgrade", "Upgrade: TLS/1.0"], b""),
        (["Upgrade: websocket"], b""),
        (["Connection: Upgrade", "Upgrade: websocket"], b"body"),
    ],
)
async def test_upgrades_that_are_not_passed_on(world: World, lines: list[str], body: bytes) -> None:
    """h2c (request smuggling), TLS, one without Connection, one with a body: ordinary requests."""
    client = world.client()
    await client.send(get("/owa/", *lines, method="POST" if body else "GET", body=body))
    assert b"pgrade" not in await client.serve(response())
    assert client.transport.take().endswith(b"hello")


async def test_sessions_and_log_lines(world: World) -> None:
    """One entry while it lasts, one line when it ends."""
    client = world.client()
    await client.ask(get(), response())
    await client.send(get(user="bob"))
    (entry,) = world.door.sessions()
    assert (entry["client"], entry["users"], entry["server"]) == ("192.0.2.7", ["alice", "bob"], "MBX-2")
    assert (entry["protocol"], entry["phase"], entry["requests"]) == ("https", "busy", 2)
    await client.serve(response())
    client.transport.lose()
    (line,) = world.log.of("http.connection")
    assert (line["requests"], line["users"], line["outcome"], line["session"]) == (2, 2, "signed in", entry["session"])
    assert line["bytes_in"] == len(get()) + len(get(user="bob"))
    assert line["bytes_out"] > 100


def _refused(world: World) -> list[tuple[str, int | None]]:
    """Reason and count of each line of refusals."""
    return [(line["reason"], line.get("count")) for line in world.log.of("http.refused")]


async def test_strangers_write_one_line_a_second_whatever_they_send(world: World) -> None:
    """Requests without credentials and heads that mean nothing cost a client nothing: they are counted by address."""
    for _ in range(50):
        client = world.client()
        await client.send(get(user="") * 3 + b"nonsense\r\n\r\n")
        client.transport.lose()
    await world.settle()
    other = world.client(address="192.0.2.8")
    await other.send(get(user=""))
    assert _refused(world) == [("no credentials", 1), ("no credentials", 1)]
    (line,) = world.log.of("http.connection")
    assert (line["client"], line["outcome"], line["requests"], line["count"]) == ("192.0.2.7", "no sign-in", 4, 1)
    await world.pass_time(1.0)
    assert _refused(world)[2:] == [("further refusals without credentials", 199)]
    assert [line["count"] for line in world.log.of("http.connection")] == [1, 49]


async def test_a_refused_sign_in_has_its_own_lines_and_so_has_a_connection_that_somebody_signed_in_on(
    world: World,
) -> None:
    """Those cost a second each, or a password: nothing of them is only counted."""
    for _ in range(3):
        client = world.client()
        await client.send(get(user="mallory"))
        await world.pass_time(world.door.limits.refused_sign_in_delay_seconds)
        client.transport.lose()
    assert [(line["user"], "count" in line) for line in world.log.of("http.refused")] == [("mallory", False)] * 3
    assert len(world.log.of("http.connection")) == 3
    signed_in = world.client()
    await signed_in.ask(get(), response())
    await signed_in.send(get(user="") * 2)
    assert _refused(world)[3:] == [("no credentials", None)] * 2


async def test_credentials_that_nobody_judged_are_no_sign_in(world: World) -> None:
    """A client that goes before it is refused has waited for nothing: its connection is counted."""
    for _ in range(10):
        client = world.client()
        await client.send(get(user="mallory"))
        client.transport.lose()
    await world.pass_time(world.door.limits.refused_sign_in_delay_seconds)
    assert world.log.of("http.refused") == []
    assert [line["count"] for line in world.log.of("http.connection")] == [1, 9]


async def test_pools_are_apart_by_what_matters(world: World) -> None:
    """Another TLS name, port, address, server or form of sign-in is another pool."""
    servers = [mailbox_server("MBX-1"), mailbox_server("MBX-2")]
    plain = servers[0].endpoints[0]
    world = World(servers, [*directories("MBX-1", "/owa"), *directories("MBX-2", "/owa")])
    router = world.router
    await world.client().ask(get(), response())
    for changed in (replace(plain, tls_name="other"), replace(plain, port=444), replace(plain, address="127.0.2.9")):
        decision = router.remembered[next(iter(router.remembered))]
        target = replace(decision.target, endpoint=changed)  # type: ignore[union-attr]
        before = len(world.servers)
        router.remembered[next(iter(router.remembered))] = replace(decision, target=target)  # type: ignore[arg-type]
        await world.client().ask(get(), response())
        assert len(world.servers) == before + 1
