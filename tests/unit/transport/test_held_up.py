"""Servers that are busy (421), or fall silent, hold up nobody who could go elsewhere (SPEC T3, T8; field case 42)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hub_stage import HubStage, Played
from test_dispatcher import HOP, WAITING, Stage, ok

from gatepost.routing.next_hop import DeliveryType, NextHop
from gatepost.transport.dispatch import ahead as ahead_module
from gatepost.transport.dispatch import dispatcher as module
from gatepost.transport.dispatch.ports import Answer, NotReached, Sent
from gatepost.transport.message import RecipientState
from gatepost.transport.queues import delivery_queue as queue_module
from gatepost.transport.queues.delivery_queue import STALLED_SECONDS, DeliveryQueue
from gatepost.transport.queues.item import Item

BUSY = Sent((), "421 4.3.2 busy", busy=True)
NOW = 1_000_000.0


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setattr(module, "ATTEND_SECONDS", 0.005)
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.05)
    made = Stage()
    made.dispatcher.start()
    yield made
    await made.dispatcher.end(1.0)


# 421


async def test_a_message_is_tried_elsewhere_at_once_after_a_421(stage: Stage) -> None:
    """It keeps its place before the others, waits for nothing, and its recipients hear nothing."""
    stage.addresses = ["192.0.2.1", "192.0.2.2"]
    stage.say = lambda number, places: BUSY if len(stage.sent) == 1 else ok(number, places)
    stage.queue(1)
    stage.queue(2)
    await stage.until(lambda: stage.spool.removed == [1, 2])
    assert [number for number, _, _ in stage.sent] == [1, 1, 2]
    assert stage.connects == 2
    assert stage.reports == []


async def test_a_421_waits_for_the_queue_and_not_for_the_message(stage: Stage) -> None:
    """Where no other server is left: `Reach` says until when, and then the message goes first."""
    stage.say = lambda _number, _places: _busy_from_now_on(stage)
    stage.queue(1)
    await stage.until(lambda: (queue := stage.queues.get(HOP)) is not None and queue.retry_at)
    queue = stage.queues.get(HOP)
    assert queue is not None
    assert (queue.retry_at, queue.deferred) == (stage.now + 60, 0)
    stage.refuse = None
    stage.say = ok
    stage.queue(2)
    stage.later(60)
    await stage.until(lambda: stage.spool.removed == [1, 2])
    assert [number for number, _, _ in stage.sent] == [1, 1, 2]


def _busy_from_now_on(stage: Stage) -> Sent:
    stage.refuse = NotReached("busy", stage.now + 60)
    return BUSY


async def test_a_message_that_is_answered_421_again_and_again_waits_alone(stage: Stage) -> None:
    """A server that means one message by it must not hold up all others."""
    stage.say = lambda number, places: BUSY if number == 1 else ok(number, places)
    stage.queue(1)
    stage.queue(2)
    await stage.until(lambda: stage.spool.removed == [2])
    queue = stage.queues.get(HOP)
    assert queue is not None
    assert queue.deferred == 1
    assert [number for number, _, _ in stage.sent] == [1, 1, 1, 1, 2]
    assert queue.next_time() == stage.now + stage.settings.message_retry_interval


async def test_who_was_not_answered_does_not_wait_for_who_was(stage: Stage) -> None:
    """One recipient is refused for good, then the session ends: the other is tried again at once."""
    once = Sent((Answer(0, RecipientState.FAILED, "550 5.1.1 Nobody"),), "421 bye", busy=True)
    stage.say = lambda number, places: once if len(stage.sent) == 1 else ok(number, places)
    stage.queue(1, recipients=2)
    await stage.until(lambda: stage.spool.removed == [1])
    assert [places for _, places, _ in stage.sent] == [(0, 1), (1,)]


async def test_who_was_put_off_waits_whoever_else_was_not_answered(stage: Stage) -> None:
    stage.say = lambda _number, _places: Sent((Answer(0, WAITING, "450 4.2.0 Later"),), "421 bye", busy=True)
    stage.queue(1, recipients=2)
    await stage.until(lambda: (queue := stage.queues.get(HOP)) is not None and queue.deferred)


TWO = """
[send_connectors.Two]
address_spaces = ["two.example"]
source_servers = ["HUB-01"]
smart_hosts = ["127.0.61.9:{port}", "127.0.61.10:{port}"]
tls = "none"
"""


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[tuple[HubStage, Played]]:
    """A hub whose mail for `two.example` may go to either of two servers."""
    stage = HubStage(tmp_path)
    stage.extra = TWO.format(port=stage.outside_port)
    second = Played("127.0.61.10", stage.outside_port)
    await stage.prepare()
    await second.start()
    await stage.start()
    yield stage, second
    await stage.stop()
    await second.stop()


@pytest.mark.parametrize("at", ["MAIL", "x@two.example"])
async def test_a_hub_goes_to_the_next_server_after_a_421(hub: tuple[HubStage, Played], at: str) -> None:
    """At MAIL and at RCPT; and it comes back to the busy one only after a while."""
    stage, second = hub
    stage.outside.replies[at] = "421 4.3.2 busy"
    for number in range(4):
        await stage.send("alice@contoso.com", "x@two.example", subject=f"m{number}")
        await stage.until(lambda number=number: len(second.received) == number + 1)  # type: ignore[misc]
        if number == 1:
            connections = stage.outside.connections
    assert stage.outside.connections == connections <= 1
    assert stage.outside.received == []


async def test_a_next_hop_whose_servers_are_all_busy_waits_for_the_glitch_interval(
    hub: tuple[HubStage, Played],
) -> None:
    stage, second = hub
    stage.outside.replies["MAIL"] = second.replies["MAIL"] = "421 4.3.2 busy"
    await stage.send("alice@contoso.com", "x@two.example")
    queues = stage.hub.queues
    await stage.until(lambda: any(queue.retry_at for queue in queues))
    (queue,) = queues
    assert "busy (421)" in queue.last_error
    assert queue.deferred == 0
    assert queue.failures == 1
    await stage.hub.operate("retry_queue", {"queue": str(queue.identity)})
    second.replies.clear()
    await stage.until(lambda: second.received)


# Silence


def held_up(ready: int, *, connections: int = 1, in_hand: int = 1) -> DeliveryQueue:
    """A queue whose connections took their messages at `NOW`, before `ready` more."""
    queue = DeliveryQueue(NextHop(DeliveryType.DNS, "example.net", "Internet"), 1, NOW - 100)
    for number in range(ready + in_hand):
        queue.add(Item(number, (0,), 1, NOW + 1000, NOW + 1000), NOW)
    for _ in range(in_hand):
        queue.take(NOW)
    queue.connections = connections
    return queue


def test_another_connection_after_some_seconds_without_progress() -> None:
    queue = held_up(2)
    assert queue.wanted(NOW + STALLED_SECONDS - 0.1, 20) == 0
    assert queue.held_up_until(NOW + 1) == NOW + STALLED_SECONDS
    assert queue.wanted(NOW + STALLED_SECONDS, 20) == 1
    queue.connecting = 1
    assert queue.wanted(NOW + STALLED_SECONDS + 60, 20) == 0  # one at a time
    queue.connecting, queue.connections = 0, 2
    queue.take(NOW + 10)
    assert queue.wanted(NOW + 10 + STALLED_SECONDS - 0.1, 20) == 0  # it got on
    assert queue.wanted(NOW + 10 + STALLED_SECONDS, 20) == 1


def test_the_limits_of_connections_hold() -> None:
    late = NOW + 1000
    assert held_up(2).wanted(late, 1) == 0
    assert held_up(0).wanted(late, 20) == 0
    bound = held_up(2)
    bound.bind(late)
    assert bound.wanted(late, 20) == 0
    assert held_up(2, connections=2, in_hand=1).wanted(late, 20) == 0  # one is idle and takes it
    suspended = held_up(2)
    suspended.suspended = True
    assert suspended.wanted(late, 20) == 0
    assert suspended.held_up_until(late) is None
    assert held_up(0).held_up_until(late) is None
    assert held_up(2).held_up_until(late) == late + STALLED_SECONDS  # looked at again, not all the time


async def test_a_silent_server_holds_up_one_message(stage: Stage) -> None:
    """The others of its short queue go by a second connection, in seconds."""
    silent = asyncio.Event()

    async def hang(number: int, places: tuple[int, ...]) -> Sent:
        if number == 1:
            await silent.wait()
        return ok(number, places)

    stage.say = hang
    for number in (1, 2, 3):
        stage.queue(number)
    await stage.until(lambda: stage.sent)
    stage.later(STALLED_SECONDS + 1)
    await stage.until(lambda: stage.spool.removed == [2, 3])
    assert stage.connects == 2
    silent.set()
    await stage.until(lambda: stage.spool.removed == [2, 3, 1])


async def test_what_was_taken_ahead_is_given_back_by_a_silent_server(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead_module, "STALLED_SECONDS", 0.05)
    silent = asyncio.Event()

    async def hang(number: int, places: tuple[int, ...]) -> Sent:
        if number == 1:
            stage.now += STALLED_SECONDS + 1
            await silent.wait()
        return ok(number, places)

    stage.say, stage.prompt = hang, True
    stage.queue(1)
    stage.queue(2)
    await stage.until(lambda: stage.spool.removed == [2])
    assert [number for number, _ in stage.prepared] == [2]
    assert stage.connects == 2
    silent.set()
    await stage.until(lambda: stage.spool.removed == [2, 1])
    assert len(stage.settler.hands) == 0


async def test_what_was_taken_ahead_is_given_back_after_others_had_their_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection's one timer was set for an earlier message."""
    monkeypatch.setattr(ahead_module, "STALLED_SECONDS", 0.05)
    silent = asyncio.Event()

    async def hang(number: int, places: tuple[int, ...]) -> Sent:
        if number == 3:
            stage.now += STALLED_SECONDS + 1
            await silent.wait()
        return ok(number, places)

    stage.say, stage.prompt = hang, True
    for number in (1, 2, 3, 4):
        stage.queue(number)
    await stage.until(lambda: stage.spool.removed == [1, 2, 4])
    assert [number for number, _ in stage.prepared] == [2, 3, 4]
    silent.set()
    await stage.until(lambda: stage.spool.removed == [1, 2, 4, 3])
    assert len(stage.settler.hands) == 0


async def test_what_had_its_turn_is_not_given_back(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead_module, "STALLED_SECONDS", 0.05)

    async def slow(number: int, places: tuple[int, ...]) -> Sent:
        if number == 2:
            await asyncio.sleep(0.2)  # the timer fires meanwhile
        return ok(number, places)

    stage.say, stage.prompt = slow, True
    stage.queue(1)
    stage.queue(2)
    await stage.until(lambda: stage.spool.removed == [1, 2])
    assert [number for number, *_ in stage.sent] == [1, 2]
    assert stage.connects == 1


async def test_a_hub_goes_round_a_server_that_is_silent_after_the_content(
    hub: tuple[HubStage, Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short queue, whose next server has taken a message and says nothing: the others have arrived in seconds."""
    stage, second = hub
    monkeypatch.setattr(queue_module, "STALLED_SECONDS", 0.2)
    monkeypatch.setattr(ahead_module, "STALLED_SECONDS", 0.2)
    stage.outside.gate, second.gate = asyncio.Event(), asyncio.Event()
    for number in range(6):
        await stage.send("alice@contoso.com", "x@two.example", subject=f"m{number}")
    await stage.until(lambda: stage.outside.busy and second.busy)
    second.gate.set()
    await stage.until(lambda: len(second.received) >= 3)
    stage.outside.gate.set()
    await stage.until(lambda: len(second.received) + len(stage.outside.received) == 6)
