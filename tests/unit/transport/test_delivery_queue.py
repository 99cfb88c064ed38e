"""Delivery queues: who is sent when (SPEC T3, T8)."""

from __future__ import annotations

import random

import pytest

from gatepost.routing.next_hop import DeliveryType, NextHop
from gatepost.transport.queues.delivery_queue import DeliveryQueue, QueueStatus
from gatepost.transport.queues.item import EVERY_FIRST, Item
from gatepost.transport.queues.queues import Queues

HOP = NextHop(DeliveryType.DNS, "example.net", "Internet")
OTHER = NextHop(DeliveryType.DNS, "example.org", "Internet")
NOW = 1_000_000.0
DAY = 86400.0


def item(number: int, *, attend: float = NOW + DAY) -> Item:
    return Item(number, (0,), 5000, NOW + 2 * DAY, attend)


@pytest.fixture
def queue() -> DeliveryQueue:
    return DeliveryQueue(HOP, 1, NOW)


def numbers(queue: DeliveryQueue) -> list[int]:
    return [entry.number for entry in queue]


def test_items_leave_in_the_order_they_came(queue: DeliveryQueue) -> None:
    for number in (5, 6, 7):
        queue.add(item(number), NOW)
    taken = [queue.take(NOW) for _ in range(4)]
    assert [entry.number if entry else None for entry in taken] == [5, 6, 7, None]
    assert len(queue) == 3  # in hand, not gone


def test_an_item_in_hand_is_counted_until_it_is_settled(queue: DeliveryQueue) -> None:
    queue.add(item(5), NOW)
    taken = queue.take(NOW)
    assert taken is not None
    assert not queue.idle
    queue.settled(taken, NOW + 3)
    assert queue.idle
    assert queue.empty_since == NOW + 3


def test_an_item_put_back_is_the_next(queue: DeliveryQueue) -> None:
    """A connection that was lost before the message was sent costs it nothing."""
    queue.add(item(5), NOW)
    queue.add(item(6), NOW)
    taken = queue.take(NOW)
    assert taken is not None
    queue.put_back(taken, NOW)
    assert numbers(queue) == [5, 6]


def test_a_deferred_item_waits_for_its_time_and_others_pass_it(queue: DeliveryQueue) -> None:
    queue.add(item(5), NOW)
    taken = queue.take(NOW)
    assert taken is not None
    queue.put_back(taken, NOW, NOW + 900)
    queue.add(item(6), NOW + 1)
    assert [entry.number for entry in (queue.take(NOW + 2), queue.take(NOW + 2)) if entry] == [6]
    assert queue.next_time() == NOW + 900
    again = queue.take(NOW + 900)
    assert again is not None
    assert again.number == 5


def test_a_queue_in_retry_sends_nothing_and_keeps_everything(queue: DeliveryQueue) -> None:
    queue.add(item(5), NOW)
    queue.not_reached(NOW, "connection refused", NOW + 60)
    assert queue.status(NOW + 59) is QueueStatus.RETRY
    assert queue.take(NOW + 59) is None
    assert queue.wanted(NOW + 59, 20) == 0
    assert queue.next_time() == NOW + 60
    assert queue.wanted(NOW + 60, 20) == 1
    queue.reached()
    assert queue.status(NOW + 61) is QueueStatus.READY
    assert queue.failures == 0


def test_another_connection_for_each_twenty_that_are_ready(queue: DeliveryQueue) -> None:
    for number in range(41):
        queue.add(item(number), NOW)
    assert queue.wanted(NOW, 20) == 3
    assert queue.wanted(NOW, 2) == 2
    queue.connecting = 1
    queue.connections = 1
    assert queue.wanted(NOW, 20) == 1
    queue.connections = 5
    assert queue.wanted(NOW, 20) == 0


def test_a_next_hop_that_takes_no_more_connections_is_not_asked_for_more_for_a_minute(queue: DeliveryQueue) -> None:
    for number in range(100):
        queue.add(item(number), NOW)
    queue.connections = 2
    queue.bind(NOW)
    assert queue.wanted(NOW + 59, 20) == 0
    queue.connections = 0
    assert queue.wanted(NOW + 59, 20) == 2
    assert queue.wanted(NOW + 60, 20) == 5


def test_a_suspended_queue_takes_mail_and_sends_none(queue: DeliveryQueue) -> None:
    queue.suspended = True
    queue.add(item(5), NOW)
    assert queue.status(NOW) is QueueStatus.SUSPENDED
    assert queue.take(NOW) is None
    assert queue.next_time() is None
    queue.suspended = False
    assert queue.take(NOW) is not None


def test_a_retry_by_an_operator_makes_all_due(queue: DeliveryQueue) -> None:
    first, second = item(5), item(6)
    first.due, second.due = NOW + 20, NOW + 10
    queue.add(first, NOW)
    queue.add(second, NOW)
    queue.not_reached(NOW, "timed out", NOW + 600)
    queue.retry_now()
    assert [entry.number for entry in (queue.take(NOW), queue.take(NOW)) if entry] == [6, 5]


def test_a_suspended_item_stays_while_others_go(queue: DeliveryQueue) -> None:
    for number in (5, 6):
        queue.add(item(number), NOW)
    found = queue.find(5)
    assert found is not None
    queue.suspend(found)
    assert [entry.number for entry in (queue.take(NOW), queue.take(NOW)) if entry] == [6]
    assert len(queue) == 2
    queue.resume(found, NOW)
    assert queue.take(NOW) is found


def test_an_item_suspended_in_hand_does_not_come_back_ready(queue: DeliveryQueue) -> None:
    queue.add(item(5), NOW)
    taken = queue.take(NOW)
    assert taken is not None
    queue.suspend(taken)
    queue.put_back(taken, NOW)
    assert queue.take(NOW) is None
    assert len(queue) == 1


def test_a_dropped_item_is_never_sent(queue: DeliveryQueue) -> None:
    entries = [item(number) for number in range(4)]
    entries[2].due = NOW + 60
    for entry in entries:
        queue.add(entry, NOW)
    assert queue.drop(entries[0])
    assert queue.drop(entries[2])
    assert len(queue) == 2
    assert queue.ready(NOW) <= 2
    taken = [entry.number for entry in (queue.take(NOW + 61) for _ in range(4)) if entry]
    assert taken == [1, 3]
    assert len(queue) == 2  # those in hand
    assert not queue.drop(entries[1])
    queue.put_back(entries[1], NOW)
    assert numbers(queue) == [3]


def test_after_an_uncertain_outcome_the_same_server_is_tried_first(queue: DeliveryQueue) -> None:
    uncertain = item(5)
    uncertain.server = "192.0.2.1"
    queue.add(uncertain, NOW)
    assert queue.take(NOW, "192.0.2.2") is None
    assert queue.take(NOW, "192.0.2.2") is uncertain  # nobody else came for it
    uncertain.server = "192.0.2.1"
    queue.put_back(uncertain, NOW)
    assert queue.take(NOW, "192.0.2.1") is uncertain


def test_single_recipients_share_one_tuple() -> None:
    assert Item(1, tuple(range(1)), 1, 0, 0).recipients is EVERY_FIRST


def test_a_queue_is_runnable_once_until_it_is_touched() -> None:
    queues = Queues()
    queue = queues.add(HOP, item(1), NOW)
    assert queues.next_alarm() == 0.0
    assert queues.runnable(NOW) == [queue]
    assert queues.runnable(NOW) == []
    queues.touch(queue)
    assert queues.runnable(NOW) == [queue]


def test_a_queue_in_retry_comes_back_at_its_time() -> None:
    queues = Queues()
    queue = queues.add(HOP, item(1), NOW)
    queues.runnable(NOW)
    queue.not_reached(NOW, "refused", NOW + 60)
    queues.sleep(queue, NOW)
    queues.sleep(queue, NOW)
    assert queues.next_alarm() == NOW + 60
    assert queues.runnable(NOW + 59) == []
    assert queues.runnable(NOW + 60) == [queue]
    assert queues.next_alarm() is None


def test_an_empty_queue_goes_after_its_idle_time_and_comes_back_with_another_number() -> None:
    queues = Queues()
    queue = queues.add(HOP, item(1), NOW)
    taken = queue.take(NOW)
    assert taken is not None
    assert queues.forget_idle(NOW + 999, 180) == 0
    queue.settled(taken, NOW + 1)
    assert queues.forget_idle(NOW + 180, 180) == 0
    assert queues.forget_idle(NOW + 181, 180) == 1
    assert queues.get(HOP) is None
    assert queues.add(HOP, item(2), NOW).identity == 2


def test_a_suspended_queue_is_not_forgotten() -> None:
    queues = Queues()
    queues.queue(HOP, NOW).suspended = True
    assert queues.forget_idle(NOW + 999, 180) == 0


def test_every_item_is_attended_to_in_time_whatever_its_queue_does() -> None:
    """Retry, deferred, suspended: an expiry is seen in each, with a small budget a call."""
    queues = Queues()
    for number in range(100):
        entry = item(number, attend=NOW + 10 if number % 10 == 0 else NOW + DAY)
        if number % 3 == 0:
            entry.due = NOW + DAY
        entry.suspended = number % 7 == 0
        queues.add(HOP if number % 2 else OTHER, entry, NOW)
    found: list[int] = []

    def act(queue: DeliveryQueue, entry: Item) -> None:
        found.append(entry.number)
        assert queue.drop(entry)

    for _ in range(20):
        queues.attend(NOW + 9, 13, act)
    assert found == []
    for _ in range(20):
        queues.attend(NOW + 10, 13, act)
    assert sorted(found) == list(range(0, 100, 10))
    assert sum(len(queue) for queue in queues) == 90


def test_attending_to_nothing_ends() -> None:
    queues = Queues()
    queues.attend(NOW, 100, lambda _queue, _item: None)
    queues.queue(HOP, NOW)
    queues.attend(NOW, 100, lambda _queue, _item: None)


def test_nothing_is_lost_or_doubled_by_any_order_of_what_may_happen() -> None:
    """A thousand random steps against a plain set of numbers."""
    chance = random.Random(7)
    queue = DeliveryQueue(HOP, 1, NOW)
    alive: set[int] = set()
    hands: list[Item] = []
    now = NOW
    for number in range(1000):
        now += chance.random() * 5
        match chance.randrange(8):
            case 0 | 1 | 2:
                queue.add(item(number), now)
                alive.add(number)
            case 3 | 4:
                taken = queue.take(now)
                if taken is not None:
                    assert taken.number in alive
                    assert taken not in hands
                    hands.append(taken)
            case 5 if hands:
                queue.put_back(hands.pop(), now, now + chance.choice([0, 3, 30]))
            case 6 if hands:
                done = hands.pop()
                queue.settled(done, now)
                alive.discard(done.number)
            case 7 if alive:
                victim = queue.find(chance.choice(sorted(alive)))
                if victim is not None and victim not in hands and chance.random() < 0.5:
                    assert queue.drop(victim)
                    alive.discard(victim.number)
                elif victim is not None:
                    queue.suspend(victim)
                    queue.resume(victim, now)
        assert sorted(numbers(queue)) == sorted(alive)
        assert len(queue) == len(alive)
