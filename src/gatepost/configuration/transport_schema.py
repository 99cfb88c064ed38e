"""The tables of mail transport: connectors, and the settings of hubs and edges. As in `schema`, shapes only."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import Field, create_model

from gatepost.configuration.tables import MAX_COUNT, Table, default_of
from gatepost.configuration.transport_words import (
    BindingText,
    PermissionWord,
    RangeText,
    ReceiveAuthenticationWord,
    ShadowPreferenceWord,
    Size,
    SmartHostText,
    SpaceText,
    Span,
    TlsLevelWord,
)
from gatepost.configuration.words import Port
from gatepost.organization.transport import (
    EDGE_SETTINGS,
    HUB_SETTINGS,
    ReceiveAuthentication,
    ReceiveConnector,
    SendConnector,
    ShadowPreference,
    TlsLevel,
    TransportConfig,
    TransportSettings,
)
from gatepost.organization.transport_text import size_text, span_text

DAY = 86400.0
MAX_SIZE = 2**40
MIN_MESSAGE = 64 * 1024
"""No limit on messages is smaller: a report with its headers must fit."""

_SIZES = {"min_free_bytes"}
_RANGES: dict[str, tuple[float, float]] = {
    "queue_glitch_retry_count": (0, 15),
    "transient_failure_retry_count": (0, 15),
    "queue_glitch_retry_interval": (1, DAY),
    "transient_failure_retry_interval": (1, DAY / 2),
    "outbound_connection_failure_retry_interval": (1, 20 * DAY),
    "message_retry_interval": (1, DAY),
    "mailbox_delivery_queue_retry_interval": (1, DAY),
    "message_expiration": (5, 90 * DAY),
    "delay_notification": (1, 30 * DAY),
    "queue_max_idle": (5, 3600),
    "connect_seconds": (1, 600),
    "hedge_seconds": (0, 600),
    "connectivity_log_max_age": (0, 10_000 * DAY),
}
"""As the source system's commands allow them (exchange-facts 4.3); counts of other names begin at 1."""


def _setting(name: str, kind: type) -> Any:  # noqa: ANN401 - what create_model takes
    """A key of `TransportTable`. One whose default is another on an edge has none here."""
    default = getattr(HUB_SETTINGS, name)
    lowest, highest = _RANGES.get(name, (1, MAX_COUNT))
    differs = getattr(EDGE_SETTINGS, name) != default
    if kind is bool:
        return (bool, Field(default, examples=[str(not default).lower()]))
    if name in _SIZES or name.endswith("_size"):
        return (Size, Field(default, ge=0, le=MAX_SIZE, examples=[f'"{size_text(2 * default)}"']))
    if kind is int:
        return (int, Field(default, ge=lowest, le=highest, examples=[str(min(2 * default, int(highest)))]))
    example = f'"{span_text(min(2 * default, highest))}"'
    if differs:
        return (Span | None, Field(None, ge=lowest, le=highest, examples=[example]))
    return (Span, Field(default, ge=lowest, le=highest, examples=[example]))


if TYPE_CHECKING:
    TransportTable = Table
else:
    _KINDS = get_type_hints(TransportSettings)
    TransportTable = create_model(
        "TransportTable",
        __base__=Table,
        **{f.name: _setting(f.name, _KINDS[f.name]) for f in fields(TransportSettings)},
    )

SETTINGS_TEXT = """\
How a hub or an edge carries mail. Times are seconds, or text such as `"00:05:00"` and `"2.00:00:00"`; sizes are bytes,
or text such as `"10MB"`. `Set-TransportServer` changes the same settings."""


_CONFIG_RANGES: dict[str, tuple[float, float]] = {
    "max_retries_for_remote_site_shadow": (0, 255),
    "max_retries_for_local_site_shadow": (0, 255),
    "shadow_heartbeat_frequency": (1, DAY),
    "shadow_heartbeat_retry_count": (0, 15),
    "shadow_resubmit_time_span": (1, DAY),
    "shadow_message_auto_discard_interval": (5, 90 * DAY),
    "shadow_fence_time": (0, 3600),
    "safety_net_hold_time": (0, 90 * DAY),
}
"""As the source system's commands allow them (exchange-facts 4.4); the last two are ours."""


def _config_setting(name: str, kind: type) -> Any:  # noqa: ANN401 - what create_model takes
    """A key of `TransportConfigTable`."""
    default = getattr(TransportConfig(), name)
    if kind is bool:
        return (bool, Field(default, examples=[str(not default).lower()]))
    if kind is str:
        return (str, Field(default, examples=['"postmaster@contoso.com"']))
    if kind is ShadowPreference:
        return (ShadowPreferenceWord, Field(default, examples=['"local-only"']))
    lowest, highest = _CONFIG_RANGES[name]
    example = min(2 * default, highest) or highest
    if kind is int:
        return (int, Field(default, ge=lowest, le=highest, examples=[str(int(example))]))
    return (Span, Field(default, ge=lowest, le=highest, examples=[f'"{span_text(example)}"']))


if TYPE_CHECKING:
    TransportConfigTable = Table
else:
    _CONFIG_KINDS = get_type_hints(TransportConfig)
    TransportConfigTable = create_model(
        "TransportConfigTable",
        __base__=Table,
        **{f.name: _config_setting(f.name, _CONFIG_KINDS[f.name]) for f in fields(TransportConfig)},
    )

CONFIG_TEXT = """\
What all hubs of the organization have in common: shadow redundancy, the safety net, the postmaster. Times are seconds,
or text such as `"00:02:00"` and `"2.00:00:00"`. `Set-TransportConfig` changes the same settings."""


class ReceiveConnectorTable(Table):
    """How a hub or an edge takes mail from some clients. The table's name is the connector's. A server with an `smtp`,
    `submission` or `submissions` endpoint that no connector names has the standard ones, see below. Of several
    connectors at one address and port, the one with the narrowest range that holds the client's address counts."""

    server: str = Field(examples=['"HUB-01"'])
    """The hub or edge."""
    bindings: list[BindingText] = Field(default=[], examples=['["0.0.0.0:25", "[::]:25"]'])
    """Addresses and ports that it listens on."""
    implicit_tls_bindings: list[BindingText] = Field(default=[], examples=['["0.0.0.0:465"]'])
    """The same, with TLS from the first byte."""
    remote_ranges: list[RangeText] = Field(default=[], examples=['["10.0.0.0/8", "192.168.1.1-192.168.1.9"]'])
    """Clients that it is for. Empty: all. Ranges of connectors with the same binding lie inside each other or apart."""
    permission_groups: list[PermissionWord] = Field(default=[], examples=['["anonymous", "servers"]'])
    """Who may send: `anonymous` (everybody, to recipients of the organization), `users` (who has signed in), `servers`
    (of the organization), `partners` (with a verified certificate, to recipients of the organization)."""
    authentication: list[ReceiveAuthenticationWord] = Field(
        default=[ReceiveAuthentication.TLS], examples=['["tls", "basic", "basic-require-tls"]']
    )
    """What is offered: `tls`, `basic` (passwords), `basic-require-tls` (only within TLS; beside `basic` and `tls`),
    `kerberos` (tickets, within TLS; beside `tls`), `servers` (certificates of the organization), `externally-secured`
    (all clients are taken for its servers)."""
    require_tls: bool = Field(default=default_of(ReceiveConnector, "require_tls"), examples=["true"])
    """Whether mail is taken only within TLS."""
    fqdn: str = Field(default="", examples=['"mail.contoso.com"'])
    """The name that it greets with. Default: the server's `fqdn`."""
    banner: str = Field(default="", examples=['"mail.contoso.com ESMTP"'])
    """What follows `220 ` in the greeting. Default: the name and `ESMTP`."""
    enabled: bool = Field(default=True, examples=["false"])
    """Whether it is used."""
    max_message_size: Size = Field(
        default=default_of(ReceiveConnector, "max_message_size"), ge=MIN_MESSAGE, le=MAX_SIZE, examples=['"50MB"']
    )
    """Largest message."""
    max_header_size: Size = Field(
        default=default_of(ReceiveConnector, "max_header_size"), ge=1024, le=64 * 1024**2, examples=['"512KB"']
    )
    """Most bytes of a message's header."""
    max_hop_count: int = Field(default=default_of(ReceiveConnector, "max_hop_count"), ge=1, le=500, examples=["30"])
    """Most `Received` fields: a message with more goes in circles."""
    max_recipients: int = Field(
        default=default_of(ReceiveConnector, "max_recipients"), ge=1, le=MAX_COUNT, examples=["1000"]
    )
    """Most recipients of a message."""
    max_connections: int = Field(
        default=default_of(ReceiveConnector, "max_connections"), ge=1, le=MAX_COUNT, examples=["10000"]
    )
    """Most connections at a time."""
    max_connections_per_source: int = Field(
        default=default_of(ReceiveConnector, "max_connections_per_source"), ge=1, le=MAX_COUNT, examples=["100"]
    )
    """Most connections of one client at a time."""
    max_protocol_errors: int = Field(
        default=default_of(ReceiveConnector, "max_protocol_errors"), ge=1, le=500, examples=["10"]
    )
    """Refused commands until the connection is closed."""
    max_logon_failures: int = Field(
        default=default_of(ReceiveConnector, "max_logon_failures"), ge=1, le=100, examples=["5"]
    )
    """Failed sign-ins until the connection is closed."""
    tarpit_seconds: Span = Field(
        default=default_of(ReceiveConnector, "tarpit_seconds"), ge=0, le=600, examples=['"00:00:10"']
    )
    """How long a refusal waits, for those who are nobody's server."""
    connection_seconds: Span = Field(
        default=default_of(ReceiveConnector, "connection_seconds"), ge=1, le=DAY, examples=['"00:20:00"']
    )
    """How long a connection may last."""
    inactivity_seconds: Span = Field(
        default=default_of(ReceiveConnector, "inactivity_seconds"), ge=1, le=DAY, examples=['"00:10:00"']
    )
    """How long it may be silent; shorter than `connection_seconds`."""
    max_acknowledgement_delay: Span = Field(
        default=default_of(ReceiveConnector, "max_acknowledgement_delay"), ge=0, le=DAY, examples=['"00:00:10"']
    )
    """How long a message's `250` may wait until another hub has its shadow or it has been delivered. 0: it does not."""
    bare_line_feeds: bool = Field(default=default_of(ReceiveConnector, "bare_line_feeds"), examples=["true"])
    """Whether lines that end in LF alone are taken, and put right. Only for submitters that know no better."""
    proxy_protocol_from: list[RangeText] = Field(default=[], examples=['["10.0.0.5"]'])
    """Balancers whose connections begin with a PROXY header: required from these."""
    xclient_from: list[RangeText] = Field(default=[], examples=['["10.0.0.6"]'])
    """Who may say the client's address by XCLIENT."""
    accept_any_sender: bool = Field(default=default_of(ReceiveConnector, "accept_any_sender"), examples=["true"])
    """Whether users may send as anybody. Else by their own addresses, and as `gatepost user set --add-send-as` lets."""
    check_from_field: bool = Field(default=default_of(ReceiveConnector, "check_from_field"), examples=["false"])
    """Whether that goes for the `From` field too, not for the envelope's sender alone."""
    accept_authoritative_domain_sender: bool | None = Field(default=None, examples=["false"])
    """Whether clients that have not signed in may send as somebody of the accepted domains. Default: only where
    `anonymous` may send."""


class SendConnectorTable(Table):
    """How mail leaves the organization. The table's name is the connector's. Of those that match a recipient the most
    specific address space counts, then the lowest cost, then the nearest source server, then the lowest name."""

    address_spaces: list[SpaceText] = Field(examples=['["*", "*.fabrikam.com;5"]'])
    """Domains of recipients: `*`, `*.fabrikam.com` (`fabrikam.com` too) or `fabrikam.com`, with a cost up to 100."""
    source_servers: list[str] = Field(examples=['["HUB-01", "HUB-02"]'])
    """Hubs or edges that send by it; the others hand mail to these."""
    smart_hosts: list[SmartHostText] = Field(default=[], examples=['["relay.contoso.com", "[10.0.0.9]:2525"]'])
    """Hosts that take the mail, in turn. Empty: by the recipients' MX."""
    port: Port = Field(default=default_of(SendConnector, "port"), examples=["2525"])
    """Port of hosts that MX names."""
    scoped: bool = Field(default=default_of(SendConnector, "scoped"), examples=["true"])
    """Whether only servers in the sites of its source servers use it."""
    enabled: bool = Field(default=True, examples=["false"])
    """Whether it is used."""
    tls: TlsLevelWord = Field(default=TlsLevel.OPPORTUNISTIC, examples=['"verified"'])
    """`opportunistic` (if offered), `none`, `encrypted` (required, any certificate), `verified` (required, a known
    authority and the right name)."""
    tls_domain: str = Field(default="", examples=['"mail.fabrikam.com"'])
    """The name that a verified certificate must carry. Default: the host's."""
    user: str = Field(default="", examples=['"contoso"'])
    """Name to sign in with at the smart hosts, only within TLS."""
    password_file: str = Field(default="", examples=['"secrets/relay"'])
    """File with the password; a line end at its end is dropped. Relative to this file."""
    max_message_size: Size = Field(
        default=default_of(SendConnector, "max_message_size"), ge=0, le=MAX_SIZE, examples=['"10MB"']
    )
    """Largest message; 0 or `"unlimited"`: any."""
    max_messages_per_connection: int = Field(
        default=default_of(SendConnector, "max_messages_per_connection"), ge=1, le=MAX_COUNT, examples=["100"]
    )
    """Messages after which a connection is ended."""
    inactivity_seconds: Span = Field(
        default=default_of(SendConnector, "inactivity_seconds"), ge=1, le=DAY, examples=['"00:05:00"']
    )
    """How long a host may be silent."""
    fqdn: str = Field(default="", examples=['"mail.contoso.com"'])
    """The name at EHLO. Default: the server's `fqdn`."""
    allow_private: bool = Field(default=default_of(SendConnector, "allow_private"), examples=["true"])
    """Whether hosts that MX names may have loopback, private or link-local addresses."""
