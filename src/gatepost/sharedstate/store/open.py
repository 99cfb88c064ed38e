"""Puts together what the front ends of several machines share: everybody who needs it comes here."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Callable

from gatepost.configuration.settings import SharedStoreSettings
from gatepost.directory.policy.sessions import SessionCounts
from gatepost.sharedstate.penalties import SqliteLedger
from gatepost.sharedstate.port import SharedState
from gatepost.sharedstate.store.ledger import SharedLedger
from gatepost.sharedstate.store.names import Names
from gatepost.sharedstate.store.port import KeyValues
from gatepost.sharedstate.store.rounds import Rounds
from gatepost.sharedstate.store.session_counts import SharedSessionCounts
from gatepost.sharedstate.store.state import SharedStateOfAll

FIRST_SECONDS = 1.0
"""A process that starts waits so long for the store; then it counts by itself until that comes."""

_OF_ETCD = (
    "gatepost.sharedstate.store.etcd",
    "anyio._backends._asyncio",
    "httpcore2._async.http11",
    "httpcore2._backends.anyio",
    "truststore",
    "encodings.idna",
)
_OF_REDIS = ("gatepost.sharedstate.store.redis", "encodings.idna")


class RedisMissing(RuntimeError):
    """The client library is not installed. The message says how to."""

    def __init__(self) -> None:
        super().__init__("the shared store is Redis, and its client is not installed: pip install gatepost[redis]")


def load_store(settings: SharedStoreSettings | None) -> None:
    """Load all that the store needs, for who may not be able to read this program's files later."""
    if settings is None:
        return
    try:
        for module in _OF_ETCD if settings.etcd is not None else _OF_REDIS:
            importlib.import_module(module)
    except ModuleNotFoundError as fault:
        if (fault.name or "").partition(".")[0] != "redis":
            raise
        raise RedisMissing from None


def open_store(settings: SharedStoreSettings) -> KeyValues:
    """The store of the running loop. Raises `ssl.SSLError`, ValueError, `RedisMissing`."""
    load_store(settings)
    if settings.etcd is not None:
        from gatepost.sharedstate.store.etcd import EtcdKeyValues  # its HTTP client is only for those who need it

        return EtcdKeyValues(settings.etcd)
    from gatepost.sharedstate.store.redis import RedisKeyValues

    return RedisKeyValues(settings)


class SharedStore:
    """What one process shares with those of other machines. Belongs to `loop`."""

    def __init__(
        self,
        settings: SharedStoreSettings,
        ledger: SqliteLedger,
        loop: asyncio.AbstractEventLoop,
        *,
        counts: SessionCounts | None = None,
        state: SharedState | None = None,
        clock: Callable[[], float] = time.time,
        store: KeyValues | None = None,
    ) -> None:
        """`ledger`, `counts` and `state` are this front end's own. Raises as `open_store`."""
        names = Names(settings.prefix, settings.secret)
        probe = names.plain("probe", "0")
        self._rounds = Rounds(store or open_store(settings), loop, settings.answer_seconds, probe)
        self.marks_key = names.marks_key
        """For the digests of passwords."""
        self.ledger = SharedLedger(self._rounds, names, ledger, loop, clock)
        self.session_counts = (
            SharedSessionCounts(self._rounds, names, counts, loop, clock) if counts is not None else None
        )
        self.state = SharedStateOfAll(self._rounds, names, state, loop, clock) if state is not None else None

    @property
    def away(self) -> bool:
        """Whether the store counts as away."""
        return self._rounds.away

    async def start(self, seconds: float = FIRST_SECONDS) -> bool:
        """Follow the store; waits so long for its first answer, and says whether it has come."""
        self._rounds.start()
        if self.state is not None:
            self.state.start()
        return await self._rounds.ready(seconds)

    async def end(self) -> None:
        """Say what is still to be said, if that is quick, and let go of the store."""
        for part in (self.ledger, self.session_counts, self.state):
            if part is not None:
                part.close()
        await self._rounds.end()
