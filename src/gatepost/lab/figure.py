"""The sources' figure as data: three sites, three front ends, three mailbox servers, and one server of 2010.

    usa (Internet-facing)        europe (Internet-facing)      asia
    CAS-01   127.0.1.1           CAS-02   127.0.2.1            CAS-03   127.0.3.1
    MBX-01   127.0.1.11          MBX-02   127.0.2.11           MBX-03   127.0.3.11   EX10-01 127.0.3.21
    user1: DB01                  user2: DB02                   user3: DB03           user4

Every mailbox server is reached in another way, so that the lab shows each: MBX-01 in clear with ID and XCLIENT, MBX-02
by implicit TLS after a PROXY header, MBX-03 by STARTTLS with an authorization identity, EX10-01 with the user's own
password.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gatepost.lab.servers.gatepost import LabUser
from gatepost.lab.servers.ports import MailPorts
from gatepost.lab.servers.process import can_listen, free_ports
from gatepost.lab.toml_text import Table

DOMAIN = "contoso.com"
MASTER_USER = "gatepost"
USER_HEADER = "X-Remote-User"
FRONT_PORTS = {"imap": 143, "imaps": 993, "pop3": 110, "pop3s": 995, "https": 443}
HIGH_PORT = 1000
"""Added to a port that only root may listen on: 1143, 1993, 1443."""
WEB_SERVICES = ("owa", "ews")
SITES = {"usa": True, "europe": True, "asia": False}
"""Site to whether it faces the Internet."""
LINKS = {"usa-europe": 10, "usa-asia": 20, "europe-asia": 30}
FRONT_ENDS = {"CAS-01": ("usa", "127.0.1.1"), "CAS-02": ("europe", "127.0.2.1"), "CAS-03": ("asia", "127.0.3.1")}
MAILBOX_SERVERS = {
    "MBX-01": ("usa", "127.0.1.11"),
    "MBX-02": ("europe", "127.0.2.11"),
    "MBX-03": ("asia", "127.0.3.11"),
    "EX10-01": ("asia", "127.0.3.21"),
}
OLD_SERVER = "EX10-01"
COPIES = {"DB01": ("MBX-01", "MBX-02"), "DB02": ("MBX-02", "MBX-03"), "DB03": ("MBX-03", "MBX-01")}
USERS = (
    LabUser(f"user1@{DOMAIN}", "first-pw", database="DB01", aliases=(f"anna@{DOMAIN}",)),
    LabUser(f"user2@{DOMAIN}", "second-pw", database="DB02"),
    LabUser(f"user3@{DOMAIN}", "third-pw", database="DB03"),
    LabUser(f"user4@{DOMAIN}", "fourth-pw", home_server=OLD_SERVER),
)


def fqdn(server: str) -> str:
    """A server's name in the organization's domain."""
    return f"{server.lower()}.{DOMAIN}"


@dataclass
class Ports:
    """Who listens where. Standard ports if they can be had, else high ones, else any free one; `notes` say so."""

    front: dict[str, dict[str, int]] = field(default_factory=dict)
    mail: dict[str, MailPorts] = field(default_factory=dict)
    web: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def choose_ports(*, root: bool, can: Callable[[str, int], bool] = can_listen) -> Ports:
    """Ports for every server of the figure. A busy one is replaced and noted."""
    ports = Ports()

    def choose(server: str, address: str, wanted: int) -> int:
        first = wanted if root else wanted + HIGH_PORT
        if can(address, first):
            return first
        other = wanted + HIGH_PORT if root and can(address, wanted + HIGH_PORT) else free_ports(address, 1)[0]
        ports.notes.append(f"{server}: {address} port {first} is busy or not allowed, {other} is taken instead")
        return other

    for server, (_, address) in FRONT_ENDS.items():
        ports.front[server] = {name: choose(server, address, port) for name, port in FRONT_PORTS.items()}
    for server, (_, address) in MAILBOX_SERVERS.items():
        ports.mail[server] = MailPorts(*(choose(server, address, port) for port in MailPorts()))
        if server != OLD_SERVER:
            ports.web[server] = choose(server, address, FRONT_PORTS["https"])
    return ports


def organization(ports: Ports, secrets: Path, *, builtin: bool) -> Table:
    """The tables of `organization.toml`. `builtin`: mailbox servers are the lab's own, in clear and by master name."""
    servers: Table = {}
    for name, (site, address) in FRONT_ENDS.items():
        endpoints = {endpoint: {"port": port} for endpoint, port in ports.front[name].items()}
        servers[name] = {"site": site, "roles": ["client-access"]}
        servers[name] |= {"fqdn": fqdn(name), "address": address, "endpoints": endpoints}
    for name, (site, address) in MAILBOX_SERVERS.items():
        servers[name] = {
            "site": site,
            "version": "2010" if name == OLD_SERVER else "modern",
            "roles": ["mailbox"],
            "fqdn": fqdn(name),
            "address": address,
            "endpoints": _mailbox_endpoints(name, ports, builtin=builtin),
            "sign_in": _sign_in(name, secrets, builtin=builtin),
        }
    return {
        "organization": {"name": "contoso", "edition": "rtm", "accepted_domains": [DOMAIN]},
        "sites": {
            name: {"subnets": [f"127.0.{n}.0/24"], "internet_facing": facing}
            for n, (name, facing) in enumerate(SITES.items(), 1)
        },
        "site_links": {name: {"sites": name.split("-"), "cost": cost} for name, cost in LINKS.items()},
        "servers": servers,
        "databases": {
            name: {"copies": [{"server": server, "preference": n} for n, server in enumerate(copies, 1)]}
            for name, copies in COPIES.items()
        },
        "virtual_directories": [
            _virtual_directory(name, service, ports) for name in ports.web for service in WEB_SERVICES
        ],
    }


def _mailbox_endpoints(name: str, ports: Ports, *, builtin: bool) -> dict[str, Table]:
    mail = ports.mail[name]
    clear: dict[str, Table] = {
        "imap": {"port": mail.imap, "tls": "clear"},
        "pop3": {"port": mail.pop3, "tls": "clear"},
    }
    if builtin or name == OLD_SERVER:
        endpoints = clear
    elif name == "MBX-02":
        endpoints = {
            "imaps": {"port": mail.imaps_proxy, "client_address": "proxy-v2"},
            "pop3s": {"port": mail.pop3s_proxy, "client_address": "proxy-v2"},
        }
    else:
        tls = "starttls" if name == "MBX-03" else "clear"
        endpoints = {
            "imap": clear["imap"] | {"tls": tls, "client_address": "id"},
            "pop3": clear["pop3"] | {"tls": tls, "client_address": "xclient"},
        }
    web = {"https": {"port": ports.web[name]}} if name in ports.web else {}
    return endpoints | web


def _sign_in(name: str, secrets: Path, *, builtin: bool) -> Table:
    if name == OLD_SERVER:
        return {"form": "user"}
    form = "master-authzid" if name == "MBX-03" and not builtin else "master-name"
    return {
        "form": form,
        "master_user": MASTER_USER,
        "master_password_file": str(secrets / "master"),
        "pipelined": name == "MBX-01" and not builtin,
        "http": "header",
        "http_header": USER_HEADER,
    }


def _virtual_directory(server: str, service: str, ports: Ports) -> Table:
    port = ports.web[server]
    authority = fqdn(server) if port == FRONT_PORTS["https"] else f"{fqdn(server)}:{port}"
    return {
        "server": server,
        "service": service,
        "path": f"/{service}",
        "internal_url": f"https://{authority}/{service}",
        "authentication": ["integrated"],
    }


def front_end(directory: Path, *, user: str) -> Table:
    """The table `front_end` of `gatepost.toml`: one file for all, `--server` says which front end it is."""
    return {
        "server": "CAS-01",
        "organization": "organization.toml",
        "directory": "state/directory.sqlite",
        "registry": "state/registry.sqlite",
        "certificate": "pki/front.crt",
        "private_key": "pki/front.key",
        "server_ca": str(directory / "pki" / "ca.crt"),
        "workers": 2,
        "user": user,
        "limits": {"drain_seconds": 20.0},
    }
