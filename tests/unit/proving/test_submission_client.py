"""The script that submits mail, before a server of our own; and what the sink says of messages."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from pathlib import Path

import pytest

from gatepost.lab.servers import dovecot
from gatepost.lab.servers.process import ServerMissing
from gatepost.proving.clients import Task
from gatepost.proving.connection import Address, Connection, Ended
from gatepost.proving.history import Event, What
from gatepost.proving.relay import new_relay, relayed
from gatepost.proving.sink import is_whole, message_id, whole_messages
from gatepost.proving.submission_client import Submission

GREETING = b"220 CAS-01 ESMTP ready\r\n"
EHLO = b"250-CAS-01\r\n250-PIPELINING\r\n250 AUTH PLAIN\r\n"
SIGNED_IN = b"235 2.7.0 in\r\n"
BEGUN = [GREETING, EHLO, SIGNED_IN]
READY = [*BEGUN, b"250 ok\r\n", b"250 ok\r\n", b"354 go on\r\n"]
MOVED = b"421 4.3.2 moved\r\n"
TAKEN = b"250 2.0.0 Taken from MBX-05\r\n"


class Scripted(Connection):
    """A server that gives these replies, one for each thing that it is sent, and then is gone."""

    def __init__(self, replies: list[bytes]) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self._replies = replies[1:]
        self.data_received(replies[0])

    def send(self, data: bytes) -> None:
        """Answer."""
        self.sent.append(data)
        if self._replies:
            self.data_received(self._replies.pop(0))
        if not self._replies:
            self.connection_lost(None)


async def met(replies: list[bytes]) -> tuple[list[Event], bool | str, Scripted]:
    """What the client wrote down, how its session ended, and the connection."""
    events: list[Event] = []
    task = Task("s-1", "submission", "u@contoso.com", "pw", "DB04", Address("127.0.9.8", 465, "127.0.9.9"), 0.01, 0.0)
    script = Submission(task, ssl.create_default_context(), events.append)
    connection = Scripted(replies)
    try:
        return events, await asyncio.wait_for(script.session(connection), 20), connection
    except Ended as end:
        return events, str(end), connection


async def test_a_message_that_was_taken() -> None:
    """The reply says by whom; the message is one that the sink knows, and sent to its own user."""
    events, _, connection = await met([*READY, TAKEN])
    assert [event.what for event in events] == [What.SIGNED_IN, What.ACKNOWLEDGED, What.OK]
    assert events[-1].server == "MBX-05"
    assert 0 < events[-1].asked <= events[-1].at
    assert connection.sent[1] == b"AUTH PLAIN AHVAY29udG9zby5jb20AcHc=\r\n"
    assert connection.sent[2:4] == [b"MAIL FROM:<u@contoso.com>\r\n", b"RCPT TO:<u@contoso.com>\r\n"]
    content = connection.sent[5].removesuffix(b".\r\n")
    assert is_whole(content)
    assert message_id(content) == events[1].detail


async def test_each_message_has_an_identity_of_its_own() -> None:
    events, _, _ = await met([*READY, TAKEN, *READY[3:], TAKEN])
    identities = [event.detail for event in events if event.what == What.ACKNOWLEDGED]
    assert len(identities) == len(set(identities)) == 2


@pytest.mark.parametrize("after", [[TAKEN + MOVED], [TAKEN, MOVED], [TAKEN, b"250 ok\r\n", MOVED]])
async def test_421_between_transactions_ends_the_connection(after: list[bytes]) -> None:
    """Unasked, or as the answer to a command: nothing is in doubt, and nothing is of a wrong kind."""
    events, end, _ = await met([*READY, *after])
    assert end == "421 4.3.2 moved"
    assert {event.what for event in events} == {What.SIGNED_IN, What.ACKNOWLEDGED, What.OK}


@pytest.mark.parametrize("last", [b"421 4.3.2 forced\r\n", b""])
async def test_a_message_without_an_answer_is_in_doubt(last: bytes) -> None:
    """It was sent to its end: 421, or the end of the connection, does not say whether it was taken."""
    events, end, _ = await met([*READY, last])
    assert isinstance(end, str)
    assert [event.what for event in events] == [What.SIGNED_IN, What.IN_DOUBT]


@pytest.mark.parametrize(
    ("replies", "what"),
    [
        ([GREETING, EHLO, b"454 4.7.0 later\r\n"], What.REFUSED),
        ([*BEGUN, b"451 4.3.0 later\r\n"], What.REFUSED),
        ([*READY, b"452 4.2.2 later\r\n"], What.REFUSED),
        ([GREETING, EHLO, b"535 5.7.8 wrong\r\n"], What.WRONG),
        ([GREETING, EHLO, b"525 5.7.13 not you\r\n"], What.WRONG),
        ([*BEGUN, b"530 5.7.0 who\r\n"], What.WRONG),
        ([*BEGUN, b"250 ok\r\n", b"550 5.1.1 nobody\r\n"], What.WRONG),
        ([*READY, b"554 5.0.0 no\r\n"], What.WRONG),
        ([b"554 no\r\n"], What.WRONG),
    ],
)
async def test_only_4xx_means_later(replies: list[bytes], what: What) -> None:
    events, later, _ = await met(replies)
    assert later is True
    assert events[-1].what == what
    assert not {What.OK, What.ACKNOWLEDGED, What.IN_DOUBT} & {What(event.what) for event in events}


def test_without_the_program_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(dovecot, "SUBMISSION_PROGRAM", tmp_path / "none")
    with pytest.raises(ServerMissing, match=r"apt-get install .* dovecot-submissiond"):
        new_relay(tmp_path)
    assert relayed(None) == {}


def test_the_sinks_file_by_recipient_and_message_id() -> None:
    """What is not whole is not there."""
    taken = "u 1 <a@proving>\nu 1 <a@proving>\nu 0 <b@proving>\nv 1 <c@proving>\nv 1 -\n"
    found = whole_messages(taken)
    assert found["u"] == Counter({"<a@proving>": 2, "<b@proving>": 0})
    assert found["v"]["<c@proving>"] == 1


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"Received: x\r\nMessage-ID: <a@b>\r\n\r\ntext\r\n", "<a@b>"),
        (b"message-id: <a@b>\r\n\r\n", "<a@b>"),
        (b"Subject: x\r\n\r\nMessage-ID: <a@b>\r\n", "-"),
        (b"Message-ID: <a b>\r\n\r\n", "-"),
    ],
)
def test_the_message_id_is_the_headers(content: bytes, expected: str) -> None:
    assert message_id(content) == expected
