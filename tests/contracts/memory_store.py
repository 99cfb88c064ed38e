"""A shared store in memory, that can be slow, hang, fail, lose all, and be raced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from gatepost.sharedstate.store.port import Commit, Found, StoreAway


class MemoryStore:
    """The `KeyValues` of several front ends: each has its own `hold` on it."""

    def __init__(self) -> None:
        self.values: dict[str, Found] = {}
        self.version = 0
        self.now: float | None = None
        """What its clock says; None: it tells none."""

    def hold(self) -> Hold:
        return Hold(self)


class Hold:
    """One front end's way to the store."""

    where = "memory"

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.fails = False
        self.fault: Exception = StoreAway("connection refused")
        """How, while it fails."""
        self.open = asyncio.Event()
        """While it is cleared nothing is answered."""
        self.open.set()
        self.before_commit: Callable[[], None] | None = None
        self.reads = 0
        self.tries = 0
        self.asked: list[str] = []
        self.commits = 0
        self.closed = False
        self.loses_answers = False
        """Changes are made, and their answers lost."""

    async def read(self, keys: Sequence[str]) -> tuple[dict[str, Found], float | None]:
        await self._way()
        self.reads += 1
        self.asked += keys
        assert len(set(keys)) == len(keys)
        return {key: self.store.values[key] for key in keys if key in self.store.values}, self.store.now

    async def commit(self, commits: Sequence[Commit]) -> list[bool]:
        if self.before_commit is not None:
            self.before_commit()
        await self._way()
        self.commits += 1
        touched = [key for commit in commits for key in commit.seen]
        assert len(set(touched)) == len(touched), "the changes of one call have no key in common"
        made = [self._make(commit) for commit in commits]
        if self.loses_answers:
            raise StoreAway("the connection was lost")
        return made

    async def close(self) -> None:
        self.closed = True

    async def _way(self) -> None:
        self.tries += 1
        await asyncio.sleep(0)
        await self.open.wait()
        if self.fails:
            raise self.fault

    def _make(self, commit: Commit) -> bool:
        values = self.store.values
        assert commit.puts.keys() <= commit.seen.keys(), "what is written was compared"
        if any(values.get(key) != seen for key, seen in commit.seen.items()):
            return False
        for key, put in commit.puts.items():
            self.store.version += 1
            if put is None:
                values.pop(key, None)
            else:
                assert put.value
                assert put.seconds > 0
                values[key] = Found(put.value, self.store.version)
        return True
