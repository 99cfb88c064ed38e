"""Following the organization: whoever changes its file counts up a number in the registry, and front ends reload.

The registry belongs to the workers' account, so the supervisor reads it as that account: root opens nothing that a
worker could have put there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

from structlog.typing import FilteringBoundLogger

from gatepost.access import tasks
from gatepost.activemanager.open import watch_registry
from gatepost.activemanager.sqlite_reading import organization_version
from gatepost.activemanager.sqlite_schema import SCHEMA
from gatepost.configuration.settings import FrontEnd
from gatepost.service import privileges
from gatepost.store.sqlite import Store, StoreUnavailable
from gatepost.store.watch import INTERVAL_SECONDS, Watch

CLOCK_GRAIN_SECONDS = 0.02
"""Times of files are coarser than the clock."""


class _Registry(Store):
    """The registry, read as the account that it belongs to."""

    def __init__(self, path: str, account: privileges.Account | None) -> None:
        super().__init__(path, SCHEMA)
        self._account = account

    def look(self) -> bool:
        """As `Store.look`."""
        with self._as_its_owner():
            return super().look()

    def close(self) -> None:
        """As `Store.close`."""
        with self._as_its_owner():
            super().close()

    def version(self) -> int:
        """The organization's version. Raises `StoreUnavailable`."""
        with self._as_its_owner():
            return organization_version(self)

    def _as_its_owner(self) -> AbstractContextManager[None]:
        return privileges.acting_as(self._account) if self._account else nullcontext()


def followed(front_end: FrontEnd) -> tuple[object, ...]:
    """What a follower depends on: another one needs another follower."""
    return front_end.registry, front_end.user, front_end.etcd


class _FileVersions:
    """The number in the embedded registry."""

    def __init__(self, front_end: FrontEnd, changed: Callable[[int], None], interval: float) -> None:
        account = privileges.account(front_end.user) if front_end.user and os.geteuid() == 0 else None
        self._store = _Registry(front_end.registry, account)
        self._watch = Watch(
            self._store,
            asyncio.get_running_loop(),
            changed=lambda: changed(self._store.version()),
            # What is wrong with the registry the workers log, who need more of it.
            failed=lambda _: None,
            recovered=lambda: None,
            interval=interval,
        )

    def first(self, since: float) -> int | None:
        """The number that a configuration read at `since` has; None when it may have changed meanwhile."""
        try:
            version = self._store.version()
        except StoreUnavailable:
            version = 0  # a registry that is made later begins so
        return None if self._written_since(since) else version

    def start(self) -> None:
        """Look now, then again and again until `close`."""
        self._watch.start()

    def close(self) -> None:
        """Look no more."""
        self._watch.stop()
        self._store.close()

    def _written_since(self, since: float) -> bool:
        for suffix in ("", "-wal"):
            try:
                written = os.stat(self._store.path + suffix).st_mtime  # noqa: PTH116 - beside a path that is a text
            except OSError:
                continue
            if written > since - CLOCK_GRAIN_SECONDS:
                return True
        return False


class _EtcdVersions:
    """The number in etcd."""

    def __init__(self, front_end: FrontEnd, changed: Callable[[int], None]) -> None:
        self._watch = watch_registry(front_end, asyncio.get_running_loop(), remembers=False)
        self._watch.on_change(lambda view: changed(view.organization_version))

    def first(self, _since: float) -> int | None:
        """Unknown, since etcd keeps no times: where there is a number, the first sight of it is taken for a change."""
        return 0

    def start(self) -> None:
        """Follow it until `close`."""
        self._watch.start()

    def close(self) -> None:
        """Follow it no more."""
        self._watch.close()


class OrganizationFollower:
    """Calls `reload` after each change of the organization's version, never twice at a time.

    `since` is when the reading of the configuration began (seconds since 1970): a change that came after it is not
    missed, though the number was not yet known then.
    """

    def __init__(
        self,
        front_end: FrontEnd,
        reload: Callable[[], Awaitable[None]],
        log: FilteringBoundLogger,
        *,
        since: float,
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        self.follows = followed(front_end)
        self._reload = reload
        self._log = log
        self._versions: _FileVersions | _EtcdVersions
        if front_end.etcd is None:
            self._versions = _FileVersions(front_end, self._changed, interval)
        else:
            self._versions = _EtcdVersions(front_end, self._changed)
        self._loaded = self._versions.first(since)
        self._seen = self._loaded
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look now, then again and again until `close`."""
        self._versions.start()

    def close(self) -> None:
        """Follow no more."""
        self._versions.close()

    def _changed(self, version: int) -> None:
        if version == self._seen:
            return
        self._seen = version
        if self._task is None or self._task.done():
            self._task = tasks.start(self._follow(), "follow the organization")

    async def _follow(self) -> None:
        while self._loaded != self._seen:
            wanted = self._seen
            self._log.info("organization.changed", version=wanted)
            await self._reload()
            self._loaded = wanted
