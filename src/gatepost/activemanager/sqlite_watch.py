"""How a worker follows the embedded registry: a timer that looks at the file twenty times a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gatepost.activemanager import boot_clock
from gatepost.activemanager.port import RegistryView
from gatepost.activemanager.sqlite_reading import read_view, state_mark
from gatepost.activemanager.sqlite_schema import SCHEMA
from gatepost.activemanager.watched import WatchedView
from gatepost.store.sqlite import Store, StoreUnavailable, faults_of
from gatepost.store.watch import Watch

LOOK_SECONDS = 0.05
"""Between two looks: the last of several workers, which look at different moments, knows of a move within this time.
Twenty looks a second cost 0.02 % of a processor."""
MISSED_LOOKS = 20
"""A loop that is busy for so many looks has not lost the registry."""


class SqliteRegistryWatch:
    """The `OwnedRegistryWatch` of a worker. When the file cannot be read the last view stays, and grows stale."""

    def __init__(self, path: str, loop: asyncio.AbstractEventLoop, interval: float = LOOK_SECONDS) -> None:
        self._path = path
        self._store = Store(path, SCHEMA)
        self._watched = WatchedView(path, loop, MISSED_LOOKS * interval)
        self._mark: tuple[int, int] | None = None
        self._watch = Watch(
            self._store,
            loop,
            changed=self._changed,
            failed=self._failed,
            recovered=lambda: None,
            looked=self._watched.heard,
            interval=interval,
        )

    @property
    def view(self) -> RegistryView:
        """The last view seen, empty if there was none; never blocks."""
        return self._watched.view

    @property
    def stale_seconds(self) -> float:
        """As `RegistryWatch.stale_seconds`."""
        return self._watched.stale_seconds

    def on_change(self, callback: Callable[[RegistryView], None]) -> None:
        """Have `callback` called on the event loop with every new view."""
        self._watched.on_change(callback)

    def start(self) -> None:
        """Read the view now and follow it. A missing or broken file is logged, not raised: it may come."""
        self._watch.start()

    async def first_view(self, seconds: float) -> bool:
        """As `OwnedRegistryWatch.first_view`."""
        return await self._watched.first_view(seconds)

    async def look_now(self, _seconds: float) -> bool:
        """As `OwnedRegistryWatch.look_now`."""
        self._watch.look()
        await asyncio.sleep(0)  # for the callbacks
        return self._watch.fault is None

    def close(self) -> None:
        """Stop watching and let go of the file."""
        self._watch.stop()
        self._store.close()

    def _changed(self) -> None:
        with faults_of(self._path):
            connection = self._store.connection()
            mark = state_mark(connection)
            if mark == self._mark:
                return  # a lease was kept, which changes the file and no view
            found = read_view(connection, boot_clock.now())
        self._watched.take(found)
        self._mark = mark

    def _failed(self, fault: StoreUnavailable) -> None:
        self._mark = None
        self._watched.lost(str(fault))
