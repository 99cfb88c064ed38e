"""BDAT and its awkward cases (RFC 3030): what is announced is swallowed, whatever becomes of it."""

from __future__ import annotations

import pytest
from smtp_play import Play, connector

from gatepost.wire.smtp_reply import Reply
from gatepost.wire.smtp_server_mail import MAX_SWALLOWED


def test_a_message_in_chunks() -> None:
    play = Play()
    play.begin("a@x.ours")
    assert play.codes(b"BDAT 14\r\nSubject: a\r\n\r\nBDAT 0\r\nBDAT 8 LAST\r\n..b\r\n.\r\n") == [
        "250 2.0.0",
        "250 2.0.0",
        "250 2.6.0",
    ]
    assert play.contents == [b"Subject: a\r\n\r\n..b\r\n.\r\n"]  # never unstuffed


def test_an_empty_last_chunk_ends_the_message() -> None:
    play = Play()
    play.begin("a@x.ours")
    assert play.codes(b"BDAT 3\r\na\r\nBDAT 0 LAST\r\nNOOP\r\n") == ["250 2.0.0", "250 2.6.0", "250 2.0.0"]
    assert play.contents == [b"a\r\n"]


def test_an_empty_message() -> None:
    play = Play()
    play.begin("a@x.ours")
    assert play.codes(b"bdat 0 last\r\n") == ["250 2.6.0"]
    assert play.contents == [b""]


def test_a_line_end_may_lie_between_chunks() -> None:
    play = Play()
    play.begin("a@x.ours")
    play.say(b"BDAT 2\r\na\rBDAT 2 LAST\r\n\nb")
    assert play.contents == [b"a\r\nb\r\n"]  # the last line gets its end


def test_chunks_after_refused_recipients_are_swallowed() -> None:
    play = Play()
    play.lines("EHLO c.example", "MAIL FROM:<a@b.example>", "RCPT TO:<unknown@x.ours>")
    assert play.codes(b"BDAT 6\r\nQUIT\r\nBDAT 6 LAST\r\nRSET\r\nNOOP\r\n") == ["554 5.5.1", "503 5.5.1", "250 2.0.0"]
    assert not play.closed


def test_chunks_without_a_message_are_swallowed() -> None:
    play = Play()
    play.lines("EHLO c.example")
    assert play.codes(b"BDAT 6 LAST\r\nQUIT\r\nNOOP\r\n") == ["503 5.5.1", "250 2.0.0"]


def test_after_a_refused_chunk_the_message_is_lost_until_rset() -> None:
    play = Play(connector(max_message_size=10))
    play.begin("a@x.ours")
    assert play.codes(
        b"BDAT 12\r\n0123456789\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<b@x.ours>\r\nDATA\r\nBDAT 6\r\nQUIT\r\nRSET\r\n"
    ) == ["552 5.3.4", "503 5.5.1", "503 5.5.1", "503 5.5.1", "503 5.5.1", "250 2.0.0"]
    play.begin("a@x.ours")
    assert play.codes(b"BDAT 3 LAST\r\na\r\n") == ["250 2.6.0"]
    assert play.contents == [b"a\r\n"]


def test_no_resources_at_the_first_chunk() -> None:
    play = Play()
    play.begin("a@x.ours")
    play.judge.refuse_content = Reply(452, "Insufficient system resources", "4.3.1")
    assert play.codes(b"BDAT 6 LAST\r\nQUIT\r\nNOOP\r\n") == ["452 4.3.1", "250 2.0.0"]


def test_a_chunk_far_too_large_is_refused_at_its_command() -> None:
    """Its octets are never read, so that nobody can have us read for ever."""
    play = Play(connector(max_message_size=1000))
    play.begin("a@x.ours")
    assert play.codes(b"BDAT 999999999 LAST\r\nQUIT\r\n") == ["552 5.3.4"]
    assert play.closed
    assert play.session.lingers
    assert play.session.reason == "a chunk too large"
    assert play.stored == []


def test_the_chunks_before_count() -> None:
    """What is announced is too much together with what is there; a little too much is read, and the session goes on."""
    most = MAX_SWALLOWED
    play = Play(connector(max_message_size=most))
    play.begin("a@x.ours")
    assert play.codes(b"BDAT 8\r\n" + b"12345\r\n1" + b"BDAT %d LAST\r\n" % (most - 5)) == ["250 2.0.0"]
    assert not play.closed
    play = Play(connector(max_message_size=most))
    play.begin("a@x.ours")
    assert play.codes(b"BDAT 8\r\n" + b"12345\r\n1" + b"BDAT %d LAST\r\n" % (most + 1)) == ["250 2.0.0", "552 5.3.4"]
    assert play.closed


@pytest.mark.parametrize("begun", [True, False])
def test_many_refused_chunks_end_the_session_as_one_large_one_does(begun: bool) -> None:
    """Whatever they were refused for; a message that is taken makes good what came before."""
    play = Play(connector(max_message_size=10))
    if begun:
        play.begin("a@x.ours")
    else:
        play.lines("EHLO c.example")
    chunk = b"BDAT %d\r\n" % (MAX_SWALLOWED // 2) + b"x" * (MAX_SWALLOWED // 2)
    first = "552 5.3.4" if begun else "503 5.5.1"
    assert play.codes(chunk) == [first]
    assert play.codes(chunk) == ["503 5.5.1"]
    assert not play.closed
    assert play.codes(b"BDAT 1\r\nx") == ["503 5.5.1"]
    assert play.closed


def test_a_message_that_is_taken_makes_refused_chunks_good() -> None:
    play = Play(connector(max_message_size=10))
    play.begin("a@x.ours")
    assert play.codes(b"BDAT %d\r\n" % MAX_SWALLOWED + b"x" * MAX_SWALLOWED + b"RSET\r\n") == ["552 5.3.4", "250 2.0.0"]
    play.begin("a@x.ours")
    assert play.codes(b"BDAT 3 LAST\r\na\r\n") == ["250 2.6.0"]
    play.begin("a@x.ours")
    assert play.codes(b"BDAT 12 LAST\r\n0123456789\r\n") == ["552 5.3.4"]
    assert not play.closed


def test_data_and_recipients_within_chunks_are_out_of_order() -> None:
    play = Play()
    play.begin("a@x.ours")
    assert play.codes(b"BDAT 3\r\na\r\nDATA\r\nRCPT TO:<b@x.ours>\r\nMAIL FROM:<>\r\nBDAT 0 LAST\r\n") == [
        "250 2.0.0", "503 5.5.1", "503 5.5.1", "503 5.5.1", "250 2.6.0",
    ]  # fmt: skip
    assert [r.address for r in play.stored[0].recipients] == ["a@x.ours"]


@pytest.mark.parametrize("content", [b"a\nb\r\n", b"a\rb\r\n", b"a\0b\r\n"])
def test_bare_line_ends_and_nul_are_refused_but_leave_no_doubt_where_the_chunk_ends(content: bytes) -> None:
    play = Play()
    play.begin("a@x.ours")
    assert play.codes(b"BDAT %d LAST\r\n" % len(content) + content + b"NOOP\r\n") == ["550 5.6.0", "250 2.0.0"]
    assert play.stored == []


@pytest.mark.parametrize("argument", [b"", b"x", b"-1", b"5 FIRST", b"5 LAST x", b"1" * 21, b"\xb2"])
def test_a_chunk_of_unknown_size_ends_the_session(argument: bytes) -> None:
    play = Play()
    play.begin("a@x.ours")
    assert play.codes(b"BDAT " + argument + b"\r\nMAIL FROM:<evil@x.example>\r\n") == ["501 5.5.4"]
    assert play.closed


def test_a_stop_lets_the_chunks_come_to_their_end() -> None:
    play = Play()
    play.begin("a@x.ours")
    play.say(b"BDAT 3\r\na\r\n")
    play.run(play.session.stop())
    assert play.codes(b"BDAT 3 LAST\r\nb\r\n") == ["250 2.6.0", "421 4.3.2"]
    assert play.contents == [b"a\r\nb\r\n"]
