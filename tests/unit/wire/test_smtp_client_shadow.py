"""XSHADOW as a client reads and says it (SPEC S1)."""

from __future__ import annotations

import pytest
from smtp_server_play import EHLO, Play

from gatepost.wire.events import Send
from gatepost.wire.shadow_words import ShadowHub
from gatepost.wire.smtp_client_command import mail_command
from gatepost.wire.smtp_client_events import Broken, ChannelOpen, SessionFault, Step
from gatepost.wire.smtp_client_extensions import Extensions, read_extensions
from gatepost.wire.smtp_reply import Reply

OWN = ShadowHub("HUB-02", "identity-2")
OFFERS = b"250-mx.x.test\r\n250-PIPELINING\r\n250 XSHADOW HUB-01 Identity-1\r\n"


@pytest.mark.parametrize(
    ("line", "hub"),
    [
        ("XSHADOW HUB-01 Identity-1", ShadowHub("HUB-01", "Identity-1")),
        ("xshadow Hub+2001 x", ShadowHub("Hub 01", "x")),
        ("XSHADOW", None),
        ("XSHADOW HUB-01", None),
        ("XSHADOW a b c", None),
        ("XSHADOW +FF x", None),
        ("SIZE 1", None),
    ],
)
def test_the_extension_is_read_as_it_is_written(line: str, hub: ShadowHub | None) -> None:
    assert read_extensions(Reply(250, f"mx.x.test Hello\n{line}\n8BITMIME")).shadow == hub


def test_mail_says_the_token() -> None:
    assert mail_command("a@x.test", Extensions(), shadow="ab-1") == b"MAIL FROM:<a@x.test> XSHADOW=ab-1\r\n"
    assert b"XSHADOW" not in mail_command("a@x.test", Extensions())


def asked() -> Play:
    play = Play().ready(OFFERS)
    assert play.client.open_channel(OWN) == b"XSHADOW HUB-02 identity-2\r\n"
    assert play.client.step is Step.CHANNEL
    return play


def test_the_session_becomes_a_channel() -> None:
    for split in (None, 1):
        play = asked()
        if split:
            play.split = lambda said: [said[at : at + 1] for at in range(len(said))]
        play.hear(b"250 2.0.0 HUB-01 Identity-1\r\n")
        assert play.events[-1] == ChannelOpen(ShadowHub("HUB-01", "Identity-1"))
        assert play.client.over
        assert play.client.receive(b"221 bye\r\n") == []


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (b"502 5.5.1 No\r\n", SessionFault.REFUSED),
        (b"451 4.3.0 Later\r\n", SessionFault.REFUSED),
        (b"421 4.3.2 Stopping\r\n", SessionFault.BUSY),
        (b"220 2.0.0 HUB-01 x\r\n", SessionFault.PROTOCOL),
        (b"250 2.0.0 OK\r\n", SessionFault.PROTOCOL),
        (b"250 2.0.0 HUB-01 x\r\nmore", SessionFault.PROTOCOL),
        (b"\0\0\0\0\r\n", SessionFault.PROTOCOL),
    ],
)
def test_any_other_answer_ends_the_session(answer: bytes, fault: SessionFault) -> None:
    play = asked()
    play.hear(answer)
    assert isinstance(play.events[-1], Broken)
    assert play.events[-1].fault is fault


def test_not_in_the_midst_of_a_message() -> None:
    play = Play().ready(EHLO)
    play.begin()
    with pytest.raises(RuntimeError):
        play.client.open_channel(OWN)
    assert not any(isinstance(event, Send) for event in play.events)
