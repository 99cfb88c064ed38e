"""A receive connector in a process of its own whose intake only counts: started by tests and by hand.

Prints its port; at the end of its input what it has taken, as `messages octets`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from dataclasses import dataclass
from ipaddress import ip_address

import structlog
import uvloop

from gatepost.organization.transport import MEGABYTE, Binding, PermissionGroup, ReceiveConnector
from gatepost.transport.message import Envelope
from gatepost.transport.ports import Pressure
from gatepost.transport.receive.service import ReceiveService
from gatepost.wire.smtp_reply import Reply


@dataclass(slots=True)
class CountingWriter:
    """Forgets what it is given."""

    size: int = 0
    full: bool = False

    def write(self, data: bytes) -> None:
        """Count."""
        self.size += len(data)

    async def drain(self) -> None:
        """Nothing waits."""

    def discard(self) -> None:
        """There is nothing."""


class CountingIntake:
    """Takes everything, keeps nothing."""

    pressure = Pressure.NORMAL
    refuses_strangers = False
    tarpit_seconds = 0.0
    queued = Reply(250, "Queued", "2.6.0")

    def __init__(self) -> None:
        self.messages = 0
        self.octets = 0

    def sender(self, envelope: Envelope) -> Reply | None:
        """Everybody may send."""
        return None

    def recipient(self, envelope: Envelope, address: str) -> Reply | None:
        """Everybody may receive."""
        return None

    def is_ours(self, address: str) -> bool:
        """Every domain is ours."""
        return True

    def writer(self, size: int | None, envelope: Envelope) -> CountingWriter:
        """A new one."""
        return CountingWriter()

    async def accept(self, writer: CountingWriter, envelope: Envelope) -> Reply:
        """Count."""
        self.messages += 1
        self.octets += writer.size
        return self.queued


async def main() -> None:
    """Serve until the input ends."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    sock = socket.create_server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), backlog=1000)
    binding = Binding(ip_address("127.0.0.1"), sock.getsockname()[1])
    connector = ReceiveConnector(
        "Counting",
        "HUB-01",
        (binding,),
        permission_groups=frozenset({PermissionGroup.ANONYMOUS}),
        max_message_size=100 * MEGABYTE,
        max_connections_per_source=1000,
    )
    intake = CountingIntake()
    service = ReceiveService([connector], intake, "hub-01.contoso.com", structlog.get_logger())
    await service.listen(sock, binding)
    print(binding.port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await service.stop(0.0)
    print(intake.messages, intake.octets, flush=True)


if __name__ == "__main__":
    uvloop.run(main())
