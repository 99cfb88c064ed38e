"""Opening a connection to a next hop (SPEC T4 to T9): targets in turn, hedged, each outcome told to the selector.

How a connection is opened is a function of the caller's. What it raises decides:

- OSError, a timeout among them: a socket error, the server goes on the list of unhealthy ones;
- `NotServed`: the server was reached and does not want mail now; another target is tried, the list is left alone;
- an error that this machine alone is to blame for (no descriptors): nobody is marked, and nobody else is tried.

Greeting it is another function, for the one connection that has won: servers that greet late, to find out who talks too
early, are common, and neither unhealthy nor a reason to connect to a second one.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from gatepost.access import tasks
from gatepost.balancing.enhanced_dns import Attempt, Rotation, Turn
from gatepost.balancing.healthy_server_selector import HealthyServerSelector, UnhealthyServer
from gatepost.balancing.hedging import Hedge, Step
from gatepost.balancing.socket_errors import describe, is_ours
from gatepost.balancing.target import Target

MAX_BACKGROUND = 64
"""Attempts that lost and run on until their time is over; over it the newest ends at once, and is no failure."""
SUSPECT_PART = 1 / 8
"""Of the hedge's time: a target that has not answered an attempt for so long gets no further ones while others of its
preference are there. By the hedge's own time a busy queue would have all its connections waiting at one dead target."""
LOCAL_FAULT_WAIT = 5.0
"""Seconds until the next attempt when this machine had no descriptors or ports left."""

Connection = TypeVar("Connection")


class NotServed(Exception):
    """The server took the connection and refused to serve: its greeting was a 4yz or 5yz, TLS failed, and so on."""


class Notes(Protocol):
    """What the connectivity log wants to hear of connecting; see `transport.connectivity_log.SessionLog`."""

    def connected(self, now: float, target: Target) -> None:
        """A connection is open."""

    def failed(self, now: float, target: Target, error: OSError, server: UnhealthyServer | None) -> None:
        """A connection attempt returned a socket error; `server` is the entry on the list, if it is there."""

    def refused(self, now: float, target: Target, why: str) -> None:
        """A server did not want to serve."""


@dataclass(frozen=True, slots=True)
class Connected(Generic[Connection]):
    """A connection is open to `target`."""

    target: Target
    connection: Connection


@dataclass(frozen=True, slots=True)
class NotConnected:
    """No target took the connection. `due` is when to try again: seconds since 1970.

    `errors` are those of this time, in order; none when all targets were known to be down.
    """

    due: float
    errors: tuple[tuple[Target, OSError | NotServed], ...] = ()


@dataclass(eq=False, slots=True)
class _Running(Generic[Connection]):
    """An attempt under way, and what came of it: one of `connection` and `error`."""

    attempt: Attempt
    began: float
    notes: Notes | None
    hangs: bool = False
    connection: Connection | None = None
    error: OSError | NotServed | None = None


_Task = asyncio.Task[None]


@dataclass(slots=True)
class _Round(Generic[Connection]):
    """One call of `connect`: the attempts under way and what came of the others."""

    turn: Turn
    hedge: Hedge
    notes: Notes | None
    running: dict[_Task, _Running[Connection]] = field(default_factory=dict)
    errors: list[tuple[Target, OSError | NotServed]] = field(default_factory=list)
    local_fault: bool = False


class Connecting(Generic[Connection]):
    """Opens connections for all queues of the process. Keep one; `close` it at the end."""

    def __init__(
        self,
        selector: HealthyServerSelector,
        open: Callable[[Target], Awaitable[Connection]],  # noqa: A002 - the word
        discard: Callable[[Connection], None],
        clock: Callable[[], float] = time.time,
        greet: Callable[[Connection], Awaitable[Connection]] | None = None,
    ) -> None:
        """`open` opens one connection, `connect_seconds` are its limit; `discard` closes one that is not wanted after
        all, and must not wait; `clock` gives seconds since 1970.

        `greet` makes the connection usable, within limits of its own, and answers it or another one in its place. When
        it fails it has closed it, and raises `NotServed` or OSError: both mean that the server does not want to serve.
        """
        self.selector = selector
        self._open = open
        self._discard = discard
        self._clock = clock
        self._greet = greet
        self._background: dict[_Task, _Running[Connection]] = {}
        self._young: dict[int, tuple[float, _Running[Connection]]] = {}
        """Attempts under way that have not been unanswered for long, oldest first, with the loop's time of each."""

    @property
    def background(self) -> int:
        """Attempts that lost and run on."""
        return len(self._background)

    async def connect(
        self, rotation: Rotation, targets: Sequence[Target], notes: Notes | None = None
    ) -> Connected[Connection] | NotConnected:
        """Connect to the target whose turn it is, and on failure to the next ones. Never raises for a fault of theirs.

        Takes at most `connect_seconds` for each target that is tried after another, and what greetings take.
        """
        self._suspect()
        round_ = _Round[Connection](rotation.turn(targets), Hedge(self.selector.settings.hedge_seconds), notes)
        try:
            return await self._go(round_)
        finally:
            for task, running in round_.running.items():  # only when this call was cancelled, or `open` has a bug
                self._abandon(task, running)

    async def heartbeat(self, target: Target, notes: Notes | None = None) -> Connection:
        """Connect to `target` whatever the list says (SPEC T9). Raises OSError, `NotServed`, as `open` did."""
        running = _Running[Connection](Attempt(target), self._clock(), notes)
        task = self._start(running)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            self._abandon(task, running)
            raise
        connection = self._settle(task, running)
        if connection is None:
            raise running.error or OSError(errno.ECANCELED, "cancelled")
        return connection if self._greet is None else await self._greet(connection)

    async def close(self) -> None:
        """End what runs in the background, and wait for that."""
        left = list(self._background.items())
        self._background.clear()
        for task, running in left:
            self._abandon(task, running)
        if left:
            await asyncio.wait([task for task, _ in left])

    async def _go(self, round_: _Round[Connection]) -> Connected[Connection] | NotConnected:
        loop = asyncio.get_running_loop()
        while self._advance(round_, loop.time()):
            wake = round_.hedge.wake
            timeout = None if wake is None else max(wake - loop.time(), 0.0)
            done, _ = await asyncio.wait(round_.running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            winner: tuple[Attempt, Connection] | None = None
            for task in done:
                running = round_.running.pop(task)
                connection = self._settle(task, running)
                target = running.attempt.target
                if running.error is not None:
                    round_.errors.append((target, running.error))
                    round_.local_fault |= isinstance(running.error, OSError) and is_ours(running.error)
                    round_.hedge.failed(task, loop.time())
                    round_.turn.returned(running.attempt)
                elif connection is not None and winner is None:
                    winner = running.attempt, connection
                    round_.hedge.won(task)
                elif connection is not None:  # two opened in the same moment
                    round_.turn.returned(running.attempt)
                    self._discard(connection)
            if winner is not None:
                self._leave_running(round_)
                connected = await self._greeted(round_, *winner)
                if connected is not None:
                    return connected
        return self._not_connected(round_)

    async def _greeted(
        self, round_: _Round[Connection], attempt: Attempt, connection: Connection
    ) -> Connected[Connection] | None:
        """The connection when it can be used; None if the server does not want to serve."""
        if self._greet is None:
            return Connected(attempt.target, connection)
        try:
            return Connected(attempt.target, await self._greet(connection))
        except (NotServed, OSError) as error:
            refusal = error if isinstance(error, NotServed) else NotServed(str(error) or type(error).__name__)
        round_.errors.append((attempt.target, refusal))
        round_.turn.returned(attempt)
        if round_.notes is not None:
            round_.notes.refused(self._clock(), attempt.target, str(refusal))
        return None

    def _advance(self, round_: _Round[Connection], now: float) -> bool:
        """Begin what is to be begun; whether anything is under way."""
        hedge = round_.hedge
        while (step := hedge.step(now)) is not Step.WAIT:
            preference = hedge.preference if step is Step.SAME_PREFERENCE else None
            for running in round_.running.values():
                if not running.hangs:
                    running.hangs = True
                    self.selector.hangs(running.attempt.target)
            attempt = None if round_.local_fault else round_.turn.next(self._clock(), preference)
            if attempt is not None:
                running = _Running[Connection](attempt, self._clock(), round_.notes)
                task = self._start(running)
                round_.running[task] = running
                hedge.begun(task, attempt.target.preference, now)
            elif step is Step.ANY:
                return False
            else:
                hedge.none_left()
        return True

    def _not_connected(self, round_: _Round[Connection]) -> NotConnected:
        now = self._clock()
        due = round_.turn.due(now)
        if round_.local_fault:
            due = now + LOCAL_FAULT_WAIT
        elif due is None or due <= now:
            # All were reached and refused, or nothing is remembered (the naive mode): the first step of the schedule.
            due = now + self.selector.settings.queue_glitch_retry_interval
        return NotConnected(due, tuple(round_.errors))

    def _leave_running(self, round_: _Round[Connection]) -> None:
        """The others run on up to their time, so that a server that hangs is found out."""
        for task, running in round_.running.items():
            round_.turn.returned(running.attempt)
            if len(self._background) >= MAX_BACKGROUND:
                self._abandon(task, running)
            else:
                self._background[task] = running
                task.add_done_callback(self._background_done)
        round_.running.clear()

    def _background_done(self, task: _Task) -> None:
        running = self._background.pop(task, None)
        if running is not None:
            connection = self._settle(task, running)
            if connection is not None:
                self._discard(connection)

    def _suspect(self) -> None:
        """Attempts that have had no answer for a while hang, as all those at their targets are likely to."""
        late = asyncio.get_running_loop().time() - self.selector.settings.hedge_seconds * SUSPECT_PART
        while self._young:
            key, (began, running) = next(iter(self._young.items()))
            if began > late:
                return
            del self._young[key]
            if self.selector.settings.hedge_seconds > 0 and not running.hangs:
                running.hangs = True
                self.selector.hangs(running.attempt.target)

    def _start(self, running: _Running[Connection]) -> _Task:
        self._young[id(running)] = asyncio.get_running_loop().time(), running
        return tasks.start(self._attempt(running), f"connect {running.attempt.target}")

    async def _attempt(self, running: _Running[Connection]) -> None:
        try:
            async with asyncio.timeout(self.selector.settings.connect_seconds):
                running.connection = await self._open(running.attempt.target)
        except (OSError, NotServed) as error:
            running.error = error

    def _settle(self, task: _Task, running: _Running[Connection]) -> Connection | None:
        """Tell the selector and the log what came of an attempt that is over; its connection if there is one.

        Raises what `open` must not raise.
        """
        target, lease, now, notes = running.attempt.target, running.attempt.lease, self._clock(), running.notes
        self._hangs_no_longer(running)
        if task.cancelled():
            running.error = OSError(errno.ECANCELED, "cancelled")
        error = running.error
        if isinstance(error, NotServed):
            self.selector.succeeded(target, now)
            if notes is not None:
                notes.refused(now, target, str(error))
        elif error is not None:
            server = None
            if is_ours(error):
                self.selector.abandoned(target, lease)
            else:
                server = self.selector.failed(target, now, describe(error), lease, running.began)
            if notes is not None:
                notes.failed(now, target, error, server)
        elif running.connection is not None:
            self.selector.succeeded(target, now)
            if notes is not None:
                notes.connected(now, target)
        else:
            self.selector.abandoned(target, lease)
            task.result()
        return running.connection

    def _abandon(self, task: _Task, running: _Running[Connection]) -> None:
        """End an attempt that nothing is known of: no failure of the server."""
        self._hangs_no_longer(running)
        self.selector.abandoned(running.attempt.target, running.attempt.lease)
        task.cancel()
        task.add_done_callback(lambda _: self._discard_late(running))

    def _hangs_no_longer(self, running: _Running[Connection]) -> None:
        self._young.pop(id(running), None)
        if running.hangs:
            running.hangs = False
            self.selector.hangs_no_longer(running.attempt.target)

    def _discard_late(self, running: _Running[Connection]) -> None:
        """It may have opened in the moment it was cancelled."""
        if running.connection is not None:
            self._discard(running.connection)
