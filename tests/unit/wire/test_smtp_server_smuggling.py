"""Smuggling closed as a class: whatever ends a line wrongly, what is stored is one message or none, and nothing that
follows is carried out (smtp-facts c.1, cases 1, 2, 4). Judged by what the intake stored, not by counting replies."""

from __future__ import annotations

import itertools

import pytest
from smtp_play import Play, connector

ENDS = [
    b"".join(parts)
    for parts in itertools.product(
        (b"\r\n", b"\n", b"\r", b"\n\n", b"\r\r", b"\n\r", b"\r\r\n", b"\0\r\n", b"\r\0\n"),
        (b".", b"\0.", b".\0"),
        (b"\r\n", b"\n", b"\r", b"\n\n", b"\r\r", b"\n\r", b"\r\r\n"),
    )
    if b"".join(parts) != b"\r\n.\r\n"
]
EVIL = b"MAIL FROM:<boss@x.ours>\r\nRCPT TO:<victim@x.ours>\r\nDATA\r\nSubject: evil\r\n\r\nsmuggled\r\n.\r\n"


@pytest.mark.parametrize("pieces", [0, 1, 7])
def test_no_second_message_is_ever_stored(pieces: int) -> None:
    for end in ENDS:
        _no_message_is_stored(end, pieces)


def _no_message_is_stored(end: bytes, pieces: int) -> None:
    play = Play()
    play.begin("a@x.ours")
    play.lines("DATA")
    sent = b"Subject: good\r\n\r\ntext" + end + EVIL + b"NOOP\r\n"
    answers: list[str] = []
    for at in range(0, len(sent), pieces or len(sent)):
        answers += play.say(sent[at : at + (pieces or len(sent))])
    # Every one of these has a bare CR, a bare LF or a NUL: none is stored, not even as one message.
    assert play.stored == [], end
    assert answers[0].startswith("550 5.6.0"), end
    assert len(answers) == 1, end
    assert play.closed
    assert play.session.lingers


def test_a_tolerant_connector_still_stores_one_message_at_most() -> None:
    for end in ENDS:
        _one_message_at_most(end)


def _one_message_at_most(end: bytes) -> None:
    play = Play(connector(bare_line_feeds=True))
    play.begin("a@x.ours")
    play.lines("DATA")
    play.say(b"Subject: good\r\n\r\ntext" + end + EVIL)
    assert len(play.stored) <= 1
    for content in play.contents:
        assert b"smuggled" in content  # as the text of the one message that it is
        assert content.count(b"\r\n") == content.count(b"\n") == content.count(b"\r")
        assert b"\r\n.\r\n" not in content.replace(b"\r\n..", b"")


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\r\n", b"\r\0\n", b"\n\r\n"])
def test_nothing_after_a_bare_line_end_in_a_command_is_carried_out(end: bytes) -> None:
    play = Play()
    play.heard()
    answers = play.say(b"EHLO c.example\r\nNOOP" + end + EVIL)
    assert play.stored == []
    assert play.judge.open is None
    assert not any(answer.startswith(("354", "250 2.1")) for answer in answers) or not play.closed


@pytest.mark.parametrize("command", [b"NOOP\n", b"NOOP a\rb\r\n", b"MAIL FROM:<a@b.example>\n", b"\n"])
def test_a_bare_line_end_in_a_command_ends_the_session(command: bytes) -> None:
    play = Play()
    play.lines("EHLO c.example")
    assert play.codes(command + EVIL) == ["500 5.5.2"]
    assert play.closed
    assert play.judge.open is None


def test_lines_with_a_line_feed_alone_where_wanted() -> None:
    play = Play(connector(bare_line_feeds=True))
    play.heard()
    play.say(b"EHLO c.example\nMAIL FROM:<a@b.example>\nRCPT TO:<a@x.ours>\nDATA\n")
    assert play.say(b"Subject: a\n\n.\n..b\n") == []
    assert play.say(b"\r\n.\r\n") == ["250 2.6.0 Queued"]
    assert play.contents == [b"Subject: a\r\n\r\n\r\n.b\r\n\r\n"]


def test_a_client_whose_end_is_wrong_hears_so_at_once() -> None:
    play = Play()
    play.begin("a@x.ours")
    play.lines("DATA")
    assert play.codes(b"Subject: a\r\n\r\ntext\n.\n") == ["550 5.6.0"]
    assert play.judge.forgotten == 1


def test_commands_within_content_are_content() -> None:
    play = Play()
    play.begin("a@x.ours")
    play.lines("DATA")
    play.say(b"RSET\r\nQUIT\r\n.\x20\r\n. \r\n.\r\n")
    assert play.contents == [b"RSET\r\nQUIT\r\n \r\n \r\n"]
