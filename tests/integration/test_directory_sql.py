"""Users in a real PostgreSQL and a real MariaDB: the directory's contract, and what is SQL's own."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from directory_contract import ANNA, OTTO, PATIENCE_SECONDS, DirectoryContract
from doors import Servers
from ldap_kit import QUICK
from sql_kit import NOTIFY, Database, bring_back, kill

from gatepost.directory.cached import CachedDirectory
from gatepost.directory.port import DirectoryUnavailable, User
from gatepost.directory.settings import Ages, SqlSettings
from gatepost.lab.servers.mariadb import MariaDB
from gatepost.lab.servers.pki import CertificateAuthority
from gatepost.lab.servers.postgresql import PostgreSQL
from gatepost.routing.decision import Mailbox


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


# --- both databases


@pytest.fixture(params=["postgresql", "mariadb"])
def database(request: pytest.FixtureRequest) -> Database:
    return Database(request.getfixturevalue(request.param))


@asynccontextmanager
async def _directory(database: Database, settings: SqlSettings, ages: Ages = QUICK) -> AsyncIterator[CachedDirectory]:
    directory = database.opened(settings, ages)
    yield directory
    directory.close()
    await directory.wait_closed()


async def test_tls_is_verified(database: Database, servers: Servers) -> None:
    database.put(ANNA)
    ca = servers.authority.certificate.read_bytes()
    async with _directory(database, database.settings(tls=True, ca=ca)) as directory:
        assert await directory.ask("anna@contoso.com") == ANNA
    stranger = CertificateAuthority.create(servers.scratch / "stranger").certificate.read_bytes()
    async with _directory(database, database.settings(tls=True, ca=stranger)) as directory:
        with pytest.raises(DirectoryUnavailable):
            await directory.ask("anna@contoso.com")


async def test_the_second_host_answers_where_the_first_says_nothing(database: Database) -> None:
    """The first accepts and is silent; only the first who asks waits for it."""
    database.put(ANNA)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = (("127.0.0.1", silent.getsockname()[1]), (database.server.address, database.server.port))
        settings = database.settings(hosts=hosts, try_seconds=0.7)
        async with _directory(database, settings) as directory:
            assert await directory.ask("anna@contoso.com") == ANNA
            began = time.monotonic()
            for number in range(30):
                assert await directory.ask(f"nobody{number}@contoso.com") is None
            assert time.monotonic() - began < PATIENCE_SECONDS


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 4096])
async def test_what_is_no_database_is_an_outage(database: Database, answer: bytes) -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    hosts = (("127.0.0.1", server.sockets[0].getsockname()[1]),)
    async with _directory(database, database.settings(hosts=hosts)) as directory:
        with pytest.raises(DirectoryUnavailable):
            await directory.ask("anna@contoso.com")
    server.close()
    await server.wait_closed()


async def test_a_server_that_hangs_is_given_up_and_taken_up_again(database: Database) -> None:
    """The worker's threads come free, though nobody on the other side says a word."""
    database.put(ANNA)
    server = database.server
    settings = database.settings(try_seconds=0.7, seconds=2.0, connections=2)
    async with _directory(database, settings) as directory:
        assert await directory.ask("anna@contoso.com") == ANNA
        stopped = _freeze(server)
        try:
            await asyncio.sleep(0.15)
            assert await directory.ask("anna@contoso.com") == ANNA, "as it was last"
            for number in range(10):
                with pytest.raises(DirectoryUnavailable):
                    await directory.ask(f"nobody{number}@contoso.com")
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                assert await directory.ask("nobody@contoso.com") is None
                break
            except DirectoryUnavailable:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)


def _freeze(server: PostgreSQL | MariaDB) -> list[int]:
    """Stop a server's processes where they are; which ones."""
    pids = [server.pid]
    with suppress(FileNotFoundError):
        pids += [int(pid) for pid in Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    return pids


async def test_a_wrong_query_is_an_outage_and_says_why(database: Database) -> None:
    settings = database.settings(query="SELECT no_such_column FROM users WHERE name = :name")
    async with _directory(database, settings) as directory:
        with pytest.raises(DirectoryUnavailable, match="no_such_column"):
            await directory.ask("anna@contoso.com")


async def test_two_rows_are_nobody(database: Database) -> None:
    database.put(ANNA)
    query = "SELECT 'DB01' AS home_server FROM users, (SELECT 1 UNION SELECT 2) two WHERE name = :name"
    settings = database.settings(query=query)
    async with _directory(database, settings) as directory:
        assert await directory.ask("anna@contoso.com") is None


async def test_a_row_of_a_name_that_only_looks_the_same_is_not_taken(mariadb: MariaDB) -> None:
    database = Database(mariadb)
    database.put(replace(ANNA, name="ánna@contoso.com"))
    async with _directory(database, database.settings()) as directory:
        assert await directory.ask("anna@contoso.com") is None
        assert await directory.ask("ánna@contoso.com") is not None


# --- PostgreSQL


async def test_the_trigger_of_the_documentation_tells(postgresql: PostgreSQL) -> None:
    database = Database(postgresql)
    database.put(ANNA)
    page = (Path(__file__).parents[2] / "docs" / "directories.md").read_text(encoding="utf-8")
    database.run(page.partition("```sql\n")[2].partition("```")[0])
    long = Ages(positive_seconds=3600.0, negative_seconds=3600.0)
    async with _directory(database, database.settings(notify=NOTIFY), long) as directory:
        told = asyncio.Event()
        directory.on_change(told.set)
        await asyncio.wait_for(told.wait(), PATIENCE_SECONDS)
        assert await directory.ask("anna@contoso.com") == ANNA
        told.clear()
        database.run("UPDATE users SET db = 'DB02';")
        await asyncio.wait_for(told.wait(), PATIENCE_SECONDS)
        assert await directory.ask("anna@contoso.com") == replace(ANNA, mailbox=Mailbox("DB02"))


async def test_a_notification_makes_answers_void_at_once(postgresql: PostgreSQL) -> None:
    """Also after the listener's connection was lost: what was missed then is not known, so everything is void."""
    database = Database(postgresql)
    database.put(ANNA, ("sales@contoso.com",))
    long = Ages(positive_seconds=3600.0, negative_seconds=3600.0)
    async with _directory(database, database.settings(notify=NOTIFY), long) as directory:
        told = asyncio.Event()
        directory.on_change(told.set)
        await asyncio.wait_for(told.wait(), PATIENCE_SECONDS)  # it listens
        for name, wanted in (("DB02", "anna@contoso.com"), ("DB03", "")):
            assert await directory.ask("sales@contoso.com") is not None
            database.put(replace(ANNA, mailbox=Mailbox(name)), ("sales@contoso.com",))
            told.clear()
            database.tell(wanted)
            await asyncio.wait_for(told.wait(), PATIENCE_SECONDS)
            found = await directory.ask("sales@contoso.com")
            assert found is not None
            assert found.mailbox == Mailbox(name)
        told.clear()
        database.server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%';")
        await asyncio.wait_for(told.wait(), PATIENCE_SECONDS)
        database.put(replace(ANNA, mailbox=Mailbox("DB04")))
        told.clear()
        database.tell("anna@contoso.com")
        await asyncio.wait_for(told.wait(), PATIENCE_SECONDS)
        found = await directory.ask("anna@contoso.com")
        assert found is not None
        assert found.mailbox == Mailbox("DB04")
