"""etcd with TLS, clients' certificates and a sign-in whose time runs out."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from doors import Servers
from etcd_kit import SOON_SECONDS, Followed, Road, new_cluster, settings_of

from gatepost.activemanager.etcd.registry import EtcdRegistry
from gatepost.activemanager.port import RegistryUnavailable
from gatepost.configuration.settings import EtcdSettings
from gatepost.lab.servers.etcd import EtcdCluster


@pytest.fixture(scope="module")
def secured(servers: Servers, scratch: Path) -> Iterator[EtcdCluster]:
    directory = scratch / "etcd-tls"
    with new_cluster(servers, directory, authority=servers.authority, token_seconds=1) as cluster:
        cluster.require_sign_in("gatepost", "s3cret", "/gatepost/")
        yield cluster


@pytest.fixture
def secured_settings(servers: Servers, secured: EtcdCluster) -> EtcdSettings:
    return settings_of(
        secured,
        user="gatepost",
        password="s3cret",
        ca=(servers.authority.directory / "ca.crt").read_bytes(),
        certificate=secured.client_certificate.read_bytes(),
        private_key=secured.client_key.read_bytes(),
    )


async def test_it_works_and_signs_in_anew(secured: EtcdCluster, secured_settings: EtcdSettings) -> None:
    """Longer than a sign-in lasts, without a call in between; and after accounts were changed."""
    followed = Followed(secured, secured_settings)
    try:
        await works(followed)
    finally:
        await followed.close()


async def works(followed: Followed) -> None:
    await asyncio.to_thread(followed.registry.activate, "DB01", "MBX-01")
    followed.watch.start()
    assert await followed.watch.first_view(SOON_SECONDS)
    await asyncio.sleep(3.5)
    await followed.change("MBX-02")
    assert followed.watch.stale_seconds == 0
    await asyncio.to_thread(followed.cluster.ctl, "user", "add", f"other-{time.monotonic_ns()}:x")
    await followed.change("MBX-03")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"password": "wrong"}, "authentication failed"),
        ({"user": ""}, "user name is empty"),
        ({"prefix": "/elsewhere"}, "permission denied"),
        ({"ca": b""}, "certificate verify failed"),
        ({"certificate": b"", "private_key": b""}, "certificate required|bad certificate|alert|ended the connection"),
    ],
)
def test_what_is_refused_is_unavailable_with_its_reason(
    secured_settings: EtcdSettings, change: dict[str, str | bytes], reason: str
) -> None:
    refused = replace(secured_settings, **change)  # type: ignore[arg-type]
    with closing(EtcdRegistry(refused, 3.0)) as registry, pytest.raises(RegistryUnavailable, match=reason) as caught:
        registry.activate("DB01", "MBX-01")
    assert "s3cret" not in str(caught.value)


async def test_another_name_in_a_members_certificate_is_refused(
    secured: EtcdCluster, secured_settings: EtcdSettings
) -> None:
    """Whoever stands at an address that leads to no member gets neither password nor question."""
    road = Road(secured.members[0])
    await road.start()
    elsewhere = EtcdRegistry(replace(secured_settings, endpoints=(road.url,)), 3.0)
    with closing(elsewhere), pytest.raises(RegistryUnavailable, match="IP address mismatch"):
        await asyncio.to_thread(elsewhere.view)
    with closing(EtcdRegistry(replace(secured_settings, endpoints=secured.urls[:1]), 3.0)) as right:
        await asyncio.to_thread(right.view)
    await road.close()


def test_nothing_is_loaded_after_the_engine(secured_settings: EtcdSettings, tmp_path: Path) -> None:
    """A worker that has given up its rights may not be able to read this program's files any more."""
    script = """
        import asyncio, pickle, sys, uvloop
        from gatepost.activemanager.open import load_engine, open_registry, watch_registry
        from gatepost.configuration.settings import FrontEnd
        front_end = FrontEnd("CAS-01", "d", "r", etcd=pickle.loads(sys.stdin.buffer.read()))
        load_engine(front_end)
        before = set(sys.modules)
        async def follow():
            watch = watch_registry(front_end, asyncio.get_running_loop())
            watch.start()
            assert await watch.first_view(5)
            await asyncio.sleep(1.5)
            assert watch.stale_seconds == 0
            watch.close()
            await asyncio.sleep(0.05)
        uvloop.run(follow())
        registry = open_registry(front_end)
        registry.activate("DB01", "MBX-01")
        registry.close()
        print(*sorted(set(sys.modules) - before))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=tmp_path,
        input=pickle.dumps(secured_settings),
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.decode().split() == []
    assert (tmp_path / "registry-known-CAS-01.json").is_file()
