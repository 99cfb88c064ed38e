"""Hubs as real processes before Dovecots that take mail by LMTP: sites, certificates of the organization.

    with TransportStage(servers, {"HUB-01": "usa", "HUB-02": "europe"}, {"MBX-01": "usa", "MBX-02": "europe"}) as stage:
        stage.start()                              # all hubs, or those that are named
        stage.send("HUB-01", "bob@contoso.com")    # by a stranger without credentials
        stage.arrived("MBX-02", "bob", "subject")

Each mailbox server MBX-0N has the database DB0N and the user at place N of `NAMES`. A hub listens at three ports:
`smtp` for the organization's servers and who signs in, `outside` for strangers, `submission` for users. `change` edits
the organization's tables before they are written, `settings` the table `front_end` of each hub.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import smtplib
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from click.testing import CliRunner
from doors import Servers, missing

from gatepost.cli import ca
from gatepost.lab.servers.dovecot import Dovecot
from gatepost.lab.servers.gatepost import Gatepost, LabUser, gatepost_command, import_users
from gatepost.lab.servers.ports import MailPorts
from gatepost.lab.servers.process import Address, ServerMissing, ServerProcess, free_ports
from gatepost.lab.toml_text import Table, toml_text
from gatepost.service.operators import ask, request
from gatepost.service.transport_messages import TransportReply, TransportRequest

NAMES = ("alice", "bob", "carol", "dave")
SECONDS = 30.0
"""For anything to happen on a machine that runs other tests as well."""
STRANGER = "127.9.8.7"
_order = itertools.count(1)


def until(condition: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
    """Wait until `condition` answers something true, and answer that."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen in {seconds:g} s: {what}")
        time.sleep(0.02)
    return found


def mail(subject: str, sender: str = "stranger@fabrikam.com", body: str = "text") -> bytes:
    """A message with that subject."""
    return f"From: <{sender}>\r\nTo: somebody\r\nSubject: {subject}\r\n\r\n{body}\r\n".encode()


def named(subject: str, messages: Sequence[bytes]) -> list[bytes]:
    """The messages with that subject, whatever ends their lines."""
    wanted = f"\nSubject: {subject}\n".encode()
    return [message for message in messages if wanted in message.replace(b"\r\n", b"\n")]


class Hub(Gatepost):
    """One `gatepost serve` that transports mail."""

    def wait_ready(self, seconds: float = SECONDS) -> None:
        """Wait for the greeting too: ports accept before the transport is there."""
        ServerProcess.wait_ready(self, seconds)
        with socket.create_connection(self.addresses["outside"], timeout=seconds) as probe:
            assert probe.recv(1), self.log_tail()

    def kill(self) -> None:
        """All of it at once, as a power failure would."""
        os.killpg(self.pid, signal.SIGKILL)
        self.wait(SECONDS)

    def counters(self) -> dict[str, int]:
        """Its transport's numbers."""
        status = ask(self._socket)
        assert status.transport is not None
        return status.transport.counters or {}

    def queues(self) -> dict[str, tuple[int, str]]:
        """Messages and status of each queue that has any, by its next hop's domain: as `gatepost queue list` asks."""
        found = request(self._socket, TransportRequest("queues", {"empty": False}), TransportReply).answer
        return {entry["next_hop_domain"]: (entry["messages"], entry["status"]) for entry in found}

    def listed(self) -> list[dict[str, Any]]:
        """`gatepost queue list --no-empty --json`."""
        found: list[dict[str, Any]] = json.loads(self.command("queue", "list", "--no-empty", "--json"))
        return found

    def unhealthy(self) -> set[str]:
        """The addresses in `gatepost transport unhealthy --json`."""
        return {entry["address"] for entry in json.loads(self.command("transport", "unhealthy", "--json"))}

    @property
    def _socket(self) -> Path:
        return self.configuration.parent / "state" / f"gatepost-{self.name}.sock"


class TransportStage:
    """See the module."""

    def __init__(
        self,
        servers: Servers,
        hubs: Mapping[str, str],
        mailboxes: Mapping[str, str],
        *,
        links: Sequence[tuple[str, str]] = (),
        change: Callable[[Table], None] | None = None,
        settings: Table | None = None,
        transport: Table | None = None,
        copies: Mapping[str, Sequence[str]] | None = None,
        shared_mail: bool = False,
    ) -> None:
        """`hubs` and `mailboxes` map names to sites; `links` are pairs of sites; `transport` are settings of all hubs
        (`[servers.NAME.transport]`). `copies`: databases with more than the one copy of their own server;
        with `shared_mail` all mailbox servers have one mail directory."""
        self.servers = servers
        self.folder = servers.scratch / f"mail-{next(_order)}"
        self.folder.mkdir(mode=0o711)
        (self.folder / "state").mkdir()
        self._shared_mail = shared_mail
        self.mailboxes: dict[str, Dovecot] = {}
        for name in mailboxes:
            self.mailboxes[name] = self._mailbox(name)
        self.copies = copies or {f"DB{name[-2:]}": [name] for name in mailboxes}
        self.users = [
            LabUser(f"{user}@contoso.com", f"{user}-pw", database=database)
            for user, database in zip(NAMES, self.copies, strict=False)
        ]
        addresses = {name: servers.address() for name in hubs}
        self.places: dict[str, dict[str, Address]] = {
            name: dict(zip(("smtp", "outside", "submission"), [(a, p) for p in free_ports(a, 3)], strict=True))
            for name, a in addresses.items()
        }
        self.tables = self._tables(hubs, mailboxes, links, transport or {})
        if change is not None:
            change(self.tables)
        self.organization = self.folder / "organization.toml"
        self.write()
        self.pki = self.folder / "pki"
        self._authority("init", str(self.pki), "--name", "contoso")
        self.hubs = {name: self._hub(name, settings or {}) for name in hubs}
        first = next(iter(self.hubs.values())).configuration
        if "directories" not in (settings or {}):  # else they are elsewhere
            import_users(first, self.users, self.folder)
        gatepost_command(first, "database", "list")  # makes each database active on its first copy

    def write(self) -> None:
        """Write the organization again after a change of `tables`; hubs follow after SIGHUP."""
        self.organization.write_text(toml_text(self.tables))

    def start(self, *names: str) -> None:
        """Start these hubs (all) and the mailbox servers, and wait for them."""
        chosen = [self.hubs[name] for name in names or self.hubs]
        started = [server for server in (*self.mailboxes.values(), *chosen) if not server.running]
        for server in started:
            server.start()
        for server in started:
            server.wait_ready()

    def send(
        self, hub: str, *recipients: str, subject: str = "hello", sender: str = "stranger@fabrikam.com", **how: Any
    ) -> dict[str, tuple[int, bytes]]:
        """A stranger's message; the recipients that were refused. `how` are options of `sendmail`."""
        with self.client(hub) as client:
            return client.sendmail(sender, list(recipients), mail(subject, sender), **how)

    def client(self, hub: str, port: str = "outside") -> smtplib.SMTP:
        """A connection, greeted."""
        host, number = self.places[hub][port]
        return smtplib.SMTP(host, number, "client.example", SECONDS, source_address=(STRANGER, 0))

    def arrived(self, server: str, user: str, subject: str, seconds: float = SECONDS) -> bytes:
        """The message with that subject in a mailbox; waits for it."""
        dovecot = self.mailboxes[server]
        found: list[bytes] = until(
            lambda: named(subject, dovecot.mail(user)), f"{subject} in {user}'s mailbox", seconds
        )
        return found[0]

    def has(self, server: str, user: str, subject: str) -> int:
        """How often a message is in a mailbox."""
        return len(named(subject, self.mailboxes[server].mail(user)))

    def taken(self) -> Counter[str]:
        """How many messages each hub that runs has taken."""
        return Counter({name: hub.counters()["taken"] for name, hub in self.hubs.items() if hub.running})

    def stop(self) -> None:
        """End everything."""
        running = [server for server in (*self.hubs.values(), *self.mailboxes.values()) if server.running]
        for server in running:
            server.signal(signal.SIGTERM)
        for server in running:
            server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @staticmethod
    def _authority(*arguments: str) -> None:
        """`gatepost ca`, in this process: a stage has up to ten certificates."""
        done = CliRunner().invoke(ca.command, arguments)
        assert done.exit_code == 0, done.output

    def _mailbox(self, name: str) -> Dovecot:
        address = self.servers.address()
        certificate = self.servers.authority.issue(f"{self.folder.name}-{name}", f"{name.lower()}.contoso.com", address)
        accounts = {user: f"{user}-pw" for user in NAMES}
        ports, (lmtp,) = MailPorts.free(address), free_ports(address, 1)
        kept = self.folder / "mail" / ("shared" if self._shared_mail else name)
        try:
            return Dovecot(self.folder / name, address, ports, accounts, certificate, name=name, lmtp=lmtp, mail=kept)
        except ServerMissing as error:
            missing(error)

    def _hub(self, name: str, settings: Table) -> Hub:
        self._authority("issue", name, "-c", str(self.organization), "--ca", str(self.pki))
        address = self.places[name]["smtp"][0]
        pair = self.servers.authority.issue(f"{self.folder.name}-{name}", f"{name.lower()}.contoso.com", address)
        front_end: Table = {
            "server": name,
            "organization": "organization.toml",
            "directory": "state/directory.sqlite",
            "registry": "state/registry.sqlite",
            "certificate": str(pair.certificate),
            "private_key": str(pair.private_key),
            "server_ca": str(self.servers.authority.certificate),
            "peer_certificate": str(self.pki / f"{name.lower()}-peer.crt"),
            "peer_private_key": str(self.pki / f"{name.lower()}-peer.key"),
            "organization_ca": str(self.pki / "organization-ca.crt"),
            "transport": {"spool": f"state/spool-{name}"},
        }
        for key, value in settings.items():
            front_end[key] = front_end.get(key, {}) | value if isinstance(value, Mapping) else value
        file = self.folder / f"{name.lower()}.toml"
        file.write_text(toml_text({"front_end": front_end}))
        return Hub(name, self.folder / name.lower(), file, self.places[name])

    def _tables(
        self, hubs: Mapping[str, str], mailboxes: Mapping[str, str], links: Sequence[tuple[str, str]], transport: Table
    ) -> Table:
        sites = dict.fromkeys([*hubs.values(), *mailboxes.values()])
        tables: Table = {
            "organization": {"name": "contoso", "accepted_domains": ["contoso.com"]},
            "sites": {site: {} for site in sites},
            "site_links": {"-".join(pair): {"sites": list(pair), "cost": 10} for pair in links},
            "servers": {},
            "databases": {name: {"copies": [{"server": s} for s in found]} for name, found in self.copies.items()},
            "receive_connectors": {},
            "send_connectors": {},
        }
        for name, site in mailboxes.items():
            dovecot = self.mailboxes[name]
            tables["servers"][name] = self._server(name, site, "mailbox", dovecot.address) | {
                "endpoints": {"lmtp": {"port": dovecot.lmtp, "tls": "clear"}}
            }
        for name, site in hubs.items():
            places = self.places[name]
            tables["servers"][name] = self._server(name, site, "hub-transport", places["smtp"][0]) | {
                "endpoints": {key: {"port": places[key][1]} for key in ("smtp", "submission")},
                "transport": transport,
            }
            tables["receive_connectors"] |= self._connectors(name)
        return tables

    @staticmethod
    def _server(name: str, site: str, role: str, address: str) -> Table:
        return {"site": site, "roles": [role], "address": address, "fqdn": f"{name.lower()}.contoso.com"}

    def _connectors(self, name: str) -> Table:
        smtp, outside, submission = (f"{host}:{port}" for host, port in self.places[name].values())
        passwords = ["tls", "basic", "basic-require-tls"]
        common: Table = {"server": name, "tarpit_seconds": 0.1}
        return {
            f"Default {name}": common
            | {
                "bindings": [smtp],
                "permission_groups": ["servers", "users"],
                "authentication": [*passwords, "servers"],
            },
            f"Outside {name}": common | {"bindings": [outside], "permission_groups": ["anonymous"]},
            f"Client {name}": common
            | {"bindings": [submission], "permission_groups": ["users"], "authentication": passwords},
        }


def state_folder(stage: TransportStage) -> Path:
    """Where directory, registry and spools of a stage are."""
    return stage.folder / "state"
