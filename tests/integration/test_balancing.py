"""A real front end before servers that are told how to behave: who is asked next, who is out, who comes back (B4, B7).

Site usa: CAS-01 (Gatepost), and WEB-A, WEB-B: web servers of 2010 mailboxes. Site asia, reached through its own front
ends IMAP-A and IMAP-B only. All but CAS-01 are played by this test, so that they can hang, break off and die.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
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


@pytest.fixture
def start(servers: Servers, tmp_path: Path) -> Iterator[Start]:
    """Start the front end with other limits; everything ends after the test."""
    ends: list[Callable[[], Any]] = []

    def begin(**limits: float) -> Balanced:
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


# --- IMAP through the front ends of another site


def test_a_mail_server_that_accepts_and_hangs_is_passed_over_and_leaves_the_rotation(start: Start) -> None:
    """Field case 113 and B7: the machine answers, its service does not; clients of the others notice nothing."""
    balanced = start()
    assert balanced.taken_by() == set(MAIL)
    balanced.mail["IMAP-A"].become("hang")
    for client in ("127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3"):  # each has a turn at IMAP-A
        assert "IMAP-B" in balanced.sign_in(client=client)
    balanced.wait_for("IMAP-A", "server.down")
    assert balanced.changes("IMAP-A")[-1] == ("server.down", "requests")
    began = time.monotonic()
    assert all("IMAP-B" in balanced.sign_in() for _ in range(4))
    assert time.monotonic() - began < 1.0, "it is not even tried"


def test_all_mail_servers_down_and_back(start: Start) -> None:
    """A temporary fault, never a wrong password; found dead and found back by probes, in real use again."""
    balanced = start(probe_seconds=0.3)
    assert balanced.sign_in().startswith("a OK ")
    for server in balanced.mail.values():
        server.become("dead")
    answer = balanced.sign_in()
    assert answer.startswith("a NO [UNAVAILABLE]"), answer
    for name in MAIL:
        balanced.wait_for(name, "server.down")
    assert balanced.sign_in().startswith("a NO [UNAVAILABLE]")
    for server in balanced.mail.values():
        server.become("answer")
    for name in MAIL:
        balanced.wait_for(name, "server.up")
    assert balanced.taken_by() == set(MAIL)


def test_with_all_mail_servers_down_the_first_who_answers_is_taken_before_any_probe(start: Start) -> None:
    """Half open: real sign-ins go on asking."""
    balanced = start()
    for server in balanced.mail.values():
        server.become("dead")
    for client in ("127.0.0.2", "127.0.0.3"):
        balanced.sign_in(client=client)
    for name in MAIL:
        balanced.wait_for(name, "server.down")
        balanced.mail[name].become("answer")
    assert balanced.sign_in().startswith("a OK ")


# --- the web


def test_one_client_alone_cannot_mark_a_server_down(start: Start) -> None:
    """Field case 105: servers break off on what one client sends; everybody else stays where they were."""
    balanced = start()
    _, kept, fields = balanced.get("/owa/", "second@contoso.com", client="127.0.0.7")
    cookie = {"Cookie": fields["Set-Cookie"].partition(";")[0]}
    for _ in range(20):
        assert balanced.get(POISON, client="127.0.0.66")[0] == 503
        status, server, _ = balanced.get("/owa/", "second@contoso.com", client="127.0.0.7", headers=cookie)
        assert (status, server) == (200, kept)
    assert [balanced.changes(name) for name in WEB] == [[], []]


def test_two_clients_can_and_only_for_that_service(start: Start) -> None:
    """With no success between; Outlook Web App of the same server goes on (B7)."""
    balanced = start()
    for client in ("127.0.0.66", "127.0.0.67"):
        balanced.get(POISON, client=client)
    for name in WEB:
        balanced.wait_for(name, "server.down")
    downs = [entry["service"] for entry in balanced.process.events("server.down")]
    assert sorted(downs) == ["ews", "ews"]
    assert {balanced.get("/AS/")[1] for _ in range(4)} == set(WEB)


def test_a_dead_web_server_is_passed_over_found_dead_and_taken_back(start: Start) -> None:
    balanced = start(probe_seconds=0.3)
    assert {balanced.get("/AS/")[1] for _ in range(4)} == set(WEB)
    balanced.web["WEB-A"].become("dead")
    assert [balanced.get("/AS/")[:2] for _ in range(4)] == [(200, "WEB-B")] * 4
    balanced.wait_for("WEB-A", "server.down")
    balanced.web["WEB-A"].become("answer")
    balanced.wait_for("WEB-A", "server.up")
    assert {balanced.get("/AS/")[1] for _ in range(4)} == set(WEB)


def test_past_the_bound_of_requests_one_waits_briefly_and_hears_that_it_is_busy(start: Start) -> None:
    """SPEC B4: 503 with Retry-After, after no more than the wait; the request under way is not disturbed."""
    balanced = start(http_requests=1)
    for server in balanced.web.values():
        server.hold.clear()
    found: list[tuple[int, str, dict[str, str]]] = []
    first = threading.Thread(target=lambda: found.append(balanced.get("/owa/")))
    first.start()
    wait_until(lambda: sum(server.talks for server in balanced.web.values()) == 1, SECONDS, "the first is at a server")
    began = time.monotonic()
    status, _, fields = balanced.get("/owa/", "second@contoso.com")
    assert 1.0 < time.monotonic() - began < 5.0
    assert (status, "Retry-After" in fields) == (503, True)
    for server in balanced.web.values():
        server.hold.set()
    first.join(SECONDS)
    assert found[0][0] == 200


# --- the balancer in front


def test_the_health_page_follows_the_service(start: Start) -> None:
    """SPEC V2: per service, without a sign-in, in the source system's words; 503 names no host."""
    balanced = start(probe_seconds=0.3)
    page = lambda service="owa": balanced.get(f"/{service}/healthcheck.htm", "")  # noqa: E731
    assert page()[:2] == (200, "200 OK<br/>cas-01")
    for server in balanced.web.values():
        server.become("dead")
    wait_until(lambda: page("AS")[0] == 503, SECONDS, "503")
    status, text, fields = page("AS")
    assert (status, "Retry-After" in fields) == (503, True)
    assert "web-" not in text.lower()
    for server in balanced.web.values():
        server.become("answer")
    wait_until(lambda: page("AS")[0] == 200, SECONDS, "200 again")


def test_the_health_page_of_a_front_end_without_its_directory_is_503(start: Start, tmp_path: Path) -> None:
    """Nobody could sign in there: the balancer in front must send them elsewhere."""
    balanced = start()
    assert balanced.get("/owa/healthcheck.htm", "")[0] == 200
    (tmp_path / "directory.sqlite").rename(tmp_path / "gone")
    wait_until(lambda: balanced.get("/owa/healthcheck.htm", "")[0] == 503, SECONDS, "503")
    (tmp_path / "gone").rename(tmp_path / "directory.sqlite")
    wait_until(lambda: balanced.get("/owa/healthcheck.htm", "")[0] == 200, SECONDS, "200")
