"""A safety net on a stage: a spool in memory, a directory of a dictionary, other hubs that the test plays, a clock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from structlog.testing import CapturingLogger

from gatepost.balancing.back_pressure import Pressure
from gatepost.directory.port import DirectoryUnavailable
from gatepost.organization.model import (
    Database,
    DatabaseCopy,
    Endpoint,
    Organization,
    Protocol,
    Role,
    Server,
    TlsMode,
    Version,
)
from gatepost.organization.transport import TransportConfig
from gatepost.transport.dispatch.hands import Hands
from gatepost.transport.message import Envelope, Recipient, RecipientState
from gatepost.transport.shadow import safety_net
from gatepost.transport.shadow.ports import ChannelLost, Kept
from gatepost.transport.shadow.ports import Role as KeptRole
from gatepost.transport.shadow.redelivery import Redelivery
from gatepost.transport.shadow.safety_net import SafetyNet

DELIVERED, WAITING = RecipientState.DELIVERED, RecipientState.WAITING
NOW = 1_800_000_000.0
HOLD = 2 * 86400.0


def organization(config: TransportConfig | None = None) -> Organization:
    """HUB-01 and HUB-02 in usa, HUB-03 in asia, HUB-04 in europe; DB01 in usa alone, DB02 in usa and asia."""
    sites = {"MBX-01": "usa", "MBX-02": "usa", "MBX-03": "asia"}
    servers = {n: Server(n, site, n, n, Version.MODERN, frozenset({Role.MAILBOX})) for n, site in sites.items()}
    hubs = {"HUB-01": "usa", "HUB-02": "usa", "HUB-03": "asia", "HUB-04": "europe"}
    smtp = (Endpoint("smtp", Protocol.SMTP, "127.0.0.1", 25, TlsMode.STARTTLS, ""),)
    role = frozenset({Role.HUB_TRANSPORT})
    servers |= {n: Server(n, site, n, n, Version.MODERN, role, smtp) for n, site in hubs.items()}
    copies = {"DB01": ("MBX-01", "MBX-02"), "DB02": ("MBX-01", "MBX-03")}
    databases = {n: Database(n, tuple(DatabaseCopy(s, i) for i, s in enumerate(c))) for n, c in copies.items()}
    return Organization("contoso", servers=servers, databases=databases, transport_config=config or TransportConfig())


class Spool:
    """Messages and facts; every change is durable at once. `copy` is the disk after a crash."""

    def __init__(self) -> None:
        self.blobs: dict[int, bytes] = {}
        self.aside: dict[int, list[Kept]] = {}
        self.known: dict[str, bytes] = {}
        self.pressure = Pressure.NORMAL
        self.fails = False

    async def envelope(self, number: int) -> Envelope:
        return msgspec.msgpack.decode(self.blobs[number], type=Envelope)

    async def update(self, number: int, envelope: Envelope) -> None:
        self.blobs[number] = msgspec.msgpack.encode(envelope)

    async def take_back(self, number: int, envelope: Envelope) -> None:
        if self.fails:
            raise OSError("no disk")
        assert self.aside.pop(number), "it is kept"
        await self.update(number, envelope)

    async def safety_net_sums(self) -> list[tuple[str, int, int, float]]:
        found = [each for kept in self.aside.values() for each in kept]
        return [
            (name, len(own), sum(bool(each.primary) for each in own), min(each.until for each in own))
            for name in sorted({each.key for each in found})
            for own in [[each for each in found if each.key == name]]
        ]

    async def kept_since(self, database: str, since: float, until: float) -> list[Kept]:
        found = []
        for number, kept in self.aside.items():
            envelope = await self.envelope(number)
            if since <= envelope.delivered <= until:
                found += [each for each in kept if each.key == database]
        return found

    def in_hand(self, number: int) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    async def put(self, name: str, value: bytes | None) -> None:
        if value is None:
            self.known.pop(name, None)
        else:
            self.known[name] = value

    async def facts(self, prefix: str) -> dict[str, bytes]:
        return {name: value for name, value in self.known.items() if name.startswith(prefix)}


class Channel:
    """To a hub that the test plays."""

    def __init__(self, identity: str, asked: list[tuple[str, str, float, float]]) -> None:
        self.identity = identity
        self._asked = asked

    async def redeliver(self, request: str, database: str, since: float, until: float) -> int:
        self._asked.append((request, database, since, until))
        return 7


class NetStage:
    """One hub's net. `start` begins a run of the hub; `stop` ends it, the disk stays."""

    def __init__(self, name: str = "HUB-01", config: TransportConfig | None = None) -> None:
        self.name = name
        self.organization = organization(config)
        self.spool = Spool()
        self.log = CapturingLogger()
        self.now = NOW
        self.mailboxes: dict[str, str] = {}
        """Database of each address."""
        self.directory_works = True
        self.identities: dict[str, str] = {}
        """Of the hubs that answer."""
        self.asked: dict[str, list[tuple[str, str, float, float]]] = {}
        self.queued: list[tuple[int, tuple[str, ...]]] = []
        """Messages that were queued, with the addresses that are open."""
        self.on_queued: Callable[[int], None] = lambda _number: None
        self.net: SafetyNet
        self.redelivery: Redelivery

    # The parts that the net asks

    def domain_kind(self, address: str) -> str | None:
        return "ours" if address.endswith("@contoso.com") else None

    def place(self, number: int, envelope: Envelope, places: Sequence[int]) -> None:
        self.queued.append((number, tuple(envelope.recipients[place].address for place in places)))
        assert all(envelope.recipients[place].state == WAITING for place in places)
        self.on_queued(number)

    def find(self, address: str) -> Any:
        if not self.directory_works:
            raise DirectoryUnavailable("away")
        found = self.mailboxes.get(address)
        return SimpleNamespace(mailbox=SimpleNamespace(database=found)) if found else None

    async def channel(self, server: str, *, heartbeat: bool = False) -> Channel:
        assert heartbeat, "the list of unhealthy servers does not count"
        if server not in self.identities:
            raise ChannelLost(f"{server} cannot be reached")
        return Channel(self.identities[server], self.asked.setdefault(server, []))

    # The test's

    async def start(self, *queued: int) -> None:
        """`queued` are messages of the last run."""
        parts: Any = self
        log = cast(Any, self.log)
        hands = Hands(cast(Any, self.spool))
        spool = cast(Any, self.spool)
        self.net = SafetyNet(self.name, spool, hands, parts, parts, parts, lambda: self.now, log)
        self.net.configure(self.organization, 86400.0)
        self.redelivery = Redelivery(self.name, self.net, spool, parts, lambda: self.now, log)
        self.redelivery.configure(self.organization)
        await self.redelivery.load()
        for number in queued:
            self.net.found(number, await self.spool.envelope(number))
        self.net.loaded()

    async def stop(self) -> None:
        await self.redelivery.end()

    def keep(self, number: int, *addresses: str, at: float = NOW - 100, primary: str = "", identity: str = "") -> None:
        """A delivered message is in the net, for the databases of its recipients."""
        databases = list(dict.fromkeys(self.mailboxes[a] for a in addresses if a in self.mailboxes))
        recipients = [Recipient(a, state=DELIVERED, reply="250 2.0.0 OK") for a in addresses]
        envelope = Envelope("anna@example.com", recipients, at - 5, at + 3600, databases=databases, delivered=at)
        self.spool.blobs[number] = msgspec.msgpack.encode(envelope)
        self.spool.aside[number] = [
            Kept(number, KeptRole.SAFETY_NET, name, primary, identity, at + HOLD) for name in databases
        ]

    def deliver(self, number: int) -> None:
        """The second delivery has happened: it is in the net again, with its new time."""
        envelope = msgspec.msgpack.decode(self.spool.blobs[number], type=Envelope)
        for recipient in envelope.recipients:
            recipient.state = DELIVERED
            database = self.mailboxes[recipient.address]
            if database not in envelope.databases:
                envelope.databases.append(database)
        envelope.delivered = self.now
        self.spool.blobs[number] = msgspec.msgpack.encode(envelope)
        self.spool.aside[number] = [
            Kept(number, KeptRole.SAFETY_NET, name, "", "", self.now + HOLD) for name in envelope.databases
        ]

    def events(self) -> list[str]:
        return [call.args[0] for call in self.log.calls]

    async def until(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - a condition of many parts
                await asyncio.sleep(0.005)

    async def done(self, name: str = "r1") -> None:
        def is_done() -> bool:
            request = self.net.requests.get(name)
            return request is not None and request.done

        await self.until(is_done)


def quick(monkeypatch: Any) -> None:
    """Nothing that is waited for takes long."""
    monkeypatch.setattr(safety_net, "A_SECOND", 100_000)
    monkeypatch.setattr(safety_net, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(safety_net, "PRESSURE_SECONDS", 0.01)
