"""The queue of password checks: what one address may take, and whose turn it is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from gatepost.directory.check_queue import CheckQueue, QueueFull, owner_of

A, B, C = "192.0.2.1", "192.0.2.2", "2001:db8::1"


class Order:
    """Work that notes when it ran; while the gate is closed, it stands in its thread."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.gate = threading.Event()

    def work(self, name: str) -> Callable[[], bool]:
        def run() -> bool:
            assert self.gate.wait(10)
            self.ran.append(name)
            return True

        return run


@pytest.fixture
def order() -> Iterator[Order]:
    order = Order()
    yield order
    order.gate.set()


def fill(queue: CheckQueue, order: Order, *names: str) -> list[asyncio.Future[bool]]:
    """One check for each name, which begins with its address's letter."""
    addresses = {"a": A, "b": B, "c": C}
    return [queue.put(addresses[name[0]], order.work(name)) for name in names]


async def test_addresses_take_turns(order: Order) -> None:
    """Whoever asks often waits behind whoever asks once."""
    queue = CheckQueue(1, 64, 8)
    futures = fill(queue, order, "a1", "a2", "a3", "a4", "b1", "b2", "c1")
    order.gate.set()
    assert all(await asyncio.gather(*futures))
    assert order.ran == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]
    queue.close()


async def test_an_address_has_so_many_checks_running_ones_included(order: Order) -> None:
    queue = CheckQueue(1, 64, 2)
    futures = fill(queue, order, "a1", "a2", "b1")
    with pytest.raises(QueueFull, match="this client address"):
        fill(queue, order, "a3")
    order.gate.set()
    await asyncio.gather(*futures)
    assert await fill(queue, order, "a4")[0]
    queue.close()


async def test_a_full_queue_makes_room_for_who_has_less_of_it(order: Order) -> None:
    """The last check of the longest line gives way; who has the longest line, or would have, gets no room."""
    queue = CheckQueue(1, 4, 8)
    futures = fill(queue, order, "a1", "a2", "a3", "a4", "b1")
    with pytest.raises(QueueFull, match="too many password checks are waiting"):
        fill(queue, order, "a5")
    futures += fill(queue, order, "b2")
    assert futures[3].cancelled()
    with pytest.raises(QueueFull):
        fill(queue, order, "b3")
    order.gate.set()
    await asyncio.gather(*(f for f in futures if not f.cancelled()))
    assert order.ran == ["a1", "a2", "b1", "a3", "b2"]
    assert (queue._held, queue._lines, queue._waiting, queue._running) == ({}, {}, 0, 0)
    queue.close()


async def test_a_fault_frees_its_place(order: Order) -> None:
    def fail() -> bool:
        raise ValueError("broken")

    queue = CheckQueue(1, 1, 1)
    with pytest.raises(ValueError, match="broken"):
        await queue.put(A, fail)
    order.gate.set()
    assert await fill(queue, order, "a1")[0]
    queue.close()


async def test_closing_drops_who_waits(order: Order) -> None:
    queue = CheckQueue(1, 64, 8)
    running, waiting = fill(queue, order, "a1", "a2")
    queue.close()
    assert waiting.cancelled()
    with pytest.raises(QueueFull):
        fill(queue, order, "b1")
    order.gate.set()
    assert await running
    assert order.ran == ["a1"]


@pytest.mark.parametrize(
    ("client", "owner"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::9", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("/run/socket", "/run/socket"),
    ],
)
def test_who_an_address_belongs_to(client: str, owner: str) -> None:
    """One subscriber has a whole /64 in IPv6; a mapped address is the IPv4 host's."""
    assert owner_of(client) == owner
