"""Look-ups among very many users in real directories: a PostgreSQL and a slapd, asked as one worker asks them.

    python benchmarks/directory_engines.py [--users N] [--asked N] [--only postgresql|ldap]        (1,000,000, 30,000)

Each name is asked for the first time, 64 at once; then again, from memory. Server and worker share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import uvloop

from directory_cache import memory
from gatepost.directory.cached import CachedDirectory
from gatepost.directory.port import Engine
from gatepost.directory.settings import Ages, LdapServer, LdapSettings, SqlKind, SqlSettings
from machine import free_port, memory_of

ADDRESS = "127.0.0.1"
AT_ONCE = 64
HASH = "{SSHA512}" + "x" * 96


@contextmanager
def postgresql(folder: Path, users: int) -> Iterator[tuple[SqlSettings, int]]:
    """A cluster with the users; the settings, and the server's process id."""
    from gatepost.lab.servers.postgresql import SUPERUSER, PostgreSQL

    port = free_port(ADDRESS)
    with PostgreSQL(folder / "postgresql", ADDRESS, port) as server:
        server.execute(
            "CREATE TABLE users (name text, password text, db text);"
            f"INSERT INTO users SELECT 'user' || n || '@contoso.com', '{HASH}', 'DB' || n % 100 "
            f"FROM generate_series(0, {users - 1}) n;"
            "ALTER TABLE users ADD PRIMARY KEY (name); ANALYZE users;"
        )
        query = 'SELECT name, password, db AS "database" FROM users WHERE name = :name'
        hosts = ((ADDRESS, port),)
        yield SqlSettings(SqlKind.POSTGRESQL, hosts, "postgres", query, SUPERUSER, tls=False, connections=8), server.pid


@contextmanager
def ldap(folder: Path, users: int) -> Iterator[tuple[LdapSettings, int]]:
    """A slapd with the users."""
    from gatepost.directory.ldap.mapping import OPENLDAP
    from gatepost.lab.servers.pki import CertificateAuthority
    from gatepost.lab.servers.slapd import ADMIN, ADMIN_PASSWORD, SUFFIX, TOP, Slapd

    server = Slapd(folder / "slapd", ADDRESS, CertificateAuthority.create(folder / "pki").issue("slapd", ADDRESS))
    entry = (
        "dn: cn={0},{1}\nobjectClass: inetOrgPerson\nobjectClass: qmailUser\ncn: {0}\nsn: {0}\nmail: {0}@contoso.com\n"
        "mailDatabase: DB{2}\nuserPassword: {0}\n\n"
    )
    file = folder / "users.ldif"
    with file.open("w") as opened:
        opened.write(TOP)
        opened.writelines(entry.format(f"user{n}", SUFFIX, n % 100) for n in range(users))
    subprocess.run(["slapadd", "-q", "-f", server.configuration, "-l", file], check=True, stderr=subprocess.DEVNULL)
    file.unlink()
    with server:
        mapping = replace(OPENLDAP, database="mailDatabase")
        yield LdapSettings((LdapServer(server.url),), SUFFIX, mapping, ADMIN, ADMIN_PASSWORD), server.pid


async def measure(name: str, settings: SqlSettings | LdapSettings, pid: int, words: argparse.Namespace) -> None:
    """First from the directory, then from memory."""
    from gatepost.directory.ldap.engine import LdapEngine
    from gatepost.directory.sql.engine import SqlEngine

    engine: Engine = SqlEngine(name, settings) if isinstance(settings, SqlSettings) else LdapEngine(name, settings)
    directory = CachedDirectory(name, engine, Ages(positive_seconds=3600.0, users=words.asked))
    names = [f"user{number}@contoso.com" for number in random.sample(range(words.users), words.asked)]
    await directory.ask(names[0])
    before = memory()
    for label in ("asked for the first time", "from memory"):
        began, used = time.perf_counter(), time.process_time()
        waiting = iter(names)

        async def client(waiting: Iterator[str] = waiting) -> None:
            for each in waiting:
                if await directory.ask(each) is None:
                    raise SystemExit(f"{each} was not found")

        await asyncio.gather(*(client() for _ in range(AT_ONCE)))
        took, own = time.perf_counter() - began, time.process_time() - used
        each_us, load = own / words.asked * 1e6, os.getloadavg()[0]
        print(f"{name}, {label}: {words.asked / took:,.0f}/s, {each_us:.0f} µs of the worker each, load {load:.1f}")
    each_name = (memory() - before) * 2**20 / words.asked
    print(f"{name}: {each_name:.0f} B of the worker for each name; the server {memory_of(pid) / 2**20:.0f} MB")
    directory.close()
    await directory.wait_closed()


def main() -> int:
    """Status 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--asked", type=int, default=30_000)
    parser.add_argument("--only", choices=("postgresql", "ldap"))
    words = parser.parse_args()
    for name, server in (("postgresql", postgresql), ("ldap", ldap)):
        if words.only in {None, name}:
            with tempfile.TemporaryDirectory(prefix="gp-engines-", dir="/var/tmp") as folder:
                Path(folder).chmod(0o711)
                began = time.perf_counter()
                with server(Path(folder), words.users) as (settings, pid):
                    print(f"{name}: {words.users:,} users loaded in {time.perf_counter() - began:.0f} s")
                    uvloop.run(measure(name, settings, pid, words))
    return 0


if __name__ == "__main__":
    sys.exit(main())
