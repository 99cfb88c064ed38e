"""Three real front ends and one shared store: what guessers and users notice, with the store there and away."""

from __future__ import annotations

import asyncio
import contextlib
import imaplib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from doors import FrontDoor, Servers, missing
from service_kit import ADDRESS, REAL, Service, until
from test_mail_servers import imap

from gatepost.lab.servers.etcd import EtcdCluster
from gatepost.lab.servers.gatepost import run_gatepost
from gatepost.lab.servers.process import ServerMissing, free_ports
from gatepost.lab.servers.redis import RedisServer
from gatepost.lab.toml_text import Table

pytestmark = pytest.mark.integration
pytest.importorskip("redis", reason="the client of Redis is not installed")

StartFrontDoor = Callable[..., FrontDoor]
FREE = 3
DELAY_SECONDS = 1.5
"""Between two judgements after the free ones, and the longest wait: one guess waits, further ones are refused."""
GUESSES_EACH = 10
LONG_SECONDS = 60.0
_numbers = itertools.count(1)

_POLICY = f"""
[front_end.sign_in_policy]
first_delay_seconds = {DELAY_SECONDS}
longest_delay_seconds = {DELAY_SECONDS}
longest_wait_seconds = {DELAY_SECONDS}
"""
_STORE = """
[front_end.shared_store]
engine = "{engine}"
secret_file = "secret"
answer_seconds = 1.0
"""


@pytest.fixture(scope="module")
def redis_server(servers: Servers, scratch: Path) -> Iterator[RedisServer]:
    """One that tests stop and kill; each leaves it running."""
    address = servers.address()
    try:
        server = RedisServer(scratch / f"redis-{next(_numbers)}", (address, free_ports(address, 1)[0]))
    except ServerMissing as error:
        missing(error)
    server.start()
    server.wait_ready()
    yield server
    server.stop()


class Fleet:
    """Front ends on machines of their own: each has its own files."""

    def __init__(self, folder: Path, store: str, front_ends: int) -> None:
        self.services = [Service(folder / f"front-{number}", core=REAL) for number in range(front_ends)]
        for service in self.services:
            service.settings |= {"allow_clear_passwords": True, "proxy_protocol_from": ["127.0.0.0/8"]}
            service.limits["refused_sign_in_delay_seconds"] = 0.0
            secret = service.folder / "secret"
            secret.write_text("a secret that all front ends have\n")
            secret.chmod(0o600)
            service.write(broken=_POLICY + store)

    def start(self) -> None:
        for service in self.services:
            service.start(wait=False)
        for service in self.services:
            until(lambda service=service: service.events("service.started"), "the start", LONG_SECONDS)  # type: ignore[misc]

    def stop(self) -> None:
        for service in self.services:
            service.stop()

    @property
    def alone(self) -> int:
        """Charges that a front end made for itself only."""
        found = [worker.status for service in self.services for worker in service.status().workers]
        return sum(status.counters["sign_in.charged_alone"] for status in found if status is not None)

    async def guess(self, source: str, services: Sequence[Service] | None = None) -> int:
        """Guesses from one address at some or all of them at once: how many were not refused."""
        places = [service for service in services or self.services for _ in range(GUESSES_EACH)]
        answers = await asyncio.gather(*(one_guess(service, source) for service in places))
        return sum(not refused for refused in answers)


async def one_guess(service: Service, source: str, name: str = "anna") -> bool:
    """Whether it was told to come back. Who has to wait for a turn does."""
    reader, writer = await asyncio.open_connection(ADDRESS, service.ports["imap"])
    try:
        async with asyncio.timeout(LONG_SECONDS):
            writer.write(f"PROXY TCP4 {source} 192.0.2.1 40000 143\r\n".encode())
            await reader.readline()
            writer.write(f"a LOGIN {name} guess{next(_numbers)}\r\n".encode())
            line = await reader.readline()
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    assert b"AUTHENTICATIONFAILED" in line or b"UNAVAILABLE" in line, line
    return b"UNAVAILABLE" in line


def of_redis(server: RedisServer) -> str:
    return _STORE.format(engine="redis") + f'url = "{server.url}"\n'


def of_etcd(cluster: EtcdCluster) -> str:
    endpoints = ", ".join(f'"{url}"' for url in cluster.urls)
    prefix = f"/gatepost/front-ends-{next(_numbers)}"
    return f'[front_end.etcd]\nendpoints = [{endpoints}]\nprefix = "{prefix}"\n' + _STORE.format(engine="etcd")


@pytest.fixture(scope="module")
def with_redis(redis_server: RedisServer, scratch: Path) -> Iterator[Fleet]:
    """Three front ends at a Redis."""
    fleet = Fleet(scratch / "fleet-redis", of_redis(redis_server), 3)
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.stop()


@pytest.fixture(scope="module")
def with_etcd(etcd_node: EtcdCluster, scratch: Path) -> Iterator[Fleet]:
    """Two front ends at an etcd."""
    fleet = Fleet(scratch / "fleet-etcd", of_etcd(etcd_node), 2)
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.stop()


@pytest.fixture(params=["with_redis", "with_etcd"])
def fleet(request: pytest.FixtureRequest) -> Fleet:
    """Each of the two."""
    found: Fleet = request.getfixturevalue(request.param)
    return found


async def test_guesses_at_several_front_ends_get_no_more_through_than_at_one(fleet: Fleet) -> None:
    """In parallel, from one address: three are free, one may wait for its turn, all others are told to come back."""
    before, began = fleet.alone, time.monotonic()
    through = await fleet.guess("198.51.100.7")
    turns = int((time.monotonic() - began) / DELAY_SECONDS) + 1
    assert FREE <= through <= FREE + turns + fleet.alone - before
    # Another address is as free as ever, at each of them.
    assert not await one_guess(fleet.services[1], "198.51.100.8")
    # An operator forgives it, at any of them.
    path = str(fleet.services[1].folder / "gatepost.toml")
    told = await asyncio.to_thread(run_gatepost, "penalty", "clear", "--ip", "198.51.100.7", "-c", path)
    assert "wrong passwords forgiven" in told
    assert not await one_guess(fleet.services[0], "198.51.100.7")


async def test_a_store_that_stands_still_or_dies_stops_no_sign_in(redis_server: RedisServer, with_redis: Fleet) -> None:
    """Each counts by itself meanwhile, says so, and what it has counted holds for all when the store is back."""
    first, second, third = with_redis.services
    before, alone = told(first), with_redis.alone
    redis_server.freeze()
    try:
        assert not await one_guess(first, "198.51.100.9")  # judged, not refused
        until(lambda: told(first)[0] > before[0], "it says so", LONG_SECONDS)
        assert await with_redis.guess("198.51.100.9", [first]) >= FREE - 1
        assert with_redis.alone - alone >= FREE
    finally:
        redis_server.thaw()
    until(lambda: told(first)[1] > before[1], "it comes back", LONG_SECONDS)
    async with asyncio.timeout(LONG_SECONDS):
        guesses = 1
        while True:  # the second counts what the first had to count alone
            await one_guess(second, "198.51.100.9")
            counted = [line["failures"] for line in second.events("sign_in.decided")]
            if max(counted, default=0) >= guesses + FREE:
                break
            guesses += 1
    before = told(third)
    redis_server.kill()
    try:
        assert not await one_guess(third, "198.51.100.10")
        until(lambda: told(third)[0] > before[0], "it says so", LONG_SECONDS)
    finally:
        redis_server.start()
        redis_server.wait_ready()
    until(lambda: told(third)[1] > before[1], "it comes back", LONG_SECONDS)


def told(service: Service) -> tuple[int, int]:
    """How often the log says that the store is away, and that it is back."""
    return len(service.events("shared_store.unavailable")), len(service.events("shared_store.available"))


def test_sessions_are_counted_over_all_front_ends(
    start_front_door: StartFrontDoor, redis_server: RedisServer, scratch: Path
) -> None:
    """A user's limit is one for all of them; a session that ends makes room at each."""
    secret = scratch / f"secret-{next(_numbers)}"
    secret.write_text("a secret that all front ends have")
    secret.chmod(0o600)

    def shared(front_end: Table, _: Table) -> None:
        front_end["sign_in_policy"] = {"sessions_per_user": 2}
        front_end["shared_store"] = {
            "engine": "redis",
            "url": redis_server.url,
            "secret_file": str(secret),
            "answer_seconds": 1.0,
        }

    doors = [start_front_door(shared), start_front_door(shared)]
    open_ones = [signed_in(door) for door in doors]
    for door in doors:
        with pytest.raises(imaplib.IMAP4.error, match="LIMIT"):
            signed_in(door)
    open_ones[0].logout()
    until(lambda: accepted(doors[1], open_ones), "room for one more", LONG_SECONDS)
    for client in open_ones[1:]:
        client.logout()


def signed_in(door: FrontDoor) -> imaplib.IMAP4:
    client = imap(door)
    try:
        client.login("alice", "apw")
    except imaplib.IMAP4.error:
        with contextlib.suppress(OSError):
            client.shutdown()
        raise
    return client


def accepted(door: FrontDoor, open_ones: list[imaplib.IMAP4]) -> bool:
    try:
        open_ones.append(signed_in(door))
    except imaplib.IMAP4.error:
        time.sleep(0.1)
        return False
    return True
