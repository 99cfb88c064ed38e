"""The thread that writes to the spool's database: what waits while one transaction runs is in the next one.

    loop:    commit, update, remove ─► queue ┐                       ┌─► futures, all of a group by one call
    thread:                                  └─► group ─► on disk ───┘─► checkpoint, when the journal has grown

New messages fail at once when the disk does not take them: the client is told to come again. What became of known ones
must not be lost and waits for the disk; meanwhile `fault` says what is wrong.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import apsw

from gatepost.transport.ports import SpoolFull
from gatepost.transport.spool.changes import NEW, Change, Kind, Move, grouped
from gatepost.transport.spool.database import Changed, Database
from gatepost.transport.spool.layout import Layout, sync_directory
from gatepost.transport.spool.reserve import Reserve

GROUP_BYTES = 4 * 1024 * 1024
GROUP_CHANGES = 1000
"""A group is no larger, so that nobody waits long for others; nor, in the journal, than a quarter of the reserve: with
that given up, all of the journal must find room in the main file."""
CHANGE_BYTES = 12 * 1024
"""Pages that one removal changes at worst."""
GROUP_LEAST = 256 * 1024
SQUEEZED = 20
"""Changes of a group on a full disk."""
AGAIN_SECONDS = 1.0
"""Between two attempts to write what waits for the disk."""
IDLE_SECONDS = 1.0
JOURNAL_BYTES = 16 * 1024 * 1024
"""The journal is brought into the main file from this size on, or from half of the reserve if that is less: a few
milliseconds, and pages that changed several times are written once."""
JOURNAL_LEAST = 1024 * 1024
JOURNAL_FACTOR = 4
"""Readers that are always in the way are waited for from so many times that size on."""


@dataclass(slots=True)
class Answer:
    """What became of some changes: `fault` None is success. `changed` tells of those that are on disk."""

    changes: list[Change]
    fault: Exception | None = None
    changed: Changed | None = None


class Committer:
    """`answered` is called on the loop with what became of each group, in order; it also ends the futures there."""

    def __init__(
        self,
        layout: Layout,
        database: Database,
        reserve: Reserve,
        loop: asyncio.AbstractEventLoop,
        answered: Callable[[list[Answer]], None],
    ) -> None:
        self._layout = layout
        self._database = database
        self._reserve = reserve
        self._loop = loop
        self._answered = answered
        self._queue: SimpleQueue[Change] = SimpleQueue()
        self._again: list[Change] = []
        self._damaged = False
        self._stop: Change | None = None
        self._next_number: int | None = None
        self._group_bytes = min(GROUP_BYTES, max(GROUP_LEAST, reserve.size // 4))
        self._group_changes = min(GROUP_CHANGES, max(SQUEEZED, reserve.size // (4 * CHANGE_BYTES)))
        self._journal_bytes = min(JOURNAL_BYTES, max(JOURNAL_LEAST, reserve.size // 2))
        self.fault: Exception | None = None
        """Why the last transaction failed; None: it did not."""
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)
        self._thread.start()

    def ask(self, change: Change) -> None:
        """Have it written; its future ends when it is on disk. Never blocks."""
        self._queue.put(change)

    def stop(self, next_number: int) -> asyncio.Future[None]:
        """Write what waits, close the database and end the thread."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._queue.put(Change(Kind.STOP, future, next_number))
        return future

    def _run(self) -> None:
        while self._stop is None:
            changes = self._waiting()
            if changes or self._again:
                self._tell(self._commit_all(changes))
            self._keep_small(idle=not changes)
        answers = self._commit_all([]) if self._again else []
        left = [*self._again, self._stop]
        self._database.close(None if self.fault else self._stop.number)
        closed = OSError(errno.EIO, f"the spool was closed before the disk took it: {self.fault}")
        self._tell([*answers, Answer(left[:-1], closed), Answer(left[-1:])])

    def _waiting(self) -> list[Change]:
        """Everything that waits, up to a group's size; empty after some idle time."""
        found: list[Change] = []
        size = weight = 0
        try:
            change = self._queue.get(timeout=AGAIN_SECONDS if self._again else IDLE_SECONDS)
            while True:
                if change.kind is Kind.STOP:
                    self._stop = change
                    return found
                found.append(change)
                size += len(change.body or b"") + len(change.blob or b"")
                weight += _weight(change)
                if size >= self._group_bytes or weight >= self._group_changes:
                    return found
                change = self._queue.get_nowait()
        except Empty:
            return found

    def _tell(self, answers: list[Answer]) -> None:
        if answers:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._answered, answers)

    def _commit_all(self, changes: list[Change]) -> list[Answer]:
        """One transaction, or more where the disk does not take everything."""
        changes, self._again = self._again + changes, []
        if any(change.kind is Kind.RESERVE for change in changes):
            with suppress(OSError):  # the next metering asks again
                self._reserve.make()
        if self._reserve.released:  # what room there is belongs to what is here already
            new, changes = _parted(changes)
            no_room = SpoolFull("the spool's disk is full, or nearly so")
            return [*([Answer(new, no_room)] if new else []), *(self._commit_rest(changes) if changes else [])]
        return self._commit_rest(changes)

    def _commit_rest(self, changes: list[Change]) -> list[Answer]:
        fault = self._commit(changes)
        if not isinstance(fault, Exception):
            return [Answer(changes, changed=fault)]
        new, old = _parted(changes)
        refused = [Answer(new, _as_refusal(fault))] if new else []
        if _is_ours(fault):
            return [*refused, Answer(old, fault)]
        if _is_full(fault):
            done, old = self._squeeze(old)
            refused += done
        self._again = [change for change in old if change.kind not in (Kind.PROBE, Kind.RESERVE)]
        return refused

    def _squeeze(self, changes: list[Change]) -> tuple[list[Answer], list[Change]]:
        """On a full disk: a few at a time, so that the journal's beginning is used again and again. What is left."""
        done: list[Answer] = []
        while changes:
            part = changes[: _few(changes)]
            changed = self._commit(part)
            if isinstance(changed, Exception):
                self._reserve.release()
                if self._checkpoint():
                    changed = self._commit(part)
            if isinstance(changed, Exception):
                break
            done.append(Answer(part, changed=changed))
            changes = changes[len(part) :]
        return done, changes

    def _commit(self, changes: Iterable[Change]) -> Changed | Exception:
        """What has changed on disk, or why nothing has."""
        try:
            if self._damaged:
                self._database.reopen()
                self._damaged = False
            group = grouped(changes)
            if any(step.files for step in group.steps()):
                sync_directory(self._layout.content)
            changed = self._database.apply(group)
        except Exception as fault:  # noqa: BLE001 - the thread goes on; callers are told
            if not _is_ours(fault):
                self._failed(fault)
            return fault
        self.fault = None
        return changed

    def _keep_small(self, *, idle: bool) -> None:
        """Bring the journal into the main file; give space back."""
        if self._damaged or not (idle or self._database.journal_bytes >= self._journal_bytes):
            return
        if self._database.journal_bytes >= self._journal_bytes and not self._checkpoint():
            return
        try:
            while self._database.tidy() and idle and self._queue.empty():
                if self._database.journal_bytes >= self._journal_bytes:
                    self._database.checkpoint()
            if idle and self._database.journal_bytes:  # the file becomes shorter only then
                self._database.checkpoint()
        except apsw.Error as fault:
            self._failed(fault)

    def _checkpoint(self) -> bool:
        """Whether that was possible: the main file may have to grow for it."""
        for _ in range(2):
            try:
                self._database.checkpoint(wait=self._database.journal_bytes >= JOURNAL_FACTOR * self._journal_bytes)
            except apsw.Error as fault:
                # What was committed is in the journal and stays readable; new messages are not taken meanwhile.
                self._failed(fault)
                if not (_is_full(fault) and self._reserve.release()):
                    return False
            else:
                return True
        return False

    def _failed(self, fault: Exception) -> None:
        self.fault = fault
        self._damaged = not _is_full(fault)


def _parted(changes: list[Change]) -> tuple[list[Change], list[Change]]:
    """New messages, and what became of known ones."""
    new = [change for change in changes if change.kind in NEW]
    return new, [change for change in changes if change.kind not in NEW] if new else changes


def _weight(change: Change) -> int:
    return change.weight if isinstance(change, Move) else 1


def _few(changes: list[Change]) -> int:
    """How many of them are tried together on a full disk."""
    weight = 0
    for place, change in enumerate(changes):
        weight += _weight(change)
        if weight > SQUEEZED:
            return max(1, place)
    return len(changes)


def _is_ours(fault: Exception) -> bool:
    """A mistake of this program: trying again would not help."""
    return not isinstance(fault, apsw.Error | OSError) or isinstance(fault, apsw.ConstraintError)


def _is_full(fault: Exception) -> bool:
    return isinstance(fault, apsw.FullError) or (
        isinstance(fault, OSError) and fault.errno in (errno.ENOSPC, errno.EDQUOT)
    )


def _as_refusal(fault: Exception) -> Exception:
    """What `Spool.commit` raises for a fault."""
    if _is_full(fault):
        return SpoolFull(f"the spool's disk is full: {fault}")
    if isinstance(fault, apsw.Error):
        return OSError(errno.EIO, f"the spool's disk: {fault}")
    return fault
