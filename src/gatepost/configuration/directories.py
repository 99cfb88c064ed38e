"""From `[[front_end.directories]]` to `DirectorySettings`, with the faults that need the organization or the files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from urllib.parse import urlsplit

from gatepost.configuration.directory_schema import (
    DirectoryTable,
    HttpLookUpTable,
    LdapTable,
    LdapTls,
    SqlTable,
    SqlTls,
)
from gatepost.configuration.document import Document
from gatepost.configuration.files import Files, Named
from gatepost.configuration.front_end_keys import WHO
from gatepost.directory.ldap.mapping import PRESETS, Mapping, is_attribute, parse_login
from gatepost.directory.settings import (
    Ages,
    DirectorySettings,
    HttpLookUpSettings,
    LdapServer,
    LdapSettings,
    SqlKind,
    SqlSettings,
)
from gatepost.organization.addresses import is_loopback, parse_http_url
from gatepost.organization.faults import Path, error, quoted, unknown, warning
from gatepost.organization.model import Finding, Organization

_QUOTED_MARK = re.compile(r"'[%_]?:(?:name|local|domain)[%_]?'")
_PORTS = {SqlKind.POSTGRESQL: 5432, SqlKind.MARIADB: 3306}
_TEXTS = (
    "name", "database", "home_server", "login_at_server", "send_as", "protocols", "denied_protocols", "disabled",
    "groups",
)  # fmt: skip
"""Keys of `[front_end.directories.ldap]` that name an attribute as the mapping's field of the same name does."""
_NEEDED = {"ldap": ("ldap",), "sql": ("passlib", "bcrypt"), "http": ("passlib", "bcrypt")}
_NEEDED_BY = {SqlKind.POSTGRESQL: "psycopg", SqlKind.MARIADB: "pymysql"}
MAX_QUERY = 65536


def build_directories(
    document: Document, tables: list[DirectoryTable], files: Files, organization: Organization | None
) -> tuple[DirectorySettings, ...]:
    """The directories as far as they can be built, in order. Faults are findings."""
    built = []
    for index, table in enumerate(tables):
        path: Path = ("front_end", "directories", index)
        built.append(_Build(document, table, files, organization, path).settings())
        for before in tables[:index]:
            if before.name == table.name:
                message = f"two directories are called {quoted(table.name)}"
                files.findings.add(document, error((*path, "name"), WHO, message, "give each its own name"))
    return tuple(built)


@dataclass(frozen=True)
class _Build:
    document: Document
    table: DirectoryTable
    files: Files
    organization: Organization | None
    path: Path

    def settings(self) -> DirectorySettings:
        """The settings, with their faults added to the findings."""
        table = self.table
        engines = [word for word in ("ldap", "sql", "http") if getattr(table, word) is not None]
        if len(engines) > 1:
            message = f"the directory {table.name} is in {' and '.join(engines)} at once"
            self._add(error((*self.path, engines[1]), WHO, message, "make two directories of it"))
        if not table.name:
            self._add(error((*self.path, "name"), WHO, "a directory without a name", 'for example name = "corp"'))
        for word in engines:
            wanted = _NEEDED[word] + ((_NEEDED_BY[table.sql.engine],) if word == "sql" and table.sql else ())
            self._require(word, wanted)
        ages = Ages(table.positive_seconds, table.negative_seconds, table.outage_seconds, table.users)
        return DirectorySettings(
            name=table.name,
            domains=tuple(domain.lower().rstrip(".") for domain in table.domains),
            ages=ages,
            ldap=self._ldap(table.ldap) if table.ldap is not None else None,
            sql=self._sql(table.sql) if table.sql is not None else None,
            http=self._http(table.http) if table.http is not None else None,
        )

    def _require(self, extra: str, modules: Iterable[str]) -> None:
        missing = [module for module in modules if find_spec(module) is None]
        if missing:
            message = f"the directory {self.table.name} needs {', '.join(missing)}, which is not installed"
            remedy = f"pip install gatepost[{'ldap' if extra == 'ldap' else 'sql'}]"
            self._add(error((*self.path, extra), WHO, message, remedy))

    # --- LDAP

    def _ldap(self, table: LdapTable) -> LdapSettings:
        here: Path = (*self.path, "ldap")
        for finding in (*self._judge_ldap_servers(table, here), *self._judge_ldap(table, here)):
            self._add(finding)
        ca = self._ca(here, table.ca)
        servers = tuple(
            LdapServer(
                url.rstrip("/"), url.startswith("ldap:") and table.tls is LdapTls.STARTTLS, ca, table.try_seconds
            )
            for url in table.servers
        )
        return LdapSettings(
            servers=servers,
            base=table.base,
            mapping=self._mapping(table, here),
            bind_name=table.bind_name,
            bind_password=self._secret(here, "bind_password_file", table.bind_password_file),
            connections=table.connections,
            seconds=table.seconds,
            try_seconds=table.try_seconds,
            changes_seconds=table.changes_seconds,
        )

    def _judge_ldap_servers(self, table: LdapTable, path: Path) -> Iterator[Finding]:
        remedy = 'name them: servers = ["ldaps://dc-01.contoso.com"]'
        if not table.servers:
            yield error((*path, "servers"), WHO, "no LDAP server", remedy)
        for index, text in enumerate(table.servers):
            here: Path = (*path, "servers", index)
            try:
                url = urlsplit(text)
                bad = url.scheme not in {"ldap", "ldaps"} or not url.hostname or url.port == 0
                bad = bad or url.path not in {"", "/"} or bool(url.query or url.fragment or url.username)
            except ValueError:
                bad = True
            if bad:
                message = f"{quoted(text)} is no URL of an LDAP server"
                yield error(
                    here, WHO, message, "write it like ldaps://dc-01.contoso.com or ldap://dc-01.contoso.com:389"
                )
                continue
            if url.scheme == "ldap" and table.tls is LdapTls.CLEAR and not is_loopback(url.hostname or ""):
                message = f"passwords go to {quoted(text)} in clear text, and it is another machine"
                yield error(here, WHO, message, "use ldaps, or leave tls away (STARTTLS)")
            if text.rstrip("/") in (other.rstrip("/") for other in table.servers[:index]):
                yield error(here, WHO, f"the server {quoted(text)} is there twice", "name each once")

    def _judge_ldap(self, table: LdapTable, path: Path) -> Iterator[Finding]:
        if table.bind_name and not table.bind_password_file:
            message = "an account for searching and no password"
            yield error((*path, "bind_name"), WHO, message, 'add bind_password_file = "secrets/ldap"')
        if table.bind_password_file and not table.bind_name:
            message = "a password for searching and no account"
            yield error((*path, "bind_password_file"), WHO, message, "add bind_name")
        if not table.base:
            yield error((*path, "base"), WHO, "no entry to search below", 'for example base = "DC=contoso,DC=com"')
        if table.filter is not None and not (table.filter.startswith("(") and table.filter.endswith(")")):
            yield error((*path, "filter"), WHO, f"the filter {quoted(table.filter)} is not in parentheses", "write (…)")
        for key in (*_TEXTS, "password_version"):
            text = getattr(table, key)
            if text and not is_attribute(text):
                yield error((*path, key), WHO, f"{quoted(text)} is no attribute's name", "letters, digits and hyphens")
        if table.try_seconds > table.seconds:
            message = f"try_seconds is {table.try_seconds:g}, more than seconds: no second server is ever asked"
            yield warning((*path, "try_seconds"), WHO, message, "make it half of seconds or less")

    def _mapping(self, table: LdapTable, path: Path) -> Mapping:
        mapping = PRESETS[table.preset.value]
        given = {key: getattr(table, key) for key in _TEXTS if getattr(table, key) is not None}
        mapping = replace(mapping, **given, default_database=table.default_database)
        if table.filter is not None:
            mapping = replace(mapping, filter=table.filter)
        if table.password_version is not None:
            mapping = replace(mapping, version=table.password_version)
        if table.disabled is not None and table.disabled != PRESETS[table.preset.value].disabled:
            mapping = replace(mapping, disabled_bit=0)
        if table.disabled_values is not None:
            mapping = replace(mapping, disabled_values=tuple(value.lower() for value in table.disabled_values))
        if table.login_attributes is not None:
            logins = []
            for index, text in enumerate(table.login_attributes):
                try:
                    logins.append(parse_login(text))
                except ValueError as fault:
                    here = (*path, "login_attributes", index)
                    self._add(error(here, WHO, f"{quoted(text)} {fault}", 'write it like "mail" or "uid={account}"'))
            if not table.login_attributes:
                self._add(error((*path, "login_attributes"), WHO, "no attribute to look for names in", 'say ["mail"]'))
            mapping = replace(mapping, logins=tuple(logins))
        if not mapping.database and not mapping.home_server and not mapping.default_database:
            message = "nothing says which database a user's mailbox is in"
            self._add(error((*path, "database"), WHO, message, "add database, or default_database"))
        if mapping.default_database and self.organization is not None:
            databases = self.organization.databases
            if mapping.default_database not in databases:
                here = (*path, "default_database")
                self._add(unknown(here, WHO, "database", "databases", mapping.default_database, databases))
        domains = table.account_domains if table.account_domains is not None else [_domain_of(table.base)]
        return replace(
            mapping,
            account_domains=tuple(domain.lower().rstrip(".") for domain in domains if domain),
            netbios_domain=table.netbios_domain,
        )

    # --- SQL

    def _sql(self, table: SqlTable) -> SqlSettings:
        here: Path = (*self.path, "sql")
        hosts = []
        for index, text in enumerate(table.hosts):
            place = _host(text, _PORTS[table.engine])
            if place is None:
                message = f"{quoted(text)} is no host"
                self._add(
                    error((*here, "hosts", index), WHO, message, "write it like db-01.contoso.com or 10.0.0.5:5433")
                )
            elif table.tls is SqlTls.CLEAR and not is_loopback(place[0]):
                message = f"{quoted(text)} is another machine, and hashes come from there in clear text"
                self._add(error((*here, "hosts", index), WHO, message, "leave tls away"))
            elif place in hosts:
                self._add(error((*here, "hosts", index), WHO, f"{quoted(text)} is there twice", "name each once"))
            else:
                hosts.append(place)
        if not table.hosts:
            self._add(error((*here, "hosts"), WHO, "no database server", 'hosts = ["db-01.contoso.com"]'))
        if ":name" not in table.query and ":local" not in table.query:
            message = "the query does not hold :name or :local: everybody would be the same user"
            self._add(error((*here, "query"), WHO, message, "for example … WHERE address = :name"))
        if mark := _QUOTED_MARK.search(table.query):
            message = f"{mark[0]} stands in quotes, so it is that text and no name"
            self._add(error((*here, "query"), WHO, message, "write it without quotes: the name is bound, not put in"))
        if len(table.query) > MAX_QUERY:
            self._add(error((*here, "query"), WHO, "the query is longer than any query", "make it a view"))
        if table.notify and table.engine is not SqlKind.POSTGRESQL:
            message = "only PostgreSQL tells of changes (notify)"
            self._add(error((*here, "notify"), WHO, message, "leave it away and choose positive_seconds"))
        if table.allow_plain_passwords:
            message = "passwords that are stored as they are are taken: who reads the database has them all"
            self._add(warning((*here, "allow_plain_passwords"), WHO, message, "store hashes: {ARGON2ID}, {BLF-CRYPT}"))
        return SqlSettings(
            kind=table.engine,
            hosts=tuple(hosts),
            database=table.database,
            query=table.query,
            user=table.user,
            password=self._secret(here, "password_file", table.password_file),
            tls=table.tls is SqlTls.TLS,
            ca=self._ca(here, table.ca),
            notify=table.notify,
            allow_plain=table.allow_plain_passwords,
            connections=table.connections,
            seconds=table.seconds,
            try_seconds=table.try_seconds,
        )

    # --- HTTP

    def _http(self, table: HttpLookUpTable) -> HttpLookUpSettings:
        here: Path = (*self.path, "http")
        if not table.urls:
            self._add(error((*here, "urls"), WHO, "no URL to ask", 'urls = ["https://users.contoso.com/look-up"]'))
        for index, text in enumerate(table.urls):
            try:
                url = parse_http_url(text)
            except ValueError as fault:
                remedy = "write it like https://users.contoso.com/look-up"
                self._add(error((*here, "urls", index), WHO, f"the URL {quoted(text)} {fault}", remedy))
                continue
            if url.scheme == "http" and not is_loopback(url.host):
                message = f"the URL {quoted(text)} is in clear text and on another machine"
                self._add(error((*here, "urls", index), WHO, message, "use https"))
        if table.check_path and not table.check_path.startswith("/"):
            message = f"{quoted(table.check_path)} is no path"
            self._add(error((*here, "check_path"), WHO, message, 'begin it with a slash: "/check"'))
        return HttpLookUpSettings(
            urls=tuple(dict.fromkeys(table.urls)),
            check_path=table.check_path,
            token=self._secret(here, "token_file", table.token_file),
            ca=self._ca(here, table.ca),
            allow_plain=table.allow_plain_passwords,
            connections=table.connections,
            seconds=table.seconds,
            try_seconds=table.try_seconds,
        )

    # --- files

    def _secret(self, path: Path, key: str, file: str) -> str:
        if not file:
            return ""
        return self.files.password(Named(self.document, (*path, key), file, WHO, "the secret")) or ""

    def _ca(self, path: Path, file: str) -> bytes:
        if not file:
            return b""
        found = self.files.certificates(Named(self.document, (*path, "ca"), file, WHO, "the authorities' file"))
        return found[0] if found else b""

    def _add(self, finding: Finding) -> None:
        self.files.findings.add(self.document, finding)


def _domain_of(base: str) -> str:
    """The domain that the `DC`s of a distinguished name make."""
    parts = [part.partition("=") for part in base.split(",")]
    return ".".join(value.strip() for key, _, value in parts if key.strip().lower() == "dc")


def _host(text: str, port: int) -> tuple[str, int] | None:
    """Host and port of `host`, `host:port`, `[address]:port` or an IPv6 address."""
    if text.count(":") > 1 and not text.startswith("["):
        text = f"[{text}]"
    try:
        url = urlsplit(f"//{text}")
        found = url.port
    except ValueError:
        return None
    if not url.hostname or url.path or url.query or url.username or found == 0:
        return None
    return url.hostname, found or port
