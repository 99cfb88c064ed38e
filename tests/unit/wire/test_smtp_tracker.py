"""Where a relayed SMTP session may be ended: between transactions, never within a message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.wire.smtp_tracker import MAX_COMMAND, MAX_PENDING, SmtpTracker

Turn = tuple[str, bytes]
BYE = b"421 4.3.2 moved\r\n"


def play(*turns: Turn, greeting: bool = False) -> SmtpTracker:
    """What client and server said, in order."""
    tracker = SmtpTracker(greeting=greeting)
    for who, data in turns:
        (tracker.client if who == "C" else tracker.server)(data)
    return tracker


MAIL = [("C", b"MAIL FROM:<a@b>\r\n"), ("S", b"250 2.1.0 Ok\r\n")]
RCPT = [("C", b"RCPT TO:<c@d>\r\n"), ("S", b"250 2.1.5 Ok\r\n")]
DATA = [("C", b"DATA\r\n"), ("S", b"354 go on\r\n")]
BODY = [("C", b"Subject: x\r\n\r\nRSET\r\nQUIT\r\n")]
DOT = [("C", b".\r\n")]
DONE = [("S", b"250 2.0.0 queued\r\n")]


@pytest.mark.parametrize(
    ("turns", "at_rest"),
    [
        ([], True),
        ([("C", b"NOOP\r\n")], False),
        ([("C", b"NOOP\r\n"), ("S", b"250 ok\r\n")], True),
        ([("C", b"EHLO x\r\n"), ("S", b"250-a\r\n250-b\r\n")], False),
        ([("C", b"EHLO x\r\n"), ("S", b"250-a\r\n250 b\r\n")], True),
        ([("C", b"MA")], False),
        ([("C", b"NOOP\r\n"), ("S", b"250 o")], False),
        (MAIL, False),
        ([*MAIL, *RCPT], False),
        ([*MAIL, ("C", b"NOOP\r\n"), ("S", b"250 ok\r\n")], False),
        ([*MAIL, ("C", b"RSET\r\n"), ("S", b"250 ok\r\n")], True),
        ([*MAIL, ("C", b"EHLO x\r\n"), ("S", b"250 ok\r\n")], True),
        ([("C", b"MAIL FROM:<a@b>\r\n"), ("S", b"550 no\r\n")], True),
        ([*MAIL, *RCPT, *DATA], False),
        ([*MAIL, *RCPT, *DATA, *BODY], False),
        ([*MAIL, *RCPT, *DATA, *BODY, *DOT], False),
        ([*MAIL, *RCPT, *DATA, *BODY, *DOT, *DONE], True),
        ([*MAIL, *RCPT, *DATA, *BODY, *DOT, ("S", b"552 too much\r\n")], True),
        ([*MAIL, *DATA, *DOT, *DONE], True),
        ([*MAIL, ("C", b"DATA\r\n"), ("S", b"554 no recipients\r\n")], False),
        ([*MAIL, *RCPT, *DATA, ("C", b"..\r\nx.\r\n.y\r\n\n.\n")], False),
    ],
)
def test_between_transactions(turns: list[Turn], at_rest: bool) -> None:
    """Only there, and only when every command has its whole reply."""
    assert play(*turns).at_rest() is at_rest


def test_a_message_looks_like_commands_and_is_none() -> None:
    """By BDAT its octets are counted; the last lines of this chunk are a finished session."""
    chunk = b"RSET\r\n250 ok\r\n.\r\n"
    begun = [*MAIL, *RCPT, ("C", b"BDAT %d\r\n" % (2 * len(chunk))), ("C", chunk)]
    assert not play(*begun, ("S", b"250 ok\r\n")).at_rest()
    more = [*begun, ("C", chunk), ("S", b"250 2x octets\r\n")]
    assert not play(*more).at_rest()
    assert not play(*more, ("C", b"BDAT 0 LAST\r\n")).at_rest()
    assert play(*more, ("C", b"BDAT 0 LAST\r\n"), ("S", b"250 queued\r\n")).at_rest()
    one = [*MAIL, *RCPT, ("C", b"bdat 5 last\r\nQUIT\n"), ("S", b"250 queued\r\n")]
    assert play(*one).at_rest()
    assert not play(*one).is_over


def test_pipelined() -> None:
    """A whole transaction in one packet, and the next behind it."""
    first = ("C", b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n")
    replies = ("S", b"250 ok\r\n250 ok\r\n354 go\r\n")
    second = ("C", b"text\r\n.\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n")
    turns = [first, replies, second]
    assert not play(*turns, ("S", b"250 queued\r\n250 ok\r\n")).at_rest()
    assert not play(*turns, ("S", b"250 queued\r\n250 ok\r\n250 ok\r\n354 go\r\n")).at_rest()
    assert play(*turns, ("S", b"250 queued\r\n250 ok\r\n250 ok\r\n354 go\r\n"), *DOT, *DONE).at_rest()


@pytest.mark.parametrize(
    "turns",
    [
        [("C", b"STARTTLS\r\n"), ("S", b"220 go\r\n"), ("C", b"\x16\x03\x01")],
        [("C", b"AUTH LOGIN\r\n"), ("S", b"334 x\r\n")],
        [*MAIL, ("C", b"DATA\r\nNOOP\r\n")],
        [("S", b"250 nobody asked\r\n")],
        [("C", b"BDAT x\r\n")],
        [("C", b"x" * (MAX_COMMAND + 1))],
        [("S", b"x" * (MAX_COMMAND + 1))],
        [("C", b"NOOP\r\n" * (MAX_PENDING + 1))],
    ],
)
def test_what_cannot_be_followed_is_ended_by_force_only(turns: list[Turn]) -> None:
    """TLS of the hub, challenges, clients that do not wait: nothing of ours is put between."""
    tracker = play(*turns)
    assert tracker.is_lost
    assert not tracker.at_rest()
    assert tracker.farewell("moved") == b""
    tracker.client(b"x\r\n")
    tracker.server(b"250 x\r\n")
    assert tracker.is_lost


def test_starttls_that_is_refused_changes_nothing() -> None:
    """The session goes on in clear."""
    assert play(("C", b"STARTTLS\r\n"), ("S", b"454 no\r\n")).at_rest()


def test_farewells() -> None:
    """`421 4.3.2` at a line's end; nothing into a half line of the server's, nor behind its own goodbye."""
    assert play().farewell("moved") == BYE
    assert play(*MAIL, *RCPT, *DATA, *BODY).farewell("moved") == BYE
    assert play(("C", b"NOOP\r\n"), ("S", b"250 o")).farewell("moved") == b""
    assert play(("C", b"QUIT\r\n")).farewell("moved") == b""
    gone = play(("S", b"421 4.4.2 timeout\r\n"))
    assert gone.is_over
    assert gone.farewell("moved") == b""


def test_whole_commands() -> None:
    """Half a line and half a message are not."""
    assert play(("C", b"NOOP\r\n")).command_is_whole
    assert not play(("C", b"NOO")).command_is_whole
    assert not play(*MAIL, *DATA, *BODY).command_is_whole
    assert not play(*MAIL, ("C", b"BDAT 9\r\nabc")).command_is_whole


def test_a_greeting_that_is_not_over() -> None:
    """A hub may make its clients wait in the middle of it."""
    assert not play(greeting=True).at_rest()
    assert not play(("S", b"220-wait\r\n"), greeting=True).at_rest()
    assert play(("S", b"220-wait\r\n"), ("S", b"220 now\r\n"), greeting=True).at_rest()
    assert not play(("C", b"EHLO early\r\n"), ("S", b"220 now\r\n"), greeting=True).at_rest()


SESSION: list[Turn] = [
    ("C", b"EHLO x\r\n"), ("S", b"250-a\r\n250 b\r\n"), *MAIL, *RCPT, *DATA, *BODY, *DOT, *DONE,
    ("C", b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nBDAT 12\r\nRSET\r\n250 x\n"), ("S", b"250 ok\r\n250 ok\r\n250 ok\r\n"),
    ("C", b"BDAT 3 LAST\r\nabc"), ("S", b"250 queued\r\n"), ("C", b"RSET\r\n"), ("S", b"250 ok\r\n"),
]  # fmt: skip


@given(st.integers(0, len(SESSION)), st.lists(st.integers(1, 9), min_size=1, max_size=40))
def test_any_split_gives_the_same(end: int, sizes: list[int]) -> None:
    """Packets are cut wherever."""
    whole, split = play(*SESSION[:end]), SmtpTracker()
    number = 0
    for who, data in SESSION[:end]:
        while data:
            size = sizes[number % len(sizes)]
            (split.client if who == "C" else split.server)(data[:size])
            data, number = data[size:], number + 1
    facts = [
        (t.at_rest(), t.command_is_whole, t.in_transaction, t.is_over, t.is_lost, t.farewell("x"))
        for t in (whole, split)
    ]
    assert facts[0] == facts[1]
