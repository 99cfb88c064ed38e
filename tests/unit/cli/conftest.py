"""For the tests of commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from moving_stage import Commands


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    """With every database on its first copy."""
    made = Commands(tmp_path, monkeypatch, capsys)
    made.run("database", "list")
    return made
