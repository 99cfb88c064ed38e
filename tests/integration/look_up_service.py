"""A look-up service as an operator would write one: answers in JSON what `docs/directories.md` says."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from gatepost.directory.port import User
from gatepost.lab.servers.process import free_ports

TOKEN = "token-of-the-front-ends"
HELD_SECONDS = 60.0
"""The longest that an answer is held."""


class LookUpService:
    """Users in memory behind HTTP on loopback. `garble` answers in place of the contract's answer."""

    def __init__(self, address: str = "127.0.0.1", *, judges: bool = False) -> None:
        self.port = free_ports(address, 1)[0]
        self.address = address
        self.judges = judges
        self.users: dict[str, dict[str, Any]] = {}
        self.passwords: dict[str, str] = {}
        self.asked: list[str] = []
        self.garble: Callable[[], tuple[int, bytes]] | None = None
        self.going = threading.Event()
        self.going.set()
        """While it is not set, questions are taken and nothing is answered."""
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}/look-up"

    def start(self) -> None:
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                service.going.wait(HELD_SECONDS)
                if self.headers["authorization"] != f"Bearer {TOKEN}":
                    status, answer = 401, b"{}"
                elif service.garble is not None:
                    status, answer = service.garble()
                else:
                    status, answer = 200, json.dumps(service.answer(self.path, body)).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True
            connections: ClassVar[list[socket.socket]] = []

            def process_request(self, request: Any, client_address: Any) -> None:
                self.connections.append(request)
                super().process_request(request, client_address)

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass

        self._server = Server((self.address, self.port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self.going.set()
        server, self._server = self._server, None
        if server is None:
            return
        server.shutdown()
        server.server_close()
        for connection in server.connections:  # type: ignore[attr-defined]
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        server.connections.clear()  # type: ignore[attr-defined]

    def answer(self, path: str, body: dict[str, str]) -> dict[str, Any]:
        name = body["name"]
        self.asked.append(name)
        if path == "/check":
            return {"right": self.passwords.get(name) == body["password"]}
        return {"user": self.users.get(name)}

    def put(self, user: User, addresses: tuple[str, ...] = (), password: str = "") -> None:
        self.remove(user.name)
        told: dict[str, Any] = {
            "name": user.name,
            "protocols": [p.value for p in user.protocols],
            "disabled": user.disabled,
            "login_at_server": user.login_at_server,
            "further": "keys are passed over",
        }
        told |= (
            {"database": user.mailbox.database} if user.mailbox.database else {"home_server": user.mailbox.home_server}
        )
        told |= {"password_version": "1"} if self.judges else {"password_hash": user.password_hash}
        self.passwords[user.name] = password
        for address in (user.name, *addresses):
            self.users[address] = told

    def remove(self, name: str) -> None:
        self.users = {address: told for address, told in self.users.items() if told["name"] != name}
