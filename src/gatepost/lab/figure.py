"""The sources' figure as data: three sites, their front ends and mailbox servers, and servers of 2010 and 2003.

    usa (Internet-facing)        europe (Internet-facing)      asia (not Internet-facing)
    CAS-01   127.0.1.1           CAS-02   127.0.2.1            CAS-03 127.0.3.1 and CAS-04 127.0.3.2, an array
    MBX-01   127.0.1.11          MBX-02   127.0.2.11           MBX-03   127.0.3.11
    MBX-04   127.0.1.12          MBX-05   127.0.2.12           EX10-01  127.0.3.21
    EX10-02  127.0.1.21          EX03-01  127.0.2.31
    user1: DB01, user5: EX10-02  user2: DB02, user6: EX03-01   user3: DB03, user4: EX10-01
    user7: DB04, user8: DB05
    HUB-01 HUB-02: see `hubs`

MBX-04 and MBX-05 share one mail directory, as two servers before replicated storage do: what DB04 and DB05 hold is the
same at both, one of them active at a time. CAS-01 and CAS-02 run the active manager. The copies of the other databases
have mail of their own, so that a message tells where it lies.

Every mailbox server is reached in another way, so that the lab shows each: MBX-01 in clear with ID and XCLIENT, MBX-02
by implicit TLS after a PROXY header, MBX-03 by STARTTLS with an authorization identity, EX10-01 with the user's own
password, MBX-04 and MBX-05 as MBX-01. EX10-02 and EX03-01 have web parts only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gatepost.lab import hubs
from gatepost.lab.servers.gatepost import LabUser
from gatepost.lab.servers.ports import MailPorts, SubmissionPorts
from gatepost.lab.servers.process import can_listen, free_ports
from gatepost.lab.toml_text import Table

DOMAIN = "contoso.com"
MASTER_USER = "gatepost"
USER_HEADER = "X-Remote-User"
FRONT_PORTS = {"imap": 143, "imaps": 993, "pop3": 110, "pop3s": 995, "https": 443, "peer": 444}
HIGH_PORT = 1000
"""Added to a port that only root may listen on: 1143, 1993, 1443."""
ACTIVESYNC = "Microsoft-Server-ActiveSync"
WEB_SERVICES = {
    "modern": ("owa", "ews", ACTIVESYNC),
    "2010": ("owa", ACTIVESYNC, "EWS", "AS"),
    "2003": ("exchange", "public", "exchweb", ACTIVESYNC),
}
"""Services of a mailbox server's web part, by its version."""
FRONT_SERVICES = ("owa", ACTIVESYNC, "EWS", "AS")
SITES = {"usa": True, "europe": True, "asia": False}
"""Site to whether it faces the Internet."""
LINKS = {"usa-europe": 10, "usa-asia": 20, "europe-asia": 30}
FRONT_ENDS = {
    "CAS-01": ("usa", "127.0.1.1"),
    "CAS-02": ("europe", "127.0.2.1"),
    "CAS-03": ("asia", "127.0.3.1"),
    "CAS-04": ("asia", "127.0.3.2"),
}
ARRAY = ("CAS-03", "CAS-04")
ARRAY_NAME = f"asia.{DOMAIN}"
MAILBOX_SERVERS = {
    "MBX-01": ("usa", "127.0.1.11"),
    "MBX-02": ("europe", "127.0.2.11"),
    "MBX-03": ("asia", "127.0.3.11"),
    "MBX-04": ("usa", "127.0.1.12"),
    "MBX-05": ("europe", "127.0.2.12"),
    "EX10-01": ("asia", "127.0.3.21"),
    "EX10-02": ("usa", "127.0.1.21"),
    "EX03-01": ("europe", "127.0.2.31"),
}
VERSIONS = {"EX10-01": "2010", "EX10-02": "2010", "EX03-01": "2003"}
"""Servers that are not modern."""
WEB_ONLY = frozenset({"EX10-02", "EX03-01"})
OLD_SERVER = "EX10-01"
PIPELINED = frozenset({"MBX-01", "MBX-04", "MBX-05"})
"""Servers that take a whole sign-in in one write."""
COPIES = {
    "DB01": ("MBX-01", "MBX-02"),
    "DB02": ("MBX-02", "MBX-03"),
    "DB03": ("MBX-03", "MBX-01"),
    "DB04": ("MBX-04", "MBX-05"),
    "DB05": ("MBX-04", "MBX-05"),
}
SHARING = ("MBX-04", "MBX-05")
"""Servers with one mail directory."""
SHARED = ("DB04", "DB05")
"""Databases whose copies share the mail."""
MANAGERS = ("CAS-01", "CAS-02")
"""Front ends that run the active manager."""
USERS = (
    LabUser(f"user1@{DOMAIN}", "first-pw", database="DB01", aliases=(f"anna@{DOMAIN}",)),
    LabUser(f"user2@{DOMAIN}", "second-pw", database="DB02"),
    LabUser(f"user3@{DOMAIN}", "third-pw", database="DB03"),
    LabUser(f"user4@{DOMAIN}", "fourth-pw", home_server=OLD_SERVER),
    LabUser(f"user5@{DOMAIN}", "fifth-pw", home_server="EX10-02"),
    LabUser(f"user6@{DOMAIN}", "sixth-pw", home_server="EX03-01"),
    LabUser(f"user7@{DOMAIN}", "seventh-pw", database="DB04"),
    LabUser(f"user8@{DOMAIN}", "eighth-pw", database="DB05"),
)


def fqdn(server: str) -> str:
    """A server's name in the organization's domain."""
    return f"{server.lower()}.{DOMAIN}"


def external_name(site: str) -> str:
    """The name that clients outside know an Internet-facing site by."""
    return f"www.{site}.{DOMAIN}"


def version(server: str) -> str:
    """A mailbox server's version, as the file spells it."""
    return VERSIONS.get(server, "modern")


@dataclass
class Ports:
    """Who listens where. Standard ports if they can be had, else high ones, else any free one; `notes` say so."""

    front: dict[str, dict[str, int]] = field(default_factory=dict)
    mail: dict[str, MailPorts] = field(default_factory=dict)
    web: dict[str, int] = field(default_factory=dict)
    hubs: dict[str, dict[str, int]] = field(default_factory=dict)
    lmtp: dict[str, int] = field(default_factory=dict)
    submission: dict[str, SubmissionPorts] = field(default_factory=dict)
    """Of mailbox servers that take submissions themselves (`own_submission`); in the lab none."""
    notes: list[str] = field(default_factory=list)


def choose_ports(*, root: bool, can: Callable[[str, int], bool] = can_listen) -> Ports:
    """Ports for every server of the figure. Busy ones are replaced, and noted in a line for each machine."""
    ports = Ports()
    replaced: dict[str, dict[int, int]] = {}

    def choose(server: str, address: str, wanted: int) -> int:
        first = wanted if root else wanted + HIGH_PORT
        if can(address, first):
            return first
        other = wanted + HIGH_PORT if root and can(address, wanted + HIGH_PORT) else free_ports(address, 1)[0]
        replaced.setdefault(f"{server}: {address}", {})[first] = other
        return other

    for server, (_, address) in FRONT_ENDS.items():
        wanted = FRONT_PORTS | (hubs.HUB_PORTS if server in hubs.MAIL_FRONT_ENDS else {})
        ports.front[server] = {name: choose(server, address, port) for name, port in wanted.items()}
    for server, (_, address) in hubs.HUBS.items():
        ports.hubs[server] = {name: choose(server, address, port) for name, port in hubs.HUB_PORTS.items()}
    for server, (_, address) in MAILBOX_SERVERS.items():
        if server not in WEB_ONLY:
            ports.mail[server] = MailPorts(*(choose(server, address, port) for port in MailPorts()))
            if server not in VERSIONS:
                ports.lmtp[server] = choose(server, address, hubs.LMTP_PORT)
        ports.web[server] = choose(server, address, FRONT_PORTS["https"])
    ports.notes += [_note(machine, found) for machine, found in replaced.items()]
    return ports


def _note(machine: str, replaced: dict[int, int]) -> str:
    """The line for the ports of one machine that could not be had."""
    wanted, taken = (", ".join(map(str, ports)) for ports in (replaced.keys(), replaced.values()))
    busy, instead = ("port {} is", "{} is") if len(replaced) == 1 else ("ports {} are", "{} are")
    return f"{machine} {busy.format(wanted)} busy or not allowed, {instead.format(taken)} taken instead"


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
            "version": version(name),
            "roles": ["mailbox"],
            "fqdn": fqdn(name),
            "address": address,
            "endpoints": _mailbox_endpoints(name, ports, builtin=builtin),
            "sign_in": _sign_in(name, secrets, builtin=builtin),
        }
    servers |= hubs.servers(ports.hubs, DOMAIN)
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
        "receive_connectors": hubs.receive_connectors(ports.hubs),
        "send_connectors": hubs.send_connectors(),
        "arrays": {"asia": {"site": "asia", "fqdn": ARRAY_NAME, "members": list(ARRAY)}},
        "virtual_directories": [
            *(_virtual_directory(name, word, ports) for name in ports.web for word in WEB_SERVICES[version(name)]),
            *(_front_directory(name, word, ports) for name in FRONT_ENDS for word in FRONT_SERVICES),
        ],
    }


def _mailbox_endpoints(name: str, ports: Ports, *, builtin: bool) -> dict[str, Table]:
    web: dict[str, Table] = {"https": {"port": ports.web[name]}}
    if name in WEB_ONLY:
        return web
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
    if name in ports.lmtp:
        web["lmtp"] = {"port": ports.lmtp[name], "tls": "clear"}
        web["submission"] = hubs.submission_endpoint(ports.hubs, DOMAIN)
    return endpoints | web


def _sign_in(name: str, secrets: Path, *, builtin: bool) -> Table:
    if name in VERSIONS:
        return {"form": "user", "http": "header", "http_header": USER_HEADER}
    form = "master-authzid" if name == "MBX-03" and not builtin else "master-name"
    return {
        "form": form,
        "master_user": MASTER_USER,
        "master_password_file": str(secrets / "master"),
        "pipelined": name in PIPELINED and not builtin,
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


def _front_directory(front_end: str, service: str, ports: Ports) -> Table:
    """A front end's own: browsers get the sign-in page, peers proxy to it, and Internet-facing ones say their name."""
    site, _ = FRONT_ENDS[front_end]
    port = ports.front[front_end]["https"]
    authority = fqdn(front_end) if port == FRONT_PORTS["https"] else f"{fqdn(front_end)}:{port}"
    table: Table = {
        "server": front_end,
        "service": service,
        "internal_url": f"https://{authority}/{service}",
        "authentication": ["integrated", "basic", "forms"] if service == "owa" else ["integrated", "basic"],
    }
    if SITES[site]:
        outside = external_name(site) if port == FRONT_PORTS["https"] else f"{external_name(site)}:{port}"
        table["external_url"] = f"https://{outside}/{service}"
    return table


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
        "peer_certificate": "pki/peers/{server}-peer.crt",
        "peer_private_key": "pki/peers/{server}-peer.key",
        "organization_ca": "pki/organization/organization-ca.crt",
        "workers": 2,
        "user": user,
        "carry_over_idle": True,
        "limits": {"drain_seconds": 20.0, "move_window_seconds": 0.5},
    }


def manager() -> Table:
    """The table `front_end.manager`: shorter times than the default's, so that nobody waits for a lab."""
    return {
        "lease_seconds": 2.0,
        "probe_seconds": 0.25,
        "failed_seconds": 1.0,
        "refused_seconds": 0.5,
        "failover_pause_seconds": 2.0,
        "failovers_per_hour": 20,
        "retry_seconds": 1.0,
    }
