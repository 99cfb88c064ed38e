"""What a charge costs in each store that front ends share: `python benchmarks/shared_store.py [SECONDS]`.

Real servers on this machine. Printed for each: how long one charge takes when nobody else asks (the wait that it adds
to a sign-in), how many a second one process makes when many sign in at once, and how many guesses of one address got
through at three front ends in a time, with each front end counting by itself and with the store.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "integration"), str(ROOT / "benchmarks")]

import uvloop  # noqa: E402
from service_kit import ADDRESS, REAL, Service, until  # noqa: E402

from gatepost.configuration.settings import EtcdSettings, SharedStoreSettings  # noqa: E402
from gatepost.directory.policy.ledger import Ledger  # noqa: E402
from gatepost.directory.policy.policy import attempt_of  # noqa: E402
from gatepost.directory.policy.settings import Penalty  # noqa: E402
from gatepost.lab.servers.etcd import EtcdCluster  # noqa: E402
from gatepost.lab.servers.process import free_ports  # noqa: E402
from gatepost.lab.servers.redis import RedisServer  # noqa: E402
from gatepost.sharedstate.penalties import open_ledger  # noqa: E402
from gatepost.sharedstate.sqlite import prepare  # noqa: E402
from gatepost.sharedstate.store.open import SharedStore  # noqa: E402
from guessing import _scenario  # noqa: E402

SECRET = b"a secret of this benchmark"
TOGETHER = 200
START_SECONDS = 60.0


async def _charge(ledger: Ledger, number: int) -> float:
    attempt = attempt_of(
        "anna@contoso.com", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", b"guess1", PENALTY
    )
    began = time.perf_counter()
    assert await ledger.charge(attempt, PENALTY, time.time()) is not None
    return time.perf_counter() - began


PENALTY = Penalty()


async def _measure(name: str, ledger: Ledger, seconds: float) -> None:
    for number in range(50):
        await _charge(ledger, number)
    times, number = [], 1000
    until_then = time.perf_counter() + seconds
    while time.perf_counter() < until_then:
        times.append(await _charge(ledger, number))
        number += 1
    times.sort()
    made, began = 0, time.perf_counter()

    async def go_on(first: int) -> None:
        nonlocal made
        place = first
        while time.perf_counter() - began < seconds:
            await _charge(ledger, place)
            place += 1
            made += 1

    await asyncio.gather(*(go_on(1_000_000 + n * 50_000) for n in range(TOGETHER)))
    rate = made / (time.perf_counter() - began)
    p50, p99 = (1000 * times[int(len(times) * part)] for part in (0.5, 0.99))
    print(f"{name:24} p50 {p50:6.2f} ms  p99 {p99:6.2f} ms  {rate:8,.0f} charges/s  alone {ledger.alone}", flush=True)


async def _all_engines(folder: Path, seconds: float, stores: dict[str, SharedStoreSettings]) -> None:
    loop = asyncio.get_running_loop()
    path = str(folder / "shared.sqlite")
    prepare(path)
    own, writer = open_ledger(path, loop)
    await _measure("own file", own, seconds)
    for name, settings in stores.items():
        shared = SharedStore(settings, own, loop)
        assert await shared.start(START_SECONDS), f"{name} does not answer"
        await _measure(name, shared.ledger, seconds)
        await shared.end()
    writer.close()


def _through(folder: Path, store: str, seconds: float) -> Counter[str]:
    """Guesses of one address, with 30 connections to each of three front ends."""
    services = [Service(folder / f"front-{number}", core=REAL) for number in range(3)]
    (folder / "secret").write_bytes(SECRET)
    (folder / "secret").chmod(0o600)
    for service in services:
        service.settings |= {"allow_clear_passwords": True, "proxy_protocol_from": ["127.0.0.0/8"]}
        service.write(broken=store)
        service.start(wait=False, environment={"PYTHONPATH": os.pathsep.join([*sys.path[:2], str(ROOT / "src")])})
    try:
        for service in services:
            until(lambda service=service: service.events("service.started"), "the start", START_SECONDS)

        async def guess() -> list[Counter[str]]:
            one: Callable[[int], str] = lambda _: "198.51.100.1"  # noqa: E731
            ports = [service.ports["imap"] for service in services]
            return await asyncio.gather(*(_scenario(port, seconds, 30, one, lambda n: f"user{n}") for port in ports))

        return sum(asyncio.run(guess()), Counter())
    finally:
        for service in services:
            service.stop()


def main() -> None:
    """All engines, about 15 times as long as one measure."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        redis = RedisServer(folder / "redis", (ADDRESS, free_ports(ADDRESS, 1)[0]))
        redis.start()
        redis.wait_ready()
        try:
            with EtcdCluster(folder / "etcd-1", ADDRESS, 1) as one, EtcdCluster(folder / "etcd-3", ADDRESS, 3) as three:
                stores = {
                    "Redis": SharedStoreSettings(SECRET, "/bench", 1.0, url=redis.url),
                    "etcd, one member": SharedStoreSettings(SECRET, "/bench", 1.0, EtcdSettings(one.urls, "/bench")),
                    "etcd, three members": SharedStoreSettings(SECRET, "/bench", 1.0, EtcdSettings(three.urls, "/b")),
                }
                uvloop.run(_all_engines(folder, seconds, stores))
            shared = (
                f'[front_end.shared_store]\nengine = "redis"\nurl = "{redis.url}"\nsecret_file = "{folder}/secret"\n'
            )
            for name, store in {"by themselves": "", "with Redis": shared}.items():
                told = _through(folder, store, 6 * seconds)
                print(
                    f"three front ends {name:14} in {6 * seconds:g} s: {told['judged']} judged, "
                    f"{told['told to come back']} told to come back",
                    flush=True,
                )
        finally:
            redis.stop()


if __name__ == "__main__":
    main()
