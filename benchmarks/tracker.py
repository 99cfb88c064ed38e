"""What it costs to look at IMAP sessions that may be carried over: the relay with and without its tracker.

    .venv/bin/python benchmarks/tracker.py [--rounds 7]

One relay on uvloop between two sockets on loopback; client and server are threads of another process. Each kind of
traffic runs with and without the tracker in turn, and of each the best round counts: a machine that is busy with other
things makes rounds slower, never faster. Time is the relay's own processor time, so what the peers take is no excuse.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event

import uvloop

from gatepost.relay.relay import Relay
from gatepost.wire.imap_tracker import Boundary, ImapTracker

Talk = Callable[[socket.socket, socket.socket], None]
"""Client's socket, server's socket: say everything there is to say."""

MEGABYTES = 128
NOOPS = 10_000
READ = 1 << 18
TIMEOUT_SECONDS = 60.0
"""For one round."""


def _message(number: int, size: int) -> bytes:
    return b"* %d FETCH (UID %d FLAGS (\\Seen) BODY[] {%d}\r\n%s)\r\n" % (number, number, size, b"x" * size)


def download(size: int) -> Talk:
    """FETCH of many messages of `size` bytes."""
    block = b"".join(_message(n, size) for n in range(1, max(2, (4 << 20) // size)))
    return _bulk(block)


def flags() -> Talk:
    """FETCH of the flags of a large mailbox: lines only."""
    return _bulk(b"".join(b"* %d FETCH (UID %d FLAGS (\\Seen))\r\n" % (n, n) for n in range(1, 100_000)))


def _bulk(block: bytes) -> Talk:
    count = MEGABYTES * 1_000_000 // len(block)

    def serve(server: socket.socket) -> None:
        server.recv(1000)
        for _ in range(count):
            server.sendall(block)
        server.sendall(b"a1 OK done\r\n")

    def talk(client: socket.socket, server: socket.socket) -> None:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        client.sendall(b"a1 UID FETCH 1:* (FLAGS BODY.PEEK[])\r\n")
        left = len(block) * count + len(b"a1 OK done\r\n")
        while left:
            got = len(client.recv(READ))
            assert got, "the relay has ended"
            left -= got
        thread.join()

    return talk


def noop(client: socket.socket, server: socket.socket) -> None:
    """NOOP after NOOP, each after the answer to the one before."""
    for number in range(NOOPS):
        client.sendall(b"a%d NOOP\r\n" % number)
        command = server.recv(1000)
        server.sendall(command[: command.index(b" ")] + b" OK NOOP completed (0.001 + 0.000 secs).\r\n")
        client.recv(1000)


def uid_fetch(client: socket.socket, server: socket.socket) -> None:
    """The flags of one message after another."""
    for number in range(NOOPS):
        client.sendall(b"a%d UID FETCH 17 (FLAGS)\r\n" % number)
        tag = server.recv(1000).partition(b" ")[0]
        server.sendall(b"* 3 FETCH (UID 17 FLAGS (\\Seen))\r\n" + tag + b" OK Fetch completed.\r\n")
        client.recv(1000)


def _peers(client_port: int, server_port: int, talk: Talk, go: Event) -> None:
    address = "127.0.0.1"
    with (
        socket.create_connection((address, client_port)) as client,
        socket.create_connection((address, server_port)) as server,
    ):
        for end in (client, server):
            end.settimeout(TIMEOUT_SECONDS)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        go.wait(TIMEOUT_SECONDS)
        talk(client, server)


async def _once(talk: Talk, tracker: ImapTracker | None) -> tuple[float, float]:
    """Processor seconds and seconds of one round."""
    loop = asyncio.get_running_loop()
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [listener.getsockname()[1] for listener in listeners]
    context = multiprocessing.get_context("fork")
    go = context.Event()
    peers = context.Process(target=_peers, args=(*ports, talk, go))
    peers.start()
    transports = []
    for listener in listeners:
        listener.setblocking(False)
        accepted, _ = await loop.sock_accept(listener)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, accepted)
        transports.append(transport)
        listener.close()
    ended = loop.create_future()
    relay = Relay(transports[0], transports[1], lambda _: ended.set_result(None), tracker)
    cpu, wall = time.process_time(), time.monotonic()
    relay.start()
    go.set()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await ended
    taken = time.process_time() - cpu, time.monotonic() - wall
    peers.join()
    assert tracker is None or tracker.boundary is Boundary.BETWEEN
    return taken


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    kinds: list[tuple[str, Talk, float, str]] = [
        *((f"FETCH, messages of {size // 1000} kB", download(size), MEGABYTES, "MB") for size in (1_000_000, 75_000)),
        *((f"FETCH, messages of {size // 1000} kB", download(size), MEGABYTES, "MB") for size in (20_000, 5_000)),
        ("FETCH, flags only", flags(), MEGABYTES, "MB"),
        ("NOOP", noop, NOOPS, "commands"),
        ("UID FETCH, flags of one", uid_fetch, NOOPS, "commands"),
    ]
    print(f"{'traffic':28} {'without':>14} {'with':>14} {'costs':>8}   of the relay's processor time")
    for name, talk, amount, unit in kinds:
        plain, looked = [], []
        for _ in range(rounds):
            plain.append(uvloop.run(_once(talk, None)))
            looked.append(uvloop.run(_once(talk, ImapTracker())))
        (cpu, wall), (cpu_looked, wall_looked) = (
            tuple(map(min, zip(*taken, strict=True))) for taken in (plain, looked)
        )
        rates = f"{amount / cpu:>9.0f} {unit[:4]:4} {amount / cpu_looked:>9.0f} {unit[:4]:4}"
        seen = f"seen by the client: {amount / wall:.0f} and {amount / wall_looked:.0f} a second"
        print(f"{name:28} {rates} {(cpu_looked / cpu - 1) * 100:>7.1f}%   {seen}")


if __name__ == "__main__":
    main()
