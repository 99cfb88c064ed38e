"""Users in a real PostgreSQL and MariaDB, for tests: one server of each a run, a database of its own for each test."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from doors import Servers, missing
from ldap_kit import QUICK

from gatepost.directory.cached import CachedDirectory
from gatepost.directory.port import User
from gatepost.directory.settings import Ages, SqlKind, SqlSettings
from gatepost.lab.servers.mariadb import MariaDB
from gatepost.lab.servers.postgresql import ACCOUNT, SUPERUSER, PostgreSQL
from gatepost.lab.servers.process import ServerMissing, ServerNotStarted, free_ports
from gatepost.organization.model import CLIENT_PROTOCOLS

QUERY = (
    'SELECT a.address, u.name, u.password, u.db AS "database", u.home_server, u.protocols, u.disabled, '
    "u.login_at_server "
    "FROM addresses a JOIN users u ON u.id = a.user_id WHERE a.address = :name"
)
TABLES = (
    "CREATE TABLE users (id {serial}, name varchar(320) NOT NULL, password varchar(1024) NOT NULL DEFAULT '', "
    "db varchar(64), home_server varchar(64), protocols varchar(200), disabled smallint NOT NULL DEFAULT 0, "
    "login_at_server varchar(320));"
    "CREATE TABLE addresses (address varchar(320) PRIMARY KEY, user_id integer NOT NULL);"
)
NOTIFY = "gatepost_users"
PASSWORD = "secret-of-the-service"
_numbers = itertools.count(1)


def quoted(text: str | None) -> str:
    """A text as both databases take it in a test's statement."""
    return "NULL" if text is None else "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


class Database:
    """A database of a test's own: PostgreSQL's or MariaDB's. See `directory_contract.Engine`."""

    def __init__(self, server: PostgreSQL | MariaDB) -> None:
        self.server = server
        self.name = f"users{next(_numbers)}"
        self.is_postgresql = isinstance(server, PostgreSQL)
        server.execute(f"CREATE DATABASE {self.name};")
        serial = "serial PRIMARY KEY" if self.is_postgresql else "integer AUTO_INCREMENT PRIMARY KEY"
        self.run(TABLES.format(serial=serial))
        if not self.is_postgresql:
            made = f"CREATE USER IF NOT EXISTS gatepost IDENTIFIED BY '{PASSWORD}';"
            self.run(f"{made} GRANT SELECT ON {self.name}.* TO gatepost;")

    def run(self, statements: str) -> str:
        return self.server.execute(statements, database=self.name)

    def settings(self, *servers: PostgreSQL | MariaDB, **more: Any) -> SqlSettings:
        """Settings for this database, at these servers or its own."""
        given: dict[str, Any] = {
            "kind": SqlKind.POSTGRESQL if self.is_postgresql else SqlKind.MARIADB,
            "hosts": tuple((server.address, server.port) for server in servers or (self.server,)),
            "database": self.name,
            "query": QUERY if self.is_postgresql else QUERY.replace('"', "`"),
            "user": SUPERUSER if self.is_postgresql else "gatepost",
            "password": "" if self.is_postgresql else PASSWORD,
            "tls": False,
            "seconds": 6.0,
            "try_seconds": 1.5,
        }
        return SqlSettings(**given | more)

    def opened(self, settings: SqlSettings | None = None, ages: Ages = QUICK) -> CachedDirectory:
        """The directory of these settings. Close it, and wait for that."""
        from gatepost.directory.sql.engine import SqlEngine

        return CachedDirectory("mail", SqlEngine("mail", settings or self.settings()), ages, probe_seconds=0.1)

    def put(self, user: User, addresses: tuple[str, ...] = (), password: str | None = None) -> None:
        words = " ".join(p.value for p in CLIENT_PROTOCOLS if p in user.protocols)
        values = [user.name, user.password_hash if password is None else password, user.mailbox.database]
        values += [user.mailbox.home_server, words]
        rows = ", ".join(
            f"({quoted(a)}, (SELECT id FROM users WHERE name = {quoted(user.name)}))" for a in (user.name, *addresses)
        )
        self.run(
            f"{self._removal(user.name)} INSERT INTO users (name, password, db, home_server, protocols, disabled, "
            f"login_at_server) VALUES ({', '.join(map(quoted, values))}, {int(user.disabled)}, "
            f"{quoted(user.login_at_server or None)}); INSERT INTO addresses VALUES {rows};"
        )

    def _removal(self, name: str) -> str:
        where = f"FROM users WHERE name = {quoted(name)}"
        return f"DELETE FROM addresses WHERE user_id IN (SELECT id {where}); DELETE {where};"

    def remove(self, name: str) -> None:
        self.run(self._removal(name))

    def tell(self, name: str = "") -> None:
        self.run(f"SELECT pg_notify('{NOTIFY}', {quoted(name)});")


def kill(server: PostgreSQL | MariaDB) -> None:
    """End it as a power cut would."""
    if isinstance(server, MariaDB):
        server.kill()
        return
    os.killpg(server.pid, signal.SIGKILL)
    server.wait(10.0)
    server.stop()


def bring_back(server: PostgreSQL | MariaDB) -> None:
    server.start()
    server.wait_ready()
    for _ in range(200):  # it accepts before it has recovered
        try:
            server.execute("SELECT 1;")
            return
        except ServerNotStarted:
            server.wait(0.05)
    raise AssertionError("it does not come back")


def _certified(servers: Servers, address: str, what: str) -> Any:
    return servers.authority.issue(f"{what}-{address}", "sql.contoso.com", address)


@pytest.fixture(scope="session")
def postgresql(servers: Servers) -> Iterator[PostgreSQL]:
    """A PostgreSQL that offers TLS too."""
    address = servers.address()
    try:
        server = PostgreSQL(servers.scratch / f"postgresql-{address}", address, free_ports(address, 1)[0])
    except ServerMissing as error:
        missing(error)
    files = _certified(servers, address, "postgresql")
    key = server.directory / "server.key"
    shutil.copy(files.private_key, key)
    key.chmod(0o600)
    if os.geteuid() == 0:
        shutil.chown(key, ACCOUNT, ACCOUNT)
    server.argv += [
        "-c",
        "synchronous_commit=on",
        "-c",
        "ssl=on",
        "-c",
        f"ssl_cert_file={files.certificate}",
        "-c",
        f"ssl_key_file={key}",
    ]
    with server:
        yield server


@pytest.fixture(scope="session")
def mariadb(servers: Servers) -> Iterator[MariaDB]:
    """A MariaDB that offers TLS too."""
    address = servers.address()
    files = _certified(servers, address, "mariadb")
    try:
        server = MariaDB(servers.scratch / f"mariadb-{address}", address, free_ports(address, 1)[0], certificate=files)
    except ServerMissing as error:
        missing(error)
    with server:
        yield server
