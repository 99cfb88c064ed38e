"""Kill -9 of a process that writes the connectivity log: every line that is in it is whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from connectivity_samples import written

from gatepost.organization.transport import TransportSettings
from gatepost.routing.next_hop import DeliveryType, NextHop
from gatepost.transport.connectivity_log import PREFIX, ConnectivityLog
from gatepost.transport.log_files import list_files

ROUNDS = 8
SITE_B = NextHop(DeliveryType.SITE, "site-b")
WRITER = """
    import itertools, sys, time
    from pathlib import Path
    from gatepost.organization.transport import TransportSettings
    from gatepost.routing.next_hop import DeliveryType, NextHop
    from gatepost.transport.connectivity_log import ConnectivityLog
    log = ConnectivityLog(Path(sys.argv[1]), TransportSettings(
        connectivity_log_enabled=True, connectivity_log_max_file_size=300_000))
    session = log.session(NextHop(DeliveryType.SITE, "site-b"))
    for number in itertools.count():
        session.says(time.time(), f"{number}, " + "y" * 300)
        if number % 50 == 0:
            time.sleep(0.001)
"""


def test_after_kill_9_of_the_writer_all_lines_are_whole(tmp_path: Path) -> None:
    for round_ in range(ROUNDS):
        writer = subprocess.Popen([sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path)])
        enough, deadline = _bytes(tmp_path) + 400_000, time.monotonic() + 20
        try:
            while _bytes(tmp_path) < enough:
                assert time.monotonic() < deadline
                time.sleep(0.001)
        finally:
            os.kill(writer.pid, signal.SIGKILL)
            writer.wait()
        later = ConnectivityLog(tmp_path, TransportSettings(connectivity_log_enabled=True))
        later.session(SITE_B).says(time.time(), f"round {round_}")
        later.close()
        assert any(each["description"] == f"round {round_}" for each in written(tmp_path))


def _bytes(directory: Path) -> int:
    return sum(each.path.stat().st_size for each in list_files(directory, PREFIX))
