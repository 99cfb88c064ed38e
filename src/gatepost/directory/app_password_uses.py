"""When each app password was used last: noted in memory, written together once a minute at most, never in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import structlog

from gatepost.store.sqlite import (
    Schema,
    StoreUnavailable,
    close_after_writing,
    faults_of,
    open_for_writing,
    transaction,
)

WRITE_SECONDS = 50.0
"""From the first note to its being written: a worker that is killed loses less than a minute."""
MAX_NOTED = 100_000
"""App passwords noted at once; more are not, until these are written."""
LAST_BUSY_SECONDS = 1.0
"""A worker that ends waits no longer for others that write."""

Use = tuple[float, str, str]
"""When (seconds since 1970), the protocol's or service's word, the client's address."""


class LastUses:
    """The last uses that one worker has seen and not written yet. Belongs to `loop`."""

    def __init__(self, path: str, schema: Schema, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        self._path = path
        self._schema = schema
        self._loop = loop
        self._clock = clock
        self._noted: dict[int, Use] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="app-passwords")
        self._writing: asyncio.Future[None] | None = None
        self._closed = False
        self._log = structlog.get_logger("gatepost")

    def note(self, number: int, word: str, client: str) -> bool:
        """It is used now. Whether that is news: the first use since the last writing, or in another way."""
        before = self._noted.get(number)
        if before is None and len(self._noted) >= MAX_NOTED:
            return True
        self._noted[number] = (self._clock(), word, client)
        if self._timer is None and self._writing is None and not self._closed:
            self._timer = self._loop.call_later(WRITE_SECONDS, self._write)
        return before is None or before[1:] != (word, client)

    def close(self) -> None:
        """Write what is noted, as far as that is possible now, and nothing more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._thread.shutdown(wait=True)
        noted, self._noted = self._noted, {}
        if noted:
            with suppress(StoreUnavailable):
                _commit(self._path, self._schema, noted, LAST_BUSY_SECONDS)

    def _write(self) -> None:
        self._timer = None
        noted, self._noted = self._noted, {}
        self._writing = self._loop.run_in_executor(self._thread, _commit, self._path, self._schema, noted)
        self._writing.add_done_callback(lambda ended: self._written(ended, noted))

    def _written(self, ended: asyncio.Future[None], noted: dict[int, Use]) -> None:
        self._writing = None
        fault = None if ended.cancelled() else ended.exception()
        if fault is not None:
            self._log.error("app_passwords.not_written", reason=str(fault))
            self._noted = noted | self._noted
        if self._noted and self._timer is None and not self._closed:
            self._timer = self._loop.call_later(WRITE_SECONDS, self._write)


def _commit(path: str, schema: Schema, noted: dict[int, Use], busy_seconds: float = 5.0) -> None:
    """Raises `StoreUnavailable`."""
    with faults_of(path):
        connection = open_for_writing(path, schema, busy_seconds)
        try:
            with transaction(connection):
                connection.executemany(
                    "UPDATE app_passwords SET used = ?2, used_word = ?3, used_address = ?4"
                    " WHERE id = ?1 AND used <= ?2",
                    [(number, int(when), word, client) for number, (when, word, client) in noted.items()],
                )
        finally:
            close_after_writing(connection)
