"""Two hubs' ends of a shadow channel on loopback: HUB-01 answers, HUB-02 asks, by certificates of the organization."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from peer_samples import MADE, ca_pair
from receive_stage import CERTIFICATE, CONNECTOR, ReceiveStage, until
from structlog.testing import CapturingLogger

from gatepost.configuration.key_pairs import load_key_pair
from gatepost.organization.model import Role, Server, Version
from gatepost.organization.transport import ReceiveConnector
from gatepost.peers.ca import Authority, KeyPair
from gatepost.routing.next_hop import Way
from gatepost.transport.dispatch.ports import NotReached
from gatepost.transport.ports import BodyWriter, SpoolFull
from gatepost.transport.receive.tls import ReceiveTls, receive_tls
from gatepost.transport.send.connecting import Outbound
from gatepost.transport.send.options import Endpoint, SendOptions
from gatepost.transport.send.outcome import ConnectFailed
from gatepost.transport.send.sender import SmtpSender
from gatepost.transport.send.tls import TlsMaterial
from gatepost.transport.shadow.answering import ShadowPart
from gatepost.transport.shadow.channel import ChannelTimes
from gatepost.transport.shadow.channels import ShadowChannels
from gatepost.wire.shadow_messages import Discarded, Status
from gatepost.wire.shadow_words import ShadowHub, ShadowOffer

HUB_01 = ShadowHub("HUB-01", "id-of-hub-01")
HUB_02 = ShadowHub("HUB-02", "id-of-hub-02")
QUICK = ChannelTimes(hold=0.3, question=0.3, alive=0.05, silence=10.0, sweep=0.02)
"""For what is to be late. A machine that stands still for a moment must not make anything else so."""


def server(name: str, role: Role = Role.HUB_TRANSPORT) -> Server:
    return Server(name, "usa", f"{name.lower()}.contoso.com", "127.0.0.1", Version.MODERN, frozenset({role}))


SERVERS = {name: server(name) for name in ("HUB-01", "HUB-02", "HUB-03")} | {
    "CAS-01": server("CAS-01", Role.CLIENT_ACCESS)
}


def issue(of: Server, organization: str = "contoso") -> KeyPair:
    return Authority.load(ca_pair(organization)).issue(of, MADE, 30)


def answering_tls(own: str = "HUB-01", *, partner_ca: bytes = b"") -> ReceiveTls:
    pair = issue(SERVERS[own])
    return receive_tls(
        CERTIFICATE.cert_chain_pems[0].bytes(),
        CERTIFICATE.private_key_pem.bytes(),
        organization_ca=ca_pair().certificate,
        organization_pair=(pair.certificate, pair.private_key),
        servers=SERVERS,
        own_name=own,
        partner_ca=partner_ca,
    )


def showing(pair: KeyPair | None, organization: str = "contoso") -> ssl.SSLContext:
    """A client that believes the organization's CA, and shows this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=ca_pair().certificate.decode())
    if pair is not None:
        load_key_pair(context, pair.certificate, pair.private_key)
    return context


class Copy:
    """A content in memory. A `BodyWriter`."""

    def __init__(self, keeper: Keeper, size: int) -> None:
        self._keeper = keeper
        self.announced = size
        self.size = self.waiting = self.most = 0
        self.content = bytearray()
        self.discarded = False

    @property
    def full(self) -> bool:
        return self.waiting >= self._keeper.full_at

    def write(self, data: bytes) -> None:
        assert not self.discarded
        self.size += len(data)
        self.waiting += len(data)
        self.most = max(self.most, self.waiting)
        if self._keeper.keeps:
            self.content += data

    async def drain(self) -> None:
        await self._keeper.disk.wait()
        self.waiting = 0
        if self._keeper.drain_fault is not None:
            raise self._keeper.drain_fault

    def discard(self) -> None:
        self.discarded = True


class Keeper:
    """An `Answering` that keeps everything in memory; the attributes make it slow, or fail."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[bytes, bytes]] = {}
        self.hubs: set[tuple[str, str]] = set()
        self.copies: list[Copy] = []
        self.keeps = True
        self.full_at = 256 * 1024
        self.disk = asyncio.Event()
        self.disk.set()
        self.commit = asyncio.Event()
        self.commit.set()
        self.committing = self.most_committing = 0
        self.no_room = False
        self.reason = ""
        self.fault: Exception | None = None
        self.drain_fault: Exception | None = None
        self.events: list[Discarded] = []
        self.forgotten: list[str] = []
        self.asked: list[object] = []
        self.answer = asyncio.Event()
        self.answer.set()

    def writer(self, size: int) -> Copy:
        if self.no_room:
            raise SpoolFull
        self.copies.append(Copy(self, size))
        return self.copies[-1]

    async def hold(self, server: str, identity: str, token: str, envelope: bytes, writer: BodyWriter) -> str:
        assert isinstance(writer, Copy)
        assert not writer.discarded
        assert writer.size == writer.announced
        self.hubs.add((server, identity))
        self.committing += 1
        self.most_committing = max(self.most_committing, self.committing)
        await self.commit.wait()
        self.committing -= 1
        if self.fault is not None:
            raise self.fault
        if not self.reason:
            self.held[token] = envelope, bytes(writer.content)
        return self.reason

    async def ask(self, server: str, identity: str, acknowledged: Sequence[str], limit: int) -> list[Discarded]:
        self.hubs.add((server, identity))
        self.forgotten += acknowledged
        gone = set(acknowledged)
        self.events = [event for event in self.events if event.token not in gone]
        await self.answer.wait()
        if self.fault is not None:
            raise self.fault
        return self.events[:limit]

    async def statuses(self, server: str, tokens: Sequence[str], *, took_over: bool) -> list[Status]:
        self.asked.append((server, len(tokens), took_over))
        return [Status.HELD if token in self.held else Status.UNKNOWN for token in tokens]

    async def redeliver(self, request: str, database: str, since: float, until: float) -> int:
        self.asked.append((request, database, since, until))
        await self.answer.wait()
        return 7


class Reach:
    """`Reaches` for a test: to the one port there is."""

    def __init__(self, outbound: Outbound, port: int) -> None:
        self.outbound = outbound
        self.port = port
        self.up = True
        self.gate = asyncio.Event()
        self.gate.set()
        self.calls: list[tuple[str, bool]] = []
        self.way: dict[str, Any] = {}
        self.name = "hub-02.contoso.com"

    def may_reach(self, server: str) -> bool:
        return self.up

    async def reach_server(self, server: str, *, heartbeat: bool = False) -> SmtpSender:
        self.calls.append((server, heartbeat))
        await self.gate.wait()
        if not self.up and not heartbeat:
            raise NotReached("known to be down", 0.0)
        host = f"{server.lower()}.contoso.com"
        way = Way(
            **({"host": host, "address": "127.0.0.1", "port": self.port, "mutual": True, "server": server} | self.way)
        )
        try:
            return await self.outbound.connect(Endpoint("127.0.0.1", self.port), way, SendOptions(self.name))
        except ConnectFailed as fault:
            raise NotReached(fault.text, 0.0) from fault


class ChannelStage:
    """`keeper` is what HUB-01 keeps, `channels` are HUB-02's."""

    def __init__(self, received: ReceiveStage, keeper: Keeper, times: ChannelTimes | None) -> None:
        pair = issue(SERVERS["HUB-02"])
        self.received = received
        self.keeper = keeper
        self.log = CapturingLogger()
        material = TlsMaterial(b"", ca_pair().certificate, pair.certificate, pair.private_key)
        self.outbound = Outbound(cast(Any, self.log), material)
        self.reach = Reach(self.outbound, received.ports[0])
        self.channels = ShadowChannels(self.reach, HUB_02, cast(Any, self.log), times)

    @property
    def answering(self) -> Any:
        """The one channel of the answering side."""
        (channel,) = self.received.service.channels
        return channel

    def close(self) -> None:
        self.channels.close()
        self.outbound.close()


@contextlib.asynccontextmanager
async def channel_stage(
    *connectors: ReceiveConnector, times: ChannelTimes | None = None, tls: ReceiveTls | None = None, **how: Any
) -> AsyncIterator[ChannelStage]:
    received, keeper = ReceiveStage(), Keeper()
    part = ShadowPart(ShadowOffer(HUB_01, frozenset({"HUB-02", "HUB-03"})), keeper)
    await received.open(*(connectors or (CONNECTOR,)), tls=tls or answering_tls(), shadow=part, **how)
    stage = ChannelStage(received, keeper, times)
    try:
        yield stage
    finally:
        stage.close()
        await received.close()
        await until(lambda: not received.service.channels and not stage.outbound.open)
