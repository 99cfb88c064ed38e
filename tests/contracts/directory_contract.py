"""What every directory promises. Each engine's test file has a subclass of `DirectoryContract` with its fixtures."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Protocol as Port

import pytest

from gatepost.directory.port import Directory, DirectoryUnavailable, User
from gatepost.organization.model import Protocol
from gatepost.routing.decision import Mailbox

SEEN_SECONDS = 0.5
"""A change is known to every front end within this time."""

ANNA = User("anna@contoso.com", Mailbox("DB01"), "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaA")
OTTO = User(
    "otto@contoso.com",
    Mailbox(home_server="OLD-01"),
    protocols=frozenset({Protocol.IMAP}),
    disabled=True,
    login_at_server="o.otto",
)


class Engine(Port):
    """What a test needs of an engine besides the port: ways to change what it answers, and to break it."""

    directory: Directory

    def put(self, user: User, addresses: tuple[str, ...] = ()) -> None: ...
    def remove(self, name: str) -> None: ...
    def take_away(self) -> None: ...
    def bring_back(self) -> None: ...


class DirectoryContract:
    """Subclasses provide the fixture `engine`, an `Engine` with a watching directory that holds ANNA and OTTO."""

    async def test_finds_by_name(self, engine: Engine) -> None:
        assert engine.directory.find("anna@contoso.com") == ANNA

    async def test_every_field_comes_back(self, engine: Engine) -> None:
        assert engine.directory.find("otto@contoso.com") == OTTO

    async def test_finds_by_address(self, engine: Engine) -> None:
        """An alias answers the user with the user's own name."""
        assert engine.directory.find("sales@contoso.com") == ANNA

    async def test_unknown_is_none(self, engine: Engine) -> None:
        assert engine.directory.find("nobody@contoso.com") is None
        assert engine.directory.find("") is None
        assert engine.directory.find("anna@contoso.com'--") is None

    async def test_the_hash_is_not_shown(self, engine: Engine) -> None:
        assert "argon2" not in repr(engine.directory.find("anna@contoso.com"))

    async def test_a_change_is_told_and_seen(self, engine: Engine) -> None:
        """Also for answers that were given before: nothing stays in a cache."""
        assert engine.directory.find("anna@contoso.com") == ANNA
        assert engine.directory.find("new@contoso.com") is None
        told = asyncio.Event()
        engine.directory.on_change(told.set)
        engine.put(replace(ANNA, mailbox=Mailbox("DB02")), ("new@contoso.com",))
        await asyncio.wait_for(told.wait(), SEEN_SECONDS)
        found = engine.directory.find("anna@contoso.com")
        assert found is not None
        assert found.mailbox == Mailbox("DB02")
        assert engine.directory.find("new@contoso.com") == found

    async def test_a_removed_user_is_gone(self, engine: Engine) -> None:
        engine.directory.find("sales@contoso.com")
        told = asyncio.Event()
        engine.directory.on_change(told.set)
        engine.remove("anna@contoso.com")
        await asyncio.wait_for(told.wait(), SEEN_SECONDS)
        assert engine.directory.find("anna@contoso.com") is None
        assert engine.directory.find("sales@contoso.com") is None

    async def test_an_outage_is_unavailable_never_unknown(self, engine: Engine) -> None:
        """And it ends by itself, with a call of `on_change`."""
        told = asyncio.Event()
        engine.directory.on_change(told.set)
        engine.take_away()

        async def until_unavailable() -> None:
            while True:
                try:
                    assert engine.directory.find("nobody@contoso.com") is None
                except DirectoryUnavailable:
                    return
                await asyncio.sleep(0.005)

        await asyncio.wait_for(until_unavailable(), SEEN_SECONDS)
        with pytest.raises(DirectoryUnavailable):
            engine.directory.find("anna@contoso.com")
        assert not told.is_set()
        engine.bring_back()
        await asyncio.wait_for(told.wait(), SEEN_SECONDS)
        assert engine.directory.find("anna@contoso.com") == ANNA
