"""Which of our messages another hub keeps shadows of, as far as we know (SPEC S1). Pure; each step costs O(1)."""

from __future__ import annotations

from collections.abc import Iterator

from gatepost.transport.shadow.discards import Discards

VERIFY_SECONDS = 5.0
"""A message that was handed on to us and is open for so long, or twice that: is its shadow there? Most have gone on."""


class Held:
    """Copies that the hub had on disk under one identity of its queue database."""

    __slots__ = ("latest", "numbers")

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        """Messages by token."""
        self.latest = 0
        """The moment of the last one: what is seen after it tells whether they are still there."""


class Watching:
    """Another hub, as a watcher of ours. A token is in one of `held` and `unsure`, or in none."""

    __slots__ = (
        "discards", "finished", "fresh", "heard", "held", "identity", "seen", "to_ask", "to_tell", "unsure", "verified",
        "waiting",
    )  # fmt: skip

    def __init__(self, now: float) -> None:
        self.identity = ""
        """Its queue database's, as it was seen last."""
        self.seen = 0
        """The moment of that."""
        self.heard = now
        self.held: dict[str, Held] = {}
        """By identity; "" where it is not known."""
        self.unsure: dict[str, int] = {}
        """Messages by token: it may have the copy, or be responsible itself by now."""
        self.to_ask: dict[str, None] = {}
        """Tokens of which it is to be asked what its part is."""
        self.to_tell: dict[str, None] = {}
        """Tokens of what we have taken over from it."""
        self.fresh: dict[str, None] = {}
        """Tokens of what it handed on to us lately: it keeps the shadow, unless it died before it noted that."""
        self.waiting: dict[str, None] = {}
        """Those from before; what is still open after that is asked about."""
        self.verified = now
        """When they were looked at last."""
        self.finished: dict[str, int] = {}
        """Messages by token: it has finished them while they were being sent here."""
        self.discards = Discards()

    def number(self, token: str) -> int | None:
        """Of our open message."""
        for held in self.held.values():
            found = held.numbers.get(token)
            if found is not None:
                return found
        return self.unsure.get(token)

    def is_held(self, token: str) -> bool:
        """Whether the copy is on its disk, as far as we know."""
        return any(token in held.numbers for held in self.held.values())

    def hold(self, token: str, number: int, identity: str, moment: int) -> None:
        """The copy is on its disk."""
        self.unsure.pop(token, None)
        held = self.held.setdefault(identity, Held())
        held.numbers[token] = number
        held.latest = moment

    def forget(self, token: str) -> None:
        """Nothing of ours is watched under this token any more. What is to be told is still told."""
        for held in self.held.values():
            held.numbers.pop(token, None)
        self.unsure.pop(token, None)
        self.to_ask.pop(token, None)
        self.fresh.pop(token, None)
        self.waiting.pop(token, None)
        self.finished.pop(token, None)

    def again(self, token: str, took_over: bool) -> None:
        """What was asked or told is to be asked or told again; a message that is gone need not be asked about."""
        if took_over:
            self.to_tell[token] = None
        elif self.number(token) is not None:
            self.to_ask[token] = None

    def see(self, identity: str, moment: int) -> list[dict[str, int]]:
        """It has this queue database: the copies that are gone."""
        if moment < self.seen:
            return []
        self.seen, self.identity = moment, identity
        gone = []
        for other in [i for i, held in self.held.items() if i != identity and held.latest < moment]:
            numbers = self.held.pop(other).numbers
            if other:
                gone.append(numbers)
            else:  # it was never known on which disk they are
                self.unsure.update(numbers)
                self.to_ask.update(dict.fromkeys(numbers))
        return gone

    def verify(self, now: float) -> None:
        """What was handed on to us some seconds ago, and is still open, is asked about."""
        if now - self.verified >= VERIFY_SECONDS:
            self.verified = now
            self.to_ask.update(self.waiting)
            self.waiting, self.fresh = self.fresh, {}

    def gone_silent(self) -> Iterator[dict[str, int]]:
        """It has been silent for long: nothing is known to be held, and all is asked about when it is back."""
        for identity in list(self.held):
            numbers = self.held.pop(identity).numbers
            self.unsure.update(numbers)
            self.to_ask.update(dict.fromkeys(numbers))
            yield numbers
