"""How a process asks the shared store: in rounds of one read and one commit, with a bounded wait.

    ask ──► queue ──► round: read all keys ──► decide, in turn ──► commit each group of keys ──► answers
                        ▲                                             └── somebody was faster: again
                        └── one at a time: what comes meanwhile is the next round

What is decided are the pure functions of the policy, so all engines judge alike. Operations that have a key in common
are decided one after the other and committed together; a change that another process was faster with is decided anew.

A caller waits `answer_seconds`, and not at all while a round takes longer. After a fault, or several slow rounds, the
store counts as away: nobody asks it but one probe a second for each process, until two are answered in time.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from gatepost.sharedstate.store.port import MAX_GROUP_KEYS, Commit, Found, KeyValues, Put, StoreAway

ROUND_SECONDS = 1.0
"""A round that takes longer has failed."""
SLOW_ROUNDS = 5
"""So many in a row above `answer_seconds`: the store counts as away until it is quick again."""
MAX_BATCH = 200
"""Operations of one round."""
MAX_PENDING = 10_000
"""Operations that wait, and those kept for when the store is back; of more the oldest are dropped."""
CHANGE_ATTEMPTS = 50
"""Of a change that others were faster with."""
PROBE_SECONDS = 1.0
"""Between two probes of a store that is away; half to one and a half times that, by chance."""
GOOD_PROBES = 2

T = TypeVar("T")
Decide = Callable[[Mapping[str, bytes], float], tuple[Mapping[str, Put | None], T]]
"""From the values that are there, and the time, to what is to be written (None: removed) and the answer. It may be
called several times."""


@dataclass(eq=False, slots=True)
class _Operation:
    keys: tuple[str, ...]
    decide: Decide[Any]
    now: float
    future: asyncio.Future[Any] | None = None
    """None: nobody waits, and it is kept while the store is away."""
    undo: Callable[[Any], None] | None = None
    attempts: int = 0
    begun: bool = False
    left: bool = False
    """Whoever asked waits no more."""


@dataclass(slots=True)
class _Group:
    operations: list[_Operation]
    keys: set[str]
    puts: dict[str, Put | None]
    answers: list[Any]


class Rounds:
    """Belongs to `loop`. Nothing here raises for a store that is away."""

    def __init__(
        self, store: KeyValues, loop: asyncio.AbstractEventLoop, answer_seconds: float, probe: str = "probe"
    ) -> None:
        """`probe`: a key that may be read, and need not be there."""
        self._store = store
        self._probe_key = probe
        self._loop = loop
        self.answer_seconds = answer_seconds
        self.away = True
        """Whether the store counts as away; it does until it has answered for the first time."""
        self._queue: deque[_Operation] = deque()
        self._kept: deque[_Operation] = deque(maxlen=MAX_PENDING)
        self._task: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None
        self._since: float | None = None
        """When the round under way began."""
        self._slow = 0
        self._told = False
        """Whether the log says that the store is away."""
        self._back: list[Callable[[], None]] = []
        self._ready = asyncio.Event()
        self._closed = False
        self._log = structlog.get_logger("gatepost")

    def on_back(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when the store answers for the first time, and when it does again."""
        self._back.append(callback)

    def start(self) -> None:
        """Look for the store."""
        self._probing = self._loop.create_task(self._probe())

    async def ready(self, seconds: float) -> bool:
        """Wait so long for the store's first answer; whether it has come."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ready.wait(), seconds)
        return not self.away

    async def ask(
        self, keys: Sequence[str], decide: Decide[T], now: float, undo: Callable[[T], None] | None = None
    ) -> T | None:
        """What `decide` answers, once what it writes is written; None: the store is away, or too slow.

        `undo` is called with an answer that nobody waited for any more, or whose change may have been made or not.
        """
        if self.away or self._closed or self._is_late() or len(self._queue) >= MAX_PENDING:
            return None
        future: asyncio.Future[Any] = self._loop.create_future()
        operation = _Operation(tuple(keys), decide, now, future, undo)
        self._add(operation)
        try:
            async with asyncio.timeout(self.answer_seconds):
                answer: T | None = await future
                return answer
        except (TimeoutError, asyncio.CancelledError) as end:
            operation.left = True
            if isinstance(end, TimeoutError):
                return None
            raise

    def tell(self, keys: Sequence[str], decide: Decide[Any], now: float) -> None:
        """Do what `decide` says. Nobody waits; while the store is away it is kept."""
        operation = _Operation(tuple(keys), decide, now)
        if self.away:
            self._kept.append(operation)
        elif not self._closed and len(self._queue) < MAX_PENDING:
            self._add(operation)

    async def end(self, seconds: float = 0.5) -> None:
        """Do what waits if that takes no longer than `seconds`, then let go of the store."""
        self._closed = True
        for task in (self._probing, self._task):
            if task is not None:
                if task is self._probing:
                    task.cancel()
                await asyncio.wait([task], timeout=seconds)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        for operation in self._queue:
            _answer(operation, None)
        await self._store.close()

    # --- rounds

    def _is_late(self) -> bool:
        return self._since is not None and self._loop.time() - self._since > self.answer_seconds

    def _add(self, operation: _Operation) -> None:
        self._queue.append(operation)
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._queue and not self.away:
                groups = self._take()
                began = self._since = self._loop.time()
                again: list[_Operation] = []
                try:
                    async with asyncio.timeout(ROUND_SECONDS):
                        again = await self._round(groups)
                except Exception as fault:  # noqa: BLE001 - whatever a library makes of an answer, it is none
                    self._failed(groups, self._why(fault))
                finally:
                    self._since = None
                self._queue.extendleft(reversed(again))
                self._judge_speed(self._loop.time() - began)
                if again:
                    await asyncio.sleep(random.uniform(0, 0.005))  # noqa: S311 - who collided shall not do so again
        finally:
            self._task = None

    def _take(self) -> list[_Group]:
        """The next operations, those that have keys in common together."""
        groups: dict[int, _Group] = {}
        group_of: dict[str, _Group] = {}
        left: list[_Operation] = []
        held: set[str] = set()
        """Keys of operations that must wait for the next round: those behind them wait too."""
        for _ in range(min(len(self._queue), MAX_BATCH)):
            operation = self._queue.popleft()
            if operation.left:
                continue
            touched = {id(group_of[key]): group_of[key] for key in operation.keys if key in group_of}
            keys = set(operation.keys).union(*(group.keys for group in touched.values()))
            if (touched and len(keys) > MAX_GROUP_KEYS) or not held.isdisjoint(operation.keys):
                held.update(operation.keys)
                left.append(operation)
                continue
            operations = [other for group in touched.values() for other in group.operations]
            for number in touched:
                del groups[number]
            operation.begun = True
            joined = _Group([*operations, operation], keys, {}, [])
            groups[id(joined)] = joined
            group_of.update(dict.fromkeys(keys, joined))
        self._queue.extendleft(reversed(left))
        return list(groups.values())

    async def _round(self, groups: list[_Group]) -> list[_Operation]:
        """Answers operations to do again. Raises `StoreAway`."""
        found, time = await self._store.read([key for group in groups for key in group.keys])
        for group in groups:
            self._decide(group, found, time)
        writing = [group for group in groups if group.puts]
        again: list[_Operation] = []
        made: list[bool] = []
        if writing:
            commits = [Commit({key: found.get(key) for key in group.keys}, group.puts) for group in writing]
            made = await self._store.commit(commits)
        lost = {id(group) for group, done in zip(writing, made, strict=True) if not done}
        for group in groups:
            for operation, answer in zip(group.operations, group.answers, strict=True):
                if id(group) not in lost:
                    _answer(operation, answer)
                elif operation.attempts >= CHANGE_ATTEMPTS:
                    _answer(operation, None)
                elif not operation.left:
                    operation.attempts += 1
                    again.append(operation)
            group.puts = {}  # done: a fault from here on concerns it no more
        return again

    def _decide(self, group: _Group, found: Mapping[str, Found], time: float | None) -> None:
        values = {key: found[key].value for key in group.keys if key in found}
        for operation in group.operations:
            puts, answer = operation.decide(values, operation.now if time is None else time)
            group.answers.append(answer)
            for key, put in puts.items():
                group.puts[key] = put
                if put is None:
                    values.pop(key, None)
                else:
                    values[key] = put.value

    def _failed(self, groups: list[_Group], reason: str) -> None:
        self._go_away(reason)
        for group in groups:
            for place, operation in enumerate(group.operations):
                if operation.future is None:
                    self._kept.append(operation)
                    continue
                if group.puts and place < len(group.answers) and operation.undo is not None:
                    operation.undo(group.answers[place])  # it may have been made or not
                operation.undo = None
                _answer(operation, None)

    def _judge_speed(self, seconds: float) -> None:
        self._slow = self._slow + 1 if seconds > self.answer_seconds else 0
        if self._slow >= SLOW_ROUNDS and not self.away:
            self._go_away(f"{SLOW_ROUNDS} answers in a row took longer than {self.answer_seconds:g} s")

    # --- away and back

    def _go_away(self, reason: str) -> None:
        if self.away:
            return
        self.away = True
        self._slow = 0
        self._say_away(reason)
        queue, self._queue = self._queue, deque()
        for operation in queue:
            if operation.future is None:
                self._kept.append(operation)
            _answer(operation, None)
        if not self._closed:
            self._probing = self._loop.create_task(self._probe())

    def _say_away(self, reason: str) -> None:
        if not self._told:
            self._told = True
            self._log.error("shared_store.unavailable", store=self._store.where, reason=reason, counting="alone")

    def _why(self, fault: Exception) -> str:
        if isinstance(fault, TimeoutError):
            return f"no answer within {ROUND_SECONDS:g} s"
        if not isinstance(fault, StoreAway):
            self._log.error("shared_store.fault", store=self._store.where, exc_info=fault)
            return "an answer that nobody understands"
        return str(fault)

    async def _probe(self) -> None:
        good = 0
        while good < GOOD_PROBES:
            began = self._loop.time()
            try:
                async with asyncio.timeout(ROUND_SECONDS):
                    await self._store.read([self._probe_key])
            except Exception as fault:  # noqa: BLE001 - it is asked again as long as this front end runs
                good = 0
                self._say_away(self._why(fault))
                await asyncio.sleep(random.uniform(0.5, 1.5) * PROBE_SECONDS)  # noqa: S311
                continue
            if self._loop.time() - began <= self.answer_seconds:
                good += 1
            else:  # the first has opened the connection
                good = 0
                await asyncio.sleep(0.1 * PROBE_SECONDS)
        self._come_back()

    def _come_back(self) -> None:
        self.away = False
        if self._told:
            self._told = False
            self._log.info("shared_store.available", store=self._store.where)
        self._ready.set()
        kept, self._kept = self._kept, deque(maxlen=MAX_PENDING)
        for operation in kept:
            self._add(operation)
        for callback in self._back:
            callback()


def _answer(operation: _Operation, answer: Any) -> None:  # noqa: ANN401 - of each operation's own type
    future, undo = operation.future, operation.undo
    if future is None:
        return
    if operation.left or future.done():
        if answer is not None and undo is not None:
            undo(answer)
        return
    future.set_result(answer)
