"""The next transaction begun together with the end of the content (RFC 2920, section 3.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from smtp_server_play import CONTENT, EHLO, PLAIN_EHLO, RCPTS, Play

from gatepost.wire.smtp_client_events import ClientEvent, Fate, Finished, SendContent, SessionFault, Step

NEXT = b"MAIL FROM:<next@x.test>\r\n"
OPENED = b"250 ok\r\n250 ok\r\n354 go\r\n"


class Following(Play):
    """At the end of each content the next transaction follows, `count` in all."""

    following = 1
    recipients = 1

    def take(self, events: list[ClientEvent]) -> None:
        super().take(events)
        if self.following and self.client.may_follow:
            self.following -= 1
            self.sent += self.client.follow(NEXT, RCPTS[: self.recipients])

    @property
    def all_fates(self) -> list[list[Fate]]:
        return [[v.fate for v in event.verdicts] for event in self.events if isinstance(event, Finished)]


def following(ehlo: bytes = EHLO, count: int = 1, **settings: object) -> Following:
    play = Following(**settings)
    play.ready(ehlo)
    play.begin(count)
    return play


def test_both_go_in_one_piece_and_each_has_its_verdict() -> None:
    play = following()
    assert play.hear(OPENED) == CONTENT + b".\r\n" + NEXT + RCPTS[0] + b"DATA\r\n"
    assert play.hear(b"250 one\r\n" + OPENED) == CONTENT + b".\r\n"
    play.hear(b"550 5.7.1 no\r\n")
    assert play.all_fates == [[Fate.TAKEN], [Fate.REFUSED]]
    assert play.client.step is Step.IDLE


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_any_split_of_the_replies_gives_the_same(sizes: list[int]) -> None:
    def split(said: bytes) -> list[bytes]:
        pieces, at = [], 0
        for size in sizes:
            pieces.append(said[at : at + size])
            at += size
        return [piece for piece in (*pieces, said[at:]) if piece]

    play = following()
    play.split = split
    play.following = 3
    play.hear(OPENED)
    for _ in range(3):
        play.hear(b"250 ok\r\n" + OPENED)
    play.hear(b"250 last\r\n")
    assert play.all_fates == [[Fate.TAKEN]] * 4
    assert play.client.step is Step.IDLE


def test_lmtp_answers_for_each_recipient_before_the_next_ones_commands() -> None:
    play = Following(lmtp=True)
    play.hear(b"220 mx\r\n")
    play.hear(EHLO)
    play.begin(2)
    play.hear(b"250 ok\r\n" + OPENED)
    play.hear(b"250 one\r\n450 two\r\n" + OPENED)
    play.hear(b"250 three\r\n")
    assert play.all_fates == [[Fate.TAKEN, Fate.LATER], [Fate.TAKEN]]


def test_nothing_follows_where_somebody_was_not_accepted() -> None:
    """Who is left may need this session for another transaction."""
    play = following(count=2)
    play.hear(b"250 ok\r\n250 ok\r\n452 4.5.3 too many\r\n354 go\r\n")
    assert play.following == 1
    with pytest.raises(RuntimeError):
        play.client.follow(NEXT, RCPTS[:1])


def test_nothing_follows_without_pipelining() -> None:
    play = following(PLAIN_EHLO)
    for answer in (b"250 ok\r\n", b"250 ok\r\n", b"354 go\r\n"):
        play.hear(answer)
    assert play.client.step is Step.END
    assert not play.client.may_follow


def test_a_session_that_ends_at_the_first_leaves_it_uncertain_and_says_nothing_of_the_second() -> None:
    play = following()
    play.hear(OPENED)
    play.take(play.client.lost())
    assert play.all_fates == [[Fate.UNCERTAIN]]
    assert play.client.over


def test_421_at_the_second_is_no_fault_of_the_first() -> None:
    play = following()
    play.hear(OPENED)
    play.hear(b"250 one\r\n421 4.3.2 shutting down\r\n")
    assert play.all_fates == [[Fate.TAKEN], [Fate.LATER]]
    last = play.events[-1]
    assert isinstance(last, Finished)
    assert last.broken is not None
    assert last.broken.fault is SessionFault.BUSY


def test_the_second_may_be_refused_as_a_whole() -> None:
    play = following()
    play.hear(OPENED)
    play.hear(b"250 one\r\n550 5.1.0 sender\r\n503 no\r\n503 no\r\n")
    assert play.sent.endswith(b"RSET\r\n")
    play.hear(b"250 ok\r\n")
    assert play.all_fates == [[Fate.TAKEN], [Fate.REFUSED]]
    assert [type(event) for event in play.events].count(SendContent) == 1
