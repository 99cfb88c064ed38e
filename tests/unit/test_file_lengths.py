"""No file of the project's code grows beyond what is read in one sitting; longer ones are split by meaning."""

from __future__ import annotations

from pathlib import Path

import gatepost

MOST_LINES = 410


def test_every_file_can_be_read_in_one_sitting() -> None:
    found = {path: len(path.read_text().splitlines()) for path in Path(gatepost.__file__).parent.rglob("*.py")}
    assert len(found) > 400
    assert {str(path): lines for path, lines in found.items() if lines > MOST_LINES} == {}
