"""The embedded directory keeps the directory's contract, and its own promises on files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from directory_contract import ANNA, OTTO, SEEN_SECONDS, DirectoryContract

from gatepost.directory import sqlite
from gatepost.directory.editing import BadUser, DirectoryEditor, Entry
from gatepost.directory.port import DirectoryUnavailable, User
from gatepost.directory.sqlite import SqliteDirectory, prepare
from gatepost.organization.model import CLIENT_PROTOCOLS, Protocol
from gatepost.routing.decision import Mailbox
from gatepost.store.sqlite import close_after_writing, open_for_writing


class SqliteEngine:
    def __init__(self, path: str) -> None:
        self.path = path
        with DirectoryEditor(path) as editor:
            editor.add(Entry(ANNA, ("sales@contoso.com",)))
            editor.add(Entry(OTTO))
        self.directory = SqliteDirectory(path, asyncio.get_running_loop(), interval=0.02)

    def put(self, user: User, addresses: tuple[str, ...] = ()) -> None:
        with DirectoryEditor(self.path) as editor:
            editor.change(user.name, lambda _: Entry(user, addresses))

    def remove(self, name: str) -> None:
        with DirectoryEditor(self.path) as editor:
            editor.remove(name)

    def take_away(self) -> None:
        os.rename(self.path, self.path + ".away")

    def bring_back(self) -> None:
        os.rename(self.path + ".away", self.path)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    engine = SqliteEngine(str(tmp_path / "directory.sqlite"))
    engine.directory.start()
    yield engine
    engine.directory.close()


class TestSqliteDirectory(DirectoryContract):
    pass


async def test_a_directory_that_comes_later_is_found(tmp_path: Path) -> None:
    """A worker that starts before the first user was added goes on by itself."""
    path = str(tmp_path / "directory.sqlite")
    directory = SqliteDirectory(path, asyncio.get_running_loop(), interval=0.02)
    told = asyncio.Event()
    directory.on_change(told.set)
    directory.start()
    states = [directory.available]
    with pytest.raises(DirectoryUnavailable, match="No such file"):
        directory.find("anna@contoso.com")
    with DirectoryEditor(path) as editor:
        editor.add(Entry(ANNA))
    await asyncio.wait_for(told.wait(), SEEN_SECONDS)
    assert directory.find("anna@contoso.com") == ANNA
    states.append(directory.available)
    assert states == [False, True]
    directory.close()


async def test_an_outage_is_logged_once_and_its_end_too(engine: SqliteEngine) -> None:
    with structlog.testing.capture_logs() as lines:
        engine.directory._log = structlog.get_logger()
        watch = engine.directory._watch
        assert watch is not None
        watch.stop()
        engine.take_away()
        for _ in range(3):
            watch._tick()
        engine.bring_back()
        for _ in range(3):
            watch._tick()
    assert [line["event"] for line in lines] == ["directory.unavailable", "directory.available"]
    assert engine.path in lines[0]["reason"]


async def test_without_a_watch_nothing_is_cached(tmp_path: Path) -> None:
    """A command has no loop; it must never see its own old answer."""
    path = str(tmp_path / "directory.sqlite")
    prepare(path)
    directory = SqliteDirectory(path)
    assert directory.find("anna@contoso.com") is None
    with DirectoryEditor(path) as editor:
        editor.add(Entry(ANNA))
        assert directory.find("anna@contoso.com") == ANNA
        editor.remove("anna@contoso.com")
        assert directory.find("anna@contoso.com") is None
    directory.close()


async def test_the_cache_is_bounded(engine: SqliteEngine, monkeypatch: Any) -> None:
    monkeypatch.setattr(sqlite, "CACHED_USERS", 3)
    with DirectoryEditor(engine.path) as editor:
        for n in range(10):
            editor.add(Entry(User(f"u{n}@contoso.com", Mailbox("DB01"))))
    for n in range(10):
        assert engine.directory.find(f"u{n}@contoso.com") is not None
        assert len(engine.directory._cache) <= 3
    assert engine.directory.find("u9@contoso.com") is engine.directory.find("u9@contoso.com")


async def test_a_registry_is_no_directory(tmp_path: Path) -> None:
    """Two paths mixed up in the configuration are said so."""
    from gatepost.activemanager.sqlite import SqliteRegistry

    path = str(tmp_path / "state.sqlite")
    SqliteRegistry(path).view()
    with pytest.raises(DirectoryUnavailable, match="not a Gatepost directory"):
        SqliteDirectory(path).find("anna@contoso.com")
    with pytest.raises(DirectoryUnavailable, match="not a Gatepost directory"):
        DirectoryEditor(path)


def test_who_had_every_protocol_before_submission_came_has_it_too(tmp_path: Path) -> None:
    """A directory of an earlier version; who was kept from one protocol is kept from the new one as well."""
    path = str(tmp_path / "directory.sqlite")
    before = replace(sqlite.SCHEMA, migrations=sqlite.SCHEMA.migrations[:1])
    connection = open_for_writing(path, before)
    for name, words in (("anna", "imap pop3 https"), ("otto", "imap https")):
        row = (f"{name}@contoso.com", words)
        connection.execute("INSERT INTO users VALUES (NULL, ?, '', 'DB01', NULL, ?, 0, '', 0)", row)
    close_after_writing(connection)
    with DirectoryEditor(path) as editor:
        assert editor.get("anna@contoso.com").user.protocols == frozenset(CLIENT_PROTOCOLS)
        assert editor.get("otto@contoso.com").user.protocols == {Protocol.IMAP, Protocol.HTTPS}
        assert editor.get("otto@contoso.com").user.send_as == ()


def test_grants_are_kept_and_must_be_addresses_or_domains(tmp_path: Path) -> None:
    """`User.send_as`, as the directory and a worker's look-up tell it."""
    path = str(tmp_path / "directory.sqlite")
    user = User("anna@contoso.com", Mailbox("DB01"), send_as=("bob@contoso.com", "@news.example"))
    with DirectoryEditor(path) as editor:
        editor.add(Entry(user))
        for bad in ("@", "@news.example.", "Bob@contoso.com", "two words@contoso.com"):
            with pytest.raises(BadUser):
                editor.add(Entry(replace(user, name="otto@contoso.com", send_as=(bad,))))
    directory = sqlite.SqliteDirectory(path)
    assert directory.find("anna@contoso.com") == user
    directory.close()
