"""`OwnedRegistry` on etcd, for commands and managers: plain calls from any thread.

The calls are carried out on an event loop in a thread of this object's own, so that all of them share connections, the
sign-in and what is known of the members.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from gatepost.activemanager.etcd.changes import Changes
from gatepost.activemanager.etcd.client import CALL_SECONDS, EtcdClient
from gatepost.activemanager.etcd.keyspace import Keyspace
from gatepost.activemanager.etcd.layout import Layout
from gatepost.activemanager.port import (
    Dial,
    HistoryEntry,
    Lease,
    Move,
    Observation,
    RegistryUnavailable,
    RegistryView,
    ServerWord,
)
from gatepost.configuration.settings import EtcdSettings
from gatepost.routing.decision import ActiveCopy

CLOSE_SECONDS = 2.0

Result = TypeVar("Result")


class EtcdRegistry:
    """See `port.OwnedRegistry`. Connects at the first call."""

    def __init__(self, settings: EtcdSettings, operation_seconds: float = 15.0) -> None:
        self._settings = settings
        self._operation_seconds = operation_seconds
        # A call that fails says why; so it shall be the first whose time is over.
        self._call_seconds = min(CALL_SECONDS, 0.8 * operation_seconds)
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: EtcdClient | None = None

    def view(self) -> RegistryView:
        """As `Registry.view`."""
        return self._run(lambda changes: changes.view())

    def history(self, database: str | None = None) -> list[HistoryEntry]:
        """As `OwnedRegistry.history`."""
        return self._run(lambda changes: changes.history(database))

    def activate(
        self,
        database: str,
        server: str,
        expected_epoch: int | None = None,
        lease: Lease | None = None,
        lost_seconds: float | None = None,
    ) -> ActiveCopy:
        """As `Registry.activate`."""
        return self._run(lambda changes: changes.activate(database, server, expected_epoch, lease, lost_seconds))

    def begin_move(self, move: Move, lease: Lease | None = None) -> None:
        """As `Registry.begin_move`."""
        self._run(lambda changes: changes.begin_move(move, lease))

    def end_move(self, database: str, lease: Lease | None = None, move: Move | None = None) -> None:
        """As `Registry.end_move`."""
        self._run(lambda changes: changes.end_move(database, lease, move))

    def set_word(self, server: str, word: ServerWord) -> None:
        """As `Registry.set_word`."""
        self._run(lambda changes: changes.set_word(server, word))

    def set_blocked(self, database: str, server: str, *, blocked: bool) -> None:
        """As `Registry.set_blocked`."""
        self._run(lambda changes: changes.set_blocked(database, server, blocked=blocked))

    def set_dial(self, database: str, dial: Dial) -> None:
        """As `Registry.set_dial`."""
        self._run(lambda changes: changes.set_dial(database, dial))

    def observe(self, observations: list[Observation], lease: Lease) -> None:
        """As `Registry.observe`."""
        self._run(lambda changes: changes.observe(observations, lease))

    def take_lease(self, name: str, holder: str, seconds: float) -> Lease | None:
        """As `Registry.take_lease`."""
        return self._run(lambda changes: changes.take_lease(name, holder, seconds))

    def keep_lease(self, lease: Lease) -> None:
        """As `Registry.keep_lease`."""
        self._run(lambda changes: changes.keep_lease(lease))

    def give_lease_back(self, lease: Lease) -> None:
        """As `Registry.give_lease_back`."""
        self._run(lambda changes: changes.give_lease_back(lease))

    def set_organization_version(self, version: int) -> None:
        """As `Registry.set_organization_version`."""
        self._run(lambda changes: changes.set_organization_version(version))

    def close(self) -> None:
        """As `OwnedRegistry.close`. A later call connects anew."""
        with self._starting:
            loop, thread, client = self._loop, self._thread, self._client
            self._loop = self._thread = self._client = None
        if loop is None or thread is None:
            return
        if client is not None:
            asyncio.run_coroutine_threadsafe(client.close(), loop).result(CLOSE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _run(self, method: Callable[[Changes], Coroutine[Any, Any, Result]]) -> Result:
        loop, client = self._started()
        changes = Changes(Keyspace(client, self._call_seconds), Layout(self._settings.prefix))

        async def bounded() -> Result:
            try:
                async with asyncio.timeout(self._operation_seconds):
                    return await method(changes)
            except TimeoutError:
                raise RegistryUnavailable(f"etcd took longer than {self._operation_seconds:g} s") from None
            except (ValueError, KeyError, TypeError) as fault:
                raise RegistryUnavailable(f"etcd holds something else than Gatepost writes: {fault}") from fault

        return asyncio.run_coroutine_threadsafe(bounded(), loop).result()

    def _started(self) -> tuple[asyncio.AbstractEventLoop, EtcdClient]:
        with self._starting:
            if self._loop is None or self._client is None:
                loop = asyncio.new_event_loop()
                try:
                    self._client = EtcdClient(self._settings)
                except (OSError, ValueError) as fault:  # a certificate or key that OpenSSL does not take
                    loop.close()
                    raise RegistryUnavailable(f"no connection to etcd can be made: {fault}") from fault
                self._thread = threading.Thread(target=loop.run_forever, name="etcd", daemon=True)
                self._thread.start()
                self._loop = loop
            return self._loop, self._client
