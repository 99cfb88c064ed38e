"""The SQL engine: a query for each name, password hashes from its rows; PostgreSQL tells of changes by NOTIFY."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from typing import Protocol as Port

import structlog

from gatepost.directory.pool import Broken, Pool, Session
from gatepost.directory.port import User
from gatepost.directory.settings import SqlKind, SqlSettings
from gatepost.directory.sql.query import BadRow, parameters, read_query, user_of

LISTEN_AGAIN_SECONDS = 1.0
"""After a listener's connection was lost, until the next host is tried."""
MAX_PAYLOAD = 320
"""A notification that is no name makes all answers stale."""


class SqlSession(Session, Port):
    """A session that answers queries."""

    def rows(self, query: str, parameters: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        """The first two rows. Raises `Broken`, `DirectoryUnavailable`."""
        ...


class SqlEngine:
    """See `directory.port.Engine`. Belongs to the loop it is made in."""

    def __init__(self, name: str, settings: SqlSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._settings = settings
        self._query = read_query(settings.query).text
        connect = {f"{host}:{port}": partial(_connect, settings, host, port) for host, port in settings.hosts}
        self._pool: Pool[SqlSession] = Pool(
            f"directory {name}",
            connect,
            threads=settings.connections,
            seconds=settings.seconds,
            try_seconds=settings.try_seconds,
            clock=clock,
        )
        self._invalid: list[Callable[[str], None]] = []
        self._loop = asyncio.get_running_loop()
        self._ended = threading.Event()
        self._listener: threading.Thread | None = None
        self._log = structlog.get_logger("gatepost")

    async def find(self, canonical_name: str) -> User | None:
        """See `Engine`."""
        bound = parameters(canonical_name)
        if bound is None:
            return None
        rows = await self._pool.run(lambda session: session.rows(self._query, bound))
        if not rows:
            return None
        if len(rows) > 1:
            self._log.error("directory.ambiguous", directory=self._name, reason=f"two rows for {canonical_name}")
            return None
        try:
            user, wrong = user_of(rows[0], canonical_name, allow_plain=self._settings.allow_plain)
        except BadRow as fault:
            self._log.error("directory.no_user", directory=self._name, reason=str(fault))
            return None
        if wrong:
            self._log.error("directory.bad_user", directory=self._name, reason=wrong)
        return user

    async def opens(self, user: User, tries: tuple[bytes, ...]) -> bool:  # noqa: ARG002
        """See `Engine`: hashes come with the users, so nobody is judged here."""
        return False

    def on_invalid(self, callback: Callable[[str], None]) -> None:
        """See `Engine`."""
        self._invalid.append(callback)
        if self._settings.notify and self._listener is None:
            self._listener = threading.Thread(target=self._listen, name=f"listen {self._name}", daemon=True)
            self._listener.start()

    async def close(self) -> None:
        """See `Engine`."""
        self._ended.set()
        await self._pool.close()
        if self._listener is not None:
            await asyncio.to_thread(self._listener.join)

    def _listen(self) -> None:
        """In a thread of its own: one host after the other, for as long as its connection lasts."""
        from gatepost.directory.sql.postgresql import listen

        while not self._ended.is_set():
            for host, port in self._settings.hosts:
                listening, told = partial(self._tell, ""), self._tell  # what was missed is not known
                try:
                    listen(self._settings, host, port, listening, told, self._ended.is_set)
                except Broken as fault:
                    self._log.warning("directory.not_told", directory=self._name, reason=str(fault))
                if self._ended.wait(LISTEN_AGAIN_SECONDS):
                    return

    def _tell(self, payload: str) -> None:
        name = payload.strip() if len(payload) <= MAX_PAYLOAD else ""
        try:
            self._loop.call_soon_threadsafe(self._told, name)
        except RuntimeError:  # the loop has ended
            self._ended.set()

    def _told(self, name: str) -> None:
        for callback in self._invalid:
            callback(name)


def _connect(settings: SqlSettings, host: str, port: int) -> SqlSession:
    if settings.kind is SqlKind.POSTGRESQL:
        from gatepost.directory.sql.postgresql import PostgresqlSession

        return PostgresqlSession(settings, host, port)
    from gatepost.directory.sql.mariadb import MariadbSession

    return MariadbSession(settings, host, port)
