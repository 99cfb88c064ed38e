"""The objects of mail transport (SPEC T1, T3, T6): connectors, accepted domains, settings of hubs and edges.

Defaults are those of the source system (exchange-facts 4.3, 4.9, 4.10) unless a comment says why not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address

MEGABYTE = 1024 * 1024
Address = IPv4Address | IPv6Address


class PermissionGroup(StrEnum):
    """Who may send through a receive connector."""

    ANONYMOUS = "anonymous"
    """Everybody; to recipients of the organization only."""
    USERS = "users"
    """Who has signed in; to everybody."""
    SERVERS = "servers"
    """Servers of the organization, known by their certificate of the organization's CA; to everybody."""
    PARTNERS = "partners"
    """Servers whose certificate is verified; to recipients of the organization only."""


class ReceiveAuthentication(StrEnum):
    """How a client of a receive connector may say who it is."""

    TLS = "tls"
    """STARTTLS is offered."""
    BASIC = "basic"
    """AUTH PLAIN and LOGIN, against the directory."""
    BASIC_REQUIRE_TLS = "basic-require-tls"
    """The same, offered only within TLS."""
    KERBEROS = "kerberos"
    """AUTH GSSAPI, by Kerberos tickets (`[front_end.kerberos]`), offered only within TLS."""
    SERVERS = "servers"
    """The certificate of a server of the organization (mutual TLS)."""
    EXTERNALLY_SECURED = "externally-secured"
    """Clients of the connector's ranges are taken for servers of the organization: the network is trusted."""


@dataclass(frozen=True, slots=True)
class Binding:
    """Where a connector listens. `address` may be `0.0.0.0` or `::`."""

    address: Address
    port: int
    implicit_tls: bool = False
    """TLS from the first byte, as on port 465 (RFC 8314)."""


def binding_name(binding: Binding) -> str:
    """`smtp 0.0.0.0:25`."""
    return f"smtp {binding.address}:{binding.port}"


@dataclass(frozen=True, slots=True)
class AddressRange:
    """Remote addresses, both ends included. `first` and `last` are of the same family."""

    first: Address
    last: Address

    def __contains__(self, address: Address) -> bool:
        return address.version == self.first.version and int(self.first) <= int(address) <= int(self.last)

    @property
    def size(self) -> int:
        """Fewer addresses are more specific."""
        return int(self.last) - int(self.first) + 1


@dataclass(frozen=True, slots=True)
class ReceiveConnector:
    """How a server takes mail from some clients (SPEC T1). Sizes in bytes, times in seconds."""

    name: str
    server: str
    bindings: tuple[Binding, ...]
    remote_ranges: tuple[AddressRange, ...] = ()
    """Empty: everybody."""
    permission_groups: frozenset[PermissionGroup] = frozenset()
    authentication: frozenset[ReceiveAuthentication] = frozenset({ReceiveAuthentication.TLS})
    require_tls: bool = False
    fqdn: str = ""
    """The name in banner and `Received`; empty: the server's."""
    banner: str = ""
    """What follows `220 `; empty: the name and a greeting."""
    enabled: bool = True
    max_message_size: int = 36 * MEGABYTE
    max_header_size: int = 256 * 1024
    max_hop_count: int = 100
    """`Received` fields (RFC 5321, section 6.3, asks for 100 and more; the source system has 30)."""
    max_recipients: int = 200
    max_connections: int = 5000
    max_connections_per_source: int = 20
    max_protocol_errors: int = 5
    max_logon_failures: int = 3
    tarpit_seconds: float = 5.0
    connection_seconds: float = 600.0
    inactivity_seconds: float = 300.0
    greeting_delay: float = 0.0
    """How long clients wait for the banner: those who speak before it are refused, and most of them send spam."""
    bare_line_feeds: bool = False
    """Take lines that end in LF alone, from submitters that know no better; they are put right before they go on."""
    proxy_protocol_from: tuple[AddressRange, ...] = ()
    """Balancers: each of their connections begins with a PROXY header."""
    xclient_from: tuple[AddressRange, ...] = ()
    """Who may say XCLIENT."""
    accept_any_sender: bool = False
    """Whether users who have signed in may send as anybody; else as themselves and by their grants (`User.send_as`)."""
    check_from_field: bool = True
    """Whether that goes for the `From` field too, not for the envelope alone."""
    accept_authoritative_domain_sender: bool | None = None
    """Whether clients that have not signed in may send as somebody of the accepted domains. None: where strangers may
    send at all, for they have that right in the source system, and partners have not."""
    max_acknowledgement_delay: float = 30.0
    """How long a message's `250` may wait until it has a shadow or has been delivered. 0: it does not wait."""

    @property
    def takes_own_domains(self) -> bool:
        """Whether who has not signed in may send as somebody of the accepted domains."""
        said = self.accept_authoritative_domain_sender
        return PermissionGroup.ANONYMOUS in self.permission_groups if said is None else said


@dataclass(frozen=True, slots=True)
class AddressSpace:
    """Recipients' domains of a send connector: `*`, `*.contoso.com` (`contoso.com` too) or `contoso.com`."""

    pattern: str
    cost: int = 1


class TlsLevel(StrEnum):
    """What a send connector wants of the next server's TLS."""

    OPPORTUNISTIC = "opportunistic"
    """If it is offered; any certificate, and without TLS when it fails."""
    NONE = "none"
    ENCRYPTED = "encrypted"
    """Required, any certificate."""
    VERIFIED = "verified"
    """Required, with a certificate of a known authority for the host's name, or for `tls_domain`."""


@dataclass(frozen=True, slots=True)
class SmartHost:
    """Where a send connector hands mail to: a host name or a literal address."""

    host: str
    port: int = 25


@dataclass(frozen=True, slots=True)
class SendConnector:
    """How mail leaves the organization (SPEC T3)."""

    name: str
    address_spaces: tuple[AddressSpace, ...]
    source_servers: tuple[str, ...]
    smart_hosts: tuple[SmartHost, ...] = ()
    """Empty: by MX."""
    port: int = 25
    """Of hosts that MX names."""
    scoped: bool = False
    """Only servers in the sites of its source servers use it."""
    enabled: bool = True
    tls: TlsLevel = TlsLevel.OPPORTUNISTIC
    tls_domain: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    """AUTH at smart hosts; only within TLS."""
    max_message_size: int = 35 * MEGABYTE
    max_messages_per_connection: int = 20
    inactivity_seconds: float = 600.0
    fqdn: str = ""
    """The name at EHLO; empty: the server's."""
    allow_private: bool = False
    """Whether hosts that MX names may have loopback, private or link-local addresses."""


class DomainKind(StrEnum):
    """What an accepted domain is to the organization."""

    AUTHORITATIVE = "authoritative"
    """All its mailboxes are here: unknown recipients are refused."""
    INTERNAL_RELAY = "internal-relay"
    """Some mailboxes are here; other recipients go on by a send connector."""
    EXTERNAL_RELAY = "external-relay"
    """None are here: everything goes on by a send connector."""


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """What `Set-TransportServer` sets for one hub or edge. Times in seconds (exchange-facts 4.3)."""

    queue_glitch_retry_count: int = 4
    """Attempts at a server that could not be reached, one each `queue_glitch_retry_interval`."""
    queue_glitch_retry_interval: float = 60.0
    """How long to wait before each of those."""
    transient_failure_retry_count: int = 6
    """Attempts after those, one each `transient_failure_retry_interval`."""
    transient_failure_retry_interval: float = 300.0
    """How long to wait before each of those. 600 on an edge."""
    outbound_connection_failure_retry_interval: float = 600.0
    """How long to wait before every attempt from then on. 1800 on an edge."""
    message_retry_interval: float = 900.0
    """How long a message waits that a server has put off."""
    message_expiration: float = 2 * 86400.0
    """How old a message becomes before it goes back to its sender."""
    delay_notification: float = 4 * 3600.0
    """How old a message becomes before its sender hears that it is late."""
    mailbox_delivery_queue_retry_interval: float = 300.0
    """How long mail for a mailbox server waits that could not be reached."""
    max_outbound_connections: int = 1000
    """Most connections to other servers at a time."""
    max_per_domain_outbound_connections: int = 20
    """Most connections for one next hop at a time."""
    max_messages_per_connection: int = 20
    """Most messages over one connection between servers of the organization."""
    queue_max_idle: float = 180.0
    """How long an empty queue is kept."""
    poison_threshold: int = 2
    """How often the process may die over a message before it is set aside."""
    connect_seconds: float = 30.0
    """How long a connection may take to be made."""
    hedge_seconds: float = 2.0
    """After this without an answer a second server of the same preference is tried at the same time. 0: never."""
    healthy_server_selector: bool = True
    """Whether servers that are down are left out until they are due. `false`: they keep getting their turn."""
    max_queued_messages: int = 1_000_000
    """Nothing more is taken while so many messages wait."""
    min_free_bytes: int = 500 * MEGABYTE
    """Nothing more is taken while less than this is free on the disk."""
    connectivity_log_enabled: bool = False
    """Whether the connectivity log is written."""
    connectivity_log_max_age: float = 30 * 86400.0
    """How long its files are kept. 0: for ever."""
    connectivity_log_max_directory_size: int = 250 * MEGABYTE
    """How much room its files may take together."""
    connectivity_log_max_file_size: int = 10 * MEGABYTE
    """When the next file is begun."""


HUB_SETTINGS = TransportSettings()
EDGE_SETTINGS = TransportSettings(
    transient_failure_retry_interval=600.0, outbound_connection_failure_retry_interval=1800.0
)
"""The settings of an edge that says nothing (SPEC T6)."""


class ShadowPreference(StrEnum):
    """Where the shadow of a message is made whose mailbox database has copies in several sites."""

    PREFER_REMOTE = "prefer-remote"
    """In another of those sites, else in the hub's own."""
    LOCAL_ONLY = "local-only"
    REMOTE_ONLY = "remote-only"


@dataclass(frozen=True, slots=True)
class TransportConfig:
    """What `Set-TransportConfig` sets for all hubs of the organization. Times in seconds (exchange-facts 4.4, 4.5)."""

    shadow_redundancy_enabled: bool = True
    """Whether hubs keep shadows of each other's messages."""
    reject_message_on_shadow_failure: bool = False
    """Whether a message is put off with 451 when no shadow of it can be made; else it is accepted without one."""
    shadow_message_preference: ShadowPreference = ShadowPreference.PREFER_REMOTE
    """Where shadows are made of mail for a database with copies in several sites."""
    max_retries_for_remote_site_shadow: int = 4
    """Hubs of other sites that are tried for one shadow."""
    max_retries_for_local_site_shadow: int = 2
    """Hubs of the own site that are tried for one shadow."""
    shadow_heartbeat_frequency: float = 120.0
    """How often a primary is asked that nothing else was asked of."""
    shadow_heartbeat_retry_count: int = 0
    """Heartbeats in a row after which a primary is held dead. 0: `shadow_resubmit_time_span` alone decides."""
    shadow_resubmit_time_span: float = 3 * 3600.0
    """How long a primary may be silent before its messages are taken over."""
    shadow_message_auto_discard_interval: float = 2 * 86400.0
    """How long a discard event is kept that nobody asks for."""
    shadow_fence_time: float = 30.0
    """How long a hub that starts waits for what its shadow servers say of its messages before it sends them."""
    safety_net_hold_time: float = 2 * 86400.0
    """How long copies of delivered messages are kept. 0: none are."""
    external_postmaster_address: str = ""
    """Whom reports are from, and who gets mail to a `postmaster` that nobody is. Default: `postmaster` at the first
    accepted domain."""
