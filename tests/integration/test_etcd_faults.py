"""What happens to the registry in etcd when its members die, stand still, are cut off, forget, or come back empty."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import pytest
import structlog
from etcd_kit import INTERVAL_SECONDS, SOON_SECONDS, Followed, Road, settings_of
from registry_contract import move, take

from gatepost.activemanager.etcd.changes import Changes
from gatepost.activemanager.etcd.client import EtcdClient
from gatepost.activemanager.etcd.keyspace import Change, Keyspace
from gatepost.activemanager.etcd.layout import Layout, written
from gatepost.activemanager.etcd.registry import EtcdRegistry
from gatepost.activemanager.etcd.watch import EtcdRegistryWatch
from gatepost.activemanager.port import LeaseLost, RegistryUnavailable, RegistryView, StaleEpoch
from gatepost.lab.servers.etcd import EtcdCluster
from gatepost.routing.decision import ActiveCopy


@pytest.fixture
async def followed(own_cluster: EtcdCluster) -> AsyncIterator[Followed]:
    """DB01 is on MBX-01 with epoch 1, and the watch knows."""
    found = Followed(own_cluster, settings_of(own_cluster))
    await asyncio.to_thread(found.registry.activate, "DB01", "MBX-01")
    found.watch.start()
    assert await found.watch.first_view(SOON_SECONDS)
    yield found
    await found.close()


async def test_the_leader_is_killed(followed: Followed) -> None:
    """Changes go on with the others, and are seen."""
    followed.cluster.wait_leader().kill()
    await followed.change("MBX-02")
    await followed.until(lambda: followed.watch.stale_seconds == 0)
    await followed.change("MBX-03")


async def test_the_watched_member_is_killed_and_nothing_is_missed(followed: Followed) -> None:
    """The stream goes on at another member with what has happened in between."""
    followed.cluster.members[0].kill()
    for n in range(2, 6):
        await asyncio.to_thread(followed.registry.activate, f"DB{n:02}", "MBX-01")
    await followed.until(lambda: len(followed.watch.view.active) == 5)
    assert [view.revision for view in followed.told] == sorted({view.revision for view in followed.told})


async def test_without_a_majority_the_last_view_stays_and_grows_old(followed: Followed) -> None:
    """Lost quorum: the last known answer, marked, for as long as it lasts. Logged once; its end too."""
    before = followed.watch.view
    with structlog.testing.capture_logs() as lines:
        followed.watch._watched.log = structlog.get_logger()
        for member in followed.cluster.members[:2]:
            member.kill()
        await followed.until(lambda: followed.watch.stale_seconds > 4 * INTERVAL_SECONDS)
        impatient = EtcdRegistry(followed.settings, 2.0)
        with pytest.raises(RegistryUnavailable):
            await asyncio.to_thread(impatient.activate, "DB01", "MBX-02", 1)
        with pytest.raises(RegistryUnavailable):
            await asyncio.to_thread(impatient.view)
        impatient.close()
        assert followed.watch.view is before
        first = followed.watch.stale_seconds
        await asyncio.sleep(0.3)
        assert followed.watch.stale_seconds > first
        await followed.until(lambda: bool(lines), 20.0)
        followed.cluster.start()
        await followed.until(lambda: followed.watch.stale_seconds == 0)
        assert followed.watch.view.active == before.active
        await followed.change("MBX-02")
    assert [line["event"] for line in lines] == ["registry.unavailable", "registry.available"]


async def test_a_worker_that_starts_without_a_majority_gets_its_view_when_there_is_one(followed: Followed) -> None:
    for member in followed.cluster.members[:2]:
        member.kill()
    late = EtcdRegistryWatch(followed.settings, asyncio.get_running_loop(), INTERVAL_SECONDS)
    late.start()
    assert not await late.first_view(1.0)
    assert late.view == RegistryView()
    assert late.stale_seconds > 0
    followed.cluster.start()
    assert await late.first_view(SOON_SECONDS)
    assert late.view.active == followed.watch.view.active
    late.close()


async def test_a_member_that_stands_still_is_left(followed: Followed) -> None:
    """SIGSTOP: its connections stay open and silent, so no fault is told by anybody."""
    frozen = followed.cluster.members[0]
    frozen.freeze()
    await followed.change("MBX-02")
    await followed.until(lambda: followed.watch.stale_seconds == 0)
    assert await followed.change("MBX-03") < 1.0
    frozen.thaw()
    assert await followed.change("MBX-04") < 1.0


async def test_the_leader_stands_still(followed: Followed) -> None:
    """The others elect a new one; what the old one may still say when it goes on changes nothing."""
    leader = followed.cluster.wait_leader()
    leader.freeze()
    await followed.change("MBX-02")
    leader.thaw()
    await followed.change("MBX-03")
    view = await asyncio.to_thread(followed.registry.view)
    assert view.active["DB01"] == ActiveCopy("DB01", "MBX-03", 3)
    alone = EtcdRegistry(replace(followed.settings, endpoints=(leader.url,)))
    assert await asyncio.to_thread(alone.view) == view
    alone.close()


async def test_what_was_compacted_while_nobody_watched_is_listed_anew(followed: Followed) -> None:
    """A stream cannot go on from a revision that the cluster has forgotten."""
    followed.watch.close()
    for n in range(2, 8):
        await asyncio.to_thread(followed.registry.activate, f"DB{n:02}", "MBX-01")
    revision = (await asyncio.to_thread(followed.registry.view)).revision
    await asyncio.to_thread(followed.cluster.ctl, "compact", str(revision), "--physical")
    assert followed.watch._revision is not None, "it goes on from what it knew"
    followed.watch.start()
    await followed.until(lambda: len(followed.watch.view.active) == 7)
    await followed.change("MBX-02")
    assert followed.watch.stale_seconds == 0


async def test_a_full_restart_keeps_everything(followed: Followed) -> None:
    """All members killed and started again with their data: epochs, a held lease, terms, the history."""
    lease = await asyncio.to_thread(take, followed.registry)
    await asyncio.to_thread(followed.registry.activate, "DB01", "MBX-02", 1, lease)
    before = await asyncio.to_thread(followed.registry.view)
    history = await asyncio.to_thread(followed.registry.history)
    for member in followed.cluster.members:
        member.kill()
    followed.cluster.start()
    assert await asyncio.to_thread(followed.registry.view) == before
    assert await asyncio.to_thread(followed.registry.history) == history
    await asyncio.to_thread(followed.registry.keep_lease, lease)
    await followed.change("MBX-03")
    await followed.until(lambda: followed.watch.stale_seconds == 0)


async def test_a_cluster_that_was_put_back_is_followed_and_logged(followed: Followed) -> None:
    """All data is lost and made anew: workers go along, and keep what the new state does not know."""
    await followed.change("MBX-02", "DB02")
    await followed.change("MBX-02")
    with structlog.testing.capture_logs() as lines:
        followed.watch._watched.log = structlog.get_logger()
        followed.cluster.stop()
        followed.cluster.forget()
        followed.cluster.start()
        await asyncio.to_thread(followed.registry.activate, "DB01", "MBX-03")
        await followed.until(lambda: followed.knows("MBX-03"))
        await followed.until(lambda: followed.watch.stale_seconds == 0)
    assert followed.watch.view.active == {
        "DB01": ActiveCopy("DB01", "MBX-03", 1),
        "DB02": ActiveCopy("DB02", "MBX-02", 1),
    }
    assert "registry.went_back" in [line["event"] for line in lines]


async def test_no_change_is_made_twice_though_answers_are_lost(followed: Followed) -> None:
    """Members stand still again and again while epochs are counted: none is skipped, and each call has its own."""
    stop = asyncio.Event()

    async def disturb() -> None:
        while not stop.is_set():
            for member in followed.cluster.members:
                member.freeze()
                await asyncio.sleep(0.15)
                member.thaw()
                await asyncio.sleep(0.1)

    disturbing = asyncio.create_task(disturb())
    epochs = []
    for n in range(60):
        now = await asyncio.to_thread(followed.registry.activate, "DB01", f"MBX-{n}")
        epochs.append(now.epoch)
    stop.set()
    await disturbing
    assert epochs == list(range(2, 62))
    assert [entry.epoch for entry in await asyncio.to_thread(followed.registry.history, "DB01")] == list(range(1, 62))
    await followed.until(lambda: followed.knows("MBX-59"))


async def test_a_lease_survives_its_leader_and_no_two_hold_it(followed: Followed) -> None:
    lease = await asyncio.to_thread(take, followed.registry, "CAS-01", 5.0)
    followed.cluster.wait_leader().kill()
    await asyncio.to_thread(followed.registry.keep_lease, lease)
    assert await asyncio.to_thread(followed.registry.take_lease, "manager", "CAS-02", 5.0) is None
    await asyncio.to_thread(followed.registry.activate, "DB01", "MBX-02", 1, lease)


async def test_a_lease_that_an_operator_deletes_is_lost(followed: Followed) -> None:
    lease = await asyncio.to_thread(take, followed.registry)
    key = f"{followed.settings.prefix}/now/leases/manager"
    await asyncio.to_thread(followed.cluster.ctl, "del", key)
    with pytest.raises(LeaseLost):
        await asyncio.to_thread(followed.registry.keep_lease, lease)
    with pytest.raises(LeaseLost):
        await asyncio.to_thread(followed.registry.activate, "DB01", "MBX-02", 1, lease)


async def test_a_value_that_somebody_else_wrote_hurts_its_database_alone(followed: Followed) -> None:
    """Workers say so and keep what they knew of it; a command names the key."""
    with structlog.testing.capture_logs() as lines:
        followed.watch._watched.log = structlog.get_logger()
        key = f"{followed.settings.prefix}/now/active/DB01"
        await asyncio.to_thread(followed.cluster.ctl, "put", key, "MBX-07")
        await followed.change("MBX-02", "DB02")
    assert followed.watch.view.active["DB01"] == ActiveCopy("DB01", "MBX-01", 1)
    assert "registry.bad_value" in [line["event"] for line in lines]
    with pytest.raises(RegistryUnavailable, match="now/active/DB01"):
        await asyncio.to_thread(followed.registry.view)


async def test_a_large_change_comes_whole(followed: Followed) -> None:
    """Five thousand databases in one view: pages of the listing, long messages of the stream."""
    client, layout = EtcdClient(followed.settings), Layout(followed.settings.prefix)
    for begin in range(0, 5000, 100):
        keys = [layout.key("active", f"X{n:05}") for n in range(begin, begin + 100)]
        change = Change(dict.fromkeys(keys, written({"server": "MBX-01", "epoch": 1})))
        await Keyspace(client).change([], lambda _, change=change: change)
    await client.close()
    await followed.change("MBX-02")
    assert len(followed.watch.view.active) == 5001
    assert (await asyncio.to_thread(followed.registry.view)).active == followed.watch.view.active


def test_stale_epochs_are_refused_under_faults(own_cluster: EtcdCluster) -> None:
    """Two writers with one expectation: one of them is told, though a member dies in between."""
    settings = settings_of(own_cluster)
    first, second = EtcdRegistry(settings), EtcdRegistry(settings)
    first.activate("DB01", "MBX-01", 0)
    own_cluster.wait_leader().kill()
    first.activate("DB01", "MBX-02", 1)
    with pytest.raises(StaleEpoch):
        second.activate("DB01", "MBX-03", 1)
    first.close()
    second.close()


@pytest.fixture
async def roads(own_cluster: EtcdCluster) -> AsyncIterator[list[Road]]:
    """A road to each member."""
    found = [Road(member) for member in own_cluster.members]
    for road in found:
        await road.start()
    yield found
    for road in found:
        await road.close()


@pytest.fixture
async def by_road(own_cluster: EtcdCluster, roads: list[Road]) -> AsyncIterator[Followed]:
    """As `followed`, but the watch goes by the roads; changes do not."""
    direct = settings_of(own_cluster)
    found = Followed(own_cluster, replace(direct, endpoints=tuple(road.url for road in roads)))
    found.registry = EtcdRegistry(direct)
    await asyncio.to_thread(found.registry.activate, "DB01", "MBX-01")
    found.watch.start()
    assert await found.watch.first_view(SOON_SECONDS)
    yield found
    await found.close()


async def test_a_slow_member_is_as_good_as_its_slowness(by_road: Followed, roads: list[Road]) -> None:
    """Slower than the others, but within the time for an answer: nothing is lost, and the view is not called old."""
    for road in roads:
        road.seconds = 0.1
    assert await by_road.change("MBX-02") < 1.0
    await asyncio.sleep(4 * INTERVAL_SECONDS)
    assert by_road.watch.stale_seconds < 4 * INTERVAL_SECONDS


async def test_a_member_too_slow_to_answer_is_left(by_road: Followed, roads: list[Road]) -> None:
    roads[0].seconds = 3.0
    await by_road.change("MBX-02")
    await by_road.until(lambda: by_road.watch.stale_seconds == 0)
    assert await by_road.change("MBX-03") < 1.0


async def test_a_worker_that_is_cut_off_knows_how_old_its_view_is(by_road: Followed, roads: list[Road]) -> None:
    """Bytes vanish without a word, to all members; when they come through again, so does what was missed."""
    for road in roads:
        road.open.clear()
    await asyncio.to_thread(by_road.registry.activate, "DB01", "MBX-02")
    await by_road.until(lambda: by_road.watch.stale_seconds > 1.0)
    assert by_road.knows("MBX-01")
    for road in roads:
        road.open.set()
    await by_road.until(lambda: by_road.knows("MBX-02") and by_road.watch.stale_seconds == 0)


async def test_a_stream_that_went_silent_alone_is_noticed(by_road: Followed, roads: list[Road]) -> None:
    """The question whether the view is whole is answered by another connection, and tells of what is missing."""
    stream_only = by_road.watch._take
    by_road.watch._take = lambda message: True  # type: ignore[method-assign] - its messages vanish
    await asyncio.to_thread(by_road.registry.activate, "DB01", "MBX-02")
    await asyncio.sleep(2 * INTERVAL_SECONDS)
    by_road.watch._take = stream_only  # type: ignore[method-assign]
    await by_road.until(lambda: by_road.knows("MBX-02"))


class LosesAnswers(httpx2.AsyncHTTPTransport):
    """Carries out every first transaction that changes something, and loses its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: set[bytes] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        content = await request.aread()
        if b"request_put" in content and content not in self.lost:
            self.lost.add(content)
            await response.aread()
            raise httpx2.ReadError("lost", request=request)
        return response


async def test_a_change_whose_answer_is_lost_is_found_and_not_made_again(own_cluster: EtcdCluster) -> None:
    """Made twice it would be another: an epoch skipped, a move refused by itself, a lease held by nobody."""
    settings = settings_of(own_cluster)
    transport = LosesAnswers()
    client = EtcdClient(settings, transport)
    changes = Changes(Keyspace(client), Layout(settings.prefix))
    assert await changes.activate("DB01", "MBX-01", 0, None) == ActiveCopy("DB01", "MBX-01", 1)
    assert await changes.activate("DB01", "MBX-02", None, None) == ActiveCopy("DB01", "MBX-02", 2)
    await changes.begin_move(move(epoch=2), None)
    lease = await changes.take_lease("manager", "CAS-01", 60.0)
    assert lease is not None
    assert await changes.activate("DB01", "MBX-03", 2, lease) == ActiveCopy("DB01", "MBX-03", 3)
    view = await changes.view()
    assert view.moves == {}
    assert view.manager == lease
    assert [entry.epoch for entry in await changes.history("DB01")] == [1, 2, 3]
    assert len(transport.lost) == 5
    await client.close()
