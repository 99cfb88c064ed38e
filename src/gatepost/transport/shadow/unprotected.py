"""Which of our messages no other hub keeps a shadow of, so that they are protected anew (SPEC S1). Pure."""

from __future__ import annotations


class Unprotected:
    """Messages by number; the latest come first. One that has left the queue may be among them."""

    __slots__ = ("_lost", "_numbers")

    def __init__(self) -> None:
        self._numbers: dict[int, None] = {}
        self._lost: list[dict[str, int]] = []
        """Copies that are gone, with their messages: taken up by and by, for they may be a million."""

    def __len__(self) -> int:
        return len(self._numbers) + sum(map(len, self._lost))

    def add(self, number: int) -> None:
        """Nobody has a copy of this one."""
        self._numbers[number] = None

    def lose(self, copies: dict[str, int]) -> None:
        """These copies, by token, are gone. Takes the dictionary over."""
        self._lost.append(copies)

    def remove(self, number: int) -> None:
        """It has a copy, or is none of ours any more."""
        self._numbers.pop(number, None)

    def has_lost(self, token: str) -> bool:
        """Whether the copy is among those that are gone."""
        return any(token in copies for copies in self._lost)

    def take(self, limit: int) -> list[int]:
        """Some of them, each once."""
        while self._lost and len(self._numbers) < limit:
            copies = self._lost[-1]
            if copies:
                self.add(copies.popitem()[1])
            else:
                self._lost.pop()
        return [self._numbers.popitem()[0] for _ in range(min(limit, len(self._numbers)))]
