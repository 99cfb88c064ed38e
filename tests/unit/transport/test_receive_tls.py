"""TLS at receive connectors: STARTTLS and at once, servers of the organization, partners (SPEC T1; smtp-facts c.1)."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from ipaddress import ip_address

import pytest
import trustme
from peer_samples import MADE, ca_pair
from receive_stage import AUTHORITY, CERTIFICATE, CONNECTOR, Client, client_context, loopback, receiving, until

from gatepost.configuration.key_pairs import load_key_pair
from gatepost.organization.model import Role, Server, Version
from gatepost.organization.transport import Binding, PermissionGroup, ReceiveAuthentication
from gatepost.peers.ca import Authority, KeyPair
from gatepost.transport.receive.tls import ReceiveTls, receive_tls
from gatepost.wire.proxy_protocol import encode_v2

IMPLICIT = replace(CONNECTOR, bindings=(Binding(ip_address("127.0.0.1"), 1, implicit_tls=True),))


def hub(name: str, role: Role = Role.HUB_TRANSPORT) -> Server:
    return Server(name, "usa", f"{name.lower()}.contoso.com", "127.0.0.1", Version.MODERN, frozenset({role}))


SERVERS = {name: hub(name) for name in ("HUB-01", "HUB-02")}


def issue(server: Server, organization: str = "contoso") -> KeyPair:
    return Authority.load(ca_pair(organization)).issue(server, MADE, 30)


def tls(*, partner_ca: bytes = b"") -> ReceiveTls:
    own = issue(SERVERS["HUB-01"])
    return receive_tls(
        CERTIFICATE.cert_chain_pems[0].bytes(),
        CERTIFICATE.private_key_pem.bytes(),
        organization_ca=ca_pair().certificate,
        organization_pair=(own.certificate, own.private_key),
        servers=SERVERS,
        own_name="HUB-01",
        partner_ca=partner_ca,
    )


def showing(pair: KeyPair | None) -> ssl.SSLContext:
    """A client of the organization: believes its CA, and shows this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=ca_pair().certificate.decode())
    if pair is not None:
        load_key_pair(context, pair.certificate, pair.private_key)
    return context


async def test_starttls_forgets_and_goes_on() -> None:
    async with receiving() as stage:
        client = await stage.client()
        got = await client.say("EHLO c.example", "STARTTLS")
        assert "STARTTLS" in got[0]
        assert got[1].startswith("220")
        await client.start_tls()
        assert (await client.say("MAIL FROM:<s@far.example>"))[0].startswith("503")
        await client.begin()
        await client.say("x\r\n.")
        assert stage.intake.taken[0][0].source.protocol == "ESMTPS"


async def test_injected_octets_end_the_session_before_the_handshake() -> None:
    async with receiving() as stage:
        client = await stage.client()
        await client.say("EHLO c.example")
        client.writer.write(b"STARTTLS\r\nMAIL FROM:<evil@far.example>\r\n")
        assert (await client.reply()).startswith("554 5.5.1")
        assert await client.ended()
        assert stage.intake.taken == []


async def test_a_handshake_that_comes_to_nothing_leaves_nothing() -> None:
    async with receiving() as stage:
        client = await stage.client()
        await client.say("EHLO c.example", "STARTTLS")
        client.writer.write(b"this is no client hello at all\r\n")
        assert await client.ended()
        await until(lambda: not stage.service.connections)
        assert not +stage.service.counts._all


async def test_tls_at_once() -> None:
    async with receiving(IMPLICIT) as stage:
        client = await stage.client(ssl=client_context(), server_hostname="hub-01.contoso.com")
        await client.begin()
        await client.say("x\r\n.")
        source = stage.intake.taken[0][0].source
        assert source.protocol == "ESMTPS"
        assert source.tls.startswith("TLSv1.3")


async def test_tls_at_once_behind_a_balancer() -> None:
    async with receiving(replace(IMPLICIT, proxy_protocol_from=(loopback(),))) as stage:
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.ports[0])
        writer.write(encode_v2(("192.0.2.9", 4711), ("192.0.2.1", 465)))
        await writer.start_tls(client_context(), server_hostname="hub-01.contoso.com")
        client = Client(reader, writer)
        assert (await client.reply()).startswith("220")
        await client.begin()
        await client.say("x\r\n.")
        assert stage.intake.taken[0][0].source.address == "192.0.2.9"
        writer.close()
        await writer.wait_closed()


async def test_strangers_cost_no_handshake_when_there_are_too_many() -> None:
    async with receiving(replace(IMPLICIT, max_connections_per_source=1)) as stage:
        await stage.client(ssl=client_context(), server_hostname="hub-01.contoso.com")
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.ports[0])
        assert await reader.read(1) == b""
        writer.close()


async def test_clear_text_where_tls_comes_first_leaves_nothing() -> None:
    async with receiving(IMPLICIT) as stage:
        client = await stage.client(greeted=False)
        client.writer.write(b"EHLO c.example\r\n")
        assert await client.ended()
        await until(lambda: not stage.service.connections and not +stage.service.counts._all)


async def test_a_server_of_the_organization_is_known_by_its_certificate() -> None:
    async with receiving(tls=tls()) as stage:
        client = await stage.client()
        await client.say("EHLO hub-02.contoso.com", "STARTTLS")
        await client.start_tls(showing(issue(SERVERS["HUB-02"])))
        await client.begin("a@far.example")
        await client.say("x\r\n.")
        assert stage.intake.taken[0][0].source.internal


@pytest.mark.parametrize(
    "pair",
    [None, issue(hub("HUB-09")), issue(SERVERS["HUB-01"]), issue(SERVERS["HUB-02"], "fabrikam")],
    ids=["none", "unknown server", "our own", "another organization"],
)
async def test_nobody_else_is(pair: KeyPair | None) -> None:
    async with receiving(tls=tls()) as stage:
        client = await stage.client()
        await client.say("EHLO hub-02.contoso.com", "STARTTLS")
        try:
            await client.start_tls(showing(pair))
            got = await client.say("EHLO c.example", "MAIL FROM:<s@far.example>", "RCPT TO:<a@far.example>")
        except (ssl.SSLError, ConnectionError):
            return
        assert not got[2].startswith("250")


async def test_where_servers_are_not_known_by_certificate_none_is_asked_for() -> None:
    """T1: the connector behind a balancer."""
    outside = frozenset({ReceiveAuthentication.TLS})
    async with receiving(replace(CONNECTOR, authentication=outside), tls=tls()) as stage:
        client = await stage.client()
        await client.say("EHLO hub-02.contoso.com", "STARTTLS")
        await client.start_tls()
        got = await client.say("EHLO c.example", "MAIL FROM:<s@far.example>", "RCPT TO:<a@far.example>")
        assert got[2].startswith("550 5.7.1")


async def test_a_stranger_with_a_certificate_of_its_own_is_served() -> None:
    """Large senders show certificates of public authorities: they must not fail the handshake for it."""
    context = client_context()
    trustme.CA().issue_cert("mail.far.example").configure_cert(context)
    async with receiving(tls=tls()) as stage:
        client = await stage.client()
        await client.say("EHLO mail.far.example", "STARTTLS")
        await client.start_tls(context)
        await client.begin()
        assert await client.say("x\r\n.") == ["250 2.6.0 Queued"]
        assert not stage.intake.taken[0][0].source.internal


async def test_partners_show_a_certificate() -> None:
    connector = replace(CONNECTOR, permission_groups=frozenset({PermissionGroup.PARTNERS}))
    known = trustme.CA()
    authority = known.cert_pem.bytes()
    async with receiving(connector, tls=tls(partner_ca=authority)) as stage:
        client = await stage.client()
        assert (await client.say("EHLO p.example", "MAIL FROM:<s@p.example>"))[1].startswith("550 5.7.1")
        await client.say("STARTTLS")
        context = client_context()
        known.issue_cert("mail.p.example").configure_cert(context)
        await client.start_tls(context)
        await client.begin("a@ours.example")
        assert await client.say("x\r\n.") == ["250 2.6.0 Queued"]
        assert (await client.say("MAIL FROM:<s@p.example>", "RCPT TO:<a@far.example>"))[1].startswith("550 5.7.1")


async def test_a_new_certificate_counts_from_the_next_handshake() -> None:
    async with receiving(IMPLICIT) as stage:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        other = AUTHORITY.issue_cert("other.contoso.com")
        other.configure_cert(context)
        connector = replace(IMPLICIT, bindings=(replace(IMPLICIT.bindings[0], port=stage.ports[0]),))
        stage.service.reload([connector], "hub-01.contoso.com", ReceiveTls(context), None)
        await stage.client(ssl=client_context(), server_hostname="other.contoso.com")
