"""Hubs that keep shadows of each other's messages, in one process, with real channels and spools on loopback.

A hub's death is that its object is dropped without any farewell (`kill`); its disk is lost when its spool's folder is
deleted. Mailbox servers and the server outside are played by the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import smtplib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hub_stage import SECONDS, Played
from peer_samples import ca_pair
from structlog.testing import CapturingLogger

from gatepost.activemanager.sqlite import SqliteRegistry
from gatepost.configuration.load import load, load_organization
from gatepost.configuration.settings import Configuration
from gatepost.directory.editing import DirectoryEditor, Entry
from gatepost.directory.port import User
from gatepost.lab.servers.process import free_ports
from gatepost.organization.transport import TransportConfig
from gatepost.peers.ca import Authority
from gatepost.routing.decision import Mailbox
from gatepost.transport.hub import Hub, open_hub

NET = "127.0.63"
MAILBOX, SECOND_MAILBOX, OUTSIDE = f"{NET}.2", f"{NET}.3", f"{NET}.9"
STRANGER, TRUSTED = f"{NET}.70", f"{NET}.7"

QUICK = TransportConfig(
    shadow_heartbeat_frequency=0.1, shadow_resubmit_time_span=0.6, shadow_fence_time=5.0, safety_net_hold_time=0.0
)
"""Settings with which a test need not wait for hours."""

HEAD = """
[organization]
name = "contoso"
accepted_domains = ["contoso.com"]

[sites.usa]
[sites.asia]

[site_links.USA-ASIA]
sites = ["usa", "asia"]

[servers.MBX-01]
site = "usa"
roles = ["mailbox"]
fqdn = "mbx-01.contoso.com"
address = "{net}.2"
endpoints = {{ lmtp = {{ port = {mailbox_port}, tls = "clear" }} }}

[servers.MBX-02]
site = "{second_site}"
roles = ["mailbox"]
fqdn = "mbx-02.contoso.com"
address = "{net}.3"
endpoints = {{ lmtp = {{ port = {mailbox_port}, tls = "clear" }} }}

[databases.DB01]
copies = [{{ server = "MBX-01", preference = 1 }}, {{ server = "MBX-02", preference = 2 }}]

[send_connectors.Internet]
address_spaces = ["*"]
source_servers = [{sources}]
smart_hosts = ["{net}.9:{outside_port}"]
tls = "none"
"""

HUB = """
[servers.{name}]
site = "{site}"
roles = ["hub-transport"]
fqdn = "{fqdn}"
address = "{address}"
endpoints = {{ smtp = {{ port = {port} }} }}
transport = {{ queue_glitch_retry_interval = "00:00:01", message_retry_interval = "00:00:01", min_free_bytes = "16MB" }}

[receive_connectors."Everybody {name}"]
server = "{name}"
bindings = ["{address}:{port}"]
permission_groups = ["anonymous"]
tarpit_seconds = 0

[receive_connectors."Servers {name}"]
server = "{name}"
bindings = ["{address}:{port}"]
remote_ranges = ["127.0.0.1"]
permission_groups = ["servers"]
authentication = ["tls", "servers"]

[receive_connectors."Trusted {name}"]
server = "{name}"
bindings = ["{address}:{port}"]
remote_ranges = ["{net}.7"]
permission_groups = ["servers"]
authentication = ["tls", "externally-secured"]
"""

FRONT = """
[front_end]
server = "{name}"
directory = "{folder}/directory.sqlite"
registry = "{folder}/registry.sqlite"
certificate = "{folder}/{name}.crt"
private_key = "{folder}/{name}.key"
server_ca = "{folder}/organization-ca.crt"
peer_certificate = "{folder}/{name}.crt"
peer_private_key = "{folder}/{name}.key"
organization_ca = "{folder}/organization-ca.crt"

[front_end.transport]
spool = "{folder}/spool-{name}"
"""


class Member:
    """One of the hubs. `hub` is None while it is dead or not started."""

    def __init__(self, stage: ShadowStage, name: str, address: str, port: int, site: str) -> None:
        self.stage = stage
        self.name = name
        self.address = address
        self.port = port
        self.site = site
        self.log = CapturingLogger()
        self.clock_ahead = 0.0
        self.hub: Hub | None = None

    @property
    def spool(self) -> Path:
        return self.stage.folder / f"spool-{self.name}"

    @property
    def running(self) -> Hub:
        assert self.hub is not None
        return self.hub

    def count(self, what: str) -> int:
        """A counter; 0 while it is dead."""
        return self.hub.counters()[what] if self.hub is not None else 0

    async def start(self) -> None:
        self.hub = await open_hub(self.stage.configuration(self.name), self.log, lambda: time.time() + self.clock_ahead)
        await self.listen()

    async def listen(self) -> None:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((self.address, self.port))
        sock.listen(100)
        await self.running.listen({f"smtp {self.address}:{self.port}": [sock]})

    async def stop(self, seconds: float = 1.0) -> None:
        if self.hub is not None:
            hub, self.hub = self.hub, None
            await hub.drain(seconds)

    async def kill(self, *, lose_disk: bool = False) -> None:
        """As `kill -9`: nothing more is written or said; the kernel closes its connections."""
        hub, self.hub = self.running, None
        await die(hub)
        if lose_disk:
            self.lose_disk()

    def lose_disk(self) -> None:
        shutil.rmtree(self.spool)

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log lines of that name."""
        return [call.kwargs for call in self.log.calls if call.args and call.args[0] == name]

    async def send(
        self,
        sender: str,
        *recipients: str,
        subject: str = "hello",
        trusted: bool = True,
        body: str = "text\r\n",
        options: tuple[str, ...] = (),
    ) -> tuple[int, bytes]:
        """Send a message by a real client; the reply to its content. Raises `smtplib.SMTPException`."""
        content = f"From: {sender}\r\nTo: all\r\nSubject: {subject}\r\nMessage-ID: <{subject}@x>\r\n\r\n{body}"

        def go() -> tuple[int, bytes]:
            source = (TRUSTED if trusted else STRANGER, 0)
            client = smtplib.SMTP(self.address, self.port, "client.example", SECONDS, source)
            try:
                client.ehlo()
                code, reply = client.mail(sender, options)
                for recipient in recipients:
                    if code // 100 == 2:
                        code, reply = client.rcpt(recipient)
                return client.data(content) if code // 100 == 2 else (code, reply)
            finally:
                client.close()

        return await asyncio.to_thread(go)


class ShadowStage:
    """Hubs `HUB-01` and following; `sites` has one for each."""

    patience = SECONDS

    def __init__(
        self,
        folder: Path,
        count: int = 2,
        *,
        sites: tuple[str, ...] = (),
        config: TransportConfig = QUICK,
        sources: tuple[str, ...] = (),
        second_site: str = "usa",
    ) -> None:
        """`sources` are the hubs that send to the outside; empty: all of them."""
        self.folder = folder
        self.config = config
        self.delay = 10.0
        """`max_acknowledgement_delay` of all connectors."""
        self.mailbox_port = free_ports(MAILBOX, 1)[0]
        self.outside_port = free_ports(OUTSIDE, 1)[0]
        self.mailbox = Played(MAILBOX, self.mailbox_port)
        self.second_mailbox = Played(SECOND_MAILBOX, self.mailbox_port)
        self.outside = Played(OUTSIDE, self.outside_port)
        self.second_site = second_site
        self.hubs: dict[str, Member] = {}
        for number in range(1, count + 1):
            name, address = f"HUB-{number:02}", f"{NET}.{10 + number}"
            site = sites[number - 1] if sites else "usa"
            self.hubs[name] = Member(self, name, address, free_ports(address, 1)[0], site)
        self.sources = sources or tuple(self.hubs)
        self.registry: SqliteRegistry

    def __getitem__(self, number: int) -> Member:
        return self.hubs[f"HUB-{number:02}"]

    def organization_text(self) -> str:
        sources = ", ".join(f'"{name}"' for name in self.sources)
        text = HEAD.format(
            net=NET, mailbox_port=self.mailbox_port, outside_port=self.outside_port, sources=sources,
            second_site=self.second_site,
        )  # fmt: skip
        for hub in self.hubs.values():
            fqdn = f"{hub.name.lower()}.contoso.com"
            text += HUB.format(name=hub.name, site=hub.site, fqdn=fqdn, address=hub.address, port=hub.port, net=NET)
        return text

    def configuration(self, name: str) -> Configuration:
        """The organization as it is written now."""
        path = self.folder / f"{name}.toml"
        path.write_text(FRONT.format(name=name, folder=self.folder) + self.organization_text())
        found = load(str(path)).require()
        connectors = {
            key: replace(connector, max_acknowledgement_delay=self.delay)
            for key, connector in found.organization.receive_connectors.items()
        }
        organization = replace(found.organization, transport_config=self.config, receive_connectors=connectors)
        return replace(found, organization=organization)

    async def prepare(self) -> None:
        """Users, registry, certificates and played servers."""
        path = self.folder / "organization.toml"
        path.write_text(self.organization_text())
        loaded = load_organization(str(path))
        assert loaded.organization is not None, loaded.findings
        (self.folder / "organization-ca.crt").write_bytes(ca_pair().certificate)
        authority = Authority.load(ca_pair())
        for name in self.hubs:
            pair = authority.issue(loaded.organization.servers[name], datetime.now(UTC), 30)
            (self.folder / f"{name}.crt").write_bytes(pair.certificate)
            key = self.folder / f"{name}.key"
            key.touch(mode=0o600)
            key.write_bytes(pair.private_key)
        with DirectoryEditor(str(self.folder / "directory.sqlite")) as editor:
            for user in ("alice", "bob"):
                editor.add(Entry(User(f"{user}@contoso.com", Mailbox("DB01", None)), ()))
        self.registry = SqliteRegistry(str(self.folder / "registry.sqlite"))
        self.registry.activate("DB01", "MBX-01")
        for server in (self.mailbox, self.second_mailbox, self.outside):
            await server.start()

    async def start(self) -> None:
        """All hubs, and wait until each has channels where it will want them."""
        for hub in self.hubs.values():
            await hub.start()

    async def stop(self) -> None:
        """All of it."""
        await asyncio.gather(*(hub.stop() for hub in self.hubs.values()))
        for server in (self.mailbox, self.second_mailbox, self.outside):
            await server.stop()
        self.registry.close()

    def taken(self) -> list[str]:
        """The subjects of what the played servers have taken, in any order."""
        found = []
        for server in (self.mailbox, self.second_mailbox, self.outside):
            for received in server.received:
                found += [
                    line.partition(b":")[2].strip().decode()
                    for line in received.content.split(b"\r\n\r\n")[0].split(b"\r\n")
                    if line.lower().startswith(b"subject:")
                ]
        return found

    async def until(self, condition: Callable[[], object] | Callable[[], Awaitable[object]]) -> None:
        """Wait for what the hubs bring about."""
        async with asyncio.timeout(self.patience):
            while True:
                found = condition()
                if await found if asyncio.iscoroutine(found) else found:
                    return
                await asyncio.sleep(0.02)


async def die(hub: Hub) -> None:
    """End a hub's object as a kill would: what waits for its disk is lost, nobody is told, its connections are cut."""
    hub._receive.close_listeners(lambda _binding: True)
    for connection in list(hub._receive.connections):
        connection.cut()
    for channel in list(hub._receive.channels):
        channel.abort()
    hub._channels.close()
    hub._outbound.close()
    committer = hub._spool._committer
    committer._commit = lambda _changes: OSError("killed")  # type: ignore[method-assign]
    committer._keep_small = lambda *, idle: setattr(committer, "fault", OSError("killed"))  # type: ignore[method-assign]
    committer.fault = OSError("killed")
    await hub._spool.close()
    await hub.drain(0.0)


@contextlib.asynccontextmanager
async def shadow_hubs(folder: Path, count: int = 2, **how: Any) -> AsyncIterator[ShadowStage]:
    """A stage whose hubs run."""
    stage = ShadowStage(folder, count, **how)
    await stage.prepare()
    await stage.start()
    try:
        yield stage
    finally:
        for server in (stage.mailbox, stage.second_mailbox, stage.outside):
            if server.gate is not None:
                server.gate.set()
        await stage.stop()
