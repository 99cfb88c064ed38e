"""The figure as real processes: everything written into one directory, started, waited for, and ended in order."""

from __future__ import annotations

import json
import os
import pwd
import secrets
import signal
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from gatepost.configuration.load import load_organization
from gatepost.lab import figure, hubs, own_submission
from gatepost.lab.greeting import greeting_message
from gatepost.lab.servers import dovecot
from gatepost.lab.servers.dovecot import Dovecot, MasterUser, Submission
from gatepost.lab.servers.gatepost import Gatepost, LabUser, gatepost_command, give_to, import_users
from gatepost.lab.servers.mailbox_web import MailboxWeb
from gatepost.lab.servers.pki import CertificateAuthority
from gatepost.lab.servers.ports import MailPorts
from gatepost.lab.servers.process import Address, ServerMissing, ServerProcess
from gatepost.lab.toml_text import Table, toml_text
from gatepost.peers.ca import CERTIFICATE_DAYS, Authority, make_authority

WORKER_ACCOUNT = "nobody"
"""What the front ends' workers run as when root starts the lab and that account can read this Python."""


class BuiltinMailboxServer(ServerProcess):
    """The lab's own mailbox server (`lab/mailbox_server.py`)."""

    def __init__(self, directory: Path, name: str, address: str, ports: MailPorts, lmtp: int, known: Table) -> None:
        """`lmtp`: 0 where no mail comes. `known`: accounts, master, master_password.

        Raises `ServerMissing` without Twisted.
        """
        if find_spec("twisted") is None:
            raise ServerMissing("No mailbox server (neither Dovecot nor, for the lab's own, Twisted)", dovecot.PACKAGES)
        directory.mkdir(parents=True, exist_ok=True)
        argv = [sys.executable, "-m", "gatepost.lab.mailbox_server", "--name", name, "--address", address]
        argv += ["--imap", str(ports.imap), "--pop3", str(ports.pop3), "--lmtp", str(lmtp)]
        ready = [port for port in (ports.imap, ports.pop3, lmtp) if port]
        super().__init__(name, argv, directory, [(address, port) for port in ready])
        self.input = directory / "accounts.json"
        self.input.touch(mode=0o600)
        self.input.write_text(json.dumps(known))


def python_is_public() -> bool:
    """Whether other accounts may use this Python and this package: one in root's home directory is nobody else's."""
    return all(
        parent.stat().st_mode & 0o005 == 0o005
        for place in (sys.prefix, sys.base_prefix, __file__)
        for parent in Path(place).resolve().parents
    )


@dataclass(frozen=True, slots=True)
class Variant:
    """What a fleet may have in another way than the lab."""

    servers: Collection[str] = (*figure.FRONT_ENDS, *figure.MAILBOX_SERVERS, *hubs.HUBS)
    """Who is there; databases, paths and arrays of others are left out as well."""
    users: Sequence[LabUser] = figure.USERS
    limits: Table = field(default_factory=dict)
    """More limits of the front ends."""
    manager: Table = field(default_factory=figure.manager)
    mailbox_settings: str = ""
    """More settings of the Dovecots."""
    relay: Address | None = None
    """Where Dovecots that take submissions hand them to; None: users submit at hubs, if there are any."""


def _only(tables: Table, servers: Collection[str]) -> Table:
    """The organization of these servers alone: one that never runs would look like one that has failed."""
    if set(hubs.HUBS).isdisjoint(servers):
        tables = hubs.without(tables)
    databases = {
        name: table
        for name, table in tables["databases"].items()
        if all(copy["server"] in servers for copy in table["copies"])
    }
    return tables | {
        "servers": {name: table for name, table in tables["servers"].items() if name in servers},
        "databases": databases,
        "arrays": {name: t for name, t in tables["arrays"].items() if set(t["members"]) <= set(servers)},
        "virtual_directories": [t for t in tables["virtual_directories"] if t["server"] in servers],
    }


class Fleet:
    """All servers of the lab. `start` makes and starts them; `stop` ends them. Use it with `with`."""

    def __init__(self, directory: Path, ports: figure.Ports, *, builtin: bool, variant: Variant | None = None) -> None:
        """`directory` exists and is empty. `builtin`: the lab's own mailbox servers instead of Dovecot."""
        self.directory = directory
        self.ports = ports
        self.builtin = builtin
        self.variant = variant or Variant()
        self.configuration = directory / "gatepost.toml"
        self._without_manager = directory / "without-manager.toml"
        self.authority = CertificateAuthority.create(directory / "pki")
        self.ca = self.authority.certificate
        self._other_account = os.geteuid() == 0 and python_is_public()
        self.master = MasterUser(figure.MASTER_USER, secrets.token_urlsafe(12))
        self.front_ends: dict[str, Gatepost] = {}
        self.mailbox_servers: dict[str, ServerProcess] = {}
        self.web_servers: dict[str, MailboxWeb] = {}
        self.hubs: dict[str, Gatepost] = {}
        self.has_hubs = not set(hubs.HUBS).isdisjoint(self.variant.servers)

    @property
    def processes(self) -> list[ServerProcess]:
        """All of them, in the order to start."""
        back = [*self.mailbox_servers.values(), *self.web_servers.values()]
        return [*back, *self.hubs.values(), *self.front_ends.values()]

    def start(self) -> None:
        """Write, start and wait for everything. Raises `ServerMissing`, `ServerNotStarted`, `CommandFailed`."""
        os.umask(0o022)
        self.directory.chmod(0o711)
        self.write_configuration()
        for name in self._started(self.ports.mail):
            self.mailbox_servers[name] = self._mailbox_server(name)
        for name in self._started(self.ports.web):
            self.web_servers[name] = self._web_server(name)
        for name in self._started(hubs.HUBS):
            self.hubs[name] = self._hub(name)
        for name in self._started(figure.FRONT_ENDS):
            self.front_ends[name] = self._front_end(name)
        back = [*self.mailbox_servers.values(), *self.web_servers.values()]
        for server in back:
            server.start()
        import_users(self.configuration, self.variant.users, self.directory)
        self.command("database", "list")  # makes each database active on its first copy
        self._hand_over_state()
        for front in (*self.hubs.values(), *self.front_ends.values()):
            front.start()
        for server in self.processes:
            server.wait_ready()

    def stop(self) -> None:
        """End everything: all at once, then each is waited for."""
        running = [server for server in reversed(self.processes) if server.running]
        for server in running:
            server.signal(signal.SIGTERM)
        for server in running:
            server.stop()

    def command(self, *arguments: str, status: int | None = 0) -> str:
        """Run a `gatepost` command on the lab's configuration. Raises `CommandFailed`."""
        return gatepost_command(self.configuration, *arguments, status=status)

    def write_configuration(self) -> None:
        """Write `gatepost.toml`, `organization.toml`, certificates and secrets."""
        names = ["mail." + figure.DOMAIN, "autodiscover." + figure.DOMAIN]
        names += [figure.external_name(site) for site, facing in figure.SITES.items() if facing]
        names += [figure.ARRAY_NAME, *(figure.fqdn(name) for name in (*figure.FRONT_ENDS, *hubs.HUBS))]
        self.authority.issue("front", *names, *(address for _, address in figure.FRONT_ENDS.values()))
        hidden = self.directory / "secrets"
        hidden.mkdir(mode=0o700)
        (hidden / "master").touch(mode=0o600)
        (hidden / "master").write_text(self.master.password)
        (self.directory / "state").mkdir(mode=0o700)
        user = WORKER_ACCOUNT if self._other_account else ""
        front = figure.front_end(self.directory, user=user)
        front["limits"] |= self.variant.limits
        self._without_manager.write_text(toml_text({"front_end": front}))
        self.configuration.write_text(toml_text({"front_end": front | {"manager": self.variant.manager}}))
        for name in self._started(hubs.HUBS):
            transport = {"server": name, "transport": {"spool": f"state/spool-{name.lower()}"}}
            (self.directory / f"{name.lower()}.toml").write_text(toml_text({"front_end": front | transport}))
        tables = _only(figure.organization(self.ports, hidden, builtin=self.builtin), self.variant.servers)
        tables = own_submission.with_endpoints(tables, self.ports)
        organization = self.directory / "organization.toml"
        organization.write_text(toml_text(tables))
        self._make_peers(organization)

    def _make_peers(self, file: Path) -> None:
        """The organization's own CA, and what each front end shows the others: as `gatepost ca` makes them."""
        organization = load_organization(str(file)).organization
        assert organization is not None
        now = datetime.now(UTC)
        pair = make_authority(figure.DOMAIN, now)
        authority = Authority.load(pair)
        pairs = {"organization/organization-ca": pair}
        for name in self._started([*figure.FRONT_ENDS, *hubs.HUBS]):
            server = organization.servers[name]
            pairs[f"peers/{name.lower()}-peer"] = authority.issue(server, now, CERTIFICATE_DAYS)
        for path, made in pairs.items():
            key = self.directory / "pki" / f"{path}.key"
            key.parent.mkdir(exist_ok=True)
            key.touch(mode=0o600)
            key.write_bytes(made.private_key)
            key.with_suffix(".crt").write_bytes(made.certificate)

    def _started(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name in self.variant.servers]

    def _hand_over_state(self) -> None:
        if self._other_account:
            account = pwd.getpwnam(WORKER_ACCOUNT)
            give_to(self.directory / "state", account.pw_uid, account.pw_gid)

    def _accounts(self, server: str) -> dict[str, str]:
        """Who has a mailbox (or a copy of it) on a server."""
        return {user.name.partition("@")[0]: user.password for user in self._users_on(server)}

    def _users_on(self, server: str) -> Iterable[LabUser]:
        return (
            user
            for user in self.variant.users
            if user.home_server == server or server in figure.COPIES.get(user.database, ())
        )

    def _mailbox_server(self, name: str) -> ServerProcess:
        _, address = figure.MAILBOX_SERVERS[name]
        ports, accounts, directory = self.ports.mail[name], self._accounts(name), self.directory / name.lower()
        if self.builtin:
            master = {"master": self.master.name, "master_password": self.master.password}
            known = {"accounts": accounts, **master}
            return BuiltinMailboxServer(directory, name, address, ports, self._lmtp(name), known)
        certificate = self.authority.issue(name.lower(), figure.fqdn(name), address)
        shared = self.directory / "shared-mail" if name in figure.SHARING else None
        server = Dovecot(
            directory,
            address,
            ports,
            accounts,
            certificate,
            master=self.master,
            name=name,
            mail=shared,
            extra=self.variant.mailbox_settings,
            lmtp=self._lmtp(name),
            submission=self._submission(name),
        )
        if name != figure.SHARING[-1]:  # whose mail is there already
            for user in accounts:
                server.deliver(user, greeting_message(user, name if shared is None else "shared"))
        return server

    def _lmtp(self, name: str) -> int:
        """The port where hubs deliver; 0 where there are none."""
        return self.ports.lmtp.get(name, 0) if self.has_hubs else 0

    def _submission(self, name: str) -> Submission | None:
        """What a Dovecot needs to take submissions; None for one that takes none."""
        ports, relay = self.ports.submission.get(name), self.variant.relay
        return Submission(ports, relay) if ports is not None and relay is not None else None

    def _hub(self, name: str) -> Gatepost:
        _, address = hubs.HUBS[name]
        addresses = {endpoint: (address, port) for endpoint, port in self.ports.hubs[name].items()}
        return Gatepost(name, self.directory / name.lower(), self.directory / f"{name.lower()}.toml", addresses)

    def _web_server(self, name: str) -> MailboxWeb:
        site, address = figure.MAILBOX_SERVERS[name]
        certificate = self.authority.issue(f"{name.lower()}-web", figure.fqdn(name), address)
        return MailboxWeb(
            self.directory / f"{name.lower()}-web",
            name,
            site,
            address,
            self.ports.web[name],
            certificate,
            version=figure.version(name),
            user_header=figure.USER_HEADER,
        )

    def _front_end(self, name: str) -> Gatepost:
        _, address = figure.FRONT_ENDS[name]
        addresses = {
            endpoint: (address, port)
            for endpoint, port in self.ports.front[name].items()
            if self.has_hubs or endpoint not in hubs.HUB_PORTS
        }
        configuration = self.configuration if name in figure.MANAGERS else self._without_manager
        front = Gatepost(name, self.directory / name.lower(), configuration, addresses)
        front.argv += ["--server", name]
        return front

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
