"""Each engine's real server with users in it, for whole front doors and hubs before it.

    with backend("ldap", servers, tmp_path, request) as found:
        found.put(ALICE, (ALIAS,), "apw")          # adds or replaces
        found.configure(front_end)                 # in `change` of `doors.start`, or in the settings of a hub
        found.take_away(), found.bring_back()      # as a power cut would

The engines are `ENGINES`; `file` is the embedded one.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from doors import Servers
from ldap_kit import SERVICE, SERVICE_PASSWORD, Changing, require_python_ldap, running
from look_up_service import TOKEN, LookUpService
from passlib.hash import argon2, bcrypt, ldap_salted_sha512, sha512_crypt
from sql_kit import PASSWORD as SQL_PASSWORD
from sql_kit import Database, bring_back, kill

from gatepost.directory.editing import DirectoryEditor, Entry, UnknownUser
from gatepost.directory.port import User
from gatepost.lab.servers.postgresql import SUPERUSER
from gatepost.lab.servers.slapd import SUFFIX, Slapd
from gatepost.lab.toml_text import Table

AGE_SECONDS = 0.3
"""How long answers are good here, so that changes are seen in a test's time."""
TIMES = {"seconds": 3.0, "try_seconds": 1.0}


class Backend:
    """One engine's server. `table` is its entry of `[[front_end.directories]]`."""

    table: Table
    freeze: Callable[[], None] | None = None
    """Have it stand still; None: it cannot."""
    thaw: Callable[[], None]

    def configure(self, front_end: Table) -> None:
        """Have this front end or hub ask it."""
        ages = {"positive_seconds": AGE_SECONDS, "negative_seconds": AGE_SECONDS}
        front_end["directories"] = [{"name": "corp"} | ages | self.table]

    def put(self, user: User, addresses: tuple[str, ...] = (), password: str = "") -> None:
        """Add this user, or put them in the place of who has the name. An empty password stays what it was."""
        raise NotImplementedError

    def take_away(self) -> None:
        """End it as a power cut would."""
        raise NotImplementedError

    def bring_back(self) -> None:
        """Start it again with the same users."""
        raise NotImplementedError


class FileBackend(Backend):
    """The embedded file, of the one front end that is configured with it."""

    def __init__(self) -> None:
        self.path = Path()
        self._users: list[tuple[User, tuple[str, ...], str]] = []

    def configure(self, front_end: Table) -> None:
        self.path = Path(front_end["directory"])
        for user, addresses, password in self._users:
            self.put(user, addresses, password)

    def put(self, user: User, addresses: tuple[str, ...] = (), password: str = "") -> None:
        if self.path == Path():
            self._users.append((user, addresses, password))
            return
        with DirectoryEditor(str(self.path)) as editor:
            hashed = argon2.using(rounds=1, memory_cost=1024).hash(password) if password else ""
            with suppress(UnknownUser):
                hashed = hashed or editor.get(user.name).user.password_hash
                editor.remove(user.name)
            editor.add(Entry(replace(user, password_hash=hashed), addresses))

    def take_away(self) -> None:
        self.path.rename(self._aside)

    def bring_back(self) -> None:
        self._aside.rename(self.path)

    @property
    def _aside(self) -> Path:
        return self.path.with_suffix(".aside")


class LdapBackend(Backend):
    """OpenLDAP with the preset `openldap-mail`, by STARTTLS; it judges passwords."""

    def __init__(self, server: Slapd, table: Table) -> None:
        self.server = server
        self.table = {"ldap": table}
        self.freeze, self.thaw, self.take_away = server.freeze, server.thaw, server.kill  # type: ignore[method-assign]
        self._passwords: dict[str, str] = {}

    def put(self, user: User, addresses: tuple[str, ...] = (), password: str = "") -> None:
        password = self._passwords[user.name] = password or self._passwords[user.name]
        changing = Changing(self.server)
        changing.put(user, addresses, password)
        changing.close()

    def bring_back(self) -> None:
        self.server.start()
        self.server.wait_ready()


class SqlBackend(Backend):
    """PostgreSQL or MariaDB, with hashes in the rows."""

    def __init__(self, database: Database, table: Table, scheme: Any) -> None:
        self.database = database
        self.table = {"sql": table}
        self._scheme = scheme
        self._hashes: dict[str, str] = {}
        self.freeze, self.thaw = partial(self._signal, signal.SIGSTOP), partial(self._signal, signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """To the server and its children: PostgreSQL's are no part of its process group."""
        pid = self.database.server.pid
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        for each in (pid, *children):
            with suppress(ProcessLookupError):
                os.kill(each, number)

    def put(self, user: User, addresses: tuple[str, ...] = (), password: str = "") -> None:
        if password:
            self._hashes[user.name] = self._scheme.hash(password)
        self.database.put(user, addresses, self._hashes[user.name])

    def take_away(self) -> None:
        kill(self.database.server)

    def bring_back(self) -> None:
        bring_back(self.database.server)


class HttpBackend(Backend):
    """A look-up service that tells hashes."""

    def __init__(self, service: LookUpService, table: Table) -> None:
        self.service = service
        self.table = {"http": table}
        self.take_away, self.bring_back = service.stop, service.start  # type: ignore[method-assign]
        self.freeze, self.thaw = service.going.clear, service.going.set

    def put(self, user: User, addresses: tuple[str, ...] = (), password: str = "") -> None:
        before = self.service.users.get(user.name, {}).get("password_hash", "")
        self.service.put(
            replace(user, password_hash=ldap_salted_sha512.hash(password) if password else before), addresses
        )


def secret(folder: Path, text: str) -> str:
    """A file that only its owner reads."""
    path = folder / "secret"
    path.touch(mode=0o600)
    path.write_text(text)
    return str(path)


@contextmanager
def _file(*_: object) -> Iterator[Backend]:
    yield FileBackend()


@contextmanager
def _ldap(servers: Servers, folder: Path, _: pytest.FixtureRequest) -> Iterator[Backend]:
    require_python_ldap()
    with running(servers, folder) as server:
        yield LdapBackend(
            server,
            {
                "servers": [server.url], "ca": str(servers.authority.certificate), "base": SUFFIX,
                "preset": "openldap-mail", "bind_name": SERVICE, "bind_password_file": secret(folder, SERVICE_PASSWORD),
                "database": "mailDatabase", "protocols": "mailProtocols",
            }
            | TIMES,
        )  # fmt: skip


@contextmanager
def _postgresql(servers: Servers, folder: Path, request: pytest.FixtureRequest) -> Iterator[Backend]:
    database = Database(request.getfixturevalue("postgresql"))
    table = _sql_table(servers, folder, database, "postgresql", SUPERUSER, "any")
    yield SqlBackend(database, table, sha512_crypt.using(rounds=1000))


@contextmanager
def _mariadb(servers: Servers, folder: Path, request: pytest.FixtureRequest) -> Iterator[Backend]:
    database = Database(request.getfixturevalue("mariadb"))
    table = _sql_table(servers, folder, database, "mariadb", "gatepost", SQL_PASSWORD)
    yield SqlBackend(database, table, bcrypt.using(rounds=4))


def _sql_table(servers: Servers, folder: Path, database: Database, word: str, user: str, password: str) -> Table:
    return {
        "engine": word, "hosts": [f"{database.server.address}:{database.server.port}"], "database": database.name,
        "user": user, "password_file": secret(folder, password), "ca": str(servers.authority.certificate),
        "query": database.settings().query,
    } | TIMES  # fmt: skip


@contextmanager
def _http(_: Servers, folder: Path, __: pytest.FixtureRequest) -> Iterator[Backend]:
    service = LookUpService()
    service.start()
    yield HttpBackend(service, {"urls": [service.url], "token_file": secret(folder, TOKEN)} | TIMES)
    service.stop()


_MAKERS: dict[str, Callable[[Servers, Path, pytest.FixtureRequest], AbstractContextManager[Backend]]] = {
    "file": _file,
    "ldap": _ldap,
    "postgresql": _postgresql,
    "mariadb": _mariadb,
    "http": _http,
}
ENGINES = tuple(_MAKERS)
ELSEWHERE = ENGINES[1:]
"""Those that are another process."""


def backend(
    engine: str, servers: Servers, folder: Path, request: pytest.FixtureRequest
) -> AbstractContextManager[Backend]:
    """The engine's server, started, without users. `request` is for the servers that a whole run shares."""
    own = folder / engine
    own.mkdir(exist_ok=True)
    os.chmod(own, 0o711)
    return _MAKERS[engine](servers, own, request)
