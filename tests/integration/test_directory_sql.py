"""Users in a real PostgreSQL and a real MariaDB: the directory's contract, and what is SQL's own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from directory_contract import ANNA, OTTO, PATIENCE_SECONDS, DirectoryContract
from sql_kit import Database, bring_back, kill

from gatepost.directory.cached import CachedDirectory
from gatepost.directory.port import User
from gatepost.lab.servers.mariadb import MariaDB
from gatepost.lab.servers.postgresql import PostgreSQL


class SqlOfATest:
    """See `directory_contract.Engine`."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.directory: CachedDirectory = database.opened()

    def put(self, user: User, addresses: tuple[str, ...] = ()) -> None:
        self.database.put(user, addresses)

    def remove(self, name: str) -> None:
        self.database.remove(name)

    def take_away(self) -> None:
        kill(self.database.server)

    def bring_back(self) -> None:
        bring_back(self.database.server)


async def _engine(server: PostgreSQL | MariaDB) -> AsyncIterator[SqlOfATest]:
    engine = SqlOfATest(Database(server))
    engine.put(ANNA, ("sales@contoso.com",))
    engine.put(OTTO)
    yield engine
    engine.directory.close()
    await engine.directory.wait_closed()


class TestPostgresqlDirectory(DirectoryContract):
    seen_seconds = PATIENCE_SECONDS

    @pytest.fixture
    async def engine(self, postgresql: PostgreSQL) -> AsyncIterator[SqlOfATest]:
        async for engine in _engine(postgresql):
            yield engine


class TestMariadbDirectory(DirectoryContract):
    seen_seconds = PATIENCE_SECONDS

    @pytest.fixture
    async def engine(self, mariadb: MariaDB) -> AsyncIterator[SqlOfATest]:
        async for engine in _engine(mariadb):
            yield engine
