"""Probes of real sockets, and when they are made (SPEC B7)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from stage import AUTHORITY, SERVER_CERTIFICATE, until
from structlog.testing import CapturingLogger

from gatepost.access import health
from gatepost.access.health import HealthService
from gatepost.activemanager import probes
from gatepost.configuration.settings import Configuration, FrontEnd, Limits, PeerKeys
from gatepost.organization.model import (
    ClientAddress,
    Endpoint,
    Organization,
    Protocol,
    Role,
    Server,
    Site,
    TlsMode,
    Version,
    VirtualDirectory,
)
from gatepost.wire.proxy_protocol import parse

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Listening:
    """A server that says `answer` first, or when a request's head has come; it keeps what it was sent."""

    def __init__(self, answer: bytes, *, waits: bool) -> None:
        self.answer = answer
        self.waits = waits
        self.got = b""
        self.connections = 0
        self.port = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.waits:
            self.got = await reader.readuntil(b"\r\n\r\n")
        writer.write(self.answer)
        if self.answer or self.waits:
            self.got += await reader.read()
        else:
            await reader.read()
        writer.close()


@asynccontextmanager
async def listening(answer: bytes, *, waits: bool = False, tls: bool = False) -> AsyncIterator[Listening]:
    """On a free port; an empty `answer` is silence."""
    listener = Listening(answer, waits=waits)
    context = None
    if tls:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        SERVER_CERTIFICATE.configure_cert(context)
    server = await asyncio.start_server(listener.talk, "127.0.0.1", 0, ssl=context)
    listener.port = server.sockets[0].getsockname()[1]
    try:
        yield listener
    finally:
        server.close()


def trusting(_server: Server, *, peer: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    AUTHORITY.configure_trust(context)
    return context


def endpoint(name: str, port: int, *, tls: TlsMode = TlsMode.CLEAR, **more: Any) -> Endpoint:
    protocol = Protocol(name) if name in probes.MAIL else Protocol.HTTPS
    return Endpoint(name, protocol, "127.0.0.1", port, tls, "mbx.contoso.com", **more)


def organization(*endpoints: Endpoint, **more: Any) -> Organization:
    """MBX-01 with these endpoints, an `owa` and a `dav` directory."""
    roles = frozenset({Role.MAILBOX})
    server = Server("MBX-01", "usa", "mbx.contoso.com", "127.0.0.1", Version.MODERN, roles, endpoints)
    cas = replace(server, name="CAS-01", endpoints=(), roles=frozenset({Role.CLIENT_ACCESS}))
    server = replace(server, **more)
    directories = tuple(
        VirtualDirectory("MBX-01", service, f"/{service}", f"https://mbx.contoso.com/{service}/inner")
        for service in ("owa", "dav")
    )
    return Organization(
        "contoso",
        sites={"usa": Site("usa")},
        servers={"CAS-01": cas, "MBX-01": server},
        virtual_directories=directories,
    )


async def probed(org: Organization, service: str, seconds: float = 5.0) -> str:
    probe = probes.plan(org, "MBX-01", service)
    assert probe is not None
    context = trusting(probe.server) if probe.endpoint.tls is not TlsMode.CLEAR else None
    return await probes.run(probe, context, seconds)


@pytest.mark.parametrize(
    ("service", "greeting", "alive"),
    [
        ("imap", b"* OK ready\r\n", True),
        ("imap", b"* ok [CAPABILITY IMAP4rev1] ready\r\n", True),
        ("imap", b"* PREAUTH hello\r\n", True),
        ("imap", b"* BYE too busy\r\n", False),
        ("imap", b"* OKAY\r\n", False),
        ("imap", b"220 smtp.contoso.com\r\n", False),
        ("pop3", b"+OK ready\r\n", True),
        ("pop3", b"-ERR [SYS/TEMP] not now\r\n", False),
        ("pop3", b"x" * 20_000 + b"\r\n", False),
        ("submission", b"220 ready\r\n", True),
        ("submission", b"421 4.3.2 not now\r\n", False),
        ("smtp", b"220-wait a moment\r\n", True),
        ("smtp", b"554 5.3.2 no\r\n", False),
    ],
)
async def test_a_mail_service_is_alive_when_it_greets(service: str, greeting: bytes, alive: bool) -> None:
    async with listening(greeting) as server:
        reason = await probed(organization(endpoint(service, server.port)), service)
        assert (reason == "") is alive, reason
        if alive:
            await until(lambda: server.got in {b"a LOGOUT\r\n", b"QUIT\r\n"})


async def test_a_greeting_comes_after_tls_and_a_proxy_header() -> None:
    async with listening(b"* OK ready\r\n", tls=True) as server:
        assert await probed(organization(endpoint("imap", server.port, tls=TlsMode.IMPLICIT)), "imap") == ""
    async with listening(b"* OK ready\r\n") as server:
        org = organization(endpoint("imap", server.port, client_address=ClientAddress.PROXY_V2))
        assert await probed(org, "imap") == ""
        await until(lambda: server.got.endswith(b"LOGOUT\r\n"))
        found = parse(server.got)
        assert found is not None
        assert found[0].local, "the probe speaks for itself, for no client"


async def test_a_probe_with_a_version_1_header_says_its_own_addresses() -> None:
    """Postfix does not take UNKNOWN for an answer, and would always look dead."""
    async with listening(b"220 ready\r\n") as server:
        org = organization(endpoint("smtp", server.port, client_address=ClientAddress.PROXY_V1))
        assert await probed(org, "smtp") == ""
        await until(lambda: server.got.endswith(b"QUIT\r\n"))
        found = parse(server.got)
        assert found is not None
        assert found[0].source is not None
        assert found[0].destination == ("127.0.0.1", server.port)


@pytest.mark.parametrize(
    ("status", "alive"),
    [("200 OK", True), ("401 Unauthorized", True), ("404 Not Found", True), ("501 Not Implemented", True),
     ("302 Found", True), ("500 Internal Server Error", False), ("502 Bad Gateway", False), ("503 No", False)],
)  # fmt: skip
async def test_any_http_answer_below_500_is_alive(status: str, alive: bool) -> None:
    async with listening(f"HTTP/1.1 {status}\r\n\r\n".encode(), waits=True, tls=True) as server:
        reason = await probed(organization(endpoint("https", server.port, tls=TlsMode.IMPLICIT)), "owa")
        assert reason == ("" if alive else f"HTTP {status[:3]}")
        assert server.got.startswith(b"HEAD /owa/inner HTTP/1.1\r\nHost: mbx.contoso.com\r\n")


async def test_older_exchange_is_asked_for_its_health_page() -> None:
    async with listening(b"HTTP/1.1 200 OK\r\n\r\n", waits=True) as server:
        org = organization(endpoint("http", server.port), version=Version.V2010)
        assert await probed(org, "owa") == ""
        assert server.got.startswith(b"GET /owa/inner/healthcheck.htm HTTP/1.1\r\n")


async def test_a_service_without_a_directory_is_asked_for_its_options() -> None:
    async with listening(b"HTTP/1.0 405 No\r\n\r\n", waits=True) as server:
        assert await probed(organization(endpoint("http", server.port)), "https") == ""
        assert server.got.startswith(b"OPTIONS * HTTP/1.1\r\n")


@pytest.mark.parametrize(("status", "alive"), [("200 OK", True), ("503 Draining", False), ("404 No", False)])
async def test_another_front_end_must_say_200(status: str, alive: bool) -> None:
    async with listening(f"HTTP/1.1 {status}\r\n\r\n".encode(), waits=True, tls=True) as server:
        roles = frozenset({Role.CLIENT_ACCESS})
        org = organization(endpoint("peer", server.port, tls=TlsMode.IMPLICIT), roles=roles)
        probe = probes.plan(org, "MBX-01", "owa")
        assert probe is not None
        assert probe.peer
        assert (await probed(org, "owa") == "") is alive
        assert server.got.startswith(b"GET /owa/healthcheck.htm HTTP/1.1\r\n")


async def test_a_service_that_hangs_is_dead() -> None:
    """It accepts TCP, so the machine answers; the service says nothing."""
    async with listening(b"") as server:
        assert "no answer" in await probed(organization(endpoint("imap", server.port)), "imap", 0.05)
        await until(lambda: server.connections == 1)


async def test_nobody_there_another_certificate_and_no_answer() -> None:
    async with listening(b"* OK\r\n", tls=True) as server:
        wrong = replace(endpoint("imap", server.port, tls=TlsMode.IMPLICIT), tls_name="other.contoso.com")
        assert "certificate refused" in await probed(organization(wrong), "imap")
        port = server.port
    assert "cannot connect" in await probed(organization(endpoint("imap", port)), "imap")


async def test_words_of_a_server_cannot_steer_a_terminal() -> None:
    async with listening(b"\x1b[2J\x07evil\r\n") as server:
        reason = await probed(organization(endpoint("imap", server.port)), "imap")
        assert reason.isprintable()
        assert "evil" in reason


def test_what_cannot_be_probed() -> None:
    org = organization(endpoint("https", 1, tls=TlsMode.STARTTLS))
    for server, service in (("MBX-09", "imap"), ("MBX-01", "pop3"), ("MBX-01", "owa"), ("CAS-01", "https")):
        assert probes.plan(org, server, service) is None


# --- when probes are made


class World:
    """A health service whose clock and timer are the test's."""

    def __init__(self, org: Organization, log: CapturingLogger, **front_end: Any) -> None:
        self.log = log
        self.real = asyncio.get_running_loop()
        self.now = 1000.0
        limits = Limits(probe_seconds=5.0)
        self.configuration = Configuration(org, FrontEnd("CAS-01", "", "", limits=limits, **front_end))
        loop: Any = self
        self.service = HealthService(loop, self.configuration, trusting, log, chance=lambda: 0.5)

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Any) -> asyncio.TimerHandle:
        return self.real.call_later(3600, callback)

    async def after(self, seconds: float) -> None:
        """Let time pass, and the probes that are due then come to their end."""
        self.now += seconds
        self.service.probe_due(self.now)
        await until(lambda: not self.service._tasks)

    @property
    def events(self) -> list[tuple[str, str, str]]:
        return [(call.args[0], call.kwargs["service"], call.kwargs["source"]) for call in self.log.calls]


@asynccontextmanager
async def world(org: Organization, **front_end: Any) -> AsyncIterator[World]:
    made = World(org, CapturingLogger(), **front_end)
    try:
        yield made
    finally:
        made.service.close()


async def test_only_services_in_use_are_probed() -> None:
    async with listening(b"* OK ready\r\n") as server, world(organization(endpoint("imap", server.port))) as w:
        await w.after(60)
        assert server.connections == 0
        w.service.connected("MBX-01", "imap")
        await w.after(4.9)
        assert server.connections == 0
        await w.after(0.1)
        assert server.connections == 1
        for _ in range(3):
            await w.after(5)
        assert server.connections == 4
        await w.after(health.USED_SECONDS)
        await w.after(60)
        assert server.connections == 4


async def test_a_dead_service_leaves_the_rotation_and_is_probed_until_it_is_back() -> None:
    async with listening(b"* OK ready\r\n") as server:
        port = server.port
    async with world(organization(endpoint("imap", port))) as w:
        w.service.connected("MBX-01", "imap")
        await w.after(5)
        assert w.service.healthy("MBX-01", "imap")
        await w.after(5)
        assert not w.service.healthy("MBX-01", "imap")
        await w.after(600)
        await w.after(600)
        again = Listening(b"* OK ready\r\n", waits=False)
        reopened = await asyncio.start_server(again.talk, "127.0.0.1", port)
        await w.after(5)
        assert w.service.healthy("MBX-01", "imap")
        assert w.events == [("server.down", "imap", "probe"), ("server.up", "imap", "probe")]
        assert "cannot connect" in w.log.calls[0].kwargs["reason"]
        reopened.close()


async def test_when_probes_find_a_service_dead_those_who_wait_there_are_told() -> None:
    """Requests' failures alone say nothing of the requests that are under way."""
    async with world(organization(endpoint("imap", 1))) as w:
        told: list[str] = []
        w.service.when_dead = told.append
        for client in ("192.0.2.1", "192.0.2.2"):
            w.service.failed("MBX-01", "imap", client, "reset")
        assert not w.service.healthy("MBX-01", "imap")
        assert told == []
        w.service.connected("MBX-01", "imap")
        await w.after(6)
        assert told == []
        await w.after(6)
        assert told == ["MBX-01"]
        await w.after(6)
        assert told == ["MBX-01"] * 2, "for those who have come since"


async def test_two_clients_failures_take_it_down_and_a_probe_follows_at_once() -> None:
    async with listening(b"* OK ready\r\n") as server, world(organization(endpoint("imap", server.port))) as w:
        w.service.connected("MBX-01", "imap")
        for _ in range(50):
            w.service.failed("MBX-01", "imap", "192.0.2.1", "reset")
        assert w.service.healthy("MBX-01", "imap"), "one client alone"
        w.service.failed("MBX-01", "imap", "192.0.2.2", "reset")
        assert not w.service.healthy("MBX-01", "imap")
        w.now += 7.5
        assert w.service.counters() == {"down.MBX-01.imap": 7}
        await w.after(0)
        assert w.service.counters() == {}
        assert w.service.healthy("MBX-01", "imap")
        assert w.events == [("server.down", "imap", "requests"), ("server.up", "imap", "probe")]


async def test_a_real_success_brings_it_back() -> None:
    async with world(organization(endpoint("imap", 1))) as w:
        w.service.failed("MBX-01", "imap", "192.0.2.1", "reset")
        w.service.failed("MBX-01", "imap", "192.0.2.2", "reset")
        w.service.connected("MBX-01", "imap")
        assert w.service.healthy("MBX-01", "imap")
        assert w.events[-1] == ("server.up", "imap", "requests")


async def test_probes_at_once_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MAX_AT_ONCE", 1)
    async with (
        listening(b"HTTP/1.1 200 OK\r\n\r\n", waits=True) as server,
        world(organization(endpoint("http", server.port))) as w,
    ):
        for service in ("owa", "dav"):
            w.service.connected("MBX-01", service)
        await w.after(6)
        assert server.connections == 1
        await w.after(0)
        assert server.connections == 2


async def test_what_nobody_can_probe_never_goes_down() -> None:
    """A peer, where this front end has no certificate to ask it with: nothing would bring it up again."""
    org = organization(endpoint("peer", 1, tls=TlsMode.IMPLICIT), roles=frozenset({Role.CLIENT_ACCESS}))
    for keys, down in ((None, False), (PeerKeys(b"", b"", b""), True)):
        async with world(org, peer_keys=keys) as w:
            for client in ("192.0.2.1", "192.0.2.2"):
                w.service.failed("MBX-01", "owa", client, "reset")
            assert w.service.healthy("MBX-01", "owa") is not down


async def test_a_reload_forgets_what_is_gone() -> None:
    org = organization(endpoint("imap", 1), endpoint("pop3", 2))
    async with world(org) as w:
        for service in ("imap", "pop3"):
            for client in ("192.0.2.1", "192.0.2.2"):
                w.service.failed("MBX-01", service, client, "reset")
        changed = organization(endpoint("imap", 1))
        w.service.reload(Configuration(changed, w.configuration.front_end), trusting)
        assert [entry["service"] for entry in w.service.describe()] == ["imap"]
        assert w.service.healthy("MBX-01", "pop3")


async def test_words_of_paths_are_services_that_the_server_has() -> None:
    """Clients may say any first segment where a directory is at `/`: it is one service, not a probe for each word."""
    org = organization(endpoint("http", 1))
    root = VirtualDirectory("MBX-01", "webmail", "/Mail", "http://mbx.contoso.com/")
    org = replace(org, virtual_directories=(*org.virtual_directories, root))
    async with world(org) as w:
        for word in ("mail", "webmail", "OWA", "owa", *(f"anything {number}" for number in range(100))):
            w.service.connected("MBX-01", word)
        assert set(w.service._watched) == {("MBX-01", "webmail"), ("MBX-01", "owa"), ("MBX-01", "https")}
        w.service.failed("MBX-01", "mail", "192.0.2.1", "reset")
        w.service.failed("MBX-01", "webmail", "192.0.2.2", "reset")
        assert not w.service.healthy("MBX-01", "Mail")
        assert w.service.healthy("MBX-01", "owa")


def test_a_front_end_is_asked_about_services_of_its_site() -> None:
    """It needs no directory of its own for what it passes on."""
    org = organization(endpoint("https", 1, tls=TlsMode.IMPLICIT))
    peer = endpoint("peer", 2, tls=TlsMode.IMPLICIT)
    org.servers["CAS-01"] = replace(org.servers["CAS-01"], endpoints=(peer,))
    probe = probes.plan(org, "CAS-01", "dav")
    assert probe is not None
    assert (probe.peer, probe.endpoint) == (True, peer)
    assert probe.request.startswith(b"GET /dav/healthcheck.htm ")
