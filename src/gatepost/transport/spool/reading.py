"""Envelopes and contents from disk, by a few threads with connections of their own: no writer is waited for."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from errno import EIO
from typing import Any, TypeVar
from zlib import crc32

from gatepost.store.sqlite import Store, StoreUnavailable, faults_of
from gatepost.transport.ports import ContentDamaged
from gatepost.transport.spool.database import SCHEMA
from gatepost.transport.spool.layout import Layout

T = TypeVar("T")

THREADS = 2
CHUNK = 256 * 1024


class MemoryBody:
    """A small content. A `BodyReader`."""

    __slots__ = ("size", "whole")

    def __init__(self, body: bytes) -> None:
        self.whole = body
        """All of it, for those who would rather not wait."""
        self.size = len(body)

    async def chunks(self) -> AsyncIterator[bytes]:
        """All of it at once."""
        if self.whole:
            yield self.whole

    def close(self) -> None:
        """Nothing is held."""


class FileBody:
    """A large content, read by the pool's threads. A `BodyReader`. The file may be removed meanwhile."""

    __slots__ = ("_closed", "_crc", "_descriptor", "_pool", "_reading", "size")

    def __init__(self, descriptor: int, size: int, crc: int, pool: ThreadPoolExecutor) -> None:
        self._descriptor = descriptor
        self._crc = crc
        self._pool = pool
        self._reading: asyncio.Future[bytes] | None = None
        self._closed = False
        self.size = size

    async def chunks(self) -> AsyncIterator[bytes]:
        """Raises OSError, also before the last piece of a file that is not as it was written."""
        loop = asyncio.get_running_loop()
        at = found = 0
        while at < self.size:
            if self._closed:
                raise OSError(EIO, "the content was closed while it was read")
            wanted = min(CHUNK, self.size - at)
            self._reading = loop.run_in_executor(self._pool, os.pread, self._descriptor, wanted, at)
            data = await asyncio.shield(self._reading)
            if not data:
                raise ContentDamaged(EIO, f"the content ends after {at} of {self.size} bytes")
            at += len(data)
            found = crc32(data, found)
            if at >= self.size and found != self._crc:
                raise ContentDamaged(EIO, "the content is not as it was written")
            yield data

    def close(self) -> None:
        """Let go of the file, after a read that is under way."""
        if self._closed:
            return
        self._closed = True
        if self._reading is not None and not self._reading.done():
            self._reading.add_done_callback(lambda _: os.close(self._descriptor))
        else:
            os.close(self._descriptor)


class Readers:
    """Reads of the database and of files. All raise OSError (`StoreUnavailable` among them)."""

    def __init__(self, layout: Layout, loop: asyncio.AbstractEventLoop) -> None:
        self._layout = layout
        self._loop = loop
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="spool-read")
        self._own = threading.local()
        self._stores: list[Store] = []

    async def envelope(self, number: int) -> bytes | None:
        """Encoded; None: there is no such message."""
        row = await self._one(
            "SELECT envelope FROM message WHERE number = ?1 UNION ALL SELECT envelope FROM aside WHERE number = ?1",
            number,
        )
        return None if row is None else bytes(row[0])

    async def fact(self, name: str) -> bytes | None:
        """None: there is no such fact."""
        row = await self._one("SELECT value FROM fact WHERE name = ?", name)
        return None if row is None else bytes(row[0])

    async def body(self, number: int) -> MemoryBody | FileBody | None:
        """None: there is no such message."""
        found = await self._run(lambda: self._body(number))
        if isinstance(found, bytes):
            return MemoryBody(found)
        return None if found is None else FileBody(*found, self._pool)

    async def envelopes(self, after: int, before: int, most: int) -> list[tuple[int, bytes]]:
        """The next messages by number, encoded; `after` and `before` are not among them."""
        statement = "SELECT number, envelope FROM message WHERE number > ? AND number < ? ORDER BY number LIMIT ?"
        return await self._run(lambda: [(int(n), bytes(e)) for n, e in self._all(statement, (after, before, most))])

    async def facts(self, prefix: str) -> dict[str, bytes]:
        """All whose names begin so."""
        statement = "SELECT name, value FROM fact WHERE name >= ?1 AND substr(name, 1, length(?1)) = ?1"
        return await self._run(lambda: {str(n): bytes(v) for n, v in self._all(statement, (prefix,))})

    async def quarantined(self) -> list[tuple[int, str, float, bytes]]:
        """Number, reason, when it was put there in seconds since 1970, envelope (encoded)."""
        statement = "SELECT number, reason, at, envelope FROM quarantined ORDER BY number"
        return await self._run(lambda: [(row[0], row[1], row[2], row[3]) for row in self._all(statement, ())])

    async def rows(self, statement: str, values: tuple[int | str | float, ...]) -> list[tuple[Any, ...]]:
        """All of a query."""
        return await self._run(lambda: self._all(statement, values))

    def close(self) -> None:
        """Wait for reads under way and let go of everything."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for store in self._stores:
            store.close()

    async def _run(self, read: Callable[[], T]) -> T:
        try:
            return await self._loop.run_in_executor(self._pool, read)
        except RuntimeError as fault:
            raise OSError(EIO, "the spool is closed") from fault

    async def _one(self, statement: str, key: int | str) -> tuple[Any, ...] | None:
        rows = await self._run(lambda: self._all(statement, (key,)))
        return rows[0] if rows else None

    def _all(self, statement: str, values: tuple[int | str | float, ...]) -> list[tuple[Any, ...]]:
        """All rows, so that no read stands in the way of the journal's checkpoint."""
        store: Store | None = getattr(self._own, "store", None)
        if store is None:
            store = self._own.store = Store(str(self._layout.database), SCHEMA)
            self._stores.append(store)
        try:
            with faults_of(store.path):
                return store.connection().execute(statement, values).fetchall()
        except StoreUnavailable:
            with suppress(StoreUnavailable):
                store.close()  # opened anew at the next read
            raise

    def _body(self, number: int) -> bytes | tuple[int, int, int] | None:
        rows = self._all(
            "SELECT content.body, file.size, coalesce(content.crc, file.crc) FROM "
            "(SELECT number FROM message WHERE number = ?1 UNION ALL SELECT number FROM aside WHERE number = ?1 "
            "UNION ALL SELECT number FROM quarantined WHERE number = ?1) "
            "LEFT JOIN content USING (number) LEFT JOIN file USING (number)",
            (number,),
        )
        if not rows:
            return None
        body, size, crc = rows[0]
        if isinstance(body, bytes):
            if crc32(body) != crc:
                raise ContentDamaged(EIO, f"the content of message {number} is not as it was written")
            return body
        if not isinstance(size, int):
            raise ContentDamaged(EIO, f"message {number} has no content")
        try:
            descriptor = os.open(self._layout.file(number), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as fault:
            raise ContentDamaged(EIO, f"the content of message {number} is missing") from fault
        if os.fstat(descriptor).st_size < size:
            os.close(descriptor)
            raise ContentDamaged(EIO, f"the content of message {number} is shorter than {size} bytes")
        return descriptor, size, crc
