"""Parameters and forms of content by what the next server offers: what it cannot have it is not sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from smtp_script import DEADLINE, Body, Server, Stage, envelope, until

from gatepost.transport.message import Envelope, Notify, Recipient, RecipientState
from gatepost.transport.send.outcome import Outcome
from gatepost.transport.send.sender import SmtpSender

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


async def test_row_19_a_message_over_the_servers_limit_fails_at_once(stage: Stage) -> None:
    async with Server(b"PIPELINING", b"SIZE 100").running() as server:
        sender = await stage.connect(server)
        outcome = await send(sender, envelope("b@x.test", "c@x.test"), Body(b"x" * 101))
        assert states(outcome) == [FAILED, FAILED]
        assert outcome.recipients[0].reply.enhanced == "5.3.4"
        assert outcome.recipients[0].ours
        assert "MAIL" not in server.verbs
        assert states(await send(sender, envelope(), Body(b"x" * 100))) == [DELIVERED]


async def test_row_23_requiretls_is_not_lowered(stage: Stage) -> None:
    async with Server(b"PIPELINING", b"REQUIRETLS").running() as server:
        sender = await stage.connect(server)
        outcome = await send(sender, envelope(require_tls=True))
        assert states(outcome) == [FAILED]
        assert outcome.recipients[0].reply.enhanced == "5.7.30"
        assert "MAIL" not in server.verbs


async def test_row_20_dsn_parameters_go_on(stage: Stage) -> None:
    recipients = [Recipient("b@x.test", notify=Notify.SUCCESS | Notify.DELAY, original="rfc822;o@x.test")]
    message = envelope(recipients=recipients, returns="HDRS", envelope_id="QQ314159")
    async with Server(b"PIPELINING", b"DSN").running() as server:
        sender = await stage.connect(server)
        outcome = await send(sender, message)
        assert outcome.recipients[0].action == ""
        assert "MAIL FROM:<a@x.test> RET=HDRS ENVID=QQ314159" in server.commands
        assert "RCPT TO:<b@x.test> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;o@x.test" in server.commands


async def test_a_recipient_is_called_as_the_mailboxs_server_knows_it(stage: Stage) -> None:
    """Reports of that server still name the address that the sender wrote."""
    recipients = [
        Recipient("info+1@x.test", deliver_to="ann@mbx.test"),
        Recipient("b@x.test", deliver_to="jörg@x.test"),
    ]
    async with Server(b"PIPELINING", b"DSN", lmtp=True).running() as server:
        sender = await stage.connect(server)
        outcome = await send(sender, envelope(recipients=recipients))
        assert states(outcome) == [DELIVERED, FAILED]
        assert [entry.recipient.address for entry in outcome.recipients] == ["info+1@x.test", "b@x.test"]
        assert "RCPT TO:<ann@mbx.test> ORCPT=rfc822;info+2B1@x.test" in server.commands


@pytest.mark.parametrize(("lmtp", "action"), [(False, "relayed"), (True, "delivered")])
async def test_row_20_where_dsn_is_not_offered_the_report_of_success_is_ours(
    stage: Stage, lmtp: bool, action: str
) -> None:
    recipients = [Recipient("b@x.test", notify=Notify.SUCCESS), Recipient("c@x.test"), Recipient("d@x.test", notify=2)]
    server = Server(b"PIPELINING", lmtp=lmtp, RCPT=[b"250 ok\r\n", b"250 ok\r\n", b"550 5.1.1 who?\r\n"])
    async with server.running():
        sender = await stage.connect(server)
        outcome = await send(sender, envelope(recipients=recipients))
        assert [entry.action for entry in outcome.recipients] == [action, "", ""]
        assert "NOTIFY" not in "".join(server.commands)


async def test_row_18_smtputf8_only_when_it_is_needed(stage: Stage) -> None:
    async with Server(b"PIPELINING", b"SMTPUTF8", b"8BITMIME").running() as server:
        sender = await stage.connect(server)
        await send(sender, envelope(smtputf8=True))
        assert "SMTPUTF8" not in server.commands[-3]
        await send(sender, envelope("jörg@bücher.test", smtputf8=True))
        assert server.commands[-3:-1] == ["MAIL FROM:<a@x.test> SMTPUTF8", "RCPT TO:<jörg@bücher.test>"]
        await send(sender, envelope(smtputf8=True), Body("Subject: Grüße\r\n\r\nx\r\n".encode()))
        assert server.commands[-3] == "MAIL FROM:<a@x.test> BODY=8BITMIME SMTPUTF8"


async def test_row_18_without_smtputf8_who_can_be_written_in_ascii_is_served(stage: Stage) -> None:
    async with Server(b"PIPELINING").running() as server:
        sender = await stage.connect(server)
        outcome = await send(sender, envelope("joe@bücher.test", "jörg@x.test", smtputf8=True))
        assert states(outcome) == [DELIVERED, FAILED]
        assert outcome.recipients[1].reply.enhanced == "5.6.7"
        assert "RCPT TO:<joe@xn--bcher-kva.test>" in server.commands
        outcome = await send(sender, envelope(sender="jörg@x.test", smtputf8=True))
        assert [entry.reply.enhanced for entry in outcome.recipients] == ["5.6.7"]
        outcome = await send(sender, envelope(smtputf8=True), Body("Subject: Grüße\r\n\r\nx\r\n".encode()))
        assert [entry.reply.enhanced for entry in outcome.recipients] == ["5.6.9"]
        assert sender.usable


EIGHT = (
    "Subject: s\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n"
    "Content-Transfer-Encoding: 8bit\r\n\r\nGrüße\r\n"
)


async def test_row_17_eight_bits_where_they_are_taken(stage: Stage) -> None:
    """Also when the sender did not say so; seven are not called eight."""
    async with Server(b"PIPELINING", b"8BITMIME").running() as server:
        sender = await stage.connect(server)
        for body in ("7BIT", "8BITMIME"):
            await send(sender, envelope(body=body), Body(EIGHT.encode()))
            assert server.commands[-3] == "MAIL FROM:<a@x.test> BODY=8BITMIME"
        await send(sender, envelope(body="8BITMIME"))
        assert server.commands[-3] == "MAIL FROM:<a@x.test>"
    assert server.contents[0] == EIGHT.encode()


async def test_row_17_elsewhere_the_content_is_encoded(stage: Stage) -> None:
    content = EIGHT.encode()
    async with Server(b"PIPELINING", b"SIZE").running() as server:
        sender = await stage.connect(server)
        for pieces in ([content], [content[:99], content[99:-4], content[-4:]]):
            assert states(await send(sender, envelope(body="8BITMIME", size=len(content)), Body(*pieces))) == [
                DELIVERED
            ]
            assert server.commands[-3] == "MAIL FROM:<a@x.test>"  # the size is another one now
    assert server.contents[0] == server.contents[1]
    assert b"Gr=C3=BC=C3=9Fe" in server.contents[0]


async def test_row_17_what_is_signed_fails_rather_than_breaks(stage: Stage) -> None:
    signed = b"Content-Type: multipart/signed; boundary=s\r\n\r\n--s\r\n\r\n\xff\r\n--s--\r\n"
    late = [b"Content-Type: multipart/mixed; boundary=m\r\n\r\n--m\r\n", b"x\r\n" * 99, b"--m\r\n" + signed]
    async with Server(b"PIPELINING").running() as server:
        sender = await stage.connect(server)
        outcome = await send(sender, envelope(), Body(signed))
        assert [str(entry.reply)[:9] for entry in outcome.recipients] == ["554 5.6.3"]
        assert states(outcome) == [FAILED]
        assert "MAIL" not in server.verbs
        # It may come late in a large content: then no dot follows, and the session is over.
        outcome = await send(sender, envelope(body="8BITMIME"), Body(*late))
        assert states(outcome) == [FAILED]
        assert outcome.recipients[0].reply.enhanced == "5.6.3"
        assert not sender.usable
        await until(lambda: server.connections[0].closed)
    assert server.contents == []


async def test_binary_content_goes_in_chunks_where_they_are_taken(stage: Stage) -> None:
    binary = b"Content-Type: image/x\r\nContent-Transfer-Encoding: binary\r\n\r\n\0\n\r.\xff\r\n.\r\n"
    async with Server(b"PIPELINING", b"CHUNKING", b"BINARYMIME", b"8BITMIME").running() as server:
        sender = await stage.connect(server)
        for pieces in ([binary], [binary[:40], binary[40:66], binary[66:]]):
            assert states(await send(sender, envelope(body="BINARYMIME"), Body(*pieces))) == [DELIVERED]
    assert server.contents == [binary, binary]
    assert server.commands[1] == "MAIL FROM:<a@x.test> BODY=BINARYMIME"
    assert server.commands[-1] == f"BDAT {len(binary) - 66} LAST"
    async with Server(b"PIPELINING", b"8BITMIME").running() as server:
        sender = await stage.connect(server)
        assert states(await send(sender, envelope(body="BINARYMIME"), Body(binary))) == [DELIVERED]
    assert server.contents[0].isascii()
    assert b"base64" in server.contents[0]
