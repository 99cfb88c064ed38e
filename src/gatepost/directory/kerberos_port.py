"""What the doors see of Kerberos; its library is loaded only where it is configured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol as Port

from gatepost.directory.port import SignInResult, Verdict
from gatepost.organization.model import Endpoint, Protocol, Server
from gatepost.wire.events import SaslDialogue

MAX_TOKEN = 65536
"""Octets: a ticket with the groups of Active Directory's largest users (48,000 by default) and what is around it."""

SERVICES = {Protocol.HTTPS: "HTTP", Protocol.IMAP: "imap", Protocol.POP3: "pop", Protocol.SUBMISSION: "smtp"}
"""First component of the service principal, by protocol (RFC 4559 section 4; RFC 4752 and the protocols' profiles)."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """Send this to the client, whose answer is the next token."""

    token: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The ticket is good. `name` is the canonical login name that `principal` stands for; the user may not exist."""

    name: str
    principal: str
    token: bytes = field(default=b"", repr=False)
    """For the client, who may be waiting for it to know that we are who it asked for (mutual authentication)."""
    authorization_id: str = ""
    """Whom the client wants to act as, where it says so."""


class NoTicket(Exception):
    """No ticket was to be had for a server. The text is for the log; for the client it is a temporary fault."""


NO_KERBEROS = SignInResult(Verdict.UNAVAILABLE, reason="Kerberos is not accepted any more")
"""Of an exchange that was begun before the configuration changed."""


class KerberosExchange(Port):
    """One client's tokens, in turn."""

    async def step(self, token: bytes) -> Challenge | Accepted | SignInResult:
        """Take the client's token. After anything but a `Challenge` the exchange is over. Never raises."""
        ...


class PeerTicket(Port):
    """A good ticket that somebody has shown as a front end (`directory.kerberos_peer.SealedTicket`)."""

    @property
    def principal(self) -> str:
        """Whose it is."""
        ...

    def sealed(self, payload: bytes, seal: bytes) -> bool:
        """Whether whoever has shown the ticket has made `seal` for `payload`."""
        ...


class KerberosAcceptor(Port):
    """Begins exchanges (`directory.kerberos.Kerberos`)."""

    def serves(self, protocol: Protocol) -> bool:
        """Whether there is a service principal for this protocol, as far as the configuration says."""
        ...

    def begin(self, protocol: Protocol, client: str) -> KerberosExchange:
        """A new exchange with the client at this address."""
        ...

    async def peer_ticket(self, token: bytes, service: str, client: str, binding: bytes) -> PeerTicket | SignInResult:
        """The ticket of another front end, made for `service` and bound to the TLS channel. Never raises."""
        ...

    def close(self) -> None:
        """Take no more steps."""
        ...


class KerberosOnward(Port):
    """Asks for tickets (`directory.kerberos_onward.OnwardTickets`)."""

    async def dialogue(self, user: str, service: str) -> SaslDialogue:
        """The client's side of SASL GSSAPI as `user` at `service` (`imap/host`). Raises `NoTicket`."""
        ...

    async def web_token(self, user: str, service: str, binding: bytes) -> bytes:
        """A token of HTTP Negotiate for one request of `user`, bound to the TLS channel. Raises `NoTicket`."""
        ...

    async def as_peer(self, service: str, binding: bytes, payload: bytes) -> tuple[bytes, bytes]:
        """A token as ourselves, bound to the TLS channel, and its context's seal on `payload`. Raises `NoTicket`."""
        ...

    def refused(self, user: str, service: str) -> None:
        """A server did not take the user's ticket: the next one is a new one."""
        ...

    def peer_refused(self, service: str) -> None:
        """A front end did not take our ticket."""
        ...

    def close(self) -> None:
        """Ask no more."""
        ...


def service_of(protocol: Protocol, server: Server) -> str:
    """The service principal of a mailbox server, with its realm where the configuration says one."""
    return f"{SERVICES[protocol]}/{server.sign_in.kerberos_host or server.fqdn}"


def peer_service(server: Server, endpoint: Endpoint) -> str:
    """The service principal of a front end at its endpoint for others, in the realm of its own account."""
    host = f"{SERVICES[Protocol.HTTPS]}/{endpoint.tls_name}"
    realm = server.kerberos_principal.rpartition("@")[2]
    return f"{host}@{realm}" if realm else host
