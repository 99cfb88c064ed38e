"""Real servers that mail is handed to: Postfix' smtp-sink with its faults, Dovecot's LMTP, Exim with STARTTLS."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, cast

from doors import Servers, missing
from structlog.testing import CapturingLogger

from gatepost.lab.servers.dovecot import Dovecot
from gatepost.lab.servers.exim import Exim
from gatepost.lab.servers.process import ServerMissing, ServerProcess, free_ports, require_program
from gatepost.organization.transport import TlsLevel
from gatepost.routing.next_hop import Transfer, Way
from gatepost.transport.message import Envelope, Recipient
from gatepost.transport.send.connecting import Outbound
from gatepost.transport.send.options import Endpoint, SendOptions
from gatepost.transport.send.sender import SmtpSender
from gatepost.transport.send.tls import TlsMaterial

LMTP_PROGRAM = Path("/usr/lib/dovecot/lmtp")
_LMTP = """
protocols = imap pop3 lmtp
service lmtp {{
  inet_listener lmtp {{
    address = {address}
    port = {port}
  }}
}}
protocol lmtp {{
  postmaster_address = postmaster@contoso.com
}}
"""
_numbers = itertools.count(1)


@contextmanager
def smtp_sink(servers: Servers, *options: str) -> Iterator[Endpoint]:
    """An smtp-sink with these options: `-q COMMAND` drops, `-Q` 421 and drops, `-r` 4yz, `-f` 5yz, `-L` LMTP."""
    try:
        program = require_program("smtp-sink", ("postfix",))
    except ServerMissing as error:
        missing(error)
    address = servers.address()
    (port,) = free_ports(address, 1)
    account = ("-u", "nobody") if os.geteuid() == 0 else ()
    directory = servers.scratch / f"sink-{next(_numbers)}"
    directory.mkdir()
    with ServerProcess("sink", [program, *account, *options, f"{address}:{port}", "500"], directory, [(address, port)]):
        yield Endpoint(address, port)


@contextmanager
def dovecot_lmtp(servers: Servers, extra: str = "") -> Iterator[tuple[Dovecot, Endpoint]]:
    """A Dovecot that delivers to alice, bob and carol by LMTP; `extra` are more settings."""
    if not LMTP_PROGRAM.exists():
        missing(ServerMissing("Dovecot's LMTP", ("dovecot-lmtpd",)))
    address = servers.address()
    (port,) = free_ports(address, 1)
    name = f"LMTP-{next(_numbers)}"
    with servers.new_dovecot(name, address, _LMTP.format(address=address, port=port) + extra) as server:
        yield server, Endpoint(address, port)


@contextmanager
def exim(servers: Servers, settings: str = "") -> Iterator[tuple[Exim, Endpoint]]:
    """An Exim with a certificate of the tests' authority for mx.contoso.com."""
    address = servers.address()
    (port,) = free_ports(address, 1)
    name = f"exim-{next(_numbers)}"
    try:
        certificate = servers.authority.issue(name, "mx.contoso.com", address)
        server = Exim(servers.scratch / name, address, port, certificate, settings=settings, name=name)
    except ServerMissing as error:
        missing(error)
    with server:
        yield server, Endpoint(address, port)


class Sending:
    """An `Outbound` with what a test says to it. Use `async with`."""

    def __init__(self, servers: Servers) -> None:
        self.log = CapturingLogger()
        material = TlsMaterial(authorities=servers.authority.certificate.read_bytes())
        self.outbound = Outbound(cast(Any, self.log), material, sweep_seconds=0.05)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for sender in list(self.outbound.open):
            await cast(SmtpSender, sender).quit()
        self.outbound.close()

    async def connect(self, endpoint: Endpoint, *, lmtp: bool = False, **more: Any) -> SmtpSender:
        """A session. `more` goes to the options, `tls` and `tls_name` to the way."""
        way = Way(
            "mx.contoso.com",
            endpoint.ip,
            endpoint.port,
            transfer=Transfer.LMTP if lmtp else Transfer.SMTP,
            tls=more.pop("tls", TlsLevel.OPPORTUNISTIC),
        )
        return await self.outbound.connect(endpoint, way, SendOptions("hub-01.contoso.com", **more))


class Content:
    """A content in pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces
        self.size = sum(map(len, pieces))

    async def chunks(self) -> AsyncIterator[bytes]:
        """The pieces."""
        for piece in self.pieces:
            yield piece

    def close(self) -> None:
        """Nothing is open."""


def message(*names: str, **settings: Any) -> Envelope:
    """From a@fabrikam.com to these at contoso.com."""
    recipients = [Recipient(f"{name}@contoso.com") for name in names]
    return Envelope("a@fabrikam.com", recipients, 0.0, 0.0, **settings)
