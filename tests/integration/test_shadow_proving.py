"""Shadow redundancy with real processes: hubs die with their disks, between real mail servers (SPEC S1 to S4)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from doors import Servers, missing
from submission_stage import new_postfix, new_sink

from gatepost.lab.servers.postfix import PACKAGES, Postfix
from gatepost.lab.servers.process import ServerMissing, free_ports, require_program
from gatepost.proving.shadow_cast import ShadowHubs

SECONDS = 200.0
PATIENCE = 40.0
MESSAGES = 30
SHORT = """\
mynetworks = 127.0.0.0/8
queue_run_delay = 1s
minimal_backoff_time = 1s
maximal_backoff_time = 1s
default_destination_rate_delay = 0
smtp_destination_concurrency_failed_cohort_limit = 0
"""
"""So that a Postfix tries again each second."""


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait for something true, and answer it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def prove(runs: int, *options: str) -> tuple[int, dict[str, Any]]:
    """Exit status and report."""
    argv = [sys.executable, "-m", "gatepost", "proving", "shadow", "--lab", "--runs", str(runs), "--json", *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    print(report["summary"])
    assert "\n" not in report["summary"]
    assert report["runs"] == runs
    return done.returncode, report


def test_hubs_that_die_with_their_disks_lose_nothing() -> None:
    status, report = prove(14)
    assert (report["lost"], report["damaged"], report["faults"]) == (0, 0, []), report
    assert report["ok"], report
    assert status == 0
    assert report["acknowledged"] > 14 * 5
    assert report["blows"]["loss of the disk"] >= 3
    assert sum(row["runs"] for row in report["stages"].values()) == 14


def test_without_shadows_the_loss_of_a_disk_is_found() -> None:
    """What the proving says of a hub that protects nothing."""
    status, report = prove(6, "--off", "--stage", "before the relay")
    assert report["stages"].keys() == {"before the relay"}
    assert report["blows"]["loss of the disk"] > 0
    assert report["lost"] > 0
    assert status == 1
    assert "nothing is lost" in report["missed"]
    assert report["summary"].startswith("MISSED: nothing is lost")


def test_between_two_postfixes_a_hub_dies_with_what_it_has(servers: Servers, tmp_path: Path) -> None:
    """One Postfix has handed mail to a hub and knows of no shadow, the next one is down. The hub and its disk are lost
    and never come back: the other hub delivers everything."""
    with ExitStack() as stack:
        sink = new_sink(servers, "shadow-sink")
        after = new_postfix(servers, "shadow-after", sink, [], settings=SHORT)
        hubs = ShadowHubs(tmp_path / "hubs", 89, 2, after.ready[0], shadows=True)
        stack.callback(hubs.stop)
        before = _before(servers, hubs)
        for server in (sink, before):
            stack.callback(server.stop)
            server.start()
            server.wait_ready()
        stack.callback(after.stop)
        hubs.start()
        _send(before)
        until(lambda: before.log_text().count("status=sent") >= MESSAGES, before.log_text())
        hub = hubs.hubs["HUB-01"]
        hub.kill_all()
        hub.lose_disk()
        after.start()
        after.wait_ready()
        until(lambda: len(sink.messages()) >= MESSAGES, hubs.hubs["HUB-02"].log_tail())
        assert hubs.faults() == []


def _before(servers: Servers, hubs: ShadowHubs) -> Postfix:
    """A Postfix that hands everything to the first hub."""
    address = servers.address()
    folder = servers.scratch / f"shadow-before-{address.rpartition('.')[2]}"
    try:
        return Postfix(
            folder, address, {free_ports(address, 1)[0]: []}, hubs.places[0], name="shadow-before", settings=SHORT
        )
    except ServerMissing as error:
        missing(error)


def _send(postfix: Postfix) -> None:
    try:
        program = require_program("smtp-source", PACKAGES)
    except ServerMissing as error:
        missing(error)
    host, port = postfix.ready[0]
    words = ["-s", "5", "-m", str(MESSAGES), "-l", "3000", "-f", "a@fabrikam.com", "-t", "b@sink.example"]
    subprocess.run([program, *words, f"{host}:{port}"], check=True, timeout=PATIENCE, capture_output=True)
