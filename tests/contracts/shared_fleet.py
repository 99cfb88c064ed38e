"""Front ends at one shared store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from ledger_contract import LedgerStage
from memory_store import Hold, MemoryStore
from shared_front_end import FrontEnd

from gatepost.sharedstate import penalties, session_counts
from gatepost.sharedstate.sqlite import prepare
from gatepost.sharedstate.store import ledger as shared_ledger
from gatepost.sharedstate.store import rounds as rounds_module
from gatepost.sharedstate.store import state as state_module

NOW = 1_800_000_000.0
PATIENCE_SECONDS = 20.0


class Fleet:
    """Front ends at one store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.memory = MemoryStore()
        self.now = NOW
        self.front_ends: list[FrontEnd[Hold]] = []

    async def add(self, answer_seconds: float = 30.0) -> FrontEnd[Hold]:
        path = str(self.folder / f"shared-{len(self.front_ends)}.sqlite")
        prepare(path)
        made = FrontEnd(self.memory.hold(), path, lambda: self.now, answer_seconds)
        self.front_ends.append(made)
        assert await made.store.start(PATIENCE_SECONDS)
        return made

    def forget(self, name: str) -> None:
        del self.memory.values[name]

    async def ledgers(self) -> LedgerStage:
        one, other = await self.add(), await self.add()
        return LedgerStage(one.store.ledger, other.store.ledger, lambda: self.now)


@pytest.fixture
async def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    monkeypatch.setattr(penalties, "ANSWER_SECONDS", 30.0)
    monkeypatch.setattr(session_counts, "ANSWER_SECONDS", 30.0)
    monkeypatch.setattr(shared_ledger, "MOVE_SECONDS", 0.02)
    monkeypatch.setattr(rounds_module, "PROBE_SECONDS", 0.02)
    monkeypatch.setattr(rounds_module, "ROUND_SECONDS", 30.0)
    monkeypatch.setattr(state_module.SharedStateOfAll.__init__, "__defaults__", (0.02,))
    made = Fleet(tmp_path)
    yield made
    for front_end in made.front_ends:
        front_end.hold.open.set()
        await front_end.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
