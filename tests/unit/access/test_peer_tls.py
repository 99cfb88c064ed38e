"""The listener for other front ends over real TLS (SPEC C11): who gets through the handshake, and what the log says."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_network
from typing import Any, cast

import pytest
from peer_samples import ca_pair, front_end, peer_keys
from stage import OneUser, until
from structlog.testing import CapturingLogger

from gatepost.access.front_door import FrontDoor
from gatepost.access.router import Router
from gatepost.access.tls import PEER_ALPN, ClientContexts, peer_client_context, server_context
from gatepost.activemanager.port import RegistryView
from gatepost.configuration.settings import Configuration, FrontEnd, PeerKeys
from gatepost.organization.model import Endpoint, Organization, Protocol, Server, Site, TlsMode

HOST = "cas-01.contoso.com"


def server(name: str, port: int = 444) -> Server:
    endpoint = Endpoint("peer", Protocol.HTTPS, "127.0.0.1", port, TlsMode.IMPLICIT, f"{name.lower()}.contoso.com")
    return replace(front_end(name), endpoints=(endpoint,))


class Stage:
    """CAS-01 with its peer endpoint on a free port."""

    def __init__(self, **settings: Any) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        servers = {"CAS-01": server("CAS-01", self.port), "CAS-02": server("CAS-02")}
        organization = Organization("contoso", sites={"usa": Site("usa")}, servers=servers)
        front = FrontEnd("CAS-01", "", "", peer_keys=peer_keys("CAS-01"), **settings)
        self.configuration = Configuration(organization, front)
        self.log = CapturingLogger()
        sign_in: Any = OneUser()
        router = Router(self.configuration, RegistryView(1, {}))
        self.door = FrontDoor(self.configuration, asyncio.get_running_loop(), sign_in, router, cast(Any, self.log))

    def refusals(self) -> list[str]:
        return [dict(call.kwargs)["reason"] for call in self.log.calls if call.args == ("peer.refused",)]

    async def connect(self, context: ssl.SSLContext | None, host: str = HOST) -> tuple[Any, Any]:
        name = host if context is not None else None
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname=name)

    async def turned_away(self, context: ssl.SSLContext | None, first: bytes = b"GET / HTTP/1.1\r\n\r\n") -> None:
        """Connect and speak; nothing may come back. In TLS 1.3 a client learns only then that it was refused."""
        try:
            reader, writer = await self.connect(context)
            writer.write(first)
            async with asyncio.timeout(5):
                assert await reader.read() == b""
            writer.close()
        except (OSError, ssl.SSLError):
            return


@asynccontextmanager
async def stage(**settings: Any) -> AsyncIterator[Stage]:
    made = Stage(**settings)
    await made.door.listen({"peer": [made.socket]})
    try:
        yield made
    finally:
        await made.door.drain(0)


async def test_a_front_end_gets_in_with_its_certificate() -> None:
    """By TLS 1.3 and the protocol's own name; both sides have seen each other's certificate."""
    async with stage() as s:
        _, writer = await s.connect(peer_client_context(peer_keys("CAS-02")))
        handshake = writer.get_extra_info("ssl_object")
        assert (handshake.version(), handshake.selected_alpn_protocol()) == ("TLSv1.3", PEER_ALPN)
        assert ("URI", "gatepost:server:CAS-01") in handshake.getpeercert()["subjectAltName"]
        await until(lambda: [entry for entry in s.door.sessions() if entry["peer"] == "CAS-02"])
        assert s.refusals() == []
        writer.close()


async def test_without_a_client_certificate_nobody_gets_in() -> None:
    """Whoever trusts our CA, a browser or curl."""
    async with stage() as s:
        context = ssl.create_default_context(cadata=ca_pair().certificate.decode())
        context.set_alpn_protocols([PEER_ALPN])
        await s.turned_away(context)
        assert s.door.sessions() == []
        assert s.refusals() == ["TLS: PEER_DID_NOT_RETURN_A_CERTIFICATE"]


async def test_a_client_certificate_of_another_ca_gets_nobody_in() -> None:
    """Though it names CAS-02 of this organization."""
    async with stage() as s:
        await s.turned_away(peer_client_context(peer_keys("CAS-02", "fabrikam")))
        assert s.door.sessions() == []
        assert s.refusals()[0].startswith("TLS: ")


async def test_a_mailbox_server_with_a_certificate_gets_no_further_than_the_handshake() -> None:
    """The CA never makes one for it; if it had, the organization would say that it is no front end."""
    async with stage() as s:
        await s.turned_away(peer_client_context(peer_keys("MBX-01")))
        assert s.refusals() == ["'MBX-01' is no client access server of the organization"]


async def test_older_tls_is_not_spoken() -> None:
    """Both ends are Gatepost."""
    async with stage() as s:
        context = peer_client_context(peer_keys("CAS-02"))
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        await s.turned_away(context)
        assert s.door.sessions() == []
        assert s.refusals() == ["TLS: UNSUPPORTED_PROTOCOL"]


async def test_another_service_behind_tls_is_no_peer() -> None:
    """A certificate of a front end, shown on a connection that was meant for something else."""
    async with stage() as s:
        context = peer_client_context(peer_keys("CAS-02"))
        context.set_alpn_protocols(["http/1.1"])
        await s.turned_away(context)
        assert s.refusals() == [f"does not speak {PEER_ALPN}"]


@pytest.mark.parametrize("trusted", [(), (ip_network("127.0.0.0/8"),)])
async def test_proxy_headers_are_refused_even_from_listed_balancers(trusted: tuple[Any, ...]) -> None:
    """A peer comes straight: what the client's address is stands in its assertion."""
    async with stage(proxy_protocol_from=trusted) as s:
        await s.turned_away(None, b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n")
        assert s.door.sessions() == []
        assert s.refusals()[0].startswith("TLS: ")
        _, writer = await s.connect(peer_client_context(peer_keys("CAS-02")))
        await until(s.door.sessions)
        writer.close()


async def test_a_reload_changes_whom_new_connections_are_taken_from() -> None:
    """The listener stays; nobody is refused meanwhile who is good before and after."""
    async with stage() as s:
        keys = peer_keys("CAS-01")
        other = PeerKeys(keys.certificate, keys.private_key, ca_pair("fabrikam").certificate)
        s.door.reload(replace(s.configuration, front_end=replace(s.configuration.front_end, peer_keys=other)))
        await s.turned_away(peer_client_context(peer_keys("CAS-02")))
        _, writer = await s.connect(peer_client_context(peer_keys("CAS-02", "fabrikam")))
        await until(lambda: [entry for entry in s.door.sessions() if entry["peer"] == "CAS-02"])
        writer.close()


async def test_a_front_end_is_not_taken_for_another() -> None:
    """The one that connects verifies the name: no assertion reaches a server that it was not made for."""
    async with stage() as s:
        with pytest.raises(ssl.SSLCertVerificationError, match="cas-03"):
            await s.connect(peer_client_context(peer_keys("CAS-02")), "cas-03.contoso.com")


async def test_a_server_of_another_ca_is_no_peer() -> None:
    """The system's authorities and those of the mailbox servers count for nothing here."""
    async with stage() as s:
        keys = peer_keys("CAS-02")
        strange = PeerKeys(keys.certificate, keys.private_key, ca_pair("fabrikam").certificate)
        with pytest.raises(ssl.SSLCertVerificationError):
            await s.connect(peer_client_context(strange))


def test_one_context_serves_all_peers_and_none_else() -> None:
    """Connections to mailbox servers do not show the peer certificate."""
    contexts = ClientContexts(FrontEnd("CAS-01", "", "", peer_keys=peer_keys("CAS-01")))
    first, second = server("CAS-02"), server("CAS-03")
    assert contexts(first, peer=True) is contexts(second, peer=True)
    assert contexts(first) is not contexts(first, peer=True)


def test_ordinary_listeners_ask_for_no_certificate() -> None:
    """Browsers would ask their users for one."""
    keys = peer_keys("CAS-01")
    front = FrontEnd("CAS-01", "", "", certificate=keys.certificate, private_key=keys.private_key, peer_keys=keys)
    assert server_context(front, "http/1.1").verify_mode is ssl.CERT_NONE
