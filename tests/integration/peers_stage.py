"""Three front ends in three sites for the tests of what is between them, and whoever would like to be a fourth.

    usa, Internet-facing     europe (through a peer)   asia (through a peer)   africa (through a peer)
    CAS-01                   CAS-02                    CAS-03                  CAS-09: in the test, see `Thief`
    MBX-31  alice            MBX-32  bob               MBX-33  carol           MBX-39  mallory, never reached
    EX-31                    EX-32                     EX-33   (2010)

dave's mailbox is on EX-32, or so CAS-01 believes: the directories of CAS-02 and CAS-03 say that it is in the next site.
"""

from __future__ import annotations

import queue
import socket
import ssl
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

from doors import Servers

from gatepost.lab.clients import WebAnswer, web_visit
from gatepost.lab.servers.gatepost import Gatepost, LabUser, import_users, run_gatepost
from gatepost.lab.servers.process import Address, free_ports
from gatepost.lab.toml_text import Table, toml_text

SITES = {"CAS-01": "usa", "CAS-02": "europe", "CAS-03": "asia", "CAS-09": "africa"}
RUNNING = ("CAS-01", "CAS-02", "CAS-03")
ENDPOINTS = ("https", "peer")
USERS = {"alice": "DB31", "bob": "DB32", "carol": "DB33", "mallory": "DB39"}
DAVE = {"CAS-01": "EX-32", "CAS-02": "EX-33", "CAS-03": "EX-31"}
ALPN = "gatepost-peer/1"


class Peers:
    """The front ends as processes, their certificates made as operators make them."""

    def __init__(self, servers: Servers, folder: str = "peers", running: tuple[str, ...] = RUNNING) -> None:
        self.servers = servers
        self.directory = servers.scratch / folder
        self.directory.mkdir(mode=0o711)
        self.addresses = {name: servers.address() for name in SITES}
        self.ports = {name: dict(zip(ENDPOINTS, free_ports(a, 2), strict=True)) for name, a in self.addresses.items()}
        self.pki = self.directory / "pki"
        self.organization = self.directory / "organization.toml"
        self.organization.write_text(toml_text(self._organization()))
        run_gatepost("ca", "init", str(self.pki), "--name", "contoso")
        for name in SITES:
            self.issue(name, self.pki)
        self.context = ssl.create_default_context(cafile=str(servers.authority.certificate))
        self.front_ends = {name: self._front_end(name) for name in running}
        for front_end in self.front_ends.values():
            front_end.start()
        for front_end in self.front_ends.values():
            front_end.wait_ready()

    def issue(self, name: str, authority: Path, *more: str) -> None:
        """`gatepost ca issue`, into the CA's folder."""
        run_gatepost("ca", "issue", name, "-c", str(self.organization), "--ca", str(authority), *more)

    def place(self, name: str, endpoint: str = "https") -> Address:
        """Where a front end listens."""
        return self.addresses[name], self.ports[name][endpoint]

    def visit(self, name: str, user: str, path: str = "/owa/", **options: object) -> WebAnswer:
        """A user's request to a front end's public endpoint."""
        return web_visit(self.place(name), self.context, path, f"{user}@contoso.com", f"{user}-pw", **options)  # type: ignore[arg-type]

    def files(self, name: str, authority: Path | None = None) -> tuple[str, str]:
        """A front end's peer certificate and key."""
        folder = authority or self.pki
        return str(folder / f"{name.lower()}-peer.crt"), str(folder / f"{name.lower()}-peer.key")

    def curl(self, name: str, *options: str) -> tuple[int, str]:
        """curl at the peer endpoint of a front end, which it can verify; exit status and what it prints."""
        address, port = self.place(name, "peer")
        host = f"{name.lower()}.contoso.com"
        argv = ["curl", "-sS", "--max-time", "10", "-i", "--cacert", str(self.pki / "organization-ca.crt")]
        argv += ["--resolve", f"{host}:{port}:{address}", *options, f"https://{host}:{port}/owa/"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
        return done.returncode, done.stdout + done.stderr

    def as_peer(self, to: str, name: str, *lines: str) -> str:
        """A request to the peer endpoint of `to`, shown with the certificate of `name`: the whole response."""
        head = "\r\n".join(["GET /owa/ HTTP/1.1", "Host: mail.contoso.com", "Connection: close", *lines, "", ""])
        with self._connect(to, name) as tls:
            tls.sendall(head.encode())
            got = b""
            while piece := tls.recv(65536):
                got += piece
        return got.decode()

    def shown(self, name: str) -> bytes:
        """The certificate that a front end shows its peers now, DER."""
        with self._connect(name, "CAS-03") as tls:
            certificate = tls.getpeercert(binary_form=True)
        assert certificate is not None
        return certificate

    def _connect(self, to: str, name: str) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=str(self.pki / "organization-ca.crt"))
        context.load_cert_chain(*self.files(name))
        context.set_alpn_protocols([ALPN])
        plain = socket.create_connection(self.place(to, "peer"), timeout=10)
        return context.wrap_socket(plain, server_hostname=f"{to.lower()}.contoso.com")

    def stop(self) -> None:
        """End all of them."""
        for front_end in self.front_ends.values():
            front_end.stop()

    def more(self, name: str) -> Table:
        """More of a front end's table."""
        return {}

    def principal(self, name: str) -> str:
        """A front end's own account; empty: it has none."""
        return ""

    def _front_end(self, name: str) -> Gatepost:
        directory = self.directory / name.lower()
        directory.mkdir(mode=0o711)
        certificate = self.servers.authority.issue(f"peers-{name}", "mail.contoso.com", self.addresses[name])
        peer_certificate, peer_key = self.files(name)
        front_end: Table = {
            "server": name,
            "organization": str(self.organization),
            "directory": str(directory / "directory.sqlite"),
            "registry": str(self.directory / "registry.sqlite"),
            "shared_state": str(self.directory / "shared.sqlite"),
            "certificate": str(certificate.certificate),
            "private_key": str(certificate.private_key),
            "server_ca": str(self.servers.authority.certificate),
            "peer_certificate": peer_certificate,
            "peer_private_key": peer_key,
            "organization_ca": str(self.pki / "organization-ca.crt"),
            "workers": 1,
            "log_requests": True,
            **self.more(name),
        }
        file = directory / "gatepost.toml"
        file.write_text(toml_text({"front_end": front_end}))
        users = [LabUser(f"{user}@contoso.com", f"{user}-pw", database=database) for user, database in USERS.items()]
        users.append(LabUser("dave@contoso.com", "dave-pw", home_server=DAVE[name]))
        import_users(file, users, directory)
        run_gatepost("database", "list", "-c", str(file))  # makes each database active on its first copy
        return Gatepost(name, directory, file, {e: self.place(name, e) for e in ENDPOINTS})

    def _organization(self) -> Table:
        tables: Table = {
            "organization": {"name": "contoso", "accepted_domains": ["contoso.com"]},
            "sites": {site: {"through_peer": True} for site in SITES.values()} | {"usa": {"internet_facing": True}},
            "servers": {},
            "databases": {f"DB3{n}": {"copies": [{"server": f"MBX-3{n}"}]} for n in (1, 2, 3, 9)},
            "virtual_directories": [],
        }
        for name, site in SITES.items():
            ports = self.ports[name]
            tables["servers"][name] = {
                "site": site, "roles": ["client-access"], "address": self.addresses[name],
                "fqdn": f"{name.lower()}.contoso.com", "endpoints": {e: {"port": ports[e]} for e in ENDPOINTS},
                "kerberos_principal": self.principal(name),
            }  # fmt: skip
            url = f"https://{name.lower()}.contoso.com:{ports['peer']}/owa"
            tables["virtual_directories"].append(
                {"server": name, "service": "owa", "internal_url": url, "authentication": ["integrated", "basic"]}
            )
            number = name[-1]
            modern = f"MBX-3{number}"
            for mailbox, version in ((modern, "modern"), (f"EX-3{number}", "2010")):
                web = self.servers.mailbox_web(modern, "modern", site) if name in RUNNING else None
                address, port = (web.address, web.port) if web else ("127.0.0.1", 1)
                tables["servers"][mailbox] = {
                    "site": site, "version": version, "roles": ["mailbox"], "address": address,
                    "fqdn": f"{modern.lower()}.contoso.com", "endpoints": {"https": {"port": port}},
                    "sign_in": {"http": "header"},
                }  # fmt: skip
                inner = f"https://{modern.lower()}.contoso.com:{port}/owa"
                tables["virtual_directories"].append({"server": mailbox, "service": "owa", "internal_url": inner})
        return tables


class Thief:
    """CAS-09: a front end of the organization, with a good certificate, that keeps what others send it."""

    def __init__(self, peers: Peers) -> None:
        self.heads: queue.Queue[str] = queue.Queue()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*peers.files("CAS-09"))
        self._context.set_alpn_protocols([ALPN])
        self._socket = socket.create_server(peers.place("CAS-09", "peer"))
        threading.Thread(target=self._serve, daemon=True).start()

    def assertion(self) -> str:
        """The assertion of the next request that came, without its header's name."""
        head = self.heads.get(timeout=10)
        line = next(line for line in head.split("\r\n") if line.lower().startswith("x-gatepost-assertion:"))
        return line.partition(":")[2].strip()

    def close(self) -> None:
        """Take no more."""
        self._socket.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self._socket.accept()
                with suppress(OSError), self._context.wrap_socket(plain, server_side=True) as tls:
                    self.heads.put(tls.recv(65536).decode())
                    tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-BEServer: MBX-39\r\n\r\nhello")
