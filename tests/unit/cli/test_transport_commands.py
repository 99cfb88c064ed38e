"""`gatepost transport retry-schedule` and `gatepost log connectivity`."""

from __future__ import annotations

from pathlib import Path

import pytest
from transport_samples import START

from gatepost.cli import log as log_command
from gatepost.cli.main import run
from gatepost.cli.transport import attempts
from gatepost.organization.transport import MEGABYTE, TransportSettings
from gatepost.transport.connectivity_log import PREFIX
from gatepost.transport.connectivity_rows import header, row
from gatepost.transport.log_files import FileLimits, LogFiles

LIMITS = FileLimits(10 * MEGABYTE, 250 * MEGABYTE, 0)


def minutes(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert run(["transport", "retry-schedule", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_hubs_schedule_is_printed_one_minute_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    found = minutes(capsys, "--role", "hub", "--until", "74")
    assert found == ["0", "1", "2", "3", "4", "9", "14", "19", "24", "29", "34", "44", "54", "64", "74"]


def test_an_edges_schedule_has_10_and_30_minutes(capsys: pytest.CaptureFixture[str]) -> None:
    found = minutes(capsys, "--role", "edge", "--until", "124")
    assert found == ["0", "1", "2", "3", "4", "14", "24", "34", "44", "54", "64", "94", "124"]


def test_the_default_is_a_hubs_first_hour_and_0_is_the_first_attempt_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert minutes(capsys)[-1] == "54"
    assert minutes(capsys, "--until", "0") == ["0"]


def test_wrong_words_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--role", "mailbox"], ["--until", "-1"], ["--until", "soon"]):
        assert run(["transport", "retry-schedule", *arguments]) == 2
    capsys.readouterr()


def test_the_schedule_follows_any_settings() -> None:
    settings = TransportSettings(
        queue_glitch_retry_count=1,
        queue_glitch_retry_interval=30.0,
        transient_failure_retry_count=0,
        outbound_connection_failure_retry_interval=120.0,
    )
    assert attempts(settings, 7) == [0, 0.5, 2.5, 4.5, 6.5]


def write(directory: Path, now: float, *sessions: str) -> None:
    files = LogFiles(directory, PREFIX, LIMITS, header)
    assert files.write([row(now, session, "site-b", ">", "a, b") for session in sessions], now) == 0
    files.close()


def test_the_connectivity_log_is_shown_over_its_files_with_one_head(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    write(tmp_path, START, "1", "2")
    write(tmp_path, START + 86400, "3")
    with (tmp_path / "CONNECTLOG20260101-1.log").open("wb") as other:
        other.write(header(0.0) + row(0.0, "0", "site-b", ">", "x") + b"half a li")
    assert run(["log", "connectivity", "--directory", str(tmp_path)]) == 0
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert [line[0] == "#" for line in lines] == [True] * 5 + [False] * 4
    assert [line.split(",")[1] for line in lines[5:]] == ["0", "1", "2", "3"]


def test_a_log_that_is_off_is_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "connectivity", "--directory", str(tmp_path / "none")]) == 1
    assert "does not exist" in capsys.readouterr().err


def test_following_shows_the_last_rows_and_new_ones_over_the_change_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, START, *map(str, range(30)))
    rows = log_command._followed(tmp_path)

    def session() -> str:
        return next(rows).decode().split(",")[1]

    assert [session() for _ in range(log_command.SHOWN_BEFORE)] == [str(number) for number in range(20, 30)]
    write(tmp_path, START, "new")
    assert session() == "new"
    write(tmp_path, START, "last")
    write(tmp_path, START + 86400, "tomorrow", "and on")
    assert [session() for _ in range(3)] == ["last", "tomorrow", "and on"]
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        write(tmp_path, START + 86400, f"after {len(waits)}")

    monkeypatch.setattr(log_command.time, "sleep", wait)
    assert session() == "after 1"
    assert session() == "after 2"


def test_following_waits_for_a_first_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_command.time, "sleep", lambda _: write(tmp_path / "log", START, "first"))
    assert b",first," in next(log_command._followed(tmp_path / "log"))
