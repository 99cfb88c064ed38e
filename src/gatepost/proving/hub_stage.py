"""A hub on this machine for provings and tests: `gatepost serve` with a transport, before a server that takes all."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from gatepost.lab.servers.gatepost import Gatepost, write_configuration
from gatepost.lab.servers.process import POLL_SECONDS, READY_SECONDS, ServerNotStarted, ServerProcess, free_ports
from gatepost.lab.toml_text import Table
from gatepost.service.control import TransportStatus
from gatepost.service.operators import ask

HUB = "127.0.85.1"
CLIENTS = "127.0.0.0/8"
SINK = "127.0.85.9"
SMALL_DISK = 320
"""Size in MiB of the file system that is filled: ten times the spool's reserve."""
RETRY_AT_ONCE: Table = dict.fromkeys(
    (
        "queue_glitch_retry_interval",
        "transient_failure_retry_interval",
        "outbound_connection_failure_retry_interval",
        "message_retry_interval",
    ),
    "00:00:01",
)
"""A minute's waiting would be most of a proving."""


def hub_tables(
    folder: Path, spool: Path, port: int, sink_port: int, settings: Table, name: str = "HUB-01"
) -> tuple[Table, Table]:
    """`[front_end]` and the organization's tables: clients of this machine may send everywhere, by way of the sink."""
    front_end: Table = {
        "server": name,
        "directory": str(folder / "directory.sqlite"),
        "registry": str(folder / "registry.sqlite"),
        "allow_clear_passwords": True,
        "transport": {"spool": str(spool)},
    }
    organization: Table = {
        "organization": {"name": "contoso", "accepted_domains": ["contoso.com"]},
        "sites": {"usa": {}},
        "servers": {
            name: {
                "site": "usa",
                "roles": ["hub-transport"],
                "fqdn": f"{name.lower()}.contoso.com",
                "address": HUB,
                "endpoints": {"smtp": {"port": port, "tls": "clear"}},
                "transport": {**RETRY_AT_ONCE, **settings},
            }
        },
        "receive_connectors": {
            "Trusted": {
                "server": name,
                "bindings": [f"{HUB}:{port}"],
                "remote_ranges": [CLIENTS],
                "permission_groups": ["servers"],
                "authentication": ["tls", "externally-secured"],
                "tarpit_seconds": 0,
            }
        },
        "send_connectors": {
            "Internet": {
                "address_spaces": ["*"],
                "source_servers": [name],
                "smart_hosts": [f"{SINK}:{sink_port}"],
                "tls": "none",
            }
        },
    }
    return front_end, organization


class HubService(Gatepost):
    """The service of one hub, whose processes can be killed."""

    def __init__(self, folder: Path, front_end: Table, organization: Table) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.front_end = front_end
        self.organization = organization
        name = front_end["server"]
        own = (c for c in organization["receive_connectors"].values() if c["server"] == name)
        address, _, port = next(own)["bindings"][0].rpartition(":")
        file = write_configuration(folder / "gatepost.toml", front_end, organization)
        super().__init__(name, folder, file, {"smtp": (address, int(port))})

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until the transport greets. One that was just killed may still have taken a connection, so more than one
        is tried. Raises `ServerNotStarted`; it is not stopped."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.running:
            left = max(deadline - time.monotonic(), POLL_SECONDS)
            with suppress(OSError), socket.create_connection(self.addresses["smtp"], left) as probe:
                probe.settimeout(left)
                if probe.recv(1):
                    return
            time.sleep(POLL_SECONDS)
        raise ServerNotStarted(f"{self.name} does not greet\n{self.log_tail()}")

    def write(self) -> None:
        """Write the tables as they are now."""
        write_configuration(self.configuration, self.front_end, self.organization)

    @property
    def transport(self) -> int | None:
        """The process id of its transport, if one runs."""
        with suppress(FileNotFoundError, ProcessLookupError):
            return next((child for child, line in self._children() if b"transport_process" in line), None)
        return None

    def kill_transport(self) -> bool:
        """kill -9 of the transport; whether there was one."""
        pid = self.transport
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return pid is not None

    def kill_all(self) -> None:
        """kill -9 of every process of the service, at one moment."""
        # What the kernel lists may lack some while others end, so it is asked more than once.
        children = {child for _ in range(3) for child, _ in self._children()}
        for pid in (self.pid, *children):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.wait(READY_SECONDS)
        deadline = time.monotonic() + READY_SECONDS
        while any(map(_has_files, children)) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def kill_supervisor(self) -> None:
        """kill -9 of the supervisor alone: its children see that, finish what is under way, and end."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.wait(READY_SECONDS)

    def status(self, seconds: float = 10.0) -> TransportStatus | None:
        """Its transport as the supervisor sees it. None: it runs none, or nobody answers."""
        path = Path(self.front_end["registry"]).parent / f"gatepost-{self.name}.sock"
        with suppress(OSError, TimeoutError):
            return ask(path, seconds).transport
        return None

    def counter(self, name: str) -> int | None:
        """One of its transport's counters, None when it does not answer."""
        status = self.status()
        return None if status is None or status.counters is None else status.counters[name]


def new_hub(
    folder: Path, sink_port: int, spool: Path | None = None, settings: Mapping[str, object] | None = None
) -> HubService:
    """A hub with a free port; not started."""
    [port] = free_ports(HUB, 1)
    return HubService(folder, *hub_tables(folder, spool or folder / "spool", port, sink_port, dict(settings or {})))


def new_sink(folder: Path, port: int, *, calm: bool = False) -> ServerProcess:
    """The sink on that port; not started. What it has taken is in `folder/taken`. A `calm` one gives no trouble."""
    folder.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-P", "-m", "gatepost.proving.sink", SINK, str(port), str(folder / "taken")]
    argv += ["calm"] if calm else []
    return ServerProcess("sink", argv, folder, [(SINK, port)])


@contextmanager
def small_disk(folder: Path, mebibytes: int = SMALL_DISK) -> Iterator[str]:
    """A file system of that size at `folder`: what kind, or nothing where none can be mounted (root is needed)."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = _mount(folder, mebibytes) if os.geteuid() == 0 else ""
    try:
        yield kind
    finally:
        if kind:
            _run("umount", "--lazy", str(folder))


def _mount(folder: Path, mebibytes: int) -> str:
    """A real one in a file where the kernel has loop devices, else one in memory."""
    image = folder.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(mebibytes << 20)
    if _run("mkfs.ext4", "-q", "-m", "0", str(image)) and _run("mount", "-o", "loop", str(image), str(folder)):
        return "ext4"
    image.unlink()
    return "tmpfs" if _run("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)) else ""


def _has_files(pid: int) -> bool:
    """Whether the process has its sockets still; not whether it is there: it is not ours to reap."""
    with suppress(OSError):
        return any(Path(f"/proc/{pid}/fd").iterdir())
    return False


def _run(*command: str) -> bool:
    try:
        return not subprocess.run(command, capture_output=True, check=False).returncode  # noqa: S603 - ours
    except FileNotFoundError:
        return False
