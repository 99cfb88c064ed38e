"""The registry in etcd keeps the registry's contract, on one member and on three."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from doors import Servers
from etcd_kit import new_cluster, settings_of
from registry_contract import MovesContract, RegistryContract, RegistryWatchContract
from registry_leases_contract import LeasesContract, PassTime

from gatepost.activemanager.etcd.registry import EtcdRegistry
from gatepost.activemanager.etcd.watch import EtcdRegistryWatch
from gatepost.configuration.settings import EtcdSettings
from gatepost.lab.servers.etcd import EtcdCluster

LONGER_SECONDS = 6.0
"""A lease in etcd may last so much longer than it was asked for: it counts in seconds, and looks twice a second."""


@pytest.fixture
def settings(shared_etcd: EtcdCluster) -> EtcdSettings:
    """A registry of one's own in a shared cluster."""
    return settings_of(shared_etcd)


@pytest.fixture
def registry(settings: EtcdSettings) -> Iterator[EtcdRegistry]:
    """An empty registry."""
    registry = EtcdRegistry(settings)
    yield registry
    registry.close()


@pytest.fixture
def again(settings: EtcdSettings) -> Iterator[EtcdRegistry]:
    """Another hold on the same one, that begins with the cluster's last member."""
    registry = EtcdRegistry(EtcdSettings(settings.endpoints[::-1], settings.prefix))
    yield registry
    registry.close()


@pytest.fixture
def pass_time(registry: EtcdRegistry) -> PassTime:
    def pass_time(seconds: float, *, exactly: bool = False) -> None:
        time.sleep(seconds)
        deadline = time.monotonic() + LONGER_SECONDS
        while not exactly and registry.view().manager is not None and time.monotonic() < deadline:
            time.sleep(0.05)

    return pass_time


class TestEtcdRegistry(RegistryContract, MovesContract, LeasesContract):
    pass


class EtcdWatchEngine:
    """A watch on a cluster that can be taken away: all members are killed, and started again with their data."""

    def __init__(self, cluster: EtcdCluster) -> None:
        self.cluster = cluster
        found = settings_of(cluster)
        self.registry = EtcdRegistry(found)
        self.watch = EtcdRegistryWatch(found, asyncio.get_running_loop(), interval=0.1)

    def take_away(self) -> None:
        for member in self.cluster.members:
            member.kill()

    def bring_back(self) -> None:
        self.cluster.start()


@pytest.fixture(params=[1, 3])
async def engine(servers: Servers, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[EtcdWatchEngine]:
    with new_cluster(servers, tmp_path / "etcd", request.param) as cluster:
        engine = EtcdWatchEngine(cluster)
        engine.registry.activate("DB01", "MBX-01")
        engine.watch.start()
        assert await engine.watch.first_view(5.0)
        yield engine
        engine.watch.close()
        await asyncio.sleep(0.05)
        engine.registry.close()


class TestEtcdRegistryWatch(RegistryWatchContract):
    outage_seconds = 5.0
