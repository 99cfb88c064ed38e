"""Turns at a mailbox server: bounded, fair by user, and none is lost (SPEC B4)."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.access.sign_in_turns import SignInTurns, Turn


def turns(limit: int = 2, waiting: int = 10) -> SignInTurns:
    return SignInTurns(asyncio.get_running_loop(), limit, waiting)


def has_it(turn: Turn) -> bool:
    return turn.done() and turn.result()


async def test_servers_do_not_wait_for_each_other() -> None:
    t = turns(1)
    assert t.enter("A")
    assert not t.enter("A")
    assert t.enter("B")
    t.leave("A")
    assert t.enter("A")
    assert t.under_way == 2


async def test_whoever_waits_comes_first() -> None:
    """Who comes just as a turn is free does not overtake."""
    t = turns(1)
    assert t.enter("A")
    waiting = t.ask("A", "alice")
    t.leave("A")
    assert has_it(waiting)
    assert not t.enter("A")


async def test_users_take_turns() -> None:
    """A hundred sign-ins of one user do not keep another's one waiting behind them."""
    t = turns(1, 200)
    assert t.enter("A")
    robot = [t.ask("A", "robot") for _ in range(100)]
    alice = t.ask("A", "alice")
    t.leave("A")
    t.leave("A")
    assert has_it(robot[0])
    assert has_it(alice)
    assert not any(has_it(turn) for turn in robot[1:])


async def test_when_too_many_wait_whoever_has_most_gives_way() -> None:
    t = turns(1, 2)
    assert t.enter("A")
    first, second = t.ask("A", "robot"), t.ask("A", "robot")
    alice = t.ask("A", "alice")
    assert second.done()
    assert not second.result()
    assert not first.done()
    assert not alice.done()
    late = t.ask("A", "alice")
    assert late.done()
    assert not late.result()
    assert t.refused == 2


async def test_a_turn_that_comes_to_one_who_has_left_is_the_nexts() -> None:
    t = turns(1)
    assert t.enter("A")
    first, second = t.ask("A", "a"), t.ask("A", "b")
    t.leave("A")
    assert has_it(first)
    t.withdraw("A", "a", first)  # cancelled before it could know
    assert has_it(second)


async def test_whoever_stops_waiting_is_passed_over() -> None:
    t = turns(1)
    assert t.enter("A")
    first, second = t.ask("A", "a"), t.ask("A", "b")
    t.withdraw("A", "a", first)
    assert first.done()
    assert not first.result()
    t.leave("A")
    assert has_it(second)


async def test_a_cancelled_wait_is_passed_over() -> None:
    t = turns(1)
    assert t.enter("A")
    first, second = t.ask("A", "a"), t.ask("A", "b")
    first.cancel()
    t.leave("A")
    assert has_it(second)


async def test_another_limit_lets_more_in_at_once() -> None:
    t = turns(1)
    assert t.enter("A")
    waiting = [t.ask("A", f"u{n}") for n in range(3)]
    t.set_limits(3, 10)
    assert [has_it(turn) for turn in waiting] == [True, True, False]
    t.set_limits(1, 10)
    t.leave("A")
    t.leave("A")
    assert not waiting[2].done()
    t.leave("A")
    assert has_it(waiting[2])


@given(st.lists(st.tuples(st.sampled_from("eawl"), st.integers(0, 5), st.sampled_from(["x", "y", "z"])), max_size=60))
def test_never_more_than_the_limit_and_never_idle_while_somebody_waits(steps: list[tuple[str, int, str]]) -> None:
    """Whatever comes in whatever order."""
    loop = asyncio.new_event_loop()
    try:
        t = SignInTurns(loop, 2, 4)
        inside = 0
        waiting: list[tuple[str, Turn]] = []
        for step, number, user in steps:
            if step in "ea":
                if t.enter("A"):
                    inside += 1
                else:
                    waiting.append((user, t.ask("A", user)))
            elif step == "w" and waiting:
                name, turn = waiting.pop(number % len(waiting))
                t.withdraw("A", name, turn)
            elif step == "l" and inside:
                inside -= 1
                t.leave("A")
            inside += sum(has_it(turn) for _, turn in waiting)
            waiting = [(name, turn) for name, turn in waiting if not turn.done()]
            assert t.under_way == inside <= 2
            assert inside == 2 or not waiting
            assert t.waiting == len(waiting)
    finally:
        loop.close()


async def test_nothing_is_kept_of_a_server_that_nobody_signs_in_at() -> None:
    t = turns(1)
    assert t.enter("A")
    t.leave("A")
    with pytest.raises(KeyError):
        t.leave("A")
