"""Where a message goes next (SPEC T3): the key of a delivery queue, and how its servers are reached."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gatepost.organization.transport import SendConnector, TlsLevel


class DeliveryType(StrEnum):
    """The kinds of next hop, in the source system's words (exchange-facts 4.6)."""

    MAILBOX = "SmtpDeliveryToMailbox"
    """The server with the active copy of a database of this site; `domain` is the database."""
    SITE = "SmtpRelayToRemoteActiveDirectorySite"
    """The hubs of another site; `domain` is the site."""
    CONNECTOR_SERVERS = "SmtpRelayToConnectorSourceServers"
    """The source servers of a send connector; `domain` is the connector."""
    DELIVERY_GROUP = "SmtpRelayToMailboxDeliveryGroup"
    """The old hubs of this site, which alone reach its old mailboxes; `domain` is `Site:<site>;Version:<version>`."""
    SERVERS = "SmtpRelayToServers"
    """Named servers, as an operator's redirect has it; `domain` is their names, parted by a semicolon."""
    DNS = "DnsConnectorDelivery"
    """By MX; `domain` is the recipients' domain."""
    SMART_HOST = "SmartHostConnectorDelivery"
    """The smart hosts of a send connector; `domain` is their list."""
    UNDEFINED = "Undefined"
    """Not yet routed; `domain` is `Submission`, or `Poison Message`."""
    UNREACHABLE = "Unreachable"
    """There is no way now; the organization may change. `domain` is `Unreachable Domain`."""


@dataclass(frozen=True, slots=True)
class NextHop:
    """The key of a delivery queue (`NextHopSolutionKey`)."""

    delivery: DeliveryType
    domain: str
    connector: str = ""
    """The send connector's name, where one is used."""


class Transfer(StrEnum):
    """What is spoken to the next server."""

    SMTP = "smtp"
    LMTP = "lmtp"


@dataclass(frozen=True, slots=True)
class Way:
    """How one host of a next hop is reached. `address` is a host name to look up or a literal address.

    `preference` orders the hosts: lower first; equal ones share the connections.
    """

    host: str
    address: str
    port: int
    preference: int = 0
    transfer: Transfer = Transfer.SMTP
    tls: TlsLevel = TlsLevel.OPPORTUNISTIC
    implicit_tls: bool = False
    tls_name: str = ""
    """The name that a verified certificate must carry; empty: `host`."""
    mutual: bool = False
    """A server of the organization: both show certificates of the organization's CA, and believe each other."""
    server: str = ""
    """Its name in the organization, where it is one of its servers: for its CA and its health."""


@dataclass(frozen=True, slots=True)
class Destination:
    """All of a next hop. Either `ways` are known, or `mx_domain` is to be looked up and reached as `connector` says."""

    next_hop: NextHop
    ways: tuple[Way, ...] = ()
    mx_domain: str = ""
    connector: SendConnector | None = None
    max_connections: int = 20
    max_messages_per_connection: int = 20
