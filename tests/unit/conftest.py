"""For all unit tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gatepost.store import sqlite


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Stores of unit tests need not survive a power cut; that wait is most of their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "SYNCHRONOUS", "OFF")
        yield
