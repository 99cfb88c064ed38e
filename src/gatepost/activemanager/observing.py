"""What the manager saw, on its way to the registry: the latest of each service, again until the registry has it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any
from typing import Protocol as Port

from structlog.typing import FilteringBoundLogger

from gatepost.activemanager.boot_clock import boot_seconds
from gatepost.activemanager.port import Lease, LeaseLost, Observation, Registry, RegistryUnavailable
from gatepost.activemanager.seen import Change, Key

AGAIN_SECONDS = 1.0


class Call(Port):
    """Runs a function of the registry in a thread."""

    async def __call__(self, function: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401
        """Raises what the function raises."""
        ...


class Observer:
    """Writes observations down, one write at a time."""

    def __init__(self, registry: Registry, call: Call, log: FilteringBoundLogger) -> None:
        self._registry = registry
        self._call = call
        self._log = log
        self._waiting: dict[Key, Observation] = {}
        self._lease: Lease | None = None
        self._writing = False

    def seen(
        self,
        changes: tuple[Change, ...],
        lease: Lease,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
    ) -> None:
        """These are to be written, in this term."""
        if self._lease is not None and self._lease.term != lease.term:
            self._waiting.clear()
        self._lease = lease
        now, wall = boot_seconds(), time.time()
        for change in changes:
            since = wall - (now - change.since)
            level = self._log.info if change.healthy else self._log.warning
            level("manager.observed", server=change.server, service=change.service, healthy=change.healthy,
                  reason=change.reason)  # fmt: skip
            self._waiting[change.server, change.service] = Observation(
                change.server, change.service, change.healthy, since, change.reason
            )
        if not self._writing:
            self._writing = True
            spawn(self._write(), "write observations")

    async def _write(self) -> None:
        try:
            while self._waiting and self._lease is not None:
                batch, lease = dict(self._waiting), self._lease
                try:
                    await self._call(self._registry.observe, list(batch.values()), lease)
                except LeaseLost:
                    if self._lease is lease:
                        self._waiting.clear()  # the next holder says what it sees itself
                except RegistryUnavailable:
                    await asyncio.sleep(AGAIN_SECONDS)
                else:
                    for key, written in batch.items():
                        if self._waiting.get(key) is written:
                            del self._waiting[key]
        finally:
            self._writing = False
