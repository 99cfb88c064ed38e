"""A real front end before servers that are told how to behave.

Site usa: CAS-01 (Gatepost), and WEB-A, WEB-B: web servers of 2010 mailboxes. Site asia, reached through its own front
ends IMAP-A and IMAP-B only. All but CAS-01 are played by the tests, so that they can hang, break off and die. The
fixture is `start_balanced`.
"""

from __future__ import annotations

import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from doors import Servers
from sites import wait_until

from gatepost.lab.servers.gatepost import Gatepost, LabUser, import_users, write_configuration
from gatepost.lab.servers.process import Address, free_ports
from gatepost.lab.toml_text import Table

OLD, MODERN = "old@contoso.com", "modern@contoso.com"
USERS = [
    LabUser(OLD, "old-pw", home_server="EX-01"),
    LabUser("second@contoso.com", "second-pw", home_server="EX-01"),
    LabUser(MODERN, "modern-pw", database="DB01"),
]
PASSWORDS = {user.name: user.password for user in USERS}
WEB, MAIL = ("WEB-A", "WEB-B"), ("IMAP-A", "IMAP-B")
POISON = "/EWS/poison"
"""A path at which a server breaks off: what one client's broken requests may bring about."""
SECONDS = 15.0


class Played:
    """A server on one port. `mode`: `answer`, `hang` (accepts and says nothing) or `dead` (nobody listens)."""

    def __init__(self, name: str, place: Address, talk: Callable[[Played, socket.socket], None]) -> None:
        self.name = name
        self.place = place
        self.mode = "dead"
        self.talks = 0
        self.hold = threading.Event()
        self.hold.set()
        """Answers wait for it."""
        self._talk = talk
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.become("answer")

    def become(self, mode: str) -> None:
        self.mode = mode
        if mode == "dead":
            self.close()
        elif self._listener is None:
            self._listener = socket.create_server(self.place)
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                self._open.add(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, ValueError), connection:
            if self.mode == "hang":
                connection.recv(1)
                while connection.recv(4096):
                    pass
            else:
                self._talk(self, connection)
        self._open.discard(connection)


def talk_http(server: Played, connection: socket.socket) -> None:
    """One response after the other, naming the server."""
    buffer = b""
    while True:
        while b"\r\n\r\n" not in buffer:
            got = connection.recv(65536)
            if not got:
                return
            buffer += got
        head, _, buffer = buffer.partition(b"\r\n\r\n")
        if server.mode == "hang":
            continue
        method, path = head.split(b" ")[:2]
        if path == POISON.encode():
            return
        if b"healthcheck" not in path:
            server.talks += 1
            server.hold.wait(SECONDS)
        body = b"" if method == b"HEAD" else server.name.encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(server.name), body))


def talk_imap(server: Played, connection: socket.socket) -> None:
    """Lets everybody in; the tagged answer names the server."""
    connection.sendall(b"* OK [CAPABILITY IMAP4rev1 ID SASL-IR AUTH=PLAIN] ready\r\n")
    for line in connection.makefile("rb"):
        tag, _, rest = line.partition(b" ")
        if rest.upper().startswith((b"LOGIN", b"AUTHENTICATE")):
            server.talks += 1
            connection.sendall(b"%b OK [CAPABILITY IMAP4rev1] welcome to %b\r\n" % (tag, server.name.encode()))
        elif rest.upper().startswith(b"LOGOUT"):
            return
        else:
            connection.sendall(b"%b OK done\r\n" % tag)


@dataclass
class Balanced:
    """The front end, its servers, and what clients do."""

    process: Gatepost
    context: ssl.SSLContext
    web: dict[str, Played]
    mail: dict[str, Played]

    def get(
        self, path: str, user: str = OLD, *, client: str = "127.0.0.1", headers: dict[str, str] | None = None
    ) -> tuple[int, str, dict[str, str]]:
        """One request from the address `client`: status, body, fields."""
        connection = HTTPSConnection(
            *self.process.addresses["https"], context=self.context, timeout=SECONDS, source_address=(client, 0)
        )
        try:
            signed = (
                {}
                if not user
                else {"Authorization": "Basic " + b64encode(f"{user}:{PASSWORDS[user]}".encode()).decode()}
            )
            connection.request("GET", path, headers=signed | (headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), dict(answer.getheaders())
        finally:
            connection.close()

    def sign_in(self, *, client: str = "127.0.0.1") -> str:
        """An IMAP sign-in: its tagged answer."""
        place = self.process.addresses["imaps"]
        with (
            socket.create_connection(place, timeout=SECONDS, source_address=(client, 0)) as clear,
            self.context.wrap_socket(clear, server_hostname=place[0]) as secure,
            secure.makefile("rwb") as file,
        ):
            file.readline()
            file.write(f"a LOGIN {MODERN} {PASSWORDS[MODERN]}\r\n".encode())
            file.flush()
            line = b""
            while not line.startswith(b"a "):
                line = file.readline()
                assert line, "closed"
            return line.decode()

    def taken_by(self) -> set[str]:
        """The servers that a few sign-ins went to."""
        answers = [self.sign_in() for _ in range(4)]
        return {name for name in MAIL for answer in answers if name in answer}

    def changes(self, server: str) -> list[tuple[str, str]]:
        """What the front end said of a server: up or down, and from what it knew."""
        return [
            (entry["event"], entry["source"])
            for entry in self.process.events()
            if entry["event"] in {"server.down", "server.up"} and entry["server"] == server
        ]

    def wait_for(self, server: str, event: str) -> None:
        wait_until(
            lambda: [word for word, _ in self.changes(server)][-1:] == [event],
            SECONDS,
            f"{event} {server}\n{self.process.log_tail()}",
        )


Start = Callable[..., Balanced]


def organization(address: str, front: dict[str, int], places: dict[str, Address]) -> Table:
    servers: Table = {
        "CAS-01": {
            "site": "usa", "roles": ["client-access"], "address": address,
            "endpoints": {name: {"port": port} for name, port in front.items()},
        },
        "EX-01": {"site": "usa", "version": "2010", "roles": ["mailbox"], "address": address},
        "MBX-01": {
            "site": "asia", "roles": ["mailbox"], "address": address,
            "endpoints": {"imap": {"port": 1, "tls": "clear"}},
        },
    }  # fmt: skip
    for name in WEB:
        servers[name] = {
            "site": "usa", "version": "2010", "roles": ["client-access"], "address": places[name][0],
            "endpoints": {"http": {"port": places[name][1], "tls": "clear"}},
        }  # fmt: skip
    for name in MAIL:
        servers[name] = {
            "site": "asia", "roles": ["client-access"], "address": places[name][0],
            "endpoints": {"imap": {"port": places[name][1], "tls": "clear"}},
        }  # fmt: skip
    return {
        "organization": {"name": "contoso", "accepted_domains": ["contoso.com"]},
        "sites": {"usa": {"internet_facing": True}, "asia": {"through_peer": True}},
        "servers": servers,
        "databases": {"DB01": {"copies": [{"server": "MBX-01"}]}},
        "virtual_directories": [
            {"server": name, "service": service, "internal_url": f"http://{name.lower()}:{places[name][1]}/{service}"}
            for name in WEB
            for service in ("owa", "EWS", "AS")
        ],
    }


@pytest.fixture(name="start_balanced")
def start(servers: Servers, tmp_path: Path) -> Iterator[Start]:
    """Start the front end with other limits; `proxied`: clients come with PROXY headers. All ends after the test."""
    ends: list[Callable[[], Any]] = []

    def begin(*, proxied: bool = False, **limits: float) -> Balanced:
        address = servers.address()
        front = dict(zip(("https", "imaps"), free_ports(address, 2), strict=True))
        played = servers.address()
        places = {name: (played, port) for name, port in zip((*WEB, *MAIL), free_ports(played, 4), strict=True)}
        web = {name: Played(name, places[name], talk_http) for name in WEB}
        mail = {name: Played(name, places[name], talk_imap) for name in MAIL}
        certificate = servers.authority.issue(f"balanced-{front['https']}", "cas-01.contoso.com", address)
        table: Table = {
            "server": "CAS-01", "workers": 1, "log_requests": True,
            "directory": str(tmp_path / "directory.sqlite"), "registry": str(tmp_path / "registry.sqlite"),
            "certificate": str(certificate.certificate), "private_key": str(certificate.private_key),
            "limits": {
                "probe_seconds": 60.0, "connect_seconds": 1.0, "server_step_seconds": 1.0,
                "refused_sign_in_delay_seconds": 0.1, "drain_seconds": 1.0,
            } | limits,
            "proxy_protocol_from": ["127.0.0.0/8"] if proxied else [],
        }  # fmt: skip
        file = write_configuration(tmp_path / "cas-01.toml", table, organization(address, front, places))
        import_users(file, USERS, tmp_path)
        process = Gatepost("CAS-01", tmp_path / "run", file, {name: (address, port) for name, port in front.items()})
        ends.extend((process.stop, *(server.close for server in (*web.values(), *mail.values()))))
        process.start()
        process.wait_ready()
        context = ssl.create_default_context(cafile=str(servers.authority.certificate))
        process.wait_for_event("worker.ready")
        return Balanced(process, context, web, mail)

    yield begin
    for end in ends:
        end()
