"""Tells of changes of a store: one timer a worker, so that no request ever asks.

A look costs a `stat` and a `PRAGMA data_version` (about 10 µs in all, ten times a second).
Inotify would save even that, but it sees writes to the file beside the database, not commits, needs ctypes and a
watch on the folder for replaced files, and does not work on every file system; a timer is simpler and surer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gatepost.store.sqlite import Store, StoreUnavailable

INTERVAL_SECONDS = 0.1
"""A change is seen within this time: "well under a second"."""


class Watch:
    """Looks at `store` every `interval` seconds on `loop`.

    `changed` is called after every change, and once when the store is first read or can be read again; it may raise
    `StoreUnavailable` (it is then called again at the next look). `failed` is called once when the store cannot be
    read any more, `recovered` once when that is over, `looked` after every look that found the store readable. None of
    them may block.
    """

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        *,
        changed: Callable[[], None],
        failed: Callable[[StoreUnavailable], None],
        recovered: Callable[[], None],
        looked: Callable[[], None] = lambda: None,
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        self._store = store
        self._loop = loop
        self._changed = changed
        self._failed = failed
        self._recovered = recovered
        self._looked = looked
        self._interval = interval
        self._timer: asyncio.TimerHandle | None = None
        self._due = True
        self.fault: StoreUnavailable | None = None
        """What was wrong at the last look; None: all well."""

    @property
    def running(self) -> bool:
        """Whether the timer runs."""
        return self._timer is not None

    def start(self) -> None:
        """Look now, then again and again until `stop`."""
        if self._timer is None:
            self._tick()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self._interval, self._tick)
        self.look()

    def look(self) -> None:
        """Look now."""
        before = self.fault
        try:
            if self._store.look() or self._due:
                self._due, self.fault = True, None
                self._changed()
                self._due = False
        except StoreUnavailable as fault:
            self._due, self.fault = True, fault
            if before is None:
                self._failed(fault)
        else:
            self._looked()
            if before is not None:
                self._recovered()
