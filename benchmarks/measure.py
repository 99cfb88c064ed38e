"""One measurement: the load generator against one peer, with the processor time of everybody who took part."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from machine import LOAD_CORE, memory_of
from peers import COLD_PASSWORD, DOMAIN, PASSWORD, Peer, Stage

READY_SECONDS = 120.0


class Spoiled(Exception):
    """A measurement with a wrong or missing answer: it says nothing about speed."""


@dataclass(frozen=True)
class Scenario:
    """A kind of work. `goals` are the least ratios of Gatepost's figure to a peer's.

    Where a row is Gatepost's too, `own_goals` has the least ratio of it to Gatepost's first row; 0: there is no goal.
    """

    name: str
    mode: str
    unit: str
    peers: tuple[str, ...]
    goals: dict[str, float]
    own_goals: dict[str, float] = field(default_factory=dict)
    tls: bool = False
    connections: int = 64
    message: int = 1
    size: int = 0
    """Bytes of an operation, where the figure is in MB/s."""


@dataclass(frozen=True)
class Measured:
    """What came of it. Shares are of one core; `cost` is the peer's processor time for one operation."""

    figure: float
    p50_ms: float
    p99_ms: float
    proxy_share: float
    helper_share: float
    load_share: float
    cost_us: float


SCENARIOS = (
    Scenario(
        "IMAP logins, clear", "login", "/s", ("gatepost", "nginx", "dovecot", "direct"), {"nginx": 1.5, "dovecot": 2}
    ),
    Scenario(
        "IMAP logins, TLS", "login", "/s", ("gatepost", "nginx", "dovecot"), {"nginx": 1.5, "dovecot": 2}, tls=True
    ),
    Scenario(
        "NOOP relayed, clear",
        "command",
        "/s",
        ("gatepost", "nginx", "haproxy", "dovecot", "direct"),
        {"nginx": 1.0},
        connections=200,
    ),
    Scenario(
        "NOOP relayed, TLS",
        "command",
        "/s",
        ("gatepost", "nginx", "haproxy", "dovecot"),
        {"nginx": 1.0},
        tls=True,
        connections=200,
    ),
    Scenario(
        "20 kB fetches, clear",
        "fetch",
        "MB/s",
        ("gatepost", "nginx", "haproxy", "dovecot", "direct"),
        {"nginx": 1.5, "direct": 0.9},
        connections=32,
        size=20480,
    ),
    Scenario(
        "20 kB fetches, TLS",
        "fetch",
        "MB/s",
        ("gatepost", "nginx", "haproxy", "dovecot"),
        {"nginx": 1.5},
        tls=True,
        connections=32,
        size=20480,
    ),
    Scenario(
        "1 MB fetches, clear",
        "fetch",
        "MB/s",
        ("gatepost", "nginx", "haproxy", "dovecot", "direct"),
        {"nginx": 1.5, "direct": 0.9},
        connections=8,
        message=2,
        size=1048576,
    ),
    Scenario(
        "1 MB fetches, TLS",
        "fetch",
        "MB/s",
        ("gatepost", "nginx", "haproxy", "dovecot"),
        {"nginx": 1.5},
        tls=True,
        connections=8,
        message=2,
        size=1048576,
    ),
    Scenario(
        "HTTP requests",
        "http",
        "/s",
        ("gatepost", "nginx", "nginx-close", "haproxy", "direct"),
        {"nginx": 3, "nginx-close": 3},
    ),
    Scenario(
        "HTTP requests, TLS",
        "http",
        "/s",
        ("gatepost", "by cookie", "affinity"),
        {},
        {"by cookie": 0.95, "affinity": 0},
        tls=True,
    ),
)


@dataclass(frozen=True)
class Generator:
    """The load generator with its users."""

    program: Path
    stage: Stage

    def command(self, peer: Peer, mode: str, *, tls: bool, connections: int) -> list[str]:
        """The command line up to what differs between measurements."""
        command = [
            *("taskset", "-c", str(LOAD_CORE), str(self.program), mode, "--port", str(peer.port(mode, tls))),
            *("--tls", str(int(tls)), "--connections", str(connections)),
            *("--prefix", "user", "--domain", DOMAIN, "--password", PASSWORD, "--users", str(self.stage.users)),
            *("--path", "/owa/ping", "--http-host", "mail.example.com"),
        ]
        return command + (["--cookies", str(peer.cookies)] if peer.cookies else [])

    def measure(self, scenario: Scenario, peer: Peer, seconds: float, warm_up: float) -> Measured:
        """Run one scenario against one peer. Raises `Spoiled`."""
        command = self.command(peer, scenario.mode, tls=scenario.tls, connections=scenario.connections)
        command += ["--message", str(scenario.message), "--size", str(scenario.size)]
        command += ["--seconds", str(seconds), "--warm-up", str(warm_up)]
        own = peer.pids()
        for pid in [*own, peer.helper_pid, self.stage.stub_pid]:
            command += ["--watch", str(pid)] if pid else []
        answer = self._run(command, f"{scenario.name} on {peer.name}")
        return self._measured(scenario, peer, own, answer)

    def _measured(self, scenario: Scenario, peer: Peer, own: list[int], answer: dict[str, float]) -> Measured:
        used: dict[str, float] = answer["cpu"]  # type: ignore[assignment]
        seconds, count = answer["seconds"], answer["count"]
        proxy = sum(used.get(str(pid), 0.0) for pid in own)
        helper = used.get(str(peer.helper_pid), 0.0)
        return Measured(
            figure=count * (scenario.size or 1e6) / 1e6 / seconds,
            p50_ms=answer["p50_ms"],
            p99_ms=answer["p99_ms"],
            proxy_share=proxy / seconds,
            helper_share=helper / seconds,
            load_share=(answer["own_cpu"] + used.get(str(self.stage.stub_pid), 0.0)) / seconds,
            cost_us=(proxy + helper) / max(count, 1) * 1e6,
        )

    def sign_in_everybody(self, peer: Peer, *, cold: bool) -> float:
        """Sign every user in once, cold (dear hashes, never seen before) or to warm a cache: logins/s."""
        command = self.command(peer, "login", tls=False, connections=8)
        users = self.stage.cold_users if cold else self.stage.users
        if cold:
            command += ["--prefix", "cold", "--password", COLD_PASSWORD]
        command += ["--users", str(users), "--count", str(users)]
        answer = self._run(command, f"first sign-ins on {peer.name}")
        return answer["count"] / answer["seconds"]

    def idle_memory(self, peer: Peer, sessions: int) -> tuple[int, int]:
        """Memory (PSS of all the peer's processes) before and with `sessions` idle TLS sessions. Raises `Spoiled`."""
        command = self.command(peer, "idle", tls=True, connections=sessions)
        before = memory_of(peer.pid)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise Spoiled(f"idle sessions on {peer.name}: {process.stdout.read().decode()}")
            time.sleep(1)  # what was needed only during the sign-ins is given back
            with_sessions = memory_of(peer.pid)
            output, _ = process.communicate(timeout=READY_SECONDS)
        answer = json.loads(output)
        if answer["errors"] or answer["count"] != sessions:
            raise Spoiled(f"idle sessions on {peer.name}: {answer}")
        return before, with_sessions

    def _run(self, command: list[str], what: str) -> dict[str, float]:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=READY_SECONDS)
        answer: dict[str, float] = json.loads(done.stdout)
        if answer["errors"] or not answer["count"]:
            raise Spoiled(f"{what}: {answer['errors']} errors of {answer['count']}, first: {answer['first_error']}")
        return answer
