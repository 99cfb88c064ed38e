"""Work on a message in steps: each is in hand, what it waits for is not (poison messages, exchange-facts 4.6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class InSteps(Generic[T]):
    """Awaited in place of `work`; `hold` makes what is held while a step of it runs.

    A message that ends the process does so within a step. One that waits for a server for minutes is not suspected of
    what happens to the process meanwhile.
    """

    __slots__ = ("_hold", "_work")

    def __init__(self, work: Awaitable[T], hold: Callable[[], AbstractContextManager[None]]) -> None:
        self._work = work
        self._hold = hold

    def __await__(self) -> Generator[Any, Any, T]:
        """See the class."""
        steps: Generator[Any, Any, T] = self._work.__await__()
        fault: BaseException | None = None
        got: Any = None
        while True:
            try:
                with self._hold():
                    waits_for = steps.send(got) if fault is None else steps.throw(fault)
            except StopIteration as end:
                result: T = end.value
                return result
            fault = None
            try:
                got = yield waits_for
            except BaseException as thrown:  # noqa: BLE001 - the work is to see it
                fault = thrown
