"""TLS with the next server by each rule, and a password that is never sent without it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator

import pytest
import trustme
from smtp_script import (
    DROP,
    DROP_AT_HELLO,
    HANG,
    Body,
    Server,
    Stage,
    ca_pem,
    envelope,
    server_tls,
    until,
)

from gatepost.organization.transport import TlsLevel
from gatepost.routing.next_hop import Way
from gatepost.transport.message import RecipientState
from gatepost.transport.send.options import Endpoint, SendTimes
from gatepost.transport.send.outcome import ConnectFailed
from gatepost.transport.send.tls import MAX_NOTES, NotedHosts, TlsContexts, TlsMaterial, server_name
from gatepost.wire.smtp_client_events import SessionFault

NAME = "mx.x.test"
OPPORTUNISTIC, ENCRYPTED, VERIFIED = TlsLevel.OPPORTUNISTIC, TlsLevel.ENCRYPTED, TlsLevel.VERIFIED


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage(authorities=ca_pem())
    yield stage
    await stage.close()


@pytest.mark.parametrize("level", [OPPORTUNISTIC, ENCRYPTED, VERIFIED])
async def test_starttls_by_each_level(stage: Stage, level: TlsLevel) -> None:
    async with Server(b"PIPELINING", tls=server_tls(NAME)).running() as server:
        sender = await stage.connect(server, server.way(tls=level))
        assert sender.tls is not None
        assert sender.tls.version == "TLSv1.3"
        assert sender.verified == (level is VERIFIED)
        message = envelope()
        outcome = await sender.send(message, message.recipients, Body())
        assert outcome.broken is None
        await sender.quit()
    assert server.verbs[:3] == ["EHLO", "STARTTLS", "EHLO"]


@pytest.mark.parametrize("level", [OPPORTUNISTIC, ENCRYPTED])
async def test_any_certificate_will_do_where_none_is_verified(stage: Stage, level: TlsLevel) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("other.test").configure_cert(context)
    async with Server(tls=context).running() as server:
        await stage.handed_over(server, server.way(tls=level))


async def test_a_verified_server_must_carry_its_name_and_be_vouched_for(stage: Stage) -> None:
    async with Server(tls=server_tls("other.test")).running() as server:
        error = await stage.failure(server, server.way(tls=VERIFIED))
        assert error.fault is SessionFault.TLS
        assert "certificate refused" in error.text
        await stage.handed_over(server, server.way(tls=VERIFIED, tls_name="other.test"))
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert(NAME).configure_cert(stranger)
    async with Server(tls=stranger).running() as server:
        assert (await stage.failure(server, server.way(tls=VERIFIED))).fault is SessionFault.TLS


@pytest.mark.parametrize("level", [ENCRYPTED, VERIFIED])
async def test_required_tls_that_is_not_offered_ends_the_attempt(stage: Stage, level: TlsLevel) -> None:
    async with Server().running() as server:
        assert (await stage.failure(server, server.way(tls=level))).fault is SessionFault.TLS
        assert "MAIL" not in server.verbs


@pytest.mark.parametrize("when", [DROP, DROP_AT_HELLO])
async def test_row_25_a_failed_handshake_is_followed_by_one_attempt_without_tls(stage: Stage, when: bytes) -> None:
    async with Server(b"PIPELINING", tls=server_tls(NAME), HANDSHAKE=when).running() as server:
        await stage.handed_over(server, server.way(tls=OPPORTUNISTIC))
        assert len(server.connections) == 2
        assert server.verbs == ["EHLO", "STARTTLS", "EHLO", "MAIL", "RCPT", "DATA", "QUIT"]
        assert [line["host"] for line in stage.events("send.without_tls")] == [NAME]
        # The host is remembered: no more handshakes for a while.
        await stage.handed_over(server, server.way(tls=OPPORTUNISTIC))
        assert server.verbs.count("STARTTLS") == 1
        # Only where TLS is opportunistic.
        for level in (ENCRYPTED, VERIFIED):
            assert (await stage.failure(server, server.way(tls=level))).fault is SessionFault.TLS


@pytest.mark.parametrize("level", [OPPORTUNISTIC, ENCRYPTED])
async def test_closing_in_the_middle_of_a_handshake_ends_the_attempt(stage: Stage, level: TlsLevel) -> None:
    """And that is no reason to try without TLS."""
    async with Server(tls=server_tls(NAME), HANDSHAKE=HANG).running() as server:
        connecting = asyncio.create_task(stage.connect(server, server.way(tls=level)))
        await until(lambda: bool(server.connections) and server.connections[0].at_hello == HANG)
        await asyncio.sleep(0.02)
        stage.outbound.close()
        with pytest.raises(ConnectFailed) as raised:
            await connecting
        assert raised.value.fault is SessionFault.TLS
        assert len(server.connections) == 1
        assert not stage.outbound.open


async def test_a_handshake_has_its_time(stage: Stage) -> None:
    async with Server(tls=server_tls(NAME), HANDSHAKE=HANG).running() as server:
        error = await stage.failure(server, server.way(tls=ENCRYPTED), times=SendTimes(tls=0.1))
        assert error.fault is SessionFault.TLS


def test_row_25_the_note_about_a_host_expires_and_notes_are_bounded() -> None:
    notes = NotedHosts(seconds=10.0)
    host = Endpoint("192.0.2.1", 25)
    assert (host, 0.0) not in notes
    notes.note(host, 0.0)
    assert (host, 9.9) in notes
    assert (Endpoint("192.0.2.2", 25), 1.0) not in notes
    assert (host, 10.0) not in notes
    for number in range(MAX_NOTES + 5):
        notes.note(Endpoint("192.0.2.1", number), 0.0)
    assert (Endpoint("192.0.2.1", 0), 1.0) not in notes
    assert (Endpoint("192.0.2.1", MAX_NOTES), 1.0) in notes


async def test_implicit_tls(stage: Stage) -> None:
    loop = asyncio.get_running_loop()
    server = Server()
    from smtp_script import Connection

    listening = await loop.create_server(lambda: Connection(server), "127.0.0.1", 0, ssl=server_tls(NAME))
    server.endpoint = Endpoint("127.0.0.1", listening.sockets[0].getsockname()[1])
    for level in (OPPORTUNISTIC, VERIFIED):
        await stage.handed_over(server, server.way(tls=level, implicit_tls=True))
    listening.close()
    await until(lambda: all(connection.closed for connection in server.connections))
    assert "STARTTLS" not in server.verbs
    # What greets in clear has no TLS, and is not down either.
    async with Server().running() as clear:
        error = await stage.failure(clear, clear.way(implicit_tls=True))
        assert error.fault is SessionFault.TLS
        assert len(clear.connections) == 1


async def test_mutual_tls_shows_our_certificate_and_believes_the_organization_alone() -> None:
    organization = trustme.CA()
    ours = organization.issue_cert("hub-01.contoso.com")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    organization.issue_cert(NAME).configure_cert(context)
    context.verify_mode = ssl.CERT_REQUIRED
    organization.configure_trust(context)
    stage = Stage(
        organization_ca=organization.cert_pem.bytes(),
        certificate=b"".join(pem.bytes() for pem in ours.cert_chain_pems),
        private_key=ours.private_key_pem.bytes(),
        authorities=ca_pem(),
    )
    async with Server(tls=context).running() as server:
        sender = await stage.connect(server, server.way(tls=OPPORTUNISTIC, mutual=True))
        assert sender.verified
        secure = server.connections[0].transport.get_extra_info("ssl_object")
        assert ("DNS", "hub-01.contoso.com") in secure.getpeercert()["subjectAltName"]
        await sender.quit()
    async with Server(tls=server_tls(NAME)).running() as server:  # a public certificate is not enough
        error = await stage.failure(server, server.way(tls=OPPORTUNISTIC, mutual=True))
        assert error.fault is SessionFault.TLS
        assert len(server.connections) == 1
    async with Server().running() as server:  # nor is none, though the level is opportunistic
        assert (await stage.failure(server, server.way(tls=OPPORTUNISTIC, mutual=True))).fault is SessionFault.TLS
    await stage.close()
    stage = Stage()
    async with Server(tls=context).running() as server:
        error = await stage.failure(server, server.way(mutual=True))
        assert error.fault is SessionFault.TLS
        assert "our own" in error.text
    await stage.close()


def test_ways_of_different_rules_share_no_context() -> None:
    contexts = TlsContexts(TlsMaterial(authorities=ca_pem()))
    way = Way(NAME, "192.0.2.1", 25)
    verified = Way(NAME, "192.0.2.1", 25, tls=VERIFIED)
    assert contexts.of(way) is not contexts.of(verified)
    assert contexts.of(way).verify_mode is ssl.CERT_NONE
    assert contexts.of(verified).verify_mode is ssl.CERT_REQUIRED
    assert contexts.of(verified).check_hostname


def test_the_name_that_a_certificate_must_carry() -> None:
    contexts = TlsContexts(TlsMaterial(authorities=ca_pem()))
    for host, tls_name, level, name in (
        (NAME, "", VERIFIED, NAME),
        (NAME + ".", "", OPPORTUNISTIC, NAME),
        (NAME, "other.test", VERIFIED, "other.test"),
        ("192.0.2.1", "", VERIFIED, "192.0.2.1"),
        ("192.0.2.1", "", OPPORTUNISTIC, None),
        ("bücher.test", "", OPPORTUNISTIC, "xn--bcher-kva.test"),
    ):
        way = Way(host, "192.0.2.1", 25, tls=level, tls_name=tls_name)
        assert server_name(way, contexts.of(way)) == name


async def test_row_6_bytes_injected_behind_starttls_end_the_attempt(stage: Stage) -> None:
    injected = b"220 go\r\n250 mx.x.test\r\n"
    async with Server(tls=server_tls(NAME), STARTTLS=injected).running() as server:
        assert (await stage.failure(server, server.way(tls=ENCRYPTED))).fault is SessionFault.TLS


async def test_row_23_requiretls_over_a_verified_session(stage: Stage) -> None:
    message = envelope(require_tls=True)
    for level, state in ((VERIFIED, RecipientState.DELIVERED), (ENCRYPTED, RecipientState.FAILED)):
        async with Server(b"REQUIRETLS", tls=server_tls(NAME)).running() as server:
            sender = await stage.connect(server, server.way(tls=level))
            outcome = await sender.send(message, message.recipients, Body())
            assert [entry.state for entry in outcome.recipients] == [state]
            assert ("MAIL FROM:<a@x.test> REQUIRETLS" in server.commands) == (level is VERIFIED)


# AUTH


async def test_the_password_goes_within_tls_only(stage: Stage) -> None:
    auth = {"user": "ann", "password": "s3cret"}
    async with Server(b"AUTH PLAIN", tls=server_tls(NAME), AUTH=b"235 ok\r\n").running() as server:
        sender = await stage.connect(server, server.way(tls=ENCRYPTED), **auth)
        assert server.verbs == ["EHLO", "STARTTLS", "EHLO", "AUTH"]
        await sender.quit()
    async with Server(b"AUTH PLAIN", AUTH=b"235 ok\r\n").running() as server:
        error = await stage.failure(server, server.way(tls=OPPORTUNISTIC), **auth)
        assert error.fault is SessionFault.AUTHENTICATION
        assert "AUTH" not in server.verbs
    async with Server(b"AUTH PLAIN", tls=server_tls(NAME), HANDSHAKE=DROP).running() as server:
        assert (await stage.failure(server, server.way(tls=OPPORTUNISTIC), **auth)).fault is SessionFault.TLS
        assert len(server.connections) == 1


async def test_row_44_a_refused_sign_in_is_the_hosts_and_shows_no_secret(stage: Stage) -> None:
    answer = b"535 5.7.8 wrong: s3cret AGFubgBzM2NyZXQ=\r\n"
    async with Server(b"AUTH PLAIN", tls=server_tls(NAME), AUTH=answer).running() as server:
        error = await stage.failure(server, server.way(tls=ENCRYPTED), user="ann", password="s3cret")
        assert error.fault is SessionFault.AUTHENTICATION
        assert "s3cret" not in error.text
        assert "AGFub" not in error.text
        assert "s3cret" not in repr(stage.options) + repr(stage.log.calls)
