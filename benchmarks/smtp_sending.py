"""How fast messages in memory are handed to Postfix' smtp-sink: what sending alone costs, without spool and routing.

    python benchmarks/smtp_sending.py [MESSAGES [CONNECTIONS [OCTETS]]]     # 20000 20 5000

Prints messages a second by the clock and by this process's own processor time, of which it has one core at most.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any, cast

import structlog
import uvloop

from gatepost.lab.servers.process import dies_with_parent, free_ports, require_program, wait_until_accepted
from gatepost.organization.transport import TlsLevel
from gatepost.routing.next_hop import Way
from gatepost.transport.message import Envelope, Recipient, RecipientState
from gatepost.transport.send.connecting import Outbound
from gatepost.transport.send.options import Endpoint, SendOptions

ADDRESS = "127.0.0.1"
LINE = b"x" * 70 + b"\r\n"


class Body:
    """A content in memory."""

    def __init__(self, size: int) -> None:
        self._data = (b"From: a@x.test\r\nSubject: s\r\n\r\n" + LINE * (size // len(LINE) + 1))[: size - 2] + b"\r\n"
        self.size = len(self._data)

    async def chunks(self) -> AsyncIterator[bytes]:
        """All of it."""
        yield self._data

    def close(self) -> None:
        """Nothing is open."""


async def send_all(endpoint: Endpoint, messages: int, connections: int, body: Body) -> None:
    """Hand over so many messages."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    outbound = Outbound(cast(Any, structlog.get_logger()))
    way = Way(endpoint.ip, endpoint.ip, endpoint.port, tls=TlsLevel.NONE)
    left = messages

    async def some() -> None:
        nonlocal left
        sender = await outbound.connect(endpoint, way, SendOptions("bench.test"))
        while left > 0:
            left -= 1
            recipient = Recipient("b@x.test")
            envelope = Envelope("a@x.test", [recipient], 0.0, 0.0, size=body.size)
            outcome = await sender.send(envelope, envelope.recipients, body)
            assert outcome.recipients[0].state is RecipientState.DELIVERED, outcome
        await sender.quit()

    await asyncio.gather(*(some() for _ in range(connections)))
    outbound.close()


def main(messages: int = 20_000, connections: int = 20, octets: int = 5000) -> None:
    """Start a sink, fill it, tell."""
    program = require_program("smtp-sink", ("postfix",))
    (port,) = free_ports(ADDRESS, 1)
    account = ["-u", "nobody"] if os.geteuid() == 0 else []
    sink = subprocess.Popen(dies_with_parent([program, *account, f"{ADDRESS}:{port}", "1000"]))
    try:
        wait_until_accepted([(ADDRESS, port)], time.monotonic() + 10)
        wall, processor = time.monotonic(), time.process_time()
        uvloop.run(send_all(Endpoint(ADDRESS, port), messages, connections, Body(octets)))
        wall, processor = time.monotonic() - wall, time.process_time() - processor
    finally:
        sink.terminate()
        sink.wait()
    print(
        f"{messages} messages of {octets} octets over {connections} connections: {messages / wall:,.0f}/s by the clock"
    )
    print(f"{messages / processor:,.0f}/s of one core: {processor / messages * 1e6:.0f} µs each")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
