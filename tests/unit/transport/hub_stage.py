"""A hub on loopback for tests: its configuration, its stores in a folder, and mail servers that the test plays."""

from __future__ import annotations

import asyncio
import contextlib
import smtplib
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from structlog.testing import CapturingLogger

from gatepost.activemanager.sqlite import SqliteRegistry
from gatepost.configuration.load import load
from gatepost.configuration.settings import Configuration
from gatepost.directory.editing import DirectoryEditor, Entry
from gatepost.directory.port import User
from gatepost.lab.servers.process import free_ports
from gatepost.routing.decision import Mailbox
from gatepost.service.operators import OperatorsSocket
from gatepost.service.transport_messages import TransportReply, TransportRequest
from gatepost.transport.hub import Hub, open_hub

ADDRESS = "127.0.61.1"
SECONDS = 15.0
MAX_CONTENT = 16 * 1024 * 1024
"""Octets that a played server reads."""
CAPABILITIES = ("played", "PIPELINING", "SIZE 50000000", "ENHANCEDSTATUSCODES", "8BITMIME")

FILE = """
[front_end]
server = "HUB-01"
directory = "{folder}/directory.sqlite"
registry = "{folder}/registry.sqlite"
allow_clear_passwords = true

[front_end.transport]
spool = "{folder}/spool"

[organization]
name = "contoso"
accepted_domains = ["contoso.com"]

[sites.usa]

[servers.HUB-01]
site = "usa"
roles = ["hub-transport"]
fqdn = "hub-01.contoso.com"
address = "127.0.61.1"
endpoints = {{ smtp = {{ port = {port}, tls = "clear" }} }}
{hub}

[servers.MBX-01]
site = "usa"
roles = ["mailbox"]
fqdn = "mbx-01.contoso.com"
address = "127.0.61.2"
endpoints = {{ {protocol} = {{ port = {mailbox_port}, tls = "clear" }} }}

[servers.MBX-02]
site = "usa"
roles = ["mailbox"]
fqdn = "mbx-02.contoso.com"
address = "127.0.61.3"
endpoints = {{ {protocol} = {{ port = {mailbox_port}, tls = "clear" }} }}

[databases.DB01]
copies = [{{ server = "MBX-01", preference = 1 }}, {{ server = "MBX-02", preference = 2 }}]

[receive_connectors.Everybody]
server = "HUB-01"
bindings = ["127.0.61.1:{port}"]
permission_groups = ["anonymous"]
tarpit_seconds = 0

[receive_connectors.Servers]
server = "HUB-01"
bindings = ["127.0.61.1:{port}"]
remote_ranges = ["127.0.61.0/24"]
permission_groups = ["servers"]
authentication = ["tls", "externally-secured"]

[send_connectors.Internet]
address_spaces = ["*"]
source_servers = ["HUB-01"]
smart_hosts = ["127.0.61.9:{outside_port}"]
tls = "none"
"""


class Received:
    """A message as a played server got it."""

    def __init__(self, sender: str, recipients: list[str], content: bytes) -> None:
        self.sender = sender
        self.mail = ""
        """The MAIL command."""
        self.recipients = recipients
        self.content = content


class Played:
    """A mail server, SMTP or LMTP, that answers by `replies`: from a verb, or a recipient, to a reply."""

    def __init__(self, address: str, port: int) -> None:
        self.address = address
        self.port = port
        self.received: list[Received] = []
        self.connections = 0
        self.contents = 0
        """Messages whose content has come, taken or not."""
        self.replies: dict[str, str] = {}
        self.gate: asyncio.Event | None = None
        """When there is one, the answer to the content waits for it."""
        self.busy = False
        """An answer has waited."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, self.address, self.port, limit=MAX_CONTENT)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in (running := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._talk(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.write(b"220 played ESMTP\r\n")
        sender, taken, lmtp, mail = "", [], False, ""
        while line := (await reader.readline()).decode():
            verb = line[:4].upper()
            reply = self.replies.get(verb, "250 2.0.0 Ok")
            match verb:
                case "EHLO" | "LHLO":
                    lmtp = verb == "LHLO"
                    reply = (
                        "250-played\r\n250-PIPELINING\r\n250-SIZE 50000000\r\n250-ENHANCEDSTATUSCODES\r\n250 8BITMIME"
                    )
                case "MAIL":
                    mail = line.strip()
                    sender, taken = line[line.index("<") + 1 : line.index(">")], []
                case "RCPT":
                    address = line[line.index("<") + 1 : line.index(">")]
                    reply = self.replies.get(address, reply)
                    if reply.startswith("2"):
                        taken.append(address)
                case "DATA":
                    if not taken:
                        reply = "503 5.5.1 No recipients"
                    elif "DATA" not in self.replies:
                        writer.write(b"354 Go on\r\n")
                        content = await reader.readuntil(b"\r\n.\r\n")
                        self.contents += 1
                        if self.gate is not None:
                            self.busy = True
                            await self.gate.wait()
                        end = self.replies.get("END", "250 2.0.0 Taken")
                        if end.startswith("2"):
                            content = content[:-3].replace(b"\r\n..", b"\r\n.")
                            self.received.append(Received(sender, list(taken), content))
                            self.received[-1].mail = mail
                        writer.write("".join(f"{end}\r\n" for _ in (taken if lmtp else taken[:1])).encode())
                        continue
                case "QUIT":
                    writer.write(b"221 2.0.0 Bye\r\n")
                    return
            writer.write(f"{reply}\r\n".encode())
            if reply.startswith("421"):
                return


class HubStage:
    """A hub that runs, before two mailbox servers and one server outside."""

    patience = SECONDS

    def __init__(self, folder: Path, hub: str = "", protocol: str = "lmtp") -> None:
        """`protocol` is what the mailbox servers speak."""
        self.folder = folder
        self.protocol = protocol
        self.port, self.mailbox_port, self.outside_port = free_ports(ADDRESS, 3)
        self.extra = hub
        self.log = CapturingLogger()
        self.clock_ahead = 0.0
        """Seconds by which the hub's clock was set."""
        self.mailboxes = {
            "MBX-01": Played("127.0.61.2", self.mailbox_port),
            "MBX-02": Played("127.0.61.3", self.mailbox_port),
        }
        self.outside = Played("127.0.61.9", self.outside_port)
        self.operators: OperatorsSocket | None = None
        self.hub: Hub
        self.registry: SqliteRegistry

    def configuration(self) -> Configuration:
        """The organization as it is written now."""
        ports = {"port": self.port, "mailbox_port": self.mailbox_port, "outside_port": self.outside_port}
        path = self.folder / "hub.toml"
        path.write_text(FILE.format(folder=self.folder, hub=self.extra, protocol=self.protocol, **ports))
        return load(str(path)).require()

    async def prepare(self) -> None:
        """Users, registry and played servers."""
        with DirectoryEditor(str(self.folder / "directory.sqlite")) as editor:
            for name in ("alice", "bob"):
                user = User(f"{name}@contoso.com", Mailbox("DB01", None))
                editor.add(Entry(user, (f"{name}.alias@contoso.com",)))
        self.registry = SqliteRegistry(str(self.folder / "registry.sqlite"))
        self.registry.activate("DB01", "MBX-01")
        for server in (*self.mailboxes.values(), self.outside):
            await server.start()

    async def start(self) -> None:
        """The hub, at its address."""
        self.hub = await open_hub(self.configuration(), self.log, lambda: time.time() + self.clock_ahead)
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((ADDRESS, self.port))
        sock.listen(100)
        await self.hub.listen({f"smtp {ADDRESS}:{self.port}": [sock]})

    def answer_operators(self) -> None:
        """Have an operators' socket, as the supervisor has."""
        self.operators = OperatorsSocket(self.configuration(), OperatorsOf(self), self.log)  # type: ignore[arg-type]

    async def stop(self) -> None:
        """All of it."""
        if self.operators is not None:
            self.operators.close()
        await self.hub.drain(1.0)
        for server in (*self.mailboxes.values(), self.outside):
            await server.stop()
        self.registry.close()

    async def send(
        self,
        sender: str,
        *recipients: str,
        subject: str = "hello",
        trusted: bool = True,
        body: str = "text\r\n",
        fields: str = "",
    ) -> dict[str, tuple[int, bytes]]:
        """Send a message by a real client; the recipients that were refused. Raises `smtplib.SMTPException`."""
        content = f"{fields}From: {sender}\r\nTo: all\r\nSubject: {subject}\r\nMessage-ID: <{subject}@x>\r\n\r\n{body}"

        def go() -> dict[str, tuple[int, bytes]]:
            source = ("127.0.61.7" if trusted else "127.0.62.7", 0)
            with smtplib.SMTP(ADDRESS, self.port, "client.example", SECONDS, source) as client:
                return client.sendmail(sender, list(recipients), content.encode())

        return await asyncio.to_thread(go)

    async def until(self, condition: Callable[[], object] | Callable[[], Awaitable[object]]) -> None:
        """Wait for what the hub brings about."""
        async with asyncio.timeout(self.patience):
            while True:
                found = condition()
                if await found if asyncio.iscoroutine(found) else found:
                    return
                await asyncio.sleep(0.01)

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log lines of that name."""
        return [call.kwargs for call in self.log.calls if call.args and call.args[0] == name]


class OperatorsOf:
    """What answers operators in the place of a supervisor: the hub itself."""

    def __init__(self, stage: HubStage) -> None:
        self._stage = stage

    async def transport(self, request: TransportRequest) -> TransportReply:
        try:
            answer = await self._stage.hub.operate(request.verb, request.arguments)
        except (ValueError, TypeError, OSError) as fault:
            return TransportReply(None, str(fault), "HUB-01", request.request)
        return TransportReply(answer, "", "HUB-01", request.request)
