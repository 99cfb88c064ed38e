"""For all unit tests."""

from __future__ import annotations

import pytest

from gatepost.store import sqlite


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores of unit tests need not survive a power cut; that wait is most of their time."""
    monkeypatch.setattr(sqlite, "SYNCHRONOUS", "OFF")
