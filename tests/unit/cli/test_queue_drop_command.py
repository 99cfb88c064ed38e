"""`gatepost queue drop` asks before it deletes, where there is something to delete."""

from __future__ import annotations

from typing import Any

import pytest

from gatepost.cli import queue
from gatepost.cli.main import run


def drop(monkeypatch: pytest.MonkeyPatch, found: int) -> tuple[int, list[str]]:
    """The exit status with nothing on standard input and so many messages found; what the transport was asked."""
    asked: list[str] = []

    def ask(_config: str, _server: str, verb: str, **_arguments: Any) -> Any:
        asked.append(verb)
        return [{}] * found if verb == "messages" else found

    monkeypatch.setattr(queue, "ask", ask)
    return run(["queue", "drop", "6/*"]), asked


def test_nothing_is_deleted_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    status, asked = drop(monkeypatch, 2)
    assert status != 0
    assert asked == ["messages"]


def test_where_nothing_is_found_nobody_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, asked = drop(monkeypatch, 0)
    assert (status, asked) == (0, ["messages", "drop"])
    assert capsys.readouterr().out == "messages: 0\n"
