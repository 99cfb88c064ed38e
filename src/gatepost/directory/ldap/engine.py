"""The LDAP engine: names are searched for with the service's own account, passwords are judged by a bind.

find ──► pool of searching connections ──► entries ──► User
opens ─► pool of binding connections: bind as the user's entry
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from urllib.parse import urlsplit

import structlog

from gatepost.directory.ldap.changes import Changes
from gatepost.directory.ldap.entries import Ambiguous, Entry, NoUser, choose, question, user_of
from gatepost.directory.ldap.road import PORTS, Roads
from gatepost.directory.ldap.session import WRONG, LdapSession, Referred
from gatepost.directory.pool import Broken, Pool
from gatepost.directory.port import DirectoryUnavailable, User
from gatepost.directory.settings import LdapServer, LdapSettings


class LdapEngine:
    """See `directory.port.Engine`. Belongs to the loop it is made in."""

    def __init__(self, name: str, settings: LdapSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._roads = Roads()
        servers = {server.url: server for server in settings.servers}
        self._by_place = {_place(url): url for url in servers}
        searching: dict[str, Callable[[], LdapSession]] = {
            url: partial(self._searching, server) for url, server in servers.items()
        }
        binding: dict[str, Callable[[], LdapSession]] = {
            url: partial(LdapSession, server, self._roads, self._loop) for url, server in servers.items()
        }
        self._searches = self._pool(f"directory {name}", searching, clock)
        self._binds = self._pool(f"passwords of {name}", binding, clock)
        self._invalid: list[Callable[[str], None]] = []
        self._changes: Changes | None = None
        if settings.mapping.numbers_changes and settings.changes_seconds:
            self._changes = Changes(
                name, searching, settings.base, settings.mapping, settings.changes_seconds, self._tell
            )
        self._log = structlog.get_logger("gatepost")

    def _pool(
        self, name: str, connect: dict[str, Callable[[], LdapSession]], clock: Callable[[], float]
    ) -> Pool[LdapSession]:
        settings = self._settings
        return Pool(
            name,
            connect,
            threads=settings.connections,
            seconds=settings.seconds,
            try_seconds=settings.try_seconds,
            clock=clock,
        )

    async def find(self, canonical_name: str) -> User | None:
        """See `Engine`."""
        mapping = self._settings.mapping
        wanted = question(mapping, canonical_name)
        if not wanted:
            return None
        entries = await self._search(wanted)
        try:
            entry = choose(mapping, canonical_name, entries)
            return user_of(mapping, entry) if entry is not None else None
        except Ambiguous as fault:
            self._log.error("directory.ambiguous", directory=self._name, reason=str(fault))
            return None
        except NoUser as fault:
            self._log.debug("directory.no_user", directory=self._name, reason=str(fault))
            return None

    async def opens(self, user: User, tries: tuple[bytes, ...]) -> bool:
        """See `Engine`."""

        def judge(session: LdapSession) -> str:
            reason = ""
            for attempt in tries:
                reason = session.bind(user.reference, attempt)
                if not reason:
                    return ""
            return reason or "no password"

        reason = await self._binds.run(judge)
        if reason:
            self._log.info("directory.password_refused", directory=self._name, user=user.name, reason=reason)
        return not reason

    def on_invalid(self, callback: Callable[[str], None]) -> None:
        """See `Engine`: of Active Directory's changes; other LDAP servers are not asked for theirs."""
        self._invalid.append(callback)
        if self._changes is not None and len(self._invalid) == 1:
            self._changes.start()

    async def close(self) -> None:
        """See `Engine`."""
        if self._changes is not None:
            self._changes.stop()
        await self._searches.close()
        await self._binds.close()
        await self._roads.close()
        if self._changes is not None and self._invalid:
            await asyncio.to_thread(self._changes.join)

    def _tell(self, names: tuple[str, ...]) -> None:
        """In the thread of `Changes`."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._told, names)

    def _told(self, names: tuple[str, ...]) -> None:
        for name in names:
            for callback in self._invalid:
                callback(name)

    async def _search(self, wanted: str) -> list[Entry]:
        settings = self._settings
        ask = partial(_search_in, base=settings.base, wanted=wanted, attributes=settings.mapping.attributes)
        try:
            return await self._searches.run(ask)
        except Referred as referred:
            server = self._by_place.get(_place(referred.url))
            if server is None:
                raise DirectoryUnavailable(f"referred to {referred.url}, which is none of the servers") from None
        try:
            return await self._searches.run(ask, server)
        except Referred as again:
            raise DirectoryUnavailable(f"referred on to {again.url}: not followed twice") from None

    def _searching(self, server: LdapServer) -> LdapSession:
        return open_searching(server, self._settings, self._roads, self._loop)


def open_searching(
    server: LdapServer, settings: LdapSettings, roads: Roads, loop: asyncio.AbstractEventLoop
) -> LdapSession:
    """A connection that may search, as the account of `settings`. Called in a thread; `loop` runs in another.

    Raises `Broken`.
    """
    session = LdapSession(server, roads, loop)
    if settings.bind_name:
        try:
            refused = session.bind(settings.bind_name, settings.bind_password.encode())
        except DirectoryUnavailable as fault:
            refused = str(fault)
        except Broken:
            session.close()
            raise
        if refused:
            session.close()
            refused = "wrong name or password" if refused == WRONG else refused
            raise Broken(f"the sign-in as {settings.bind_name} was refused: {refused}")
    return session


def _search_in(session: LdapSession, *, base: str, wanted: str, attributes: tuple[str, ...]) -> list[Entry]:
    return session.search(base, wanted, attributes)


def _place(url: str) -> tuple[str, int]:
    """Host and port of an LDAP URL, as far as it is one."""
    parts = urlsplit(url)
    try:
        return (parts.hostname or "").lower(), parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:
        return "", 0
