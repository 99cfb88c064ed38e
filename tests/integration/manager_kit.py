"""Active managers as real processes on one registry, before two Dovecots of their own."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from doors import Servers, dovecot_tables
from service_kit import until

from gatepost.activemanager.asking import is_of_copy
from gatepost.activemanager.open import open_registry
from gatepost.activemanager.port import OwnedRegistry, RegistryUnavailable
from gatepost.activemanager.seed import seed
from gatepost.configuration.load import load
from gatepost.configuration.settings import Configuration
from gatepost.lab.servers.etcd import EtcdCluster
from gatepost.lab.servers.gatepost import Gatepost, write_configuration
from gatepost.lab.servers.process import free_ports
from gatepost.lab.toml_text import Table
from gatepost.routing.decision import ActiveCopy

DATABASES = ("DB01", "DB02")


class ManagerRun(Gatepost):
    """One `gatepost manager`."""

    def __init__(self, name: str, directory: Path, configuration: Path) -> None:
        super().__init__(name, directory, configuration, {})
        self.argv = [sys.executable, "-m", "gatepost", "manager", "-c", str(configuration)]

    def acts(self) -> bool:
        """Whether it has said that it holds the lease, and not that it has lost it."""
        words = [e["event"] for e in self.events() if e["event"] in {"manager.acts", "manager.lease_lost"}]
        return words[-1:] == ["manager.acts"]


class Stage:
    """Two Dovecots, MBX-01 and MBX-02, with both databases on MBX-01 at first, a registry, and managers on it."""

    def __init__(self, servers: Servers, folder: Path, etcd: EtcdCluster | None = None) -> None:
        self.folder = folder
        self.servers = servers
        self.dovecots = {name: servers.new_dovecot(f"{name}-{folder.name}", servers.address()) for name in ("A", "B")}
        self.names = {letter: dovecot.name for letter, dovecot in self.dovecots.items()}
        self.address = servers.address()
        self.manager: Table = {}
        """The table `[front_end.manager]`."""
        self.etcd = etcd
        self.services = 4
        """How many are observed: IMAP and POP3 of each."""
        self.managers: list[ManagerRun] = []
        self._registry: OwnedRegistry | None = None

    def tables(self) -> tuple[Table, Table]:
        """The tables of the file."""
        front_end: Table = {
            "server": "CAS-01",
            "directory": "state/directory.sqlite",
            "registry": "state/registry.sqlite",
            "allow_clear_passwords": True,
            "workers": 1,
            "manager": self.manager,
        }
        if self.etcd is not None:
            front_end["etcd"] = {"endpoints": list(self.etcd.urls), "prefix": f"/managers/{self.folder.name}"}
        copies = [{"server": self.names["A"], "preference": 1}, {"server": self.names["B"], "preference": 2}]
        organization: Table = {
            "organization": {"name": "contoso", "accepted_domains": ["contoso.com"]},
            "sites": {"usa": {"internet_facing": True}},
            "servers": {
                "CAS-01": {
                    "site": "usa",
                    "roles": ["client-access"],
                    "address": self.address,
                    "endpoints": {"imap": {"port": self.port, "tls": "clear"}},
                },
                **{d.name: dovecot_tables(d, tls=False) for d in self.dovecots.values()},
            },
            "databases": {name: {"copies": copies} for name in DATABASES},
        }
        return front_end, organization

    def write(self) -> Path:
        """Write the configuration."""
        (self.folder / "state").mkdir(parents=True, exist_ok=True)
        if not hasattr(self, "port"):
            self.port = free_ports(self.address, 1)[0]
        return write_configuration(self.folder / "gatepost.toml", *self.tables())

    def begin(self, managers: int = 2) -> None:
        """Start the Dovecots, seed the registry, and start managers; returns when one of them acts."""
        path = self.write()
        for dovecot in self.dovecots.values():
            dovecot.start()
        for dovecot in self.dovecots.values():
            dovecot.wait_ready()
        seed(self.registry, self.configuration.organization)
        for number in range(managers):
            self.managers.append(ManagerRun(f"manager-{number}", self.folder / f"manager-{number}", path))
            self.managers[-1].start()
        if managers:
            until(lambda: self.acting() is not None, f"a manager that acts\n{self.logs()}")
            until(self.all_seen_well, f"all services seen well\n{self.logs()}")

    @property
    def configuration(self) -> Configuration:
        loaded = load(str(self.folder / "gatepost.toml"))
        assert loaded.configuration is not None, [str(f) for f in loaded.findings]
        return loaded.configuration

    @property
    def registry(self) -> OwnedRegistry:
        if self._registry is None:
            self._registry = open_registry(self.configuration.front_end)
        return self._registry

    def acting(self) -> ManagerRun | None:
        """The one that holds the lease, by the registry."""
        manager = self.registry.view().manager
        if manager is None:
            return None
        return next((m for m in self.managers if m.running and f"/{self.process_of(m)}/" in manager.holder), None)

    def standby(self) -> ManagerRun:
        """One that does not hold it."""
        acting = self.acting()
        return next(m for m in self.managers if m is not acting and m.running)

    def process_of(self, manager: ManagerRun) -> int:
        return manager.pid

    def all_seen_well(self) -> bool:
        observed = {key: o for key, o in self.registry.view().observed.items() if not is_of_copy(key[1])}
        return len(observed) == self.services and all(o.healthy for o in observed.values())

    def active(self, database: str = "DB01") -> ActiveCopy:
        return self.registry.view().active[database]

    def wait_active(self, letter: str, epoch: int, seconds: float = 20.0, database: str = "DB01") -> float:
        """Wait until the database is on that Dovecot at that epoch; answers how long it took."""
        wanted = ActiveCopy(database, self.names[letter], epoch)
        began = time.monotonic()

        def there() -> bool:
            with suppress(RegistryUnavailable):
                return self.active(database) == wanted
            return False

        until(there, f"{wanted}\n{self.logs()}", seconds)
        return time.monotonic() - began

    def kill(self, letter: str) -> None:
        """kill -9: the master process and all its children, as the machine's death would."""
        os.killpg(self.dovecots[letter].pid, signal.SIGKILL)
        self.dovecots[letter].wait(5.0)

    def freeze(self, letter: str, number: signal.Signals = signal.SIGSTOP) -> None:
        """Every process of it stands still: connections are made by the kernel, and nothing answers."""
        os.killpg(self.dovecots[letter].pid, number)

    def logs(self) -> str:
        return "\n".join(m.log_tail() for m in self.managers)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Lines of all managers' logs."""
        return [event for manager in self.managers for event in manager.events(name)]

    def stop(self) -> None:
        for manager in self.managers:
            with suppress(ProcessLookupError):
                if manager.running:
                    manager.signal(signal.SIGCONT)
            manager.stop()
        for dovecot in self.dovecots.values():
            if dovecot.running:
                with suppress(ProcessLookupError):
                    os.killpg(dovecot.pid, signal.SIGCONT)
            dovecot.stop()
        if self._registry is not None:
            with closing(self._registry):
                pass


MakeStage = Callable[..., Stage]


@pytest.fixture
def make_stage(servers: Servers, scratch: Path, request: pytest.FixtureRequest) -> Iterator[MakeStage]:
    """Makes stages; all of them are stopped after the test."""
    made: list[Stage] = []

    def make(etcd: EtcdCluster | None = None) -> Stage:
        folder = scratch / f"m{len(list(scratch.glob('m[0-9]*')))}"
        folder.mkdir(mode=0o711)
        made.append(Stage(servers, folder, etcd))
        return made[-1]

    yield make
    for stage in made:
        stage.stop()
