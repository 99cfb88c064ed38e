"""The connectivity log (SPEC T10): its form, what is in it, its files, and that it never costs mail anything."""

from __future__ import annotations

import csv
import errno
import io
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from connectivity_samples import written
from transport_samples import START, selector, target

from gatepost.balancing.target import Target
from gatepost.organization.transport import MEGABYTE, TransportSettings
from gatepost.routing.next_hop import DeliveryType, NextHop
from gatepost.transport import log_files
from gatepost.transport.connectivity_log import MAX_WAITING_BYTES, PREFIX, ConnectivityLog
from gatepost.transport.connectivity_rows import header, row, utc
from gatepost.transport.log_files import FileLimits, LogFiles, list_files

DAY = 86400.0
NOON = START - START % DAY + DAY / 2
SITE_B = NextHop(DeliveryType.SITE, "site-b")
HUB04 = target("hub04")
ON = TransportSettings(connectivity_log_enabled=True)
LIMITS = FileLimits(10 * MEGABYTE, 250 * MEGABYTE, 30 * DAY)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ConnectivityLog]:
    found = ConnectivityLog(tmp_path / "log", ON, clock=lambda: NOON)
    yield found
    found.close()


def test_it_is_off_until_the_settings_say_otherwise(tmp_path: Path) -> None:
    """As in the source, on hubs and edges."""
    log = ConnectivityLog(tmp_path / "log", TransportSettings())
    session = log.session(SITE_B)
    session.begins(NOON, 1)
    session.ends(NOON, 0, 0)
    log.close()
    assert not (tmp_path / "log").exists()
    assert log._thread is None


def test_the_header_names_software_version_type_date_and_fields() -> None:
    lines = header(1359590400.0).decode().splitlines()
    assert lines[1:] == [
        "#Version: 15.0.0.0",
        "#Log-Type: Transport Connectivity Log",
        "#Date: 2013-01-31T00:00:00.000Z",
        "#Fields: date-time,session,source,Destination,direction,description",
    ]
    assert lines[0].startswith("#Software: ")


def test_a_marking_has_all_six_facts_and_can_be_found_by_its_word(log: ConnectivityLog) -> None:
    server = selector().failed(HUB04, NOON, "TimedOut:0000274C")
    log.session(SITE_B).failed(NOON, HUB04, TimeoutError(errno.ETIMEDOUT, "x"), server)
    log.close()
    (found,) = [each for each in written(log._directory) if "MarkedUnhealthy" in each["description"]]
    for fact in (
        "10.0.0.4",
        "hub04.contoso.com",
        "TimedOut:0000274C",
        "MarkedUnhealthy",
        "FailureCount:1",
        f"NextRetryTime:{utc(NOON + 60)}",
    ):
        assert fact in found["description"]
    assert found["description"].startswith("Failed connection to 10.0.0.4:25 (TimedOut:0000274C)[TargetHost:hub04")


def test_the_failure_count_tells_how_many_attempts_have_failed_and_the_time_when_the_next_is(
    log: ConnectivityLog,
) -> None:
    found = selector()
    session = log.session(SITE_B)
    for now in (NOON, NOON + 60, NOON + 120):
        lease = found.begin(HUB04, now) or 0
        server = found.failed(HUB04, now, "x", lease)
        session.failed(now, HUB04, ConnectionRefusedError(errno.ECONNREFUSED, "x"), server)
    log.close()
    rows = [each["description"] for each in written(log._directory)]
    assert [f"FailureCount:{number}|" in text for number, text in enumerate(rows, 1)] == [True] * 3
    assert [utc(NOON + after) in text for after, text in zip((60, 120, 180), rows, strict=True)] == [True] * 3


def test_without_the_selector_a_failure_is_told_and_no_marking(log: ConnectivityLog) -> None:
    log.session(SITE_B).failed(NOON, HUB04, ConnectionRefusedError(errno.ECONNREFUSED, "x"), None)
    log.close()
    assert [each["description"] for each in written(log._directory)] == [
        "Failed connection to 10.0.0.4:25 (ConnectionRefused:0000274D)"
    ]


def test_a_session_begins_says_and_ends_under_one_id(log: ConnectivityLog) -> None:
    session, other = log.session(SITE_B), log.session(NextHop(DeliveryType.DNS, "fabrikam.com", "internet"))
    session.begins(NOON, 3)
    other.begins(NOON + 0.25, 1)
    session.resolved(NOON + 0.5, ["MX site-b: none"])
    session.connected(NOON + 1, HUB04)
    session.refused(NOON + 1.5, HUB04, "421 4.3.2 busy, later")
    session.ends(NOON + 2, 3, 12345, "idle")
    log.close()
    rows = written(log._directory)
    mine = [each for each in rows if each["session"] == session.session]
    assert [each["direction"] for each in mine] == ["+", ">", ">", ">", "-"]
    assert {each["source"] for each in rows} == {"SMTP"}
    assert {each["Destination"] for each in mine} == {"site-b"}
    assert mine[0]["description"] == "SmtpRelayToRemoteActiveDirectorySite;QueueLength=3"
    assert "10.0.0.4:25" in mine[2]["description"]
    assert mine[3]["description"].endswith("421 4.3.2 busy, later")
    assert mine[4]["description"] == "Messages: 3 Bytes: 12345 (idle)"
    assert mine[0]["date-time"] == utc(NOON)
    assert [each["description"] for each in rows if each not in mine] == ["DnsConnectorDelivery internet;QueueLength=1"]
    assert len(session.session) == 16
    assert int(other.session, 16) > int(session.session, 16)


@pytest.mark.parametrize(
    "text", ['a "quoted" word', "one, two", '"', ",", "x\ny\rz\x1b[31m\u202e", "é € 漢", "\ud800", "x" * 9000]
)
def test_words_of_strangers_stay_in_their_cell(text: str) -> None:
    line = row(NOON, "1", text, ">", text).decode()
    assert line.count("\n") == 1
    assert "\x1b" not in line
    (cells,) = csv.reader(io.StringIO(line))
    assert len(cells) == 6
    if text.isprintable() and len(text) < 100:
        assert cells[5] == cells[3] == text
    assert len(line) < 3000


def test_an_ipv6_target_has_brackets(log: ConnectivityLog) -> None:
    at = Target("hub04.contoso.com", "2001:db8::4", 25, 0, HUB04.way)
    log.session(SITE_B).connected(NOON, at)
    log.close()
    assert "[2001:db8::4]:25" in written(log._directory)[0]["description"]


def test_files_are_named_by_day_and_number_in_utc(tmp_path: Path) -> None:
    files = LogFiles(tmp_path, PREFIX, LIMITS, header)
    midnight = 1359590400.0
    for now in (midnight - 1, midnight, midnight + 1):
        assert files.write([row(now, "1", "x", ">", "y")], now) == 0
    files.close()
    assert [each.path.name for each in list_files(tmp_path, PREFIX)] == [
        "CONNECTLOG20130130-1.log",
        "CONNECTLOG20130131-1.log",
    ]
    assert [len(each.path.read_text().splitlines()) for each in list_files(tmp_path, PREFIX)] == [6, 7]
    assert (tmp_path / "CONNECTLOG20130131-1.log").stat().st_mode & 0o777 == 0o640


def test_a_full_file_is_followed_by_the_next_number(tmp_path: Path) -> None:
    files = LogFiles(tmp_path, PREFIX, replace(LIMITS, max_file_size=2000), header)
    for number in range(100):
        assert files.write([row(NOON, f"{number}", "x", ">", "y" * 50)], NOON) == 0
    files.close()
    found = list_files(tmp_path, PREFIX)
    assert [each.number for each in found] == list(range(1, len(found) + 1))
    assert max(each.path.stat().st_size for each in found) <= 2000
    assert [each["session"] for each in written(tmp_path)] == [f"{number}" for number in range(100)]


def test_the_directory_keeps_within_its_size_and_the_oldest_files_go(tmp_path: Path) -> None:
    files = LogFiles(tmp_path, PREFIX, replace(LIMITS, max_file_size=2000, max_directory_size=9000), header)
    (tmp_path / "notes.txt").write_text("z" * 50_000)
    for number in range(500):
        files.write([row(NOON, f"{number}", "x", ">", "y" * 50)], NOON)
        assert sum(each.path.stat().st_size for each in list_files(tmp_path, PREFIX)) <= 9000
    files.close()
    sessions = [int(each["session"]) for each in written(tmp_path)]
    assert sessions == list(range(sessions[0], 500))
    assert sessions[0] > 0
    assert (tmp_path / "notes.txt").exists()


@pytest.mark.parametrize(
    ("max_age", "left"), [(30 * DAY, ["20130101", "20130131"]), (0, ["20121201", "20121231", "20130101", "20130131"])]
)
def test_files_that_are_too_old_go_and_with_0_none_is(tmp_path: Path, max_age: float, left: list[str]) -> None:
    for day in ("20121201", "20121231", "20130101"):
        (tmp_path / f"CONNECTLOG{day}-1.log").write_text("x\n")
    (tmp_path / "CONNECTLOG99999999-1.log").write_text("x\n")
    files = LogFiles(tmp_path, PREFIX, replace(LIMITS, max_age=max_age), header)
    now = 1359590400.0
    files.write([row(now, "1", "x", ">", "y")], now)
    files.close()
    assert [each.day for each in list_files(tmp_path, PREFIX) if each.day != "99999999"] == left


def test_a_later_process_goes_on_with_the_file_and_cuts_off_half_a_line(tmp_path: Path) -> None:
    files = LogFiles(tmp_path, PREFIX, LIMITS, header)
    files.write([row(NOON, "1", "x", ">", "y")], NOON)
    files.close()
    (file,) = list_files(tmp_path, PREFIX)
    with file.path.open("ab") as stream:
        stream.write(b"2026-11-30T00:00:00.000Z,2,SM")
    later = LogFiles(tmp_path, PREFIX, LIMITS, header)
    later.write([row(NOON, "3", "x", ">", "y")], NOON)
    later.close()
    assert [each["session"] for each in written(tmp_path)] == ["1", "3"]
    assert len(list_files(tmp_path, PREFIX)) == 1


def test_a_file_that_somebody_removed_is_begun_anew(tmp_path: Path) -> None:
    files = LogFiles(tmp_path / "log", PREFIX, LIMITS, header)
    files.write([row(NOON, "1", "x", ">", "y")], NOON)
    for each in list_files(tmp_path / "log", PREFIX):
        each.path.unlink()
    (tmp_path / "log").rmdir()
    assert files.write([row(NOON, "2", "x", ">", "y")], NOON) == 0
    files.close()
    assert [each["session"] for each in written(tmp_path / "log")] == ["2"]


def test_a_full_disk_loses_whole_lines_counts_them_and_is_got_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LogFiles(tmp_path, PREFIX, LIMITS, header)
    files.write([row(NOON, "1", "x", ">", "y")], NOON)
    real = os.write

    def half_then_full(descriptor: int, data: bytes) -> int:
        return real(descriptor, data[: len(data) // 2])

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    for broken in (half_then_full, full):
        with monkeypatch.context() as patch:
            patch.setattr(log_files.os, "write", broken)
            assert files.write([row(NOON, "lost", "x", ">", "y")] * 3, NOON) == 3
    assert files.write([row(NOON, "2", "x", ">", "y")], NOON) == 0
    files.close()
    assert [each["session"] for each in written(tmp_path)] == ["1", "2"]


def test_a_disk_that_is_full_from_the_beginning_is_not_filled_with_empty_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LogFiles(tmp_path, PREFIX, LIMITS, header)

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(log_files.os, "write", full)
        for _ in range(20):
            assert files.write([row(NOON, "lost", "x", ">", "y")], NOON) == 1
    assert files.write([row(NOON, "1", "x", ">", "y")], NOON) == 0
    files.close()
    assert len(list_files(tmp_path, PREFIX)) == 1
    assert [each["session"] for each in written(tmp_path)] == ["1"]


@pytest.mark.parametrize("place", ["a file", "/proc/nowhere"])
def test_a_directory_that_cannot_be_made_loses_lines_and_says_how_many(tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").write_text("")
    log = ConnectivityLog(tmp_path / place if place == "a file" else Path(place), ON)
    session = log.session(SITE_B)
    for _ in range(5):
        session.begins(NOON, 1)
    log.close()
    assert log.dropped == 5


def test_a_disk_that_stands_still_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is bounded; the rest is counted."""
    goes_on = threading.Event()
    monkeypatch.setattr(LogFiles, "write", lambda self, lines, now: goes_on.wait(20) and 0)
    log = ConnectivityLog(tmp_path, ON)
    session = log.session(SITE_B)
    session.begins(NOON, 1)
    until(lambda: not log._lines)
    line = row(NOON, "1", "x", ">", "y" * 1900)
    began = time.monotonic()
    for _ in range(MAX_WAITING_BYTES // len(line) + 100):
        log.write(line)
    assert time.monotonic() - began < 5
    assert log._waiting <= MAX_WAITING_BYTES
    assert log.dropped >= 100
    goes_on.set()
    log.close()


def test_it_is_switched_on_and_off_while_it_runs(tmp_path: Path) -> None:
    log = ConnectivityLog(tmp_path, TransportSettings(), clock=lambda: NOON)
    session = log.session(SITE_B)
    session.says(NOON, "off")
    log.configure(ON)
    session.says(NOON, "on")
    log.configure(TransportSettings())
    session.says(NOON, "off again")
    log.configure(ON)
    session.says(NOON, "on again")
    log.close()
    session.says(NOON, "closed")
    log.configure(ON)
    session.says(NOON, "closed")
    assert [each["description"] for each in written(tmp_path)] == ["on", "on again"]
