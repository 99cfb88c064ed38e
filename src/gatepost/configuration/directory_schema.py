"""The shape of `[[front_end.directories]]`. The string under each key is its entry in `docs/configuration.md`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import BeforeValidator, Field

from gatepost.configuration.tables import MAX_COUNT, MAX_SECONDS, Table, default_of
from gatepost.configuration.words import by_value, reader
from gatepost.directory.settings import Ages, HttpLookUpSettings, LdapSettings, SqlKind, SqlSettings

MAX_CONNECTIONS = 256
"""Each has a thread."""
_Seconds = Annotated[float, Field(gt=0, le=60)]
_Connections = Annotated[int, Field(ge=1, le=MAX_CONNECTIONS)]


class Preset(Enum):
    """Kinds of LDAP directories."""

    ACTIVE_DIRECTORY = "active-directory"
    OPENLDAP = "openldap"
    OPENLDAP_MAIL = "openldap-mail"


class LdapTls(Enum):
    """How connections of `ldap` URLs are protected."""

    STARTTLS = "starttls"
    CLEAR = "clear"


class SqlTls(Enum):
    """How connections to a database are protected."""

    TLS = "tls"
    CLEAR = "clear"


PresetWord = Annotated[Preset, BeforeValidator(reader(by_value(Preset)))]
LdapTlsWord = Annotated[LdapTls, BeforeValidator(reader(by_value(LdapTls)))]
SqlTlsWord = Annotated[SqlTls, BeforeValidator(reader(by_value(SqlTls)))]
SqlWord = Annotated[SqlKind, BeforeValidator(reader(by_value(SqlKind)))]


class LdapTable(Table):
    """Users in an LDAP directory. Passwords are judged by the directory (a bind). Needs the extra `ldap`. Keys that
    name an attribute have the preset's value where they are not there; an empty text leaves the attribute out."""

    servers: list[str] = Field(examples=['["ldaps://dc-01.contoso.com", "ldaps://dc-02.contoso.com"]'])
    """URLs of the servers, `ldaps` or `ldap`, all with the same users; the first that answers is asked."""
    tls: LdapTlsWord = Field(default=LdapTls.STARTTLS, examples=['"clear"'])
    """How `ldap` URLs are protected: `starttls`, or `clear`, which must be written."""
    ca: str = Field(default="", examples=['"pki/ldap-ca.crt"'])
    """File with the certificates that sign the servers'. Empty: the system's."""
    base: str = Field(examples=['"DC=contoso,DC=com"'])
    """The entry below which users are."""
    bind_name: str = Field(default="", examples=['"CN=gatepost,OU=Services,DC=contoso,DC=com"'])
    """The account that searches: its distinguished name. Empty: none, if the directory lets everybody read."""
    bind_password_file: str = Field(default="", examples=['"secrets/ldap"'])
    """File with its password; a line end at its end is dropped."""
    preset: PresetWord = Field(default=Preset.OPENLDAP, examples=['"active-directory"'])
    """Attributes as they are in `active-directory` (with Exchange's), `openldap` (`mail`, `uid`) or `openldap-mail`
    (`mailAlternateAddress` and `accountStatus` besides)."""
    filter: str | None = Field(default=None, examples=['"(objectClass=inetOrgPerson)"'])
    """What users have in common, in LDAP's notation."""
    login_attributes: list[str] | None = Field(default=None, examples=['["mail", "uid={account}"]'])
    """Attributes that a name is looked for in, the first wins: `mail`, or with the form of the name there:
    `proxyAddresses=smtp:{address}`, `uid={account}` (its local part, in `account_domains`)."""
    account_domains: list[str] | None = Field(default=None, examples=['["contoso.com"]'])
    """Domains whose names may be account names (`anna` for `anna@contoso.com`). Default: the `DC`s of `base`."""
    netbios_domain: str = Field(default="", examples=['"CONTOSO"'])
    """What may stand before the backslash in `CONTOSO\\\\anna`. Empty: such names are nobody's."""
    name: str | None = Field(default=None, examples=['"mail"'])
    """The attribute with the user's own login name."""
    database: str | None = Field(default=None, examples=['"mailDatabase"'])
    """The attribute with the user's database: its name, or a distinguished name that begins with it (`homeMDB`)."""
    home_server: str | None = Field(default=None, examples=['"mailHost"'])
    """The attribute with the server of the mailbox, for mailboxes that are in no database."""
    default_database: str = Field(default="", examples=['"DB01"'])
    """The database of users with neither. Empty: they have no mailbox and cannot sign in."""
    login_at_server: str | None = Field(default=None, examples=['"uid"'])
    """The attribute with the name that mailbox servers know the user by. Empty: the login name."""
    send_as: str | None = Field(default=None, examples=['"mailSendAs"'])
    """The attribute with who else the user may send mail as: addresses, and domains like `@contoso.com`."""
    password_version: str | None = Field(default=None, examples=['"entryCSN"'])
    """The attribute that changes with the password. Without it a password that was changed may be taken for five
    minutes more."""
    disabled: str | None = Field(default=None, examples=['"accountStatus"'])
    """The attribute that says whether the user may not sign in."""
    disabled_values: list[str] | None = Field(default=None, examples=['["disabled"]'])
    """Its values that mean so."""
    protocols: str | None = Field(default=None, examples=['"mailProtocols"'])
    """The attribute with the protocols that the user may use, words as in `gatepost user add`. No value: all."""
    denied_protocols: str | None = Field(default=None, examples=['"mailProtocolsDenied"'])
    """The attribute with those that the user may not use."""
    groups: str | None = Field(default=None, examples=['"memberOf"'])
    """The attribute with the user's groups, for the sign-in policy: names, or distinguished names that begin so."""
    connections: _Connections = Field(default=default_of(LdapSettings, "connections"), examples=["16"])
    """Most connections of one worker for look-ups, and as many for passwords."""
    seconds: _Seconds = Field(default=default_of(LdapSettings, "seconds"), examples=["5.0"])
    """The longest for one question."""
    try_seconds: _Seconds = Field(default=default_of(LdapSettings, "try_seconds"), examples=["2.0"])
    """The longest at one server; then the next is asked."""
    changes_seconds: float = Field(default=default_of(LdapSettings, "changes_seconds"), ge=0, le=60, examples=["5.0"])
    """Active Directory: how often a domain controller is asked which users have changed. 0: never; then a change is
    noticed when an answer's age is over."""


class SqlTable(Table):
    """Users in PostgreSQL, MariaDB or MySQL: one query for each name, with the password's hash in its row. Needs the
    extra `sql`."""

    engine: SqlWord = Field(examples=['"mariadb"'])
    """`postgresql`, or `mariadb` (also for MySQL)."""
    hosts: list[str] = Field(examples=['["db-01.contoso.com", "db-02.contoso.com:5433"]'])
    """The servers, each with a port where that is not the usual one; the first that answers is asked."""
    database: str = Field(examples=['"mail"'])
    """The name of the database there."""
    user: str = Field(default="", examples=['"gatepost"'])
    """The account, which needs to read what the query reads and nothing more."""
    password_file: str = Field(default="", examples=['"secrets/sql"'])
    """File with its password; a line end at its end is dropped."""
    tls: SqlTlsWord = Field(default=SqlTls.TLS, examples=['"clear"'])
    """`tls`, with the server's certificate verified, or `clear`, which must be written."""
    ca: str = Field(default="", examples=['"pki/sql-ca.crt"'])
    """File with the certificates that sign the servers'. Empty: the system's."""
    query: str = Field(examples=['"SELECT name, password, database FROM users WHERE address = :name"'])
    """The query. `:name` is the whole name as clients are known by it, `:local` and `:domain` its parts; they are
    bound, so no quotes are needed. Columns: `password` (the hash with its scheme), `database` or `home_server`; if
    there also `name` (else what was asked for), `protocols`, `denied_protocols`, `disabled`, `login_at_server`,
    `send_as` (words), `groups` (for the sign-in policy), and `address`: what was found, for databases that take `á` for
    `a`; a row of another address is not taken."""
    notify: str = Field(default="", examples=['"gatepost_users"'])
    """PostgreSQL: the channel whose notifications make answers void, each with a user's name or empty for all."""
    allow_plain_passwords: bool = Field(default=False, examples=["true"])
    """Whether passwords may stand there as they are (`{PLAIN}`). Else such users cannot sign in."""
    connections: _Connections = Field(default=default_of(SqlSettings, "connections"), examples=["16"])
    """Most connections of one worker."""
    seconds: _Seconds = Field(default=default_of(SqlSettings, "seconds"), examples=["5.0"])
    """The longest for one question."""
    try_seconds: _Seconds = Field(default=default_of(SqlSettings, "try_seconds"), examples=["2.0"])
    """The longest at one server; then the next is asked."""


class HttpLookUpTable(Table):
    """Users behind a service that answers in JSON; see `docs/directories.md`. Needs the extra `sql` for hashes."""

    urls: list[str] = Field(examples=['["https://users.contoso.com/look-up"]'])
    """URLs that names are sent to by POST; all answer alike, the first that answers is asked. `http` only on this
    machine."""
    check_path: str = Field(default="", examples=['"/check"'])
    """The path at the same servers that judges passwords. Empty: their hashes come with the users."""
    token_file: str = Field(default="", examples=['"secrets/users-token"'])
    """File with the bearer token that is shown to the service."""
    ca: str = Field(default="", examples=['"pki/users-ca.crt"'])
    """File with the certificates that sign the servers'. Empty: the system's."""
    allow_plain_passwords: bool = Field(default=False, examples=["true"])
    """As for SQL."""
    connections: _Connections = Field(default=default_of(HttpLookUpSettings, "connections"), examples=["64"])
    """Most connections of one worker."""
    seconds: _Seconds = Field(default=default_of(HttpLookUpSettings, "seconds"), examples=["5.0"])
    """The longest for one question."""
    try_seconds: _Seconds = Field(default=default_of(HttpLookUpSettings, "try_seconds"), examples=["2.0"])
    """The longest at one server; then the next is asked."""


class DirectoryTable(Table):
    """Where users are, in the order in which they are asked. Without any the users are in the file named by
    `directory`. An entry with neither `ldap`, `sql` nor `http` stands for that file."""

    name: str = Field(examples=['"corp"'])
    """Its name, for logs."""
    domains: list[str] = Field(default=[], examples=['["contoso.com"]'])
    """Domains whose names it is asked for. Empty: those of all names whose domain no other directory lists."""
    positive_seconds: float = Field(
        default=default_of(Ages, "positive_seconds"), ge=0, le=MAX_SECONDS, examples=["60.0"]
    )
    """How long a user is taken as the directory told; a change is seen within twice that."""
    negative_seconds: float = Field(
        default=default_of(Ages, "negative_seconds"), ge=0, le=MAX_SECONDS, examples=["5.0"]
    )
    """How long a name is taken for nobody's."""
    outage_seconds: float = Field(default=default_of(Ages, "outage_seconds"), ge=0, le=MAX_SECONDS, examples=["3600.0"])
    """While the directory does not answer: how long a user is taken as it told last."""
    users: int = Field(default=default_of(Ages, "users"), ge=1, le=MAX_COUNT, examples=["1000000"])
    """Most users that a worker remembers, about 0.5 kB each."""
    ldap: LdapTable | None = None
    sql: SqlTable | None = None
    http: HttpLookUpTable | None = None
