"""Hubs beside each other: Gatepost and a private Postfix, each with a sink behind it, for `transport.py`."""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gatepost.lab.servers.postfix import PACKAGES, Postfix
from gatepost.lab.servers.process import Address, ServerProcess, free_ports, require_program
from machine import family

HUB_ADDRESS = "127.0.71.1"
POSTFIX_ADDRESS = "127.0.71.2"
SINK_ADDRESS = "127.0.71.9"
OTHER_SINK_ADDRESS = "127.0.71.10"
TICK = 1 / os.sysconf("SC_CLK_TCK")
WAIT_SECONDS = 60.0

CONFIGURATION = """
[front_end]
server = "HUB-01"
directory = "{folder}/directory.sqlite"
registry = "{folder}/registry.sqlite"

[front_end.transport]
spool = "{folder}/spool"
{resolvers}

[organization]
name = "contoso"
accepted_domains = ["contoso.com"]

[sites.usa]

[servers.HUB-01]
site = "usa"
roles = ["hub-transport"]
fqdn = "hub-01.contoso.com"
address = "{address}"
endpoints = {{ smtp = {{ port = {port}, tls = "clear" }} }}
transport = {{ max_queued_messages = 3_000_000, min_free_bytes = 10_000_000 }}

[receive_connectors.Load]
server = "HUB-01"
bindings = ["{address}:{port}"]
remote_ranges = ["127.0.0.0/8"]
permission_groups = ["servers"]
authentication = ["tls", "externally-secured"]
max_connections_per_source = 1000
max_message_size = 100_000_000
tarpit_seconds = 0

[send_connectors.Sink]
address_spaces = ["*"]
source_servers = ["HUB-01"]
smart_hosts = ["{sink}"]
tls = "none"
max_message_size = 100_000_000
{connector}
{more}
"""

POSTFIX_SETTINGS = """\
mynetworks = 127.0.0.0/8
default_process_limit = 200
max_use = 100000
message_size_limit = 104857600
"""
"""Beside those of `lab/servers/postfix.py`. `max_use`: so that no processes end while they are being counted, which
spares Postfix their replacement; the rest is as it comes, its connection cache among it."""


@dataclass(frozen=True)
class HubFiles:
    """Where a Gatepost hub lives, and what it is told."""

    folder: Path
    address: str
    port: int
    sink: Address
    more: str = ""
    """More tables of the configuration."""
    connector: str = ""
    """A line of the send connector to the sink."""
    resolvers: str = ""
    """A line of `[front_end.transport]`."""

    def write(self) -> Path:
        """The configuration file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "hub.toml"
        sink = f"{self.sink[0]}:{self.sink[1]}"
        ports = {"address": self.address, "port": self.port, "sink": sink}
        text = CONFIGURATION.format(
            folder=self.folder, resolvers=self.resolvers, connector=self.connector, more=self.more, **ports
        )
        path.write_text(text)
        return path


class GatepostHub(ServerProcess):
    """`gatepost serve` with a transport and nothing else."""

    def __init__(self, files: HubFiles, python: str = sys.executable) -> None:
        argv = [python, "-m", "gatepost", "serve", "-c", str(files.write())]
        super().__init__("gatepost", argv, files.folder, [(files.address, files.port)])
        self.listens: Address = (files.address, files.port)
        self.operators = files.folder / "gatepost-HUB-01.sock"

    def transport(self) -> int:
        """The process id of its transport."""
        for pid in family(self.pid):
            if b"transport_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        raise RuntimeError(f"no transport runs\n{self.log_tail()}")

    def wait_until_greeted(self, seconds: float) -> None:
        """The supervisor has the port before the transport is there. Raises OSError."""
        with socket.create_connection(self.listens, timeout=seconds) as probe:
            if not probe.recv(4).startswith(b"220"):
                raise OSError(f"no greeting\n{self.log_tail()}")

    def has_logged(self, event: str) -> bool:
        """Whether its log has a line of that event."""
        return f'"event":"{event}"' in self.output.read_text(errors="replace")


class CountingSink(ServerProcess):
    """`smtp-sink` that says how many messages it has."""

    def __init__(self, folder: Path, address: str, name: str = "sink", options: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        port = free_ports(address, 1)[0]
        account = ["-u", "nobody"] if os.geteuid() == 0 else []
        argv = [require_program("smtp-sink", PACKAGES), "-c", *account, *options, f"{address}:{port}", "1000"]
        super().__init__(name, argv, folder, [(address, port)])
        self.address: Address = (address, port)

    def messages(self) -> int:
        """So many messages."""
        with self.output.open("rb") as output:
            output.seek(max(0, output.seek(0, os.SEEK_END) - 400))
            found = re.findall(rb"mesg=(\d+)\s*\r", output.read())
        return int(found[-1]) if found else 0

    def wait_for(self, count: int, seconds: float) -> float:
        """When the sink has so many: `time.perf_counter()`. Raises TimeoutError."""
        deadline = time.perf_counter() + seconds
        while (have := self.messages()) < count:
            if time.perf_counter() > deadline:
                raise TimeoutError(f"{self.name} has {have} of {count} messages after {seconds:g} s")
            time.sleep(0.005)
        return time.perf_counter()


def start_gatepost(folder: Path, python: str, connector: str = "") -> tuple[GatepostHub, CountingSink]:
    """A hub and the sink behind it. Raises `ServerMissing`."""
    sink = CountingSink(folder / "sink", SINK_ADDRESS)
    port = free_ports(HUB_ADDRESS, 1)[0]
    files = HubFiles(folder / "hub", HUB_ADDRESS, port, sink.address, connector=connector)
    hub = GatepostHub(files, python)
    for server in (sink, hub):
        server.start()
        server.wait_ready()
    hub.wait_until_greeted(WAIT_SECONDS)
    return hub, sink


def start_postfix(folder: Path) -> tuple[Postfix, CountingSink]:
    """A Postfix and the sink behind it. Raises `ServerMissing`."""
    sink = CountingSink(folder / "postfix-sink", OTHER_SINK_ADDRESS)
    port = free_ports(POSTFIX_ADDRESS, 1)[0]
    hub = Postfix(
        folder / "postfix", POSTFIX_ADDRESS, {port: ()}, sink.address, name="bench", settings=POSTFIX_SETTINGS
    )
    for server in (sink, hub):
        server.start()
        server.wait_ready()
    return hub, sink


def processor_time(pid: int) -> dict[str, float]:
    """Seconds of processor time by program of `pid`'s family; `ended` are those that are no more."""
    found: dict[str, float] = {}
    for one in family(pid):
        try:
            text = Path(f"/proc/{one}/stat").read_text()
        except OSError:
            continue
        name, values = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        user, system, child_user, child_system = (int(value) * TICK for value in values[11:15])
        found[name] = found.get(name, 0.0) + user + system
        if one == pid:
            found["ended"] = child_user + child_system
    return found


def resident(pid: int, what: str = "VmRSS") -> int:
    """Bytes of `pid` in memory now, or with `VmHWM` at most so far."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(what)
