"""How many requests one worker has under way (SPEC B4): past the bound they wait briefly, users in turn."""

from __future__ import annotations

import asyncio
from typing import Protocol

from gatepost.access.http.waiting_room import WaitingRoom

MAX_WAITING = 2000
"""Requests that wait for a slot. At the rate of a busy worker, some thousand a second, more would wait in vain."""


class Entrant(Protocol):
    """A request that asked for a slot (`access.http.exchange.Exchange`)."""

    def let_in(self) -> None:
        """It has a slot now. Also one that has ended meanwhile must `leave`, or call `give_up` when it ends."""
        ...

    def turned_away(self, reason: str) -> None:
        """It gets none: answer that the service is busy. It must not `leave`."""
        ...


class Slots:
    """`used` of `limit` slots are taken. Without contention a request costs one comparison and two additions.

    Every `enter` that answered True, and every `let_in`, is followed by exactly one `leave`.
    """

    __slots__ = ("_letting_in", "_waiting", "limit", "used")

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop, max_waiting: int = MAX_WAITING) -> None:
        self.limit = limit
        self.used = 0
        self._letting_in = False
        self._waiting: WaitingRoom[Entrant] = WaitingRoom(loop, max_waiting, _turn_away)

    def enter(self, user: str, request: Entrant) -> bool:
        """True: `request` has a slot. False: it is told later, or has been told already, by `let_in` or `turned_away`.

        While somebody waits all slots are taken, so nobody overtakes.
        """
        if self.used < self.limit:
            self.used += 1
            return True
        self._waiting.put(user, request)
        return False

    def leave(self) -> None:
        """A request that had a slot is over."""
        self.used -= 1
        if self._waiting.present:
            self._let_in()

    def give_up(self, request: Entrant) -> None:
        """`request` has ended while it waited. Nothing happens when it did not wait."""
        self._waiting.cancel(request)

    def set_limit(self, limit: int) -> None:
        """Another bound from now on; those over it stay."""
        self.limit = limit
        if self._waiting:
            self._let_in()

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    def patient(self) -> list[str]:
        """Users who have waited for long, as `WaitingRoom.patient`."""
        return self._waiting.patient()

    @property
    def refused(self) -> int:
        """Requests that were turned away since the start."""
        return self._waiting.refused

    def _let_in(self) -> None:
        # A request that is let in and ends at once comes here again: the loop goes on, the stack does not grow.
        if self._letting_in:
            return
        self._letting_in = True
        try:
            while self._waiting and self.used < self.limit:
                self.used += 1
                self._waiting.pop().let_in()
        finally:
            self._letting_in = False


def _turn_away(request: Entrant, reason: str) -> None:
    request.turned_away(reason)
