"""Where processor time goes, by texts of /proc."""

from __future__ import annotations

import os
import time

from gatepost.proving.processors import Reading, between, machine_seconds, parse, part_of, read, used

TICK = 1 / os.sysconf("SC_CLK_TCK")
STAT = "4711 (imap (x) y) S 1 700 699 0 -1 4194560 1 2 0 0 100 50 30 20 20 0 1 0 5 1 1"


def test_a_process_is_read_whatever_its_name_is() -> None:
    """With the time of its ended children; the name may hold spaces and brackets."""
    one = parse(STAT, b"dovecot/imap\0")
    assert (one.session, one.name) == (699, "imap (x) y")
    assert one.seconds == 200 * TICK


def test_a_process_of_gatepost_is_called_by_its_module() -> None:
    assert part_of("python", b"/usr/bin/python\0-P\0-m\0gatepost.service.worker\x0017\0") == "worker"
    assert part_of("python", b"/usr/bin/python\0-m\0gatepost\0serve\0") == "python"


def test_a_machine_is_busy_but_for_idle_and_waiting() -> None:
    assert machine_seconds("cpu  10 1 5 1000 500 2 3 4 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n") == 25 * TICK


def test_our_own_work_is_seen() -> None:
    session = os.getsid(0)
    before = sum(used({session: "tests"}).values())
    deadline = time.process_time() + 0.1
    while time.process_time() < deadline:
        pass
    reading = read({session: "tests"})
    assert sum(reading.parts.values()) >= before + 0.05
    assert all(name.startswith("tests/") for name in reading.parts)


def test_what_was_used_between_two_readings() -> None:
    first = Reading(10.0, 100.0, {"B/imap": 1.0, "clients/x": 5.0})
    last = Reading(14.0, 107.0, {"B/imap": 3.0, "clients/x": 5.05, "B/auth": 0.5})
    found = between(first, last, 1000)
    assert (found["seconds"], found["machine_seconds"], found["proving_seconds"]) == (4.0, 7.0, 2.55)
    assert found["milliseconds_per_session"] == 2.55
    assert list(found["parts"].items()) == [("B/imap", 2.0), ("B/auth", 0.5)]
