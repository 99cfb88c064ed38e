"""Whatever the pieces in which a dialogue comes in, answers and messages are the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from smtp_play import Play, connector

COMMANDS = [
    b"EHLO c.example\r\n",
    b"HELO c.example\r\n",
    b"MAIL FROM:<a@b.example>\r\n",
    b"MAIL FROM:<a@b.example> SIZE=99999\r\n",
    b"RCPT TO:<a@x.ours>\r\n",
    b"RCPT TO:<unknown@x.ours>\r\n",
    b"RCPT TO:<a@far.example>\r\n",
    b"DATA\r\n",
    b"Subject: x\r\n\r\n..text\r\n.\r\n",
    b"BDAT 5\r\nab\r\nc",
    b"BDAT 3 LAST\r\nd\r\n",
    b"BDAT 0 LAST\r\n",
    b"BDAT x\r\n",
    b"RSET\r\n",
    b"NOOP\r\n",
    b"WHAT\r\n",
    b"AUTH PLAIN AGFubmFAeC5vdXJzAHNlY3JldA==\r\n",
    b"AUTH LOGIN\r\n",
    b"YW5uYUB4Lm91cnM=\r\n",
    b"x" * 300 + b"\r\n",
    b"NOOP\n",
    b"a\rb\r\n",
    b"\0\r\n",
    b"text\n.\n",
    b"QUIT\r\n",
]
MESSAGE = [b"EHLO c.example\r\n", b"MAIL FROM:<a@b.example>\r\n", b"RCPT TO:<a@x.ours>\r\n"]


@given(
    st.lists(st.sampled_from(COMMANDS), max_size=12),
    st.lists(st.integers(1, 40), min_size=1, max_size=20),
    st.booleans(),
)
def test_any_split_gives_the_same(commands: list[bytes], sizes: list[int], bare: bool) -> None:
    wanted = connector(bare_line_feeds=bare, max_message_size=200, tarpit_seconds=1.0)
    stream = b"".join([*MESSAGE, *commands])
    whole, pieces = Play(wanted, tls=True), Play(wanted, tls=True)
    answers = whole.say(stream)
    others: list[str] = pieces.heard()
    at = turn = 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        others += pieces.say(stream[at : at + size])
        at += size
        turn += 1
    assert others == answers
    assert pieces.stored == whole.stored
    assert pieces.sign_ins == whole.sign_ins
    assert pieces.waits == whole.waits
    assert pieces.closed == whole.closed


@given(st.lists(st.binary(max_size=60), max_size=30))
def test_rubbish_raises_nothing(pieces: list[bytes]) -> None:
    play = Play()
    play.begin("a@x.ours")
    for piece in pieces:
        play.run(play.session.receive(piece))
    for message in play.stored:
        assert message.content.count(b"\n") == message.content.count(b"\r\n")
