"""`gatepost serve` finds its configuration as all other commands do."""

from __future__ import annotations

from typing import ClassVar

import pytest

from gatepost.cli.main import run
from gatepost.service import supervisor


class _Supervisor:
    """Remembers what it was told to run, and ends at once."""

    told: ClassVar[list[tuple[str, str | None, int | None]]] = []

    def __init__(self, config: str, server: str | None, workers: int | None) -> None:
        self.told.append((config, server, workers))

    async def run(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("arguments", "variable", "file"),
    [
        ((), None, "/etc/gatepost/gatepost.toml"),
        ((), "/somewhere/gatepost.toml", "/somewhere/gatepost.toml"),
        (("-c", "my.toml"), "/somewhere/gatepost.toml", "my.toml"),
        (("--config", "my.toml"), None, "my.toml"),
    ],
)
def test_serve_takes_the_default_the_variable_or_the_option(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], variable: str | None, file: str
) -> None:
    monkeypatch.setattr(_Supervisor, "told", [])
    monkeypatch.setattr(supervisor, "Supervisor", _Supervisor)
    monkeypatch.delenv("GATEPOST_CONFIG", raising=False)
    if variable is not None:
        monkeypatch.setenv("GATEPOST_CONFIG", variable)
    assert run(["serve", *arguments]) == 0
    assert _Supervisor.told == [(file, None, None)]
