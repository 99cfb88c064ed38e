"""Where the users are: what the configuration says of each directory."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from gatepost.directory.ldap.mapping import Mapping
from gatepost.organization.model import Protocol


@dataclass(frozen=True, slots=True)
class Ages:
    """For how long answers are good, in seconds, and how many are kept."""

    positive_seconds: float = 300.0
    negative_seconds: float = 30.0
    outage_seconds: float = 86400.0
    """While the directory does not answer, a user is as they were last for so long after that."""
    users: int = 100_000
    """Names whose users are kept; half as many that nobody has."""


@dataclass(frozen=True, slots=True)
class LdapServer:
    """How to reach a server. `url` without a path; with `starttls` TLS begins after the connection."""

    url: str
    starttls: bool = False
    ca: bytes = b""
    """PEM certificates that sign the server's; empty: the system's."""
    seconds: float = 3.0
    """For connecting, and for each operation."""


@dataclass(frozen=True, slots=True)
class LdapSettings:
    """Users in an LDAP directory."""

    servers: tuple[LdapServer, ...]
    base: str
    mapping: Mapping
    bind_name: str = ""
    """Whose account searches; empty: nobody's."""
    bind_password: str = field(default="", repr=False)
    connections: int = 8
    """Most connections of one worker for searching, and as many for passwords."""
    seconds: float = 8.0
    """The longest for a question."""
    try_seconds: float = 3.0
    """The longest at one server."""
    changes_seconds: float = 2.0
    """Active Directory: between two questions for changed users; 0: none is asked."""


class SqlKind(Enum):
    """Which database it is."""

    POSTGRESQL = "postgresql"
    MARIADB = "mariadb"


@dataclass(frozen=True, slots=True)
class SqlSettings:
    """Users in a database: one query a question."""

    kind: SqlKind
    hosts: tuple[tuple[str, int], ...]
    database: str
    query: str
    """With `:name`, `:local` and `:domain` where the name's parts are bound."""
    user: str = ""
    password: str = field(default="", repr=False)
    tls: bool = True
    ca: bytes = b""
    """PEM certificates that sign the servers'; empty: the system's."""
    notify: str = ""
    """The channel on which the database tells of changes (PostgreSQL)."""
    allow_plain: bool = False
    """Whether passwords may be stored as they are."""
    connections: int = 8
    seconds: float = 8.0
    try_seconds: float = 3.0


@dataclass(frozen=True, slots=True)
class HttpLookUpSettings:
    """Users behind an HTTP service."""

    urls: tuple[str, ...]
    """Where look-ups go; the servers behind them answer alike."""
    check_path: str = ""
    """The path, at the same servers, that judges passwords. Empty: hashes come with the users."""
    token: str = field(default="", repr=False)
    ca: bytes = b""
    allow_plain: bool = False
    connections: int = 32
    seconds: float = 8.0
    try_seconds: float = 3.0


@dataclass(frozen=True, slots=True)
class DirectorySettings:
    """One directory. With none of the three engines it is the embedded file."""

    name: str
    domains: tuple[str, ...] = ()
    """Whose names it is asked for, in lower case; empty: those that no other directory lists."""
    ages: Ages = field(default_factory=Ages)
    ldap: LdapSettings | None = None
    sql: SqlSettings | None = None
    http: HttpLookUpSettings | None = None

    @property
    def is_file(self) -> bool:
        """Whether it is the embedded directory."""
        return self.ldap is None and self.sql is None and self.http is None


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """Sign-in by Kerberos tickets."""

    keytab: str
    """File with the keys of the service principals; read by the workers."""
    service_principals: tuple[str, ...] = ()
    """`service/host` each, without realm: what clients ask tickets for. Kerberos is offered for protocols that have
    one."""
    realms: tuple[tuple[str, str], ...] = ()
    """Realm, as Kerberos writes it, and the domain of its users' names here."""
    netbios_domains: tuple[tuple[str, str], ...] = ()
    """Domain as in `DOMAIN\\user`, upper case, and the domain of names."""
    delegation_principal: str = ""
    """`account@REALM` that asks for tickets of users for mailbox servers; empty: there are none."""
    peer_principal: str = ""
    """`account@REALM` as which this front end signs in at others; empty: it does not."""

    @property
    def asks(self) -> bool:
        """Whether tickets are asked for, beside those that are judged."""
        return bool(self.delegation_principal or self.peer_principal)


SCRAM_ITERATIONS = 100_000
"""Of keys that are made here; RFC 7677 asks for 4096 at least. Clients work so long too: 50 ms on a phone."""


@dataclass(frozen=True, slots=True)
class ScramSettings:
    """Where SCRAM is offered."""

    protocols: frozenset[Protocol]
    iterations: int = SCRAM_ITERATIONS
    """What the stores' keys are made with, so that made-up ones look like them."""


class NameSource(Enum):
    """Where in a certificate the user's name is."""

    UPN = "upn"
    EMAIL = "email"
    COMMON_NAME = "common-name"


@dataclass(frozen=True, slots=True)
class CertificateSettings:
    """Whose certificates clients sign in with."""

    ca: bytes = field(repr=False)
    """PEM certificates of the authorities."""
    crl: str = ""
    """Path of the file with their CRLs, DER or PEM; read by the workers when it changes. Empty: none is asked."""
    optional: frozenset[Protocol] = frozenset()
    """Listeners of these protocols ask clients for a certificate."""
    required: frozenset[Protocol] = frozenset()
    """Listeners of these protocols end handshakes without one."""
    names: tuple[NameSource, ...] = (NameSource.UPN, NameSource.EMAIL)
    """The first that a certificate has says whose it is."""

    def asks(self, protocol: Protocol) -> bool:
        """Whether clients of this protocol are asked for one."""
        return protocol in self.optional or protocol in self.required


class TokenMethod(Enum):
    """Who judges an issuer's tokens."""

    KEYS = "keys"
    """We, by the issuer's public keys (RFC 7519)."""
    INTROSPECTION = "introspection"
    """The issuer itself, asked about each token (RFC 7662)."""


@dataclass(frozen=True, slots=True)
class TokenIssuer:
    """Whose bearer tokens are taken, and what must be in them.

    `key` is PEM; with neither `key` nor `jwks_uri` the issuer's metadata say where its keys are (OpenID Connect
    Discovery 1.0, RFC 8414), and likewise for `introspection_uri`.
    """

    issuer: str
    audiences: tuple[str, ...] = ()
    """One of them must be in `aud`."""
    method: TokenMethod = TokenMethod.KEYS
    key: bytes = field(default=b"", repr=False)
    jwks_uri: str = ""
    introspection_uri: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    ca: bytes = b""
    """PEM certificates that sign the issuer's; empty: the system's."""
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    user_claim: str = "email"
    domains: tuple[str, ...] = ()
    """Whose users it may speak for, in lower case; empty: everybody's."""
    token_types: tuple[str, ...] = ("at+jwt", "JWT")
    """What `typ` may be, without regard to case; a token without one counts as `JWT`."""
    scopes: tuple[str, ...] = ()
    """What a token must hold for every protocol."""
    protocol_scopes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Protocol by its word, and what a token must hold for it besides."""
    keys_seconds: float = 300.0
    """For so long the issuer's keys are taken as they were fetched."""
    outage_seconds: float = 86400.0
    """While they cannot be fetched they are taken as they were last, for so long after that."""
    introspection_seconds: float = 60.0
    """For so long an answer about a token that is active is taken from memory, never beyond its `exp`."""
    seconds: float = 5.0
    """The longest for a question to the issuer."""

    def needed(self, protocol: str) -> tuple[str, ...]:
        """The scopes for a protocol, given by its word."""
        return (*self.scopes, *dict(self.protocol_scopes).get(protocol, ()))
