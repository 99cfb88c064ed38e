"""One user cannot keep everybody from a server, with uploads that stand still (SPEC B4)."""

from __future__ import annotations

from dataclasses import replace

from http_harness import Client, World, get, mailbox_server, response

from gatepost.configuration.settings import Limits

STALLED = get("/owa/x", "Content-Length: 100000", method="POST")


async def stalled(world: World, number: int) -> list[Client]:
    clients = [world.client() for _ in range(number)]
    for client in clients:
        await client.send(STALLED)
    return clients


async def a_second_later(world: World) -> None:
    """The door looks once, and what it ended is gone."""
    world.loop.now += 1
    world.door.sweep(world.loop.now)
    await world.settle()


def few_connections() -> World:
    return World([mailbox_server("MBX-1", max_connections=4), mailbox_server("MBX-2")])


async def test_who_holds_all_connections_of_a_server_gives_way() -> None:
    """The other user is served before the wait is over; the one who gave way hears that the service is busy."""
    world = few_connections()
    greedy = await stalled(world, 4)
    other = world.client()
    assert await other.send(get(user="carol")) == b""
    await a_second_later(world)
    answers = [client.transport.take() for client in greedy]
    assert sorted(answer[:13] for answer in answers) == [b"", b"", b"", b"HTTP/1.1 503 "]
    assert any(b"\r\nRetry-After: " in answer for answer in answers)
    await other.serve(response(body=b"carol's"))
    assert other.transport.take().endswith(b"carol's")
    assert [line["reason"].partition(":")[0] for line in world.log.of("http.refused")] == ["gave way"]


async def test_a_response_under_way_is_cut_off_so_that_the_client_sees_it() -> None:
    world = few_connections()
    greedy = [world.client() for _ in range(4)]
    for client in greedy:
        await client.send(get())
        await client.serve(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nbegin")
    await world.client().send(get(user="carol"))
    await a_second_later(world)
    assert [client.transport.aborted for client in greedy].count(True) == 1


async def test_a_burst_is_no_reason_to_give_way() -> None:
    """Nobody has waited for long, and waiting comes to an end by itself."""
    world = few_connections()
    greedy = await stalled(world, 4)
    await world.client().send(get(user="carol"))
    world.door.sweep(world.loop.now)
    assert [client.transport.take() for client in greedy] == [b""] * 4


async def test_ones_own_requests_wait() -> None:
    world = few_connections()
    greedy = await stalled(world, 5)
    await a_second_later(world)
    assert [client.transport.take() for client in greedy] == [b""] * 5


async def test_slots_are_shared_too() -> None:
    """Over several servers one user could take every slot of the worker."""
    world = World(limits=replace(Limits(), http_requests=4))
    greedy = await stalled(world, 4)
    other = world.client()
    await other.send(get(user="carol"))
    await a_second_later(world)
    assert [client.transport.take()[:13] for client in greedy].count(b"HTTP/1.1 503 ") == 1
    await other.serve(response(body=b"carol's"))
    assert other.transport.take().endswith(b"carol's")
    assert world.door.slots.used == 3
