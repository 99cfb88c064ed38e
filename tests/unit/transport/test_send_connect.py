"""Opening sessions: which fault is whose, and what is told of sessions."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from smtp_script import (
    DEADLINE,
    DROP,
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
from gatepost.transport.send.options import Endpoint, SendTimes, TlsFacts
from gatepost.transport.send.outcome import ConnectFailed
from gatepost.wire.smtp_client_events import SessionFault

NAME = "mx.x.test"
OPPORTUNISTIC, ENCRYPTED, VERIFIED = TlsLevel.OPPORTUNISTIC, TlsLevel.ENCRYPTED, TlsLevel.VERIFIED


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage(authorities=ca_pem())
    yield stage
    await stage.close()


async def test_a_socket_error_is_the_only_word_that_a_server_is_down(stage: Stage) -> None:
    """SPEC T5."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Server()
        server.endpoint = Endpoint("127.0.0.1", listening.getsockname()[1])
    error = await stage.failure(server)
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
        error = await stage.failure(server, times=SendTimes(connect=0.2))
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
        error = await stage.failure(server, times=SendTimes(greeting=0.15))
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
        await stage.handed_over(server, server.way())
    async with Server().running() as server:
        sender = await stage.connect(server, source_address="127.61.0.7")
        peer = server.connections[0].transport.get_extra_info("peername")
        assert peer[0] == "127.61.0.7"
        await sender.quit()
    error = await stage.failure(server, source_address="192.0.2.1")
    assert error.fault is SessionFault.CONNECT


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
        await stage.failure(server, server.way(tls=VERIFIED, tls_name="other.test"), hooks=hooks)
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
