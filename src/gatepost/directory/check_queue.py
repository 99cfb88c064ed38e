"""Where password checks wait for a thread: bounded for each client address, and fair between addresses.

    put ──► (a thread is free) ──► runs
      │                              ▲
      └──► the address's own line ───┘   one of each address in turn

An address is a host, or an IPv6 /64, which is what one subscriber gets and can fill with addresses as it likes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from gatepost.organization.addresses import owner_of

Work = Callable[[], bool]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Check:
    owner: str
    work: Work
    done: asyncio.Future[bool]


class QueueFull(RuntimeError):
    """The check must come back later. The message is for the log."""


class CheckQueue:
    """Runs checks in `threads` threads. Belongs to the loop it is used in.

    `waiting_limit`: checks that wait, of all addresses; `per_address`: those of one address, running ones included.
    """

    def __init__(self, threads: int, waiting_limit: int, per_address: int) -> None:
        self._threads = threads
        self._waiting_limit = waiting_limit
        self._per_address = per_address
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="password")
        self._held: dict[str, int] = {}
        self._lines: dict[str, deque[_Check]] = {}
        """Who waits, by owner; the first owner's turn is next."""
        self._waiting = 0
        self._running = 0
        self._closed = False

    def put(self, client: str, work: Work) -> asyncio.Future[bool]:
        """Have `work` done in a thread for the client address `client`. Raises `QueueFull`.

        The future is cancelled when the check must give way to one of another address.
        """
        owner = owner_of(client)
        if self._closed:
            raise QueueFull("no more password checks are taken")
        if self._held.get(owner, 0) >= self._per_address:
            raise QueueFull("too many password checks of this client address are waiting")
        if self._running >= self._threads and self._waiting >= self._waiting_limit:
            self._make_room(owner)
        check = _Check(owner, work, asyncio.get_running_loop().create_future())
        self._held[owner] = self._held.get(owner, 0) + 1
        if self._running < self._threads:
            self._run(check)
        else:
            self._lines.setdefault(owner, deque()).append(check)
            self._waiting += 1
        return check.done

    def put_elsewhere(self, client: str, start: Callable[[], asyncio.Future[T]]) -> asyncio.Future[T]:
        """Have a check done that needs no thread of these, but counts for its client address. Raises `QueueFull`."""
        owner = owner_of(client)
        if self._closed:
            raise QueueFull("no more password checks are taken")
        if self._held.get(owner, 0) >= self._per_address:
            raise QueueFull("too many password checks of this client address are waiting")
        self._held[owner] = self._held.get(owner, 0) + 1
        future = start()
        future.add_done_callback(lambda _: self._release(owner))
        return future

    def close(self) -> None:
        """Take no more checks and drop those that wait; those that run end in their threads."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        for line in self._lines.values():
            for check in line:
                check.done.cancel()
        self._lines.clear()
        self._waiting = 0

    def _make_room(self, owner: str) -> None:
        """The queue is full: the last check of whoever has most of it gives way to an owner who has less."""
        longest = max(self._lines.values(), key=len, default=None)
        if longest is None or len(longest) <= len(self._lines.get(owner, ())) + 1:
            raise QueueFull("too many password checks are waiting")
        dropped = longest.pop()
        self._waiting -= 1
        self._release(dropped.owner)
        dropped.done.cancel()

    def _run(self, check: _Check) -> None:
        self._running += 1
        inner = asyncio.get_running_loop().run_in_executor(self._pool, check.work)
        inner.add_done_callback(lambda ended: self._ended(check, ended))

    def _ended(self, check: _Check, ended: asyncio.Future[bool]) -> None:
        self._running -= 1
        self._release(check.owner)
        if not check.done.done():
            _copy(ended, check.done)
        if self._lines and not self._closed:
            self._run(self._next())

    def _next(self) -> _Check:
        """The first check of the owner whose turn it is; the owner's next turn is after all others'."""
        owner = next(iter(self._lines))
        line = self._lines.pop(owner)
        check = line.popleft()
        self._waiting -= 1
        if line:
            self._lines[owner] = line
        return check

    def _release(self, owner: str) -> None:
        left = self._held[owner] - 1
        if left:
            self._held[owner] = left
        else:
            del self._held[owner]


def _copy(ended: asyncio.Future[bool], to: asyncio.Future[bool]) -> None:
    if ended.cancelled():
        to.cancel()
    elif (fault := ended.exception()) is not None:
        to.set_exception(fault)
    else:
        to.set_result(ended.result())
