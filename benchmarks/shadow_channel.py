"""How fast copies are held over one shadow channel, TLS included, without a spool at either end.

    python benchmarks/shadow_channel.py [COPIES [UNDER_WAY [OCTETS]]]     # 20000 50 5000

The answering hub is another process, which only counts. Prints copies a second by the clock, the processor time of each
side for a copy, and the memory of both at the end.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any

import structlog
import uvloop

from gatepost.lab.servers.process import dies_with_parent
from gatepost.organization.model import Role, Server, Version
from gatepost.organization.transport import Binding, PermissionGroup, ReceiveAuthentication, ReceiveConnector
from gatepost.peers.ca import Authority, make_authority
from gatepost.routing.next_hop import Way
from gatepost.transport.ports import BodyWriter, Intake
from gatepost.transport.receive.service import ReceiveService
from gatepost.transport.receive.tls import receive_tls
from gatepost.transport.send.connecting import Outbound
from gatepost.transport.send.options import Endpoint, SendOptions
from gatepost.transport.send.sender import SmtpSender
from gatepost.transport.send.tls import TlsMaterial
from gatepost.transport.shadow.answering import ShadowPart
from gatepost.transport.shadow.channels import ShadowChannels
from gatepost.wire.shadow_messages import Discarded, Status
from gatepost.wire.shadow_words import ShadowHub, ShadowOffer

SERVERS = {
    name: Server(name, "usa", f"{name.lower()}.x.test", "127.0.0.1", Version.MODERN, frozenset({Role.HUB_TRANSPORT}))
    for name in ("HUB-01", "HUB-02")
}
ENVELOPE = b"e" * 300


class Counting:
    """An `Answering` that keeps nothing."""

    def __init__(self) -> None:
        self.size = 0
        self.full = False

    def writer(self, size: int) -> BodyWriter:
        """Itself."""
        return self

    def write(self, data: bytes) -> None:
        """Count."""
        self.size += len(data)

    async def drain(self) -> None:
        """Nothing waits."""

    def discard(self) -> None:
        """There is nothing."""

    async def hold(self, server: str, identity: str, token: str, envelope: bytes, writer: BodyWriter) -> str:
        """It is as good as on disk."""
        return ""

    async def ask(self, server: str, identity: str, acknowledged: Sequence[str], limit: int) -> list[Discarded]:
        """None."""
        return []

    async def statuses(self, server: str, tokens: Sequence[str], *, took_over: bool) -> list[Status]:
        """Nothing is known."""
        return [Status.UNKNOWN] * len(tokens)

    async def redeliver(self, request: str, database: str, since: float, until: float) -> int:
        """None."""
        return 0


class Ready:
    """An intake that nobody uses."""

    pressure = 0
    refuses_strangers = False
    tarpit_seconds = 0.0


class Reach:
    """To the one hub there is."""

    def __init__(self, outbound: Outbound, port: int) -> None:
        self._outbound = outbound
        self._port = port

    def may_reach(self, server: str) -> bool:
        """Always."""
        return True

    async def reach_server(self, server: str, *, heartbeat: bool = False) -> SmtpSender:
        """A session."""
        way = Way("hub-01.x.test", "127.0.0.1", self._port, mutual=True, server="HUB-01")
        return await self._outbound.connect(Endpoint("127.0.0.1", self._port), way, SendOptions("hub-02.x.test"))


def used() -> tuple[float, int]:
    """Processor seconds and the most memory in kB."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss


async def answer(given: dict[str, str], log: Any) -> None:  # noqa: ANN401 - of whatever kind
    """Be HUB-01 until the input ends; a line with the port, and one with what was used."""
    sock = socket.create_server(("127.0.0.1", 0))
    binding = Binding(ip_address("127.0.0.1"), sock.getsockname()[1])
    servers = frozenset({PermissionGroup.SERVERS})
    how = frozenset({ReceiveAuthentication.TLS, ReceiveAuthentication.SERVERS})
    connector = ReceiveConnector("Default", "HUB-01", (binding,), permission_groups=servers, authentication=how)
    pair = given["certificate"].encode(), given["key"].encode()
    ca = given["ca"].encode()
    tls = receive_tls(*pair, organization_ca=ca, organization_pair=pair, servers=SERVERS, own_name="HUB-01")
    part = ShadowPart(ShadowOffer(ShadowHub("HUB-01", "1"), frozenset({"HUB-02"})), Counting())
    intake: Intake[Any] = Ready()  # type: ignore[assignment]
    service = ReceiveService([connector], intake, "hub-01.x.test", log, tls=tls, shadow=part)
    await service.listen(sock, binding)
    print(binding.port, flush=True)
    before = used()[0]
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    seconds, memory = used()
    print(json.dumps([seconds - before, memory]), flush=True)
    await service.stop(0.0)


async def ask(port: int, material: TlsMaterial, copies: int, under_way: int, octets: int, log: Any) -> float:  # noqa: ANN401
    """Be HUB-02; the seconds it took."""
    outbound = Outbound(log, material)
    channels = ShadowChannels(Reach(outbound, port), ShadowHub("HUB-02", "2"), log)
    channel = await channels.channel("HUB-01")
    content = b"x" * octets
    left = copies

    async def some() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            reason = await channel.hold(f"{left:x}", ENVELOPE, content, octets)
            assert not reason, reason

    began = time.perf_counter()
    await asyncio.gather(*(some() for _ in range(under_way)))
    took = time.perf_counter() - began
    channels.close()
    outbound.close()
    return took


def main() -> None:
    """See the module."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    log = structlog.get_logger()
    if sys.argv[1:] == ["answer"]:
        uvloop.run(answer(json.loads(sys.stdin.readline()), log))
        return
    copies, under_way, octets = (int(word) for word in (*sys.argv[1:], *("20000", "50", "5000")[len(sys.argv) - 1 :]))
    now = datetime.now(UTC)
    authority = make_authority("x", now)
    pairs = {name: Authority.load(authority).issue(server, now, 1) for name, server in SERVERS.items()}
    command = dies_with_parent([sys.executable, __file__, "answer"])
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    given = {
        "ca": authority.certificate.decode(),
        "certificate": pairs["HUB-01"].certificate.decode(),
        "key": pairs["HUB-01"].private_key.decode(),
    }
    child.stdin.write(json.dumps(given) + "\n")
    child.stdin.flush()
    port = int(child.stdout.readline())
    own = pairs["HUB-02"]
    material = TlsMaterial(b"", authority.certificate, own.certificate, own.private_key)
    before = used()[0]
    took = uvloop.run(ask(port, material, copies, under_way, octets, log))
    seconds, memory = used()
    child.stdin.write("\n")
    child.stdin.flush()
    theirs = json.loads(child.stdout.readline())
    child.wait()
    print(f"{copies / took:.0f} copies/s of {octets} octets, {under_way} under way")
    print(f"asking    {(seconds - before) / copies * 1e6:.0f} µs a copy, {memory / 1024:.0f} MB")
    print(f"answering {theirs[0] / copies * 1e6:.0f} µs a copy, {theirs[1] / 1024:.0f} MB")


if __name__ == "__main__":
    main()
