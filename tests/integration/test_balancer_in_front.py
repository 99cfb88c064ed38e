"""HAProxy before a real front end, configured as docs/balancing.md says (SPEC B7, V2)."""

from __future__ import annotations

import re
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from balanced import SECONDS, Balanced, Start
from doors import Servers, missing
from sites import wait_until

from gatepost.lab.servers.process import Address, ServerMissing, ServerProcess, free_ports, require_program

PAGE = Path(__file__).parents[2] / "docs" / "balancing.md"
FRAME = """
global
    stats socket {folder}/stats level admin
defaults
    mode tcp
    timeout connect 5s
    timeout client 1m
    timeout server 1m
    default-server inter 300ms fall 2 rise 1
frontend web
    bind {web}
    default_backend owa
frontend mail
    bind {mail}
    default_backend imaps
"""


def configuration(folder: Path, balanced: Balanced, ca: Path, web: Address, mail: Address) -> str:
    """The page's backends before front ends, word for word but for addresses and the CA's file, and a frame around."""
    blocks = re.findall(r"(?m)^    backend .*(?:\n        .*)+", PAGE.read_text())
    blocks = [block for block in blocks if not block.startswith("    backend smtp")]  # before hubs
    assert len(blocks) == 2
    text = "\n".join(line[4:] for line in "\n".join(blocks).splitlines() if "server cas-02" not in line)
    for port, endpoint in ((443, "https"), (993, "imaps")):
        host, real = balanced.process.addresses[endpoint]
        text = text.replace(f"10.1.0.11:{port} ", f"{host}:{real} ")
    assert "10.1.0." not in text
    text = text.replace("/etc/haproxy/ca.crt", str(ca))
    return FRAME.format(folder=folder, web=f"{web[0]}:{web[1]}", mail=f"{mail[0]}:{mail[1]}") + text + "\n"


class Haproxy(ServerProcess):
    """A running HAProxy."""

    def state(self, backend: str) -> str:
        """What it thinks of the one server of a backend: `UP`, `DOWN`, or on the way."""
        with socket.socket(socket.AF_UNIX) as asked:
            try:
                asked.connect(str(self.directory / "stats"))
            except OSError:  # its ports accept before this socket does
                return ""
            asked.sendall(b"show stat\n")
            rows = [line.split(",") for line in asked.makefile().read().splitlines()]
        return next(row[17] for row in rows if row[:2] == [backend, "cas-01"])

    def wait_for(self, backend: str, state: str) -> None:
        wait_until(lambda: self.state(backend) == state, SECONDS, f"{backend} {state}")


@contextmanager
def haproxy(servers: Servers, balanced: Balanced, folder: Path) -> Iterator[Haproxy]:
    try:
        program = require_program("haproxy", ("haproxy",))
    except ServerMissing as error:
        missing(error)
    folder.mkdir()
    address = servers.address()
    web, mail = ((address, port) for port in free_ports(address, 2))
    file = folder / "haproxy.cfg"
    file.write_text(configuration(folder, balanced, servers.authority.certificate, web, mail))
    with Haproxy("haproxy", [program, "-db", "-f", str(file)], folder, [web, mail]) as running:
        # Clients come through it from now on. They know the front end by its certificate's name.
        balanced.process.addresses.update(https=web, imaps=mail)
        balanced.context.check_hostname = False
        yield running


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short path, for a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="gp-") as path:
        yield Path(path) / "haproxy"


def test_the_documented_probes_follow_each_service_by_itself(
    start_balanced: Start, servers: Servers, folder: Path, tmp_path: Path
) -> None:
    """Up with the services, down with the front end's directory; the client's own address comes through."""
    balanced = start_balanced(proxied=True)
    with haproxy(servers, balanced, folder) as balancer:
        for backend in ("owa", "imaps"):
            balancer.wait_for(backend, "UP")
        assert balanced.get("/owa/", client="127.0.0.77")[0] == 200
        balanced.process.wait_for_event("http.request", client="127.0.0.77")
        assert balanced.sign_in(client="127.0.0.78").startswith("a OK ")
        balanced.process.wait_for_event("imap.session", client="127.0.0.78")
        (tmp_path / "directory.sqlite").rename(tmp_path / "gone")
        balancer.wait_for("owa", "DOWN")
        assert balancer.state("imaps") == "UP", "its greeting is there"
        (tmp_path / "gone").rename(tmp_path / "directory.sqlite")
        balancer.wait_for("owa", "UP")
        balanced.process.stop()
        for backend in ("owa", "imaps"):
            balancer.wait_for(backend, "DOWN")


def test_the_balancers_probes_are_no_strangers_in_the_log(
    start_balanced: Start, servers: Servers, folder: Path
) -> None:
    """Field case 134: nothing is refused, nothing is a warning, whatever time passes."""
    balanced = start_balanced(proxied=True)
    with haproxy(servers, balanced, folder) as balancer:
        for backend in ("owa", "imaps"):
            balancer.wait_for(backend, "UP")
        wait_until(lambda: len(balanced.process.events("imap.session")) >= 3, SECONDS, "three probes")
    workers = [entry for entry in balanced.process.events() if entry["process"].startswith("worker")]
    assert {entry["level"] for entry in workers} == {"info"}
    assert {entry["event"] for entry in workers} <= {"imap.session", "http.connection", "http.request", "forms.keys"}
