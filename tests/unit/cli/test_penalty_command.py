"""`gatepost penalty`: what is held against whom, and forgiving it, in the own file and in the shared store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from memory_store import Hold, MemoryStore
from moving_stage import Commands

from gatepost.configuration.settings import SharedStoreSettings
from gatepost.directory.policy.ledger import Ledger
from gatepost.directory.policy.policy import attempt_of
from gatepost.directory.policy.settings import Penalty
from gatepost.sharedstate.penalties import SqliteLedger, open_ledger
from gatepost.sharedstate.sqlite import prepare
from gatepost.sharedstate.store import open as store_open
from gatepost.sharedstate.store.open import SharedStore

ADDRESS = "198.51.100.7"
SHARED = """
[front_end.shared_store]
engine = "redis"
url = "redis://127.0.0.1:6379"
secret_file = "secret"
"""


class Guesses:
    """Wrong passwords that front ends have charged."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "shared.sqlite")
        self.store = MemoryStore()
        self.hold = self.store.hold()
        prepare(self.path)

    def in_the_file(self, count: int, user: str = "anna@contoso.com") -> None:
        async def charge(own: SqliteLedger) -> None:
            await self._charge(own, count, user, "file")

        self._run(charge)

    def in_the_store(self, count: int, user: str = "anna@contoso.com") -> None:
        async def charge(own: SqliteLedger) -> None:
            settings = SharedStoreSettings(b"0123456789abcdef", "/gatepost/contoso/shared", 30.0)
            shared = SharedStore(settings, own, asyncio.get_running_loop(), store=self.store.hold())
            assert await shared.start(20.0)
            await self._charge(shared.ledger, count, user, "store")
            await shared.end()

        self._run(charge)

    def _run(self, charge: Callable[[SqliteLedger], object]) -> None:
        async def run() -> None:
            own, writer = open_ledger(self.path, asyncio.get_running_loop())
            await charge(own)  # type: ignore[misc]
            writer.close()

        asyncio.run(run())

    @staticmethod
    async def _charge(ledger: Ledger, count: int, user: str, word: str) -> None:
        import time

        for number in range(count):
            attempt = attempt_of(user, ADDRESS, f"{word}{number}".encode(), Penalty(failures_per_account=50))
            charged = await ledger.charge(attempt, Penalty(failures_per_account=50), time.time())
            assert charged is not None
            assert charged.keys


@pytest.fixture
def guesses(tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch) -> Guesses:
    made = Guesses(tmp_path)

    def opened(_settings: SharedStoreSettings) -> Hold:
        return made.hold

    monkeypatch.setattr(store_open, "open_store", opened)
    return made


def with_store(folder: Path) -> None:
    (folder / "secret").write_text("0123456789abcdef")
    (folder / "secret").chmod(0o600)
    path = folder / "gatepost.toml"
    path.write_text(path.read_text() + SHARED)


def test_what_is_held_in_the_own_file_is_shown_and_forgiven(commands: Commands, guesses: Guesses) -> None:
    guesses.in_the_file(4)
    status, out, _ = commands.run("penalty", "show", "--ip", ADDRESS, "--user", "anna", "--json")
    told = json.loads(out)
    assert status == 0
    assert {key: entry["failures"] for key, entry in told.items()} == {
        f"address {ADDRESS}/32": 4,
        "user anna@contoso.com": 4,
    }
    assert "address 198.51.100.7/32: 4 wrong passwords, the last" in commands.run("penalty", "show", "--ip", ADDRESS)[1]
    assert "4 wrong passwords forgiven" in commands.run("penalty", "clear", "--ip", ADDRESS)[1]
    assert commands.run("penalty", "show", "--ip", ADDRESS)[1] == "Nothing is held.\n"
    assert "user anna@contoso.com: 4" in commands.run("penalty", "show", "--user", "anna")[1]


def test_those_of_the_shared_store_are_joined_with_the_own_ones(
    commands: Commands, guesses: Guesses, tmp_path: Path
) -> None:
    with_store(tmp_path)
    guesses.in_the_store(3)
    guesses.in_the_file(2)
    assert f"address {ADDRESS}/32: 5 wrong" in commands.run("penalty", "show", "--ip", ADDRESS)[1]
    assert f"address {ADDRESS}/32: 5 wrong" in commands.run("penalty", "clear", "--ip", ADDRESS)[1]
    assert commands.run("penalty", "clear", "--ip", ADDRESS)[1] == "Nothing was held.\n"


def test_a_store_that_is_away_is_named(commands: Commands, guesses: Guesses, tmp_path: Path) -> None:
    with_store(tmp_path)
    guesses.hold.fails = True
    status, _, err = commands.run("penalty", "show", "--ip", ADDRESS)
    assert status == 1
    assert "the shared store memory cannot be reached: connection refused" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [((), "whose?"), (("--ip", "nowhere"), "is no address"), (("--user", "a b\x00"), "can be nobody's name")],
)
def test_whose_must_be_said(commands: Commands, words: tuple[str, ...], message: str) -> None:
    status, _, err = commands.run("penalty", "show", *words)
    assert status == 2
    assert message in err
