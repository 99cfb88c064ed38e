"""Who waits comes to their turn: in order for each user, users by turns (SPEC B4)."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gatepost.balancing.fair_queue import FairQueue, QueueFull


def test_one_users_items_come_in_their_order() -> None:
    queue: FairQueue[int] = FairQueue(10)
    for item in range(5):
        queue.put("a", item)
    assert [queue.pop() for _ in range(5)] == list(range(5))


def test_a_user_with_1000_waiting_requests_does_not_starve_another() -> None:
    queue: FairQueue[str] = FairQueue(2000)
    for number in range(1000):
        queue.put("greedy", f"greedy {number}")
    queue.put("modest", "modest 0")
    queue.put("modest", "modest 1")
    assert [queue.pop() for _ in range(4)] == ["greedy 0", "modest 0", "greedy 1", "modest 1"]


def test_a_user_who_fills_the_queue_keeps_nobody_out() -> None:
    """Their last item gives way; it is handed back so that it can be told."""
    queue: FairQueue[str] = FairQueue(100)
    for number in range(100):
        queue.put("greedy", f"greedy {number}")
    assert queue.put("modest", "modest 0") == "greedy 99"
    assert len(queue) == 100
    with pytest.raises(QueueFull):
        queue.put("greedy", "greedy 100")


def test_with_equal_shares_the_newcomer_is_refused() -> None:
    """Nobody is put out for a user who would then have as many."""
    queue: FairQueue[int] = FairQueue(4)
    for item, user in enumerate("abab"):
        queue.put(user, item)
    with pytest.raises(QueueFull):
        queue.put("a", 9)
    with pytest.raises(QueueFull):
        FairQueue[int](0).put("a", 1)
    assert queue.put("c", 9) in {2, 3}


def test_nobody_waits() -> None:
    queue: FairQueue[int] = FairQueue(4)
    with pytest.raises(IndexError):
        queue.pop()
    with pytest.raises(IndexError):
        queue.first()
    assert not queue.cancel("a", 1)


class Model(RuleBasedStateMachine):
    """Beside a plain list of lines that is searched each time."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: FairQueue[int] = FairQueue(6)
        self.lines: list[tuple[str, list[int]]] = []
        self.number = 0

    def line(self, user: str) -> list[int]:
        return next((items for name, items in self.lines if name == user), [])

    def tidy(self) -> None:
        self.lines = [(name, items) for name, items in self.lines if items]

    @rule(user=st.sampled_from("abcd"))
    def put(self, user: str) -> None:
        self.number += 1
        size = sum(len(items) for _, items in self.lines)
        longest = max((len(items) for _, items in self.lines), default=0)
        if size == 6 and len(self.line(user)) + 1 >= longest:
            with pytest.raises(QueueFull):
                self.queue.put(user, self.number)
            return
        displaced = self.queue.put(user, self.number)
        if size == 6:
            loser = next(items for _, items in self.lines if displaced in items)
            assert len(loser) == longest
            assert loser.pop() == displaced
        else:
            assert displaced is None
        if self.line(user):
            self.line(user).append(self.number)
        else:
            self.lines.append((user, [self.number]))

    @precondition(lambda self: self.lines)
    @rule()
    def pop(self) -> None:
        user, items = self.lines.pop(0)
        assert self.queue.first() == items[0]
        assert self.queue.pop() == items.pop(0)
        self.lines.append((user, items))
        self.tidy()

    @precondition(lambda self: self.lines)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        user, items = data.draw(st.sampled_from(self.lines))
        item = data.draw(st.sampled_from(items))
        assert self.queue.cancel(user, item)
        assert not self.queue.cancel(user, item)
        items.remove(item)
        self.tidy()

    @invariant()
    def length(self) -> None:
        assert len(self.queue) == sum(len(items) for _, items in self.lines)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
