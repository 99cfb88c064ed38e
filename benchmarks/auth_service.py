"""The sign-in service that nginx asks: its `auth_http` (mail) and `auth_request` (web) speak to this.

Part of nginx's side of the comparison, so it is made as fast as Python gets: one uvloop process, a protocol without
tasks or streams, heads parsed by httptools. It knows every user's server and password by heart and hashes nothing,
which favours nginx. nginx asks for mail with a new connection each time, for the web over kept-alive ones.

    python auth_service.py ADDRESS PORT MAIL_ADDRESS MAIL_PORT USERS_FILE      # lines of name TAB password
"""

from __future__ import annotations

import asyncio
import base64
import sys
from pathlib import Path
from typing import cast

import httptools
import uvloop

OK_FOR_WEB = b"HTTP/1.1 204 No Content\r\nX-Server: mailbox\r\n\r\n"
REFUSED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"


class SignIns(asyncio.Protocol):
    """One connection of nginx."""

    transport: asyncio.Transport

    def __init__(self, users: dict[bytes, bytes], mail_answer: bytes) -> None:
        self._users = users
        self._mail_answer = mail_answer
        self._parser = httptools.HttpRequestParser(self)
        self._name = self._password = b""
        self._basic = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance

    def data_received(self, data: bytes) -> None:
        """Parse; the callbacks below answer."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Remember what the answer needs."""
        if name == b"Auth-User":
            self._name = value
        elif name == b"Auth-Pass":
            self._password = value
        elif name == b"Authorization":
            self._basic = value

    def on_message_complete(self) -> None:
        """Answer a question of `auth_http` or of `auth_request`."""
        if not self._basic:
            known = self._users.get(self._name) == self._password
            self.transport.write(self._mail_answer if known else REFUSED)
            self.transport.close()
            return
        name, _, password = base64.b64decode(self._basic[6:]).partition(b":")
        self.transport.write(OK_FOR_WEB if self._users.get(name) == password else REFUSED)
        self._basic = b""


async def serve(address: str, port: int, mail_server: tuple[str, int], known: bytes) -> None:
    """Answer until the process is ended."""
    users = {}
    for line in known.splitlines():
        name, _, password = line.partition(b"\t")
        users[name] = password
    answer = (
        f"HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Server: {mail_server[0]}\r\nAuth-Port: {mail_server[1]}\r\n\r\n"
    ).encode()
    server = await asyncio.get_running_loop().create_server(lambda: SignIns(users, answer), address, port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    _, address, port, mail_address, mail_port, users_file = sys.argv
    uvloop.run(serve(address, int(port), (mail_address, int(mail_port)), Path(users_file).read_bytes()))
