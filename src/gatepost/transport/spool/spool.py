"""A spool on the local disk: the `Spool` port, and what a hub needs besides (SPEC T2; smtp-facts c.5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from errno import EIO
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from gatepost.balancing.back_pressure import METERING_SECONDS, BackPressure, Pressure
from gatepost.transport.message import Envelope
from gatepost.transport.ports import BodyReader, BodyWriter, Spool, SpoolFull
from gatepost.transport.shadow.ports import Kept
from gatepost.transport.spool.changes import NEW, Change, Kind, Move
from gatepost.transport.spool.committing import Answer, Committer
from gatepost.transport.spool.database import Changed
from gatepost.transport.spool.keeping import BATCH, Keeping, rows_of
from gatepost.transport.spool.layout import Layout
from gatepost.transport.spool.metering import FAULT, Meter, Space, space_of
from gatepost.transport.spool.opening import UNREADABLE, Found, Opened, open_spool
from gatepost.transport.spool.putting_aside import PuttingAside
from gatepost.transport.spool.reading import MemoryBody, Readers
from gatepost.transport.spool.recent import Recent
from gatepost.transport.spool.writing import ContentWriter

WRITE_THREADS = 4
"""For large contents; each waits for the disk alone."""


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """Sizes in bytes. The first two are `TransportSettings`'."""

    max_queued_messages: int = 1_000_000
    min_free_bytes: int = 500 * 1024 * 1024
    inline_bytes: int = 64 * 1024
    """Contents up to it are in the database. Measured: it writes them twice, a file costs an inode's journal; at 50 kB
    the database is twice as fast, at 128 kB the file."""
    recent_bytes: int = 64 * 1024 * 1024
    """Messages kept in memory after their commit."""
    reserve_bytes: int = 32 * 1024 * 1024
    """Held back for the journal on a full disk; twice what the journal grows to between two checkpoints."""


class DiskSpool(Keeping, PuttingAside, Spool):
    """Made by `open`, used on that loop alone."""

    def __init__(
        self,
        opened: Opened,
        settings: SpoolSettings,
        loop: asyncio.AbstractEventLoop,
        space: Callable[[], Space],
        on_pressure: Callable[[Pressure], None] | None,
    ) -> None:
        super().__init__()
        self._opened = opened
        self._settings = settings
        self._loop = loop
        self._space = space
        self.on_pressure = on_pressure
        """Called when the stage has changed."""
        self._files = ThreadPoolExecutor(WRITE_THREADS, thread_name_prefix="spool-write")
        self._readers = Readers(opened.layout, loop)
        self._recent = Recent(settings.recent_bytes)
        self._meter = Meter(settings.max_queued_messages, settings.min_free_bytes)
        self._told = Pressure.NORMAL
        self._next = opened.database.first_number
        self._promised = 0
        self._updating: dict[int, bytes] = {}
        self._removing: set[int] = set()
        self._putting: dict[str, bytes | None] = {}
        self._decode = msgspec.msgpack.Decoder(Envelope).decode
        self._closing = False
        self._stopped = False
        self._metering: asyncio.Task[Pressure] | None = None
        self.count = opened.database.count
        """Messages of the queue."""
        self.kept_count = opened.database.kept
        self._committer = Committer(opened.layout, opened.database, opened.reserve, loop, self._answered)
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls,
        directory: Path,
        settings: SpoolSettings | None = None,
        *,
        space: Callable[[], Space] | None = None,
        on_pressure: Callable[[Pressure], None] | None = None,
    ) -> DiskSpool:
        """The spool of `directory`, made where it is missing. Raises `SpoolInUse`, `SpoolDamaged`, OSError.

        `space` meters the disk; `on_pressure` is called when the stage has changed.
        """
        settings = settings or SpoolSettings()
        loop = asyncio.get_running_loop()
        opened = await loop.run_in_executor(None, open_spool, Layout(directory), settings.reserve_bytes)
        spool = cls(opened, settings, loop, space or partial(space_of, directory), on_pressure)
        await spool.meter()
        return spool

    @property
    def identity(self) -> str:
        """Of this queue database: 32 hexadecimal digits."""
        return self._opened.database.identity

    @property
    def found(self) -> Found:
        """What was there at start."""
        return self._opened.found

    @property
    def first_new_number(self) -> int:
        """Messages of earlier runs have lower ones."""
        return self._opened.database.first_number

    @property
    def fault(self) -> Exception | None:
        """What is wrong with the disk now."""
        return self._committer.fault

    @property
    def pressure(self) -> Pressure:
        """HIGH as well while the disk does not take what it should."""
        if self._committer.fault is not None or self._opened.reserve.released:
            return Pressure.HIGH
        return self._meter.rules.pressure

    @property
    def back_pressure(self) -> BackPressure:
        """Tarpit, causes, and whether strangers are refused."""
        return self._meter.rules

    def limit(self, max_queued_messages: int, min_free_bytes: int) -> None:
        """Other limits, from the next metering on."""
        self._meter.limit(max_queued_messages, min_free_bytes)

    def causes(self) -> dict[str, Pressure]:
        """Why the pressure is not normal."""
        found = self._meter.rules.causes()
        if self.fault is not None or self._opened.reserve.released:
            found[FAULT] = Pressure.HIGH
        return found

    def writer(self, size: int | None) -> BodyWriter:
        """For a message of `size` bytes, as announced. Raises `SpoolFull` where it would not find room."""
        size = size or 0
        kept = min(self._meter.least_free, 2 * self._settings.reserve_bytes)
        if self._closing or self._committer.fault is not None or self._opened.reserve.released:
            raise SpoolFull(f"the spool takes nothing now: {self.fault or 'no room'}")
        if size > self._meter.space.free - self._promised - kept:
            raise SpoolFull(f"no room for {size} bytes")
        self._promised += size
        return ContentWriter(
            self._opened.layout,
            self._files,
            self._loop,
            self._settings.inline_bytes,
            self._number,
            partial(self._end_promise, size),
        )

    def commit(self, writer: BodyWriter, envelope: Envelope) -> Awaitable[int]:
        """Put the message on disk; sets `Envelope.size`."""
        return self._put_new(Change(Kind.COMMIT), writer, envelope)

    def update(self, number: int, envelope: Envelope) -> Awaitable[None]:
        """Keep what has become of the recipients."""
        blob = self._encode(envelope)
        self._recent.update(number, blob)
        self._updating[number] = blob
        return self._ask(Change(Kind.UPDATE, None, number, blob))

    def remove(self, number: int) -> Awaitable[None]:
        """Everything about it is settled."""
        return self._ask_away(Change(Kind.REMOVE, None, number))

    def put(self, name: str, value: bytes | None) -> Awaitable[None]:
        """Keep a fact under a name; None forgets it. As durable as messages, in the same groups."""
        self._putting[name] = value
        return self._ask(Change(Kind.PUT, None, blob=value, text=name))

    async def get(self, name: str) -> bytes | None:
        """A fact, as of the last `put`; None: there is none. Raises OSError."""
        return self._putting[name] if name in self._putting else await self._readers.fact(name)

    async def facts(self, prefix: str) -> dict[str, bytes]:
        """All on disk whose names begin with `prefix`. Raises OSError."""
        return await self._readers.facts(prefix)

    async def envelope(self, number: int) -> Envelope:
        """A new copy each time. Raises KeyError, OSError."""
        blob = self._updating.get(number) or self._recent.envelope(number)
        if blob is None and number not in self._removing:
            blob = await self._readers.envelope(number)
        if blob is None or number in self._removing:
            raise KeyError(number)
        try:
            return self._decode(blob)
        except msgspec.DecodeError as fault:
            raise OSError(EIO, f"message {number}: {UNREADABLE}") from fault

    async def body(self, number: int) -> BodyReader:
        """From memory where it was committed lately. Raises KeyError, OSError."""
        if (recent := self._recent.body(number)) is not None:
            return MemoryBody(recent)
        found = await self._readers.body(number) if number not in self._removing else None
        if found is None:
            raise KeyError(number)
        return found

    def in_hand(self, number: int) -> AbstractContextManager[None]:
        """Mark it while it is worked on."""
        return self._opened.in_hand.mark(number)

    async def messages(self) -> AsyncIterator[list[tuple[int, Envelope]]]:
        """What was there at start, by number, in lists. What cannot be read is put aside. Raises OSError."""
        after = 0
        while blobs := await self._readers.envelopes(after, self.first_new_number, BATCH):
            after = blobs[-1][0]
            found = []
            for number, blob in blobs:
                if self._taken_back and number in self._taken_back:
                    continue
                try:
                    found.append((number, self._decode(blob)))
                except msgspec.DecodeError:
                    self.quarantine(number, UNREADABLE)
            yield found
        self._taken_back = None

    async def meter(self) -> Pressure:
        """Look at disk and queue now; done every two seconds by itself."""
        if self._timer is not None:
            self._timer.cancel()
        try:
            space = await self._loop.run_in_executor(self._files, self._space)
            self._meter.metered(space, self._opened.database.free_bytes, self.count)
        except OSError:  # the last values stand; writing says what is wrong
            space = self._meter.space
        except RuntimeError:  # closed meanwhile
            return self.pressure
        if self._opened.reserve.released and space.free > 2 * self._opened.reserve.size:
            self._committer.ask(Change(Kind.RESERVE))
        elif self._committer.fault is not None:
            self._committer.ask(Change(Kind.PROBE))
        self._tell_pressure()
        if not self._closing:
            self._timer = self._loop.call_later(METERING_SECONDS, self._meter_again)
        return self.pressure

    async def close(self) -> None:
        """Write what waits, and let go of the directory. Safe twice."""
        if self._closing:
            return
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        if self._metering is not None:
            await self._metering
        await self._loop.run_in_executor(None, self._files.shutdown)
        await asyncio.sleep(0)  # what the threads have finished is asked of the committer
        self._stopped = True
        await self._committer.stop(self._next)
        await self._loop.run_in_executor(None, self._readers.close)
        self._opened.in_hand.close()
        self._opened.lock.release()

    def _meter_again(self) -> None:
        self._metering = self._loop.create_task(self.meter())

    def _tell_pressure(self) -> None:
        now = self.pressure
        if now is not self._told:
            self._told = now
            if self.on_pressure is not None:
                self.on_pressure(now)

    def _number(self) -> int:
        number = self._next
        self._next += 1
        return number

    def _put_new(
        self, change: Change, writer: BodyWriter, envelope: Envelope, kept: Sequence[Kept] = ()
    ) -> asyncio.Future[int]:
        assert isinstance(writer, ContentWriter)
        future: asyncio.Future[int] = self._loop.create_future()
        if self._closing or writer.over or writer.fault is not None:
            future.set_exception(writer.fault or OSError(EIO, "closed, or committed before"))
            writer.discard()
            return future
        envelope.size = writer.size
        change.future, change.blob = future, self._encode(envelope)
        change.body = writer.take()
        change.number = writer.number if change.body is None else self._number()
        if isinstance(change, Move):
            change.rows = rows_of(change.number, envelope, kept)
        if change.body is None:
            writer.finish(partial(self._file_written, writer, change))
        else:
            self._committer.ask(change)
        return future

    def _end_promise(self, size: int) -> None:
        self._promised -= size

    def _ask(self, change: Change) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        change.future = future
        if self._closing:
            future.set_exception(OSError(EIO, "the spool is closed"))
            future.exception()  # whoever does not wait for it need not hear of it
        else:
            self._committer.ask(change)
        return future

    def _file_written(self, writer: ContentWriter, change: Change) -> None:
        future = change.future
        if writer.fault is not None or future is None or future.cancelled() or self._stopped:
            writer.remove_file()
            if future is not None and not future.done():
                future.set_exception(writer.fault or OSError(EIO, "the spool is closed"))
            return
        change.size, change.crc = writer.size, writer.crc
        self._committer.ask(change)

    def _answered(self, answers: list[Answer]) -> None:
        """Tell everybody what became of a group."""
        for answer in answers:
            if answer.changed is not None:
                self.count -= answer.changed.fewer
                self.kept_count += answer.changed.kept
                for number in answer.changed.files:
                    self._remove_file(number)
            for change in answer.changes:
                self._settle(change, answer.fault, answer.changed)
        self._tell_pressure()

    def _settle(self, change: Change, fault: Exception | None, changed: Changed | None) -> None:
        future = change.future
        match change.kind:
            case Kind.COMMIT | Kind.KEEP:
                self._settle_new(change, fault)
            case Kind.UPDATE | Kind.SET_ASIDE | Kind.TAKE_BACK:
                if self._updating.get(change.number) is change.blob:
                    del self._updating[change.number]
            case Kind.REMOVE | Kind.QUARANTINE:
                self._removing.discard(change.number)
            case Kind.PUT:
                if change.text in self._putting and self._putting[change.text] is change.blob:
                    del self._putting[change.text]
        if future is None or future.done():
            return
        if fault is not None:
            future.set_exception(fault)
            if change.kind not in NEW:
                future.exception()
        elif change.kind is Kind.EXPIRE and changed is not None:
            future.set_result(changed.expired)
        else:
            future.set_result(change.number if change.kind in NEW else None)

    def _settle_new(self, change: Change, fault: Exception | None) -> None:
        unwanted = change.future is None or change.future.cancelled()
        if fault is not None:
            if change.body is None:
                self._remove_file(change.number)
        elif isinstance(change, Move):
            if unwanted:
                self.let_go([(change.number, key) for key in change.rows.all_keys()])
        else:
            self.count += 1
            if unwanted:
                self.remove(change.number)
            else:
                self._recent.add(change.number, change.blob or b"", change.body)

    def _remove_file(self, number: int) -> None:
        try:
            self._files.submit(self._opened.layout.file(number).unlink, missing_ok=True)
        except RuntimeError:  # closing: the next start does it
            return
