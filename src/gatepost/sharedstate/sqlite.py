"""The embedded shared state: one SQLite file that the workers of all front ends of a machine write and watch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import structlog

from gatepost.balancing.choice import rendezvous
from gatepost.sharedstate import tables
from gatepost.sharedstate.penalties import SqliteLedger
from gatepost.sharedstate.session_counts import SqliteSessionCounts
from gatepost.sharedstate.tables import SCHEMA, digest
from gatepost.sharedstate.writer import Writer
from gatepost.store.sqlite import Store, StoreUnavailable, close_after_writing, faults_of, open_for_writing
from gatepost.store.watch import INTERVAL_SECONDS, Watch

ANSWER_SECONDS = 1.0
"""A request waits this long for the file; then it goes on as if the file were away."""
RETRY_SECONDS = 0.5
"""Between two attempts to write sign-outs that could not be written."""
TOUCH_SECONDS = 86400.0
"""How old "last seen" of a device in use may grow before it is written: 60 days need no finer count."""
CACHED_DEVICES = 100_000
"""Devices of one worker kept in memory, about 150 octets each; others are read when asked for, some 10 µs."""
MAX_NEWS = 10_000
"""Devices that others changed since the last look and that are taken in one by one; more: all are read anew."""

_Device = tuple[str, int]
"""Server and "last seen"."""


def prepare(path: str) -> None:
    """Make the file if it is missing and bring it to this version. Raises `StoreUnavailable`."""
    close_after_writing(open_for_writing(path, SCHEMA))


class SqliteSharedState:
    """The `SharedState` of a worker. Belongs to `loop`; `clock` answers seconds since 1970."""

    def __init__(
        self,
        path: str,
        loop: asyncio.AbstractEventLoop,
        interval: float = INTERVAL_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._clock = clock
        self._store = Store(path, SCHEMA)
        self._watch = Watch(
            self._store, loop, changed=self._changed, failed=self._failed, recovered=self._recovered, interval=interval
        )
        self._writer = Writer(path, loop, faulty=self._not_written, mended=self._written_again)
        self.ledger = SqliteLedger(self._writer)
        """The accounts of wrong passwords."""
        self.session_counts = SqliteSessionCounts(self._writer, loop, clock)
        self._devices: dict[bytes, _Device] = {}
        self._sign_outs: dict[bytes, float] = {}
        self._unsaved: dict[bytes, float] = {}
        """Sign-outs that could not be written yet."""
        self._seen: tuple[bytes, int] = (b"", -1)
        """Instance of the file and the last revision taken in."""
        self._loop = loop
        self._retry: asyncio.TimerHandle | None = None
        self._changes = 0
        self._log = structlog.get_logger("gatepost")

    def start(self) -> None:
        """Read the sign-outs now and follow the file. A missing or broken one is logged, not raised: it may come."""
        self._watch.start()

    def close(self) -> None:
        """Stop watching and let go of the file."""
        self._watch.stop()
        if self._retry is not None:
            self._retry.cancel()
        self.session_counts.close()
        self._writer.close()
        self._store.close()

    # --- devices

    async def first_server(self, key: str, choose: str, now: float, servers: Sequence[str] = ()) -> str:
        """As `SharedState.first_server`; waits `ANSWER_SECONDS` at most."""
        name = digest(key)
        found = await self._write(tables.insert_first(name, choose, now, tuple(servers)), now)
        if found is None:
            return rendezvous(servers, key)[0] if servers else choose
        self._remember(name, (found, int(now)))
        return found

    def known_server(self, key: str) -> str | None:
        """As `SharedState.known_server`: from memory, or by one read of the file."""
        name = digest(key)
        found = self._devices.get(name)
        if found is None:
            found = self._read_device(name)
            if found is None:
                return None
        now = self._clock()
        if now - found[1] > TOUCH_SECONDS:
            self._remember(name, (found[0], int(now)))
            self._writer.write_later(tables.touch(name, now))
        return found[0]

    async def move_server(self, key: str, server: str, now: float) -> None:
        """As `SharedState.move_server`. Known here at once, whatever becomes of the file."""
        name = digest(key)
        self._remember(name, (server, int(now)))
        await self._write(tables.move(name, server, now), now)

    def _read_device(self, name: bytes) -> _Device | None:
        if self._watch.fault is not None:
            return None
        try:
            with faults_of(self._path):
                query = "SELECT server, used FROM devices WHERE key = ?"
                row = self._store.connection().execute(query, (name,)).fetchone()
        except StoreUnavailable:
            return None  # the watch finds out too, and reports it
        if row is None:
            return None
        found = cast(_Device, row)
        self._remember(name, found)
        return found

    def _remember(self, name: bytes, device: _Device) -> None:
        if len(self._devices) >= CACHED_DEVICES and name not in self._devices:
            del self._devices[next(iter(self._devices))]
        self._devices[name] = device

    # --- sign-outs

    async def sign_out(self, session_id: str, until: float) -> bool:
        """As `SharedState.sign_out`. While the file cannot be written it is known here only, and written later."""
        name = digest(session_id)
        self._add_sign_out(name, until)
        self._unsaved[name] = until
        if await self._write(tables.sign_out(name, until), self._clock()) is not None:
            self._unsaved.pop(name, None)
            return True
        self._retry_soon()
        return False

    def is_signed_out(self, session_id: str) -> bool:
        """As `SharedState.is_signed_out`."""
        return bool(self._sign_outs) and digest(session_id) in self._sign_outs

    def _add_sign_out(self, name: bytes, until: float) -> None:
        self._sign_outs[name] = max(until, self._sign_outs.get(name, until))
        if len(self._sign_outs) > tables.MAX_SIGN_OUTS:
            self._drop_sign_outs()

    def _drop_sign_outs(self) -> None:
        """The expired ones; if that is not enough, the tenth that expires first."""
        now = self._clock()
        left = sorted((until, name) for name, until in self._sign_outs.items() if until >= now)
        if len(left) > tables.MAX_SIGN_OUTS:
            del left[: max(len(left) // 10, 1)]
        self._sign_outs = {name: until for until, name in left}
        self._unsaved = {name: until for name, until in self._unsaved.items() if name in self._sign_outs}

    # --- writing

    async def _write(self, change: tables.Change, now: float) -> str | None:
        self._changes += 1
        if self._changes % tables.TIDY_CHANGES == 1:
            self._writer.write_later(tables.tidy(now))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._writer.write(change)
        except TimeoutError:
            return None

    def _not_written(self, fault: StoreUnavailable) -> None:
        self._log.error("shared_state.not_written", reason=str(fault))

    def _written_again(self) -> None:
        self._log.info("shared_state.written_again", path=self._path)

    def _retry_soon(self) -> None:
        if self._retry is None:
            self._retry = self._loop.call_later(RETRY_SECONDS, self._save_the_unsaved)

    def _save_the_unsaved(self) -> None:
        self._retry = None
        for name, until in self._unsaved.items():
            self._writer.write(tables.sign_out(name, until)).add_done_callback(partial(self._saved, name))

    def _saved(self, name: bytes, answer: asyncio.Future[str | None]) -> None:
        if answer.result() is not None:
            self._unsaved.pop(name, None)
        elif not self._writer.closed:
            self._retry_soon()

    # --- news of other workers

    def _changed(self) -> None:
        with faults_of(self._path):
            instance, revision, devices, sign_outs = self._read_news()
        if instance != self._seen[0] or revision < self._seen[1] or len(devices) > MAX_NEWS:
            # Another file, or too much to go through: what is asked for is read anew.
            self._devices.clear()
        else:
            for name, server, used in devices:
                if name in self._devices:
                    self._devices[name] = (server, used)
        for name, until in sign_outs:
            self._add_sign_out(name, float(until))
        self._seen = (instance, revision)

    def _read_news(self) -> tuple[bytes, int, list[tuple[bytes, str, int]], list[tuple[bytes, int]]]:
        """Instance, revision, and the rows since the last look: one consistent picture."""
        connection = self._store.connection()
        connection.execute("BEGIN")
        try:
            row = connection.execute("SELECT instance, revision FROM state").fetchone()
            if row is None:
                raise StoreUnavailable(f"{self._path}: damaged, its state is missing; remove it, it will be made anew")
            instance, revision = bytes(row[0]), int(row[1])
            same = instance == self._seen[0] and revision >= self._seen[1]
            sign_outs = connection.execute(
                "SELECT session, until FROM sign_outs WHERE revision > ? AND until >= ? ORDER BY until DESC LIMIT ?",
                (self._seen[1] if same else -1, int(self._clock()), tables.MAX_SIGN_OUTS),
            ).fetchall()
            devices = []
            if same and self._devices:
                query = "SELECT key, server, used FROM devices WHERE revision > ? LIMIT ?"
                devices = connection.execute(query, (self._seen[1], MAX_NEWS + 1)).fetchall()
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        news = cast("list[tuple[bytes, str, int]]", devices), cast("list[tuple[bytes, int]]", sign_outs)
        return instance, revision, *news

    def _failed(self, fault: StoreUnavailable) -> None:
        self._log.error("shared_state.unavailable", reason=str(fault))

    def _recovered(self) -> None:
        self._log.info("shared_state.available", path=self._path)
