"""The shared store in a real Redis and a real etcd: the same promises as in memory, and what each does of its own."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
import shared_state_contract
from doors import Servers, missing
from etcd_kit import settings_of
from ledger_contract import LedgerContract, LedgerStage
from session_counts_contract import SessionCountsContract
from shared_front_end import SECRET, Counting, FrontEnd
from shared_state_contract import SharedStateContract

from gatepost.configuration.settings import SharedStoreSettings
from gatepost.lab.servers.etcd import EtcdCluster
from gatepost.lab.servers.process import ServerMissing, free_ports
from gatepost.lab.servers.redis import RedisServer
from gatepost.sharedstate import penalties, session_counts
from gatepost.sharedstate.sqlite import prepare
from gatepost.sharedstate.store import rounds as rounds_module
from gatepost.sharedstate.store.open import open_store
from gatepost.sharedstate.store.port import MAX_VALUE_BYTES, Commit, Found, KeyValues, Put, StoreAway

pytestmark = pytest.mark.integration
pytest.importorskip("redis", reason="the client of Redis is not installed")

PASSWORD = "redispw"
PATIENCE_SECONDS = 30.0
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def redis_server(servers: Servers, scratch: Path) -> Iterator[RedisServer]:
    """With TLS, client certificates and a password."""
    address = servers.address()
    try:
        server = RedisServer(
            scratch / "redis",
            (address, free_ports(address, 1)[0]),
            authority=servers.authority,
            password=PASSWORD,
        )
    except ServerMissing as error:
        missing(error)
    server.start()
    server.wait_ready()
    yield server
    server.stop()


def of_redis(server: RedisServer, servers: Servers, **more: object) -> SharedStoreSettings:
    files = servers.authority.issue(f"redis-client-{next(_numbers)}", "cas-01", for_clients=True)
    values: dict[str, object] = {
        "url": server.url,
        "password": PASSWORD,
        "ca": servers.authority.certificate.read_bytes(),
        "certificate": files.certificate.read_bytes(),
        "private_key": files.private_key.read_bytes(),
    }
    prefix = f"/gatepost/contoso-{next(_numbers)}/shared"
    return SharedStoreSettings(SECRET, prefix, **(values | more))  # type: ignore[arg-type]


@pytest.fixture(params=["redis", "etcd"])
def settings(request: pytest.FixtureRequest, servers: Servers) -> SharedStoreSettings:
    if request.param == "redis":
        return of_redis(request.getfixturevalue("redis_server"), servers)
    cluster: EtcdCluster = request.getfixturevalue("etcd_node")
    etcd = settings_of(cluster)
    return SharedStoreSettings(SECRET, f"{etcd.prefix}/shared", etcd=etcd)


@pytest.fixture
async def store(settings: SharedStoreSettings) -> AsyncIterator[KeyValues]:
    opened = open_store(settings)
    yield opened
    await opened.close()


class Fleet:
    """Front ends at one store."""

    def __init__(self, settings: SharedStoreSettings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.front_ends: list[FrontEnd[KeyValues]] = []

    async def add(self) -> FrontEnd[KeyValues]:
        path = str(self.folder / f"shared-{len(self.front_ends)}.sqlite")
        prepare(path)
        made = FrontEnd(open_store(self.settings), path, time.time, 30.0, self.settings.prefix)
        self.front_ends.append(made)
        assert await made.store.start(PATIENCE_SECONDS)
        return made

    def forget(self, name: str) -> None:
        """Remove a key."""

        async def remove() -> None:
            store = self.front_ends[0].hold
            found, _ = await store.read([name])
            assert await store.commit([Commit({name: found.get(name)}, {name: None})]) == [True]

        self.removing = asyncio.ensure_future(remove())


@pytest.fixture
async def fleet(settings: SharedStoreSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    for module in (penalties, session_counts):
        monkeypatch.setattr(module, "ANSWER_SECONDS", 30.0)
    monkeypatch.setattr(rounds_module, "ROUND_SECONDS", 30.0)
    monkeypatch.setattr(shared_state_contract, "SEEN_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(rounds_module, "PROBE_SECONDS", 0.05)
    made = Fleet(settings, tmp_path)
    yield made
    for front_end in made.front_ends:
        front_end.store._rounds._store = front_end.hold
        await front_end.close()


class TestAccounts(LedgerContract):
    @pytest.fixture
    async def stage(self, fleet: Fleet) -> LedgerStage:
        one, other = await fleet.add(), await fleet.add()
        began = time.time()  # stands still: what takes its time here lets nobody through
        return LedgerStage(one.store.ledger, other.store.ledger, lambda: began)


class TestCounts(SessionCountsContract):
    @pytest.fixture
    async def counting(self, fleet: Fleet) -> Counting:
        return Counting([await fleet.add() for _ in range(3)], fleet.forget)


class TwoStates:
    """The devices and sign-outs of two front ends."""

    def __init__(self, one: FrontEnd[KeyValues], other: FrontEnd[KeyValues]) -> None:
        self.one, self.other = one.state, other.state
        self._stores = one.hold, other.hold
        self._rounds = [front_end.store._rounds for front_end in (one, other)]

    def take_away(self) -> None:
        for rounds in self._rounds:
            rounds._store = Away()

    def bring_back(self) -> None:
        for rounds, store in zip(self._rounds, self._stores, strict=True):
            rounds._store = store


class Away:
    """A store that does not answer."""

    where = "away"

    async def read(self, keys: Sequence[str]) -> tuple[dict[str, Found], float | None]:
        raise StoreAway("away")

    async def commit(self, commits: Sequence[Commit]) -> list[bool]:
        raise StoreAway("away")

    async def close(self) -> None: ...


class TestState(SharedStateContract):
    @pytest.fixture
    async def engine(self, fleet: Fleet) -> TwoStates:
        return TwoStates(await fleet.add(), await fleet.add())


async def test_each_change_stands_for_itself(store: KeyValues, settings: SharedStoreSettings) -> None:
    """One whose keys were changed meanwhile is not made; the others of the same call are."""
    keys = [f"{settings.prefix}/k/{number}" for number in range(150)]
    first = [Commit({key: None}, {key: Put(b"a", 60)}) for key in keys]
    assert await store.commit(first) == [True] * 150
    found, _ = await store.read(keys)
    assert {entry.value for entry in found.values()} == {b"a"}
    assert len(found) == 150
    assert await store.commit([Commit({keys[0]: found[keys[0]]}, {keys[0]: Put(b"b", 60)})]) == [True]
    second = [Commit({key: found[key]}, {key: Put(b"c", 60)}) for key in keys]
    assert await store.commit(second) == [False, *[True] * 149]
    now, _ = await store.read(keys[:2])
    assert [now[key].value for key in keys[:2]] == [b"b", b"c"]


async def test_a_change_of_several_keys_is_made_entirely_or_not_at_all(
    store: KeyValues, settings: SharedStoreSettings
) -> None:
    one, other, gone = (f"{settings.prefix}/k/{word}" for word in ("one", "other", "gone"))
    assert await store.commit([Commit({gone: None}, {gone: Put(b"\x00\xff", 60)})]) == [True]
    found, _ = await store.read([one, other, gone])
    assert found[gone].value == b"\x00\xff"
    seen = {one: None, other: None, gone: found[gone]}
    change = Commit(seen, {one: Put(b"1", 60), other: Put(b"2", 60), gone: None})
    assert await store.commit([change]) == [True]
    assert await store.commit([change]) == [False]
    found, _ = await store.read([one, other, gone])
    assert {key: entry.value for key, entry in found.items()} == {one: b"1", other: b"2"}


async def test_what_was_put_is_forgotten_after_its_time(store: KeyValues, settings: SharedStoreSettings) -> None:
    key, kept = f"{settings.prefix}/k/short", f"{settings.prefix}/k/long"
    await store.commit([Commit({key: None, kept: None}, {key: Put(b"a", 1.0), kept: Put(b"a", 600.0)})])
    async with asyncio.timeout(PATIENCE_SECONDS):
        while key in (await store.read([key]))[0]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert kept in (await store.read([kept]))[0]


async def test_of_two_who_change_the_same_one_is_faster(settings: SharedStoreSettings) -> None:
    stores = [open_store(settings) for _ in range(4)]
    key = f"{settings.prefix}/k/one"

    async def add(store: KeyValues) -> None:
        for _ in range(10):
            while True:
                found = (await store.read([key]))[0].get(key)
                number = int(found.value) if found else 0
                if await store.commit([Commit({key: found}, {key: Put(b"%d" % (number + 1), 60)})]) == [True]:
                    break

    try:
        await asyncio.gather(*map(add, stores))
        assert (await stores[0].read([key]))[0][key].value == b"40"
    finally:
        for store in stores:
            await store.close()


async def test_a_value_that_is_too_large_is_as_none(store: KeyValues, settings: SharedStoreSettings) -> None:
    key = f"{settings.prefix}/k/large"
    await store.commit([Commit({key: None}, {key: Put(b"a" * (MAX_VALUE_BYTES + 1), 60)})])
    assert (await store.read([key]))[0] == {}


async def test_redis_must_be_who_it_says_it_is(redis_server: RedisServer, servers: Servers, tmp_path: Path) -> None:
    other = type(servers.authority).create(tmp_path / "other-pki")
    store = open_store(of_redis(redis_server, servers, ca=other.certificate.read_bytes()))
    with pytest.raises(StoreAway, match="certificate"):
        await store.read(["/k"])
    await store.close()


async def test_a_wrong_password_for_redis_is_told_without_it(redis_server: RedisServer, servers: Servers) -> None:
    store = open_store(of_redis(redis_server, servers, password="wrong-secret"))
    with pytest.raises(StoreAway) as told:
        await store.read(["/k"])
    assert "wrong-secret" not in str(told.value)
    await store.close()


async def test_redis_tells_its_clock(redis_server: RedisServer, servers: Servers) -> None:
    store = open_store(of_redis(redis_server, servers))
    _, told = await store.read(["/k"])
    assert told is not None
    assert abs(told - time.time()) < PATIENCE_SECONDS
    await store.close()


async def test_a_member_of_etcd_that_stands_still_is_left_for_another(
    own_cluster: EtcdCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The front end counts alone meanwhile, and goes on with the others while that one still stands still."""
    monkeypatch.setattr(penalties, "ANSWER_SECONDS", 30.0)
    etcd = settings_of(own_cluster)
    fleet = Fleet(SharedStoreSettings(SECRET, f"{etcd.prefix}/shared", etcd=etcd), tmp_path)
    front_end = await fleet.add()
    front_end.store._rounds.answer_seconds = 0.5
    stage = LedgerStage(front_end.store.ledger, front_end.store.ledger, time.time)
    try:
        _, charged = await stage.guess("first")
        asked = front_end.hold._client.endpoint  # type: ignore[attr-defined]
        member = next(member for member in own_cluster.members if member.url == asked)
        member.freeze()
        _, charged = await stage.guess("alone")
        assert charged.alone
        async with asyncio.timeout(PATIENCE_SECONDS):
            number = 0
            while charged.alone:
                await asyncio.sleep(0.2)
                number += 1
                _, charged = await stage.guess("later", address=f"203.0.113.{number}")
    finally:
        for member in own_cluster.members:
            member.thaw()
        await front_end.close()


async def test_a_redis_that_is_started_anew_is_told_of_sessions_again(
    servers: Servers, scratch: Path, tmp_path: Path
) -> None:
    """All that it held is lost; each front end writes its own numbers anew."""
    address = servers.address()
    try:
        server = RedisServer(scratch / f"redis-{next(_numbers)}", (address, free_ports(address, 1)[0]))
    except ServerMissing as error:
        missing(error)
    server.start()
    server.wait_ready()
    fleet = Fleet(SharedStoreSettings(SECRET, "/anew", url=server.url), tmp_path)
    one, other = await fleet.add(), await fleet.add()
    try:
        assert await one.counts.enter([("user anna", 1)]) == ""
        server.kill()
        server.start()
        server.wait_ready()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await other.counts.enter([("user anna", 1)]) == "":
                other.counts.leave(["user anna"])
                await asyncio.sleep(0.1)
    finally:
        for front_end in fleet.front_ends:
            await front_end.close()
        server.stop()
