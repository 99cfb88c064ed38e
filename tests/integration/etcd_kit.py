"""Registries in real etcd clusters, for tests: a cluster of the run, and a prefix of one's own in it."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from doors import Servers, missing

from gatepost.activemanager.etcd.registry import EtcdRegistry
from gatepost.activemanager.etcd.watch import EtcdRegistryWatch
from gatepost.activemanager.port import RegistryView
from gatepost.configuration.settings import EtcdSettings
from gatepost.lab.servers.etcd import EtcdCluster, EtcdMember
from gatepost.lab.servers.process import ServerMissing

PREFIX = "/gatepost/contoso"
INTERVAL_SECONDS = 0.2
"""Between two confirmations in these tests; the view is old after three times as much."""
SOON_SECONDS = 8.0
"""A new leader takes a second, a member that stands still one more; the rest is for a busy machine."""
_numbers = itertools.count(1)


def settings_of(cluster: EtcdCluster, **more: Any) -> EtcdSettings:
    """Settings for the cluster, with a prefix that no other test has."""
    return EtcdSettings(cluster.urls, f"{PREFIX}-{next(_numbers)}", **more)


class Road:
    """A way to a member that can be slow, or end nowhere: an address of its own that passes bytes on."""

    def __init__(self, member: EtcdMember, address: str = "127.0.0.1") -> None:
        self._target = member.url.split("//")[1].rsplit(":", 1)
        self._scheme = member.url.split(":")[0]
        self._address = address
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.seconds = 0.0
        """How much longer every piece takes."""
        self.open = asyncio.Event()
        """While it is cleared nothing arrives, and nobody is told."""
        self.open.set()

    @property
    def url(self) -> str:
        """The member's URL by this road."""
        assert self._server is not None, "started"
        return f"{self._scheme}://{self._address}:{self._server.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, self._address, 0)

    async def close(self) -> None:
        assert self._server is not None, "started"
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(self._target[0], int(self._target[1]))
        for source, sink in ((reader, to_writer), (to_reader, writer)):
            task = asyncio.create_task(self._pass(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await asyncio.sleep(self.seconds)
                await self.open.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()


def new_cluster(servers: Servers, directory: Path, size: int = 3, **more: Any) -> EtcdCluster:
    """A cluster that is not started. Skips or fails the test where etcd is not installed."""
    try:
        return EtcdCluster(directory, servers.address(), size, **more)
    except ServerMissing as error:
        missing(error)


class Followed:
    """A cluster, a registry in it, and a watch on that."""

    def __init__(self, cluster: EtcdCluster, settings: EtcdSettings) -> None:
        self.cluster = cluster
        self.settings = settings
        self.registry = EtcdRegistry(settings)
        self.watch = EtcdRegistryWatch(settings, asyncio.get_running_loop(), INTERVAL_SECONDS)
        self.told: list[RegistryView] = []
        self.watch.on_change(self.told.append)

    async def until(self, holds: Callable[[], bool], seconds: float = SOON_SECONDS) -> None:
        """Wait until it holds; ports have no event for this."""
        async with asyncio.timeout(seconds):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def change(self, server: str = "MBX-02", database: str = "DB01") -> float:
        """Activate, and wait until the watch knows; answers the seconds from the activation's answer to that."""
        now = await asyncio.to_thread(self.registry.activate, database, server)
        answered = time.monotonic()
        await self.until(lambda: self.watch.view.active.get(database) == now)
        return time.monotonic() - answered

    def knows(self, server: str) -> bool:
        return self.watch.view.active["DB01"].server == server

    async def close(self) -> None:
        """Let go of it; the cluster stays."""
        self.watch.close()
        await asyncio.sleep(0.05)
        for member in self.cluster.members:
            if member.running:
                member.thaw()
        self.registry.close()

    @property
    def follower(self) -> EtcdMember:
        """A running member that does not lead."""
        leader = self.cluster.wait_leader()
        return next(member for member in self.cluster.members if member is not leader and member.running)


@pytest.fixture(scope="session")
def etcd_node(servers: Servers, scratch: Path) -> Iterator[EtcdCluster]:
    """One member alone, shared by tests that stop nothing."""
    with new_cluster(servers, scratch / "etcd-1", 1) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def etcd_cluster(servers: Servers, scratch: Path) -> Iterator[EtcdCluster]:
    """Three members, shared by tests that stop nothing."""
    with new_cluster(servers, scratch / "etcd-3") as cluster:
        yield cluster


@pytest.fixture(params=["one member", "three members"])
def shared_etcd(request: pytest.FixtureRequest) -> EtcdCluster:
    """Each of the two shared ones in turn."""
    cluster: EtcdCluster = request.getfixturevalue("etcd_node" if request.param == "one member" else "etcd_cluster")
    return cluster


@pytest.fixture
def own_cluster(servers: Servers, tmp_path: Path) -> Iterator[EtcdCluster]:
    """Three members that a test may stop and kill."""
    with new_cluster(servers, tmp_path / "etcd") as cluster:
        yield cluster
