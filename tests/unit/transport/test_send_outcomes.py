"""What becomes of messages and recipients at servers of every temper: the rows of the failure table, over sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from smtp_script import CONTENT, DEADLINE, DROP, SILENCE, Body, Server, Stage, envelope, until

from gatepost.transport.message import Envelope, RecipientState
from gatepost.transport.send.options import SendTimes
from gatepost.transport.send.outcome import Outcome
from gatepost.transport.send.sender import SmtpSender
from gatepost.wire.smtp_client_events import SessionFault

DELIVERED, FAILED = RecipientState.DELIVERED, RecipientState.FAILED
WAITING, UNCERTAIN = RecipientState.WAITING, RecipientState.UNCERTAIN


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    await stage.close()


async def send(sender: SmtpSender, message: Envelope, body: Body | None = None, **more: Any) -> Outcome:
    async with asyncio.timeout(DEADLINE):
        return await sender.send(message, message.recipients, body or Body(), **more)


def states(outcome: Outcome) -> list[RecipientState]:
    return [entry.state for entry in outcome.recipients]


def replies(outcome: Outcome) -> list[str]:
    return [str(entry.reply) for entry in outcome.recipients]


async def test_a_message_is_handed_over_and_its_content_comes_whole(stage: Stage) -> None:
    async with Server(b"PIPELINING", b"SIZE 9999", END=b"250 2.0.0 queued as 1\r\n").running() as server:
        sender = await stage.connect(server)
        outcome = await send(sender, envelope(size=len(CONTENT)))
        assert states(outcome) == [DELIVERED]
        assert replies(outcome) == ["250 2.0.0 queued as 1"]
        assert outcome.broken is None
        assert sender.usable
        assert sender.messages_sent == 1
        await sender.quit()
    assert server.contents == [CONTENT]
    size = len(CONTENT)
    assert server.commands == [
        "EHLO us.test",
        f"MAIL FROM:<a@x.test> SIZE={size}",
        "RCPT TO:<b@x.test>",
        "DATA",
        "QUIT",
    ]


async def test_many_messages_over_one_connection(stage: Stage) -> None:
    async with Server(b"PIPELINING").running() as server:
        sender = await stage.connect(server)
        for _ in range(20):
            assert states(await send(sender, envelope())) == [DELIVERED]
        assert sender.messages_sent == 20
        assert len(server.connections) == 1
        assert "RSET" not in server.verbs


async def test_large_content_comes_in_pieces_with_any_splits(stage: Stage) -> None:
    pieces = [b"Subject: s\r\n\r\n", b".\r", b"\n.", b".\r\n", b"x" * 100_000, b"\r\n.", b"\r\nend"]
    async with Server(b"PIPELINING").running() as server:
        sender = await stage.connect(server)
        assert states(await send(sender, envelope(), Body(*pieces))) == [DELIVERED]
        assert sender.octets_sent == sum(map(len, pieces))
    (content,) = server.contents
    assert content.startswith(b"Subject: s\r\n\r\n.\r\n..\r\nxxx")


async def test_row_43_each_recipient_has_its_own_fate(stage: Stage) -> None:
    rcpt = [b"250 ok\r\n", b"550 5.1.1 who?\r\n", b"451 4.7.1 greylisted\r\n", b"250 ok\r\n"]
    for offers in ((b"PIPELINING",), ()):
        async with Server(*offers, RCPT=list(rcpt)).running() as server:
            sender = await stage.connect(server)
            outcome = await send(sender, envelope("b@x.test", "c@x.test", "d@x.test", "e@x.test"))
            assert states(outcome) == [DELIVERED, FAILED, WAITING, DELIVERED]
            assert replies(outcome)[1:3] == ["550 5.1.1 who?", "451 4.7.1 greylisted"]
            assert sender.usable


async def test_row_43_too_many_recipients_the_rest_follows_in_the_same_session(stage: Stage) -> None:
    names = [f"r{number}@x.test" for number in range(7)]

    def rcpt(argument: str) -> bytes:
        return b"250 ok\r\n" if server.connections[0].accepted < 4 else b"452 4.5.3 too many\r\n"

    async with Server(b"PIPELINING", RCPT=rcpt).running() as server:
        sender = await stage.connect(server)
        outcome = await send(sender, envelope(*names))
        assert set(states(outcome)) == {DELIVERED}
        assert [entry.recipient.address for entry in outcome.recipients] == names
        assert len(server.contents) == 2
        assert len(server.connections) == 1
        assert server.contents[0] == server.contents[1] == CONTENT
        assert sender.messages_sent == 1


async def test_row_43_a_large_content_is_opened_anew_for_the_rest(stage: Stage) -> None:
    pieces = (CONTENT, b"x" * 1000 + b"\r\n")
    opened: list[Body] = []

    async def reopen() -> Body:
        opened.append(Body(*pieces))
        return opened[-1]

    answers = [b"250 ok\r\n", b"452 4.5.3 too many\r\n", b"250 ok\r\n"]
    async with Server(b"PIPELINING", RCPT=list(answers)).running() as server:
        sender = await stage.connect(server)
        assert (
            states(await send(sender, envelope("b@x.test", "c@x.test"), Body(*pieces), reopen=reopen))
            == [DELIVERED] * 2
        )
        assert [body.closed for body in opened] == [1]
        assert server.contents == [b"".join(pieces)] * 2
    async with Server(b"PIPELINING", RCPT=list(answers)).running() as server:
        sender = await stage.connect(server)
        outcome = await send(sender, envelope("b@x.test", "c@x.test"), Body(*pieces))
        assert states(outcome) == [DELIVERED, WAITING]
        assert replies(outcome)[1] == "452 4.5.3 too many"


async def test_row_12_more_than_a_server_takes_are_sent_in_several_transactions(stage: Stage) -> None:
    """By our own bound of 100, or the server's LIMITS RCPTMAX (RFC 9422)."""
    names = [f"r{number}@x.test" for number in range(25)]
    for offers, options in (((b"PIPELINING", b"LIMITS RCPTMAX=10"), {}), ((b"PIPELINING",), {"max_recipients": 10})):
        async with Server(*offers).running() as server:
            sender = await stage.connect(server, **options)
            assert set(states(await send(sender, envelope(*names)))) == {DELIVERED}
            assert server.verbs.count("RCPT") == 25
            assert server.verbs.count("MAIL") == 3


async def test_limits_mailmax_ends_the_use_of_a_session(stage: Stage) -> None:
    async with Server(b"PIPELINING", b"LIMITS MAILMAX=2").running() as server:
        sender = await stage.connect(server)
        await send(sender, envelope())
        assert sender.usable
        await send(sender, envelope())
        assert not sender.usable
        await sender.quit()
        assert server.verbs[-1] == "QUIT"


@pytest.mark.parametrize("verb", ["MAIL", "DATA", "END"])
@pytest.mark.parametrize(("code", "state"), [(b"554 5.7.1 spam\r\n", FAILED), (b"451 4.3.0 later\r\n", WAITING)])
async def test_row_44_refusals_of_the_message_are_everybodys(
    stage: Stage, verb: str, code: bytes, state: RecipientState
) -> None:
    answers: dict[str, Any] = {verb: [code, b"354 go\r\n" if verb == "DATA" else b"250 ok\r\n"]}
    async with Server(b"PIPELINING", **answers).running() as server:
        sender = await stage.connect(server)
        outcome = await send(sender, envelope("b@x.test", "c@x.test"))
        assert states(outcome) == [state, state]
        assert replies(outcome) == [code.decode().strip()] * 2
        # Row 52: the session goes on, after a RSET where the server may still have a transaction.
        assert ("RSET" in server.verbs) == (verb != "END")
        assert states(await send(sender, envelope())) == [DELIVERED]


@pytest.mark.parametrize("verb", ["MAIL", "RCPT", "DATA"])
@pytest.mark.parametrize("answer", [DROP, b"421 4.3.2 shutting down\r\n"])
async def test_row_42_a_session_that_ends_before_the_dot_is_no_fault_of_the_message(
    stage: Stage, verb: str, answer: bytes
) -> None:
    answers: dict[str, Any] = {verb: answer}
    async with Server(b"PIPELINING", **answers).running() as server:
        sender = await stage.connect(server)
        outcome = await send(sender, envelope())
        assert states(outcome) == [WAITING]
        assert outcome.broken is not None
        assert outcome.broken.fault is (SessionFault.LOST if answer == DROP else SessionFault.BUSY)
        assert outcome.recipients[0].ours == (answer == DROP)
        assert outcome.recipients[0].reply.code in (421, 451)
        assert not sender.usable


@pytest.mark.parametrize("answer", [DROP, b"421 4.3.2 shutting down\r\n", b"rubbish\r\n"])
async def test_row_38_no_answer_to_the_content_is_uncertain(stage: Stage, answer: bytes) -> None:
    async with Server(b"PIPELINING", END=answer).running() as server:
        sender = await stage.connect(server)
        outcome = await send(sender, envelope("b@x.test", "c@x.test"))
        assert states(outcome) == [UNCERTAIN, UNCERTAIN]
        assert all(entry.reply.transient for entry in outcome.recipients)
        assert not sender.usable
        assert sender.messages_sent == 0


async def test_row_38_a_timeout_after_the_dot_is_uncertain_and_the_wait_is_ten_minutes(stage: Stage) -> None:
    assert SendTimes().end >= 600
    async with Server(b"PIPELINING", END=SILENCE).running() as server:
        sender = await stage.connect(server, times=SendTimes(end=0.1))
        outcome = await send(sender, envelope())
        assert states(outcome) == [UNCERTAIN]
        assert outcome.broken is not None
        assert outcome.broken.fault is SessionFault.TIMEOUT


@pytest.mark.parametrize("verb", ["MAIL", "RCPT", "DATA"])
async def test_row_51_a_server_that_says_nothing_is_given_up(stage: Stage, verb: str) -> None:
    answers: dict[str, Any] = {verb: SILENCE}
    async with Server(**answers).running() as server:
        sender = await stage.connect(server, times=SendTimes(command=0.1, data=0.1))
        outcome = await send(sender, envelope())
        assert states(outcome) == [WAITING]
        assert outcome.broken is not None
        assert outcome.broken.fault is SessionFault.TIMEOUT


async def test_row_51_a_byte_now_and_then_keeps_nobody(stage: Stage) -> None:
    async with Server(MAIL=SILENCE).running() as server:
        sender = await stage.connect(server, times=SendTimes(command=0.3))
        message = envelope()
        sending = asyncio.create_task(send(sender, message))
        await until(lambda: "MAIL" in server.verbs)

        async def drip() -> None:
            while not sending.done():
                server.connections[0].say(b"2")
                await asyncio.sleep(0.05)
                server.connections[0].say(b"50-")
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        outcome = await sending
        await dripping
        assert outcome.broken is not None
        assert outcome.broken.fault is SessionFault.TIMEOUT


async def test_row_51_a_server_that_takes_its_time_for_each_recipient_is_given_up(stage: Stage) -> None:
    async with Server(MAIL=b"250 ok\r\n", RCPT=SILENCE).running() as server:
        sender = await stage.connect(server, times=SendTimes(command=30, envelope=0.3))
        outcome = await send(sender, envelope())
        assert outcome.broken is not None
        assert "slow" in outcome.broken.text


async def test_row_51_who_does_not_read_is_given_up(stage: Stage) -> None:
    async with Server(b"PIPELINING").running() as server:
        sender = await stage.connect(server, times=SendTimes(block=0.2))
        server.slow = 30.0
        server.answers["DATA"] = b"354 go\r\n"
        piece = b"x" * 70 + b"\r\n"
        outcome = await send(sender, envelope(), Body(CONTENT, *[piece * 3000] * 60))
        assert states(outcome) == [WAITING]
        assert outcome.broken is not None
        assert outcome.broken.fault is SessionFault.TIMEOUT


async def test_row_46_nothing_about_recipients_is_an_exception(stage: Stage) -> None:
    """The scheduler hears of hosts only by `ConnectFailed`."""
    async with Server(b"PIPELINING", RCPT=b"550 5.1.1 who?\r\n").running() as server:
        sender = await stage.connect(server)
        outcome = await send(sender, envelope("b@x.test", "c@x.test"))
        assert states(outcome) == [FAILED, FAILED]
        assert outcome.broken is None
        assert sender.usable


async def test_row_52_a_refused_reset_ends_the_session(stage: Stage) -> None:
    async with Server(b"PIPELINING", RCPT=b"550 5.1.1 who?\r\n", RSET=b"502 what?\r\n").running() as server:
        sender = await stage.connect(server)
        outcome = await send(sender, envelope())
        assert states(outcome) == [FAILED]
        assert not sender.usable


async def test_row_52_a_server_that_closes_while_the_content_is_being_opened(stage: Stage) -> None:
    async with Server(b"PIPELINING").running() as server:
        sender = await stage.connect(server)

        class Slow(Body):
            async def chunks(self) -> AsyncIterator[bytes]:
                server.connections[0].say(b"421 4.4.2 idle\r\n")
                await until(lambda: not sender.usable)
                yield CONTENT

        outcome = await send(sender, envelope(), Slow())
        assert states(outcome) == [WAITING]
        assert outcome.broken is not None


async def test_row_52_a_server_that_closes_between_messages(stage: Stage) -> None:
    async with Server(b"PIPELINING").running() as server:
        sender = await stage.connect(server)
        await send(sender, envelope())
        server.connections[0].say(b"421 4.4.2 idle\r\n")
        await until(lambda: not sender.usable)
        with pytest.raises(RuntimeError):
            await send(sender, envelope())
        assert sender.broken is not None
        assert sender.broken.fault is SessionFault.BUSY


# LMTP


async def test_lmtp_has_a_reply_for_each_accepted_recipient(stage: Stage) -> None:
    server = Server(
        b"PIPELINING",
        lmtp=True,
        RCPT=[b"250 ok\r\n", b"550 5.1.1 who?\r\n", b"250 ok\r\n", b"250 ok\r\n"],
        END=[b"250 2.0.0 saved\r\n", b"452 4.2.2 full\r\n", b"550 5.7.1 no\r\n"],
    )
    async with server.running():
        sender = await stage.connect(server)
        outcome = await send(sender, envelope("b@x.test", "c@x.test", "d@x.test", "e@x.test"))
        assert states(outcome) == [DELIVERED, FAILED, WAITING, FAILED]
        assert replies(outcome)[2] == "452 4.2.2 full"
        assert sender.usable
        assert server.verbs[0] == "LHLO"


async def test_row_38_lmtp_lost_among_the_replies_leaves_the_rest_uncertain(stage: Stage) -> None:
    async with Server(b"PIPELINING", lmtp=True, END=[b"250 2.0.0 saved\r\n", DROP]).running() as server:
        sender = await stage.connect(server)
        outcome = await send(sender, envelope("b@x.test", "c@x.test", "d@x.test"))
        assert states(outcome) == [DELIVERED, UNCERTAIN, UNCERTAIN]
        assert sender.messages_sent == 1


# Our own faults


@pytest.mark.parametrize("body", [Body(CONTENT, b"x", fails_after=1), Body(CONTENT, b"x", size=99999)])
async def test_a_content_that_cannot_be_read_is_never_sent_as_half_a_message(stage: Stage, body: Body) -> None:
    async with Server(b"PIPELINING").running() as server:
        sender = await stage.connect(server)
        with pytest.raises(OSError):  # noqa: PT011 - of whatever kind
            await send(sender, envelope(), body)
        assert not sender.usable
        await until(lambda: server.connections[0].closed)
    assert server.contents == []


async def test_a_content_that_cannot_be_opened_leaves_the_session(stage: Stage) -> None:
    async with Server(b"PIPELINING").running() as server:
        sender = await stage.connect(server)
        with pytest.raises(OSError):  # noqa: PT011 - of whatever kind
            await send(sender, envelope(), Body(CONTENT, fails_after=0))
        assert states(await send(sender, envelope())) == [DELIVERED]


async def test_cancelling_cuts_the_connection(stage: Stage) -> None:
    async with Server(b"PIPELINING", RCPT=SILENCE).running() as server:
        sender = await stage.connect(server)
        sending = asyncio.create_task(send(sender, envelope()))
        await until(lambda: "RCPT" in server.verbs)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert not sender.usable
        await until(lambda: server.connections[0].closed)


async def test_one_message_at_a_time(stage: Stage) -> None:
    async with Server(b"PIPELINING", DATA=SILENCE).running() as server:
        sender = await stage.connect(server)
        sending = asyncio.create_task(send(sender, envelope()))
        await until(lambda: "DATA" in server.verbs)
        assert sender.busy
        with pytest.raises(RuntimeError):
            await send(sender, envelope())
        sender.abort()
        assert states(await sending) == [WAITING]
