"""The message after the one that is being sent, taken for the same connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

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
        self.due = inf
        """When it is given back at the latest, in the loop's time; infinite: nobody watches."""
        self.item: Item | None = item
        """None: it was given back."""
        self.held = False
        """Its envelope is held."""

    def take(self) -> tuple[Item | None, bool]:
        """It is its turn: the item, if it is still here, and whether its envelope is held."""
        self.due = inf
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


class AheadWatch:
    """Gives back what is taken ahead for a connection unless its turn comes soon: the server may have fallen silent,
    and of the message no more has been said than who it is for.

    One timer serves all messages of the connection, for one a message costs more than looking again now and then.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._ahead: TakenAhead | None = None

    def begin(self, ahead: TakenAhead) -> None:
        """Watch this one; the turn of the one before has come."""
        ahead.due = self._loop.time() + STALLED_SECONDS
        self._ahead = ahead
        if self._timer is None:
            self._timer = self._loop.call_at(ahead.due, self._look)

    def end(self) -> None:
        """The connection sends nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        ahead = self._ahead
        if ahead is None or ahead.due == inf:
            return
        if self._loop.time() < ahead.due:
            self._timer = self._loop.call_at(ahead.due, self._look)
        else:
            ahead.give_back()
