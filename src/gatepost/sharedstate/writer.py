"""One thread that commits what a worker has to write: all that waits goes into one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from gatepost.sharedstate.tables import SCHEMA, Change
from gatepost.store.sqlite import StoreUnavailable, close_after_writing, faults_of, open_for_writing, transaction

MAX_PENDING = 10_000
"""Changes that wait for the thread: some seconds' worth. More are not written, and callers go on without."""


class Writer:
    """Writes to the file at `path`, opened anew for each transaction, so that a replaced file is no matter.

    `faulty` is called with the fault when writing begins to fail, `mended` when it works again.
    """

    def __init__(
        self,
        path: str,
        loop: asyncio.AbstractEventLoop,
        *,
        faulty: Callable[[StoreUnavailable], None],
        mended: Callable[[], None],
    ) -> None:
        self._path = path
        self._loop = loop
        self._faulty = faulty
        self._mended = mended
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shared-state")
        self._pending: list[tuple[Change, asyncio.Future[str | None] | None]] = []
        self._busy = False
        self.closed = False
        self.fault: StoreUnavailable | None = None
        """Why the last transaction failed; None: it did not."""

    def write(self, change: Change) -> asyncio.Future[str | None]:
        """Commit `change`; answers its answer, or None when it could not be written. Never raises."""
        future: asyncio.Future[str | None] = self._loop.create_future()
        self._add(change, future)
        return future

    def write_later(self, change: Change) -> None:
        """Commit `change` if that is possible; nobody waits for it."""
        self._add(change, None)

    def close(self) -> None:
        """Write nothing more. What waits is answered; a transaction under way ends in its thread."""
        self.closed = True
        pending, self._pending = self._pending, []
        for _, future in pending:
            _answer(future, None)
        self._thread.shutdown(wait=False)

    def _add(self, change: Change, future: asyncio.Future[str | None] | None) -> None:
        if self.closed or len(self._pending) >= MAX_PENDING:
            _answer(future, None)
            return
        self._pending.append((change, future))
        if not self._busy:
            self._begin()

    def _begin(self) -> None:
        batch, self._pending = self._pending, []
        self._busy = True
        inner = self._loop.run_in_executor(self._thread, _commit, self._path, [change for change, _ in batch])
        inner.add_done_callback(lambda ended: self._ended(batch, ended))

    def _ended(
        self, batch: list[tuple[Change, asyncio.Future[str | None] | None]], ended: asyncio.Future[list[str | None]]
    ) -> None:
        self._busy = False
        answers: list[str | None] = [None] * len(batch)
        fault = ended.exception()
        if fault is None:
            answers = ended.result()
        elif not isinstance(fault, StoreUnavailable):
            self._loop.call_exception_handler({"message": "the shared state could not be written", "exception": fault})
        before, self.fault = self.fault, fault if isinstance(fault, StoreUnavailable) else None
        for (_, future), answer in zip(batch, answers, strict=True):
            _answer(future, answer)
        if self.closed:
            return
        if self.fault is not None and before is None:
            self._faulty(self.fault)
        elif self.fault is None and before is not None:
            self._mended()
        if self._pending and not self._busy:
            self._begin()


def _commit(path: str, changes: list[Change]) -> list[str | None]:
    """One transaction with the next revision. Raises `StoreUnavailable`."""
    with faults_of(path):
        connection = open_for_writing(path, SCHEMA)
        try:
            with transaction(connection):
                row = connection.execute("UPDATE state SET revision = revision + 1 RETURNING revision").fetchone()
                if row is None:
                    raise StoreUnavailable(f"{path}: damaged, its state is missing; remove it, it will be made anew")
                return [change(connection, int(row[0])) for change in changes]
        finally:
            close_after_writing(connection)


def _answer(future: asyncio.Future[str | None] | None, answer: str | None) -> None:
    if future is not None and not future.done():
        future.set_result(answer)
