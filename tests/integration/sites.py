"""Three sites for the tests of client access: four front ends, mailbox servers of every version, and their clients.

    usa (Internet-facing)      europe (Internet-facing)   asia (not Internet-facing, reached through peers)
    CAS-01                     CAS-02                     CAS-03 and CAS-04, an array
    EX10-USA   user1           EX10-EUR   user2           EX10-ASIA  user3     EX07-ASIA  user4
    EX10-SOGO  alice (SOGo)    EX03-EUR   user5           BIG-ASIA   dave (`bodies.BodyServer`)
    MBX-21     bob (DB21)      MBX-22     copy of DB21    MBX-23     carol (DB23)

`sites` (session): see `Sites`. The old servers have a Dovecot for mail together, the modern ones each have their own.
A test that stops, kills or changes something leaves that to `Sites.mend`, which runs after every test.
"""

from __future__ import annotations

import base64
import os
import signal
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from activesync import Phone
from doors import Servers
from sites_figure import DOMAIN, EXTERNAL, FRONT_ENDS, USERS, Figure

from gatepost.lab.clients import WebAnswer, web_visit
from gatepost.lab.servers.gatepost import Gatepost, gatepost_command, import_users, run_gatepost
from gatepost.lab.toml_text import Table, toml_text

LIMITS = {"probe_seconds": 0.5, "probe_answer_seconds": 1.0, "connect_seconds": 1.5}
LIMITS |= {"refused_sign_in_delay_seconds": 0.1, "drain_seconds": 1.0}
FOLLOW_SECONDS = 10.0
"""Until four front ends on two processors have followed a change."""
HEALTH_SECONDS = 15.0
"""Until a dead server is known: two probes that wait for their time each, and the pauses before them."""
POLL_SECONDS = 0.05


def wait_until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until `holds()`. Fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(POLL_SECONDS)


class Sites(Figure):
    """The servers, running, and what clients do with them."""

    def __init__(self, servers: Servers) -> None:
        super().__init__(servers)
        self.directory = servers.scratch / "sites"
        self.directory.mkdir(mode=0o711)
        self.organization_file = self.directory / "organization.toml"
        self._touched: set[str] = set()
        self.front_end = self._front_end()
        self.context = ssl.create_default_context(cafile=str(servers.authority.certificate))
        self._write()
        self.front_ends = {name: self._process(name) for name in FRONT_ENDS}
        for front in self.front_ends.values():
            front.start()
        for name in FRONT_ENDS:
            self._wait_ready(name)

    # --- what clients do

    def password(self, user: str) -> str:
        """A user's password."""
        return next(known.password for known in USERS if known.name == f"{user}@{DOMAIN}")

    def web(
        self,
        front_end: str,
        user: str,
        path: str = "/owa/",
        headers: dict[str, str] | None = None,
        *,
        method: str = "GET",
        body: bytes | None = None,
    ) -> WebAnswer:
        """One request on its own connection, with Basic; a `user` of "" has no credentials."""
        password = self.password(user) if user else ""
        name = f"{user}@{DOMAIN}" if user else ""
        return web_visit(
            self.place(front_end), self.context, path, name, password, headers, method=method, body=body
        )  # fmt: skip

    def connection(self, front_end: str, seconds: float = 30.0) -> HTTPSConnection:
        """A connection to do things by hand with."""
        return HTTPSConnection(*self.place(front_end), context=self.context, timeout=seconds)

    def basic(self, user: str) -> dict[str, str]:
        """The header by which a user signs in."""
        given = f"{user}@{DOMAIN}:{self.password(user)}"
        return {"Authorization": "Basic " + base64.b64encode(given.encode()).decode()}

    def phone(self, front_end: str, user: str, device: str, version: str = "14.1") -> Phone:
        """A phone of a user that knows a front end's external name, or its address."""
        address, port = self.place(front_end)
        name = EXTERNAL.get(front_end, "mail.contoso.com")
        return Phone(
            address, port, f"{user}@{DOMAIN}", self.password(user), self.context, device, version=version, name=name
        )

    # --- what operators do

    def shell(self, line: str) -> str:
        """A line of the management shell, at CAS-01."""
        return run_gatepost("shell", "--config", str(self._file("CAS-01")), "-c", line)

    def command(self, *arguments: str) -> str:
        """A `gatepost` command, at CAS-01."""
        return gatepost_command(self._file("CAS-01"), *arguments)

    def configure(self, front_end: str, **keys: object) -> None:
        """Give a front end other settings by SIGHUP, and wait until it has them."""
        self._file(front_end).write_text(toml_text({"front_end": self.front_end | {"server": front_end} | keys}))
        self._reload(front_end)

    def reorganize(self, change: Callable[[Table], None]) -> None:
        """Change the organization's file as an operator does by hand, with a SIGHUP to each front end."""
        tables = self.organization()
        change(tables)
        written = self.organization_file.with_suffix(".new")
        written.write_text(toml_text(tables))
        written.replace(self.organization_file)
        self._reload(*FRONT_ENDS)

    def _reload(self, *front_ends: str) -> None:
        before = {name: self._reloads(name) for name in front_ends}
        for name in front_ends:
            self.front_ends[name].signal(signal.SIGHUP)
        wait_until(
            lambda: all(self._reloads(name) > count for name, count in before.items()),
            FOLLOW_SECONDS,
            f"a reload of {', '.join(front_ends)}",
        )

    def _reloads(self, front_end: str) -> int:
        return len(self.front_ends[front_end].events("configuration.reloaded"))

    # --- what happens to them

    def workers(self, front_end: str) -> list[int]:
        """Process ids of a front end's workers that are ready; it may have other children for a moment."""
        process = self.front_ends[front_end]
        ready = {entry["worker"] for entry in process.events("worker.ready")}
        return [pid for pid in process.workers() if pid in ready] if process.running else []

    def signal(self, front_end: str, number: signal.Signals) -> None:
        """To a front end's supervisor and workers, in this order: it shall not make up for them."""
        self._touched.add(front_end)
        for pid in (self.front_ends[front_end].pid, *self.workers(front_end)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self, front_end: str) -> None:
        """kill -9."""
        self.signal(front_end, signal.SIGKILL)
        self.front_ends[front_end].wait(5.0)

    def restart(self, front_end: str) -> None:
        """Drain it, and start it again; returns when it serves."""
        self.front_ends[front_end].stop()
        self.front_ends[front_end].start()
        self._wait_ready(front_end)

    def mend(self) -> None:
        """Everything as it was: all front ends run and use the files as they were, every web part lives."""
        self.big.release.set()
        for web in self.webs.values():
            web.come_back()
        for name in list(self._touched):
            if self.front_ends[name].running:
                self.signal(name, signal.SIGCONT)
            else:
                self.front_ends[name].start()
        for name in self._touched:
            self._wait_ready(name)
        self._touched.clear()
        self.big.release.clear()
        self.big.requests.clear()
        self.big.left.clear()

    def down(self, front_end: str) -> list[tuple[str, str]]:
        """Server and service of all that a front end said to be down since it said that they were up."""
        found: dict[tuple[str, str], bool] = {}
        for entry in self.front_ends[front_end].events():
            if entry["event"] in {"server.down", "server.up"}:
                found[entry["server"], entry["service"]] = entry["event"] == "server.down"
        return [key for key, is_down in found.items() if is_down]

    def stop(self) -> None:
        """End the front ends and what is this class's own."""
        for name, front in self.front_ends.items():
            if front.running:
                self.signal(name, signal.SIGCONT)
                front.signal(signal.SIGTERM)
        for front in self.front_ends.values():
            front.stop()
        self.old_mail.stop()
        self.big.close()

    # --- how they are made

    def _file(self, front_end: str) -> Path:
        return self.directory / f"{front_end.lower()}.toml"

    def _wait_ready(self, name: str) -> None:
        """Until a worker answers, and is known: ports accept before."""
        self.front_ends[name].wait_ready()
        wait_until(
            lambda: bool(self.workers(name)) and self._answers(name),
            20.0,
            f"{name} answers\n{self.front_ends[name].log_tail()}",
        )

    def _answers(self, name: str) -> bool:
        try:
            return self.web(name, "", "/owa/").status > 0
        except OSError:
            return False

    def _process(self, name: str) -> Gatepost:
        places = {endpoint: (self.addresses[name], port) for endpoint, port in self.ports[name].items()}
        return Gatepost(name, self.directory / name.lower(), self._file(name), places)

    def _front_end(self) -> Table:
        authority, directory = self.servers.authority, self.directory
        names = [*EXTERNAL.values(), "mail.contoso.com", "asia.contoso.com"]
        names += [f"{name.lower()}.{DOMAIN}" for name in FRONT_ENDS]
        shared = authority.issue("sites", *names, *self.addresses.values())
        return {
            "organization": str(self.organization_file),
            "directory": str(directory / "directory.sqlite"),
            "registry": str(directory / "registry.sqlite"),
            "certificate": str(shared.certificate),
            "private_key": str(shared.private_key),
            "server_ca": str(authority.certificate),
            "peer_certificate": str(directory / "peers" / "{server}-peer.crt"),
            "peer_private_key": str(directory / "peers" / "{server}-peer.key"),
            "organization_ca": str(directory / "ca" / "organization-ca.crt"),
            "workers": 1,
            "log_requests": True,
            "limits": LIMITS,
        }

    def _write(self) -> None:
        self.organization_file.write_text(toml_text(self.organization()))
        authority, peers = self.directory / "ca", self.directory / "peers"
        run_gatepost("ca", "init", str(authority), "--name", DOMAIN)
        peers.mkdir()
        where = ("--config", str(self.organization_file), "--ca", str(authority), "--out", str(peers))
        for name in FRONT_ENDS:
            run_gatepost("ca", "issue", name, *where)
            self._file(name).write_text(toml_text({"front_end": self.front_end | {"server": name}}))
        import_users(self._file("CAS-01"), USERS, self.directory)
        self.command("database", "list")  # makes each database active on its first copy


@pytest.fixture(scope="session")
def all_sites(servers: Servers) -> Iterator[Sites]:
    """Started on first use. Tests take `sites`."""
    made = Sites(servers)
    yield made
    made.stop()


@pytest.fixture
def sites(all_sites: Sites) -> Iterator[Sites]:
    """All sites, whole again after each test."""
    yield all_sites
    all_sites.mend()
