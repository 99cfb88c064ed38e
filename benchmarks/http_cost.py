"""What one HTTP request costs a worker, without the kernel: both transports are objects in memory.

    python benchmarks/http_cost.py [basic | cookie | affinity] [--one-user] [--rounds N]
    PYTHONPATH=elsewhere/src python benchmarks/http_cost.py          another version of the product

Prints microseconds of processor time for a request, the least and the middle of the rounds. On a machine that does
other work these drift; instructions do not. Two runs with `--requests 300` and `--requests 2300` under
`PYTHONHASHSEED=0 valgrind --tool=cachegrind --cache-sim=no` differ by the instructions of 2,000 requests.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import sys
import tempfile
import time
from base64 import b64encode
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import structlog
import uvloop

from cookies import cookie_fields
from gatepost.access.admission import Admission
from gatepost.access.http.door import HttpDoor
from gatepost.access.router import Router
from gatepost.activemanager.port import RegistryView
from gatepost.configuration.load import load
from gatepost.directory.port import User
from gatepost.directory.sign_in import SignInService
from gatepost.organization.model import Protocol
from gatepost.routing.outcome import ActiveCopy, Mailbox
from machine import Machine, make_certificate
from peers import PASSWORD, Stage, gatepost_configuration, names_of, password_hashes

CONNECTIONS = 32
USERS = 128
ROUND = 2000
"""Requests of one round, and of the warm-up."""
ANSWER = b"HTTP/1.1 200 OK\r\nServer: stub\r\nContent-Type: text/plain\r\nContent-Length: 64\r\n\r\n" + b"x" * 64


class Transport:
    """Keeps what was written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.write = self.written.append

    def get_extra_info(self, name: str, default: object = None) -> object:
        """A client on loopback."""
        return {"peername": ("127.0.0.9", 4000), "sockname": ("127.0.0.1", 443)}.get(name, default)

    def __getattr__(self, _name: str) -> Any:  # noqa: ANN401 - limits, pauses: nothing happens
        return lambda *_words, **_named: False


class Loop:
    """uvloop's clock and timers; connections come from memory."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.time = loop.time
        self.servers: list[tuple[Any, Transport]] = []
        self.connected = asyncio.Event()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the loop has
        return getattr(self._loop, name)

    async def create_connection(self, factory: Any, *_where: object, **_how: object) -> tuple[Any, Any]:  # noqa: ANN401
        """A server that is connected at once."""
        transport, protocol = Transport(), factory()
        self.servers.append((protocol, transport))
        protocol.connection_made(transport)
        self.connected.set()  # whoever waits for it runs after whoever wanted the connection
        return transport, protocol


class Bench:
    """A front door in memory, its users signed in, one server connection in its pool."""

    def __init__(self, folder: Path, who: str, *, one_user: bool) -> None:
        certificate, key = make_certificate(folder)
        stage = Stage(Machine(folder), 143, 80, 0, USERS, 0, certificate, key, sys.executable)
        text = gatepost_configuration(stage, 144, 993, 81, 443)
        configuration = load(str(stage.write("gatepost.toml", text))).require()
        names = names_of("kept" if who == "affinity" else "user", USERS)
        quick, _ = password_hashes()
        database = "DB02" if who == "affinity" else "DB01"
        self.users = {name: User(name, Mailbox(database), quick) for name in names}

        async def ask(name: str) -> User | None:
            return self.users.get(name)

        directory: Any = SimpleNamespace(find=self.users.get, ask=ask, on_change=lambda _callback: None)
        limits = configuration.front_end.limits
        self.sign_in = SignInService(directory, "example.com", waiting_limit=USERS, per_address=USERS)
        active = {"DB01": ActiveCopy("DB01", "MBX-01", 1), "DB02": ActiveCopy("DB02", "MBX-02", 1)}
        self.loop = Loop(asyncio.get_running_loop())
        router = Router(configuration, RegistryView(1, active))
        log = SimpleNamespace(info=print, warning=print, error=print)
        admission = Admission(limits.unauthenticated_per_address, limits.sessions)
        make: Any = HttpDoor  # the stand-ins are alike only
        self.door = make(configuration, self.loop, self.sign_in, router, lambda *_, **__: None, log, admission)
        self.requests = requests(who, key, names, quick)
        self.legs = []
        for _ in range(CONNECTIONS):
            leg, transport = self.door.protocol(tls=True), Transport()
            leg.connection_made(transport)
            self.legs.append((leg, transport))
        self.turns = CONNECTIONS if one_user else USERS

    async def begin(self) -> None:
        """Sign everybody in, have the first request open the connection to the server."""
        for name in self.users:
            await self.sign_in.password(name, PASSWORD, Protocol.HTTPS, "127.0.0.9")
        leg, transport = self.legs[0]
        leg.data_received(self.requests[0])
        await self.loop.connected.wait()
        self.loop.servers[0][0].data_received(ANSWER)
        if not transport.written or not transport.written[-1].startswith(b"HTTP/1.1 200 OK"):
            raise SystemExit(f"answered wrongly: {transport.written}")
        transport.written.clear()
        self.loop.servers[0][1].written.clear()
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)

    def ask(self, count: int) -> None:
        """So many requests, one after the other, over all connections in turn."""
        server, to_server = self.loop.servers[0]
        for i in range(count):
            leg, transport = self.legs[i % CONNECTIONS]
            leg.data_received(self.requests[i % self.turns])
            server.data_received(ANSWER)
            if len(transport.written) != 1 or len(to_server.written) != 1:
                raise SystemExit(f"answered wrongly: {transport.written}")
            transport.written.clear()
            to_server.written.clear()


def requests(who: str, key: Path, names: list[str], password_hash: str) -> list[bytes]:
    """A request of each user."""
    if who == "basic":
        lines = [f"Authorization: Basic {b64encode(f'{name}:{PASSWORD}'.encode()).decode()}" for name in names]
    else:
        kept = {"service": "owa", "server": "WEB-02"} if who == "affinity" else {}
        lines = [f"Cookie: {c}" for c in cookie_fields(key, names, PASSWORD, password_hash, **kept).splitlines()]
    head = "GET /owa/ping HTTP/1.1\r\nHost: mail.example.com\r\n"
    rest = "\r\nUser-Agent: loadgen\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n\r\n"
    return [(head + line + rest).encode() for line in lines]


async def run(wish: argparse.Namespace) -> None:
    """Measure, or only do the requests that were asked for."""
    with tempfile.TemporaryDirectory(prefix="gatepost-cost-") as folder:
        bench = Bench(Path(folder), wish.who, one_user=wish.one_user)
    await bench.begin()
    if wish.requests:
        bench.ask(wish.requests)
        return
    bench.ask(ROUND)
    costs = []
    for _ in range(wish.rounds):
        before = time.process_time()
        bench.ask(ROUND)
        costs.append((time.process_time() - before) / ROUND * 1e6)
    print(f"{wish.who}: least {min(costs):.2f} us, middle {median(costs):.2f} us a request")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What one HTTP request costs, without the kernel.")
    parser.add_argument("who", nargs="?", choices=("basic", "cookie", "affinity"), default="basic")
    parser.add_argument("--one-user", action="store_true", help="each connection keeps its user")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--requests", type=int, default=0, help="do so many and measure nothing: for counting tools")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    uvloop.run(run(parser.parse_args()))
