"""Port 25 through the door: which hub gets a session, what it learns, and what clients hear (SPEC B7, T12)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_network
from typing import Any, cast

import pytest
from stage import AUTHORITY, LIMITS, Client, until
from structlog.testing import CapturingLogger

from gatepost.access.admission import Admission
from gatepost.access.health import HealthService
from gatepost.access.listener import Listener
from gatepost.access.moves import Outcome, Round
from gatepost.access.router import Router
from gatepost.access.smtp_client import SmtpClientLeg
from gatepost.access.smtp_door import SmtpDoor
from gatepost.access.tls import ClientContexts
from gatepost.activemanager.port import RegistryView
from gatepost.configuration.settings import Configuration, FrontEnd, Limits
from gatepost.organization.model import (
    ClientAddress,
    Endpoint,
    Organization,
    Protocol,
    Role,
    Server,
    Site,
    SiteLink,
    TlsMode,
    Version,
)
from gatepost.relay.relay import Relay
from gatepost.wire.proxy_protocol import encode_v2, parse

HUBS = ("HUB-01", "HUB-02", "HUB-03")


class Hub:
    """Greets, answers every line with its name, and keeps what it heard."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.greeting: list[bytes] = [b"220 %b ready\r\n" % name.encode()]
        """In pieces, with a moment between them."""
        self.proxied = False
        self.offer = b""
        self.headers: list[Any] = []
        self.heard = b""
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen, on the same port when it was open before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Be gone, with every session."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            if self.proxied:
                await self._header(reader)
            for number, piece in enumerate(self.greeting):
                await asyncio.sleep(0.02 if number else 0)
                writer.write(piece)
            while line := await reader.readline():
                self.heard += line
                word = line.split()[0].upper()
                if word == b"EHLO":
                    writer.write(b"250-%b\r\n%b250 SIZE\r\n" % (self.name.encode(), self.offer))
                elif word == b"XCLIENT":
                    self.offer = b""
                    writer.write(b"220 %b for you\r\n" % self.name.encode())
                elif word == b"DATA":
                    writer.write(b"354 go\r\n")
                    await reader.readuntil(b"\r\n.\r\n")
                    writer.write(b"250 queued\r\n")
                else:
                    writer.write(b"250 %b by %b\r\n" % (word, self.name.encode()))
        writer.close()

    async def _header(self, reader: asyncio.StreamReader) -> None:
        header = b""
        while (parsed := parse(header)) is None:
            header += await reader.readexactly(1)
        self.headers.append(parsed[0])


class House:
    """A door before three hubs in its own site and one in another."""

    def __init__(self, limits: Limits, told: ClientAddress) -> None:
        self.limits = limits
        self.told = told
        self.hubs = {name: Hub(name) for name in (*HUBS, "FAR-01")}
        self.capture = CapturingLogger()
        self.clients: list[Client] = []
        self.listener: Listener | None = None

    async def open(self) -> None:
        for hub in self.hubs.values():
            hub.proxied = self.told in {ClientAddress.PROXY_V1, ClientAddress.PROXY_V2}
            await hub.open()
        front_end = FrontEnd("CAS-01", "", "", server_ca=AUTHORITY.cert_pem.bytes(), limits=self.limits)
        self.configuration = Configuration(self.organization(self.hubs), front_end)
        router = Router(self.configuration, RegistryView(0, {}))
        self.admission = Admission(self.limits.unauthenticated_per_address, self.limits.sessions)
        contexts, log = ClientContexts(front_end), cast(Any, self.capture)
        self.health = HealthService(asyncio.get_running_loop(), self.configuration, contexts, log)
        self.door = SmtpDoor(self.configuration, router, self.admission, contexts, log, self.health)

    def organization(self, names: Any) -> Organization:
        servers = [Server("CAS-01", "usa", "front.contoso.com", "", Version.MODERN, frozenset({Role.CLIENT_ACCESS}))]
        for name in names:
            site = "asia" if name.startswith("FAR") else "usa"
            endpoint = Endpoint(
                "smtp", Protocol.SMTP, "127.0.0.1", self.hubs[name].port, TlsMode.STARTTLS, "hub", self.told
            )
            role = frozenset({Role.HUB_TRANSPORT})
            servers.append(Server(name, site, f"{name.lower()}.contoso.com", "", Version.MODERN, role, (endpoint,)))
        links = {"wan": SiteLink("wan", ("usa", "asia"))}
        sites = {"usa": Site("usa"), "asia": Site("asia")}
        return Organization("contoso", sites=sites, site_links=links, servers={s.name: s for s in servers})

    async def listen(self, trusted: tuple[Any, ...] = ()) -> int:
        sock = socket.create_server(("127.0.0.1", 0))
        front_end = replace(self.configuration.front_end, proxy_protocol_from=trusted)
        self.listener = Listener(sock, self.door.factory(), None, front_end, self.admission, cast(Any, self.capture))
        await self.listener.start()
        return int(sock.getsockname()[1])

    async def connect(self, port: int | None = None) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", port or await self.listen()))
        self.clients.append(client)
        return client

    async def deal(self, port: int, sessions: int) -> Counter[str]:
        """So many sessions one after another; the hub that greeted each."""
        got: Counter[str] = Counter()
        for _ in range(sessions):
            client = await self.connect(port)
            got[(await client.line()).split()[1].decode()] += 1
            client.close()
        return got

    async def close(self) -> None:
        for client in self.clients:
            client.writer.transport.abort()
        await self.door.drain(0)
        self.health.close()
        for hub in self.hubs.values():
            hub.close()
        if self.listener is not None:
            self.listener.close()
        await asyncio.sleep(0.01)

    def lines(self, event: str) -> list[dict[str, Any]]:
        return [dict(call.kwargs) for call in self.capture.calls if call.args == (event,)]


@asynccontextmanager
async def house(limits: Limits = LIMITS, told: ClientAddress = ClientAddress.NONE) -> AsyncIterator[House]:
    """An open house that is closed at the end."""
    made = House(limits, told)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def test_hubs_of_the_own_site_share_equally() -> None:
    """Exactly; the other site's gets nothing."""
    async with house() as h:
        assert await h.deal(await h.listen(), 12) == dict.fromkeys(HUBS, 4)
        await until(lambda: len(h.lines("smtp.session")) == 12)
        line = h.lines("smtp.session")[0]
        assert (line["outcome"], line["server"], line["client"]) == ("handed over", "HUB-01", "127.0.0.1")


async def test_a_hub_that_is_gone_costs_no_client_anything() -> None:
    """Another is tried at once, and the two that are left share equally, known to be down or not."""
    async with house() as h:
        h.hubs["HUB-02"].close()
        port = await h.listen()
        assert await h.deal(port, 10) == {"HUB-01": 5, "HUB-03": 5}
        h.health.failed("HUB-02", "smtp", "192.0.2.1", "test")
        h.health.failed("HUB-02", "smtp", "192.0.2.2", "test")
        assert not h.health.healthy("HUB-02", "smtp")
        assert await h.deal(port, 10) == {"HUB-01": 5, "HUB-03": 5}
        assert len(h.lines("server.down")) == 1


@pytest.mark.parametrize("greeting", [b"421 4.3.2 busy\r\n", b"554 5.7.1 no\r\n", b"garbage\r\n", b""])
async def test_a_hub_that_refuses_is_passed_over(greeting: bytes) -> None:
    """4xx, 5xx, no SMTP, silence: the client hears nothing of it."""
    async with house() as h:
        h.hubs["HUB-01"].greeting = [greeting]
        client = await h.connect()
        assert await client.line() == b"220 HUB-02 ready\r\n"


async def test_other_sites_take_over_when_no_hub_here_does() -> None:
    """By cost."""
    async with house() as h:
        for name in HUBS:
            h.hubs[name].close()
        assert await h.deal(await h.listen(), 2) == {"FAR-01": 2}


async def test_all_down_is_a_temporary_fault() -> None:
    """`421 4.3.2`, with each attempt in the log; without any hub too."""
    async with house() as h:
        for hub in h.hubs.values():
            hub.close()
        port = await h.listen()
        client = await h.connect(port)
        assert await client.rest() == b"421 4.3.2 no server can take your mail now, try again later\r\n"
        line = h.lines("smtp.refused")[0]
        assert [attempt.partition(":")[0] for attempt in line["attempts"]] == [*HUBS, "FAR-01"]
        h.door.reload(replace(h.configuration, organization=h.organization(())), h.door.client_contexts)
        client = await h.connect(port)
        assert (await client.rest()).startswith(b"421 4.3.2 ")
        await until(lambda: h.admission.sessions == 0)


@pytest.mark.parametrize("told", [ClientAddress.PROXY_V1, ClientAddress.PROXY_V2])
async def test_the_clients_address_by_proxy(told: ClientAddress) -> None:
    """As it was said to us where the one who says so is listed."""
    async with house(told=told) as h:
        port = await h.listen((ip_network("127.0.0.1"),))
        client = await h.connect(port)
        client.writer.write(encode_v2(("203.0.113.9", 4711), ("192.0.2.1", 25)))
        assert await client.line() == b"220 HUB-01 ready\r\n"
        header = h.hubs["HUB-01"].headers[0]
        assert (header.source, header.destination) == (("203.0.113.9", 4711), ("192.0.2.1", 25))


async def test_the_clients_address_by_xclient() -> None:
    """The greeting that the client hears is the one after it; a hub that does not offer it is not used."""
    async with house(told=ClientAddress.XCLIENT) as h:
        h.hubs["HUB-02"].offer = b"250-XCLIENT ADDR PORT\r\n"
        client = await h.connect()
        assert await client.line() == b"220 HUB-02 for you\r\n"
        assert b"XCLIENT ADDR=127.0.0.1 PORT=" in h.hubs["HUB-02"].heard
        assert await client.say(b"NOOP\r\n") == b"250 NOOP by HUB-02\r\n"


async def test_a_greeting_in_pieces_is_passed_on_as_it_comes() -> None:
    """What a client says in the middle of it reaches the hub at once, whose business that is."""
    async with house() as h:
        h.hubs["HUB-01"].greeting = [b"220-wait\r\n", b"220 HUB-01\r\n"]
        client = await h.connect()
        assert await client.line() == b"220-wait\r\n"
        assert await client.line() == b"220 HUB-01\r\n"


async def test_what_is_said_before_the_greeting_is_not_lost() -> None:
    """Also when it is more than we keep."""
    async with house() as h:
        h.hubs["HUB-01"].close()
        client = await h.connect()
        early = b"NOOP %b\r\n" % (b"x" * 40) * 4000
        client.writer.write(early)
        assert (await client.line()).startswith(b"220 ")
        await until(lambda: len(h.hubs["HUB-02"].heard) + len(h.hubs["HUB-03"].heard) == len(early))


async def test_sessions_are_listed_and_ended_between_transactions() -> None:
    """By an operator: one within a message first gets its answer."""
    async with house() as h:
        port = await h.listen()
        idle, busy = await h.connect(port), await h.connect(port)
        for client in (idle, busy):
            await client.line()
            await client.say(b"NOOP\r\n")
        await busy.say(b"MAIL FROM:<a@b>\r\n")
        await busy.say(b"DATA\r\n")
        assert {(entry["protocol"], entry["server"]) for entry in h.door.sessions()} == {
            ("smtp", "HUB-01"),
            ("smtp", "HUB-02"),
        }
        assert h.door.counters() == {"smtp.HUB-01": 1, "smtp.HUB-02": 1}
        from gatepost.access.sessions import SessionFilter

        leavers = [leaver for _, leaver in h.door.leavers(SessionFilter(protocol="smtp"), "kick")]
        done: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        Round(h.door.loop, leavers, window=0.0, forced=10.0, done=done.set_result)
        assert await idle.rest() == b"421 4.3.2 ended by the operator\r\n"
        assert await busy.say(b"text\r\n.\r\n") == b"250 queued\r\n"
        assert await busy.rest() == b"421 4.3.2 ended by the operator\r\n"
        assert await done == [Outcome.CLOSED] * 2


async def test_a_hub_that_dies_within_a_session() -> None:
    """The client hears 421 instead of a cut."""
    async with house() as h:
        client = await h.connect()
        await client.line()
        h.hubs["HUB-01"].close()
        assert await client.rest() == b"421 4.3.2 the server has gone, try again later\r\n"


async def test_too_many_and_too_long() -> None:
    """Per address as at every listener, for the whole session: nobody here ever signs in. And not for ever."""
    async with house(replace(LIMITS, unauthenticated_per_address=2)) as h:
        port = await h.listen()
        for _ in range(2):
            await (await h.connect(port)).line()
        assert (await (await h.connect(port)).rest()).startswith(b"421 4.3.2 too many ")
    async with house(replace(LIMITS, sign_in_seconds=0.0, server_step_seconds=60.0)) as h:
        for hub in h.hubs.values():
            hub.greeting = [b""]
        assert (await (await h.connect()).rest()).startswith(b"421 4.3.2 no server ")


async def test_a_client_that_goes_while_a_hub_is_looked_for() -> None:
    """Nothing is left at the hub, nor here."""
    async with house(replace(LIMITS, server_step_seconds=60.0)) as h:
        h.hubs["HUB-01"].greeting = [b""]
        client = await h.connect()
        await until(lambda: h.hubs["HUB-01"].writers)
        client.writer.transport.abort()
        await until(lambda: h.admission.sessions == 0 and not h.door.pending)


async def test_nothing_of_a_session_is_left() -> None:
    """No circle of references waits for the garbage collector."""
    async with house() as h:
        port = await h.listen()
        gc.collect()
        gc.disable()
        try:
            await h.deal(port, 3)
            await until(lambda: not h.door.relaying)
            await until(lambda: not [o for o in gc.get_objects() if isinstance(o, SmtpClientLeg | Relay)])
        finally:
            gc.enable()
