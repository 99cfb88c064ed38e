"""How many sign-ins are under way at one mailbox server: past the bound they wait, users in turn.

After a move, a failover or a network's return thousands of clients come at once. A server whose sign-ins are slow would
take them all and be done with none in time; here a worker has `limit` under way at it, and the rest wait their turn.
"""

from __future__ import annotations

import asyncio

from gatepost.balancing.fair_queue import FairQueue, QueueFull

NO_TURN = "too many sign-ins wait for this server"

Turn = asyncio.Future[bool]
"""True: it is your turn, and `leave` must follow. False: there is none to be had."""


class _Server:
    __slots__ = ("queue", "used")

    def __init__(self, waiting_limit: int) -> None:
        self.used = 0
        self.queue: FairQueue[Turn] = FairQueue(waiting_limit)


class SignInTurns:
    """Turns of one worker at all servers. Without contention a sign-in costs two look-ups and two additions."""

    __slots__ = ("_loop", "_servers", "limit", "refused", "waiting_limit")

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int, waiting_limit: int) -> None:
        """`limit` under way at one server; `waiting_limit` wait for it."""
        self._loop = loop
        self._servers: dict[str, _Server] = {}
        self.limit = limit
        self.waiting_limit = waiting_limit
        self.refused = 0
        """Who found no room to wait, or gave way to a user who has fewer."""

    def enter(self, server: str) -> bool:
        """Whether it is your turn at once; then `leave` must follow. While others wait all turns are taken."""
        found = self._servers.get(server)
        if found is None:
            found = self._servers[server] = _Server(self.waiting_limit)
        if found.used >= self.limit:
            return False
        found.used += 1
        return True

    def ask(self, server: str, user: str) -> Turn:
        """Wait for a turn that `enter` did not give. Who stops waiting must `withdraw`."""
        turn: Turn = self._loop.create_future()
        found = self._servers[server]
        try:
            displaced = found.queue.put(user, turn)
        except QueueFull:
            self.refused += 1
            turn.set_result(False)
            return turn
        if displaced is not None and not displaced.done():
            self.refused += 1
            displaced.set_result(False)
        return turn

    def withdraw(self, server: str, user: str, turn: Turn) -> None:
        """Whatever became of `turn`, nothing will be made of it: if it has come meanwhile it is the next one's."""
        found = self._servers.get(server)
        if found is not None:
            found.queue.cancel(user, turn)
        if not turn.done():
            turn.set_result(False)
        elif not turn.cancelled() and turn.result():
            self.leave(server)

    def leave(self, server: str) -> None:
        """A sign-in that had a turn is over."""
        found = self._servers[server]
        found.used -= 1
        self._let_in(found)
        if not found.used and not found.queue:
            del self._servers[server]

    def set_limits(self, limit: int, waiting_limit: int) -> None:
        """Other bounds from now on; those over them stay."""
        self.limit, self.waiting_limit = limit, waiting_limit
        for found in self._servers.values():
            found.queue.set_limit(waiting_limit)
            self._let_in(found)

    @property
    def under_way(self) -> int:
        """Sign-ins under way at all servers."""
        return sum(found.used for found in self._servers.values())

    @property
    def waiting(self) -> int:
        """Sign-ins that wait for their turn."""
        return sum(len(found.queue) for found in self._servers.values())

    def _let_in(self, found: _Server) -> None:
        while found.queue and found.used < self.limit:
            turn = found.queue.pop()
            if not turn.done():
                found.used += 1
                turn.set_result(True)
