"""A mailbox server's web part for large, slow and unfinished bodies, and a listener that nobody may connect to.

`BodyServer` runs in the tests' process. It believes `X-Remote-User`. By the last segment of the path:

- `download?size=N`: N bytes, chunked;
- `stalled`: a length of `STALLED_BYTES` is announced, `FIRST_BYTES` come, the rest when `release` is set;
- `wait`: the answer comes when `release` is set;
- any other: its body is read and counted, and the count is the answer.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from gatepost.lab.servers.pki import CertificateAuthority
from gatepost.lab.servers.process import Address, free_ports

PIECE = b"0123456789abcdef" * 4096
"""64 KiB."""
FIRST_BYTES = 2 * len(PIECE)
STALLED_BYTES = 100 * len(PIECE)
PROBER = "Gatepost-Health"
"""What probes of front ends say that they are."""
POLL_MILLISECONDS = 20
"""Between two looks at `release`."""
WAIT_SECONDS = 60.0
"""For `release`: tests are over by then."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What came: header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]

    @property
    def front_ends(self) -> list[str]:
        """Names of the front ends that it passed, in order."""
        return [hop.split()[1] for hop in self.headers.get("via", "").split(",") if hop.strip()]


class BodyServer:
    """See above. `requests` are those that came, oldest first, without the probes."""

    def __init__(self, address: str, authority: CertificateAuthority) -> None:
        self.release = threading.Event()
        self.requests: list[Seen] = []
        self.left: list[str] = []
        """Paths of those that were closed while they waited, or before all of their body had come."""
        certificate = authority.issue("big-asia", "big-asia.contoso.com", address)
        self.place: Address = (address, free_ports(address, 1)[0])
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate.certificate, certificate.private_key)
        self._server = _Server(self.place, self)
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more connections."""
        self.release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, place: Address, owner: BodyServer) -> None:
        super().__init__(place, _Handler)
        self.owner = owner

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that leaves in the middle is what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _answer(self) -> None:
        owner = self.server.owner
        seen = {name.lower(): ", ".join(self.headers.get_all(name, [])) for name in self.headers}
        if seen.get("user-agent") != PROBER:
            owner.requests.append(Seen(self.command, self.path, seen))
        url = urlsplit(self.path)
        what = url.path.rpartition("/")[2]
        try:
            size = self._read()
        except (ValueError, OSError, EOFError):
            owner.left.append(self.path)
            self.close_connection = True
            return
        if what == "download":
            self._download(int(parse_qs(url.query)["size"][0]))
        elif what == "stalled":
            self._head("Content-Length", str(STALLED_BYTES))
            self.wfile.write(PIECE * (FIRST_BYTES // len(PIECE)))
            self.wfile.flush()
            owner.release.wait(WAIT_SECONDS)
            self.wfile.write(PIECE * ((STALLED_BYTES - FIRST_BYTES) // len(PIECE)))
        else:
            if what == "wait" and not self._released():
                self.close_connection = True
                return
            body = f"{size} bytes of {self.headers.get('X-Remote-User', 'nobody')}".encode()
            self._head("Content-Length", str(len(body)))
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_OPTIONS = _answer  # noqa: N815 - http.server's names

    def _head(self, name: str, value: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header(name, value)
        self.end_headers()

    def _download(self, size: int) -> None:
        self._head("Transfer-Encoding", "chunked")
        while size:
            piece = PIECE[:size]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            size -= len(piece)
        self.wfile.write(b"0\r\n\r\n")

    def _read(self) -> int:
        """The length of the body, which is not kept."""
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self._skip(int(self.headers.get("Content-Length") or 0))
        total = 0
        while size := int(self.rfile.readline(100).split(b";")[0], 16):
            total += self._skip(size)
            self.rfile.readline(10)
        self.rfile.readline(10)
        return total

    def _released(self) -> bool:
        """Wait for `release`; false, and early, if whoever asked has closed."""
        owner = self.server.owner
        watch = select.poll()
        watch.register(self.connection, select.POLLIN)
        deadline = time.monotonic() + WAIT_SECONDS
        while not owner.release.is_set() and time.monotonic() < deadline:
            if watch.poll(POLL_MILLISECONDS):
                owner.left.append(self.path)
                return False
        return True

    def _skip(self, size: int) -> int:
        left = size
        while left:
            piece = self.rfile.read(min(left, len(PIECE)))
            if not piece:
                raise EOFError
            left -= len(piece)
        return size

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Tests look at `requests`."""


class Canary:
    """A listener on an address of its own and on 127.0.0.1; `visits` are those who connected."""

    def __init__(self, address: str) -> None:
        self.visits: list[Address] = []
        self.places: list[Address] = []
        self._listeners = []
        for host in (address, "127.0.0.1"):
            listener = socket.create_server((host, 0))
            self.places.append(listener.getsockname())
            self._listeners.append(listener)
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, client = listener.accept()
                self.visits.append(client)
                connection.close()

    def close(self) -> None:
        """Listen no more."""
        for listener in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
