"""The web part of a lab's mailbox server: pages that show who was let in, and by which way they came.

A process of its own: `python -m gatepost.lab.web_server --name MBX-01 …`. It believes the trusted header, as a mailbox
server behind a front door does, so it listens on loopback only. Browsers get a page, programs (`Accept:
application/json`) the same facts as JSON. With `--version 2003`, `2007` or `2010` it has that version's paths only.
Phones and programs get answers in their own form where a path has one: see `mailbox_web`.

While the file of `--down-file` exists the service is dead though connections are accepted. Its text says how: `close`
ends each request's connection, `error` answers 500, anything else (nothing, too) never answers.
"""

from __future__ import annotations

import argparse
import base64
import html
import json
import select
import ssl
import time
from binascii import Error as NotBase64
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from gatepost.lab.mailbox_web import RELEASES, SERVER_HEADER, Answer, Request, answer

IDLE_SECONDS = 120.0
"""A silent connection: longer than the front door keeps idle ones."""
MOST_BODY_BYTES = 10 * 1024 * 1024
LONGEST_PING_SECONDS = 120.0
"""What a Ping's heartbeat is cut to."""
DOWN_POLL_SECONDS = 0.1
"""Between two looks whether a dead service lives again."""
WAY_HEADERS = (
    "Host",
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "X-Forwarded-Host",
    "X-Forwarded-Server",
    "X-Request-Id",
    "Via",
)
"""What the page shows of the way a request took."""


class WebServer(ThreadingHTTPServer):
    """Pages of one mailbox server."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        name: str,
        site: str,
        user_header: str,
        tls: ssl.SSLContext | None,
        *,
        version: str = "modern",
        down_file: Path | None = None,
    ) -> None:
        super().__init__(address, Pages)
        self.name = name
        self.site = site
        self.user_header = user_header
        self.version = version
        self.down_file = down_file
        if tls is not None:
            # The handshake waits for the first read, so that a silent client holds its own thread only.
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def down(self) -> str | None:
        """How the service is dead; None while it lives."""
        if self.down_file is not None:
            with suppress(FileNotFoundError):
                return self.down_file.read_text().strip() or "hang"
        return None


class Pages(BaseHTTPRequestHandler):
    """Any path and method: the facts of the request, or the answer that a phone or program wants."""

    server: WebServer
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    wbufsize = 65536
    """Head and body in one write: the second of two would wait for the first one's acknowledgement, 40 ms."""

    def _answer(self) -> None:
        body = self._read_body()
        if body is None:
            self.send_error(413)
            return
        made = self._dead_answer() or self._living_answer(body)
        if made.status == 0 or (made.hold and self._client_left(min(made.hold, LONGEST_PING_SECONDS))):
            self.close_connection = True
            return
        self.send_response(made.status)
        headers = {SERVER_HEADER: self.server.name, "Content-Type": made.kind, "Content-Length": str(len(made.body))}
        for name, value in (headers | made.headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(made.body)

    def _living_answer(self, body: bytes) -> Answer:
        own = answer(self.server.name, self.server.version, Request(self.command, self.path, self._user(), body))
        as_json = "application/json" in self.headers.get("Accept", "")
        if own is not None and (own.status != 200 or not as_json):
            return own
        facts = self._facts(len(body))
        if as_json:
            return Answer(kind="application/json", body=(json.dumps(facts) + "\n").encode())
        return Answer(kind="text/html; charset=utf-8", body=_page(facts).encode())

    def _dead_answer(self) -> Answer | None:
        """None while the service lives, or lives again before the client has given up; status 0: no answer."""
        silent_until = time.monotonic() + IDLE_SECONDS
        while (how := self.server.down()) is not None:
            if how == "error":
                return Answer(500, body=b"The service is dead.\n")
            if how == "close" or time.monotonic() > silent_until or self._client_left(DOWN_POLL_SECONDS):
                return Answer(status=0)
        return None

    def _client_left(self, seconds: float) -> bool:
        """Wait; true, and early, if the client has closed (or says more, which nobody does who waits)."""
        watch = select.poll()
        watch.register(self.connection, select.POLLIN)
        return bool(watch.poll(seconds * 1000))

    def _user(self) -> str:
        """Who the front door says it is, or else who the client says it is (Basic)."""
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        named = ""
        if scheme.casefold() == "basic":
            with suppress(NotBase64, UnicodeDecodeError):
                named = base64.b64decode(given, validate=True).decode().partition(":")[0]
        return self.headers.get(self.server.user_header) or named

    do_DELETE = do_SEARCH = do_MKCOL = _answer  # noqa: N815 - http.server's names
    do_GET = do_HEAD = do_POST = do_PUT = do_OPTIONS = do_PROPFIND = do_REPORT = _answer  # noqa: N815 - http.server's names

    def _read_body(self) -> bytes | None:
        """The body, read to its end; None if it is too long."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self._read_chunks()
        size = int(self.headers.get("Content-Length") or 0)
        if size > MOST_BODY_BYTES:
            self.close_connection = True
            return None
        return self.rfile.read(size)

    def _read_chunks(self) -> bytes | None:
        body = bytearray()
        while size := int(self.rfile.readline(100).split(b";")[0] or b"0", 16):
            if len(body) + size > MOST_BODY_BYTES:
                self.close_connection = True
                return None
            body += self.rfile.read(size)
            self.rfile.readline(10)
        while self.rfile.readline(1000).strip():
            pass
        return bytes(body)

    def _facts(self, body_bytes: int) -> dict[str, object]:
        way = {name: ", ".join(values) for name in WAY_HEADERS if (values := self.headers.get_all(name))}
        return {
            "user": self._user(),
            "mailbox_server": self.server.name,
            "site": self.server.site,
            "version": self.server.version,
            "method": self.command,
            "path": self.path,
            "body_bytes": body_bytes,
            "from": self.client_address[0],
            "way": way,
        }

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """One line a request, with the user."""
        user = self._user() if hasattr(self, "headers") else ""
        print(f"{self.client_address[0]} {user or '-'!r} {format % args}", flush=True)


def _page(facts: dict[str, object]) -> str:
    way = facts["way"]
    assert isinstance(way, dict)
    plain = {key: value for key, value in facts.items() if key != "way"}
    rows = [(key.replace("_", " "), str(value)) for key, value in (plain | way).items()]
    cells = "".join(f"<tr><th>{html.escape(key)}<td>{html.escape(value)}" for key, value in rows)
    title = f"Mailbox of {html.escape(str(facts['user'])) or 'nobody'} on {html.escape(str(facts['mailbox_server']))}"
    style = "body{font:1rem sans-serif;margin:2rem}th{text-align:left;padding-right:2rem;font-weight:normal;color:#555}"
    head = f"<meta charset=utf-8><title>{title}</title><style>{style}</style>"
    return f"<!doctype html><html lang=en>{head}<h1>{title}</h1><table>{cells}</table></html>\n"


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(description="The web part of a lab's mailbox server.")
    for option in ("--name", "--site", "--address"):
        parser.add_argument(option, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--certificate", help="with --key: HTTPS; without both: HTTP")
    parser.add_argument("--key")
    parser.add_argument("--user-header", default="X-Remote-User")
    parser.add_argument("--version", choices=sorted(RELEASES), default="modern")
    parser.add_argument("--down-file", type=Path, help="while it exists, connections are accepted and nothing works")
    given = parser.parse_args()
    tls = None
    if given.certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(given.certificate, given.key)
    more = {"version": given.version, "down_file": given.down_file}
    with WebServer((given.address, given.port), given.name, given.site, given.user_header, tls, **more) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
