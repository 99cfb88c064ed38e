"""Opening sessions: which fault is whose, TLS by each rule, and what is told of sessions."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trustme
from smtp_script import (
    DEADLINE,
    DROP,
    DROP_AT_HELLO,
    HANG,
    SILENCE,
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
from gatepost.transport.send.options import Endpoint, SendTimes, TlsFacts
from gatepost.transport.send.outcome import ConnectFailed
from gatepost.transport.send.tls import MAX_NOTES, TlsContexts, TlsMaterial, WithoutTls, server_name
from gatepost.wire.smtp_client_events import SessionFault

NAME = "mx.x.test"
OPPORTUNISTIC, ENCRYPTED, VERIFIED = TlsLevel.OPPORTUNISTIC, TlsLevel.ENCRYPTED, TlsLevel.VERIFIED


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage(authorities=ca_pem())
    yield stage
    await stage.close()


async def failure(stage: Stage, server: Server, way: Way | None = None, **options: Any) -> ConnectFailed:
    with pytest.raises(ConnectFailed) as raised:
        await stage.connect(server, way, **options)
    assert not [sender for sender in stage.outbound.open if sender.usable]
    return raised.value


async def handed_over(stage: Stage, server: Server, way: Way, **options: Any) -> None:
    sender = await stage.connect(server, way, **options)
    message = envelope()
    outcome = await sender.send(message, message.recipients, Body())
    assert [entry.state for entry in outcome.recipients] == [RecipientState.DELIVERED]
    await sender.quit()


# Whose fault


async def test_a_socket_error_is_the_only_word_that_a_server_is_down(stage: Stage) -> None:
    """SPEC T5."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Server()
        server.endpoint = Endpoint("127.0.0.1", listening.getsockname()[1])
    error = await failure(stage, server)
    assert error.fault is SessionFault.CONNECT
    assert error.error is not None
    assert error.error.errno == errno.ECONNREFUSED


async def test_no_answer_to_the_connection_is_a_socket_error_too(stage: Stage) -> None:
    server = Server()
    with socket.create_server(("127.0.0.1", 0), backlog=1) as listening:
        server.endpoint = Endpoint("127.0.0.1", listening.getsockname()[1])
        # Its queue is full: what comes now gets no answer.
        full = [socket.socket() for _ in range(8)]
        for one in full:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", server.endpoint.port))
        error = await failure(stage, server, times=SendTimes(connect=0.2))
        for one in full:
            one.close()
    assert error.fault is SessionFault.CONNECT
    assert error.error is not None
    assert error.error.errno == errno.ETIMEDOUT


@pytest.mark.parametrize(
    ("answers", "fault"),
    [
        ({"GREETING": b"554 5.7.1 no\r\n"}, SessionFault.REFUSED),
        ({"GREETING": b"450 later\r\n"}, SessionFault.REFUSED),
        ({"GREETING": b"421 4.7.0 busy\r\n"}, SessionFault.BUSY),
        ({"GREETING": b"SSH-2.0-x\r\n"}, SessionFault.PROTOCOL),
        ({"GREETING": DROP}, SessionFault.LOST),
        ({"GREETING": SILENCE}, SessionFault.TIMEOUT),
        ({"EHLO": b"421 busy\r\n"}, SessionFault.BUSY),
        ({"EHLO": b"550 no\r\n", "HELO": b"550 no\r\n"}, SessionFault.REFUSED),
        ({"EHLO": SILENCE}, SessionFault.TIMEOUT),
        ({"EHLO": DROP}, SessionFault.LOST),
    ],
)
async def test_row_44_faults_of_the_opening_are_the_hosts(
    stage: Stage, answers: dict[str, bytes], fault: SessionFault
) -> None:
    async with Server(**answers).running() as server:
        error = await failure(stage, server, times=SendTimes(greeting=0.15))
        assert error.fault is fault
        assert error.error is None
        if fault in (SessionFault.REFUSED, SessionFault.BUSY):
            assert error.reply is not None
        await until(lambda: server.connections[0].closed)


async def test_a_greeting_in_the_same_moment_as_the_connection_is_not_lost(stage: Stage) -> None:
    async with Server().running() as server:
        for _ in range(10):
            sender = await stage.connect(server)
            assert sender.usable
            await sender.quit()


async def test_a_connection_that_lost_the_race_is_closed_without_a_word(stage: Stage) -> None:
    """Connections may be tried two at a time: what is reached is greeted only if it is used."""
    async with Server(b"PIPELINING", tls=server_tls(NAME)).running() as server:
        slower = await stage.outbound.reach(server.endpoint, server.way(), stage.options)
        faster = await stage.outbound.reach(server.endpoint, server.way(tls=ENCRYPTED), stage.options)
        await until(lambda: len(server.connections) == 2)
        assert not slower.usable
        assert not slower.busy
        assert "connected" in repr(slower)
        slower.abort()
        await until(lambda: slower.closed)
        assert server.verbs == []
        assert stage.outbound.open == {faster}
        sender = await stage.outbound.greet(faster)
        assert sender.usable
        await sender.quit()
        await until(lambda: not stage.outbound.open)
        assert [line["why"] for line in stage.events("send.session")] == ["quit"]


async def test_a_server_that_is_gone_before_it_is_greeted(stage: Stage) -> None:
    for changes in ({}, {"implicit_tls": True}, {"tls": ENCRYPTED}):
        async with Server(GREETING=DROP).running() as server:
            sender = await stage.outbound.reach(server.endpoint, server.way(**changes), stage.options)
            await until(lambda: sender.closed)  # noqa: B023 - called at once
            with pytest.raises(ConnectFailed) as raised:
                await stage.outbound.greet(sender)
            assert raised.value.fault is (SessionFault.TLS if "implicit_tls" in changes else SessionFault.LOST)
            assert not stage.outbound.open


async def test_ipv6_and_an_address_of_our_own(stage: Stage) -> None:
    async with Server().running("::1") as server:
        assert str(server.endpoint).startswith("[::1]:")
        await handed_over(stage, server, server.way())
    async with Server().running() as server:
        sender = await stage.connect(server, source_address="127.61.0.7")
        peer = server.connections[0].transport.get_extra_info("peername")
        assert peer[0] == "127.61.0.7"
        await sender.quit()
    error = await failure(stage, server, source_address="192.0.2.1")
    assert error.fault is SessionFault.CONNECT


# TLS


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
        await handed_over(stage, server, server.way(tls=level))


async def test_a_verified_server_must_carry_its_name_and_be_vouched_for(stage: Stage) -> None:
    async with Server(tls=server_tls("other.test")).running() as server:
        error = await failure(stage, server, server.way(tls=VERIFIED))
        assert error.fault is SessionFault.TLS
        assert "certificate refused" in error.text
        await handed_over(stage, server, server.way(tls=VERIFIED, tls_name="other.test"))
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert(NAME).configure_cert(stranger)
    async with Server(tls=stranger).running() as server:
        assert (await failure(stage, server, server.way(tls=VERIFIED))).fault is SessionFault.TLS


@pytest.mark.parametrize("level", [ENCRYPTED, VERIFIED])
async def test_required_tls_that_is_not_offered_ends_the_attempt(stage: Stage, level: TlsLevel) -> None:
    async with Server().running() as server:
        assert (await failure(stage, server, server.way(tls=level))).fault is SessionFault.TLS
        assert "MAIL" not in server.verbs


@pytest.mark.parametrize("when", [DROP, DROP_AT_HELLO])
async def test_row_25_a_failed_handshake_is_followed_by_one_attempt_without_tls(stage: Stage, when: bytes) -> None:
    async with Server(b"PIPELINING", tls=server_tls(NAME), HANDSHAKE=when).running() as server:
        await handed_over(stage, server, server.way(tls=OPPORTUNISTIC))
        assert len(server.connections) == 2
        assert server.verbs == ["EHLO", "STARTTLS", "EHLO", "MAIL", "RCPT", "DATA", "QUIT"]
        assert [line["host"] for line in stage.events("send.without_tls")] == [NAME]
        # The host is remembered: no more handshakes for a while.
        await handed_over(stage, server, server.way(tls=OPPORTUNISTIC))
        assert server.verbs.count("STARTTLS") == 1
        # Only where TLS is opportunistic.
        for level in (ENCRYPTED, VERIFIED):
            assert (await failure(stage, server, server.way(tls=level))).fault is SessionFault.TLS


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
        error = await failure(stage, server, server.way(tls=ENCRYPTED), times=SendTimes(tls=0.1))
        assert error.fault is SessionFault.TLS


def test_row_25_the_note_about_a_host_expires_and_notes_are_bounded() -> None:
    notes = WithoutTls(seconds=10.0)
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
        await handed_over(stage, server, server.way(tls=level, implicit_tls=True))
    listening.close()
    await until(lambda: all(connection.closed for connection in server.connections))
    assert "STARTTLS" not in server.verbs
    # What greets in clear has no TLS, and is not down either.
    async with Server().running() as clear:
        error = await failure(stage, clear, clear.way(implicit_tls=True))
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
        error = await failure(stage, server, server.way(tls=OPPORTUNISTIC, mutual=True))
        assert error.fault is SessionFault.TLS
        assert len(server.connections) == 1
    async with Server().running() as server:  # nor is none, though the level is opportunistic
        assert (await failure(stage, server, server.way(tls=OPPORTUNISTIC, mutual=True))).fault is SessionFault.TLS
    await stage.close()
    stage = Stage()
    async with Server(tls=context).running() as server:
        error = await failure(stage, server, server.way(mutual=True))
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
        assert (await failure(stage, server, server.way(tls=ENCRYPTED))).fault is SessionFault.TLS


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
        error = await failure(stage, server, server.way(tls=OPPORTUNISTIC), **auth)
        assert error.fault is SessionFault.AUTHENTICATION
        assert "AUTH" not in server.verbs
    async with Server(b"AUTH PLAIN", tls=server_tls(NAME), HANDSHAKE=DROP).running() as server:
        assert (await failure(stage, server, server.way(tls=OPPORTUNISTIC), **auth)).fault is SessionFault.TLS
        assert len(server.connections) == 1


async def test_row_44_a_refused_sign_in_is_the_hosts_and_shows_no_secret(stage: Stage) -> None:
    answer = b"535 5.7.8 wrong: s3cret AGFubgBzM2NyZXQ=\r\n"
    async with Server(b"AUTH PLAIN", tls=server_tls(NAME), AUTH=answer).running() as server:
        error = await failure(stage, server, server.way(tls=ENCRYPTED), user="ann", password="s3cret")
        assert error.fault is SessionFault.AUTHENTICATION
        assert "s3cret" not in error.text
        assert "AGFub" not in error.text
        assert "s3cret" not in repr(stage.options) + repr(stage.log.calls)


# What is told


class Hooks:
    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def connected(self, *facts: Any) -> None:
        self.told.append(("+", *facts))

    def disconnected(self, *facts: Any) -> None:
        self.told.append(("-", *facts))


async def test_hooks_and_log_tell_of_sessions(stage: Stage) -> None:
    hooks = Hooks()
    async with Server(b"PIPELINING", tls=server_tls(NAME)).running() as server:
        sender = await stage.connect(server, server.way(tls=VERIFIED), hooks=hooks)
        message = envelope()
        for _ in range(3):
            await sender.send(message, message.recipients, Body())
        await sender.quit()
        await until(lambda: len(hooks.told) == 2)
        facts = TlsFacts("TLSv1.3", "TLS_AES_256_GCM_SHA384", verified=True)
        octets = 3 * Body().size
        assert hooks.told == [
            ("+", sender.session, server.endpoint, NAME, "mx.x.test", facts),
            ("-", sender.session, server.endpoint, NAME, 3, octets, "quit"),
        ]
        (line,) = stage.events("send.session")
        assert line["messages"] == 3
        assert line["octets"] == octets
        assert line["why"] == "quit"
        assert line["tls"].startswith("TLSv1.3")
        await failure(stage, server, server.way(tls=VERIFIED, tls_name="other.test"), hooks=hooks)
        assert len(hooks.told) == 2


async def test_a_session_that_the_server_ends_is_told_with_the_reason(stage: Stage) -> None:
    hooks = Hooks()
    async with Server().running() as server:
        sender = await stage.connect(server, hooks=hooks)
        server.connections[0].transport.close()
        await until(lambda: len(hooks.told) == 2)
        assert hooks.told[1][-1] == "lost: connection closed (between messages)"
        assert not sender.usable
        await sender.quit()


async def test_quit_ends_also_where_the_server_does_not_answer(stage: Stage) -> None:
    for answer in (SILENCE, DROP):
        async with Server(QUIT=answer).running() as server:
            server.answers["QUIT"] = answer
            sender = await stage.connect(server, times=SendTimes(quit=0.1))
            async with asyncio.timeout(DEADLINE):
                await sender.quit()
            assert not sender.usable
            await until(lambda: not stage.outbound.open)


async def test_idle_sessions_have_no_deadline_and_say_since_when(stage: Stage) -> None:
    async with Server().running() as server:
        sender = await stage.connect(server, times=SendTimes(greeting=0.05, command=0.05))
        since = sender.idle_since
        await asyncio.sleep(0.15)
        assert sender.usable
        message = envelope()
        await sender.send(message, message.recipients, Body())
        assert sender.idle_since > since
        await sender.quit()


async def test_a_cancelled_connect_leaves_nothing(stage: Stage) -> None:
    async with Server(GREETING=SILENCE).running() as server:
        connecting = asyncio.create_task(stage.connect(server))
        await until(lambda: bool(server.connections))
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await until(lambda: server.connections[0].closed)
        assert not stage.outbound.open
