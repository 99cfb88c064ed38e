"""What every ledger of wrong passwords promises. Each engine's test file has a subclass of this with its fixtures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gatepost.directory.policy.ledger import Ledger
from gatepost.directory.policy.penalty import Attempt, Charge
from gatepost.directory.policy.policy import attempt_of
from gatepost.directory.policy.settings import Penalty

DEADLINE_SECONDS = 20.0
PENALTY = Penalty()
ANNA = "anna@contoso.com"
ADDRESS = "198.51.100.1"


class LedgerStage:
    """Two front ends that share accounts. Engines say what the time is."""

    def __init__(self, one: Ledger, other: Ledger, time: Callable[[], float], penalty: Penalty = PENALTY) -> None:
        self.one = one
        self.other = other
        self.time = time
        self.penalty = penalty

    async def guess(
        self, password: str, ledger: Ledger | None = None, *, address: str = ADDRESS, name: str = ANNA
    ) -> tuple[Attempt, Charge]:
        """A password that is charged, and stays so."""
        attempt = attempt_of(name, address, password.encode()[-6:].rjust(6), self.penalty)
        charged = await (ledger or self.one).charge(attempt, self.penalty, self.time())
        assert charged is not None
        return attempt, charged


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it holds: what nobody waits for takes its time."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not await condition():  # noqa: ASYNC110 - a port has no event for this
            await asyncio.sleep(0.01)


class LedgerContract:
    """Subclasses provide the fixture `stage`, with empty accounts."""

    async def test_the_first_ones_are_free_and_then_each_waits_twice_as_long(self, stage: LedgerStage) -> None:
        waits = []
        for number in range(7):
            _, charged = await stage.guess(f"guess{number}", (stage.one, stage.other)[number % 2])
            waits.append(round(charged.at - stage.time()) if charged.keys else None)
        # Nobody has waited: each turn is behind the one before.
        assert waits == [0, 0, 0, 1, 3, 7, 15]

    async def test_what_would_wait_too_long_is_refused_at_every_front_end(self, stage: LedgerStage) -> None:
        for number in range(7):
            await stage.guess(f"guess{number}")
        for ledger in (stage.one, stage.other):
            _, charged = await stage.guess("guess7", ledger)
            assert charged.keys == ()
            assert round(charged.at - stage.time()) in (29, 30)

    async def test_parallel_guesses_at_all_front_ends_do_not_escape(self, stage: LedgerStage) -> None:
        """No more are let through than one front end would."""
        charges = await asyncio.gather(
            *(stage.guess(f"guess{number}", (stage.one, stage.other)[number % 2]) for number in range(40))
        )
        assert sum(bool(charged.keys) for _, charged in charges) == 7
        assert len({round(charged.at - stage.time()) for _, charged in charges if charged.keys}) == 5

    async def test_the_same_password_counts_once_wherever_it_is_tried(self, stage: LedgerStage) -> None:
        """A phone with an old password is one failure for ever."""
        _, first = await stage.guess("old")
        for _ in range(10):
            for ledger in (stage.one, stage.other):
                _, again = await stage.guess("old", ledger)
                assert again.repeated
                assert again.count == first.count == 1

    async def test_a_right_password_is_taken_off_everywhere(self, stage: LedgerStage) -> None:
        for number in range(2):
            await stage.guess(f"guess{number}")
        attempt, charged = await stage.guess("right")
        assert charged.count == 3
        stage.one.settle(attempt, charged, stage.time(), right=True)

        async def taken_off() -> bool:
            probe, charge = await stage.guess("probe", stage.other, name="otto@contoso.com")
            if charge.count == 3:
                return True
            stage.other.settle(probe, charge, stage.time(), right=False)
            return False

        await until(taken_off)

    async def test_who_was_not_judged_is_let_go_of(self, stage: LedgerStage) -> None:
        attempt, charged = await stage.guess("never judged")
        stage.one.settle(attempt, charged, stage.time(), right=False)

        async def let_go() -> bool:
            probe, charge = await stage.guess("probe", stage.other)
            if charge.count == 1:
                return True
            stage.other.settle(probe, charge, stage.time(), right=False)
            return False

        await until(let_go)

    async def test_two_who_try_the_same_hold_it_together(self, stage: LedgerStage) -> None:
        """One who has left does not free the other's charge."""
        attempt, charged = await stage.guess("the same", stage.one)
        await stage.guess("the same", stage.other)
        stage.one.settle(attempt, charged, stage.time(), right=False)
        await asyncio.sleep(0.05)
        _, probe = await stage.guess("probe")
        assert probe.count == 2

    async def test_an_address_of_the_users_own_is_known_to_all(self, stage: LedgerStage) -> None:
        """Strangers' guesses behind it do not count against the user."""
        attempt, charged = await stage.guess("right", stage.one)
        stage.one.settle(attempt, charged, stage.time(), right=True)

        async def familiar() -> bool:
            probe, charge = await stage.guess("right", stage.other)
            stage.other.settle(probe, charge, stage.time(), right=True)
            return charge.familiar

        await until(familiar)
        for number in range(7):
            await stage.guess(f"guess{number}", name="otto@contoso.com")
        _, own = await stage.guess("right", stage.other)
        assert own.familiar
        assert own.at <= stage.time() + 1

    async def test_addresses_of_one_ipv6_network_are_one(self, stage: LedgerStage) -> None:
        for number in range(1, 8):
            ledger = (stage.one, stage.other)[number % 2]
            _, charged = await stage.guess(f"guess{number}", ledger, address=f"2001:db8:1:2::{number}")
        assert charged.count == 7
        _, elsewhere = await stage.guess("guess", address="2001:db8:1:3::1")
        assert elsewhere.count == 1

    async def test_one_account_from_many_addresses(self, stage: LedgerStage) -> None:
        """With `failures_per_account` its strangers share one account."""
        stage.penalty = Penalty(failures_per_account=5)
        charges = [
            (await stage.guess(f"guess{n}", (stage.one, stage.other)[n % 2], address=f"203.0.113.{n}"))[1]
            for n in range(10)
        ]
        assert [bool(charged.keys) for charged in charges] == [True] * 9 + [False]
