"""What is remembered of a directory elsewhere, with very many users: look-ups a second, memory, a storm of sign-ins.

python benchmarks/directory_cache.py [USERS]        (1,000,000)
"""

from __future__ import annotations

import asyncio
import random
import resource
import sys
import time

import uvloop

from gatepost.directory.cached import CachedDirectory
from gatepost.directory.pool import Pool
from gatepost.directory.port import BY_DIRECTORY, User
from gatepost.directory.settings import Ages
from gatepost.routing.outcome import Mailbox

DATABASES = 100
CHOSEN = 200_000
ANSWER_SECONDS = 0.020
STORM = 4_000


class Made:
    """An engine that makes users up: nothing is measured of it but that it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def find(self, canonical_name: str) -> User | None:
        """The user whose number is in the name."""
        self.asked += 1
        number = int(canonical_name[4:].partition("@")[0])
        return User(canonical_name, Mailbox(f"DB{number % DATABASES:02}"), BY_DIRECTORY + f"{number:032x}")

    async def opens(self, user: User, tries: tuple[bytes, ...]) -> bool:
        """Every password is right."""
        return bool(user and tries)

    def on_invalid(self, callback: object) -> None:
        """Nothing is ever told."""

    async def close(self) -> None:
        """Nothing is open."""


class Slow:
    """A connection to a server that takes 20 ms for each question, at its end of the wire."""

    def cut(self) -> None:
        """Nothing to cut."""

    def close(self) -> None:
        """Nothing to close."""

    def ask(self) -> int:
        """The question."""
        time.sleep(ANSWER_SECONDS)
        return 1


def memory() -> float:
    """MB that this process has taken at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def cached(users: int) -> None:
    """Fill the cache, then ask at random."""
    before = memory()
    engine = Made()
    directory = CachedDirectory("corp", engine, Ages(positive_seconds=3600.0, users=users))
    began = time.perf_counter()
    for number in range(users):
        await directory.ask(f"user{number}@contoso.com")
    filled = time.perf_counter() - began
    grown = memory() - before
    print(f"{users:,} users told in {filled:.1f} s; {grown:.0f} MB, {grown * 2**20 / users:.0f} B each")
    names = [f"user{random.randrange(users)}@contoso.com" for _ in range(CHOSEN)]
    for label, asks in (("find", False), ("ask", True)):
        began = time.perf_counter()
        for name in names:
            if asks:
                await directory.ask(name)
            else:
                directory.find(name)
        print(f"{label}: {CHOSEN / (time.perf_counter() - began):,.0f} look-ups/s")
    assert engine.asked == users
    directory.close()
    await directory.wait_closed()


async def storm(threads: int) -> None:
    """Many questions at once to a server that takes its time."""
    pool = Pool("storm", {"one": Slow}, threads=threads, seconds=60.0, try_seconds=5.0)
    began = time.perf_counter()
    waiting = iter(range(STORM))

    async def client() -> None:
        for _ in waiting:
            await pool.run(Slow.ask)

    await asyncio.gather(*(client() for _ in range(2 * threads)))
    print(f"{threads} connections, 20 ms each: {STORM / (time.perf_counter() - began):,.0f} answers/s")
    await pool.close()


if __name__ == "__main__":
    uvloop.run(cached(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
    for connections in (8, 48):
        uvloop.run(storm(connections))
