"""Large messages, many at a time, through a hub: how much memory its process takes at most.

    python benchmarks/large_messages.py [--megabytes 50] [--sessions 20] [--directory D] [--python P] [--json FILE]

`smtp-source` sends one message in each session, all at once; `smtp-sink` takes them. The figure is the peak of the
transport's resident memory (`VmHWM`), and the goal is less than 200 MB for 20 messages of 50 MB.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gatepost.lab.servers.postfix import PACKAGES
from gatepost.lab.servers.process import ServerMissing, free_ports, require_program
from hubs import HUB_ADDRESS, SINK_ADDRESS, CountingSink, GatepostHub, HubFiles, resident

GOAL = 200_000_000
SECONDS = 50.0


def measure(folder: Path, python: str, size: int, sessions: int) -> dict[str, float]:
    """Memory in bytes, times in seconds. Raises TimeoutError, `subprocess.SubprocessError`."""
    sink = CountingSink(folder / "sink", SINK_ADDRESS)
    hub = GatepostHub(HubFiles(folder / "hub", HUB_ADDRESS, free_ports(HUB_ADDRESS, 1)[0], sink.address), python)
    with sink, hub:
        hub.wait_until_greeted(SECONDS)
        transport = hub.transport()
        before = resident(transport)
        counts = ["-s", str(sessions), "-m", str(sessions), "-l", str(size)]
        argv = [require_program("smtp-source", PACKAGES), *counts, "-f", "alice@contoso.com", "-t", "bob@example.com"]
        begun = time.perf_counter()
        to = f"{hub.listens[0]}:{hub.listens[1]}"
        subprocess.run([*argv, to], check=True, timeout=SECONDS, capture_output=True)
        taken = time.perf_counter() - begun
        arrived = sink.wait_for(sessions, SECONDS) - begun
        return {"before": before, "peak": resident(transport, "VmHWM"), "taken_after": taken, "arrived_after": arrived}


def main() -> int:
    """Run, print. Exit status 1: the goal was missed, or something was lost."""
    parser = argparse.ArgumentParser(description="Memory of a hub with large messages.")
    parser.add_argument("--megabytes", type=int, default=50)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="where the queue is")
    parser.add_argument("--python", default=sys.executable, help="interpreter for Gatepost; default: this one")
    parser.add_argument("--json", type=Path, help="write all figures here")
    wish = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gatepost-bench-", dir=wish.directory))
    folder.chmod(0o755)
    try:
        found = measure(folder, wish.python, wish.megabytes * 1_000_000, wish.sessions)
    except (ServerMissing, TimeoutError, subprocess.SubprocessError) as fault:
        print(fault, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{wish.sessions} messages of {wish.megabytes} MB at a time: ", end="")
    print(f"memory {found['before'] / 1e6:.0f} MB before, {found['peak'] / 1e6:.0f} MB at most; ", end="")
    print(f"taken after {found['taken_after']:.1f} s, arrived after {found['arrived_after']:.1f} s")
    if wish.json:
        wish.json.write_text(json.dumps(found) + "\n")
    return int(found["peak"] >= GOAL)


if __name__ == "__main__":
    sys.exit(main())
