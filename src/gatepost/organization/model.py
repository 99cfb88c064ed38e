"""The objects of an organization (SPEC O1): sites, servers, databases, virtual directories.

Everything here is an immutable value. A change of the organization makes a new `Organization`;
whoever holds the old one keeps a consistent view of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cached_property

from gatepost.organization.databases import Database, DatabaseCopy
from gatepost.organization.finding import Finding, Severity
from gatepost.organization.names import wire_domain
from gatepost.organization.protocol import CLIENT_PROTOCOLS, MAILBOX_PROTOCOLS, PROXIED, ClientAddress, Protocol
from gatepost.organization.subnets import Network, Subnets
from gatepost.organization.transport import (
    HUB_SETTINGS,
    DomainKind,
    ReceiveConnector,
    SendConnector,
    TransportConfig,
    TransportSettings,
)
from gatepost.organization.virtual_directory import (
    CLASS_OF_SERVICE,
    AuthenticationMethod,
    CrossSiteRedirect,
    PathClass,
    VirtualDirectory,
    class_of_service,
)

__all__ = [
    "CLASS_OF_SERVICE", "CLIENT_PROTOCOLS", "MAILBOX_PROTOCOLS", "PEER", "PROXIED", "AuthenticationMethod",
    "ClientAccessArray", "ClientAddress", "CrossSiteRedirect", "Database", "DatabaseCopy", "Edition", "Endpoint",
    "Finding", "HttpSignIn", "Network", "Organization", "PathClass", "Protocol", "Role", "Server", "Severity",
    "SignIn", "SignInForm", "Site", "SiteLink", "TlsMode", "Version", "VirtualDirectory", "class_of_service",
]  # fmt: skip


class TlsMode(StrEnum):
    """How a listener or an endpoint is protected. `CLEAR` must be written out, it is never a default."""

    STARTTLS = "starttls"
    IMPLICIT = "implicit"
    CLEAR = "clear"


PEER = "peer"
"""Name of the endpoint that only other front ends may use. Its protocol is HTTPS."""


class Version(IntEnum):
    """Generation of a server; ordered, so that "newer than" is `>` (SPEC C2)."""

    V2003 = 2003
    V2007 = 2007
    V2010 = 2010
    MODERN = 2013

    @property
    def word(self) -> str:
        """The version as configuration and messages spell it."""
        return _VERSION_WORDS[self]


_VERSION_WORDS = {version: "modern" if version is Version.MODERN else str(version.value) for version in Version}
"""Made once: every decision says versions, and an enum's value is a call."""


class Role(StrEnum):
    """What a server does in the organization."""

    CLIENT_ACCESS = "client-access"
    MAILBOX = "mailbox"
    HUB_TRANSPORT = "hub-transport"
    EDGE_TRANSPORT = "edge-transport"


class Edition(StrEnum):
    """Which edition of the source's client access rules applies (SPEC, head of section C)."""

    RTM = "rtm"
    SP2 = "sp2"


class SignInForm(StrEnum):
    """With whose credentials Gatepost signs in at a mailbox server."""

    USER = "user"
    """The user's own name and password."""
    MASTER_NAME = "master-name"
    """`LOGIN user*master password`: a master user, both names in one, with the server's separator."""
    MASTER_AUTHZID = "master-authzid"
    """SASL PLAIN with the user as authorization identity and the master user's credentials (RFC 4616)."""
    KERBEROS = "kerberos"
    """SASL GSSAPI with a ticket of the user's, by constrained delegation (MS-SFU)."""
    ASSERTION = "assertion"
    """SASL OAUTHBEARER with a short-lived token of our own that names the user (RFC 7628)."""


class HttpSignIn(StrEnum):
    """How an HTTP server learns who the user is."""

    BASIC = "basic"
    """The user's own Basic credentials are passed on, or their own token where it is meant for the server."""
    MASTER = "master"
    """Basic credentials of the master user, as in the form `master-name`."""
    HEADER = "header"
    """A trusted header names the user; only over verified TLS."""
    KERBEROS = "kerberos"
    """Negotiate with a ticket of the user's, by constrained delegation (MS-SFU, RFC 4559)."""


@dataclass(frozen=True, slots=True)
class Site:
    """A place with good connections inside. `subnets` decide which site a client address is in."""

    name: str
    subnets: tuple[Network, ...] = ()
    internet_facing: bool = False
    through_peer: bool = False
    """Other sites reach the mailbox servers here only through a front end of this site (SPEC C12)."""
    hub_site: bool = False
    """Mail whose least-cost path leads through this site stops at its hubs (SPEC T3)."""


@dataclass(frozen=True, slots=True)
class SiteLink:
    """A link between sites with a cost (smaller is better, 1 or more)."""

    name: str
    sites: tuple[str, ...]
    cost: int = 10
    exchange_cost: int = 0
    """What it costs for mail, where that is to be another cost; 0: `cost`."""
    max_message_size: int = 0
    """Bytes of the largest message that may cross it; 0: any."""

    @property
    def mail_cost(self) -> int:
        """What crossing it costs for mail."""
        return self.exchange_cost or self.cost


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server answers one protocol.

    `name` is the key in the file (`imap`, `imaps`, `https`, `smtp`, `lmtp` …); `address` is an IP
    address or a host name to connect to or to listen on; `tls_name` is the name its certificate must carry.
    """

    name: str
    protocol: Protocol
    address: str
    port: int
    tls: TlsMode
    tls_name: str
    client_address: ClientAddress = ClientAddress.NONE


@dataclass(frozen=True, slots=True)
class SignIn:
    """How Gatepost signs in at one mailbox server."""

    form: SignInForm = SignInForm.USER
    master_user: str = ""
    master_password: str = field(default="", repr=False)
    separator: str = "*"
    pipelined: bool = False
    """Send the whole sign-in at once instead of one command at a time."""
    http: HttpSignIn = HttpSignIn.BASIC
    http_header: str = "X-Remote-User"
    send_epoch: bool = False
    """Tell the server the database and its epoch (SPEC A3)."""
    assertion_key: bytes = field(default=b"", repr=False)
    """The private key, PEM, of the form `assertion`."""
    token_audience: str = ""
    """What tokens for this server have in `aud`. Empty: ours have its full name, users' own are not passed on."""
    kerberos_host: str = ""
    """The host in the server's service principals, with `@REALM` where that is another than ours; empty: its fqdn."""

    @property
    def delegates(self) -> bool:
        """Whether the server wants tickets of its users."""
        return self.form is SignInForm.KERBEROS or self.http is HttpSignIn.KERBEROS


@dataclass(frozen=True, slots=True)
class Server:
    """A machine of the organization. `address` is the default for its endpoints."""

    name: str
    site: str
    fqdn: str
    address: str
    version: Version
    roles: frozenset[Role]
    endpoints: tuple[Endpoint, ...] = ()
    sign_in: SignIn = SignIn()
    server_ca: str = ""
    """Path of the CA file that signs this server's certificates; empty: the front end's `server_ca`."""
    max_connections: int = 2000
    """Most pooled HTTP connections of one worker to this server (SPEC B4)."""
    transport: TransportSettings = HUB_SETTINGS
    """Of a hub or an edge (SPEC T6)."""
    kerberos_principal: str = ""
    """The account as which a front end signs in at other front ends by Kerberos (SPEC C11); empty: by mutual TLS."""

    @property
    def carries_mail(self) -> bool:
        """Whether it is a hub or an edge."""
        return not self.roles.isdisjoint({Role.HUB_TRANSPORT, Role.EDGE_TRANSPORT})

    @property
    def takes_mail(self) -> bool:
        """Whether it is a hub or an edge that others can hand mail to."""
        return self.carries_mail and self.endpoint(Protocol.SMTP) is not None

    @property
    def delivery_endpoint(self) -> Endpoint | None:
        """Where hubs deliver to its mailboxes: by LMTP, else by SMTP, which on a hub of today is the hub's own."""
        is_hub = self.carries_mail and self.version is Version.MODERN
        return self.endpoint(Protocol.LMTP) or (None if is_hub else self.endpoint(Protocol.SMTP))

    @property
    def client_endpoints(self) -> tuple[Endpoint, ...]:
        """What a front end that is this server listens on; nothing where it is none.

        SMTP among it, which it hands to hubs, unless the server is a hub or an edge itself, whose own that is.
        """
        if Role.CLIENT_ACCESS not in self.roles:
            return ()
        own = CLIENT_PROTOCOLS if self.carries_mail else (*CLIENT_PROTOCOLS, Protocol.SMTP)
        return tuple(endpoint for endpoint in self.endpoints if endpoint.protocol in own)

    @property
    def peer_endpoint(self) -> Endpoint | None:
        """Where this front end takes requests of other front ends (SPEC C11): mutual TLS and an assertion."""
        return next((e for e in self.endpoints if e.name == PEER), None)

    def opens(self, mailbox: Version) -> bool:
        """Whether this client access server can open mailboxes of that version (SPEC C2).

        Our own front ends, which are modern, open all. Of the old ones each opens its own version only; 2003 mailboxes,
        which are reached straight, any.
        """
        return self.version in {mailbox, Version.MODERN} or mailbox is Version.V2003

    def own_url(self, path: str) -> str:
        """The URL of `path` at this machine itself: its full host name, and the port unless it is the usual one."""
        web = self.endpoint(Protocol.HTTPS)
        scheme, usual = ("http", 80) if web is not None and web.tls is TlsMode.CLEAR else ("https", 443)
        port = "" if web is None or web.port == usual else f":{web.port}"
        return f"{scheme}://{self.fqdn}{port}{path}"

    def endpoint(self, protocol: Protocol) -> Endpoint | None:
        """The endpoint to use for `protocol`; implicit TLS is preferred, it needs fewer round trips."""
        found = [e for e in self.endpoints if e.protocol is protocol and e.name != PEER]
        found.sort(key=lambda e: e.tls is not TlsMode.IMPLICIT)
        return found[0] if found else None


@dataclass(frozen=True, slots=True)
class ClientAccessArray:
    """Client access servers of one site behind one name (SPEC B7)."""

    name: str
    site: str
    fqdn: str
    members: tuple[str, ...]


@dataclass(frozen=True)
class Organization:
    """One organization (SPEC O1). Mappings are keyed by the objects' names and are never changed."""

    name: str
    edition: Edition = Edition.RTM
    accepted_domains: tuple[str, ...] = ()
    sites: dict[str, Site] = field(default_factory=dict)
    site_links: dict[str, SiteLink] = field(default_factory=dict)
    servers: dict[str, Server] = field(default_factory=dict)
    databases: dict[str, Database] = field(default_factory=dict)
    virtual_directories: tuple[VirtualDirectory, ...] = ()
    arrays: dict[str, ClientAccessArray] = field(default_factory=dict)
    accepted_domain_kinds: dict[str, DomainKind] = field(default_factory=dict)
    """Of the accepted domains that are not authoritative, spelled as in `accepted_domains`."""
    receive_connectors: dict[str, ReceiveConnector] = field(default_factory=dict)
    send_connectors: dict[str, SendConnector] = field(default_factory=dict)
    transport_config: TransportConfig = field(default_factory=TransportConfig)

    @property
    def default_domain(self) -> str:
        """The domain of a login name that has none: the first accepted domain, or empty."""
        return self.accepted_domains[0] if self.accepted_domains else ""

    @property
    def postmaster(self) -> str:
        """Whom reports are from; empty without accepted domains."""
        address = self.transport_config.external_postmaster_address
        return address or (f"postmaster@{wire_domain(self.default_domain)}" if self.default_domain else "")

    def postmasters(self, address: str) -> tuple[str, ...]:
        """Who gets mail for `address` when nobody has it, first to last: somebody must be `postmaster` at each domain
        whose mailboxes are here (RFC 5321, section 4.5.1). Empty for all other addresses."""
        local, _, domain = address.rpartition("@") if "@" in address else (address, "", self.default_domain)
        if (
            local.casefold() != "postmaster"
            or self.domain_kinds.get(wire_domain(domain)) is not DomainKind.AUTHORITATIVE
        ):
            return ()
        return tuple(dict.fromkeys((self.postmaster, f"postmaster@{self.default_domain}")))

    @cached_property
    def domain_kinds(self) -> dict[str, DomainKind]:
        """The kind of each accepted domain, by its name in lower case as it is on the wire (A-labels)."""
        kinds = {name.casefold(): kind for name, kind in self.accepted_domain_kinds.items()}
        return {
            wire_domain(name): kinds.get(name.casefold(), DomainKind.AUTHORITATIVE) for name in self.accepted_domains
        }

    @cached_property
    def hubs_by_site(self) -> dict[str, tuple[Server, ...]]:
        """Each site's hubs that can be reached by SMTP, by name: those of today where there are any, else the old."""
        found: dict[str, list[Server]] = {}
        for server in sorted(self.servers.values(), key=lambda s: (-s.version, s.name)):
            if Role.HUB_TRANSPORT in server.roles and server.endpoint(Protocol.SMTP) is not None:
                others = found.setdefault(server.site, [])
                if not others or others[0].version is server.version:
                    others.append(server)
        return {site: tuple(hubs) for site, hubs in found.items()}

    @cached_property
    def receive_connectors_by_server(self) -> dict[str, tuple[ReceiveConnector, ...]]:
        """Each server's receive connectors."""
        grouped: dict[str, list[ReceiveConnector]] = {}
        for connector in self.receive_connectors.values():
            grouped.setdefault(connector.server, []).append(connector)
        return {name: tuple(found) for name, found in grouped.items()}

    @cached_property
    def directories_by_server(self) -> dict[str, tuple[VirtualDirectory, ...]]:
        """Each server's virtual directories, longest path first."""
        grouped: dict[str, list[VirtualDirectory]] = {}
        for directory in self.virtual_directories:
            grouped.setdefault(directory.server, []).append(directory)
        return {name: tuple(sorted(found, key=lambda d: -len(d.path))) for name, found in grouped.items()}

    @cached_property
    def directories_by_path(self) -> dict[str, tuple[VirtualDirectory, ...]]:
        """All servers' virtual directories by their case-folded path."""
        grouped: dict[str, list[VirtualDirectory]] = {}
        for directory in self.virtual_directories:
            grouped.setdefault(directory.path.casefold(), []).append(directory)
        return {path: tuple(found) for path, found in grouped.items()}

    @cached_property
    def directories_by_prefix(self) -> dict[str, tuple[tuple[str, VirtualDirectory], ...]]:
        """Each server's virtual directories with what a case-folded path, ended by a slash, must begin with."""
        return {
            name: tuple((directory.path.casefold().rstrip("/") + "/", directory) for directory in found)
            for name, found in self.directories_by_server.items()
        }

    @cached_property
    def client_access_by_site(self) -> dict[str, tuple[Server, ...]]:
        """Each site's client access servers in one lasting order: newest version first, then by name."""
        grouped: dict[str, list[Server]] = {}
        for server in sorted(self.servers.values(), key=lambda s: (-s.version, s.name)):
            if Role.CLIENT_ACCESS in server.roles:
                grouped.setdefault(server.site, []).append(server)
        return {site: tuple(found) for site, found in grouped.items()}

    @cached_property
    def array_of_server(self) -> dict[str, ClientAccessArray]:
        """The array of each server that is in one; of several, the first."""
        found: dict[str, ClientAccessArray] = {}
        for array in self.arrays.values():
            for member in array.members:
                found.setdefault(member, array)
        return found

    @cached_property
    def subnets(self) -> Subnets:
        """All sites' subnets."""
        return Subnets((net, site.name) for site in self.sites.values() for net in site.subnets)

    def site_of_address(self, address: str) -> Site | None:
        """The site whose longest subnet holds `address`, or None. Raises ValueError when it is no IP address."""
        found = self.subnets.find(address)
        return self.sites[found[1]] if found is not None else None
