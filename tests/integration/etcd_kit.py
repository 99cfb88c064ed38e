"""Registries in real etcd clusters, for tests: a cluster of the run, and a prefix of one's own in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from doors import Servers, missing

from gatepost.configuration.settings import EtcdSettings
from gatepost.lab.servers.etcd import EtcdCluster
from gatepost.lab.servers.process import ServerMissing

PREFIX = "/gatepost/contoso"
_numbers = itertools.count(1)


def settings_of(cluster: EtcdCluster, prefix: str | None = None, **more: str | bytes) -> EtcdSettings:
    """Settings for the cluster, by default with a prefix that no other test has."""
    return EtcdSettings(cluster.urls, prefix or f"{PREFIX}-{next(_numbers)}", **more)  # type: ignore[arg-type]


def new_cluster(servers: Servers, directory: Path, size: int = 3) -> EtcdCluster:
    """A cluster that is not started. Skips or fails the test where etcd is not installed."""
    try:
        return EtcdCluster(directory, servers.address(), size)
    except ServerMissing as error:
        missing(error)


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
