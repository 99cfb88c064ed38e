"""`gatepost proving move` with few clients: both kinds run, and what they say has the promised form."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from doors import missing

from gatepost.lab.servers import dovecot
from gatepost.lab.servers.process import ServerMissing

SECONDS = 280.0


def prove(*options: str) -> dict[str, Any]:
    """The report of one run. Times depend on what else the machine does; what must never happen does not."""
    if not dovecot.installed():
        missing(ServerMissing("dovecot", dovecot.PACKAGES))
    if not dovecot.takes_submissions():
        missing(ServerMissing("Dovecot's submission", dovecot.SUBMISSION_PACKAGES))
    argv = [sys.executable, "-m", "gatepost", "proving", "move", "--lab", "--sessions", "10", "--seconds", "1"]
    done = subprocess.run([*argv, "--json", *options], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if report["ok"] else 3)
    assert report["ok"] == (report["missed"] == [])
    return report


@pytest.mark.parametrize("kind", ["planned", "kill"])
def test_a_move_under_load(kind: str) -> None:
    """No error of a wrong kind, nobody left, everybody back at work, no message lost or doubled."""
    report = prove(*(["--kill"] if kind == "kill" else []))
    print(report["summary"])
    assert report["kind"] == kind
    assert report["wrong_kind_errors"] == 0, report["wrong"]
    assert report["left_on_old"] == 0, report["left"]
    assert set(report["protocols"]) == {"imap_idle", "imap_busy", "pop3", "http", "http_poll", "submission"}
    assert report["left_out"] == []
    for name, found in report["protocols"].items():
        assert found["concerned"] == found["sessions"], name
        assert found["never_back"] == 0, name
        assert 0 <= found["p50"] <= found["p99"], name
    for messages in (report["appends"], report["submissions"]):
        assert messages["acknowledged"] > 0
        assert (messages["lost"], messages["duplicate"]) == (0, 0)
    parts = report["machine"]["processors"]["parts"]
    known = {"CAS-01", "CAS-02", "MBX-04", "MBX-05", "clients", "proving", "sink"}
    assert {name.partition("/")[0] for name in parts} <= known
    assert parts
    assert "\n" not in report["summary"]
    if kind == "kill":
        assert report["detection_seconds"] > 0
    else:
        assert report["detection_seconds"] is None
        assert report["protocols"]["imap_idle"]["carried_share"] == 1.0


def test_a_hub_that_is_killed_loses_nothing() -> None:
    """SPEC T2: kill -9 at random moments, a next server in trouble, and as root a full disk."""
    argv = [sys.executable, "-m", "gatepost", "proving", "transport", "--lab", "--messages", "3000", "--kills", "6"]
    done = subprocess.run([*argv, "--json"], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    print(report["summary"])
    assert report["ok"], report
    assert done.returncode == 0
    assert (report["acknowledged"], report["lost"], report["damaged"]) == (3000, 0, 0)
    assert report["kills"] >= 6
    assert sum(report["killed"].values()) == report["kills"] + report["killed"]["sink"]
    assert "\n" not in report["summary"]
