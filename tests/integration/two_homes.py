"""Two mailbox servers that share the mail of a database, one of them active at a time, and clients of all kinds."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from doors import ACCOUNTS, FrontDoor, Servers, dovecot_tables, start

from gatepost.lab.servers.dovecot import Dovecot
from gatepost.lab.servers.gatepost import LabUser
from gatepost.lab.servers.process import free_ports
from gatepost.lab.toml_text import Table

A, B = "MBX-A", "MBX-B"
MOVES, STAYS = "DB11", "DB12"
USERS = [
    LabUser("alice@contoso.com", "apw", database=MOVES),
    LabUser("carol@contoso.com", "cpw", database=MOVES),
    LabUser("bob@contoso.com", "bpw", database=STAYS),
]
SECONDS = 20.0
"""For one answer, on a machine that runs other tests as well."""
MANY = """
default_process_limit = 1000
service imap {
  process_limit = 1000
}
service auth {
  client_limit = 4000
}
protocol imap {
  mail_plugins = $mail_plugins imap_zlib
}
"""
"""Hundreds of sessions, and COMPRESS."""
PHONES = "/Microsoft-Server-ActiveSync"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


class Homes:
    """A front door before both servers; `MOVES` begins at A, `STAYS` is at B."""

    def __init__(self, servers: Servers, **limits: float) -> None:
        suffix = servers.address().rpartition(".")[2]
        self.servers = {name: self._dovecot(servers, f"{name}{suffix}") for name in (A, B)}
        mail = [server.directory / "mail" for server in self.servers.values()]
        shutil.rmtree(mail[1])
        mail[1].symlink_to(mail[0])
        self.webs = {name: (server.address, free_ports(server.address, 1)[0]) for name, server in self.servers.items()}
        self.limits = limits
        self.door: FrontDoor

    @staticmethod
    def _dovecot(servers: Servers, directory: str) -> Dovecot:
        found = servers.new_dovecot(directory, servers.address(), MANY)
        found.start()
        found.wait_ready()
        return found

    def change(self, front_end: Table, organization: Table) -> None:
        """Both servers and databases, in the tables of the front door."""
        front_end["workers"] = 2
        front_end["allow_clear_passwords"] = True
        front_end["limits"] |= self.limits
        directories = organization.setdefault("virtual_directories", [])
        for name, server in self.servers.items():
            table = dovecot_tables(server, tls=False)
            address, port = self.webs[name]
            table["endpoints"]["http"] = {"port": port, "tls": "clear", "address": address}
            organization["servers"][name] = table
            directories += [
                {
                    "server": name,
                    "service": path[1:],
                    "path": path,
                    "internal_url": f"http://{server.address}:{port}{path}",
                }
                for path in ("/owa", PHONES)
            ]
        organization["databases"] |= {
            MOVES: {"copies": [{"server": A, "preference": 1}, {"server": B, "preference": 2}]},
            STAYS: {"copies": [{"server": B, "preference": 1}, {"server": A, "preference": 2}]},
        }

    def move(self, server: str = B) -> float:
        """Activate the copy at `server`; when that was done, by the monotonic clock."""
        self.door.command("database", "activate", MOVES, "--server", server)
        return time.monotonic()

    async def sessions(self, *words: str) -> dict[str, Any]:
        """What `sessions list --json` says."""
        output = await asyncio.to_thread(self.door.command, "sessions", "list", "--json", *words)
        found: dict[str, Any] = json.loads(output)
        return found

    def stop(self) -> None:
        self.door.stop()
        for server in self.servers.values():
            server.stop()


@contextmanager
def homes(servers: Servers, kind: type[Homes] = Homes, **limits: float) -> Iterator[Homes]:
    """Both servers and the door, stopped at the end."""
    made = kind(servers, **limits)
    try:
        made.door = start(servers, made.change, USERS)
        yield made
        made.door.stop()
    finally:
        for server in made.servers.values():
            server.stop()


class Imap:
    """An IMAP client in clear. It fails loudly when something takes too long."""

    everyone: ClassVar[list[Imap]] = []
    """All clients of a test, for its end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.number = 0
        self.everyone.append(self)

    @classmethod
    async def sign_in(cls, door: FrontDoor, user: str) -> Imap:
        """A session of a user."""
        client = cls(*await asyncio.open_connection(*door.addresses["imap"], limit=1 << 24))
        await client.line()
        assert b" OK" in await client.ask(f"LOGIN {user} {ACCOUNTS[user]}")
        return client

    async def line(self) -> bytes:
        async with asyncio.timeout(SECONDS):
            return await self.reader.readline()

    def say(self, command: str) -> bytes:
        """Send a command; its tag."""
        self.number += 1
        tag = b"t%d " % self.number
        self.writer.write(tag + command.encode() + b"\r\n")
        return tag

    async def answer(self, tag: bytes) -> bytes:
        """The tagged line, or the BYE that came instead, or nothing at the end."""
        while True:
            line = await self.line()
            if not line or line.startswith((tag, b"* BYE")):
                return line

    async def ask(self, command: str) -> bytes:
        """Send a command and take its answer."""
        return await self.answer(self.say(command))

    async def idle(self) -> None:
        """Be in IDLE."""
        await self.ask("SELECT INBOX")
        self.say("IDLE")
        assert (await self.line()).startswith(b"+")

    async def last_words(self) -> list[bytes]:
        """Every line until the end."""
        async with asyncio.timeout(SECONDS):
            try:
                return (await self.reader.read()).splitlines(keepends=True)
            except ConnectionResetError:
                return []

    def close(self) -> None:
        self.writer.close()


class Web:
    """The web part of a mailbox server: polls that nobody answers, and WebSockets."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.heard: list[str] = []
        """Request lines."""
        self.gone = 0
        """Connections that were closed while a poll or a WebSocket was under way."""
        self.running: asyncio.Server
        self._writers: set[asyncio.StreamWriter] = set()

    async def die(self) -> None:
        """Take nothing more and cut every connection off."""
        self.running.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                line, *fields = head.split("\r\n")
                self.heard.append(line)
                size = next((int(f.partition(":")[2]) for f in fields if f.lower().startswith("content-length:")), 0)
                await reader.readexactly(size)
                if "/owa/ws" in line or "Cmd=Ping" in line or ("/owa/pending" in line and self.name == A):
                    if "/owa/ws" in line:
                        writer.write(SWITCH + b"\x81\x05hello")
                    await self._hold(reader)
                    break
                body = self.name.encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self._writers.discard(writer)
        writer.close()

    async def _hold(self, reader: asyncio.StreamReader) -> None:
        try:
            while await reader.read(1000):
                pass
        finally:
            self.gone += 1


@contextlib.asynccontextmanager
async def webs(home: Homes) -> AsyncIterator[dict[str, Web]]:
    """Both web parts."""
    made = {name: Web(name) for name in home.webs}
    for name, place in home.webs.items():
        made[name].running = await asyncio.start_server(made[name].serve, *place)
    try:
        yield made
    finally:
        for web in made.values():
            await web.die()


async def http(door: FrontDoor, target: str, user: str, *lines: str, body: bytes = b"") -> Imap:
    """A client of the clear HTTP listener whose request is sent; its reader has what comes back."""
    reader, writer = await asyncio.open_connection(*door.addresses["http"])
    word = base64.b64encode(f"{user}:{ACCOUNTS[user]}".encode()).decode()
    method = "POST" if body else "GET"
    head = [f"{method} {target} HTTP/1.1", "Host: mail.contoso.com", f"Authorization: Basic {word}", *lines]
    head += [f"Content-Length: {len(body)}"] if body else []
    writer.write("\r\n".join([*head, "", ""]).encode() + body)
    return Imap(reader, writer)
