"""Requests past a bound wait briefly, users in turn, then hear that the service is busy (SPEC B4)."""

from __future__ import annotations

from typing import Any

import pytest
from http_harness import FakeLoop, World, get, mailbox_server, response

from gatepost.access.http import pool
from gatepost.access.http.slots import Slots
from gatepost.access.http.waiting_room import WAIT_SECONDS


class Entrant:
    """A request that ends at once when `ends`."""

    def __init__(self, slots: Slots, *, ends: bool = False) -> None:
        self.slots = slots
        self.ends = ends
        self.told: list[str] = []

    def let_in(self) -> None:
        self.told.append("in")
        if self.ends:
            self.slots.leave()

    def turned_away(self, reason: str) -> None:
        self.told.append(reason)


@pytest.fixture
def loop() -> FakeLoop:
    return FakeLoop()


def slots_of(limit: int, loop: FakeLoop, **more: int) -> Slots:
    clock: Any = loop
    return Slots(limit, clock, **more)


def pass_time(loop: FakeLoop, seconds: float) -> None:
    loop.now += seconds
    for when, _, callback, args, handle in loop.timers:
        if when <= loop.now and not handle.cancelled():
            handle.cancel()
            callback(*args)


def test_within_the_bound_a_request_goes_on_at_once(loop: FakeLoop) -> None:
    slots = slots_of(2, loop)
    assert [slots.enter("alice", Entrant(slots)) for _ in range(2)] == [True, True]
    assert loop.timers == [], "no timer for a request that need not wait"
    slots.leave()
    assert slots.enter("alice", Entrant(slots))
    assert slots.used == 2


def test_past_the_bound_users_take_turns(loop: FakeLoop) -> None:
    slots = slots_of(1, loop)
    assert slots.enter("alice", Entrant(slots))
    greedy = [Entrant(slots) for _ in range(5)]
    modest = Entrant(slots)
    assert not any(slots.enter("alice", entrant) for entrant in greedy)
    assert not slots.enter("bob", modest)
    slots.leave()
    slots.leave()
    assert [greedy[0].told, greedy[1].told, modest.told] == [["in"], [], ["in"]]
    assert (slots.used, slots.waiting) == (1, 4)


def test_who_waits_too_long_is_turned_away(loop: FakeLoop) -> None:
    slots = slots_of(1, loop)
    slots.enter("alice", Entrant(slots))
    late = Entrant(slots)
    slots.enter("alice", late)
    pass_time(loop, WAIT_SECONDS)
    assert len(late.told) == 1
    assert late.told != ["in"]
    slots.leave()
    assert (slots.used, slots.waiting, slots.refused) == (0, 0, 1)


def test_who_gave_up_is_passed_over(loop: FakeLoop) -> None:
    slots = slots_of(1, loop)
    slots.enter("alice", Entrant(slots))
    gone, there = Entrant(slots), Entrant(slots)
    slots.enter("alice", gone)
    slots.enter("alice", there)
    slots.give_up(gone)
    slots.give_up(gone)
    slots.leave()
    pass_time(loop, WAIT_SECONDS)
    assert (gone.told, there.told) == ([], ["in"])


def test_the_waiting_room_is_bounded_and_one_user_does_not_fill_it(loop: FakeLoop) -> None:
    slots = slots_of(1, loop, max_waiting=3)
    slots.enter("alice", Entrant(slots))
    entrants = [Entrant(slots) for _ in range(5)]
    for user, entrant in zip(["alice"] * 4 + ["bob"], entrants, strict=True):
        slots.enter(user, entrant)
    assert [bool(entrant.told) for entrant in entrants] == [False, False, True, True, False]
    assert (slots.waiting, slots.refused) == (3, 2)


def test_a_thousand_who_end_at_once_are_let_in_without_recursion(loop: FakeLoop) -> None:
    slots = slots_of(1, loop)
    slots.enter("alice", Entrant(slots))
    for _ in range(1500):
        slots.enter("alice", Entrant(slots, ends=True))
    slots.leave()
    assert (slots.used, slots.waiting) == (0, 0)


def test_a_higher_bound_lets_in_who_waits(loop: FakeLoop) -> None:
    slots = slots_of(1, loop)
    slots.enter("alice", Entrant(slots))
    waiting = [Entrant(slots) for _ in range(3)]
    for entrant in waiting:
        slots.enter("alice", entrant)
    slots.set_limit(3)
    assert [entrant.told for entrant in waiting] == [["in"], ["in"], []]


def one_connection() -> World:
    return World([mailbox_server("MBX-1", max_connections=1), mailbox_server("MBX-2")])


async def test_users_take_turns_at_a_servers_connections() -> None:
    """One with many waiting requests does not hold up another."""
    world = one_connection()
    clients = [world.client() for _ in range(4)]
    for client, user in zip(clients, ["alice", "alice", "alice", "carol"], strict=True):
        await client.send(get(f"/owa/{user}", user=user))
    await clients[0].serve(response())
    await clients[1].serve(response())
    assert clients[3].transport.take() == b""
    got = await clients[3].serve(response(body=b"carol's"))
    assert b"GET /owa/carol " in got
    assert clients[3].transport.take().endswith(b"carol's")


async def test_the_queue_of_a_server_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MAX_WAITING", 2)
    world = one_connection()
    clients = [world.client() for _ in range(4)]
    for client in clients[:3]:
        await client.send(get())
    answer = await clients[3].send(get())
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nRetry-After: " in answer


async def test_counters_tell_what_became_of_requests() -> None:
    """Each server's connections opened and reused, requests waiting and refused."""
    world = one_connection()
    clients = [world.client() for _ in range(3)]
    await clients[0].ask(get(), response())
    await clients[0].send(get())
    await clients[1].send(get())
    await clients[2].send(get(user="bob"))
    assert world.door.counters() == {
        "http.requests.under_way": 3, "http.requests.waiting": 0, "http.requests.refused": 0,
        "http.MBX-1.open": 1, "http.MBX-1.opened": 1, "http.MBX-1.reused": 1, "http.MBX-1.waiting": 1,
        "http.MBX-1.refused": 0, "http.MBX-2.open": 1, "http.MBX-2.opened": 1, "http.MBX-2.reused": 0,
        "http.MBX-2.waiting": 0, "http.MBX-2.refused": 0,
    }  # fmt: skip
    await world.pass_time(WAIT_SECONDS)
    counters = world.door.counters()
    assert (counters["http.MBX-1.waiting"], counters["http.MBX-1.refused"]) == (0, 1)
    assert clients[1].transport.take().startswith(b"HTTP/1.1 503 ")


async def test_a_connection_is_kept_when_all_who_waited_have_gone() -> None:
    world = one_connection()
    first, second = world.client(), world.client()
    await first.send(get())
    await second.send(get())
    second.transport.lose()
    await first.serve(response())
    assert not world.servers[0].closed
