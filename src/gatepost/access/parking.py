"""Where sign-ins and requests wait while their database is between two homes (SPEC A3, field cases 11 and 116).

    a move is under way          nobody goes to the old server; all go on when the move is over, either way
    its server does not answer   where a manager looks after it and another copy is there: until another epoch

Nothing is sent anywhere meanwhile, so that whatever waits may go on, or be told to come back, without harm. Those who
are let go are so a few at a time; what they go on to (`access.sign_in_turns`, the pools of connections) takes users in
turn.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import NamedTuple
from typing import Protocol as Port

from gatepost.activemanager.port import Move, RegistryView
from gatepost.balancing.fair_queue import FairQueue, QueueFull
from gatepost.organization.model import Organization

LET_GO = 100
"""Who are let go before others of the worker get their turn: some milliseconds of it."""
FIRST_LOOK_SECONDS = 1.0
"""Who waits because a server does not answer looks for itself after so long, then after twice that, and so on: the
server may come back before anybody takes over from it."""
TOO_LONG = "the database has no new home in time"
TOO_MANY = "too many wait for a new home of their database"


class ParkingFull(RuntimeError):
    """Too many wait: this one can not, or not any more."""


class Waiter(Port):
    """What waits without a task of its own."""

    def parking_over(self, fault: str) -> None:
        """Go on; with `fault`, `TOO_LONG` or `TOO_MANY`, there is nothing new."""
        ...


class _Place(NamedTuple):
    user: str
    database: str
    epoch: int
    timer: asyncio.TimerHandle


class Parking:
    """All that wait in one worker, at most `limit`. Whoever has most of them makes room for who has fewer."""

    __slots__ = ("_by_database", "_freed", "_loop", "_places", "_queue", "_view", "limit", "moving", "refused")

    def __init__(self, loop: asyncio.AbstractEventLoop, view: RegistryView, limit: int) -> None:
        self._loop = loop
        self._view = view
        self._queue: FairQueue[Waiter] = FairQueue(limit)
        self._places: dict[Waiter, _Place] = {}
        self._by_database: dict[str, dict[Waiter, None]] = {}
        self._freed: dict[Waiter, None] = {}
        """Who need not wait any more and is about to be told so."""
        self.limit = limit
        self.moving: Mapping[str, Move] = view.moves
        """The moves under way, by database."""
        self.refused = 0
        """For how many there was nothing new in time, or no room."""

    def __len__(self) -> int:
        return len(self._places)

    def must_wait(self, database: str) -> bool:
        """Whether a move of `database` is under way: nobody goes to a copy of it now."""
        return database in self.moving

    def may_fail_over(self, organization: Organization, database: str, server: str) -> bool:
        """Whether somebody will make another copy the active one, if `server` stays away, which has it now."""
        active = self._view.active.get(database)
        if active is None or active.server != server or self._view.manager is None:
            return False
        found = organization.databases.get(database)
        return found is not None and any(copy.server != server for copy in found.copies)

    async def wait(self, database: str, epoch: int, seconds: float, user: str = "") -> bool:
        """Until the database has another epoch than `epoch`, or the move of it is over that was under way: True.

        False when `seconds` are over first. Raises `ParkingFull`.
        """
        sleeper = _Sleeper(self._loop)
        self.put(sleeper, database, epoch, seconds, user)
        try:
            fault = await sleeper.told
        finally:
            self.give_up(sleeper)
        if fault == TOO_MANY:
            raise ParkingFull(fault)
        return not fault

    def put(self, waiter: Waiter, database: str, epoch: int, seconds: float, user: str) -> None:
        """The same for who has no task. What came of it is always told later, never from within this call."""
        active = self._view.active.get(database)
        if active is not None and active.epoch != epoch:
            self._free(waiter)
            return
        try:
            displaced = self._queue.put(user, waiter)
        except QueueFull:
            self.refused += 1
            self._loop.call_soon(waiter.parking_over, TOO_MANY)
            return
        timer = self._loop.call_later(max(seconds, 0.0), self._late, waiter)
        self._places[waiter] = _Place(user, database, epoch, timer)
        self._by_database.setdefault(database, {})[waiter] = None
        if displaced is not None:
            self._forget(displaced)
            self.refused += 1
            self._loop.call_soon(displaced.parking_over, TOO_MANY)

    def give_up(self, waiter: Waiter) -> None:
        """`waiter` waits no more and is told nothing. Nothing happens when it does not wait."""
        self._freed.pop(waiter, None)
        place = self._places.get(waiter)
        if place is not None:
            self._queue.cancel(place.user, waiter)
            self._forget(waiter)

    def set_view(self, view: RegistryView) -> None:
        """The registry has another view."""
        before, self._view = self._view, view
        self.moving = view.moves
        for database, waiting in list(self._by_database.items()):
            active = view.active.get(database)
            epoch = active.epoch if active is not None else 0
            over = database in before.moves and database not in view.moves
            for waiter in [w for w in waiting if over or self._places[w].epoch != epoch]:
                self._queue.cancel(self._places[waiter].user, waiter)
                self._forget(waiter)
                self._free(waiter)

    def set_limit(self, limit: int) -> None:
        """Another bound from now on; those over it stay."""
        self.limit = limit
        self._queue.set_limit(limit)

    def _forget(self, waiter: Waiter) -> None:
        place = self._places.pop(waiter)
        place.timer.cancel()
        waiting = self._by_database[place.database]
        del waiting[waiter]
        if not waiting:
            del self._by_database[place.database]

    def _late(self, waiter: Waiter) -> None:
        self.give_up(waiter)
        self.refused += 1
        waiter.parking_over(TOO_LONG)

    def _free(self, waiter: Waiter) -> None:
        if not self._freed:
            self._loop.call_soon(self._let_go)
        self._freed[waiter] = None

    def _let_go(self) -> None:
        for waiter in list(self._freed)[:LET_GO]:
            # One that was told before may have had this one given up.
            if waiter in self._freed:
                del self._freed[waiter]
                waiter.parking_over("")
        if self._freed:
            self._loop.call_soon(self._let_go)


class _Sleeper:
    """A task that waits."""

    __slots__ = ("told",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.told: asyncio.Future[str] = loop.create_future()

    def parking_over(self, fault: str) -> None:
        """As `Waiter.parking_over`."""
        if not self.told.done():
            self.told.set_result(fault)


class Patience:
    """For how long one sign-in or request waits in all. It begins to count when there is something to wait for."""

    __slots__ = ("_chance", "_latest", "_seconds", "_step", "_until")

    def __init__(self, seconds: float, latest: float, chance: random.Random | None = None) -> None:
        """`seconds`, but never beyond `latest`, a moment of the loop's clock."""
        self._seconds = seconds
        self._latest = latest
        self._until: float | None = None
        self._step = FIRST_LOOK_SECONDS
        self._chance = chance or random.Random()  # noqa: S311 - jitter, no secret

    def left(self, now: float) -> float:
        """Seconds that are left; 0 or less: none."""
        if self._until is None:
            self._until = min(now + self._seconds, self._latest)
        return self._until - now

    def step(self, now: float) -> float:
        """Seconds until the next look; 0 or less: there is none. They grow, and are not the same for all."""
        left = self.left(now)
        step = self._step * self._chance.uniform(0.5, 1.5)
        self._step *= 2
        return min(step, left)
