"""`gatepost queue quarantined|release|forget|salvage` and `gatepost transport unhealthy|forget`."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from spool_contract import put

from gatepost.cli import queue_quarantine, transport_unhealthy
from gatepost.cli.main import run
from gatepost.transport.spool.layout import Layout
from gatepost.transport.spool.spool import DiskSpool, SpoolSettings

ENTRY = {
    "number": 7, "reason": "the content is not as it was written", "at": 1_800_000_000.0, "from": "a@contoso.com",
    "message_id": "<1@contoso.com>", "subject": "hello", "size": 1234, "received": 1_799_999_000.0,
    "recipients": ["b@example.org", "c@example.org"],
}  # fmt: skip
DOWN = {
    "address": "2001:db8::1", "port": 25, "host": "mx.example.org", "error": "connection refused", "failures": 3,
    "retries": 2, "marked": 1_800_000_000.0, "last_retry": 1_800_000_060.0, "next_retry": 1_800_000_120.0,
}  # fmt: skip


class Asked:
    """What was asked of the transport, and what it answers."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.requests: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, _config: str, _server: str, verb: str, **arguments: Any) -> Any:
        self.requests.append((verb, arguments))
        return self.answer


def asked(monkeypatch: pytest.MonkeyPatch, answer: Any) -> Asked:
    made = Asked(answer)
    monkeypatch.setattr(queue_quarantine, "ask", made)
    monkeypatch.setattr(transport_unhealthy, "ask", made)
    return made


def test_quarantined_messages_are_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked(monkeypatch, [ENTRY])
    assert run(["queue", "quarantined"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("       7 ")
    assert lines[0].endswith("<1@contoso.com> hello: the content is not as it was written")
    assert lines[1:] == ["    <b@example.org>", "    <c@example.org>"]
    assert run(["queue", "quarantined", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [ENTRY]


def test_one_is_released_or_forgotten(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    requests = asked(monkeypatch, 1).requests
    assert run(["queue", "release", "7"]) == 0
    assert run(["queue", "forget", "7", "--yes"]) == 0
    assert requests == [("release", {"number": 7}), ("forget_message", {"number": 7})]
    assert run(["queue", "release", "many"]) == 2
    assert run(["queue", "forget", "0", "--yes"]) == 2
    capsys.readouterr()


def test_unhealthy_servers_are_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked(monkeypatch, [DOWN])
    assert run(["transport", "unhealthy"]) == 0
    _, line = capsys.readouterr().out.splitlines()
    assert line.startswith("[2001:db8::1]:25 ")
    assert line.endswith("connection refused (mx.example.org)")
    assert run(["transport", "unhealthy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [DOWN]


def test_a_server_is_forgotten_by_address_and_port(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    transport = asked(monkeypatch, answer=True)
    assert run(["transport", "forget", "[2001:DB8::1]:25"]) == 0
    assert run(["transport", "forget", "192.0.2.1:2525"]) == 0
    assert transport.requests == [
        ("forget", {"address": "2001:db8::1", "port": 25}),
        ("forget", {"address": "192.0.2.1", "port": 2525}),
    ]
    transport.answer = False
    assert run(["transport", "forget", "192.0.2.1:2525"]) == 1
    assert "is not on the list" in capsys.readouterr().err
    for wrong in ("192.0.2.1", "mx.example.org:25", "192.0.2.1:smtp"):
        assert run(["transport", "forget", wrong]) == 2
    capsys.readouterr()


def filled(directory: Path, *contents: bytes) -> list[int]:
    async def go() -> list[int]:
        spool = await DiskSpool.open(directory, SpoolSettings(reserve_bytes=4096))
        numbers = [await put(spool, content) for content in contents]
        await spool.close()
        return numbers

    return asyncio.run(go())


def test_a_spool_is_salvaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    numbers = filled(old, b"a\r\n", b"x" * 100_000, b"c\r\n")
    assert run(["queue", "salvage", str(old), str(new)]) == 0
    assert capsys.readouterr().out == "taken: 3\n"
    Layout(old).file(numbers[1]).unlink()
    assert run(["queue", "salvage", str(old), str(new)]) == 3
    out = capsys.readouterr().out
    assert f"taken: 2\nlost: 1 (numbers in {old}: {numbers[1]})\n" == out
    assert len(filled(new)) == 0
    assert run(["queue", "salvage", str(old), str(old)]) == 1
    assert run(["queue", "salvage", str(tmp_path), str(new)]) == 1
    assert "is no spool" in capsys.readouterr().err


def test_what_root_salvages_belongs_to_the_owner_of_the_spool(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    old, new = tmp_path / "old", tmp_path / "new"
    filled(old, b"a\r\n", b"x" * 100_000)
    new.mkdir()
    os.chown(new, 12345, 12345)
    assert run(["queue", "salvage", str(old), str(new)]) == 0
    assert {path.stat().st_uid for path in new.rglob("*")} == {12345}
