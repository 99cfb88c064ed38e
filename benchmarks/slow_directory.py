"""A look-up service that takes its time: Gatepost asks it as an HTTP directory, nginx as `auth_http`.

    python slow_directory.py ADDRESS PORT SECONDS HASH MAIL_ADDRESS MAIL_PORT

POST with JSON (Gatepost): `{"name": …}` finds everybody, with HASH; on the path `/check` any password is right. GET
(nginx): any user may sign in, at the mail server. One uvloop process without tasks, heads parsed by httptools.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import cast

import httptools
import uvloop


class Answers(asyncio.Protocol):
    """One connection; questions on it come one after the other."""

    transport: asyncio.Transport

    def __init__(self, seconds: float, password_hash: str, mail_answer: bytes) -> None:
        self._seconds = seconds
        self._hash = password_hash
        self._mail_answer = mail_answer
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._url = self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance

    def data_received(self, data: bytes) -> None:
        """Parse; the callbacks below answer."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.close()

    def on_message_begin(self) -> None:
        """A new question."""
        self._url = self._body = b""

    def on_url(self, url: bytes) -> None:
        """Where it goes."""
        self._url += url

    def on_body(self, body: bytes) -> None:
        """What it says."""
        self._body += body

    def on_message_complete(self) -> None:
        """Answer, in a while."""
        if self._parser.get_method() != b"POST":
            self._loop.call_later(self._seconds, self._say, self._mail_answer, True)
            return
        if self._url.endswith(b"/check"):
            told = {"right": True}
        else:
            user = {"name": json.loads(self._body)["name"], "database": "DB01"}
            told = {"user": user | ({"password_hash": self._hash} if self._hash else {"password_version": "1"})}
        body = json.dumps(told).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._loop.call_later(self._seconds, self._say, head.encode() + body, False)

    def _say(self, answer: bytes, close: bool) -> None:
        self.transport.write(answer)
        if close:
            self.transport.close()


async def serve(address: str, port: int, seconds: float, password_hash: str, mail_server: tuple[str, str]) -> None:
    """Answer until the process is ended."""
    host, number = mail_server
    mail_answer = (f"HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Server: {host}\r\nAuth-Port: {number}\r\n\r\n").encode()
    server = await asyncio.get_running_loop().create_server(
        lambda: Answers(seconds, password_hash, mail_answer), address, port, backlog=4096
    )
    await server.serve_forever()


if __name__ == "__main__":
    _, address, port, seconds, password_hash, *mail_server = sys.argv
    host, number = mail_server
    uvloop.run(serve(address, int(port), float(seconds), password_hash, (host, number)))
