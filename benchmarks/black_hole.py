"""One of two equal mail exchangers swallows connections: what becomes of the mail, at Gatepost and at Postfix.

    python benchmarks/black_hole.py [--quick] [--count N] [--seconds S] [--peers gatepost postfix] [--python P]
        [--json FILE]

It runs in a network and a mount namespace of its own (root). The healthy exchangers' addresses are
local; packets to the other ones vanish in a cable. Each peer has each domain for itself: `one` has a healthy exchanger alone,
`two` a healthy and a dead one of equal preference; with TLS and without, each with exchangers of its own. Postfix has
`smtp_tls_security_level = may` and is otherwise as it comes: it uses connections again, those with TLS not.

`bulk`: so many messages at once over 20 connections; the rate is that of what has arrived within `--seconds`, and of
the rest nothing is known. `trickle`: two messages a second. Latencies are from the client's `DATA` to the arrival.
Goals: with a dead exchanger 0.9 of the rate with the healthy one alone, and nobody waits the 30 s of a connect timeout.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from gatepost.lab.servers.name_server import NameServer
from gatepost.lab.servers.postfix import Postfix
from gatepost.lab.servers.process import ServerMissing, require_program
from hubs import HUB_ADDRESS, POSTFIX_ADDRESS, GatepostHub, HubFiles
from machine import make_certificate

NET = "10.9.9"
NAMES = f"{NET}.3"
SESSIONS = 20
PER_SECOND = 2.0
GOAL = 0.9
KINDS = ("plain", "tls")
PEERS = ("gatepost", "postfix")
BODY = b"The figures of the last quarter are in the annex.\r\n" * 80
SETTINGS = """\
mynetworks = 127.0.0.0/8
default_process_limit = 200
smtp_bind_address =
relay_domains =
default_transport = smtp
smtp_dns_support_level = enabled
smtp_host_lookup = dns
smtp_tls_security_level = may
"""
CONNECTOR = """
[send_connectors.Internet]
address_spaces = ["SMTP:*.test"]
source_servers = ["HUB-01"]
allow_private = true
"""


class Sink(asyncio.Protocol):
    """A mail exchanger that notes when the message of each `Subject` arrived."""

    def __init__(self, arrived: dict[bytes, float], context: ssl.SSLContext | None) -> None:
        self._arrived, self._context = arrived, context
        self._buffer, self._data = b"", False
        self._transport: asyncio.Transport
        self._secured = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        self._transport = transport  # type: ignore[assignment]
        if not self._secured:
            self._transport.write(b"220 sink ESMTP\r\n")

    def data_received(self, data: bytes) -> None:
        """Commands and content."""
        self._buffer += data
        while True:
            end = self._buffer.find(b"\r\n.\r\n" if self._data else b"\r\n")
            if end < 0:
                return
            part, self._buffer = self._buffer[:end], self._buffer[end + (5 if self._data else 2) :]
            if self._data:
                at = part.find(b"Subject: ") + 9
                self._arrived[part[at : part.find(b"\r\n", at)]] = time.time()
                self._data = False
                self._transport.write(b"250 2.0.0 Ok\r\n")
            else:
                self._answer(part[:4].upper())

    def _answer(self, verb: bytes) -> None:
        if verb == b"EHLO":
            offer = b"250-STARTTLS\r\n" if self._context is not None and not self._secured else b""
            self._transport.write(b"250-sink\r\n250-PIPELINING\r\n" + offer + b"250 8BITMIME\r\n")
        elif verb == b"DATA":
            self._data = True
            self._transport.write(b"354 Go on\r\n")
        elif verb == b"QUIT":
            self._transport.write(b"221 2.0.0 Bye\r\n")
            self._transport.close()
        elif verb == b"STAR" and self._context is not None:
            self._transport.write(b"220 2.0.0 Go on\r\n")
            self._secured, self._buffer = True, b""
            self._handshake = asyncio.get_running_loop().create_task(self._start_tls(self._context))
        else:
            self._transport.write(b"250 2.0.0 Ok\r\n")

    async def _start_tls(self, context: ssl.SSLContext) -> None:
        try:
            started = await asyncio.get_running_loop().start_tls(self._transport, self, context, server_side=True)
            assert started is not None
            self._transport = started
        except (OSError, AssertionError):
            self._transport.abort()


@dataclass
class Passed:
    """What came of one load. Latencies in seconds; `rate` a second, over the time until the last that arrived."""

    sent: int
    arrived: int
    rate: float
    p50: float
    p99: float
    longest: float


class Load:
    """Sends to a hub; each subject is the name of the load, a number and the time."""

    def __init__(self, hub: tuple[str, int], recipient: str, name: str) -> None:
        self._hub, self._recipient, self._name = hub, recipient.encode(), name.encode()
        self.sent: dict[bytes, float] = {}

    async def bulk(self, count: int) -> None:
        """All at once."""
        numbers = iter(range(count))
        await asyncio.gather(*(self._session(numbers, 0.0) for _ in range(SESSIONS)))

    async def trickle(self, seconds: float) -> None:
        """One after another."""
        await self._session(iter(range(int(seconds * PER_SECOND))), 1 / PER_SECOND)

    async def _session(self, numbers: Iterator[int], pause: float) -> None:
        reader, writer = await asyncio.open_connection(*self._hub)

        async def say(words: bytes) -> None:
            writer.write(words)
            while (await reader.readuntil(b"\r\n"))[3:4] == b"-":
                pass

        await say(b"")
        await say(b"EHLO client.example\r\n")
        for number in numbers:
            await say(b"MAIL FROM:<alice@contoso.com>\r\n")
            await say(b"RCPT TO:<" + self._recipient + b">\r\n")
            await say(b"DATA\r\n")
            subject = b"%b-%d" % (self._name, number)
            self.sent[subject] = time.time()
            await say(b"From: alice@contoso.com\r\nSubject: " + subject + b"\r\n\r\n" + BODY + b".\r\n")
            await asyncio.sleep(pause)
        await say(b"QUIT\r\n")
        writer.close()

    async def passed(self, arrived: dict[bytes, float], seconds: float) -> Passed:
        """What has arrived within so many seconds of the first."""
        begun = min(self.sent.values())
        while not self.sent.keys() <= arrived.keys() and time.time() - begun < seconds:
            await asyncio.sleep(0.05)
        times = [arrived[subject] for subject in self.sent if subject in arrived]
        # What has not arrived has waited until now at least.
        waited = sorted(arrived.get(subject, time.time()) - at for subject, at in self.sent.items())
        rate = len(times) / (max(times) - begun) if times else 0.0
        p50, p99 = waited[len(waited) // 2], waited[min(len(waited) - 1, int(len(waited) * 0.99))]
        return Passed(len(self.sent), len(times), rate, p50, p99, waited[-1])


class Stage:
    """The exchangers, the name server and the hubs within the namespace."""

    def __init__(self, folder: Path, wish: argparse.Namespace) -> None:
        self._folder, self._wish = folder, wish
        self.arrived: dict[bytes, float] = {}
        self.names = NameServer(NAMES, 53)
        self.hubs: dict[str, GatepostHub | Postfix] = {}
        self._used = 9

    def address(self) -> str:
        """One that nobody has."""
        self._used += 1
        return f"{NET}.{self._used}"

    async def exchangers(self) -> None:
        """A healthy one for each kind, and for each domain a dead one of its own."""
        certificate, key = make_certificate(self._folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        loop = asyncio.get_running_loop()
        for kind in KINDS:
            healthy = self.address()
            _ip("addr", "add", f"{healthy}/32", "dev", "lo")
            tls = context if kind == "tls" else None
            await loop.create_server(lambda tls=tls: Sink(self.arrived, tls), healthy, 25, backlog=1000)  # type: ignore[misc]
            self.names.add(f"good-{kind}.test", "A", healthy)
            for peer in self._wish.peers:
                for use in ("bulk", "trickle"):
                    domain = f"{use}-{kind}-{peer}.test"
                    self.names.add(f"one-{domain}", "MX", f"10 good-{kind}.test.")
                    self.names.add(f"two-{domain}", "MX", f"10 good-{kind}.test.", f"10 dead-{domain}.")
                    self.names.add(f"dead-{domain}", "A", self.address())

    def start(self) -> None:
        """The hubs."""
        if "gatepost" in self._wish.peers:
            files = HubFiles(
                self._folder / "gatepost", HUB_ADDRESS, 2525, (f"{NET}.200", 25),
                more=CONNECTOR, resolvers=f'resolvers = ["{NAMES}:53"]',
            )  # fmt: skip
            hub = GatepostHub(files, self._wish.python)
            self.hubs["gatepost"] = hub
            hub.start()
            hub.wait_ready()
            hub.wait_until_greeted(30.0)
        if "postfix" in self._wish.peers:
            postfix = Postfix(
                self._folder / "postfix", POSTFIX_ADDRESS, {2525: ()}, (f"{NET}.200", 25), name="bench",
                settings=SETTINGS,
            )  # fmt: skip
            self.hubs["postfix"] = postfix
            postfix.start()
            postfix.wait_ready()

    def load(self, peer: str, use: str, kind: str, domain: str) -> Load:
        """A load for a domain."""
        return Load(self.hubs[peer].ready[0], f"bob@{domain}-{use}-{kind}-{peer}.test", f"{peer}-{use}-{kind}-{domain}")


def _ip(*words: str) -> None:
    subprocess.run([require_program("ip", ("iproute2",)), *words], check=True, timeout=10)


def prepare(folder: Path) -> None:
    """The network, and a resolv.conf that is nobody else's."""
    _ip("link", "set", "lo", "up")
    _ip("link", "add", "hole0", "type", "veth", "peer", "name", "hole1")
    _ip("addr", "add", f"{NET}.1/24", "dev", "hole0")
    for device in ("hole0", "hole1"):  # without ARP nobody learns that there is nobody
        _ip("link", "set", device, "arp", "off", "up")
    _ip("addr", "add", f"{NAMES}/32", "dev", "lo")
    (folder / "resolv.conf").write_text(f"nameserver {NAMES}\n")
    subprocess.run(["mount", "--bind", folder / "resolv.conf", "/etc/resolv.conf"], check=True, timeout=10)


async def measure(folder: Path, wish: argparse.Namespace) -> dict[str, Passed]:
    """All loads: with one exchanger in turn, with a dead one all peers at once, since they mostly wait."""
    stage = Stage(folder, wish)
    found: dict[str, Passed] = {}
    try:
        await stage.exchangers()
        stage.names.start()
        stage.start()

        async def bulk(peer: str, kind: str, domain: str) -> None:
            load = stage.load(peer, "bulk", kind, domain)
            await load.bulk(wish.count)
            found[f"{peer} bulk {kind} {domain}"] = await load.passed(stage.arrived, wish.seconds)

        async def trickle(peer: str, kind: str) -> None:
            load = stage.load(peer, "trickle", kind, "two")
            await load.trickle(wish.seconds)
            found[f"{peer} trickle {kind} two"] = await load.passed(stage.arrived, wish.seconds + 5)

        for peer in stage.hubs:
            for kind in KINDS:
                await bulk(peer, kind, "one")
        if "gatepost" in stage.hubs:
            for kind in KINDS:
                await bulk("gatepost", kind, "two")
        if "postfix" in stage.hubs:
            await asyncio.gather(*(bulk("postfix", kind, "two") for kind in KINDS))
        await asyncio.gather(*(trickle(peer, kind) for kind in KINDS for peer in stage.hubs))
    finally:
        for hub in stage.hubs.values():
            hub.stop()
        stage.names.stop()
    return found


def table(found: dict[str, Passed]) -> str:
    """For people; the last column is the ratio of `two` to `one`."""
    lines = [f"{'black hole':28} {'arrived':>13} {'per s':>8} {'p50 s':>7} {'p99 s':>7} {'longest':>8} {'of one':>7}"]
    for name, one in sorted(found.items()):
        whole = found.get(name.replace(" two", " one")) if name.endswith(" two") else None
        ratio = f"{one.rate / whole.rate:7.2f}" if whole is not None and whole.rate and "bulk" in name else ""
        figures = f"{one.rate:8,.1f} {one.p50:7.2f} {one.p99:7.2f} {one.longest:8.2f}"
        lines.append(f"{name:28} {one.arrived:6,}/{one.sent:6,} {figures} {ratio}")
    return "\n".join(lines)


def read_wish() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="One of two mail exchangers swallows connections.")
    parser.add_argument("--quick", action="store_true", help="short and rough: shows that everything runs")
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=32.0)
    parser.add_argument("--peers", nargs="+", default=list(PEERS))
    parser.add_argument("--python", default=sys.executable, help="interpreter for Gatepost; default: this one")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    wish = parser.parse_args()
    if wish.quick:
        wish.count, wish.seconds = 60, 4.0
    return wish


def main() -> int:
    """Run in new namespaces, print. Exit status 1: a healthy exchanger alone did not get everything."""
    wish = read_wish()
    if not wish.inside:
        if os.geteuid() != 0:
            print("needs root, for a network of its own", file=sys.stderr)
            return 1
        unshare = require_program("unshare", ("util-linux",))
        return subprocess.run(
            [unshare, "-n", "-m", "--propagation", "private", sys.executable, *sys.argv, "--inside"], check=False
        ).returncode
    folder = Path(tempfile.mkdtemp(prefix="gatepost-bench-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        prepare(folder)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(measure(folder, wish))
    except ServerMissing as missing:
        print(missing, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(found))
    if wish.json:
        wish.json.write_text(json.dumps({name: asdict(one) for name, one in found.items()}, indent=1) + "\n")
    return int(any(one.arrived < one.sent for name, one in found.items() if name.endswith(" one")))


if __name__ == "__main__":
    sys.exit(main())
