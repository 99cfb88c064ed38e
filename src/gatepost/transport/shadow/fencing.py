"""Fencing: what a hub had when it started waits until its watchers say what they know of it (SPEC S3). Pure."""

from __future__ import annotations


class Fence:
    """Messages that wait. `name` is the hub's."""

    __slots__ = ("_name", "_said_open", "_until", "_waiting")

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: dict[int, int] = {}
        """And for how many answers."""
        self._until: float | None = None
        self._said_open: set[tuple[str, str]] = set()
        """What was answered `OPEN` about messages that wait: the other side may be starting as well."""

    def add(self, number: int, answers: int) -> None:
        """A message waits for so many answers."""
        self._waiting[number] = answers

    def begin(self, until: float) -> None:
        """All is added; nothing waits for longer than until then."""
        self._until = until

    def waits(self, number: int) -> bool:
        """Whether the message must not be sent yet."""
        return number in self._waiting

    def answered(self, number: int) -> bool:
        """One of its watchers has answered. Whether the message has waited and needs wait no longer."""
        left = self._waiting.get(number, 0) - 1
        if left > 0:
            self._waiting[number] = left
        elif left == 0:
            del self._waiting[number]
        return left == 0

    def remove(self, number: int) -> None:
        """It does not wait any more."""
        self._waiting.pop(number, None)

    def over(self, now: float) -> list[int]:
        """What need not wait any longer because it has waited long enough."""
        if self._until is None:
            return []
        found = list(self._waiting) if now >= self._until else []
        if found:
            self._waiting.clear()
        if not self._waiting:
            self._said_open.clear()
        return found

    def said_open(self, number: int, server: str, token: str) -> None:
        """`server` was told that we are responsible."""
        if number in self._waiting:
            self._said_open.add((server, token))

    def stands_firm(self, server: str, token: str) -> bool:
        """Whether `server`, which says that it is responsible, gives way: it has heard the same of us. Of two hubs that
        both gave way none would be responsible; so the one whose name is smaller stands firm."""
        return (server, token) in self._said_open and self._name < server
