"""Clients that work as users' programs do, and write down what they meet (`history.Event`).

Each runs its script until told to stop: it signs in, works, and signs in again when its connection has ended. A poke
makes it act at once, a moment apart from the others: the parent pokes when a database has become active elsewhere.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from gatepost.proving.connection import Address, Connection, Ended, Signal
from gatepost.proving.history import Event, What

BACK_SECONDS = 0.2
"""At most, from the end of a connection until a client connects again."""
LATER_SECONDS = 0.5
"""At least, after being told to come back later; at most twice that."""
POKE_SECONDS = 0.5
"""Over which clients act after a poke."""
LOOK_SECONDS = 0.3
"""A client that the old server still answered asks again after so long, or after a quarter of the time that has passed
since the poke: who waits for long must not be what everybody waits for."""
TEMPORARY = (b"[UNAVAILABLE]", b"[INUSE]", b"[LIMIT]", b"[SYS/TEMP]", b"[IN-USE]", b"[LOGIN-DELAY]", b"[ALERT]")
"""What tells a client to come back later, in IMAP (RFC 5530) and POP3 (RFC 3206)."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one client is to do. `think_seconds`: between two actions."""

    name: str
    kind: str
    user: str
    password: str
    database: str
    address: Address
    think_seconds: float
    ramp_seconds: float
    """Over which all clients begin."""


class Script(ABC):
    """One client."""

    def __init__(self, task: Task, tls: ssl.SSLContext, note: Callable[[Event], None]) -> None:
        self.task = task
        self.tls = tls
        self._note = note
        self.number = 0
        self.poked = Signal()
        self.old = ""
        """The server that the database has left, by the last poke."""
        self.poked_at = 0.0
        self.stopping = Signal()
        self.chance = random.Random(task.name)  # noqa: S311 - jitter

    def note(self, what: What, server: str = "", detail: str = "", asked: float = 0.0) -> None:
        """Write down."""
        self._note(Event(time.monotonic(), self.task.name, what.value, self.number, server, detail, asked))

    def poke(self, old: str) -> None:
        """Act now."""
        self.old = old
        self.poked_at = time.monotonic()
        self.poked.set()

    def look(self) -> float:
        """Seconds until the next question whether it is the new server that answers."""
        return max(LOOK_SECONDS, (time.monotonic() - self.poked_at) / 4)

    def stop(self) -> None:
        """End after what is under way."""
        self.stopping.set()
        self.poked.set()

    async def run(self) -> None:
        """Until stopped."""
        await self.pause(self.chance.uniform(0, self.task.ramp_seconds), pokes=False)
        while not self.stopping.is_set():
            self.number += 1
            connection = None
            wait = self.chance.uniform(0, BACK_SECONDS)
            try:
                connection = await Connection.open(self.task.address, self.tls)
                if await self.session(connection):
                    wait = LATER_SECONDS * self.chance.uniform(1, 2)
            except Ended as end:
                self.note(What.ENDED, detail=str(end)[:200])
            except TimeoutError:
                self.note(What.WRONG, detail="no answer in time")
            except OSError as fault:
                self.note(What.ENDED, detail=type(fault).__name__)
            finally:
                if connection is not None:
                    connection.close()
            await self.pause(wait, pokes=False)

    async def pause(self, seconds: float, *, pokes: bool = True) -> None:
        """Wait, less when poked (if `pokes`) or stopped."""
        await (self.poked if pokes else self.stopping).wait(seconds)
        if pokes and self.poked.is_set() and not self.stopping.is_set():
            self.poked.clear()
            await self.pause(self.chance.uniform(0, POKE_SECONDS), pokes=False)

    async def rest(self, connection: Connection, seconds: float, *, pokes: bool = True) -> None:
        """As `pause`, with an open connection, whose end is noticed at once as programs do. Raises `Ended`."""
        event = self.poked if pokes else self.stopping
        deadline = asyncio.get_running_loop().time() + seconds
        while (line := await connection.line_or(event, deadline - asyncio.get_running_loop().time())) is not None:
            if line.startswith(b"* BYE") or not line.startswith(b"* "):
                raise Ended(line.decode(errors="replace"))
        if pokes and self.poked.is_set() and not self.stopping.is_set():
            self.poked.clear()
            await self.rest(connection, self.chance.uniform(0, POKE_SECONDS), pokes=False)

    @abstractmethod
    async def session(self, connection: Connection) -> bool:
        """Work on one connection; true when the server said to come back later. Raises `Ended`, TimeoutError."""

    def refused(self, line: bytes) -> None:
        """Write a refusal down: for later, or of a wrong kind."""
        temporary = any(code in line.upper() for code in TEMPORARY)
        self.note(What.REFUSED if temporary else What.WRONG, detail=line.decode(errors="replace")[:200])


class Imap(Script):
    """What both IMAP scripts share."""

    def __init__(self, task: Task, tls: ssl.SSLContext, note: Callable[[Event], None]) -> None:
        super().__init__(task, tls, note)
        self._tags = itertools.count(1)
        self._validity = b""
        self._least = 0
        """Messages that must be there: as many as this client knows to be stored."""

    async def command(self, connection: Connection, text: str) -> tuple[bytes, list[bytes]]:
        """The tagged answer without its tag, and the lines before it. Raises `Ended`."""
        tag = b"p%d " % next(self._tags)
        connection.send(tag + text.encode() + b"\r\n")
        return await self.answer(connection, tag)

    async def answer(self, connection: Connection, tag: bytes) -> tuple[bytes, list[bytes]]:
        """As `command`, of one that has been sent."""
        lines: list[bytes] = []
        while True:
            line = await connection.line()
            if line.startswith(tag):
                return line[len(tag) :], lines
            if line.startswith(b"* BYE"):
                raise Ended(line.decode(errors="replace"))
            lines.append(line)

    async def sign_in(self, connection: Connection) -> bool:
        """Sign in and select; whether that went well."""
        greeting = await connection.line()
        if not greeting.startswith(b"* OK"):
            self.refused(greeting)
            return False
        answer, _ = await self.command(connection, f'LOGIN "{self.task.user}" "{self.task.password}"')
        if not answer.startswith(b"OK"):
            self.refused(answer)
            return False
        self.note(What.SIGNED_IN)
        answer, lines = await self.command(connection, "SELECT INBOX")
        if not answer.startswith(b"OK"):
            self.refused(answer)
            return False
        self._same_mailbox(lines)
        return await self.where(connection) is not None

    def _same_mailbox(self, lines: list[bytes]) -> None:
        validity = next((line for line in lines if b"UIDVALIDITY" in line), b"")
        exists = next((int(line.split()[1]) for line in lines if line.endswith(b" EXISTS")), 0)
        if self._validity and validity != self._validity:
            self.note(What.WRONG, detail="another mailbox: UIDVALIDITY has changed")
        if exists < self._least:
            self.note(What.WRONG, detail="messages are missing in the mailbox")
        self._validity, self._least = validity, max(exists, self._least)

    async def where(self, connection: Connection) -> str | None:
        """Ask who answers, which is written down as a success; None when it is refused."""
        asked = time.monotonic()
        answer, lines = await self.command(connection, "ID NIL")
        if not answer.startswith(b"OK"):
            self.refused(answer)
            return None
        words = next((line for line in lines if line.startswith(b"* ID ")), b"").split(b'"')
        server = words[3].decode() if len(words) > 3 else ""
        self.note(What.OK, server, asked=asked)
        return server


class ImapIdle(Imap):
    """Idles. When poked it ends IDLE and asks who answers, until that is another server than the old one."""

    async def session(self, connection: Connection) -> bool:
        """As `Script.session`."""
        if not await self.sign_in(connection):
            return True
        while not self.stopping.is_set():
            tag = b"i%d " % next(self._tags)
            connection.send(tag + b"IDLE\r\n")
            line = await connection.line()
            while not line.startswith(b"+"):
                self._bye(line)
                line = await connection.line()
            while not self.poked.is_set():
                heard = await connection.line_or(self.poked)
                if heard is not None:
                    self._bye(heard)
            await self.rest(connection, 0)
            connection.send(b"DONE\r\n")
            answer, _ = await self.answer(connection, tag)
            if not answer.startswith(b"OK"):
                self.refused(answer)
                return True
            if await self.where(connection) == self.old and self.old:
                await self.rest(connection, self.look(), pokes=False)
                self.poked.set()
        connection.send(b"z LOGOUT\r\n")
        return False

    def _bye(self, line: bytes) -> None:
        if line.startswith(b"* BYE"):
            raise Ended(line.decode(errors="replace"))


class ImapBusy(Imap):
    """Stores messages, each with a Message-ID of its own. One of which no answer came is not stored again."""

    async def session(self, connection: Connection) -> bool:
        """As `Script.session`."""
        if not await self.sign_in(connection):
            return True
        while not self.stopping.is_set():
            if not await self._append(connection):
                return True
            server = await self.where(connection)
            if server is None:
                return True
            await self.rest(connection, self.look() if server == self.old else self.task.think_seconds)
        connection.send(b"z LOGOUT\r\n")
        return False

    async def _append(self, connection: Connection) -> bool:
        identity = f"<{self.task.name}.{time.monotonic_ns()}@proving>"
        text = f"Message-ID: {identity}\r\nSubject: proving\r\n\r\n{'x' * 200}\r\n".encode()
        tag = b"a%d " % next(self._tags)
        connection.send(tag + b"APPEND INBOX {%d}\r\n" % len(text))
        line = await connection.line()
        while not line.startswith((b"+", tag)):
            if line.startswith(b"* BYE"):
                raise Ended(line.decode(errors="replace"))
            line = await connection.line()
        if not line.startswith(b"+"):
            self.refused(line)
            return False
        connection.send(text + b"\r\n")
        try:
            answer, _ = await self.answer(connection, tag)
        except (Ended, TimeoutError):
            self.note(What.IN_DOUBT, detail=identity)
            raise
        if not answer.startswith(b"OK"):
            self.refused(answer)
            return False
        self.note(What.ACKNOWLEDGED, detail=identity)
        return True


class Pop3(Script):
    """Fetches mail, stays for a while, leaves, and comes again."""

    async def session(self, connection: Connection) -> bool:
        """As `Script.session`."""
        for command in ("", f"USER {self.task.user}", f"PASS {self.task.password}", "STAT", "TOP 1 0"):
            if not await self._command(connection, command):
                return True
            if command.startswith("PASS"):
                self.note(What.SIGNED_IN)
        self.note(What.OK)
        for _ in range(3):
            await self.rest(connection, self.task.think_seconds)
            if self.stopping.is_set():
                break
            if not await self._command(connection, "NOOP"):
                return True
            self.note(What.OK)
        await self._command(connection, "QUIT")
        return False

    async def _command(self, connection: Connection, text: str) -> bool:
        if text:
            connection.send(text.encode() + b"\r\n")
        line = await connection.line()
        if not line.startswith(b"+OK"):
            self.refused(line)
            return False
        if text.startswith("TOP"):
            while await connection.line() != b".":
                pass
        return True
