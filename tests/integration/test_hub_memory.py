"""No message's content is in memory: large ones, many at a time, leave the hub's process small (SPEC T2).

The program is the benchmark's, so the figure in its documentation is this one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from doors import missing

from gatepost.lab.servers.postfix import PACKAGES
from gatepost.lab.servers.process import ServerMissing, require_program

pytestmark = pytest.mark.integration

PROGRAM = Path(__file__).parents[2] / "benchmarks/large_messages.py"
MOST = 200_000_000


@pytest.mark.timeout(180)
def test_twenty_messages_of_50_mb_at_a_time_go_through_a_hub_of_less_than_200_mb(tmp_path: Path) -> None:
    try:
        require_program("smtp-source", PACKAGES)
    except ServerMissing as error:
        missing(error)
    figures = tmp_path / "figures.json"
    command = [sys.executable, PROGRAM, "--megabytes", "50", "--sessions", "20", "--json", figures]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170)
    assert figures.exists(), done.stdout + done.stderr
    assert json.loads(figures.read_text())["peak"] < MOST
