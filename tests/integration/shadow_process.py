"""The answering end of shadow channels in a process of its own: HUB-01, whose keeper the test steers.

The first line of its input has its certificate, key and CA (JSON); it prints its port. Then `hold` stops the commits
and `go` goes on with them; both, and `state`, print what there is. It ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
from dataclasses import replace
from ipaddress import ip_address
from typing import Any, cast

import structlog
import uvloop
from receive_stage import CONNECTOR, KeptIntake
from shadow_channel_stage import SERVERS, Keeper

from gatepost.organization.transport import Binding
from gatepost.transport.receive.service import ReceiveService
from gatepost.transport.receive.tls import receive_tls
from gatepost.transport.shadow.answering import ShadowPart
from gatepost.wire.shadow_words import ShadowHub, ShadowOffer


async def main() -> None:
    """See the module."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    given = json.loads(sys.stdin.readline())
    sock = socket.create_server(("127.0.0.1", given["port"]))
    binding = Binding(ip_address("127.0.0.1"), sock.getsockname()[1])
    pair = given["certificate"].encode(), given["key"].encode()
    tls = receive_tls(
        *pair,
        organization_ca=given["ca"].encode(),
        organization_pair=pair,
        servers=SERVERS,
        own_name="HUB-01",
    )
    keeper, intake = Keeper(), KeptIntake()
    keeper.keeps = False
    part = ShadowPart(ShadowOffer(ShadowHub("HUB-01", given["identity"]), frozenset({"HUB-02"})), keeper)
    connector = replace(CONNECTOR, bindings=(binding,))
    log = structlog.get_logger()
    service = ReceiveService([connector], cast(Any, intake), "hub-01.contoso.com", log, tls=tls, shadow=part)
    await service.listen(sock, binding)
    print(binding.port, flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        if line == "hold\n":
            keeper.commit.clear()
        elif line == "go\n":
            keeper.commit.set()
        state = {
            "held": len(keeper.held),
            "octets": sum(copy.size for copy in keeper.copies),
            "committing": keeper.committing,
            "discarded": sum(copy.discarded for copy in keeper.copies),
            "channels": len(service.channels),
            "messages": [[watcher.token for watcher in e.watchers] for e, _ in intake.taken],
        }
        print(json.dumps(state), flush=True)
    await service.stop(0.0)


if __name__ == "__main__":
    uvloop.run(main())
