"""What the fixtures hand out: the servers of one test run, and front doors before them."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn, Self, TypeVar

import pytest

from gatepost.lab.servers.cyrus import Cyrus
from gatepost.lab.servers.dovecot import Dovecot, MasterUser
from gatepost.lab.servers.gatepost import Gatepost, LabUser, gatepost_command, import_users, write_configuration
from gatepost.lab.servers.mailbox_web import MailboxWeb
from gatepost.lab.servers.nginx import Nginx
from gatepost.lab.servers.pki import CertificateAuthority
from gatepost.lab.servers.ports import MailPorts
from gatepost.lab.servers.process import Address, ServerMissing, ServerProcess, free_ports
from gatepost.lab.servers.radicale import Radicale
from gatepost.lab.servers.sogo import Sogo
from gatepost.lab.toml_text import Table

MASTER = MasterUser("gatepost", "mpw")
ACCOUNTS = {"alice": "apw", "bob": "bpw", "carol": "cpw"}
USERS = [
    LabUser("alice@contoso.com", "apw", database="DB01", aliases=("alice.a@contoso.com",)),
    LabUser("bob@contoso.com", "bpw", database="DB02"),
]
CAROL = LabUser("carol@contoso.com", "cpw", database="DB03", login_at_server="carol")
REQUIRED = bool(os.environ.get("CI") or os.environ.get("GATEPOST_REQUIRE_SERVERS"))
"""Whether a server that is not installed fails its tests; otherwise they are skipped."""
FRONT_ENDPOINTS = ("imap", "imaps", "pop3", "pop3s", "https", "http")

Kind = TypeVar("Kind", bound=ServerProcess)


def missing(error: ServerMissing) -> NoReturn:
    """Skip the test that needs this server, or fail it where servers are required."""
    if REQUIRED:
        pytest.fail(str(error), pytrace=False)
    pytest.skip(str(error))


FIRST_HOST = 10
HOSTS_OF_A_NET = 190
"""A whole run starts some three hundred servers."""


class Servers:
    """The real servers of one test run. Each starts on first use, on its own address below `prefix`."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.authority = CertificateAuthority.create(scratch / "pki")
        # Two test runs at once on one machine get different addresses, by their process ids.
        self.prefix = f"127.{64 + os.getpid() % 128}.{os.getpid() // 128 % 250 + 1}"
        self._hosts = itertools.count(FIRST_HOST)
        self._running: dict[str, ServerProcess] = {}

    def address(self) -> str:
        """A loopback address that no other server of this run has: from .10 to .199, then in the next net."""
        net, host = divmod(next(self._hosts) - FIRST_HOST, HOSTS_OF_A_NET)
        front, _, third = self.prefix.rpartition(".")
        return f"{front}.{(int(third) - 1 + net) % 250 + 1}.{FIRST_HOST + host}"

    def _once(self, kind: type[Kind], name: str, make: Callable[[str], Kind]) -> Kind:
        if name not in self._running:
            try:
                server = make(self.address())
            except ServerMissing as error:
                missing(error)
            server.start()
            server.wait_ready()
            self._running[name] = server
        found = self._running[name]
        assert isinstance(found, kind)
        if not found.running:
            found.start()
            found.wait_ready()
        return found

    def dovecot(self, name: str = "MBX-01") -> Dovecot:
        """A Dovecot of that name; accounts alice, bob, carol (passwords `apw`, `bpw`, `cpw`) and the master user."""
        return self._once(Dovecot, name, lambda address: self.new_dovecot(name, address))

    def new_dovecot(self, name: str, address: str, extra: str = "") -> Dovecot:
        """A Dovecot that is not started, for tests that stop it: `with servers.new_dovecot("X", address) as d`."""
        certificate = self.authority.issue(name, f"{name.lower()}.contoso.com", address)
        directory = self.scratch / name
        server = Dovecot(
            directory, address, MailPorts.free(address), ACCOUNTS, certificate, master=MASTER, name=name, extra=extra
        )
        for user in ACCOUNTS:
            server.deliver(user, f"Subject: {user} on {name}\r\n\r\nThis mailbox is on {name}.\r\n".encode())
        return server

    def cyrus(self, name: str = "MBX-03") -> Cyrus:
        """A Cyrus: as above; the master user works by authorization identity only. Empty INBOXes."""

        def make(address: str) -> Cyrus:
            certificate = self.authority.issue(name, f"{name.lower()}.contoso.com", address)
            ports = MailPorts.free(address)
            return Cyrus(self.scratch / name, address, ports, ACCOUNTS, certificate, master=MASTER, name=name)

        return self._once(Cyrus, name, make)

    def nginx(self, name: str = "WEB-01", locations: str = "") -> Nginx:
        """An nginx with TLS (see `lab/servers/nginx.py`); `locations` are more `location` blocks."""

        def make(address: str) -> Nginx:
            certificate = self.authority.issue(name, f"{name.lower()}.contoso.com", address)
            port, clear_port = free_ports(address, 2)
            return Nginx(
                self.scratch / name, address, port, certificate, clear_port=clear_port, locations=locations, name=name
            )

        found = self._once(Nginx, name, make)
        assert found.locations == locations, f"{name} runs with other locations: give yours another name"
        return found

    def radicale(self, name: str = "DAV-01") -> Radicale:
        """A Radicale with TLS and Basic authentication for the same accounts, by canonical name too."""

        def make(address: str) -> Radicale:
            certificate = self.authority.issue(name, f"{name.lower()}.contoso.com", address)
            accounts = ACCOUNTS | {f"{user}@contoso.com": password for user, password in ACCOUNTS.items()}
            return Radicale(self.scratch / name, address, free_ports(address, 1)[0], accounts, certificate, name=name)

        return self._once(Radicale, name, make)

    def mailbox_web(self, name: str, version: str = "modern", site: str = "usa", *, tls: bool = True) -> MailboxWeb:
        """The lab's web part of a mailbox server of that version: paths, ActiveSync, EWS; `go_down` kills its service.

        At the address of the Dovecot of that name, if one runs.
        """
        key = f"{name}-web"

        def make(address: str) -> MailboxWeb:
            dovecot = self._running.get(name)
            address = dovecot.address if isinstance(dovecot, Dovecot) else address
            certificate = self.authority.issue(key, f"{name.lower()}.contoso.com", address) if tls else None
            port = free_ports(address, 1)[0]
            return MailboxWeb(self.scratch / key, name, site, address, port, certificate, version=version)

        return self._once(MailboxWeb, key, make)

    def sogo(self, name: str = "MBX-04") -> Sogo:
        """A SOGo on the mailboxes of the Dovecot of that name, at its address: webmail, ActiveSync, DAV, Basic.

        `add_sogo` puts both into an organization.
        """
        if os.geteuid() != 0:
            pytest.skip("SOGo needs root, which may become Debian's account sogo: no other may read its configuration")
        dovecot = self.dovecot(name)
        key = f"{name}-sogo"

        def make(_: str) -> Sogo:
            address = dovecot.address
            certificate = self.authority.issue(key, f"{name.lower()}.contoso.com", address)
            mail = (address, dovecot.ports.imap)
            return Sogo(self.scratch / key, address, ACCOUNTS, certificate, mail, domain="contoso.com", name=name)

        return self._once(Sogo, key, make)

    def stop(self) -> None:
        """Stop all of them."""
        for server in self._running.values():
            if server.running:
                server.signal(signal.SIGTERM)
        for server in self._running.values():
            server.stop()


@dataclass
class FrontDoor:
    """A running front door. `front_end` and `organization` are the tables its file was written from."""

    process: Gatepost
    front_end: Table
    organization: Table
    ca: Path

    @property
    def addresses(self) -> dict[str, Address]:
        """Endpoint name to IP address and port."""
        return self.process.addresses

    @cached_property
    def client_context(self) -> ssl.SSLContext:
        """Verifies the front door's certificate, for its address and for `mail.contoso.com`."""
        return ssl.create_default_context(cafile=str(self.ca))

    def command(self, *arguments: str, status: int | None = 0) -> str:
        """Run a `gatepost` command with this configuration; its output."""
        return self.process.command(*arguments, status=status)

    def write(self) -> None:
        """Write the tables again after a change; SIGHUP makes it count."""
        write_configuration(self.process.configuration, self.front_end, self.organization)

    def stop(self) -> None:
        """Stop it; its files go too."""
        self.process.stop()
        shutil.rmtree(self.process.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def dovecot_tables(server: Dovecot, *, tls: bool) -> Table:
    """A Dovecot in the organization: in clear with ID and XCLIENT, or by implicit TLS after a PROXY header."""
    ports = server.ports
    if tls:
        endpoints = {
            "imaps": {"port": ports.imaps_proxy, "tls": "implicit", "client_address": "proxy-v2"},
            "pop3s": {"port": ports.pop3s_proxy, "tls": "implicit", "client_address": "proxy-v2"},
        }
    else:
        endpoints = {
            "imap": {"port": ports.imap, "tls": "clear", "client_address": "id"},
            "pop3": {"port": ports.pop3, "tls": "clear", "client_address": "xclient"},
        }
    return _mailbox_server(server.name, server.address, server.directory, "master-name", endpoints)


def add_sogo(servers: Servers, organization: Table, name: str = "MBX-04", database: str = "DB04") -> None:
    """Put a mailbox server into the organization whose IMAP is Dovecot's and whose web part SOGo's, and a database."""
    sogo = servers.sogo(name)
    table = dovecot_tables(servers.dovecot(name), tls=False)
    table["endpoints"]["https"] = {"port": sogo.port}
    organization["servers"][name] = table
    organization["databases"][database] = _copies(name)
    inner = f"https://{name.lower()}.contoso.com:{sogo.port}"
    phones = "/Microsoft-Server-ActiveSync"
    organization.setdefault("virtual_directories", []).extend(
        [
            {"server": name, "service": phones[1:], "path": phones, "internal_url": f"{inner}/SOGo{phones}"},
            {"server": name, "service": "sogo", "path": "/SOGo", "internal_url": f"{inner}/SOGo"},
            {"server": name, "service": "sogo-files", "path": "/SOGo.woa", "internal_url": f"{inner}/SOGo.woa"},
        ]
    )


def cyrus_tables(server: Cyrus) -> Table:
    """MBX-03 of the organization: STARTTLS, sign-in by authorization identity, nothing said of the client's address."""
    endpoints = {
        "imap": {"port": server.ports.imap, "tls": "starttls"},
        "pop3": {"port": server.ports.pop3, "tls": "starttls"},
    }
    return _mailbox_server(server.name, server.address, server.directory, "master-authzid", endpoints)


def _mailbox_server(name: str, address: str, directory: Path, form: str, endpoints: dict[str, Table]) -> Table:
    secret = directory / "gatepost-secret"
    secret.touch(mode=0o600)
    secret.write_text(MASTER.password)
    return {
        "site": "usa",
        "version": "modern",
        "roles": ["mailbox"],
        "address": address,
        "fqdn": f"{name.lower()}.contoso.com",
        "endpoints": endpoints,
        "sign_in": {"form": form, "master_user": MASTER.name, "master_password_file": str(secret)},
    }


def start(
    servers: Servers,
    change: Callable[[Table, Table], None] | None = None,
    users: list[LabUser] | None = None,
    *,
    cyrus: bool = False,
    wait: bool = True,
) -> FrontDoor:
    """Write a configuration, put the users into its directory, start `gatepost serve`, wait until all ports accept.

    With `wait` false it is written but not started: `door.process.start()`.
    """
    address = servers.address()
    directory = servers.scratch / f"front-{address}"
    directory.mkdir()
    certificate = servers.authority.issue(f"front-{address}", "mail.contoso.com", address)
    ports = dict(zip(FRONT_ENDPOINTS, free_ports(address, len(FRONT_ENDPOINTS)), strict=True))
    front_end: Table = {
        "server": "CAS-01",
        "directory": str(directory / "directory.sqlite"),
        "registry": str(directory / "registry.sqlite"),
        "certificate": str(certificate.certificate),
        "private_key": str(certificate.private_key),
        "server_ca": str(servers.authority.certificate),
        "workers": 1,
        "limits": {"refused_sign_in_delay_seconds": 0.1},
    }
    organization = _organization(servers, address, ports, cyrus=cyrus)
    if change is not None:
        change(front_end, organization)
    path = write_configuration(directory / "gatepost.toml", front_end, organization)
    if users is None or users:  # with none, they are in another directory
        import_users(path, USERS + ([CAROL] if cyrus else []) if users is None else users, directory)
    gatepost_command(path, "database", "list")  # makes each database active on its first copy
    endpoints = organization["servers"]["CAS-01"]["endpoints"]
    process = Gatepost("CAS-01", directory, path, {name: (address, e["port"]) for name, e in endpoints.items()})
    door = FrontDoor(process, front_end, organization, servers.authority.certificate)
    if wait:
        process.start()
        process.wait_ready()
    return door


def _organization(servers: Servers, address: str, ports: dict[str, int], *, cyrus: bool) -> Table:
    first, second = servers.dovecot("MBX-01"), servers.dovecot("MBX-02")
    endpoints: dict[str, Table] = {name: {"port": port} for name, port in ports.items()}
    endpoints["http"]["tls"] = "clear"
    tables: Table = {
        "organization": {"name": "contoso", "accepted_domains": ["contoso.com"]},
        "sites": {"usa": {"subnets": [f"{servers.prefix}.0/24"], "internet_facing": True}},
        "servers": {
            "CAS-01": {"site": "usa", "roles": ["client-access"], "address": address, "endpoints": endpoints},
            "MBX-01": dovecot_tables(first, tls=False),
            "MBX-02": dovecot_tables(second, tls=True),
        },
        "databases": {
            "DB01": _copies("MBX-01", "MBX-02"),
            "DB02": _copies("MBX-02", "MBX-01"),
        },
    }
    if cyrus:
        tables["servers"]["MBX-03"] = cyrus_tables(servers.cyrus())
        tables["databases"]["DB03"] = _copies("MBX-03", "MBX-01")
    return tables


def _copies(*names: str) -> Table:
    return {"copies": [{"server": name, "preference": n} for n, name in enumerate(names, 1)]}
