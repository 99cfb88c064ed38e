"""The part of every `RegistryWatch` that is the same: the last view, who is told of it, and for how long it is old."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

import structlog

from gatepost.activemanager.boot_clock import boot_seconds
from gatepost.activemanager.port import RegistryView
from gatepost.routing.decision import ActiveCopy

_NEVER_ACTIVE = ActiveCopy("", "", 0)


class WatchedView:
    """Holds the view of the registry `where`, on one event loop.

    The registry has the last word: after an older state was put back, workers follow it, and the log says so. Only
    databases that it has lost altogether keep what was last known of them.
    """

    def __init__(
        self,
        where: str,
        loop: asyncio.AbstractEventLoop,
        quiet_seconds: float,
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        """Being heard of less than `quiet_seconds` ago is as good as now: so far apart two signs of life may be."""
        self.view = RegistryView()
        self.log = structlog.get_logger("gatepost")
        self.known = asyncio.Event()
        """Set once there was a first view."""
        self._news = asyncio.Event()
        """Set when the registry was heard of."""
        self._where = where
        self._loop = loop
        self._quiet_seconds = quiet_seconds
        self._clock = clock
        self._heard = clock()
        self._failed = False
        self._callbacks: list[Callable[[RegistryView], None]] = []

    @property
    def stale_seconds(self) -> float:
        """For how long the registry has not been heard of, be it that this process stood still; 0 while it is."""
        age = self._clock() - self._heard
        return age if self._failed or age > self._quiet_seconds or not self.known.is_set() else 0.0

    async def first_view(self, seconds: float) -> bool:
        """Wait until there is a view, at most `seconds`; answers whether there is."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.known.wait(), seconds)
        return self.known.is_set()

    def on_change(self, callback: Callable[[RegistryView], None]) -> None:
        """Have `callback` called with every new view."""
        self._callbacks.append(callback)

    async def heard_since(self, moment: float) -> None:
        """Until the view is known to be the registry's as of `moment` of the clock, or later."""
        while self._heard < moment or self._failed:
            self._news.clear()
            await self._news.wait()
        await asyncio.sleep(0)  # for the callbacks

    def heard(self, moment: float | None = None) -> None:
        """The view is the registry's as of now, or as of `moment` of the clock; says so when it was not before."""
        self._heard = max(self._heard, self._clock() if moment is None else moment)
        self._news.set()
        if self._failed:
            self._failed = False
            self.log.info("registry.available", registry=self._where)

    def recall(self, view: RegistryView, heard: float) -> None:
        """What was known as of `heard`, before this process began; nothing where there is a view already."""
        if not self.known.is_set():
            self._heard = heard
            self.take(view)

    def lost(self, reason: str) -> None:
        """The registry cannot be heard of any more; logged once."""
        if not self._failed:
            self._failed = True
            self.log.error("registry.unavailable", registry=self._where, reason=reason)

    def take(self, found: RegistryView) -> None:
        """The registry's present view. Tells those who asked for it when it differs from the one before."""
        before = self.view
        self.known.set()
        if found == before:
            return
        went_back = sorted(
            name for name, old in before.active.items() if found.active.get(name, _NEVER_ACTIVE).epoch < old.epoch
        )
        if went_back:
            self.log.error("registry.went_back", registry=self._where, databases=went_back)
            found = replace(found, active=MappingProxyType(dict(before.active) | dict(found.active)))
        self.view = found
        for callback in self._callbacks:
            self._loop.call_soon(callback, found)  # so that a fault in one is the loop's to report, and no other's
