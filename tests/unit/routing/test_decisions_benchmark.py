"""The benchmark of decisions runs, on a small organization, and its figures are of decisions that differ in kind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "decisions.py"


def test_it_measures_decisions_of_all_kinds(tmp_path: Path) -> None:
    """Twenty servers, a thousand users: figures, and the same in the file."""
    file = tmp_path / "decisions.json"
    sizes = ["--servers", "20", "--users", "10000", "--seconds", "0.05", "--json", str(file)]
    done = subprocess.run([sys.executable, SCRIPT, *sizes], stdout=subprocess.PIPE, timeout=60, check=True)
    figures = json.loads(done.stdout)
    assert figures == json.loads(file.read_text())
    assert (figures["servers"], figures["users"], figures["databases"]) == (20, 10000, 40)
    assert figures["kinds"].keys() == {"serve", "proxy", "redirect", "refuse"}
    assert sum(figures["kinds"].values()) == 2000
    assert figures["remembered_per_second"] > figures["anew_per_second"] > 0
