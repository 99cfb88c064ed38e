"""What wrong passwords cost: an account for each address, kept by pure functions. Times are seconds since 1970.

    charge ──► at: when this password may be judged, and it counts as wrong from now on
       │         └── right: taken off │ a fault, or the client has left: let go of │ wrong: stays
       └────► refused: its turn would be too late; nothing counts

A charge comes before the judgement, and each turn is later than the one before by the delay, so that guesses made at
the same time wait one behind the other. Who tries a password that is being tried already waits for the same moment and
holds the same charge: it is let go of when all who hold it have met a fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from gatepost.directory.policy.settings import Penalty

MARK_BYTES = 6
"""Of a keyed digest of name and password: enough to tell a few dozen apart."""
MAX_MARKS = 64
"""Distinct passwords of one account that are told apart; of more the oldest are forgotten, and stay counted."""
FAMILIAR_SECONDS = 30 * 86400.0
"""An address is a user's own for so long after a right password from it."""


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """A password that was charged."""

    digest: bytes
    at: float
    """When it is judged, or was."""
    holders: int = 1
    """Who tries or has tried it; 0: nobody does any more, so it was never judged."""


class Account(msgspec.Struct, frozen=True, array_like=True):
    """What is held against one address, one user at one address, or one user."""

    count: int = 0
    """Distinct passwords that are wrong or not yet judged."""
    slot: float = 0.0
    """The latest moment at which one of them is judged."""
    used: float = 0.0
    """When one was charged last."""
    marks: tuple[Mark, ...] = ()

    def mark(self, digest: bytes) -> Mark | None:
        """The charge for this password."""
        return next((mark for mark in self.marks if mark.digest == digest), None)


class Attempt(msgspec.Struct, frozen=True):
    """A password that wants to be judged. Keys are opaque to whoever keeps accounts."""

    mark: bytes
    address: str
    """The address's account."""
    pair: str = ""
    """The account of the user at this address, which counts instead where the address is the user's own. Empty: no
    such name."""
    user: str = ""
    """The user's account, which counts beside the address's where it is a stranger's. Empty: it is not counted."""

    @property
    def keys(self) -> tuple[str, ...]:
        """All accounts that may be concerned."""
        return tuple(key for key in (self.address, self.pair, self.user) if key)


class Charge(msgspec.Struct, frozen=True):
    """What came of an attempt."""

    keys: tuple[str, ...]
    """The accounts that were charged; none: refused."""
    at: float
    """When the password may be judged; of a refusal, when the next could be."""
    count: int
    """Distinct passwords held against it, this one included."""
    repeated: bool = False
    """The same password was charged before."""
    familiar: bool = False
    alone: bool = False
    """It was made for one front end only: what it shares with the others could not be reached."""


@dataclass(frozen=True, slots=True)
class _Term:
    key: str
    account: Account
    free: int


def charge(
    accounts: Mapping[str, Account], *, familiar: bool, attempt: Attempt, now: float, penalty: Penalty
) -> tuple[dict[str, Account], Charge]:
    """The accounts that change, and what came of the attempt. `accounts` may lack those that are not there yet."""
    terms = []
    for key, free in _concerned(attempt, penalty, familiar=familiar):
        account = accounts.get(key, Account())
        if now - account.used > penalty.forget_seconds or account.used > now + penalty.forget_seconds:
            account = Account()
        terms.append(_Term(key, account, free))
    before = [term.account.mark(attempt.mark) for term in terms]
    turns = [
        mark.at if mark is not None else _turn(term.account, term.free, now, penalty)
        for term, mark in zip(terms, before, strict=True)
    ]
    at = max(now, *turns)
    most = max(term.account.count + (mark is None) for term, mark in zip(terms, before, strict=True))
    repeated = all(mark is not None for mark in before)
    if at - now > penalty.longest_wait_seconds:
        return {}, Charge((), at, most, repeated, familiar)
    changed = {
        term.key: _held(term.account, mark) if mark is not None else _charged(term.account, attempt.mark, at, now)
        for term, mark in zip(terms, before, strict=True)
    }
    return changed, Charge(tuple(changed), at, most, repeated, familiar)


def take_off(account: Account, digest: bytes) -> Account:
    """The password was right: nothing is held against anybody for it."""
    return _without(account, digest) if account.mark(digest) is not None else account


def let_go(account: Account, digest: bytes) -> Account:
    """One who held the charge was not judged. It is taken off with the last one."""
    mark = account.mark(digest)
    if mark is None:
        return account
    if mark.holders <= 1:
        return _without(account, digest)
    return _with(account, msgspec.structs.replace(mark, holders=mark.holders - 1))


def joined(one: Account, other: Account) -> Account:
    """What two who could not see each other hold against the same: a password that both have charged is one."""
    known = {mark.digest: mark for mark in one.marks}
    new = [mark for mark in other.marks if mark.digest not in known]
    for mark in other.marks:
        if mark.digest in known:
            known[mark.digest] = msgspec.structs.replace(mark, holders=mark.holders + known[mark.digest].holders)
    forgotten = max(other.count - len(other.marks), 0)  # charged so long ago that no mark is left
    marks = sorted((*known.values(), *new), key=lambda mark: mark.at)[-MAX_MARKS:]
    count = one.count + len(new) + forgotten
    return Account(count, max(one.slot, other.slot), max(one.used, other.used), tuple(marks))


def _concerned(attempt: Attempt, penalty: Penalty, *, familiar: bool) -> list[tuple[str, int]]:
    """Accounts with what is free of each."""
    if familiar:
        return [(attempt.pair, penalty.free_failures)]
    concerned = [(attempt.address, penalty.free_failures)]
    if attempt.user:
        concerned.append((attempt.user, penalty.failures_per_account))
    return concerned


def _turn(account: Account, free: int, now: float, penalty: Penalty) -> float:
    """When the next distinct password is judged. Time that has passed since the last one counts."""
    over = account.count - free
    if over < 0:
        return now
    delay = min(penalty.first_delay_seconds * 2.0 ** min(over, 64), penalty.longest_delay_seconds)
    return max(now, account.slot + delay)


def _charged(account: Account, digest: bytes, at: float, now: float) -> Account:
    marks = (*account.marks, Mark(digest, at))[-MAX_MARKS:]
    return Account(account.count + 1, max(account.slot, at), now, marks)


def _held(account: Account, mark: Mark) -> Account:
    return _with(account, msgspec.structs.replace(mark, holders=mark.holders + 1))


def _with(account: Account, changed: Mark) -> Account:
    marks = tuple(changed if mark.digest == changed.digest else mark for mark in account.marks)
    return msgspec.structs.replace(account, marks=marks)


def _without(account: Account, digest: bytes) -> Account:
    """Its turn is free again, unless one behind it has begun to wait."""
    marks = tuple(mark for mark in account.marks if mark.digest != digest)
    slot = max((mark.at for mark in marks), default=0.0)
    return Account(max(account.count - 1, 0), slot, account.used, marks)
