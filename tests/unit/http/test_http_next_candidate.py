"""A server that is lost while a request waits for its answer: the next candidate, or the truth."""

from __future__ import annotations

from typing import Any

import pytest
from http_harness import Client, get, response
from test_http_client_access import Sites


class Health:
    """What a front end believes of its servers."""

    def __init__(self) -> None:
        self.dead: set[str] = set()
        self.failures: list[str] = []
        self.watched: list[str] = []

    def healthy(self, server: str, _service: str) -> bool:
        return server not in self.dead

    def connected(self, server: str, service: str) -> None:
        pass

    def watch(self, server: str, _service: str) -> None:
        self.watched.append(server)

    def failed(self, server: str, _service: str, _client: str, _reason: str) -> None:
        self.failures.append(server)


class Watched(Sites):
    """Three sites, and what the front end believes of their health."""

    def __init__(self) -> None:
        super().__init__()
        self.health = Health()
        health: Any = self.health
        self.door.health = health


@pytest.fixture
def world() -> Watched:
    return Watched()


async def _ask(world: Watched, method: str = "GET", body: bytes = b"", user: str = "anna") -> tuple[Client, str]:
    """A request under way: its client, and the server that it is at."""
    client = world.client()
    await client.send(get("/owa/", "Accept: text/html", user=user, method=method, body=body))
    return client, world.went_to[-1]


async def _lose(world: Watched, number: int = -1) -> None:
    world.servers[number].lose(ConnectionResetError())
    await world.settle()


async def test_a_server_lost_before_its_answer_is_replaced_by_the_next(world: Watched) -> None:
    """The client gets the other one's answer; the health service hears of the first."""
    client, first = await _ask(world)
    await _lose(world)
    assert len(world.went_to) == 2
    assert world.went_to[1] != first
    await client.serve(response(), 1)
    assert client.transport.take().startswith(b"HTTP/1.1 200 ")
    assert world.health.failures == [first]


async def test_when_all_candidates_are_lost_it_is_503(world: Watched) -> None:
    """Each is asked once."""
    client, _ = await _ask(world)
    await _lose(world)
    await _lose(world)
    assert client.transport.take().startswith(b"HTTP/1.1 503 ")
    assert len(world.went_to) == 2


async def test_what_may_have_been_carried_out_is_not_sent_again(world: Watched) -> None:
    """The page says that it may not have arrived."""
    client, _ = await _ask(world, "POST", b"buy")
    await _lose(world)
    answer = client.transport.take()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"may not have arrived" in answer
    assert len(world.went_to) == 1


async def test_a_response_that_has_begun_is_cut(world: Watched) -> None:
    """Nothing of another server's follows half an answer."""
    client, _ = await _ask(world)
    await client.serve(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    await _lose(world)
    assert client.transport.closed
    assert client.transport.take().endswith(b"half")
    assert len(world.went_to) == 1


async def test_requests_that_wait_for_a_server_that_probes_find_dead_go_to_the_next(world: Watched) -> None:
    """Only those without an answer, and only where the service is the dead one."""
    client, first = await _ask(world)
    world.door.server_dead(first)
    assert len(world.went_to) == 1, "another service of that server is dead"
    world.health.dead.add(first)
    world.door.server_dead(first)
    await world.settle()
    assert len(world.went_to) == 2
    assert world.servers[0].closed
    await client.serve(response(), 1)
    assert client.transport.take().startswith(b"HTTP/1.1 200 ")


async def test_who_waits_at_the_last_candidate_is_told_when_that_one_is_dead_too(world: Watched) -> None:
    """All of them hang: 503, however far apart probes find it out."""
    client, first = await _ask(world)
    world.health.dead |= {"CAS-03", "CAS-04"}
    world.door.server_dead(first)
    await world.settle()
    assert len(world.went_to) == 2
    world.door.server_dead(world.went_to[1])
    assert client.transport.take().startswith(b"HTTP/1.1 503 ")


async def test_kept_connections_of_a_dead_server_are_not_used(world: Watched) -> None:
    """They lead to a process that hangs, or to a machine that has forgotten them."""
    client, first = await _ask(world)
    await client.serve(response())
    world.door.server_dead(first)
    assert world.servers[0].closed


async def test_a_server_is_watched_from_the_request_on_not_from_its_first_answer(world: Watched) -> None:
    """One that has never answered would never be probed, and stay in the rotation."""
    client, first = await _ask(world)
    assert world.health.watched == [first]
    await client.serve(response())
    client.transport.take()
    await client.send(get("/owa/", user="anna"))
    await client.serve(response())
    assert world.health.watched.count(first) == 1, "an answer is worth a second"


async def test_a_post_at_a_dead_server_is_503_at_once(world: Watched) -> None:
    """The client is told to come back instead of waiting for the longest of all times."""
    client, first = await _ask(world, "POST", b"x")
    world.health.dead.add(first)
    world.door.server_dead(first)
    answer = client.transport.take()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: " in answer
    assert len(world.went_to) == 1


async def test_a_mailbox_server_without_an_alternative_keeps_its_time_for_what_may_have_been_done(
    world: Watched,
) -> None:
    """A POST is not sent again: the server may be busy only, and carry it out. A GET is told to come back."""
    client, only = await _ask(world, user="dora", method="POST", body=b"x")
    world.health.dead.add(only)
    world.door.server_dead(only)
    await client.serve(response())
    assert client.transport.take().startswith(b"HTTP/1.1 200 ")
    client, only = await _ask(world, user="dora")
    world.door.server_dead(only)
    assert client.transport.take().startswith(b"HTTP/1.1 503 ")
