"""What every directory promises. Each engine's test file has a subclass of `DirectoryContract` with its fixtures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol as Port

import pytest

from gatepost.directory.port import Directory, DirectoryUnavailable, NotAsked, User
from gatepost.organization.model import Protocol
from gatepost.routing.decision import Mailbox

SEEN_SECONDS = 0.5
"""A change of the embedded directory is known to every front end within this time."""
PATIENCE_SECONDS = 20.0
"""For an engine that is another process, on a machine that runs other tests as well."""

HASH = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo"
ANNA = User("anna@contoso.com", Mailbox("DB01"), HASH)
OTTO = User(
    "otto@contoso.com",
    Mailbox(home_server="OLD-01"),
    protocols=frozenset({Protocol.IMAP}),
    disabled=True,
    login_at_server="o.otto",
)
STRANGE_NAMES = (
    "anna@contoso.com'--", "' or '1'='1", "anna@contoso.com' or '1'='1", "\\' or 1=1 -- ", "*", "a*@contoso.com",
    "anna@contoso.com)(mail=*", "*)(|(mail=*)", "anna@contoso.com\0", "%@contoso.com", "_nna@contoso.com", "{address}",
    "anna@contoso.com;drop table users", "../anna@contoso.com", "anna@contoso.com?x=1", "anna%40contoso.com", "$1",
    "\\2a", "%(name)s", ":name", "ánna@contoso.com", "\U0001f600@contoso.com", "a" * 320,
)  # fmt: skip


class Engine(Port):
    """What a test needs of an engine besides the port: ways to change what it answers, and to break it."""

    directory: Directory

    def put(self, user: User, addresses: tuple[str, ...] = ()) -> None: ...
    def remove(self, name: str) -> None: ...
    def take_away(self) -> None: ...
    def bring_back(self) -> None: ...


class DirectoryContract:
    """Subclasses provide the fixture `engine`, an `Engine` with a started directory that holds ANNA and OTTO.

    ANNA has the further address `sales@contoso.com`. What an engine elsewhere tells is remembered for a tenth of a
    second there, so that changes are seen in a test's time.
    """

    seen_seconds = SEEN_SECONDS
    tells_hashes = True
    """Whether the password's hash comes from the directory; else it judges passwords itself."""

    def same(self, found: User | None, wanted: User) -> bool:
        """Whether this is the user, as far as the engine tells."""
        if found is None:
            return False
        if self.tells_hashes:
            return found == wanted
        return found.judged_by_directory and replace(found, password_hash=wanted.password_hash) == wanted

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Waits until `condition` is true, for `seen_seconds`."""
        deadline = time.monotonic() + self.seen_seconds
        while not await condition():
            assert time.monotonic() < deadline, "was not seen in time"
            await asyncio.sleep(0.005)

    async def test_finds_by_name(self, engine: Engine) -> None:
        assert self.same(await engine.directory.ask("anna@contoso.com"), ANNA)

    async def test_every_field_comes_back(self, engine: Engine) -> None:
        assert self.same(await engine.directory.ask("otto@contoso.com"), OTTO)

    async def test_finds_by_address(self, engine: Engine) -> None:
        """An alias answers the user with the user's own name."""
        assert self.same(await engine.directory.ask("sales@contoso.com"), ANNA)

    async def test_unknown_is_none(self, engine: Engine) -> None:
        assert await engine.directory.ask("nobody@contoso.com") is None
        assert await engine.directory.ask("") is None

    async def test_a_name_is_compared_and_never_obeyed(self, engine: Engine) -> None:
        """Whatever it holds it is nobody's, is no fault, and changes nothing."""
        for name in STRANGE_NAMES:
            assert await engine.directory.ask(name) is None, name
        assert self.same(await engine.directory.ask("anna@contoso.com"), ANNA)

    async def test_the_hash_is_not_shown(self, engine: Engine) -> None:
        found = await engine.directory.ask("anna@contoso.com")
        assert found is not None
        assert found.password_hash not in repr(found)

    async def test_what_was_told_is_known_at_once(self, engine: Engine) -> None:
        """`find` never waits: it answers, or says that the directory must be asked first."""
        found = await engine.directory.ask("anna@contoso.com")
        assert engine.directory.find("anna@contoso.com") == found
        unknown = ""
        try:
            assert engine.directory.find("otto@contoso.com") is not None
        except NotAsked as fault:
            unknown = fault.name
        assert unknown in {"", "otto@contoso.com"}
        assert self.same(await engine.directory.ask("otto@contoso.com"), OTTO)
        assert engine.directory.find("otto@contoso.com") is not None

    async def test_a_change_is_told_and_seen(self, engine: Engine) -> None:
        """Also for answers that were given before."""
        assert self.same(await engine.directory.ask("anna@contoso.com"), ANNA)
        assert await engine.directory.ask("new@contoso.com") is None
        told = asyncio.Event()
        engine.directory.on_change(told.set)
        moved = replace(ANNA, mailbox=Mailbox("DB02"))
        engine.put(moved, ("new@contoso.com",))

        async def seen() -> bool:
            return self.same(await engine.directory.ask("anna@contoso.com"), moved)

        await self.until(seen)
        assert told.is_set()

        async def seen_by_address() -> bool:
            return self.same(await engine.directory.ask("new@contoso.com"), moved)

        await self.until(seen_by_address)

    async def test_a_removed_user_is_gone(self, engine: Engine) -> None:
        await engine.directory.ask("sales@contoso.com")
        await engine.directory.ask("anna@contoso.com")
        told = asyncio.Event()
        engine.directory.on_change(told.set)
        engine.remove("anna@contoso.com")

        async def gone() -> bool:
            names = ("anna@contoso.com", "sales@contoso.com")
            return [await engine.directory.ask(name) for name in names] == [None, None]

        await self.until(gone)
        assert told.is_set()

    async def test_an_outage_is_unavailable_never_unknown(self, engine: Engine) -> None:
        """And it ends by itself, with a call of `on_change`. Who is known may be answered as they were."""
        assert self.same(await engine.directory.ask("anna@contoso.com"), ANNA)
        told = asyncio.Event()
        engine.directory.on_change(told.set)
        engine.take_away()

        async def unavailable() -> bool:
            try:
                assert await engine.directory.ask("nobody@contoso.com") is None
            except DirectoryUnavailable:
                return True
            return False

        await self.until(unavailable)
        with suppress(DirectoryUnavailable):
            assert self.same(await engine.directory.ask("anna@contoso.com"), ANNA)
        with pytest.raises(DirectoryUnavailable):
            engine.directory.find("otto@contoso.com")
        assert not told.is_set()
        engine.bring_back()
        await asyncio.wait_for(told.wait(), self.seen_seconds)
        assert self.same(await engine.directory.ask("anna@contoso.com"), ANNA)
        assert await engine.directory.ask("nobody@contoso.com") is None
