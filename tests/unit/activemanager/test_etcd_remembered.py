"""What a machine remembers of a registry in etcd, for workers that start while it does not answer."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import pytest
import structlog

from gatepost.activemanager.boot_clock import Moment
from gatepost.activemanager.etcd.remembered import WRITE_SECONDS, Remembered
from gatepost.activemanager.port import RegistryView, ServerWord
from gatepost.routing.decision import ActiveCopy

ACTIVE = {"DB01": ActiveCopy("DB01", "MBX-01", 3), "ü/": ActiveCopy("ü/", "MBX-02", 1)}
VIEW = RegistryView(9, ACTIVE, 4, words={"MBX-01": ServerWord.DRAINING})
KNOWN = RegistryView(9, ACTIVE, 4)
"""Of a view what routing needs."""


class Stage:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "registry-known.json"
        self.now = Moment("boot", 100.0)

    def worker(self) -> Remembered:
        return Remembered(self.path, lambda: self.now)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_nothing_is_known_at_first(stage: Stage) -> None:
    assert stage.worker().read() is None


def test_another_worker_knows_it_and_how_old_it_is(stage: Stage) -> None:
    stage.worker().write(VIEW, 98.5)
    stage.now = Moment("boot", 900.0)
    assert stage.worker().read() == (KNOWN, 98.5)


@pytest.mark.parametrize("now", [Moment("another boot", 900.0), Moment("boot", 98.0)])
def test_of_what_nobody_can_say_how_old_it_is_nothing_is_known(stage: Stage, now: Moment) -> None:
    stage.worker().write(VIEW, 98.5)
    stage.now = now
    assert stage.worker().read() is None


def test_it_is_written_by_one_worker_every_few_seconds(stage: Stage) -> None:
    first, second = stage.worker(), stage.worker()
    first.write(VIEW, 100.0)
    second.write(VIEW, 100.1)
    first.write(VIEW, 100.2)
    assert stage.worker().read() == (KNOWN, 100.0)
    old = time.time() - WRITE_SECONDS
    os.utime(stage.path, (old, old))
    stage.now = Moment("boot", 100.0 + WRITE_SECONDS)
    first.write(VIEW, 105.0)
    assert stage.worker().read() == (KNOWN, 105.0)


def test_only_its_owner_reads_it_and_nothing_else_is_left(stage: Stage) -> None:
    stage.worker().write(VIEW, 100.0)
    assert stat.S_IMODE(stage.path.stat().st_mode) == 0o600
    assert list(stage.path.parent.iterdir()) == [stage.path]


@pytest.mark.parametrize(
    "change",
    [{"active": 7}, {"active": [["DB01", "MBX-01"]]}, {"heard": "x"}, {"heard": None}, {"heard": -1}, {"boot": 1}],
)
def test_a_spoiled_file_is_none(stage: Stage, change: dict[str, object]) -> None:
    stage.worker().write(VIEW, 100.0)
    stage.path.write_text(json.dumps(json.loads(stage.path.read_text()) | change))
    assert stage.worker().read() is None


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b"{" * 100])
def test_garbage_is_none(stage: Stage, content: bytes) -> None:
    stage.path.write_bytes(content)
    assert stage.worker().read() is None


def test_a_folder_that_is_closed_is_logged_once_and_stops_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "missing")
    worker = stage.worker()
    with structlog.testing.capture_logs() as lines:
        for seconds in (100.0, 200.0):
            stage.now = Moment("boot", seconds)
            worker.write(VIEW, seconds)
    assert [line["event"] for line in lines] == ["registry.not_remembered"]
