"""Who keeps the accounts of wrong passwords: the port, and the one that a process keeps by itself."""

from __future__ import annotations

from typing import Protocol as Port

from gatepost.directory.policy.penalty import FAMILIAR_SECONDS, Account, Attempt, Charge, charge, let_go, take_off
from gatepost.directory.policy.settings import Penalty

MAX_ACCOUNTS = 50_000
"""Of one process that cannot reach what it shares with others: a few hundred octets each."""


class Ledger(Port):
    """Accounts that all who judge passwords share. Times are seconds since 1970."""

    @property
    def alone(self) -> int:
        """Charges that were made for this front end only, because the others could not be reached."""
        ...

    async def charge(self, attempt: Attempt, penalty: Penalty, now: float) -> Charge | None:
        """As `penalty.charge`, at once for all: two attempts never see the same account. None: the store is away."""
        ...

    def settle(self, attempt: Attempt, charged: Charge, now: float, *, right: bool) -> None:
        """The password was right, or was not judged. Nobody waits for it; a wrong one stays charged as it is."""
        ...


class MemoryLedger:
    """The `Ledger` of one process."""

    alone = 0

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._familiar: dict[str, float] = {}

    async def charge(self, attempt: Attempt, penalty: Penalty, now: float) -> Charge | None:
        """See `Ledger`."""
        familiar = bool(attempt.pair) and now - self._familiar.get(attempt.pair, -FAMILIAR_SECONDS) < FAMILIAR_SECONDS
        changed, charged = charge(self._accounts, familiar=familiar, attempt=attempt, now=now, penalty=penalty)
        for key, account in changed.items():
            self._keep(key, account)
        return charged

    def settle(self, attempt: Attempt, charged: Charge, now: float, *, right: bool) -> None:
        """See `Ledger`."""
        for key in charged.keys:
            account = self._accounts.get(key)
            if account is not None:
                self._accounts[key] = (take_off if right else let_go)(account, attempt.mark)
        if right and attempt.pair:
            if len(self._familiar) >= MAX_ACCOUNTS and attempt.pair not in self._familiar:
                del self._familiar[next(iter(self._familiar))]
            self._familiar[attempt.pair] = now

    def _keep(self, key: str, account: Account) -> None:
        """Of too many the one that has not been charged for longest goes."""
        self._accounts.pop(key, None)
        if len(self._accounts) >= MAX_ACCOUNTS:
            del self._accounts[next(iter(self._accounts))]
        self._accounts[key] = account
