"""The next message's commands sent with the end of the content: what becomes of it when things go otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from smtp_script import CONTENT, DEADLINE, DROP, SILENCE, Server, Stage, envelope, until

from gatepost.transport.message import Envelope, RecipientState
from gatepost.transport.send.sender import SmtpSender
from gatepost.transport.spool.reading import MemoryBody
from gatepost.wire.smtp_client_events import Step

DELIVERED, FAILED = RecipientState.DELIVERED, RecipientState.FAILED
WAITING, UNCERTAIN = RecipientState.WAITING, RecipientState.UNCERTAIN


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    await stage.close()


def body(text: bytes = b"") -> MemoryBody:
    return MemoryBody(CONTENT + text)


async def send(sender: SmtpSender, message: Envelope, text: bytes = b"") -> list[RecipientState]:
    async with asyncio.timeout(DEADLINE):
        outcome = await sender.send(message, message.recipients, body(text))
    return [entry.state for entry in outcome.recipients]


async def prompt(stage: Stage, server: Server) -> SmtpSender:
    """A session in which one message has been answered at once."""
    sender = await stage.connect(server)
    assert not sender.prompt
    assert await send(sender, envelope()) == [DELIVERED]
    assert sender.prompt
    return sender


def announced(sender: SmtpSender, message: Envelope, text: bytes = b"") -> Envelope:
    sender.prepare(message, message.recipients, body(text))
    return message


async def test_messages_follow_each_other_in_one_session(stage: Stage) -> None:
    async with Server(b"PIPELINING").running() as server:
        sender = await prompt(stage, server)
        message, number = envelope("b0@x.test"), 0
        while number < 20:
            number += 1
            following = announced(sender, envelope(f"b{number}@x.test"), b"%d\r\n" % number)
            assert await send(sender, message, b"%d\r\n" % (number - 1) if number > 1 else b"") == [DELIVERED]
            assert sender.usable
            message = following
        assert await send(sender, message, b"20\r\n") == [DELIVERED]
        assert [content[len(CONTENT) :] for content in server.contents] == [
            b"", b"", *(b"%d\r\n" % number for number in range(1, 21))
        ]  # fmt: skip
        assert sender.transactions == sender.messages_sent == 22
        await sender.quit()
        assert server.verbs[-1] == "QUIT"


async def test_a_server_that_never_offered_pipelining_gets_one_at_a_time(stage: Stage) -> None:
    async with Server().running() as server:
        sender = await prompt(stage, server)
        following = announced(sender, envelope("c@x.test"))
        assert await send(sender, envelope()) == [DELIVERED]
        assert server.verbs.count("MAIL") == 2
        assert await send(sender, following) == [DELIVERED]


async def test_the_end_of_the_session_at_the_first_leaves_the_second_untouched(stage: Stage) -> None:
    async with Server(b"PIPELINING", END=[b"250 ok\r\n", DROP]).running() as server:
        sender = await prompt(stage, server)
        announced(sender, envelope("c@x.test"))
        assert await send(sender, envelope()) == [UNCERTAIN]
        assert not sender.usable


async def test_a_host_that_does_not_bear_it_is_met_so_once(stage: Stage) -> None:
    """No message becomes uncertain by it again: the next sessions send one at a time."""
    mails = [b"250 ok\r\n", b"250 ok\r\n", DROP, b"250 ok\r\n"]
    async with Server(b"PIPELINING", END=[b"250 ok\r\n", SILENCE, b"250 ok\r\n"], MAIL=mails).running() as server:
        sender = await prompt(stage, server)
        announced(sender, envelope("c@x.test"))
        assert await send(sender, envelope()) == [UNCERTAIN]
        assert [event["server"] for event in stage.events("send.one_by_one")] == [str(server.endpoint)]
        sender = await prompt(stage, server)
        for _ in range(3):
            before = server.verbs.count("MAIL")
            announced(sender, envelope("c@x.test"))
            assert await send(sender, envelope()) == [DELIVERED]
            assert server.verbs.count("MAIL") == before + 1


async def test_a_server_that_is_going_down_says_nothing_of_it(stage: Stage) -> None:
    async with Server(b"PIPELINING", END=[b"250 ok\r\n", b"421 4.3.2 going\r\n"]).running() as server:
        sender = await prompt(stage, server)
        announced(sender, envelope("c@x.test"))
        assert await send(sender, envelope()) == [UNCERTAIN]
        assert stage.events("send.one_by_one") == []


async def test_the_end_of_the_session_at_the_second_is_seen_by_it_alone(stage: Stage) -> None:
    mails = [b"250 ok\r\n", b"250 ok\r\n", b"421 4.3.2 going down\r\n"]
    async with Server(b"PIPELINING", MAIL=mails).running() as server:
        sender = await prompt(stage, server)
        following = announced(sender, envelope("c@x.test"))
        assert await send(sender, envelope()) == [DELIVERED]
        await until(lambda: sender.closed)
        assert not sender.usable
        with pytest.raises(RuntimeError):
            await send(sender, following)


async def test_a_refusal_of_the_second_is_its_own(stage: Stage) -> None:
    async with Server(b"PIPELINING", RCPT=[b"250 ok\r\n", b"250 ok\r\n", b"550 5.1.1 who\r\n"]).running() as server:
        sender = await prompt(stage, server)
        following = announced(sender, envelope("c@x.test"))
        assert await send(sender, envelope()) == [DELIVERED]
        assert await send(sender, following) == [FAILED]
        assert sender.usable
        assert len(server.contents) == 2


async def test_a_session_that_waits_for_a_content_is_not_left_with_quit(stage: Stage) -> None:
    """The message that was announced is not sent after all: the server must not take QUIT for its content."""
    async with Server(b"PIPELINING").running() as server:
        sender = await prompt(stage, server)
        announced(sender, envelope("c@x.test"))
        assert await send(sender, envelope()) == [DELIVERED]
        await sender.quit()
        await until(lambda: all(connection.closed for connection in server.connections))
        assert len(server.contents) == 2
        assert "QUIT" not in server.verbs


async def test_another_message_than_the_announced_one_is_not_sent_in_this_session(stage: Stage) -> None:
    async with Server(b"PIPELINING").running() as server:
        sender = await prompt(stage, server)
        announced(sender, envelope("c@x.test"))
        assert await send(sender, envelope()) == [DELIVERED]
        assert await send(sender, envelope("d@x.test")) == [WAITING]
        assert not sender.usable
        assert len(server.contents) == 2


async def test_who_was_cancelled_while_the_first_was_sent_leaves_no_session(stage: Stage) -> None:
    ok, silent = b"250 ok\r\n", SILENCE
    answers = {"END": [ok, silent], "MAIL": [ok, ok, silent], "RCPT": [ok, ok, silent]}
    async with Server(b"PIPELINING", **answers, DATA=[b"354 go\r\n"] * 2 + [silent]).running() as server:
        sender = await prompt(stage, server)
        announced(sender, envelope("c@x.test"))
        task = asyncio.ensure_future(send(sender, envelope()))
        await until(lambda: server.verbs.count("MAIL") == 3)
        assert sender.client.step is Step.END
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await until(lambda: sender.closed)


async def test_a_slow_server_is_given_one_message_at_a_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other connections may be quicker with the next one."""
    monkeypatch.setattr("gatepost.transport.send.connection.PROMPT_SECONDS", -1.0)
    async with Server(b"PIPELINING").running() as server:
        sender = await stage.connect(server)
        assert await send(sender, envelope()) == [DELIVERED]
        assert not sender.prompt
        announced(sender, envelope("c@x.test"))
        assert await send(sender, envelope()) == [DELIVERED]
        assert server.verbs.count("MAIL") == 2


async def test_a_limit_of_messages_is_kept(stage: Stage) -> None:
    async with Server(b"PIPELINING", b"LIMITS MAILMAX=3").running() as server:
        sender = await prompt(stage, server)
        following = announced(sender, envelope("c@x.test"))
        assert await send(sender, envelope()) == [DELIVERED]
        announced(sender, envelope("d@x.test"))
        assert await send(sender, following) == [DELIVERED]
        assert not sender.usable
        assert server.verbs.count("MAIL") == 3
