"""What wrong passwords cost: distinct ones, doubled, charged before the judgement, never for a fault."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.directory.policy.penalty import MAX_MARKS, Account, Attempt, Charge, charge, let_go, take_off
from gatepost.directory.policy.settings import Penalty

PENALTY = Penalty()
NOW = 1_000_000.0


class Book:
    """Accounts, and attempts on them from one address."""

    def __init__(self, penalty: Penalty = PENALTY) -> None:
        self.penalty = penalty
        self.accounts: dict[str, Account] = {}

    def charge(self, guess: int, now: float = NOW, *, address: str = "a", familiar: bool = False) -> Charge:
        changed, charged = charge(
            self.accounts, familiar=familiar, attempt=self.attempt(guess, address), now=now, penalty=self.penalty
        )
        self.accounts |= changed
        return charged

    def attempt(self, guess: int, address: str = "a") -> Attempt:
        return Attempt(guess.to_bytes(6, "big"), address, f"anna at {address}", "anna" * bool(self.account_counts))

    @property
    def account_counts(self) -> int:
        return self.penalty.failures_per_account

    def let_go(self, guess: int, key: str = "a") -> None:
        self.accounts[key] = let_go(self.accounts[key], guess.to_bytes(6, "big"))

    def take_off(self, guess: int, key: str = "a") -> None:
        self.accounts[key] = take_off(self.accounts[key], guess.to_bytes(6, "big"))


def test_the_first_ones_are_free_then_delays_double() -> None:
    """Each guesses as soon as it may: 3 at once, then after 1, 2, 4, 8, 15, 15 seconds."""
    book, now, turns = Book(), NOW, []
    for guess in range(9):
        now = book.charge(guess, now).at
        turns.append(now - NOW)
    assert turns == [0, 0, 0, 1, 3, 7, 15, 30, 45]


def test_the_same_wrong_password_again_is_one() -> None:
    """A phone with an old password: nothing grows, and nobody behind its address waits for it."""
    book = Book()
    first = book.charge(1)
    again = [book.charge(1, NOW + second) for second in range(100)]
    assert not first.repeated
    assert all(charged.repeated and charged.count == 1 for charged in again)
    assert [charged.at for charged in again] == [NOW + second for second in range(100)]
    assert book.accounts["a"].count == 1


def test_parallel_guesses_do_not_escape() -> None:
    """10,000 at the same moment: as many are judged as one after the other, the others come back later."""
    book = Book()
    charges = [book.charge(guess) for guess in range(10_000)]
    assert sorted(charged.at - NOW for charged in charges if charged.keys) == [0, 0, 0, 1, 3, 7, 15]
    assert not any(charged.keys for charged in charges[7:])
    assert all(charged.at - NOW > PENALTY.longest_wait_seconds for charged in charges[7:])


def test_what_is_refused_is_not_counted() -> None:
    book = Book()
    for guess in range(100):
        book.charge(guess)
    assert book.accounts["a"].count == 7
    assert book.charge(200, NOW + 20).at == NOW + 30


def test_the_same_guess_beside_itself_waits_for_the_same_turn() -> None:
    """Each guess sent twice, the first let go of by leaving: the second is still charged."""
    book = Book()
    for guess in range(3):
        book.charge(guess)
    assert book.charge(9).at == NOW + 1
    assert book.charge(9).at == NOW + 1
    book.let_go(9)
    assert book.accounts["a"].count == 4
    assert book.charge(10).at == NOW + 3
    book.let_go(9)
    assert book.accounts["a"].count == 4, "the one behind it keeps its charge"
    assert book.accounts["a"].mark((9).to_bytes(6, "big")) is None


def test_a_right_password_gives_its_own_charge_back_and_no_other() -> None:
    """Whoever guesses and has an account of their own gains nothing by signing in between."""
    book = Book()
    for guess in range(5):
        book.charge(guess)
    book.charge(77, NOW + 10)
    book.take_off(77)
    assert book.accounts["a"].count == 5
    book.take_off(77)
    assert book.accounts["a"].count == 5, "once only"


def test_a_fault_gives_the_turn_back() -> None:
    book = Book()
    for guess in range(4):
        book.charge(guess)
    book.let_go(3)
    assert book.accounts["a"].slot == NOW
    assert book.charge(4).at == NOW + 1


def test_a_fault_of_a_wrong_password_that_is_tried_again_takes_nothing_off() -> None:
    book = Book()
    book.charge(1)
    book.charge(1)
    book.let_go(1)
    assert book.accounts["a"].count == 1


def test_after_a_while_without_new_ones_the_address_begins_anew() -> None:
    book = Book()
    for guess in range(7):
        book.charge(guess)
    assert book.charge(8, NOW + PENALTY.forget_seconds).count == 8
    assert book.charge(9, NOW + 2 * PENALTY.forget_seconds + 1).count == 1


def test_a_clock_that_was_set_back_keeps_nobody_out() -> None:
    book = Book()
    for guess in range(7):
        book.charge(guess)
    assert book.charge(8, NOW - 10 * PENALTY.forget_seconds).at == NOW - 10 * PENALTY.forget_seconds


def test_addresses_are_apart() -> None:
    book = Book()
    for guess in range(50):
        book.charge(guess)
    assert book.charge(1, address="b").at == NOW


def test_at_an_address_of_their_own_strangers_keep_no_user_out() -> None:
    """50 guesses of a neighbour behind the same address; the user has signed in from there before."""
    book = Book()
    for guess in range(50):
        book.charge(guess)
    charged = book.charge(100, familiar=True)
    assert charged.at == NOW
    assert charged.keys == ("anna at a",)


def test_one_account_from_many_addresses() -> None:
    """With `failures_per_account` 20: 1,000 addresses together get 20 guesses and then the delays."""
    book = Book(Penalty(failures_per_account=20))
    charges = [book.charge(guess, address=f"a{guess}") for guess in range(1000)]
    judged = [charged for charged in charges if charged.keys]
    assert [charged.at - NOW for charged in judged] == [0] * 20 + [1, 3, 7, 15]
    assert all(len(charged.keys) == 2 for charged in judged)
    # Nothing is charged to an address that was told to come back because of the account.
    assert sum(key.startswith("a") and key != "anna" for key in book.accounts) == 24
    assert book.charge(5000, familiar=True, address="home").at == NOW


def test_marks_are_bounded() -> None:
    book = Book(Penalty(free_failures=1000))
    for guess in range(500):
        book.charge(guess)
    account = book.accounts["a"]
    assert (account.count, len(account.marks)) == (500, MAX_MARKS)


def test_an_account_is_small_and_survives_its_encoding() -> None:
    book = Book(Penalty(free_failures=1000))
    for guess in range(500):
        book.charge(guess)
    encoded = msgspec.msgpack.encode(book.accounts["a"])
    assert len(encoded) < 2048
    assert msgspec.msgpack.decode(encoded, type=Account) == book.accounts["a"]


@given(
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from(["wrong", "fault", "right"]), st.floats(0, 30)), max_size=60)
)
def test_no_order_of_events_lets_more_through(events: list[tuple[int, str, float]]) -> None:
    """However attempts follow each other: those judged wrong are never closer than the delays allow."""
    book, now = Book(), NOW
    wrong: dict[int, float] = {}
    for guess, outcome, pause in events:
        now += pause
        charged = book.charge(guess, now)
        if not charged.keys:
            continue
        if outcome == "wrong":
            wrong.setdefault(guess, charged.at)
        elif outcome == "fault":
            book.let_go(guess)
        elif guess not in wrong:
            book.take_off(guess)
    turns = sorted(wrong.values())
    for place in range(3, len(turns)):
        delay = min(2.0 ** (place - 3), PENALTY.longest_delay_seconds)
        assert turns[place] - turns[place - 1] >= delay - 1e-6


@pytest.mark.parametrize("count", [4, 100, 10_000_000])
def test_the_doubling_ends(count: int) -> None:
    book = Book()
    book.accounts["a"] = Account(count, NOW, NOW)
    assert 0 < book.charge(1).at - NOW <= PENALTY.longest_delay_seconds
