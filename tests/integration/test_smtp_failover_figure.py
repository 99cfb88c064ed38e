"""The figure of the third source with sockets: Hub02 before Hub04 to Hub06, which listen on addresses of their own.

What is down does not listen, so the kernel refuses; what swallows packets is a listener whose queue is full. Only the
clock of the selector is the test's: a minute passes at once.
"""

from __future__ import annotations

import asyncio
import csv
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from gatepost.balancing.enhanced_dns import Rotation
from gatepost.balancing.healthy_server_selector import HealthyServerSelector
from gatepost.balancing.target import Target
from gatepost.lab.servers.process import free_ports
from gatepost.organization.transport import TransportSettings
from gatepost.routing.next_hop import DeliveryType, NextHop, Way
from gatepost.transport.connecting import Connected, Connecting, NotConnected
from gatepost.transport.connectivity_log import PREFIX, ConnectivityLog
from gatepost.transport.log_files import list_files

MESSAGES = 3000
AT_ONCE = 20
START = 1_790_000_000.0
SITE_B = ("hub04", "hub05", "hub06")
NET = f"127.{64 + os.getpid() % 128}.{os.getpid() // 128 % 250 + 1}"


class Hubs:
    """The hubs of site B and the sending side of Hub02."""

    def __init__(self, log_directory: Path, **settings: object) -> None:
        self.now = START
        port = free_ports(f"{NET}.4", 1)[0]
        self.targets = [self._target(name, f"{NET}.{int(name[-1])}", port) for name in SITE_B]
        found = TransportSettings(connectivity_log_enabled=True, **settings)  # type: ignore[arg-type]
        self.selector = HealthyServerSelector(found)
        self.rotation = Rotation(self.selector, Random(1).random)
        self.connecting = Connecting(self.selector, self._open, lambda transport: transport.abort(), lambda: self.now)
        self.log_directory = log_directory
        self.log = ConnectivityLog(log_directory, found, lambda: self.now)
        self.accepted: Counter[str] = Counter()
        self._servers: dict[str, asyncio.Server] = {}
        self._deaf: list[socket.socket] = []

    def _target(self, name: str, address: str, port: int) -> Target:
        host = f"{name}.contoso.com"
        return Target(host, address, port, 0, Way(host, address, port))

    async def _open(self, target: Target) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, target.ip, target.port)
        return transport

    async def up(self, *names: str) -> None:
        loop = asyncio.get_running_loop()
        for name, target in zip(SITE_B, self.targets, strict=True):
            if name in names:
                server = await loop.create_server(
                    lambda name=name: _Hub(self, name), target.ip, target.port, backlog=512
                )
                self._servers[name] = server

    def deaf(self, name: str) -> None:
        """The hub's machine swallows packets: its listener accepts nothing and its queue is full."""
        target = self.targets[SITE_B.index(name)]
        listener = socket.socket()
        listener.bind(target.key)
        listener.listen(0)
        self._deaf.append(listener)
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            with suppress(BlockingIOError):
                filler.connect(target.key)
            self._deaf.append(filler)

    async def send(self, messages: int) -> tuple[Counter[str], list[NotConnected]]:
        """Each message by a connection of its own, `AT_ONCE` at a time: who took them, and who could not be sent."""
        took: Counter[str] = Counter()
        failed: list[NotConnected] = []
        left = iter(range(messages))

        async def work() -> None:
            for _ in left:
                notes = self.log.session(NextHop(DeliveryType.SITE, "site-b"))
                result = await self.connecting.connect(self.rotation, self.targets, notes)
                if isinstance(result, Connected):
                    took[result.target.host.partition(".")[0]] += 1
                    result.connection.abort()
                else:
                    failed.append(result)

        async with asyncio.timeout(60):
            await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        return took, failed

    def marked(self) -> list[str]:
        """The descriptions of the log's rows that say MarkedUnhealthy."""
        self.log.close()
        return [
            cells[5]
            for file in list_files(self.log_directory, PREFIX)
            for cells in csv.reader(line for line in file.path.read_text().splitlines() if not line.startswith("#"))
            if "MarkedUnhealthy" in cells[5]
        ]

    async def close(self) -> None:
        await self.connecting.close()
        for server in self._servers.values():
            server.close()
            await server.wait_closed()
        for each in self._deaf:
            each.close()
        self.log.close()


class _Hub(asyncio.Protocol):
    def __init__(self, hubs: Hubs, name: str) -> None:
        self._hubs, self._name = hubs, name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._hubs.accepted[self._name] += 1


@pytest.fixture
async def hubs(tmp_path: Path) -> AsyncIterator[Hubs]:
    found = Hubs(tmp_path)
    yield found
    await found.close()


@pytest.fixture
async def naive(tmp_path: Path) -> AsyncIterator[Hubs]:
    found = Hubs(tmp_path, healthy_server_selector=False)
    yield found
    await found.close()


async def test_with_all_three_up_each_takes_a_third(hubs: Hubs) -> None:
    await hubs.up(*SITE_B)
    took, failed = await hubs.send(MESSAGES)
    assert (sorted(took.values()), failed) == ([1000, 1000, 1000], [])


async def test_without_the_selector_hub04_down_makes_the_load_one_to_two(naive: Hubs) -> None:
    await naive.up("hub05", "hub06")
    took, failed = await naive.send(MESSAGES)
    assert failed == []
    assert took == {"hub05": 2000, "hub06": 1000}
    assert naive.marked() == []


async def test_with_the_selector_the_other_two_share_exactly_evenly_then_one_probe_then_its_share(hubs: Hubs) -> None:
    await hubs.up("hub05", "hub06")
    took, failed = await hubs.send(MESSAGES)
    assert failed == []
    assert took.keys() == {"hub05", "hub06"}
    assert abs(took["hub05"] - took["hub06"]) <= 1
    assert 1 <= hubs.selector.unhealthy(hubs.now)[0].failures <= AT_ONCE
    await hubs.up("hub04")
    hubs.now += 59
    took, _ = await hubs.send(300)
    assert "hub04" not in took, "not before its time"
    hubs.now += 1
    took, _ = await hubs.send(1)
    assert took == {"hub04": 1}
    took, failed = await hubs.send(MESSAGES)
    assert failed == []
    assert max(took.values()) - min(took.values()) <= 2
    marked = hubs.marked()
    assert len({text.partition("|FailureCount")[0] for text in marked}) == 1
    address = f"{hubs.targets[0].ip}:{hubs.targets[0].port}"
    for fact in (
        address,
        "hub04.contoso.com",
        "ConnectionRefused:0000274D",
        "MarkedUnhealthy",
        "FailureCount:1",
        "NextRetryTime:",
    ):
        assert fact in marked[0]


async def test_when_the_retry_is_due_one_of_many_tries_hub04_and_the_rest_do_not(hubs: Hubs) -> None:
    await hubs.up("hub05", "hub06")
    await hubs.send(30)
    before = hubs.selector.unhealthy(hubs.now)[0].failures
    hubs.now += 60
    await hubs.send(MESSAGES)
    (server,) = hubs.selector.unhealthy(hubs.now)
    assert (server.failures - before, server.retries) == (1, 1)


async def test_all_three_down_nothing_is_lost_and_all_go_when_one_is_back(hubs: Hubs) -> None:
    took, failed = await hubs.send(100)
    assert (took.total(), len(failed)) == (0, 100)
    assert {result.due for result in failed} == {START + 60}
    await hubs.up("hub05")
    hubs.now += 60
    took, failed = await hubs.send(1)
    while failed:  # the one attempt that is due may be at another one
        took, failed = await hubs.send(1)
    took, failed = await hubs.send(AT_ONCE)
    assert took.keys() == {"hub05"}


async def test_a_hub_that_swallows_packets_costs_nobody_its_whole_time_and_is_found_out(tmp_path: Path) -> None:
    """Without hedging every message of the first round would wait for `connect_seconds`."""
    hubs = Hubs(tmp_path, connect_seconds=6.0, hedge_seconds=0.1)
    try:
        await hubs.up("hub05", "hub06")
        hubs.deaf("hub04")
        began = asyncio.get_running_loop().time()
        took, failed = await hubs.send(300)
        took_seconds = asyncio.get_running_loop().time() - began
        assert (took.total(), failed) == (300, [])
        assert took.keys() == {"hub05", "hub06"}
        assert took_seconds < 5.5
        async with asyncio.timeout(30):
            while hubs.selector.healthy(hubs.targets[0]):  # noqa: ASYNC110 - the attempts run in the background
                await asyncio.sleep(0.05)
        assert hubs.selector.unhealthy(hubs.now)[0].error == "TimedOut:0000274C"
    finally:
        await hubs.close()
