"""Clients of the HTTP front end: `proving.clients` has what all share."""

from __future__ import annotations

import base64
import json
import time
from contextlib import suppress

from gatepost.proving.clients import Script
from gatepost.proving.connection import ANSWER_SECONDS, Connection, Ended
from gatepost.proving.history import What

HEARTBEAT_SECONDS = 60
"""A long poll."""
PATIENCE_SECONDS = 1.5
"""After a poke: who is still in a long poll then looks for mail on another connection. One begun as the database
moved waits at the new server already, and says nothing until its end."""


class Http(Script):
    """Asks for pages on a connection that stays."""

    path = "/owa"

    async def session(self, connection: Connection) -> bool:
        """As `Script.session`."""
        while not self.stopping.is_set():
            asked = time.monotonic()
            status, headers, body = await self.request(connection, "GET", "/owa")
            if not self.judge(status, body):
                return True
            server = ""
            with suppress(ValueError):
                server = str(json.loads(body).get("mailbox_server", ""))
            self.note(What.OK, server, asked=asked)
            await self.rest(connection, self.look() if server == self.old else self.task.think_seconds)
            if headers.get("connection", "").lower() == "close":
                return False
        return False

    def judge(self, status: int, body: bytes) -> bool:
        """Whether it is a success; if not, it is written down."""
        if status == 200:
            if body.startswith(b"{") and self.task.user.encode() not in body:
                self.note(What.WRONG, detail="somebody else's page")
                return False
            return True
        temporary = status in {502, 503, 504}
        self.note(What.REFUSED if temporary else What.WRONG, detail=f"HTTP {status}")
        return False

    async def request(
        self, connection: Connection, method: str, path: str, body: bytes = b"", seconds: float = 0.0
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers, body. Raises `Ended`, TimeoutError. `seconds`: how long the answer may take besides."""
        word = base64.b64encode(f"{self.task.user}:{self.task.password}".encode()).decode()
        lines = [f"{method} {path} HTTP/1.1", "Host: mail.contoso.com", f"Authorization: Basic {word}"]
        lines += ["Accept: application/json"] if method == "GET" else ["Content-Type: application/vnd.ms-sync.wbxml"]
        lines += ["MS-ASProtocolVersion: 14.1"] if method == "POST" else []
        connection.send("\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body)
        status_line = await self._first_line(connection, seconds)
        headers: dict[str, str] = {}
        while line := await connection.line():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        content = await connection.octets(int(headers.get("content-length", "0")), ANSWER_SECONDS)
        return int(status_line.split()[1]), headers, content

    async def _first_line(self, connection: Connection, seconds: float) -> bytes:
        if not seconds:
            return await connection.line()
        line = await connection.line_or(self.poked, seconds)
        if line is None and self.poked.is_set() and not self.stopping.is_set():
            self.poked.clear()
            line = await connection.line_or(self.stopping, PATIENCE_SECONDS)
            if line is None and not self.stopping.is_set():
                raise _Impatient
        if line is None:
            if self.stopping.is_set():
                raise Ended("stopped")
            raise TimeoutError
        return line


class _Impatient(Exception):
    """The user of a phone looks for mail, whatever it waits for."""


class HttpPoll(Http):
    """A phone: asks what is new, then waits with a long poll for more, and asks again when that ends."""

    async def session(self, connection: Connection) -> bool:
        """As `Script.session`."""
        query = f"User={self.task.user}&DeviceId={self.task.name.replace('_', '')}&DeviceType=Proving"
        while not self.stopping.is_set():
            path = f"/Microsoft-Server-ActiveSync?Cmd=FolderSync&{query}"
            asked = time.monotonic()
            status, headers, body = await self.request(connection, "POST", path, b"\x03\x01\x6a\x00")
            if not self.judge(status, body):
                return True
            self.note(What.OK, headers.get("x-lab-server", ""), asked=asked)
            ping = b"\x03\x01\x6a\x00\x00\x0d\x45\x48\x03%d\x00\x01\x01" % HEARTBEAT_SECONDS
            path = path.replace("FolderSync", "Ping")
            try:
                status, headers, body = await self.request(connection, "POST", path, ping, 2 * HEARTBEAT_SECONDS)
            except _Impatient:
                return False
            except Ended:
                if self.stopping.is_set():
                    return False
                raise
            if not self.judge(status, body):
                return True
            if headers.get("connection", "").lower() == "close":
                return False
        return False
