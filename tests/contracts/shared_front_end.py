"""One process of one front end at a shared store, without the rest of a front end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from gatepost.configuration.settings import SharedStoreSettings
from gatepost.directory.policy.sessions import OwnCounts
from gatepost.sharedstate.penalties import open_ledger
from gatepost.sharedstate.sqlite import SqliteSharedState
from gatepost.sharedstate.store.open import SharedStore
from gatepost.sharedstate.store.port import KeyValues
from gatepost.sharedstate.store.session_counts import SharedSessionCounts

SECRET = b"s" * 32
PREFIX = "/gatepost/contoso/shared"
Store = TypeVar("Store", bound=KeyValues)


class FrontEnd(Generic[Store]):
    """One process of one front end at the store."""

    def __init__(
        self, hold: Store, path: str, clock: Callable[[], float], answer_seconds: float, prefix: str = PREFIX
    ) -> None:
        loop = asyncio.get_running_loop()
        self.hold = hold
        self.own_ledger, self.writer = open_ledger(path, loop)
        self.own_state = SqliteSharedState(path, loop, clock=clock)
        settings = SharedStoreSettings(SECRET, prefix, answer_seconds)
        self.own_counts = OwnCounts()
        self.store = SharedStore(
            settings,
            self.own_ledger,
            loop,
            counts=self.own_counts,
            state=self.own_state,
            clock=clock,
            store=hold,
        )
        assert self.store.session_counts is not None
        assert self.store.state is not None
        self.counts: SharedSessionCounts = self.store.session_counts
        self.state = self.store.state

    async def close(self) -> None:
        await self.store.end()
        self.own_state.close()
        self.writer.close()


class Counting:
    """Front ends that are up already and count sessions together."""

    def __init__(self, front_ends: list[FrontEnd[Store]], forget: Callable[[str], None]) -> None:
        self._free = list(front_ends)
        self._forget = forget

    def front_end(self) -> SharedSessionCounts:
        return self._free.pop(0).counts

    def die(self, counts: SharedSessionCounts) -> None:
        """As the store sees it: nobody has said for its time that this worker is there."""
        self._forget(counts._alive(counts._worker))
