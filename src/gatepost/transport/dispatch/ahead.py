"""The message after the one that is being sent, taken for the same connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gatepost.transport.dispatch.hands import Hands
from gatepost.transport.queues.delivery_queue import STALLED_SECONDS, DeliveryQueue
from gatepost.transport.queues.item import Item


class TakenAhead:
    """An item in hand that waits for its turn at a connection. `given_back` is told when others may have it."""

    def __init__(
        self,
        queue: DeliveryQueue,
        item: Item,
        hands: Hands,
        clock: Callable[[], float],
        given_back: Callable[[DeliveryQueue], None],
    ) -> None:
        self._queue = queue
        self._hands = hands
        self._clock = clock
        self._given_back = given_back
        self._timer: asyncio.TimerHandle | None = None
        self.item: Item | None = item
        """None: it was given back."""
        self.held = False
        """Its envelope is held."""

    def watch(self) -> None:
        """Give it back unless its turn comes soon: the server may have fallen silent, and of the message no more has
        been said than who it is for."""
        self._timer = asyncio.get_running_loop().call_later(STALLED_SECONDS, self.give_back)

    def take(self) -> tuple[Item | None, bool]:
        """It is its turn: the item, if it is still here, and whether its envelope is held."""
        if self._timer is not None:
            self._timer.cancel()
        return self.item, self.held

    def give_back(self) -> None:
        """Another connection may send it. Safe twice."""
        item, _ = self.take()
        if item is not None:
            self.item = None
            if self.held:
                self.held = False
                self._hands.give_back(item.number)
            self._queue.put_back(item, self._clock())
            self._given_back(self._queue)
