"""Network namespaces on this machine, to cut servers off from each other as a broken switch would.

    root namespace ── bridge ──┬── namespace 1      each with one address; `cut` takes its plug out,
                               └── namespace 2 …    `block` has it drop packets of one peer

The addresses exist inside these namespaces and on the bridge alone.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from gatepost.lab.servers.process import find_program


@dataclass
class Network:
    """A bridge and the namespaces at it. `addresses[n]` is that of namespace n."""

    name: str
    subnet: str
    count: int
    addresses: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.addresses = [f"{self.subnet}.{n + 1}" for n in range(self.count)]

    def inside(self, number: int) -> list[str]:
        """What a command begins with that runs in namespace `number`."""
        return [_ip(), "netns", "exec", f"{self.name}-{number}"]

    def cut(self, number: int) -> None:
        """Nothing comes to namespace `number` or leaves it, and nobody is told."""
        _run("link", "set", f"{self.name}v{number}", "down")

    def mend(self, number: int) -> None:
        """It is connected again."""
        _run("link", "set", f"{self.name}v{number}", "up")

    def block(self, number: int, other: str) -> None:
        """Namespace `number` neither hears nor answers the address `other`, though both are connected to the rest."""
        _run("-n", f"{self.name}-{number}", "route", "add", "blackhole", other)

    def unblock(self, number: int, other: str) -> None:
        """They may talk again."""
        _run("-n", f"{self.name}-{number}", "route", "del", "blackhole", other)

    def make(self) -> None:
        """Make all of it. Raises `subprocess.CalledProcessError` where this is not allowed."""
        _run("link", "add", f"{self.name}b", "type", "bridge")
        _run("addr", "add", f"{self.subnet}.254/24", "dev", f"{self.name}b")
        _run("link", "set", f"{self.name}b", "up")
        for number, address in enumerate(self.addresses):
            inner, outer, space = f"{self.name}i{number}", f"{self.name}v{number}", f"{self.name}-{number}"
            _run("netns", "add", space)
            _run("link", "add", outer, "type", "veth", "peer", "name", inner)
            _run("link", "set", inner, "netns", space)
            _run("link", "set", outer, "master", f"{self.name}b", "up")
            _run("-n", space, "addr", "add", f"{address}/24", "dev", inner)
            for device in ("lo", inner):
                _run("-n", space, "link", "set", device, "up")

    def remove(self) -> None:
        """Remove what there is of it."""
        for number in range(self.count):
            _run("netns", "del", f"{self.name}-{number}", check=False)
            _run("link", "del", f"{self.name}v{number}", check=False)
        _run("link", "del", f"{self.name}b", check=False)


@contextmanager
def network(count: int) -> Iterator[Network]:
    """So many namespaces. Skips the test where they cannot be made: without root, or in most containers."""
    if os.geteuid() != 0 or find_program("ip") is None:
        pytest.skip("network namespaces need root and the program ip: apt-get install -y iproute2")
    number = os.getpid() % 4096
    made = Network(f"gp{number}", f"10.{200 + number // 256}.{number % 256}", count)
    try:
        made.make()
    except subprocess.CalledProcessError as error:
        made.remove()
        pytest.skip(f"network namespaces cannot be made here: {error.stderr}")
    try:
        yield made
    finally:
        made.remove()


def _ip() -> str:
    return find_program("ip") or "ip"


def _run(*words: str, check: bool = True) -> None:
    subprocess.run([_ip(), *words], check=check, capture_output=True, text=True, timeout=10)
