"""Signing in at a front door whose users are elsewhere: the same on every engine, through outages and back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from directory_contract import PATIENCE_SECONDS
from doors import FrontDoor, Servers
from ldap_kit import PASSWORD as ANY_PASSWORD
from ldap_kit import SERVICE, SERVICE_PASSWORD, Changing, entry_of, require_python_ldap, running
from look_up_service import TOKEN, LookUpService
from passlib.hash import bcrypt, ldap_salted_sha512, sha512_crypt
from sql_kit import PASSWORD as SQL_PASSWORD
from sql_kit import Database, bring_back, kill

from conftest import StartFrontDoor
from gatepost.directory.port import User
from gatepost.lab.clients import imap_visit, web_visit
from gatepost.lab.servers.mariadb import MariaDB
from gatepost.lab.servers.postgresql import SUPERUSER, PostgreSQL
from gatepost.lab.servers.slapd import SUFFIX
from gatepost.lab.toml_text import Table
from gatepost.routing.decision import Mailbox

ALICE = User("alice@contoso.com", Mailbox("DB01"))
BOB = User("bob@contoso.com", Mailbox("DB02"))
ALIAS = "alice.a@contoso.com"
PASSWORDS = {"alice@contoso.com": "apw", "bob@contoso.com": "bpw"}
OUTAGE_SECONDS = 12.0
"""The longest that somebody unknown waits for "unavailable": one question at its servers, and a busy machine."""


class Backend:
    """An engine's real server with Alice and Bob; `table` is what the configuration says of it."""

    def __init__(self, table: Table, take_away: Callable[[], None], back: Callable[[], None], **more: Any) -> None:
        self.table = {"name": "corp", "positive_seconds": 0.3, "negative_seconds": 0.3} | table
        self.take_away = take_away
        self.bring_back = back
        self.freeze: Callable[[], None] | None = more.get("freeze")
        self.thaw: Callable[[], None] = more.get("thaw", back)


@contextmanager
def _ldap(servers: Servers, tmp_path: Path, _: pytest.FixtureRequest) -> Iterator[Backend]:
    require_python_ldap()
    with running(servers, tmp_path) as server:
        changing = Changing(server)
        changing.put(ALICE, (ALIAS,), PASSWORDS[ALICE.name])
        changing.put(BOB, (), PASSWORDS[BOB.name])
        changing.close()
        secret = _secret(tmp_path, SERVICE_PASSWORD)
        table = {
            "servers": [server.url], "ca": str(servers.authority.certificate), "base": SUFFIX,
            "preset": "openldap-mail", "seconds": 3.0, "try_seconds": 1.0,
            "bind_name": SERVICE, "bind_password_file": secret, "database": "mailDatabase",
        }  # fmt: skip

        def back() -> None:
            server.start()
            server.wait_ready()

        yield Backend({"ldap": table}, server.kill, back, freeze=server.freeze, thaw=server.thaw)


@contextmanager
def _postgresql(servers: Servers, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Backend]:
    server: PostgreSQL = request.getfixturevalue("postgresql")
    database = Database(server)
    table = _sql_table(servers, tmp_path, database, "postgresql", SUPERUSER, "any", sha512_crypt.using(rounds=1000))
    yield Backend({"sql": table}, lambda: kill(server), lambda: bring_back(server))


@contextmanager
def _mariadb(servers: Servers, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Backend]:
    server: MariaDB = request.getfixturevalue("mariadb")
    database = Database(server)
    table = _sql_table(servers, tmp_path, database, "mariadb", "gatepost", SQL_PASSWORD, bcrypt.using(rounds=4))
    away, back = lambda: kill(server), lambda: bring_back(server)
    yield Backend({"sql": table}, away, back, freeze=server.freeze, thaw=server.thaw)


def _sql_table(
    servers: Servers, tmp_path: Path, database: Database, word: str, user: str, password: str, scheme: Any
) -> Table:
    for each, addresses in ((ALICE, (ALIAS,)), (BOB, ())):
        database.put(each, addresses, scheme.hash(PASSWORDS[each.name]))
    return {
        "engine": word, "hosts": [f"{database.server.address}:{database.server.port}"], "database": database.name,
        "user": user, "password_file": _secret(tmp_path, password), "ca": str(servers.authority.certificate),
        "query": database.settings().query, "seconds": 3.0, "try_seconds": 1.0,
    }  # fmt: skip


@contextmanager
def _http(_: Servers, tmp_path: Path, __: pytest.FixtureRequest) -> Iterator[Backend]:
    service = LookUpService()
    service.start()
    for each, addresses in ((ALICE, (ALIAS,)), (BOB, ())):
        service.put(each, addresses)
        for address in (each.name, *addresses):
            service.users[address]["password_hash"] = ldap_salted_sha512.hash(PASSWORDS[each.name])
    table = {"urls": [service.url], "token_file": _secret(tmp_path, TOKEN), "seconds": 3.0, "try_seconds": 1.0}
    yield Backend({"http": table}, service.stop, service.start)
    service.stop()


def _secret(folder: Path, text: str) -> str:
    path = folder / "secret"
    path.touch(mode=0o600)
    path.write_text(text)
    return str(path)


@pytest.fixture(params=[_ldap, _postgresql, _mariadb, _http], ids=["ldap", "postgresql", "mariadb", "http"])
def backend(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Iterator[Backend]:
    with request.param(servers, tmp_path, request) as backend:
        yield backend


@pytest.fixture
def door(start_front_door: StartFrontDoor, servers: Servers, backend: Backend) -> FrontDoor:
    servers.dovecot("MBX-01")  # its web part is at its address
    web = servers.mailbox_web("MBX-01")

    def change(front_end: Table, organization: Table) -> None:
        front_end["directories"] = [backend.table]
        server = organization["servers"]["MBX-01"]
        server["endpoints"]["https"] = {"port": web.port}
        server["sign_in"] |= {"http": "header", "http_header": "X-Remote-User"}

    return start_front_door(change, users=[])


def _imap(door: FrontDoor, name: str, password: str) -> str:
    """The answer's text."""
    return imap_visit(door.addresses["imaps"], door.client_context, name, password).text


def _web(door: FrontDoor, name: str, password: str) -> tuple[int, str]:
    """Status and mailbox server."""
    answer = web_visit(door.addresses["https"], door.client_context, "/owa/", name, password)
    return answer.status, answer.headers.get("x-beserver", "")


def _until_signed_in(door: FrontDoor, name: str, password: str) -> None:
    deadline = time.monotonic() + 2 * PATIENCE_SECONDS
    while not _imap(door, name, password).startswith("signed in"):
        assert time.monotonic() < deadline, "the directory is back, and nobody notices"
        time.sleep(0.2)


def _sign_in_everywhere(door: FrontDoor) -> None:
    for name in ("alice@contoso.com", ALIAS, "alice", "ALICE@Contoso.com"):
        assert _imap(door, name, "apw").startswith("signed in"), name
        assert _web(door, name, "apw") == (200, "MBX-01")
    for name in ("alice@contoso.com", "nobody@contoso.com", '"alice@contoso.com)(mail=*"', "alice'or'1'='1"):
        assert "AUTHENTICATIONFAILED" in _imap(door, name, "wrong"), name
        assert _web(door, name, "wrong")[0] == 401, name


def _outage(door: FrontDoor) -> None:
    """Who was seen before goes on; who was not hears of a fault that is temporary, in bounded time."""
    for _ in range(3):
        began = time.monotonic()
        text = _imap(door, "bob@contoso.com", "bpw")
        assert "AUTHENTICATIONFAILED" not in text
        assert "UNAVAILABLE" in text
        assert time.monotonic() - began < OUTAGE_SECONDS
    assert _web(door, "bob@contoso.com", "bpw")[0] == 503
    assert _imap(door, "alice@contoso.com", "apw").startswith("signed in")
    assert _web(door, "alice@contoso.com", "apw") == (200, "MBX-01")


def test_signing_in_through_outages(door: FrontDoor, backend: Backend) -> None:
    """Killed, hung, and back without a restart; nobody is told that a password is wrong which is right."""
    _sign_in_everywhere(door)
    found = door.command("explain", "alice@contoso.com", "--protocol", "imap")
    assert "MBX-01" in found
    refused = door.command("user", "list", status=1)
    assert "corp" in refused
    time.sleep(0.4)  # what was told of Alice is no longer fresh
    backend.take_away()
    _outage(door)
    backend.bring_back()
    if backend.freeze is None:
        _until_signed_in(door, "bob@contoso.com", "bpw")
        return
    _until_signed_in(door, "alice@contoso.com", "apw")
    time.sleep(0.4)
    backend.freeze()
    try:
        _outage(door)
    finally:
        backend.thaw()
    _until_signed_in(door, "bob@contoso.com", "bpw")


def test_a_wrong_password_is_wrong_and_a_changed_one_counts(
    start_front_door: StartFrontDoor, servers: Servers, tmp_path: Path
) -> None:
    """LDAP: the entry changes with the password, so what was right before is not."""
    require_python_ldap()
    with running(servers, tmp_path) as server:
        changing = Changing(server)
        changing.add(f"cn=alice,{SUFFIX}", entry_of(ALICE, (), ANY_PASSWORD))
        table = {
            "servers": [server.tls_url], "ca": str(servers.authority.certificate), "base": SUFFIX,
            "bind_name": SERVICE, "bind_password_file": _secret(tmp_path, SERVICE_PASSWORD), "database": "mailDatabase",
        }  # fmt: skip

        def change(front_end: Table, _: Table) -> None:
            front_end["directories"] = [{"name": "corp", "positive_seconds": 0.2, "ldap": table}]

        door = start_front_door(change, users=[])
        assert _imap(door, "alice", ANY_PASSWORD).startswith("signed in")
        changing.replace(f"cn=alice,{SUFFIX}", "userPassword", "another")
        changing.close()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while "AUTHENTICATIONFAILED" not in _imap(door, "alice", ANY_PASSWORD):
            assert time.monotonic() < deadline, "the old password stays right"
            time.sleep(0.1)
        assert _imap(door, "alice", "another").startswith("signed in")
