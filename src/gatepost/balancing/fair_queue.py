"""Who waits for something scarce: in order for each user, users in turn (SPEC B4). Everything is O(1)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")
"""What waits; hashable, and in the queue once."""

_Line = OrderedDict[T, None]


class QueueFull(RuntimeError):
    """There is no room, and nobody waits with more than the newcomer's user."""


class FairQueue(Generic[T]):
    """At most `limit` items. A user with 1,000 of them is served once in each round, like a user with one."""

    __slots__ = ("_by_length", "_limit", "_lines", "_longest", "_size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        # Ordered dictionaries all: items are taken from either end and out of the middle at the same price.
        self._lines: OrderedDict[str, _Line[T]] = OrderedDict()
        """By user; the first user's turn is next."""
        self._by_length: dict[int, OrderedDict[str, None]] = {}
        """The users with a line of that length."""
        self._longest = 0

    def __len__(self) -> int:
        return self._size

    def set_limit(self, limit: int) -> None:
        """Another bound for those who come from now on."""
        self._limit = limit

    def put(self, user: str, item: T) -> T | None:
        """Let `item` wait, behind the user's others. Raises `QueueFull`.

        When the queue is full the last item of whoever has most of them gives way to a user who has fewer: it is
        answered, waits no more, and must be told.
        """
        displaced: T | None = None
        if self._size >= self._limit:
            displaced = self._make_room(user)
        line = self._lines.get(user)
        if line is None:
            line = self._lines[user] = OrderedDict()
        line[item] = None
        self._size += 1
        self._resized(user, len(line) - 1, len(line))
        return displaced

    def first(self) -> T:
        """The item whose turn is next. Raises `IndexError` when nobody waits."""
        if not self._size:
            raise IndexError("nobody waits")
        return next(iter(next(iter(self._lines.values()))))

    def pop(self) -> T:
        """Take the item whose turn it is; its user's next turn comes after all others'. Raises `IndexError`."""
        if not self._size:
            raise IndexError("nobody waits")
        user = next(iter(self._lines))
        line = self._lines[user]
        item, _ = line.popitem(last=False)
        self._lines.move_to_end(user)
        self._shortened(user, line)
        return item

    def cancel(self, user: str, item: T) -> bool:
        """`item` waits no more; False when it did not."""
        line = self._lines.get(user)
        if line is None or item not in line:
            return False
        del line[item]
        self._shortened(user, line)
        return True

    def _make_room(self, user: str) -> T:
        longest = self._longest
        if len(self._lines.get(user, ())) + 1 >= longest:
            raise QueueFull("too many wait")
        owner = next(iter(self._by_length[longest]))
        line = self._lines[owner]
        item, _ = line.popitem()
        self._shortened(owner, line)
        return item

    def _shortened(self, user: str, line: _Line[T]) -> None:
        self._size -= 1
        if not line:
            del self._lines[user]
        self._resized(user, len(line) + 1, len(line))

    def _resized(self, user: str, before: int, after: int) -> None:
        """A line's length changed by one."""
        if before:
            users = self._by_length[before]
            del users[user]
            if not users:
                del self._by_length[before]
        if after:
            self._by_length.setdefault(after, OrderedDict())[user] = None
        if after > self._longest or (before == self._longest and before not in self._by_length):
            self._longest = after
