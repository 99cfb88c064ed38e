"""The web part of a lab's mailbox server: pages that show who was let in, and by which way they came.

A process of its own: `python -m gatepost.lab.web_server --name MBX-01 …`. It believes the trusted header, as a mailbox
server behind a front door does, so it listens on loopback only. Browsers get a page, programs (`Accept:
application/json`) the same facts as JSON.
"""

from __future__ import annotations

import argparse
import html
import json
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

IDLE_SECONDS = 120.0
"""A silent connection: longer than the front door keeps idle ones."""
MOST_BODY_BYTES = 10 * 1024 * 1024
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

    def __init__(self, address: tuple[str, int], name: str, site: str, user_header: str, tls: ssl.SSLContext) -> None:
        super().__init__(address, Pages)
        self.name = name
        self.site = site
        self.user_header = user_header
        # The handshake waits for the first read, so that a silent client holds its own thread only.
        self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)


class Pages(BaseHTTPRequestHandler):
    """Any path and method: the facts of the request."""

    server: WebServer
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS

    def _answer(self) -> None:
        size = self._read_body()
        if size is None:
            self.send_error(413)
            return
        facts = self._facts(size)
        if "application/json" in self.headers.get("Accept", ""):
            kind, text = "application/json", json.dumps(facts) + "\n"
        else:
            kind, text = "text/html; charset=utf-8", _page(facts)
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_OPTIONS = do_PROPFIND = do_REPORT = _answer  # noqa: N815 - http.server's names

    def _read_body(self) -> int | None:
        """The body's length, read to its end; None if it is too long."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self._read_chunks()
        size = int(self.headers.get("Content-Length") or 0)
        if size > MOST_BODY_BYTES:
            self.close_connection = True
            return None
        return len(self.rfile.read(size))

    def _read_chunks(self) -> int | None:
        total = 0
        while chunk := int(self.rfile.readline(100).split(b";")[0] or b"0", 16):
            total += chunk
            if total > MOST_BODY_BYTES:
                self.close_connection = True
                return None
            self.rfile.read(chunk)
            self.rfile.readline(10)
        while self.rfile.readline(1000).strip():
            pass
        return total

    def _facts(self, body_bytes: int) -> dict[str, object]:
        way = {name: value for name in WAY_HEADERS if (value := self.headers.get(name)) is not None}
        return {
            "user": self.headers.get(self.server.user_header, ""),
            "mailbox_server": self.server.name,
            "site": self.server.site,
            "method": self.command,
            "path": self.path,
            "body_bytes": body_bytes,
            "from": self.client_address[0],
            "way": way,
        }

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """One line a request, with the user."""
        user = self.headers.get(self.server.user_header, "-") if hasattr(self, "headers") else "-"
        print(f"{self.client_address[0]} {user!r} {format % args}", flush=True)


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
    for option in ("--name", "--site", "--address", "--certificate", "--key"):
        parser.add_argument(option, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user-header", default="X-Remote-User")
    given = parser.parse_args()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(given.certificate, given.key)
    with WebServer((given.address, given.port), given.name, given.site, given.user_header, tls) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
