"""How many mail sessions a user or an address has at all front ends, in the shared store.

Each worker holds numbers of its own and says every few seconds that it is there; the store forgets it when it no longer
does, by its own clock, and numbers of a worker that is not there do not count. Beside that every front end counts by
itself, in its own file: that limit holds also while the store is away.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from gatepost.directory.policy.sessions import SessionCounts
from gatepost.sharedstate.store.names import Names
from gatepost.sharedstate.store.port import Put
from gatepost.sharedstate.store.rounds import Decide, Rounds

BEAT_SECONDS = 5.0
LIVE_SECONDS = 20.0
"""The store forgets a worker that has not said for so long that it is there."""
HELD_SECONDS = 3600.0
"""The store forgets numbers that nobody has written for so long."""
REFRESH_BEATS = 180
"""Beats between two times that a worker writes all its numbers anew."""
TOGETHER = 40
"""Keys of one operation."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, int]).decode


class SharedSessionCounts:
    """The `SessionCounts` of all front ends. `own`: that of this front end; `clock` answers seconds since 1970."""

    def __init__(
        self,
        rounds: Rounds,
        names: Names,
        own: SessionCounts,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
    ) -> None:
        self._rounds = rounds
        self._names = names
        self._own = own
        self._loop = loop
        self._clock = clock
        self._worker = secrets.token_hex(8)
        self._held: Counter[str] = Counter()
        """Sessions of this worker by key."""
        self._not_in_file: Counter[str] = Counter()
        """Those that the own file does not count, because it could not be written."""
        self._entering: Counter[str] = Counter()
        """Being counted now: until that is over nobody knows what the store has."""
        self._unsure: set[str] = set()
        """Keys whose number in the store may not be that of `_held`."""
        self._beats = 0
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None
        rounds.on_back(self._back)

    async def enter(self, keys: Sequence[tuple[str, int]]) -> str | None:
        """See `SessionCounts`."""
        if self._timer is None:
            self._beat_later(0.0)
        words = [key for key, _ in keys]
        full = await self._own.enter(keys)
        if full:
            return full
        in_file = full is not None
        self._entering.update(words)
        try:
            full = await self._enter_shared(keys)
        except BaseException:
            if in_file:
                self._own.leave(words)
            raise
        else:
            if full:
                if in_file:
                    self._own.leave(words)
            elif full is not None or in_file:
                self._held.update(words)
                if not in_file:
                    self._not_in_file.update(words)
                if full is None:
                    self._unsure.update(words)
                    full = ""
        finally:
            self._entering.subtract(words)
            self._settle(words)
        return full

    def leave(self, keys: Sequence[str]) -> None:
        """See `SessionCounts`."""
        in_file = []
        for key in keys:
            self._held[key] -= 1
            if self._not_in_file[key] > 0:
                self._not_in_file[key] -= 1
            else:
                in_file.append(key)
        if in_file:
            self._own.leave(in_file)
        self._unsure.update(keys)
        self._settle(keys)

    def close(self) -> None:
        """Say that this worker is not there any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._beating is not None:
            self._beating.cancel()
        if self._beats:
            name = self._alive(self._worker)
            self._rounds.tell([name], lambda _values, _now: ({name: None}, True), self._clock())

    # --- counting

    async def _enter_shared(self, keys: Sequence[tuple[str, int]]) -> str | None:
        limits = [(self._names.text("sessions", key), limit) for key, limit in keys]
        words = {name: key for (name, _), (key, _) in zip(limits, keys, strict=True)}
        dead: frozenset[str] = frozenset()
        if not self._beats:
            await self._say_there()  # or others would take what this worker holds for that of a dead one
        while True:
            decide = entering(self._worker, limits, dead)
            answer = await self._rounds.ask(
                list(words), decide, self._clock(), lambda _: self._not_sure(words.values())
            )
            if answer is None:
                self._unsure.update(words.values())
                return None
            full, workers = answer
            if not full:
                return ""
            gone = await self._gone(workers - {self._worker})
            if gone <= dead:
                return words[full]
            dead |= gone

    async def _gone(self, workers: frozenset[str]) -> frozenset[str]:
        """Those who are not there any more."""
        names = {self._alive(worker): worker for worker in workers}
        if not names:
            return frozenset()

        def decide(values: Mapping[str, bytes], _now: float) -> tuple[dict[str, Put | None], frozenset[str]]:
            return {}, frozenset(worker for name, worker in names.items() if name not in values)

        return await self._rounds.ask(list(names), decide, self._clock()) or frozenset()

    def _not_sure(self, keys: Iterable[str]) -> None:
        """An answer came too late for whoever asked."""
        self._unsure.update(keys)
        self._settle(list(keys))

    def _settle(self, keys: Iterable[str]) -> None:
        """Have the store hold the numbers of those keys that it may not hold, as soon as nothing of theirs is open."""
        ready = [key for key in keys if key in self._unsure and self._entering[key] <= 0]
        for key in ready:
            del self._entering[key]
        self._unsure.difference_update(ready)
        for begin in range(0, len(ready), TOGETHER):
            words = {self._names.text("sessions", key): key for key in ready[begin : begin + TOGETHER]}
            self._rounds.tell(list(words), self._holding(words), self._clock())

    def _holding(self, words: Mapping[str, str]) -> Decide[bool]:
        """Writes this worker's numbers as they are when it comes to that."""

        def decide(values: Mapping[str, bytes], _now: float) -> tuple[dict[str, Put | None], bool]:
            puts: dict[str, Put | None] = {}
            for name, key in words.items():
                if self._entering[key] > 0:
                    self._unsure.add(key)
                    continue
                counts = read(values.get(name))
                if self._held[key] > 0:
                    counts[self._worker] = self._held[key]
                else:
                    counts.pop(self._worker, None)
                if counts or name in values:
                    puts[name] = Put(_encode(counts), HELD_SECONDS) if counts else None
            return puts, True

        return decide

    # --- being there

    def _alive(self, worker: str) -> str:
        return self._names.plain("workers", worker)

    def _beat_later(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._beat)

    def _beat(self) -> None:
        self._beat_later(BEAT_SECONDS)
        if self._beating is None or self._beating.done():
            self._beating = self._loop.create_task(self._say_there())

    async def _say_there(self) -> None:
        name = self._alive(self._worker)
        put = Put(b"1", LIVE_SECONDS)
        there = await self._rounds.ask([name], lambda values, _now: ({name: put}, name in values), self._clock())
        if there is None:
            return
        self._beats += 1
        if not there or self._beats % REFRESH_BEATS == 0:
            self._write_all()

    def _back(self) -> None:
        """The store is there, for the first time or again: it may have forgotten us, or lost all."""
        if self._timer is not None:
            self._beat()
            self._write_all()

    def _write_all(self) -> None:
        for key in [key for key, number in self._held.items() if number <= 0]:
            del self._held[key]
        self._unsure.update(self._held)
        self._settle(list(self._unsure))


def entering(worker: str, keys: Sequence[tuple[str, int]], dead: frozenset[str]) -> Decide[tuple[str, frozenset[str]]]:
    """Counts one session under each name unless a limit (above 0) is reached; answers that name, with the workers that
    hold something there, else nothing. What the `dead` held is removed."""

    def decide(values: Mapping[str, bytes], _now: float) -> tuple[dict[str, Put | None], tuple[str, frozenset[str]]]:
        counts = {name: read(values.get(name)) for name, _ in keys}
        for name, limit in keys:
            for gone in dead:
                counts[name].pop(gone, None)
            if limit and sum(counts[name].values()) >= limit:
                return {}, (name, frozenset(counts[name]))
        puts: dict[str, Put | None] = {}
        for name, _ in keys:
            counts[name][worker] = counts[name].get(worker, 0) + 1
            puts[name] = Put(_encode(counts[name]), HELD_SECONDS)
        return puts, ("", frozenset())

    return decide


def read(value: bytes | None) -> dict[str, int]:
    """Numbers by worker."""
    if value is None:
        return {}
    try:
        return {worker: number for worker, number in _decode(value).items() if number > 0}
    except msgspec.DecodeError:
        return {}  # damaged: it begins anew, and each worker writes its own again
