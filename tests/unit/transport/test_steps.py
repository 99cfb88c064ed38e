"""Work in steps: what is in hand, and when (poison messages)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gatepost.transport.dispatch.steps import InSteps


class Hand:
    def __init__(self) -> None:
        self.held = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1


async def test_each_step_is_in_hand_and_no_wait_is() -> None:
    hand = Hand()
    gate = asyncio.Event()

    async def work() -> str:
        assert hand.held == 1
        await gate.wait()
        assert hand.held == 1
        await asyncio.sleep(0)
        assert hand.held == 1
        return "done"

    async def within() -> str:
        return await InSteps(work(), hand)

    task = asyncio.create_task(within())
    for _ in range(3):
        await asyncio.sleep(0)
        assert hand.held == 0
    gate.set()
    assert await task == "done"
    assert hand.held == 0


async def test_a_fault_of_the_work_comes_out() -> None:
    hand = Hand()

    async def work() -> None:
        await asyncio.sleep(0)
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        await InSteps(work(), hand)
    assert hand.held == 0


async def test_the_work_hears_of_a_cancellation_in_hand() -> None:
    hand = Hand()
    heard: list[int] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            heard.append(hand.held)
            raise

    async def within() -> None:
        await InSteps(work(), hand)

    task = asyncio.create_task(within())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard == [1]


async def test_the_work_may_go_on_after_a_cancellation_and_answer() -> None:
    hand = Hand()

    async def work() -> str:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "cleared up"

    async def within() -> str:
        return await InSteps(work(), hand)

    task = asyncio.create_task(within())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "cleared up"
