"""What a shadow server has of one primary, and when that is contacted (SPEC S2). Pure; each step costs O(1)."""

from __future__ import annotations

import msgspec

from gatepost.transport.shadow.decisions import Reason


class Copy(msgspec.Struct, gc=False):
    """One copy: the message in the spool, and when it expires, in seconds since 1970."""

    number: int
    until: float


class Copies:
    """Copies made under one identity of the primary's queue database, by token."""

    __slots__ = ("latest", "old", "young")

    def __init__(self) -> None:
        self.young: dict[str, Copy] = {}
        """Come or asked about since the present round of asking began."""
        self.old: dict[str, Copy] = {}
        """To be asked about in this round."""
        self.latest = 0
        """The moment of the last one."""

    def __len__(self) -> int:
        return len(self.young) + len(self.old)

    def get(self, token: str) -> Copy | None:
        """The copy."""
        return self.young.get(token) or self.old.get(token)

    def pop(self, token: str) -> Copy | None:
        """Forget the copy; it."""
        return self.young.pop(token, None) or self.old.pop(token, None)


class Leaving:
    """Copies that are being taken over."""

    __slots__ = ("copies", "identity", "reason")

    def __init__(self, identity: str, reason: Reason, copies: dict[str, Copy]) -> None:
        self.identity = identity
        self.reason = reason
        self.copies = copies


class Keeping:
    """One primary."""

    __slots__ = (
        "asked", "copies", "failures", "finished", "heard", "identity", "leaving", "next", "round", "seen", "taking",
    )  # fmt: skip

    def __init__(self, now: float) -> None:
        self.identity = ""
        """Its queue database's, as it was seen last."""
        self.seen = 0
        """The moment of that."""
        self.heard = now
        self.next = now
        """When it is contacted."""
        self.asked = False
        """Whether it is being contacted."""
        self.failures = 0
        """Heartbeats in a row that failed."""
        self.round = now
        """When the next round of asking about copies begins."""
        self.copies: dict[str, Copies] = {}
        """By identity."""
        self.leaving: list[Leaving] = []
        self.taking: dict[str, tuple[Leaving, Copy]] = {}
        """Copies whose takeover is on its way to disk, by token."""
        self.finished: set[str] = set()
        """Of those: what the primary has finished meanwhile."""

    def __len__(self) -> int:
        return sum(map(len, self.copies.values())) + self.to_take

    @property
    def to_take(self) -> int:
        """Copies that are to be taken over."""
        return sum(len(batch.copies) for batch in self.leaving) + len(self.taking)

    def get(self, token: str) -> Copy | None:
        """A copy that we keep."""
        for copies in self.copies.values():
            if (copy := copies.get(token)) is not None:
                return copy
        for batch in self.leaving:
            if (copy := batch.copies.get(token)) is not None:
                return copy
        return self.taking[token][1] if token in self.taking else None

    def pop(self, token: str) -> Copy | None:
        """Forget a copy, unless its takeover is on its way to disk."""
        for copies in self.copies.values():
            if (copy := copies.pop(token)) is not None:
                return copy
        for batch in self.leaving:
            if (copy := batch.copies.pop(token, None)) is not None:
                return copy
        return None

    def keep(self, identity: str, token: str, copy: Copy, moment: int) -> None:
        """One more."""
        copies = self.copies.setdefault(identity, Copies())
        copies.young[token] = copy
        copies.latest = moment

    def leave(self, identity: str, reason: Reason) -> int:
        """All that were made under this identity are to be taken over; how many."""
        copies = self.copies.pop(identity, None)
        if copies is None or not len(copies):
            return 0
        for found in (copies.young, copies.old):
            if found:
                self.leaving.append(Leaving(identity, reason, found))
        return len(copies)

    def leave_one(self, token: str, reason: Reason) -> bool:
        """One copy is to be taken over; whether it was kept, and not to be taken over already."""
        for identity, copies in self.copies.items():
            if (copy := copies.pop(token)) is not None:
                self.leaving.append(Leaving(identity, reason, {token: copy}))
                return True
        return False

    def come_back(self, moment: int) -> None:
        """It was only silent, and is here with the same queue database: what was not yet taken over stays a shadow."""
        for batch in [b for b in self.leaving if b.identity == self.identity and b.reason in _ENDED_BY_LIFE]:
            self.leaving.remove(batch)
            copies = self.copies.setdefault(batch.identity, Copies())
            copies.old.update(batch.copies)
            copies.latest = moment


_ENDED_BY_LIFE = frozenset({Reason.SILENCE, Reason.HEARTBEATS})
