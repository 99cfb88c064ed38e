"""How many guesses of passwords a front end judges in a time: `python benchmarks/guessing.py [SECONDS]`.

A real front end with two workers and the default policy, behind a balancer whose PROXY header tells the client's
address. Each guesser signs in again at once, with another password each time, over connections of its own. Printed:
guesses that were judged (answered as wrong), and those that were told to come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from service_kit import ADDRESS, REAL, Service  # noqa: E402

_GUESSES = itertools.count()


async def _guess(port: int, source: str, name: str, until: float, told: Counter[str]) -> None:
    """One connection after the other, three guesses on each."""
    family = "TCP6" if ":" in source else "TCP4"
    own = "2001:db8::1" if ":" in source else "192.0.2.1"
    while time.monotonic() < until:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(until - time.monotonic() + 1):
                reader, writer = await asyncio.open_connection(ADDRESS, port)
                try:
                    writer.write(f"PROXY {family} {source} {own} 40000 143\r\n".encode())
                    await reader.readline()
                    while time.monotonic() < until:
                        writer.write(f"a LOGIN {name} guess{next(_GUESSES)}\r\n".encode())
                        line = await reader.readline()
                        if not line or time.monotonic() >= until:
                            break
                        told["judged" if b"AUTHENTICATIONFAILED" in line else "told to come back"] += 1
                finally:
                    writer.close()
        await asyncio.sleep(0.05)


async def _scenario(
    port: int, seconds: float, guessers: int, source: Callable[[int], str], name: Callable[[int], str]
) -> Counter[str]:
    told: Counter[str] = Counter()
    until = time.monotonic() + seconds
    await asyncio.gather(*(_guess(port, source(n), name(n), until, told) for n in range(guessers)))
    return told


def _run(seconds: float, policy: dict[str, object], *scenarios: tuple[str, int, Callable[[int], str], bool]) -> None:
    """Scenarios of one front end, at the same time."""
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Path(folder) / "guessing", core=REAL)
        service.settings |= {
            "workers": 2,
            "allow_clear_passwords": True,
            "proxy_protocol_from": ["127.0.0.0/8"],
        }
        table = "".join(f"{key} = {json.dumps(value)}\n" for key, value in policy.items())
        service.write(broken=f"[front_end.sign_in_policy]\n{table}")
        service.start(environment={"PYTHONPATH": os.pathsep.join([*sys.path[:1], str(ROOT / "src")])})
        try:
            port = service.ports["imap"]

            async def all_of_them() -> list[Counter[str]]:
                return await asyncio.gather(
                    *(
                        _scenario(port, seconds, n, source, (lambda _: "anna") if one else (lambda n: f"user{n}"))
                        for _, n, source, one in scenarios
                    )
                )

            for (title, *_), told in zip(scenarios, asyncio.run(all_of_them()), strict=True):
                print(
                    f"{title:58} {told['judged']:6} judged {told['told to come back']:6} told to come back", flush=True
                )
        finally:
            service.stop()


def main() -> None:
    """All scenarios, about four times as long as one."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    print(f"in {seconds:g} s:")
    one = ("one address, 100 connections", 100, lambda _: "198.51.100.1", False)
    net = ("one /64, 100 addresses", 100, lambda n: f"2001:db8:1:2::{n + 1:x}", False)
    many = ("1,000 addresses, 1,000 accounts", 1000, lambda n: f"203.{n >> 8}.113.{n & 255}", False)
    account = ("1,000 addresses, one account", 1000, lambda n: f"203.{n >> 8}.113.{n & 255}", True)
    _run(seconds, {}, one, net)
    _run(seconds, {}, many)
    _run(seconds, {"failures_per_account": 20}, ("the same, failures_per_account = 20", *account[1:]))
    _run(seconds, {"penalty": False}, ("one address, 100 connections, without the penalty", *one[1:]))


if __name__ == "__main__":
    main()
