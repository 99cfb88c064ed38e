"""Processes, cores, ports and memory of the machine that the benchmark runs on."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import resource
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PROXY_CORE = 0
LOAD_CORE = 1
START_SECONDS = 20.0
STOP_SECONDS = 10.0


class CannotStart(Exception):
    """A process did not come up; the text holds the end of its log."""


def allow_open_files() -> None:
    """Raise this process's (and so its children's) limit of open files as far as it goes: a session takes two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def free_port(address: str) -> int:
    """A port that is free at `address` right now and outside the range that outgoing connections use."""
    for port in range(20100 + os.getpid() % 5000, 32000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind((address, port))
                if port not in _given:
                    _given.add(port)
                    return port
    raise CannotStart(f"no free port at {address}")


_given: set[int] = set()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed P-256 certificate for every front end: (certificate, key) files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "mail.example.com")])
    names: list[x509.GeneralName] = [x509.DNSName("mail.example.com"), x509.DNSName("localhost")]
    names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    certificate_pem = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "front.crt").write_bytes(certificate_pem)
    (folder / "front.key").write_bytes(key_pem)
    (folder / "front.pem").write_bytes(certificate_pem + key_pem)
    return folder / "front.crt", folder / "front.key"


@dataclass
class Machine:
    """Starts processes on one core each and ends exactly those it started."""

    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, name: str, command: list[str], core: int | str) -> subprocess.Popen[bytes]:
        """Start `command` pinned to `core` (or to several: `0-1`), its output in `<folder>/<name>.log`."""
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                ["taskset", "-c", str(core), *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.started.append(process)
        return process

    def wait_for(self, process: subprocess.Popen[bytes], name: str, address: str, port: int) -> None:
        """Wait until `address:port` accepts. Raises `CannotStart`."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            with suppress(OSError), socket.create_connection((address, port), 1):
                return
            time.sleep(0.02)
        log = (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]
        raise CannotStart(f"{name} does not answer at {address}:{port}\n{log}")

    def stop_all(self) -> None:
        """End what was started, last first."""
        for process in reversed(self.started):
            process.terminate()
        for process in reversed(self.started):
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.started.clear()


def family(pid: int) -> list[int]:
    """`pid` and all its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for one in found:
        found.extend(parents.get(one, []))
    return found


def memory_of(pid: int) -> int:
    """Proportional set size, in bytes, of `pid` and all its descendants."""
    total = 0
    for one in family(pid):
        with suppress(OSError):
            for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def busy_share(seconds: float = 0.5) -> float:
    """How busy the whole machine is (0 to 1), stolen time included: others would spoil a measurement."""

    def ticks() -> tuple[int, int]:
        values = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(values), values[3] + values[4]

    total, idle = ticks()
    time.sleep(seconds)
    total_after, idle_after = ticks()
    return 1 - (idle_after - idle) / max(1, total_after - total)


def missing_programs() -> list[str]:
    """Programs of the comparison that this machine lacks."""
    return [name for name in ("nginx", "haproxy", "dovecot", "taskset", "gcc", "make") if shutil.which(name) is None]
