"""For all unit tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from gatepost.store import sqlite


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Stores of unit tests need not survive a power cut; that wait is most of their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "SYNCHRONOUS", "OFF")
        yield


@pytest.fixture(autouse=True)
def _nothing_left_open() -> Iterator[None]:
    """A socket that a test has dropped without closing it is that test's fault, not of whoever is collected with it."""
    yield
    gc.collect(0)  # all that a test makes is young: see `tests/conftest.py`
