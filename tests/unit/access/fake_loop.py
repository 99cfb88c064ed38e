"""A loop whose clock is the test's."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from itertools import count
from typing import Any


class Handle:
    """Of a timer."""

    def __init__(self) -> None:
        self.off = False

    def cancel(self) -> None:
        self.off = True


class FakeLoop:
    """Callbacks run in `turn` and `pass_time` only."""

    def __init__(self) -> None:
        self.now = 100.0
        self.soon: deque[tuple[Any, tuple[Any, ...]]] = deque()
        self._timers: list[tuple[float, int, Handle, Any, tuple[Any, ...]]] = []
        self._order = count()

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Any, *args: Any) -> None:
        self.soon.append((callback, args))

    def call_later(self, delay: float, callback: Any, *args: Any) -> Handle:
        handle = Handle()
        heapq.heappush(self._timers, (self.now + delay, next(self._order), handle, callback, args))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    @property
    def timers(self) -> int:
        """Timers that will ring."""
        return sum(not handle.off for _, _, handle, _, _ in self._timers)

    def turn(self) -> int:
        """One turn of the loop: what was to be called soon when it began; how much that was."""
        number = len(self.soon)
        for _ in range(number):
            callback, args = self.soon.popleft()
            callback(*args)
        return number

    def pass_time(self, seconds: float) -> None:
        """Ring what is due until then."""
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            self.now, _, handle, callback, args = heapq.heappop(self._timers)
            if not handle.off:
                callback(*args)
        self.now = end
