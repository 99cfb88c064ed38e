"""Reading a connectivity log as a program would that knows the source system's."""

from __future__ import annotations

import csv
from pathlib import Path

from gatepost.transport.connectivity_log import PREFIX
from gatepost.transport.connectivity_rows import FIELDS
from gatepost.transport.log_files import list_files


def written(directory: Path) -> list[dict[str, str]]:
    """All rows of all files, by the names of their fields; every line must be whole."""
    found = []
    for file in list_files(directory, PREFIX):
        text = file.path.read_text()
        assert text.endswith("\n"), text[-200:]
        head, rows = [], []
        for line in text.splitlines():
            (head if line.startswith("#") else rows).append(line)
        assert [line.partition(":")[0] for line in head] == ["#Software", "#Version", "#Log-Type", "#Date", "#Fields"]
        for cells in csv.reader(rows):
            assert len(cells) == len(FIELDS), cells
            found.append(dict(zip(FIELDS, cells, strict=True)))
    return found
