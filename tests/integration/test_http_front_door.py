"""HTTPS through a running front door: nginx, Radicale and a WebSocket server behind it, curl in front."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import websockets
from doors import FrontDoor, Servers, missing, start
from websockets.asyncio.server import ServerConnection, serve

from gatepost.lab.servers.gatepost import LabUser
from gatepost.lab.servers.process import ServerMissing, free_ports, require_program
from gatepost.lab.toml_text import Table

MEGABYTE = 1024 * 1024
BIG = 100 * MEGABYTE
FLAT = 24 * MEGABYTE
"""What a worker may grow by while 100 MB pass: high-water marks, reads of 256 KiB, and the allocator's slack."""

USERS = [
    LabUser("alice@contoso.com", "apw", database="DB01", aliases=("alice.a@contoso.com",)),
    LabUser("bob@contoso.com", "bpw", database="DB02"),
    LabUser("carol@contoso.com", "cpw", database="DB03"),
    LabUser("dave@contoso.com", "dpw", database="DB04"),
]


class HttpDoor:
    """A front door and web servers: alice and bob on nginx (header, Basic), carol on Radicale, dave on our own port."""

    def __init__(self, servers: Servers) -> None:
        try:
            require_program("curl", ("curl",))
        except ServerMissing as error:
            missing(error)
        self.servers = servers
        self.upload = servers.scratch / "uploads"
        for path in (self.upload, self.upload / "upload"):  # nginx' account writes there, and so do we
            path.mkdir()
            path.chmod(0o777)
        uploads = (
            f"location /upload/ {{ root {self.upload}; client_max_body_size 200m;"
            f" client_body_temp_path {self.upload}/tmp;"
            " dav_methods PUT; create_full_put_path on; } location = /refused/x { return 401; }"
            " location = /files/moved { return 302 https://web-02.contoso.com:$server_port/files/here; }"
        )
        self.nginx = [servers.nginx("WEB-01", uploads), servers.nginx("WEB-02", uploads)]
        for nginx in self.nginx:
            (nginx.directory / "files" / "name").write_text(nginx.name)
        self.radicale = servers.radicale("DAV-01")
        self.own_address = servers.address()
        self.own_port = free_ports(self.own_address, 1)[0]
        self.door: FrontDoor = start(servers, self._change, USERS)
        self.address, self.port = self.door.addresses["https"]

    def _change(self, front_end: Table, organization: Table) -> None:
        front_end["log_requests"] = True
        web: dict[str, tuple[str, int, str]] = {
            f"WEB-0{i}": (n.address, n.port, f"web-0{i}.contoso.com") for i, n in enumerate(self.nginx, 1)
        }
        web["DAV-01"] = (self.radicale.address, self.radicale.port, "dav-01.contoso.com")
        servers = organization["servers"] = {"CAS-01": organization["servers"]["CAS-01"] | {"fqdn": "mail.contoso.com"}}
        directories = []
        for name, (address, port, fqdn) in web.items():
            sign_in = {"http": "header"} if name == "WEB-01" else {}
            servers[name] = self._server(name, address, fqdn, {"https": {"port": port}}, sign_in)
            paths = ["/dav"] if name == "DAV-01" else ["/files", "/shows", "/upload", "/refused"]
            for path in paths:
                inner = f"https://{fqdn}:{port}" + ("" if path == "/dav" else path)
                directories.append({"server": name, "service": path[1:], "path": path, "internal_url": inner})
        clear = {"http": {"port": self.own_port, "tls": "clear"}}
        servers["OWN-01"] = self._server("OWN-01", self.own_address, "own-01.contoso.com", clear, {})
        url = f"http://own-01.contoso.com:{self.own_port}/own"
        directories.append({"server": "OWN-01", "service": "own", "path": "/own", "internal_url": url})
        organization["virtual_directories"] = directories
        organization["databases"] = {
            f"DB0{n}": {"copies": [{"server": s, "preference": 1}]}
            for n, s in enumerate(("WEB-01", "WEB-02", "DAV-01", "OWN-01"), 1)
        }
        organization["databases"]["DB01"]["copies"].append({"server": "WEB-02", "preference": 2})

    @staticmethod
    def _server(name: str, address: str, fqdn: str, endpoints: Table, sign_in: Table) -> Table:
        made: Table = {"site": "usa", "roles": ["mailbox"], "address": address, "fqdn": fqdn, "endpoints": endpoints}
        return made | ({"sign_in": sign_in} if sign_in else {})

    def curl(self, path: str, *arguments: str, user: str = "alice:apw", data: bytes | None = None) -> str:
        """Run curl against the front door; its output."""
        command = ["curl", "-sS", "--max-time", "60", "--cacert", str(self.door.ca), "--http1.1", *arguments]
        command += ["--resolve", f"mail.contoso.com:{self.port}:{self.address}"]
        if user:
            command += ["-u", user]
        done = subprocess.run([*command, self.url(path)], input=data, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def url(self, path: str) -> str:
        """An address for clients."""
        return f"https://mail.contoso.com:{self.port}{path}"

    def worker_memory(self) -> int:
        """Resident octets of the worker; its peak counts from here (`worker_peak`), without that of password checks."""
        (pid,) = self.door.process.workers()
        Path(f"/proc/{pid}/clear_refs").write_text("5")
        return self._status(pid, "VmRSS")

    def worker_peak(self) -> int:
        """The most that has been resident since."""
        (pid,) = self.door.process.workers()
        return self._status(pid, "VmHWM")

    @staticmethod
    def _status(pid: int, name: str) -> int:
        found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024


@pytest.fixture(scope="module")
def door(servers: Servers) -> Iterator[HttpDoor]:
    """One front door for this module."""
    made = HttpDoor(servers)
    yield made
    made.door.stop()


def shown(text: str) -> dict[str, str]:
    """nginx's page as a table."""
    return {k: v for k, _, v in (line.partition(": ") for line in text.splitlines())}


def test_users_reach_their_own_servers(door: HttpDoor) -> None:
    """Routed by user; one server is told the name in a header, the other gets Basic; aliases work."""
    alice = shown(
        door.curl("/shows/x?y=%20", "-H", "X-Remote-User: bob", "-H", "X-Forwarded-For: 9.9.9.9", user="alice.a:apw")
    )
    assert (alice["server"], alice["path"], alice["x-remote-user"]) == ("WEB-01", "/shows/x?y=%20", "alice@contoso.com")
    assert alice["authorization"] == ""
    assert alice["x-forwarded-for"].startswith("127.")
    assert alice["forwarded"].endswith(f'host="mail.contoso.com:{door.port}";proto=https')
    bob = shown(door.curl("/shows/x", user="bob:bpw"))
    assert (bob["server"], bob["x-remote-user"]) == ("WEB-02", "")
    assert bob["authorization"] == "Basic " + base64.b64encode(b"bob@contoso.com:bpw").decode()


def test_headers_say_who_served(door: HttpDoor) -> None:
    """C14 on a real response."""
    answer = door.curl("/files/name", "-i", user="bob:bpw")
    assert "X-FEServer: CAS-01" in answer
    assert "X-BEServer: WEB-02" in answer
    assert answer.endswith("WEB-02")


def test_wrong_password_and_no_password(door: HttpDoor) -> None:
    """401 with the realm."""
    for user in ("alice:wrong", "nobody:apw", ""):
        answer = door.curl("/files/name", "-i", user=user)
        assert answer.startswith("HTTP/1.1 401 ")
        assert 'WWW-Authenticate: Basic realm="contoso", charset="UTF-8"' in answer


def test_a_servers_401_is_503(door: HttpDoor) -> None:
    """Field case 76, and a line in the log."""
    assert door.curl("/refused/x", "-i").startswith("HTTP/1.1 503 ")
    deadline = time.monotonic() + 5
    reasons: list[str] = []
    while "the server refused our sign-in" not in reasons and time.monotonic() < deadline:
        reasons = [e["reason"] for e in door.door.process.events("http.refused")]
    assert "the server refused our sign-in" in reasons


def test_many_requests_on_one_connection(door: HttpDoor) -> None:
    """curl keeps its connection over requests of several kinds, our own answers among them."""
    urls = [door.url(path) for path in ("/nowhere", "/.well-known/caldav", "/files/name")]
    out = door.curl("/files/name", "-o", "/dev/null", "-w", "<%{num_connects}>", *urls)
    assert re.findall(r"<(\d)>", out) == ["1", "0", "0", "0"]


def test_a_redirect_of_the_server(door: HttpDoor) -> None:
    """The internal host is not shown to the client."""
    answer = door.curl("/files/moved", "-i", user="bob:bpw")
    assert f"Location: https://mail.contoso.com:{door.port}/files/here" in answer


def test_upload_and_download_of_100_mb_in_flat_memory(door: HttpDoor, tmp_path: Path) -> None:
    """With a length and chunked, `Expect: 100-continue` included; the worker's memory stays flat."""
    big = tmp_path / "big"
    piece = hashlib.sha256(b"seed").digest() * (MEGABYTE // 32)
    with big.open("wb") as file:
        for _ in range(BIG // MEGABYTE):
            file.write(piece)
    door.curl("/files/name")
    before = door.worker_memory()
    wanted = hashlib.sha256(big.read_bytes()).hexdigest()
    for number, extra in enumerate(([], ["-H", "Transfer-Encoding: chunked"], ["-H", "Expect: 100-continue"])):
        name = f"/upload/{number}"
        out = door.curl(name, "-T", str(big), "-o", "/dev/null", "-w", "%{http_code}", *extra)
        assert out == "201"
        stored = door.upload / name[1:]
        assert hashlib.sha256(stored.read_bytes()).hexdigest() == wanted
        back = tmp_path / "back"
        assert door.curl(name, "-o", str(back), "-w", "%{http_code}") == "200"
        assert hashlib.sha256(back.read_bytes()).hexdigest() == wanted
        stored.unlink()
    assert door.worker_peak() - before < FLAT


def test_a_slow_reader_costs_no_memory(door: HttpDoor, tmp_path: Path) -> None:
    """A client that reads 100 MB slowly holds the server back, not the front door's memory (field case 22)."""
    stored = door.upload / "upload" / "slow"
    stored.write_bytes(bytes(BIG))
    stored.chmod(0o644)
    door.curl("/files/name")
    before = door.worker_memory()
    out = door.curl("/upload/slow", "--limit-rate", "30m", "-o", "/dev/null", "-w", "%{size_download}")
    assert out == str(BIG)
    assert door.worker_peak() - before < FLAT


def test_calendars(door: HttpDoor) -> None:
    """CalDAV: discovery, a new calendar, an event, MOVE by an absolute destination, a report."""
    found = door.curl("/.well-known/caldav", "-i", user="")
    assert found.startswith(("HTTP/1.1 301 ", "HTTP/1.1 404 "))
    carol = {"user": "carol:cpw"}
    home = "/dav/carol@contoso.com"
    made = door.curl(f"{home}/work/", "-i", "-X", "MKCALENDAR", **carol)
    assert made.startswith("HTTP/1.1 201 ")
    event = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTAMP:20260101T000000Z\r\n"
    event += "DTSTART:20260101T000000Z\r\nSUMMARY:lunch\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    put = door.curl(f"{home}/work/1.ics", "-i", "-X", "PUT", "--data-binary", "@-", data=event.encode(), **carol)
    assert put.startswith("HTTP/1.1 201 ")
    destination = f"Destination: {door.url(home + '/work/2.ics')}"
    moved = door.curl(f"{home}/work/1.ics", "-i", "-X", "MOVE", "-H", destination, **carol)
    assert moved.startswith(("HTTP/1.1 201 ", "HTTP/1.1 204 "))
    assert "SUMMARY:lunch" in door.curl(f"{home}/work/2.ics", **carol)
    listing = door.curl(f"{home}/work/", "-X", "PROPFIND", "-H", "Depth: 1", **carol)
    assert "2.ics" in listing


def test_the_clear_listener_leads_to_https(door: HttpDoor) -> None:
    """No password is asked for in clear."""
    address, port = door.door.addresses["http"]
    url = f"http://{address}:{port}/files/name?x"
    out = subprocess.run(["curl", "-sS", "-i", "-u", "alice:apw", url], capture_output=True, check=True).stdout.decode()
    assert out.startswith("HTTP/1.1 308 ")
    assert f"Location: https://mail.contoso.com:{door.port}/files/name?x" in out


def test_a_moved_database_counts_for_the_next_request(door: HttpDoor) -> None:
    """On one kept connection: before the move one server, right after it the other."""
    assert door.curl("/files/name") == "WEB-01"
    door.door.command("database", "activate", "DB01", "--server", "WEB-02")
    try:
        deadline = time.monotonic() + 5
        while (found := door.curl("/files/name")) != "WEB-02" and time.monotonic() < deadline:
            pass
        assert found == "WEB-02"
    finally:
        door.door.command("database", "activate", "DB01", "--server", "WEB-01")


def test_a_server_that_is_down(door: HttpDoor) -> None:
    """503 with Retry-After for its users; the others and the front door's own answers are not concerned (case 25)."""
    answer = door.curl("/own/x", "-i", user="dave:dpw")
    assert answer.startswith("HTTP/1.1 503 ")
    assert "Retry-After:" in answer
    assert "<clientConfig" in door.curl("/.well-known/autoconfig/mail/config-v1.1.xml", user="")
    assert door.curl("/files/name", user="bob:bpw") == "WEB-02"


# --- a server of our own behind it: what real servers do not do on demand


@asynccontextmanager
async def connected(door: HttpDoor) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A TLS connection to the front door."""
    context = ssl.create_default_context(cafile=str(door.door.ca))
    reader, writer = await asyncio.open_connection(
        door.address, door.port, ssl=context, server_hostname="mail.contoso.com"
    )
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def own_server(door: HttpDoor, handler: Handler) -> AsyncIterator[None]:
    """A server on dave's port that runs `handler` for each connection; both end with the block."""
    ended: list[asyncio.Task[None]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        ended.append(task)
        try:
            await handler(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(handle, door.own_address, door.own_port)
    try:
        yield
    finally:
        server.close()
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)


def request(path: str, method: str = "GET", *lines: str) -> bytes:
    """A request of dave."""
    credentials = base64.b64encode(b"dave:dpw").decode()
    head = [
        f"{method} {path} HTTP/1.1",
        "Host: mail.contoso.com",
        f"Authorization: Basic {credentials}",
        *lines,
        "",
        "",
    ]
    return "\r\n".join(head).encode()


async def test_a_websocket(door: HttpDoor) -> None:
    """RFC 6455 with a real library on both ends: text, 2 MB of octets, a clean close."""

    async def echo(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    context = ssl.create_default_context(cafile=str(door.door.ca))
    async with serve(echo, door.own_address, door.own_port, max_size=None, compression=None):
        credentials = base64.b64encode(b"dave:dpw").decode()
        async with websockets.connect(
            f"wss://mail.contoso.com:{door.port}/own/socket",
            host=door.address,
            ssl=context,
            server_hostname="mail.contoso.com",
            additional_headers={"Authorization": f"Basic {credentials}"},
            max_size=None,
            compression=None,
            proxy=None,
        ) as client:
            await client.send("hello")
            assert await client.recv() == "hello"
            data = bytes(range(256)) * 8192
            await client.send(data)
            assert await client.recv() == data
        assert client.close_code == 1000


async def test_an_event_stream_arrives_event_by_event(door: HttpDoor) -> None:
    """The first octet passes at once; each event before the next one is made; the client's end reaches the server."""
    go, gone = asyncio.Event(), asyncio.Event()

    async def events(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for n in range(3):
            writer.write(b"9\r\ndata: %d\n\n\r\n" % n)
            await go.wait()
            go.clear()
        await reader.read()
        gone.set()

    async with own_server(door, events), connected(door) as (reader, writer):
        writer.write(request("/own/events"))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        assert b"Transfer-Encoding: chunked" in head
        for n in range(3):
            assert await asyncio.wait_for(reader.readexactly(14), 5) == b"9\r\ndata: %d\n\n\r\n" % n
            go.set()
        writer.transport.abort()
        await asyncio.wait_for(gone.wait(), 5)


async def test_pipelined_requests(door: HttpDoor) -> None:
    """Twenty in one write come back in their order, on one connection to the server."""
    connections = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split()[1]
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(path), path))

    async with own_server(door, count), connected(door) as (reader, writer):
        writer.write(b"".join(request(f"/own/{n}") for n in range(20)))
        for n in range(20):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
            length = int(re.search(rb"Content-Length: (\d+)", head)[1])  # type: ignore[index]
            assert await reader.readexactly(length) == b"/own/%d" % n
        assert connections == 1


async def test_expect_without_a_100(door: HttpDoor) -> None:
    """A server that answers at once instead of 100: the client gets the answer and sends no body."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Expect: 100-continue" in head
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await reader.read()

    async with own_server(door, refuse), connected(door) as (reader, writer):
        writer.write(request("/own/x", "PUT", "Expect: 100-continue", "Content-Length: 1000"))
        answer = await asyncio.wait_for(reader.read(), 10)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert answer.endswith(b"no")
        assert b"Connection: close" in answer


async def test_a_client_that_leaves_ends_the_long_poll(door: HttpDoor) -> None:
    """The server sees the end at once, not after an hour (field case 21)."""
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        with suppress(ConnectionResetError):
            await reader.read()
        gone.set()

    async with own_server(door, hold), connected(door) as (_, writer):
        writer.write(request("/own/ping", "POST", "Content-Length: 0"))
        await asyncio.wait_for(arrived.wait(), 5)
        writer.transport.abort()
        await asyncio.wait_for(gone.wait(), 5)
