"""Receive connections on real sockets: what the intake gets, back pressure, limits, the end (SPEC T1, T2)."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import struct
import tracemalloc
from dataclasses import replace
from ipaddress import ip_address

import pytest
from receive_stage import CONNECTOR, PATIENCE, Client, loopback, receiving, until

from gatepost.directory.port import Verdict
from gatepost.organization.transport import Binding, PermissionGroup, ReceiveAuthentication
from gatepost.transport.message import Notify
from gatepost.transport.ports import Pressure, SpoolFull
from gatepost.transport.receive.admission import ConnectorCounts
from gatepost.transport.receive.leg import MAX_AHEAD, MAX_LINGERING, Phase, ReceiveLeg
from gatepost.transport.receive.trace import protocol_word
from gatepost.wire.proxy_protocol import encode_v2
from gatepost.wire.sasl import bearer_message


def plain(user: str, password: str) -> str:
    return base64.b64encode(f"\0{user}\0{password}".encode()).decode()


def reset(client: Client) -> None:
    """Cut the connection: the other side gets an RST."""
    client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.writer.transport.abort()


async def test_the_envelope_has_all_that_was_said() -> None:
    async with receiving() as stage:
        client = await stage.client()
        await client.say(
            "EHLO client.example",
            "MAIL FROM:<s@far.example> BODY=8BITMIME RET=FULL ENVID=E1 SIZE=20",
            "RCPT TO:<a@ours.example> NOTIFY=DELAY ORCPT=rfc822;z@ours.example",
            "RCPT TO:<b@ours.example>",
            "RCPT TO:<a@ours.example>",
            "DATA",
        )
        assert await client.say("Subject: x\r\n\r\ntext\r\n.") == ["250 2.6.0 Queued"]
        ((envelope, writer),) = stage.intake.taken
    assert bytes(writer.content) == b"Subject: x\r\n\r\ntext\r\n"
    assert (envelope.sender, envelope.body, envelope.returns, envelope.envelope_id) == (
        "s@far.example",
        "8BITMIME",
        "FULL",
        "E1",
    )
    assert [r.address for r in envelope.recipients] == ["a@ours.example", "b@ours.example"]
    assert envelope.recipients[0].notify == Notify.DELAY
    assert envelope.recipients[0].original == "rfc822;z@ours.example"
    assert envelope.size == writer.size
    source = envelope.source
    assert (source.connector, source.address, source.name, source.protocol) == (
        "Default HUB-01",
        "127.0.0.1",
        "client.example",
        "ESMTP",
    )
    assert not source.internal


async def test_eight_bits_are_noted_though_body_said_seven() -> None:
    async with receiving() as stage:
        client = await stage.client()
        await client.begin()
        await client.say("Grüße\r\n.")
        assert stage.intake.taken[0][0].body == "8BITMIME"


async def test_several_messages_by_one_connection() -> None:
    async with receiving() as stage:
        client = await stage.client()
        for _ in range(3):
            await client.begin()
            assert await client.say("x\r\n.") == ["250 2.6.0 Queued"]
        assert await client.say("QUIT") == ["221 2.0.0 Closing the connection"]
        assert await client.ended()
        assert len(stage.intake.taken) == 3


async def test_a_refused_sender_and_recipient() -> None:
    async with receiving() as stage:
        client = await stage.client()
        got = await client.say(
            "EHLO c.example",
            "MAIL FROM:<bad@far.example>",
            "MAIL FROM:<s@far.example>",
            "RCPT TO:<unknown@ours.example>",
            "RCPT TO:<a@far.example>",
            "RCPT TO:<Postmaster>",
        )
        assert [answer[:9] for answer in got[1:]] == ["550 5.7.1", "250 2.1.0", "550 5.1.1", "550 5.7.1", "250 2.1.5"]


async def test_a_recipient_who_must_be_asked_for() -> None:
    """The client waits for its reply, and what it has sent ahead is taken in order."""
    async with receiving() as stage:
        client = await stage.client()
        stage.intake.answers.clear()
        asking = asyncio.ensure_future(
            client.say(
                "EHLO c.example",
                "MAIL FROM:<s@far.example>",
                "RCPT TO:<elsewhere@ours.example>",
                "RCPT TO:<unknown@ours.example>",
            )
        )
        await until(lambda: any(connection.phase is Phase.PARKED for connection in stage.service.connections))
        assert not asking.done()
        stage.intake.answers.set()
        assert [answer[:9] for answer in (await asking)[1:]] == ["250 2.1.0", "250 2.1.5", "550 5.1.1"]


async def test_a_client_that_leaves_while_its_recipient_is_asked_for() -> None:
    async with receiving() as stage:
        client = await stage.client()
        stage.intake.answers.clear()
        client.writer.write(b"EHLO c\r\nMAIL FROM:<s@far.example>\r\nRCPT TO:<elsewhere@ours.example>\r\n")
        await until(lambda: any(connection.phase is Phase.PARKED for connection in stage.service.connections))
        client.close()
        stage.intake.answers.set()
        await until(lambda: not stage.service.connections)
        assert stage.intake.asked


# --- what becomes of a message that cannot be kept


async def test_a_fault_within_the_intake_is_temporary_for_the_client() -> None:
    loop = asyncio.get_running_loop()
    faults: list[object] = []
    loop.set_exception_handler(lambda _, context: faults.append(context["exception"]))
    async with receiving() as stage:
        stage.intake.fault = RuntimeError("our own")
        client = await stage.client()
        await client.begin()
        assert await client.say("x\r\n.") == ["451 4.3.0 The message could not be kept, try again later"]
        await until(lambda: faults)


async def test_no_room_at_data_and_while_writing() -> None:
    async with receiving() as stage:
        client = await stage.client()
        await client.begin()
        stage.intake.full_at = 1
        stage.intake.drain_fault = SpoolFull()
        assert await client.say("x" * 1000 + "\r\n.") == ["452 4.3.1 Insufficient system resources"]
        assert stage.intake.writers[0].discarded
        stage.intake.drain_fault = OSError("disk")
        await client.begin()
        assert (await client.say("x" * 1000 + "\r\n."))[0].startswith("451 4.3.0")
        stage.intake.no_room = True
        got = await client.say("MAIL FROM:<s@far.example>", "RCPT TO:<a@ours.example>", "DATA")
        assert got[2].startswith("452 4.3.1")
        assert stage.intake.taken == []


async def test_a_connection_lost_within_content_leaves_nothing() -> None:
    async with receiving() as stage:
        client = await stage.client()
        await client.begin()
        client.writer.write(b"half a message")
        await client.writer.drain()
        await until(lambda: stage.intake.writers and stage.intake.writers[0].size)
        client.writer.transport.abort()
        await until(lambda: stage.intake.writers[0].discarded)
        await until(lambda: not stage.service.connections)


async def test_a_client_that_goes_while_its_message_is_stored_does_not_undo_it() -> None:
    async with receiving() as stage:
        stage.intake.commit.clear()
        client = await stage.client()
        await client.begin()
        client.writer.write(b"x\r\n.\r\n")
        await until(lambda: stage.intake.accepting)
        reset(client)
        await until(lambda: not stage.service.connections)
        stage.intake.commit.set()
        await until(lambda: stage.intake.taken)
        assert not stage.intake.writers[0].discarded


async def test_a_client_that_ends_its_side_still_gets_the_answer() -> None:
    async with receiving() as stage:
        stage.intake.commit.clear()
        client = await stage.client()
        await client.begin()
        client.writer.write(b"x\r\n.\r\n")
        client.writer.write_eof()
        await until(lambda: stage.intake.accepting)
        stage.intake.commit.set()
        assert await client.reply() == "250 2.6.0 Queued"
        assert await client.ended()


# --- the pace


async def test_a_slow_disk_stops_the_client() -> None:
    async with receiving() as stage:
        stage.intake.keep = False
        stage.intake.disk.clear()
        client = await stage.client()
        await client.begin()
        client.writer.write(b"Subject: large\r\n\r\n")

        async def pour() -> None:
            for _ in range(30):
                client.writer.write((b"y" * 998 + b"\r\n") * 1000)
                await client.writer.drain()

        pouring = asyncio.create_task(pour())
        await until(lambda: stage.intake.writers[0].full)
        await asyncio.sleep(0.2)  # nothing more may come
        assert stage.intake.writers[0].waiting < stage.intake.full_at + 512 * 1024
        assert not pouring.done()
        stage.intake.disk.set()
        await pouring
        assert await client.say(".") == ["250 2.6.0 Queued"]
        assert stage.intake.taken[0][1].size == 30 * 1000 * 1000 + 18
        assert stage.intake.writers[0].biggest < stage.intake.full_at + 512 * 1024


async def test_what_is_sent_ahead_is_bounded() -> None:
    async with receiving() as stage:
        stage.intake.commit.clear()
        client = await stage.client()
        await client.begin()
        client.writer.write(b"x\r\n.\r\n")
        await until(lambda: stage.intake.accepting)

        async def pour() -> None:
            for _ in range(100):
                client.writer.write(b"NOOP\r\n" * 20000)
                await client.writer.drain()

        pouring = asyncio.create_task(pour())
        (connection,) = stage.service.connections
        await until(lambda: connection.session is not None and connection.session.buffered > MAX_AHEAD)
        await asyncio.sleep(0.05)
        assert connection.session is not None
        assert connection.session.buffered < MAX_AHEAD + 512 * 1024
        assert not pouring.done()
        stage.intake.commit.set()
        assert await client.reply() == "250 2.6.0 Queued"
        async with asyncio.timeout(PATIENCE):
            await pouring  # the service has had enough of it, and drops the rest
        while not (answer := await client.reply()).startswith("421"):
            assert answer == "250 2.0.0 OK"


async def test_a_client_that_reads_no_answers_is_not_read_either() -> None:
    many = replace(CONNECTOR, max_recipients=10**9, max_protocol_errors=10**9)
    async with receiving(many) as stage:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", stage.ports[0]))
        await loop.sock_recv(sock, 100)

        async def pour() -> None:
            while True:
                await loop.sock_sendall(sock, b"NOOP\r\n" * 10000)

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pour(), 1.0)
        (connection,) = stage.service.connections
        assert connection._transport.get_write_buffer_size() < 4 * 1024 * 1024
        sock.close()


# --- back pressure (exchange-facts 4.12)


async def test_the_highest_stage_refuses_mail_for_the_moment() -> None:
    async with receiving() as stage:
        client = await stage.client()
        stage.intake.pressure = Pressure.HIGH
        got = await client.say("EHLO c.example", "MAIL FROM:<s@far.example>")
        assert got[1] == "452 4.3.1 Insufficient system resources"
        stage.intake.pressure = Pressure.NORMAL
        assert (await client.say("MAIL FROM:<s@far.example>"))[0].startswith("250")


async def test_at_the_highest_stage_new_clients_hear_so_at_the_greeting() -> None:
    """A balancer or another hub in front wants 220, and goes elsewhere before it has begun anything."""
    async with receiving() as stage:
        stage.intake.pressure = Pressure.HIGH
        client = await stage.client(greeted=False)
        assert await client.reply() == "421 4.3.1 Insufficient system resources, try another server or later"
        assert await client.ended()
        stage.intake.pressure = Pressure.NORMAL
        await stage.client()


async def test_strangers_wait_while_there_is_pressure_and_servers_do_not() -> None:
    servers = replace(CONNECTOR, authentication=frozenset({ReceiveAuthentication.EXTERNALLY_SECURED}))
    for connector, least in ((CONNECTOR, 0.29), (servers, 0.0)):
        async with receiving(connector) as stage:
            stage.intake.pressure, stage.intake.tarpit_seconds = Pressure.MEDIUM, 0.3
            client = await stage.client()
            began = stage.service.loop.time()
            got = await client.say("EHLO c.example", "MAIL FROM:<s@far.example>")
            assert got[1].startswith("250")
            waited = stage.service.loop.time() - began
            assert waited >= least
            assert least or waited < 0.3


async def test_strangers_are_refused_for_the_moment_and_servers_are_not() -> None:
    servers = replace(CONNECTOR, authentication=frozenset({ReceiveAuthentication.EXTERNALLY_SECURED}))
    for connector, expected in ((CONNECTOR, "452 4.3.1"), (servers, "250")):
        async with receiving(connector) as stage:
            stage.intake.pressure, stage.intake.refuses_strangers = Pressure.MEDIUM, True
            client = await stage.client()
            got = await client.say("EHLO c.example", "MAIL FROM:<s@far.example>")
            assert got[1].startswith(expected)


async def test_a_tarpit_delays_the_refusal_only() -> None:
    async with receiving(replace(CONNECTOR, tarpit_seconds=0.3)) as stage:
        client = await stage.client()
        loop = asyncio.get_running_loop()
        began = loop.time()
        await client.say("EHLO c.example", "MAIL FROM:<s@far.example>")
        got = await client.say("RCPT TO:<unknown@ours.example>", "NOOP")
        assert loop.time() - began >= 0.29  # its clock has milliseconds
        assert [answer[:3] for answer in got] == ["550", "250"]


# --- limits


async def test_connections_of_one_source_and_in_all_are_counted() -> None:
    async with receiving(replace(CONNECTOR, max_connections_per_source=2, max_connections=3)) as stage:
        first, _ = await stage.client(), await stage.client()
        refused = await stage.client(greeted=False)
        assert await refused.reply() == "421 4.7.0 Too many connections, try again later"
        assert await refused.ended()
        await stage.client(address="127.0.0.2")
        in_all = await stage.client(address="127.0.0.3", greeted=False)
        assert (await in_all.reply()).startswith("421 4.7.0")
        await first.say("QUIT")
        await until(lambda: len([c for c in stage.service.connections if c.session is not None]) == 2)
        await stage.client()


def test_places_are_given_back_once() -> None:
    counts = ConnectorCounts()
    one = replace(CONNECTOR, max_connections_per_source=1)
    place = counts.arrive(one, "2001:db8::1")
    assert place is not None
    assert counts.arrive(one, "2001:db8::2") is None  # the same /64
    assert counts.arrive(one, "2001:db8::2", one_source=False) is not None
    place.leave()
    place.leave()
    assert counts.arrive(one, "2001:db8::1") is None
    assert counts.arrive(one, "2001:db8:1::1") is not None


@pytest.mark.parametrize("which", ["inactivity_seconds", "connection_seconds"])
async def test_time_is_bounded(which: str) -> None:
    async with receiving(replace(CONNECTOR, **{which: 0.2})) as stage:
        client = await stage.client()
        await client.begin()
        assert await client.reply() == "421 4.4.2 Connection timed out"
        assert await client.ended()
        await until(lambda: stage.intake.writers[0].discarded)


async def test_time_does_not_run_while_a_message_is_stored() -> None:
    async with receiving(replace(CONNECTOR, inactivity_seconds=0.1, connection_seconds=0.2)) as stage:
        stage.intake.commit.clear()
        client = await stage.client()
        await client.begin()
        client.writer.write(b"x\r\n.\r\n")
        await until(lambda: stage.intake.accepting)
        await asyncio.sleep(0.4)
        stage.intake.commit.set()
        assert await client.reply() == "250 2.6.0 Queued"


async def test_who_talks_before_the_banner_hears_554() -> None:
    async with receiving(replace(CONNECTOR, greeting_delay=5.0)) as stage:
        client = await stage.client(greeted=False)
        client.writer.write(b"EHLO spam.example\r\n")
        assert (await client.reply()).startswith("554 5.5.1")
        assert await client.ended()


async def test_the_last_words_arrive_though_the_client_goes_on_sending() -> None:
    async with receiving() as stage:
        client = await stage.client()
        await client.begin()
        client.writer.write(b"bare\n" + b"z" * 998 + b"\r\n")
        for _ in range(50):
            client.writer.write((b"z" * 998 + b"\r\n") * 200)
            await client.writer.drain()
        assert (await client.reply()).startswith("550 5.6.0")
        client.writer.write_eof()
        assert await client.ended()
        await until(lambda: not stage.service.connections)


# --- who the client is


async def test_the_connector_is_chosen_by_the_client() -> None:
    everybody = replace(CONNECTOR, name="everybody", banner="everybody")
    one = replace(CONNECTOR, name="one", banner="one", remote_ranges=(loopback("127.0.0.7"),))
    nobody = replace(CONNECTOR, name="far", remote_ranges=(loopback("10.0.0.1"),))
    async with receiving(everybody, one) as stage:
        assert await (await stage.client(greeted=False, address="127.0.0.7")).reply() == "220 one"
        assert await (await stage.client(greeted=False)).reply() == "220 everybody"
    async with receiving(nobody) as stage:
        client = await stage.client(greeted=False)
        assert (await client.reply()).startswith("421 4.3.2")
        assert await client.ended()


async def test_proxy_headers_of_listed_peers() -> None:
    behind = replace(CONNECTOR, proxy_protocol_from=(loopback("127.0.0.5"),))
    for header in (
        encode_v2(("192.0.2.9", 4711), ("192.0.2.1", 25)),
        b"PROXY TCP4 192.0.2.9 192.0.2.1 4711 25\r\n",
    ):
        async with receiving(behind) as stage:
            client = await stage.client(greeted=False, address="127.0.0.5")
            for at in range(len(header)):
                client.writer.write(header[at : at + 1])
            assert (await client.reply()).startswith("220")
            await client.begin()
            await client.say("x\r\n.")
            assert stage.intake.taken[0][0].source.address == "192.0.2.9"


async def test_a_proxys_own_connection_is_its_own() -> None:
    async with receiving(replace(CONNECTOR, proxy_protocol_from=(loopback(),))) as stage:
        client = await stage.client(greeted=False)
        client.writer.write(encode_v2(None, None))
        assert (await client.reply()).startswith("220")
        await client.begin()
        await client.say("x\r\n.")
        assert stage.intake.taken[0][0].source.address == "127.0.0.1"


async def test_proxy_headers_of_others_are_no_greeting() -> None:
    async with receiving() as stage:
        client = await stage.client()
        assert (await client.say("PROXY TCP4 10.0.0.1 10.0.0.2 1 25"))[0].startswith("500")


async def test_a_listed_peer_without_a_header_is_not_served() -> None:
    async with receiving(replace(CONNECTOR, proxy_protocol_from=(loopback(),))) as stage:
        client = await stage.client(greeted=False)
        client.writer.write(b"EHLO client.example\r\n")
        assert await client.reply() == ""


async def test_rights_go_by_the_client_behind_the_proxy() -> None:
    inside = replace(CONNECTOR, name="inside", banner="inside", remote_ranges=(loopback(),))
    outside = replace(CONNECTOR, name="outside", banner="outside", proxy_protocol_from=(loopback("127.0.0.5"),))
    async with receiving(inside, outside) as stage:
        client = await stage.client(greeted=False, address="127.0.0.5")
        client.writer.write(encode_v2(("192.0.2.9", 4711), ("192.0.2.1", 25)))
        assert await client.reply() == "220 outside"


async def test_xclient_begins_a_new_session_for_the_client() -> None:
    front = replace(CONNECTOR, banner="front", remote_ranges=(loopback(),), xclient_from=(loopback(),))
    outside = replace(CONNECTOR, name="outside", banner="outside")
    async with receiving(front, outside) as stage:
        client = await stage.client(greeted=False)
        assert await client.reply() == "220 front"
        got = await client.say("EHLO front.example", "XCLIENT ADDR=192.0.2.9 PORT=4711 HELO=real.example LOGIN=anna")
        assert "XCLIENT NAME" in got[0]
        assert got[1] == "220 outside"
        await client.begin("a@far.example")
        await client.say("x\r\n.")
        source = stage.intake.taken[0][0].source
        assert (source.address, source.name, source.user, source.connector) == (
            "192.0.2.9",
            "real.example",
            "anna",
            "outside",
        )


async def test_whom_somebody_has_spoken_for_does_not_speak_for_others_not_even_at_the_same_address() -> None:
    """A front end hands on clients of its own machine too, and uses no hub that would take XCLIENT from them."""
    async with receiving(replace(CONNECTOR, xclient_from=(loopback(),))) as stage:
        client = await stage.client()
        got = await client.say("EHLO front.example", "XCLIENT ADDR=127.0.0.1", "EHLO c.example", "XCLIENT LOGIN=anna")
        assert "XCLIENT" in got[0]
        assert "XCLIENT" not in got[2]
        assert got[3] == "502 5.5.1 Not available here"


async def test_a_peer_that_brings_many_clients_is_not_one_source() -> None:
    front = replace(CONNECTOR, max_connections_per_source=1, xclient_from=(loopback(),))
    async with receiving(front) as stage:
        for number in range(4):
            client = await stage.client()
            assert (await client.say(f"XCLIENT ADDR=192.0.2.{number}"))[0].startswith("220")
        again = await stage.client()
        assert (await again.say("XCLIENT ADDR=192.0.2.0"))[0].startswith("421 4.7.0")


async def test_who_only_sends_after_the_last_answer_is_cut_off() -> None:
    """What comes is dropped for a while, so that the answer can be read; but not without end."""
    async with receiving() as stage:
        client = await stage.client()
        client.writer.write(b"NOOP\r\n" * 1000)

        async def go_on() -> None:
            for _ in range(40):
                client.writer.write(b"x" * 1024 * 1024)
                await client.writer.drain()

        with pytest.raises(ConnectionError):
            await go_on()


# --- passwords


async def test_users_sign_in_and_relay() -> None:
    for name in ("anna", "slowanna"):
        async with receiving() as stage:
            client = await stage.client()
            await client.say("EHLO c.example", "STARTTLS")
            await client.start_tls()
            got = await client.say("EHLO c.example", f"AUTH PLAIN {plain(name, 'secret')}")
            assert "AUTH PLAIN LOGIN" in got[0]
            assert got[1].startswith("235")
            await client.begin("a@far.example", sender="anna@ours.example")
            await client.say("x\r\n.")
            source = stage.intake.taken[0][0].source
            assert (source.user, source.protocol) == ("anna@ours.example", "ESMTPSA")
            assert source.tls.startswith("TLSv1.3 TLS_")


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        (Verdict.WRONG_CREDENTIALS, "535 5.7.8"),
        (Verdict.UNAVAILABLE, "454 4.7.0"),
        (Verdict.BUSY, "454 4.7.0"),
        (Verdict.PROTOCOL_NOT_ALLOWED, "525 5.7.13"),
    ],
)
async def test_verdicts(verdict: Verdict, code: str) -> None:
    clear = frozenset({*CONNECTOR.authentication} - {"basic-require-tls"})
    async with receiving(replace(CONNECTOR, authentication=clear)) as stage:
        stage.accounts.verdict = verdict
        client = await stage.client()
        got = await client.say("EHLO c.example", f"AUTH PLAIN {plain('anna', 'x')}")
        assert got[1].startswith(code)


def token(name: str, value: str) -> str:
    return base64.b64encode(bearer_message("OAUTHBEARER", name, value)).decode()


async def test_users_sign_in_by_tokens() -> None:
    for name in ("anna", "slowanna"):
        async with receiving() as stage:
            stage.accounts.accepts_tokens = True
            client = await stage.client()
            await client.say("EHLO c.example", "STARTTLS")
            await client.start_tls()
            got = await client.say("EHLO c.example", f"AUTH OAUTHBEARER {token(name, 'token-of-anna')}")
            assert "AUTH PLAIN LOGIN XOAUTH2 OAUTHBEARER" in got[0]
            assert got[1].startswith("235")
            await client.begin("a@far.example", sender="anna@ours.example")
            await client.say("x\r\n.")
            assert stage.intake.taken[0][0].source.user == "anna@ours.example"


@pytest.mark.parametrize(
    ("verdict", "lacks", "said"),
    [
        (Verdict.WRONG_CREDENTIALS, "", ["invalid_token", "535 5.7.8"]),
        (Verdict.PROTOCOL_NOT_ALLOWED, "send", ["insufficient_scope", "535 5.7.8"]),
        (Verdict.PROTOCOL_NOT_ALLOWED, "", ["525 5.7.13"]),
        (Verdict.UNAVAILABLE, "", ["454 4.7.0"]),
        (Verdict.BUSY, "", ["454 4.7.0"]),
    ],
)
async def test_verdicts_of_tokens(verdict: Verdict, lacks: str, said: list[str]) -> None:
    async with receiving() as stage:
        stage.accounts.accepts_tokens = True
        stage.accounts.verdict, stage.accounts.lacks = verdict, lacks
        client = await stage.client()
        await client.say("EHLO c.example", "STARTTLS")
        await client.start_tls()
        got = (await client.say("EHLO c.example", f"AUTH OAUTHBEARER {token('slow', 'x')}"))[1:]
        if len(said) > 1:
            told = json.loads(base64.b64decode(got[0].removeprefix("334 ")))
            assert (told["status"], told["scope"]) == (said[0], "mail")
            got = await client.say("AQ==")
        assert got[0].startswith(said[-1])


# --- the end


async def test_a_stop_says_421_and_lets_a_message_finish() -> None:
    async with receiving() as stage:
        idle, busy = await stage.client(), await stage.client()
        await busy.begin()
        stopping = asyncio.create_task(stage.stop(PATIENCE))
        assert (await idle.reply()).startswith("421 4.3.2")
        assert await idle.ended()
        assert (await busy.say("x\r\n."))[0] == "250 2.6.0 Queued"
        assert (await busy.reply()).startswith("421 4.3.2")
        await stopping
        assert len(stage.intake.taken) == 1
        assert not stage.service.connections


async def test_a_stop_does_not_wait_for_ever() -> None:
    async with receiving() as stage:
        client = await stage.client()
        await client.begin()
        await stage.stop(0.2)
        assert (await client.reply()).startswith("421 4.3.2")
        assert stage.intake.writers[0].discarded
        assert not stage.service.connections


async def test_a_stop_ends_a_tarpit() -> None:
    async with receiving(replace(CONNECTOR, tarpit_seconds=1000.0)) as stage:
        client = await stage.client()
        await client.say("EHLO c.example", "MAIL FROM:<s@far.example>")
        client.writer.write(b"RCPT TO:<unknown@ours.example>\r\n")
        (connection,) = stage.service.connections
        await until(lambda: connection._timer is not None)
        await stage.stop()
        assert (await client.reply()).startswith("550 5.1.1")
        assert (await client.reply()).startswith("421")


async def test_a_reload_counts_for_those_who_come_later() -> None:
    async with receiving() as stage:
        first = await stage.client()
        changed = replace(
            CONNECTOR,
            banner="new",
            bindings=(Binding(ip_address("127.0.0.1"), stage.ports[0]),),
            permission_groups=frozenset({PermissionGroup.SERVERS}),
        )
        stage.service.reload([changed], "hub-01.contoso.com", stage.service.tls, None)
        assert await (await stage.client(greeted=False)).reply() == "220 new"
        await first.begin()


async def test_a_binding_that_is_taken_away_takes_nobody_more() -> None:
    async with receiving() as stage:
        client = await stage.client()
        stage.service.close_listeners(lambda binding: binding.port == stage.ports[0])
        with pytest.raises(OSError, match=r"Connect|refused"):  # noqa: PT012 - until the listener is gone
            async with asyncio.timeout(PATIENCE):
                while True:
                    await (await stage.client(greeted=False)).reply()
        await client.begin()


async def test_nothing_is_left_of_a_connection() -> None:
    async with receiving() as stage:
        for how in (b"", b"EHLO c.example\r\n", b"EHLO c\r\nMAIL FROM:<a@b.example>\r\n", b"QUIT\r\n", b"\n"):
            client = await stage.client()
            client.writer.write(how)
            await client.writer.drain()
            client.writer.transport.abort()
        reset(await stage.client())
        await until(lambda: not stage.service.connections)
        assert not +stage.service.counts._all
        assert not stage.service.counts._sources


def test_words_for_received() -> None:
    assert protocol_word(esmtp=False, tls=False, signed_in=False, utf8=False) == "SMTP"
    assert protocol_word(esmtp=True, tls=True, signed_in=True, utf8=False) == "ESMTPSA"
    assert protocol_word(esmtp=True, tls=True, signed_in=False, utf8=True) == "UTF8SMTPS"


def test_a_leg_is_no_connection_by_itself() -> None:
    assert ReceiveLeg._run.__isabstractmethod__  # type: ignore[attr-defined]


async def test_twenty_large_messages_at_once_keep_memory_flat() -> None:
    """Smtp-facts c.5, case 59: content streams through, whatever its size."""
    async with receiving() as stage:
        stage.intake.keep = False
        clients: list[Client] = [await stage.client() for _ in range(20)]
        for client in clients:
            await client.begin()
            client.writer.write(b"Subject: large\r\n\r\n")
        block = (b"y" * 998 + b"\r\n") * 64
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]

        async def pour(client: Client) -> str:
            for _ in range(40):
                client.writer.write(block)
                await client.writer.drain()
            client.writer.write(b".\r\n")
            return await client.reply()

        answers = await asyncio.gather(*map(pour, clients))
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        assert answers == ["250 2.6.0 Queued"] * 20
        assert sum(writer.size for _, writer in stage.intake.taken) == 20 * (40 * 64000 + 18)
        # 51 MB went through; the clients' own buffers are in this, too.
        assert peak < 12_000_000


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("anna", "anna@ours.example"),
        ("Bob@Far.example", "Bob@Far.example"),
        ("my-secret", ""),
        ("my@secret", ""),
        ("x" * 400 + "@far.example", ""),
        ("b\x1b[2J@far.example", ""),
    ],
)
async def test_a_refused_sign_in_says_who(name: str, shown: str) -> None:
    """Who has the name, or the address that was typed. What is neither may be a password, and is not said."""
    clear = frozenset({*CONNECTOR.authentication} - {"basic-require-tls"})
    async with receiving(replace(CONNECTOR, authentication=clear)) as stage:
        client = await stage.client()
        got = await client.say("EHLO c.example", f"AUTH PLAIN {plain(name, 'wrong')}")
        assert got[1].startswith("535 5.7.8")
        (line,) = [call.kwargs for call in stage.log.calls if call.args == ("receive.sign_in_refused",)]
        assert (line["user"], line["client"]) == (shown, "127.0.0.1")
        assert "wrong" not in str(line)


async def test_a_chunk_far_too_large_is_answered_before_it_has_come() -> None:
    """A client that goes on sending reads the answer; what it sends is dropped, and not for ever."""
    async with receiving() as stage:
        client = await stage.client()
        got = await client.say("EHLO c.example", "MAIL FROM:<s@far.example>", "RCPT TO:<a@ours.example>")
        assert got[2].startswith("250")
        assert (await client.say("BDAT 999999999999 LAST"))[0].startswith("552 5.3.4")
        (connection,) = stage.service.connections
        block, sent = b"x" * 65536, 0
        with contextlib.suppress(ConnectionError):
            while stage.service.connections and sent < 4 * MAX_LINGERING:
                client.writer.write(block)
                sent += len(block)
                await client.writer.drain()
        await until(lambda: connection not in stage.service.connections)
        assert sent < 4 * MAX_LINGERING
        assert stage.intake.taken == []
