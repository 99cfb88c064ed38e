"""The registry in etcd when the network between its members breaks: three members in namespaces of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from doors import missing
from etcd_kit import INTERVAL_SECONDS, SOON_SECONDS, Followed, settings_of
from namespaces import Network, network
from registry_contract import take

from gatepost.activemanager.etcd.registry import EtcdRegistry
from gatepost.activemanager.port import LeaseLost, RegistryUnavailable
from gatepost.configuration.settings import EtcdSettings
from gatepost.lab.servers.etcd import EtcdCluster, EtcdMember
from gatepost.lab.servers.process import ServerMissing


@pytest.fixture
def net() -> Iterator[Network]:
    with network(3) as found:
        yield found


@pytest.fixture
async def spread(net: Network, tmp_path: Path) -> AsyncIterator[Followed]:
    """A member in each namespace; DB01 is on MBX-01, and the watch, in front of all of them, knows."""
    try:
        cluster = EtcdCluster(tmp_path / "etcd", net.addresses[0], addresses=net.addresses)
    except ServerMissing as error:
        missing(error)
    for number, member in enumerate(cluster.members):
        member.argv = [*net.inside(number), *member.argv]
    with cluster:
        found = Followed(cluster, settings_of(cluster))
        await asyncio.to_thread(found.registry.activate, "DB01", "MBX-01")
        found.watch.start()
        assert await found.watch.first_view(SOON_SECONDS)
        yield found
        await found.close()


def number_of(followed: Followed, member: EtcdMember) -> int:
    return followed.cluster.members.index(member)


async def test_a_member_that_is_cut_off_is_left(spread: Followed, net: Network) -> None:
    """Its connections stay open: there is nobody left to close them."""
    net.cut(0)
    await spread.change("MBX-02")
    await spread.until(lambda: spread.watch.stale_seconds == 0)
    assert await spread.change("MBX-03") < 1.0
    net.mend(0)
    await spread.change("MBX-04")


async def test_a_leader_that_its_followers_do_not_hear_confirms_nothing(spread: Followed, net: Network) -> None:
    """It answers clients all the time, and would let them believe an old view for ever."""
    leader = spread.cluster.wait_leader()
    at = number_of(spread, leader)
    others = [address for number, address in enumerate(net.addresses) if number != at]
    alone = EtcdSettings((leader.url,), spread.settings.prefix)
    watch = Followed(spread.cluster, alone)
    watch.watch.start()
    assert await watch.watch.first_view(SOON_SECONDS)
    for other in others:
        net.block(at, other)
    await spread.change("MBX-02")
    await watch.until(lambda: watch.watch.stale_seconds > 3 * INTERVAL_SECONDS)
    assert watch.knows("MBX-01")
    impatient = EtcdRegistry(alone, 2.0)
    with pytest.raises(RegistryUnavailable):
        await asyncio.to_thread(impatient.activate, "DB01", "MBX-03", 1)
    with pytest.raises(RegistryUnavailable):
        await asyncio.to_thread(impatient.view)
    for other in others:
        net.unblock(at, other)
    await watch.until(lambda: watch.knows("MBX-02") and watch.watch.stale_seconds == 0, 20.0)
    view = await asyncio.to_thread(spread.registry.view)
    assert view.active["DB01"].epoch == 2, "what was refused has not come about afterwards either"
    impatient.close()
    watch.watch.close()
    await asyncio.sleep(0.05)
    watch.registry.close()


async def test_of_two_managers_on_two_sides_one_acts(spread: Followed, net: Network) -> None:
    """The holder is with the minority: its lease runs out, the other takes it, and the first changes nothing more."""
    member = spread.cluster.wait_leader()
    at = number_of(spread, member)
    minority = EtcdRegistry(EtcdSettings((member.url,), spread.settings.prefix), 2.0)
    lease = await asyncio.to_thread(take, minority, "CAS-01", 2.0)
    for number, address in enumerate(net.addresses):
        if number != at:
            net.block(at, address)
    with pytest.raises(RegistryUnavailable):
        await asyncio.to_thread(minority.activate, "DB01", "MBX-02", 1, lease)

    async def taken() -> None:
        while await asyncio.to_thread(spread.registry.take_lease, "manager", "CAS-02", 60.0) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    await asyncio.wait_for(taken(), 20.0)
    manager = (await asyncio.to_thread(spread.registry.view)).manager
    assert manager is not None
    await asyncio.to_thread(spread.registry.activate, "DB01", "MBX-03", 1, manager)
    for number, address in enumerate(net.addresses):
        if number != at:
            net.unblock(at, address)
    with pytest.raises((LeaseLost, RegistryUnavailable)):
        await asyncio.to_thread(minority.keep_lease, lease)
    await spread.change("MBX-04")
    history = await asyncio.to_thread(spread.registry.history)
    assert [(entry.epoch, entry.holder) for entry in history if entry.database] == [
        (1, ""), (2, "CAS-02"), (3, ""),
    ]  # fmt: skip
    minority.close()
