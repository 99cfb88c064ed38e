"""Mail handed to real servers, and what their failures make of it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from doors import Servers, missing
from next_servers import Content, Sending, dovecot_lmtp, exim, message, smtp_sink
from submission_stage import new_sink

from gatepost.lab.servers.postfix import Postfix
from gatepost.lab.servers.process import ServerMissing, free_ports
from gatepost.organization.transport import TlsLevel
from gatepost.transport.message import RecipientState
from gatepost.transport.send.options import Endpoint, SendTimes
from gatepost.transport.send.outcome import ConnectFailed, Outcome
from gatepost.transport.send.sender import SmtpSender
from gatepost.transport.spool.reading import MemoryBody
from gatepost.wire.smtp_client_events import SessionFault, Step

CONTENT = b"From: a@fabrikam.com\r\nSubject: hello\r\n\r\n.first\r\n..second\r\nthird\r\n"
DELIVERED, FAILED = RecipientState.DELIVERED, RecipientState.FAILED
WAITING, UNCERTAIN = RecipientState.WAITING, RecipientState.UNCERTAIN
SECONDS = 20.0


async def send(sender: SmtpSender, *names: str, content: bytes = CONTENT) -> Outcome:
    envelope = message(*names)
    async with asyncio.timeout(SECONDS):
        return await sender.send(envelope, envelope.recipients, Content(content))


def states(outcome: Outcome) -> list[RecipientState]:
    return [entry.state for entry in outcome.recipients]


async def test_a_thousand_messages_to_a_sink(servers: Servers) -> None:
    with smtp_sink(servers) as endpoint:
        async with Sending(servers) as sending:

            async def some() -> None:
                sender = await sending.connect(endpoint)
                for _ in range(100):
                    assert states(await send(sender, "b", "c")) == [DELIVERED, DELIVERED]
                assert sender.messages_sent == 100

            await asyncio.gather(*(some() for _ in range(10)))


@pytest.mark.parametrize(
    ("options", "state", "usable"),
    [
        (("-q", "mail"), WAITING, False),
        (("-q", "rcpt"), WAITING, False),
        (("-q", "data"), WAITING, False),
        (("-q", "."), UNCERTAIN, False),
        (("-Q", "rcpt"), WAITING, False),
        (("-Q", "."), UNCERTAIN, False),
        (("-r", "mail"), WAITING, True),
        (("-r", "rcpt"), WAITING, True),
        (("-r", "data"), WAITING, True),
        (("-r", "."), WAITING, True),
        (("-f", "mail"), FAILED, True),
        (("-f", "rcpt"), FAILED, True),
        (("-f", "data"), FAILED, True),
        (("-f", "."), FAILED, True),
        (("-f", "rcpt,rset"), FAILED, False),
        (("-p", "-f", "rcpt"), FAILED, True),
        (("-p", "-r", "data"), WAITING, True),
    ],
    ids=lambda value: "".join(value) if isinstance(value, tuple) else None,
)
async def test_a_sink_with_faults(
    servers: Servers, options: tuple[str, ...], state: RecipientState, usable: bool
) -> None:
    """`-p`: without PIPELINING."""
    with smtp_sink(servers, *options) as endpoint:
        async with Sending(servers) as sending:
            sender = await sending.connect(endpoint)
            outcome = await send(sender, "b", "c")
            assert states(outcome) == [state, state]
            assert sender.usable == usable
            assert (outcome.broken is None) == usable


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (("-f", "connect"), SessionFault.REFUSED),
        (("-r", "connect"), SessionFault.REFUSED),
        (("-Q", "connect"), SessionFault.BUSY),
        (("-q", "connect"), SessionFault.LOST),
        (("-Q", "ehlo"), SessionFault.BUSY),
        (("-f", "ehlo,helo"), SessionFault.REFUSED),
    ],
    ids=lambda value: "".join(value) if isinstance(value, tuple) else None,
)
async def test_a_sink_that_does_not_let_us_in(servers: Servers, options: tuple[str, ...], fault: SessionFault) -> None:
    with smtp_sink(servers, *options) as endpoint:
        async with Sending(servers) as sending:
            with pytest.raises(ConnectFailed) as raised:
                await sending.connect(endpoint)
            assert raised.value.fault is fault


async def test_a_sink_without_ehlo_is_spoken_to_as_of_old(servers: Servers) -> None:
    with smtp_sink(servers, "-e") as endpoint:
        async with Sending(servers) as sending:
            sender = await sending.connect(endpoint)
            assert states(await send(sender, "b")) == [DELIVERED]


async def test_a_slow_answer_to_the_content_is_uncertain_when_the_time_is_over(servers: Servers) -> None:
    with smtp_sink(servers, "-W", ".:3") as endpoint:
        async with Sending(servers) as sending:
            sender = await sending.connect(endpoint, times=SendTimes(end=0.3))
            assert states(await send(sender, "b")) == [UNCERTAIN]


async def test_a_sink_of_lmtp(servers: Servers) -> None:
    with smtp_sink(servers, "-L") as endpoint:
        async with Sending(servers) as sending:
            sender = await sending.connect(endpoint, lmtp=True)
            for _ in range(3):
                assert states(await send(sender, "b", "c", "d")) == [DELIVERED] * 3
    with smtp_sink(servers, "-L", "-q", ".") as endpoint:
        async with Sending(servers) as sending:
            sender = await sending.connect(endpoint, lmtp=True)
            assert states(await send(sender, "b", "c")) == [UNCERTAIN] * 2


def delivered(directory: Path, user: str) -> list[bytes]:
    new = directory / "mail" / user / "Maildir/new"
    return [path.read_bytes() for path in new.iterdir() if path.name != "welcome"]


async def test_dovecot_takes_some_recipients_by_lmtp(servers: Servers) -> None:
    with dovecot_lmtp(servers) as (server, endpoint):
        async with Sending(servers) as sending:
            sender = await sending.connect(endpoint, lmtp=True, tls=TlsLevel.NONE)
            outcome = await send(sender, "alice", "nobody", "bob")
            assert states(outcome) == [DELIVERED, FAILED, DELIVERED]
            assert outcome.recipients[1].reply.enhanced == "5.1.1"
            assert states(await send(sender, "carol")) == [DELIVERED]
            assert sender.messages_sent == 2
        for user in ("alice", "bob", "carol"):
            (content,) = delivered(server.directory, user)
            assert content.replace(b"\r\n", b"\n").endswith(CONTENT.partition(b"\r\n\r\n")[2].replace(b"\r\n", b"\n"))


async def test_dovecot_with_a_full_mailbox_answers_for_one_recipient_only(servers: Servers) -> None:
    """Quota is told after the content, one reply each."""
    settings = (
        "mail_plugins = quota\nplugin {\n  quota = maildir:User quota\n  quota_rule = *:bytes=20000\n"
        "  quota_grace = 0\n}\nprotocol lmtp {\n  mail_plugins = quota\n}\n"
    )
    with dovecot_lmtp(servers, settings) as (server, endpoint):
        server.deliver("bob", b"Subject: big\r\n\r\n" + b"x" * 19000 + b"\r\n", "big")
        async with Sending(servers) as sending:
            sender = await sending.connect(endpoint, lmtp=True, tls=TlsLevel.NONE)
            outcome = await send(sender, "alice", "bob", content=CONTENT + b"y" * 2000 + b"\r\n")
            assert outcome.recipients[0].state is DELIVERED
            assert outcome.recipients[1].state in (WAITING, FAILED)
            assert outcome.recipients[1].reply.enhanced[1:] == ".2.2"
            assert sender.usable


async def in_a_row(sender: SmtpSender, count: int = 20) -> None:
    """So many messages to alice and bob, the next one's commands with the end of each content."""
    messages = [message("alice", "bob") for _ in range(count)]
    contents = [MemoryBody(CONTENT + b"%d\r\n" % number) for number in range(count)]
    for number, (envelope, content) in enumerate(zip(messages, contents, strict=True)):
        if number + 1 < count:
            sender.prepare(messages[number + 1], messages[number + 1].recipients, contents[number + 1])
        async with asyncio.timeout(SECONDS):
            outcome = await sender.send(envelope, envelope.recipients, content)
        assert states(outcome) == [DELIVERED, DELIVERED]
        assert (sender.client.step is not Step.IDLE) == (0 < number < count - 1)


def numbers(bodies: list[bytes]) -> list[int]:
    """What each ends in."""
    return sorted(int(body.split()[-1]) for body in bodies)


async def test_dovecot_takes_commands_behind_a_content(servers: Servers) -> None:
    """Each message arrives once and whole (RFC 2920, section 3.1); so with the next two."""
    with dovecot_lmtp(servers) as (server, endpoint):
        async with Sending(servers) as sending:
            await in_a_row(await sending.connect(endpoint, lmtp=True, tls=TlsLevel.NONE))
        for user in ("alice", "bob"):
            assert numbers(delivered(server.directory, user)) == list(range(20))


async def test_exim_takes_commands_behind_a_content(servers: Servers) -> None:
    with exim(servers) as (server, endpoint):
        async with Sending(servers) as sending:
            await in_a_row(await sending.connect(endpoint))
        await until(lambda: len(server.bodies()) == 20)
        assert numbers(server.bodies()) == list(range(20))


async def test_postfix_takes_commands_behind_a_content(servers: Servers) -> None:
    address = servers.address()
    (port,) = free_ports(address, 1)
    with new_sink(servers, "in-a-row-sink") as sink:
        try:
            settings = "relay_domains = contoso.com\n"
            postfix = Postfix(
                servers.scratch / "in-a-row", address, {port: []}, sink.address, settings=settings, name="in-a-row"
            )
        except ServerMissing as error:
            missing(error)
        with postfix:
            async with Sending(servers) as sending:
                await in_a_row(await sending.connect(Endpoint(address, port), tls=TlsLevel.NONE))
            await until(lambda: len(sink.messages()) == 20)
            assert numbers(sink.messages()) == list(range(20))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what has no event."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_exim_by_starttls(servers: Servers) -> None:
    with exim(servers) as (server, endpoint):
        async with Sending(servers) as sending:
            for level in (TlsLevel.OPPORTUNISTIC, TlsLevel.VERIFIED, TlsLevel.NONE):
                sender = await sending.connect(endpoint, tls=level)
                assert (sender.tls is None) == (level is TlsLevel.NONE)
                outcome = await send(sender, "b", "unknown", "c")
                assert states(outcome) == [DELIVERED, FAILED, DELIVERED]
                assert sender.usable
        deadline = time.monotonic() + SECONDS
        while len(server.arrivals()) < 3 and time.monotonic() < deadline:  # noqa: ASYNC110 - its log has no event
            await asyncio.sleep(0.02)
        assert [arrival["P"] for arrival in server.arrivals()] == ["esmtps", "esmtps", "esmtp"]
        body = CONTENT.partition(b"\r\n\r\n")[2].replace(b"\r\n", b"\n")
        assert server.bodies() == [body] * 3


async def test_exim_is_not_sent_what_is_over_its_limit(servers: Servers) -> None:
    """The size that it announces is kept, by the content's real size; the session goes on."""
    with exim(servers, "message_size_limit = 10K") as (server, endpoint):
        async with Sending(servers) as sending:
            sender = await sending.connect(endpoint, tls=TlsLevel.VERIFIED)
            outcome = await send(sender, "b", content=CONTENT + (b"x" * 78 + b"\r\n") * 200)
            assert states(outcome) == [FAILED]
            assert outcome.recipients[0].reply.enhanced == "5.3.4"
            assert outcome.recipients[0].ours
            assert states(await send(sender, "b")) == [DELIVERED]
        assert server.running


class Large:
    """50 MB that are made as they are read; notes the process's memory meanwhile."""

    size = 200 * 256 * 1024

    def __init__(self) -> None:
        self.most = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        piece = (b"." + b"x" * 61 + b"\r\n") * 4096
        for _ in range(200):
            self.most = max(self.most, resident())
            yield piece

    def close(self) -> None:
        """Nothing is open."""


def resident() -> int:
    """Octets of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


async def test_row_59_fifty_megabytes_are_flat_in_memory(servers: Servers) -> None:
    with smtp_sink(servers) as endpoint:
        async with Sending(servers) as sending:
            sender = await sending.connect(endpoint)
            assert states(await send(sender, "b")) == [DELIVERED]
            before = resident()
            bodies = [Large() for _ in range(4)]
            senders = [sender, *[await sending.connect(endpoint) for _ in bodies[1:]]]

            async def one(sender: SmtpSender, body: Large) -> None:
                envelope = message("b")
                async with asyncio.timeout(60):
                    assert states(await sender.send(envelope, envelope.recipients, body)) == [DELIVERED]

            await asyncio.gather(*map(one, senders, bodies))
            grown = max(body.most for body in bodies) - before
            assert grown < 16_000_000, f"{grown / 1e6:.0f} MB more for four messages of 50 MB"
