"""Fixtures of the HTTP front door's tests."""

from __future__ import annotations

import pytest
from http_harness import World


@pytest.fixture
async def world() -> World:
    """A front door in memory."""
    return World()
