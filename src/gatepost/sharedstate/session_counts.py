"""How many mail sessions a user or an address has, at all workers of a machine, in the file of the shared state.

Each worker holds rows of its own and says every few seconds that it is there; rows of one that has died do not count.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence

import apsw

from gatepost.sharedstate.tables import Change, digest
from gatepost.sharedstate.writer import Writer

ANSWER_SECONDS = 1.0
"""A sign-in waits this long for the file; then it goes on uncounted."""
BEAT_SECONDS = 5.0
LIVE_SECONDS = 20.0
"""A worker that has not said for so long that it is there has died."""


class SqliteSessionCounts:
    """The `SessionCounts` in the file that `writer` writes. `clock` answers seconds since 1970."""

    def __init__(self, writer: Writer, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._loop = loop
        self._clock = clock
        self._worker = secrets.token_bytes(16)
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, keys: Sequence[tuple[str, int]]) -> str | None:
        """See `SessionCounts`."""
        if self._timer is None:
            self._beat()
        writing = self._writer.write(entering(self._worker, keys, self._clock()))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await asyncio.shield(writing)
        except (TimeoutError, asyncio.CancelledError) as end:
            writing.add_done_callback(lambda ended: self._undo(ended, keys))
            if isinstance(end, TimeoutError):
                return None
            raise

    def leave(self, keys: Sequence[str]) -> None:
        """See `SessionCounts`."""
        self._writer.write_later(leaving(self._worker, keys))

    def close(self) -> None:
        """Say no more that this worker is there."""
        if self._timer is not None:
            self._timer.cancel()
        self._writer.write_later(ending(self._worker))

    def _undo(self, ended: asyncio.Future[str | None], keys: Sequence[tuple[str, int]]) -> None:
        """Nobody waited for the answer any more."""
        if not ended.cancelled() and ended.result() == "":
            self.leave([key for key, _ in keys])

    def _beat(self) -> None:
        self._timer = self._loop.call_later(BEAT_SECONDS, self._beat)
        self._writer.write_later(being_there(self._worker, self._clock()))


def entering(worker: bytes, keys: Sequence[tuple[str, int]], now: float) -> Change:
    """Counts one session under each of `keys` unless a limit (above 0) is reached; answers that key, else nothing."""

    def change(connection: apsw.Connection, _revision: int) -> str | None:
        _say_there(connection, worker, now)
        for key, limit in keys:
            row = connection.execute(
                "SELECT coalesce(sum(n), 0) FROM held JOIN workers USING (worker) WHERE key = ? AND seen > ?",
                (digest(key), int(now - LIVE_SECONDS)),
            ).fetchone()
            if limit and row is not None and int(row[0]) >= limit:
                return key
        for key, _ in keys:
            connection.execute(
                "INSERT INTO held VALUES (?1, ?2, 1) ON CONFLICT DO UPDATE SET n = n + 1", (digest(key), worker)
            )
        return ""

    return change


def leaving(worker: bytes, keys: Sequence[str]) -> Change:
    """Takes one session off each of `keys`."""

    def change(connection: apsw.Connection, _revision: int) -> str | None:
        for key in keys:
            name = digest(key)
            connection.execute("UPDATE held SET n = n - 1 WHERE key = ? AND worker = ?", (name, worker))
            connection.execute("DELETE FROM held WHERE key = ? AND worker = ? AND n <= 0", (name, worker))
        return None

    return change


def ending(worker: bytes) -> Change:
    """Takes all of this worker's sessions off."""

    def change(connection: apsw.Connection, _revision: int) -> str | None:
        connection.execute("DELETE FROM held WHERE worker = ?", (worker,))
        connection.execute("DELETE FROM workers WHERE worker = ?", (worker,))
        return None

    return change


def being_there(worker: bytes, now: float) -> Change:
    """Says that the worker is there, and clears up after those that are not."""

    def change(connection: apsw.Connection, _revision: int) -> str | None:
        _say_there(connection, worker, now)
        live = "SELECT worker FROM workers WHERE seen > ?"
        connection.execute(f"DELETE FROM held WHERE worker NOT IN ({live})", (int(now - LIVE_SECONDS),))  # noqa: S608
        connection.execute("DELETE FROM workers WHERE seen <= ?", (int(now - LIVE_SECONDS),))
        return None

    return change


def _say_there(connection: apsw.Connection, worker: bytes, now: float) -> None:
    connection.execute("INSERT INTO workers VALUES (?1, ?2) ON CONFLICT DO UPDATE SET seen = ?2", (worker, int(now)))
