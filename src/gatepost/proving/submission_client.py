"""Clients that send mail: `proving.clients` has what all share."""

from __future__ import annotations

import base64
import time
from zlib import crc32

from gatepost.proving.clients import Script
from gatepost.proving.connection import Connection, Ended
from gatepost.proving.history import What
from gatepost.proving.sink import CHECK_FIELD

ENDING = b"421"
"""The server ends the session, whatever it was asked."""
MAX_LINES = 100
"""Of one reply."""


class Submission(Script):
    """Sends messages to its own user, each with a Message-ID of its own. One of which no answer came is not repeated.

    Who answers is known by the last word of the reply to a message: the relay behind the mailbox servers names the one
    that handed it over.
    """

    async def session(self, connection: Connection) -> bool:
        """As `Script.session`."""
        word = base64.b64encode(f"\0{self.task.user}\0{self.task.password}".encode()).decode()
        for command, code in (("", b"220"), ("EHLO client.proving", b"250"), (f"AUTH PLAIN {word}", b"235")):
            if not await self._command(connection, command.encode(), code):
                return True
        self.note(What.SIGNED_IN)
        while not self.stopping.is_set():
            server = await self._submit(connection)
            if server is None:
                return True
            await self.rest(connection, self.look() if server == self.old else self.task.think_seconds)
        connection.send(b"QUIT\r\n")
        return False

    async def _submit(self, connection: Connection) -> str | None:
        """Send one message; the server that took it, None when it is refused."""
        asked = time.monotonic()
        user = self.task.user.encode()
        for command, code in ((b"MAIL FROM:<%b>", b"250"), (b"RCPT TO:<%b>", b"250"), (b"DATA", b"354")):
            if not await self._command(connection, command.replace(b"%b", user), code):
                return None
        identity = f"<{self.task.name}.{time.monotonic_ns()}@proving>"
        connection.send(_message(user, identity) + b".\r\n")
        try:
            reply = await self._reply(connection)
        except (Ended, TimeoutError):
            self.note(What.IN_DOUBT, detail=identity)
            raise
        if not reply.startswith(b"250"):
            self.refused(reply)
            return None
        self.note(What.ACKNOWLEDGED, detail=identity)
        server = reply.split()[-1].decode(errors="replace")
        self.note(What.OK, server, asked=asked)
        return server

    async def _command(self, connection: Connection, command: bytes, code: bytes) -> bool:
        """Say it (if anything) and read the reply; whether that has this code. What has not is written down."""
        if command:
            connection.send(command + b"\r\n")
        reply = await self._reply(connection)
        if reply.startswith(code):
            return True
        self.refused(reply)
        return False

    async def _reply(self, connection: Connection) -> bytes:
        """The last line of a reply. Raises `Ended`, with its words when the server ends the session by 421."""
        for _ in range(MAX_LINES):
            line = await connection.line()
            if line.startswith(ENDING):
                raise Ended(line.decode(errors="replace"))
            if line[3:4] != b"-":
                return line
        raise Ended("a reply without an end")

    def refused(self, line: bytes) -> None:
        """As `Script.refused`: only 4xx means later (RFC 5321, section 4.2.1)."""
        self.note(What.REFUSED if line.startswith(b"4") else What.WRONG, detail=line.decode(errors="replace")[:200])


def _message(user: bytes, identity: str) -> bytes:
    """What follows DATA, without the last dot."""
    body = b"x" * 64 + b"\r\n"
    head = b"From: <%b>\r\nTo: <%b>\r\nSubject: proving\r\nMessage-ID: %b\r\n" % (user, user, identity.encode())
    return head + CHECK_FIELD + b"%08x\r\n\r\n" % crc32(body) + body
