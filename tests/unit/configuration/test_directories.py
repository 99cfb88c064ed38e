"""`[[front_end.directories]]`: what it builds, what it refuses, and that the recipes of the documentation are right."""

from __future__ import annotations

import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gatepost.configuration.directories import build_directories
from gatepost.configuration.directory_schema import DirectoryTable
from gatepost.configuration.document import Document, Findings
from gatepost.configuration.files import Files
from gatepost.directory.ldap.mapping import Login
from gatepost.directory.settings import Ages, DirectorySettings, SqlKind

PAGE = Path(__file__).parents[3] / "docs" / "directories.md"
RECIPES = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
CA = b""


def _build(text: str) -> tuple[tuple[DirectorySettings, ...], list[str]]:
    """The directories of a file, and the findings; files that are named hold a secret."""
    data: dict[str, Any] = tomllib.loads(text)
    tables = [DirectoryTable.model_validate(table) for table in data["front_end"]["directories"]]
    document = Document("gatepost.toml", data, text.encode())
    findings = Findings()
    files = Files(lambda _: b"secret\n", findings, datetime(2026, 11, 30, tzinfo=UTC))
    built = build_directories(document, tables, files, None)
    return built, [str(found) for found in findings.found]


def _ldap(more: str = "", name: str = "corp") -> str:
    base = "" if re.search(r"(?m)^base =", more) else 'base = "OU=People,DC=Contoso,DC=com"\n'
    servers = "" if re.search(r"(?m)^servers =", more) else 'servers = ["ldaps://dc-01.contoso.com"]\n'
    database = "" if "preset =" in more or "database" in more else 'database = "mailDatabase"\n'
    head = f'[[front_end.directories]]\nname = "{name}"\n[front_end.directories.ldap]\n'
    return f"{head}{base}{servers}{database}{more}\n"


def _sql(more: str = "") -> str:
    given = {
        "engine": '"postgresql"',
        "hosts": '["db-01"]',
        "database": '"mail"',
        "query": '"SELECT 1 FROM users WHERE name = :name"',
    }
    lines = [f"{key} = {value}" for key, value in given.items() if f"{key} =" not in more]
    return '[[front_end.directories]]\nname = "mail"\n[front_end.directories.sql]\n' + "\n".join([*lines, more])


def _http(more: str = "") -> str:
    urls = "" if "urls =" in more else 'urls = ["https://users.contoso.com/look-up"]\n'
    return f'[[front_end.directories]]\nname = "web"\n[front_end.directories.http]\n{urls}{more}\n'


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_are_right(recipe: str) -> None:
    """Nothing is found but that our stand-ins for files are no certificates."""
    built, found = _build(recipe)
    assert built
    assert [text for text in found if "authorities' file" not in text] == []


def test_there_are_recipes_for_every_engine() -> None:
    built = [directory for recipe in RECIPES for directory in _build(recipe)[0]]
    assert any(directory.ldap for directory in built)
    assert {directory.sql.kind for directory in built if directory.sql} == set(SqlKind)
    assert any(directory.http for directory in built)
    assert any(directory.is_file for directory in built)


def test_a_preset_is_what_is_not_written() -> None:
    (corp,), found = _build(_ldap('preset = "active-directory"\nnetbios_domain = "CONTOSO"'))
    assert found == []
    assert corp.ldap is not None
    mapping = corp.ldap.mapping
    assert mapping.database == "homeMDB"
    assert mapping.account_domains == ("contoso.com",)
    assert Login("proxyAddresses", "smtp:{address}") in mapping.logins
    assert corp.ages == Ages()


def test_what_is_written_wins_and_an_empty_text_leaves_out() -> None:
    more = (
        'preset = "active-directory"\ndatabase = "mailDatabase"\nhome_server = ""\n'
        'login_attributes = ["mail", "uid={account}"]\n'
        'account_domains = ["Example.ORG"]\npassword_version = ""\ndisabled = "status"\ndisabled_values = ["GONE"]'
    )
    (corp,), found = _build(_ldap(more))
    assert found == []
    assert corp.ldap is not None
    mapping = corp.ldap.mapping
    assert (mapping.database, mapping.home_server, mapping.version) == ("mailDatabase", "", "")
    assert mapping.logins == (Login("mail"), Login("uid", "{account}"))
    assert mapping.account_domains == ("example.org",)
    assert (mapping.disabled, mapping.disabled_bit, mapping.disabled_values) == ("status", 0, ("gone",))


def test_ldap_urls_are_starttls_unless_clear_is_written() -> None:
    (corp,), _ = _build(_ldap('servers = ["ldap://dc-01", "ldaps://dc-02:6360/"]'))
    assert corp.ldap is not None
    assert [(server.url, server.starttls) for server in corp.ldap.servers] == [
        ("ldap://dc-01", True), ("ldaps://dc-02:6360", False),
    ]  # fmt: skip
    (corp,), found = _build(_ldap('servers = ["ldap://127.0.0.1"]\ntls = "clear"'))
    assert found == []
    assert corp.ldap is not None
    assert not corp.ldap.servers[0].starttls


def test_hosts_have_their_usual_port() -> None:
    (mail,), found = _build(_sql('hosts = ["db-01", "db-02:5433", "[::1]:5434", "2001:db8::1"]'))
    assert found == []
    assert mail.sql is not None
    assert mail.sql.hosts == (("db-01", 5432), ("db-02", 5433), ("::1", 5434), ("2001:db8::1", 5432))
    assert mail.sql.tls
    (mail,), _ = _build(_sql('engine = "mariadb"'))
    assert mail.sql is not None
    assert mail.sql.hosts == (("db-01", 3306),)


def test_an_entry_with_nothing_is_the_file() -> None:
    (local,), found = _build('[[front_end.directories]]\nname = "local"\ndomains = ["Contoso.COM."]')
    assert found == []
    assert local.is_file
    assert local.domains == ("contoso.com",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_ldap("servers = []"), "no LDAP server"),
        (_ldap('servers = ["https://dc-01"]'), "is no URL of an LDAP server"),
        (_ldap('servers = ["ldap://dc-01/dc=contoso"]'), "is no URL of an LDAP server"),
        (_ldap('servers = ["ldap://dc-01:x"]'), "is no URL of an LDAP server"),
        (_ldap('servers = ["ldaps://a", "ldaps://a/"]'), "is there twice"),
        (_ldap('servers = ["ldap://dc-01"]\ntls = "clear"'), "in clear text"),
        (_ldap('base = ""'), "no entry to search below"),
        (_ldap('filter = "objectClass=user"'), "not in parentheses"),
        (_ldap('bind_name = "cn=x"'), "no password"),
        (_ldap('bind_password_file = "secret"'), "no account"),
        (_ldap('login_attributes = ["mail)(x"]'), "does not begin with an attribute's name"),
        (_ldap('login_attributes = ["uid=anna"]'), "holds none of"),
        (_ldap('login_attributes = ["uid={user}"]'), "no other braces"),
        (_ldap("login_attributes = []"), "no attribute to look for names in"),
        (_ldap('database = "x)(y"'), "is no attribute's name"),
        (_ldap('preset = "openldap"'), "nothing says which database"),
        (_ldap("try_seconds = 9.0"), "no second server is ever asked"),
        (_sql("hosts = []"), "no database server"),
        (_sql('hosts = ["db/x"]'), "is no host"),
        (_sql('hosts = ["a", "a:5432"]'), "is there twice"),
        (_sql('tls = "clear"'), "in clear text"),
        (_sql('query = "SELECT 1"'), "everybody would be the same user"),
        (_sql('engine = "mariadb"\nnotify = "x"'), "only PostgreSQL tells"),
        (_sql("allow_plain_passwords = true"), "stored as they are"),
        (_http("urls = []"), "no URL to ask"),
        (_http('urls = ["http://users.contoso.com/"]'), "in clear text"),
        (_http('urls = ["users"]'), "the URL"),
        (_http('check_path = "check"'), "is no path"),
        (_ldap() + _ldap(), "two directories are called"),
        (_ldap(name=""), "without a name"),
        (_ldap() + '[front_end.directories.http]\nurls = ["https://x"]\n', "at once"),
    ],
)
def test_faults_are_found(text: str, message: str) -> None:
    found = _build(text)[1]
    assert any(message in line for line in found), found
    assert all("front end" in line for line in found)
