"""How connections to the next server are made, and who is told of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Protocol as Port

from gatepost.wire.smtp_client_events import Step


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to connect: a literal IPv4 or IPv6 address and a port."""

    ip: str
    port: int

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


@dataclass(frozen=True, slots=True)
class SendTimes:
    """Seconds a server has for each step (RFC 5321, section 4.5.3.2). The sweep that looks may be a second late."""

    connect: float = 30.0
    greeting: float = 300.0
    """Also for EHLO."""
    tls: float = 60.0
    """STARTTLS and the handshake."""
    authentication: float = 120.0
    command: float = 300.0
    """MAIL, each RCPT and RSET."""
    data: float = 120.0
    block: float = 180.0
    """Until a block of the content has been taken: 256 KiB, so that nobody can read slower than 1.4 kB a second."""
    end: float = 600.0
    """For the answer to the content: who gives up earlier sends twice (RFC 1047)."""
    envelope: float = 1800.0
    """For all commands of one transaction together: a server that takes its whole time for each of many recipients."""
    quit: float = 5.0

    def by_step(self) -> dict[Step, float]:
        """For each step; without end while nothing is waited for."""
        return {
            Step.GREETING: self.greeting,
            Step.HELLO: self.greeting,
            Step.STARTTLS: self.tls,
            Step.HANDSHAKE: self.tls,
            Step.AUTHENTICATION: self.authentication,
            Step.IDLE: inf,
            Step.MAIL: self.command,
            Step.RECIPIENT: self.command,
            Step.DATA: self.data,
            Step.CONTENT: self.block,
            Step.CHUNK: self.block,
            Step.END: self.end,
            Step.EMPTY_END: self.end,
            Step.RESET: self.command,
            Step.QUIT: self.quit,
            Step.CHANNEL: self.command,
            Step.OVER: inf,
        }


@dataclass(frozen=True, slots=True)
class TlsFacts:
    """The TLS of a session. `verified`: certificate and name were checked."""

    version: str
    cipher: str
    verified: bool


class SessionHooks(Port):
    """Who is told of sessions, as the connectivity log is. Nothing here may raise; `session` is the session's id."""

    def connected(self, session: str, endpoint: Endpoint, host: str, extensions_of: str, tls: TlsFacts | None) -> None:
        """The session stands. `extensions_of` is what the server calls itself."""

    def disconnected(self, session: str, endpoint: Endpoint, host: str, messages: int, octets: int, why: str) -> None:
        """It ended: messages the server took at least one recipient of, octets of content sent, and why it ended."""


@dataclass(frozen=True, slots=True)
class SendOptions:
    """What is the same for all connections of a next hop."""

    name: str
    """Said at EHLO: our host name, or the connector's."""
    times: SendTimes = field(default_factory=SendTimes)
    source_address: str = ""
    """Of our side; empty: the kernel chooses."""
    user: str = ""
    """AUTH, within TLS only; empty: none."""
    password: str = field(default="", repr=False)
    max_recipients: int = 100
    """Of one transaction: so many every server takes (RFC 5321, section 4.5.3.1.8)."""
    hooks: SessionHooks | None = None
