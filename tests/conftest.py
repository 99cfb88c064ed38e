"""For all tests: coroutines run on uvloop, as the product does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """One factory, so that no test runs twice."""
    return {"uvloop": uvloop.new_event_loop}
