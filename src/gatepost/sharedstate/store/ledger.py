"""The accounts of wrong passwords in the shared store: all front ends of the organization charge the same ones.

    charge ──► in the store, by the pure rules ──► Charge
       └── away, or too slow ──► in this front end's own file ──► when the store is back: moved there (`moving`)

While the store is away each front end counts by itself. What it has counted is then joined with what the others have:
a password that both have charged stays one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from gatepost.directory.policy.penalty import (
    FAMILIAR_SECONDS,
    Account,
    Attempt,
    Charge,
    charge,
    joined,
    let_go,
    take_off,
)
from gatepost.directory.policy.settings import Penalty
from gatepost.sharedstate.penalties import SqliteLedger
from gatepost.sharedstate.store.names import Names
from gatepost.sharedstate.store.port import Commit, KeyValues, Put, StoreAway
from gatepost.sharedstate.store.rounds import Decide, Rounds

MOVE_SECONDS = 2.0
"""After a charge in the own file, or when the store is back, until the accounts there are moved."""
MOVED_AT_ONCE = 50
CLEARING_ATTEMPTS = 50
"""Of removing accounts that others were faster with."""
MAX_TOLD = 50_000
"""Users' own addresses that the file was told of lately."""
TOUCH_SECONDS = 86400.0
"""How old "last seen" of a user's own address may grow before it is written."""

_encode = msgspec.msgpack.Encoder().encode
_account = msgspec.msgpack.Decoder(Account).decode
_time = msgspec.msgpack.Decoder(float).decode


class SharedLedger:
    """The `Ledger` of all front ends. `own`: that of this front end; `clock` answers seconds since 1970."""

    def __init__(
        self,
        rounds: Rounds,
        names: Names,
        own: SqliteLedger,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
    ) -> None:
        self._rounds = rounds
        self._names = names
        self._own = own
        self._loop = loop
        self._clock = clock
        self.alone = 0
        """See `Ledger`."""
        self._told: dict[str, float] = {}
        """Pairs that the own file knows as familiar, and since when."""
        self._forget_seconds = Penalty().forget_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._moving: asyncio.Task[None] | None = None
        rounds.on_back(self._move_soon)

    async def charge(self, attempt: Attempt, penalty: Penalty, now: float) -> Charge | None:
        """See `Ledger`. None only when neither the store nor the own file can be written."""
        self._forget_seconds = penalty.forget_seconds
        names = {key: self._names.text("penalties", key) for key in attempt.keys}
        familiar = self._names.text("familiar", attempt.pair) if attempt.pair else ""
        keys = [*names.values(), *([familiar] if familiar else [])]
        undo = partial(self._let_go, attempt)
        answer = await self._rounds.ask(keys, charging(attempt, penalty, names, familiar), now, undo)
        if answer is not None:
            charged, then = answer
            by_this_clock: Charge = msgspec.structs.replace(charged, at=charged.at - then + now)
            return by_this_clock
        charged_alone = await self._own.charge(attempt, penalty, now)
        if charged_alone is not None:
            self.alone += 1
            self._move_soon()
            charged_alone = msgspec.structs.replace(charged_alone, alone=True)
        return charged_alone

    def settle(self, attempt: Attempt, charged: Charge, now: float, *, right: bool) -> None:
        """See `Ledger`."""
        if charged.alone:
            self._own.settle(attempt, charged, now, right=right)
        elif right:
            self._tell_own(attempt, now)
        # Also of a charge in the own file: it may have been moved meanwhile.
        self._settle(attempt, charged.keys, now, right=right)

    def close(self) -> None:
        """Move nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._moving is not None:
            self._moving.cancel()

    def _settle(self, attempt: Attempt, charged: Sequence[str], now: float, *, right: bool) -> None:
        names = [self._names.text("penalties", key) for key in charged]
        familiar = self._names.text("familiar", attempt.pair) if right and attempt.pair else ""
        decide = settling(attempt.mark, names, familiar, self._forget_seconds, right=right)
        self._rounds.tell([*names, familiar] if familiar else names, decide, now)

    def _let_go(self, attempt: Attempt, answer: tuple[Charge, float]) -> None:
        """Nobody waits for this charge any more."""
        if answer[0].keys:
            self._settle(attempt, answer[0].keys, self._clock(), right=False)

    def _tell_own(self, attempt: Attempt, now: float) -> None:
        """Have the own file know the user's address, for when the store is away."""
        if not attempt.pair or now - self._told.get(attempt.pair, 0.0) < TOUCH_SECONDS:
            return
        if len(self._told) >= MAX_TOLD:
            del self._told[next(iter(self._told))]
        self._told[attempt.pair] = now
        self._own.know(attempt.pair, now)

    # --- from the own file into the store

    def _move_soon(self) -> None:
        if self._timer is None and self._moving is None:
            self._timer = self._loop.call_later(MOVE_SECONDS, self._move)

    def _move(self) -> None:
        self._timer = None
        if not self._rounds.away:  # otherwise when it is back
            self._moving = self._loop.create_task(self._move_all())
            self._moving.add_done_callback(self._moved)

    async def _move_all(self) -> None:
        """Some at a time, so that nobody's sign-in waits for it. Other workers move theirs of the same file."""
        while taken := await self._own.take(MOVED_AT_ONCE):
            keys = {self._names.digest("penalties", name): account for name, account in taken.items()}
            if await self._rounds.ask(list(keys), moving(keys, self._forget_seconds), self._clock()) is None:
                self._own.put_back(taken, self._clock() + self._forget_seconds)
                self._loop.call_soon(self._move_soon)
                return

    def _moved(self, task: asyncio.Task[None]) -> None:
        self._moving = None
        if not task.cancelled():
            task.result()


def charging(
    attempt: Attempt, penalty: Penalty, names: Mapping[str, str], familiar: str
) -> Decide[tuple[Charge, float]]:
    """Charges `attempt`; answers the `Charge`, and the time by which its moment is meant."""

    def decide(values: Mapping[str, bytes], now: float) -> tuple[dict[str, Put | None], tuple[Charge, float]]:
        accounts = {key: found for key, name in names.items() if (found := _read(values.get(name))) is not None}
        own = bool(familiar) and now - _used(values.get(familiar)) < FAMILIAR_SECONDS
        changed, charged = charge(accounts, familiar=own, attempt=attempt, now=now, penalty=penalty)
        puts: dict[str, Put | None] = {
            names[key]: Put(_encode(account), penalty.forget_seconds + penalty.longest_wait_seconds)
            for key, account in changed.items()
        }
        return puts, (charged, now)

    return decide


def settling(mark: bytes, names: Sequence[str], familiar: str, seconds: float, *, right: bool) -> Decide[bool]:
    """Takes a charge off, or lets go of it; the address of a right password is the user's own (`familiar`)."""

    def decide(values: Mapping[str, bytes], now: float) -> tuple[dict[str, Put | None], bool]:
        puts: dict[str, Put | None] = {}
        for name in names:
            account = _read(values.get(name))
            if account is not None:
                changed = (take_off if right else let_go)(account, mark)
                if changed != account:
                    puts[name] = Put(_encode(changed), seconds) if changed.count else None
        if familiar and now - _used(values.get(familiar)) >= TOUCH_SECONDS:
            puts[familiar] = Put(_encode(now), FAMILIAR_SECONDS)
        return puts, True

    return decide


def moving(accounts: Mapping[str, Account], seconds: float) -> Decide[bool]:
    """Joins the accounts of one front end with those that are there."""

    def decide(values: Mapping[str, bytes], _now: float) -> tuple[dict[str, Put | None], bool]:
        puts: dict[str, Put | None] = {}
        for name, account in accounts.items():
            there = _read(values.get(name))
            puts[name] = Put(_encode(joined(there, account) if there is not None else account), seconds)
        return puts, True

    return decide


async def held(store: KeyValues, names: Names, keys: Sequence[str], *, clear: bool = False) -> dict[str, Account]:
    """The accounts that are there of `keys`, and then no more with `clear`. Raises `StoreAway`."""
    named = {names.text("penalties", key): key for key in keys}
    for _ in range(CLEARING_ATTEMPTS):
        found, _time_there = await store.read(list(named))
        accounts = {named[name]: account for name, each in found.items() if (account := _read(each.value)) is not None}
        if not clear or not found or await store.commit([Commit(dict(found), dict.fromkeys(found))]) == [True]:
            return accounts
    raise StoreAway("others change the same all the time")


def _read(value: bytes | None) -> Account | None:
    if value is None:
        return None
    try:
        return _account(value)
    except msgspec.DecodeError:
        return None  # of another version, or damaged: it begins anew


def _used(value: bytes | None) -> float:
    if value is None:
        return 0.0
    try:
        return _time(value)
    except msgspec.DecodeError:
        return 0.0
