"""Fixtures of the shared state's tests."""

from shared_fleet import fleet  # noqa: F401 - a fixture
