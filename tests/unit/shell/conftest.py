"""For the shell's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from shell_stage import Stage, contoso


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A shell on a copy of examples/contoso.toml."""
    return contoso(tmp_path)
