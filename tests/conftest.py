"""For all tests: coroutines run on uvloop, as the product does."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping

import pytest
import uvloop
from hypothesis import settings

LAST_TURNS = 20
EXAMPLES = 40
"""Of each property that does not say another number: every run draws others, and `make test` is run often.

`pytest --hypothesis-profile=thorough` draws more.
"""

settings.register_profile("quick", settings(), max_examples=EXAMPLES)
settings.register_profile("thorough", settings(), max_examples=20 * EXAMPLES)
settings.load_profile("quick")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """One factory, so that no test runs twice."""
    return {"uvloop": Loop}


class Loop(uvloop.Loop):
    """A loop that lets go of what tests have closed before it ends.

    A connection is closed some turns after `close`: what was written goes first, and TLS says goodbye both ways. One
    that is still there when uvloop ends is a warning there, and so an error in the middle of its clean-up.
    """

    def close(self) -> None:
        """As `AbstractEventLoop.close`, after some turns."""
        if not self.is_closed():
            for _ in range(LAST_TURNS):
                self.run_until_complete(asyncio.sleep(0))
        super().close()


def pytest_collection_finish() -> None:
    """What all modules and thousands of collected tests are made of stays: the collector need not look at it again.

    A tenth of the suite's processor time, else; the thresholds are those of a worker.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
