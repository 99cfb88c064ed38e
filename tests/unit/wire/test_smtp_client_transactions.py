"""Transactions of SMTP and LMTP as the client machine sees them: each row of the failure table that is its own."""

from __future__ import annotations

import pytest
from smtp_server_play import CONTENT, EHLO, GREETING, MAIL, PLAIN_EHLO, RCPTS, Play

from gatepost.wire.smtp_client import SmtpClient
from gatepost.wire.smtp_client_events import (
    Broken,
    ClientSettings,
    Closed,
    Fate,
    Finished,
    SendContent,
    SessionFault,
    Step,
    Verdict,
)
from gatepost.wire.smtp_reply import Reply

TAKEN, REFUSED, LATER, AGAIN, UNCERTAIN = Fate.TAKEN, Fate.REFUSED, Fate.LATER, Fate.AGAIN, Fate.UNCERTAIN


def broken(play: Play) -> Broken:
    """How the session ended, outside a transaction."""
    event = play.events[-1]
    assert isinstance(event, Broken), event
    assert play.client.step is Step.OVER
    return event


def test_pipelined_all_commands_go_at_once() -> None:
    play = Play().ready()
    assert play.begin(2) == MAIL + RCPTS[0] + RCPTS[1] + b"DATA\r\n"
    assert play.hear(b"250 2.1.0 ok\r\n250 2.1.5 ok\r\n250 2.1.5 ok\r\n354 go\r\n") == CONTENT + b".\r\n"
    play.hear(b"250 2.0.0 queued as 1\r\n")
    verdict = Verdict(TAKEN, Reply(250, "queued as 1", "2.0.0"))
    assert play.events[1:] == [SendContent(), Finished([verdict, verdict])]
    assert play.client.step is Step.IDLE


def test_without_pipelining_one_at_a_time() -> None:
    play = Play().ready(PLAIN_EHLO)
    assert play.begin(2) == MAIL
    assert play.hear(b"250 ok\r\n") == RCPTS[0]
    assert play.hear(b"251 forwarded\r\n") == RCPTS[1]
    assert play.hear(b"250 ok\r\n") == b"DATA\r\n"
    assert play.hear(b"354 go\r\n") == CONTENT + b".\r\n"
    play.hear(b"250 ok\r\n")
    assert play.fates == [TAKEN, TAKEN]


def test_the_session_is_used_again() -> None:
    play = Play().ready()
    for _ in range(3):
        play.begin()
        play.hear(b"250 ok\r\n250 ok\r\n354 go\r\n")
        play.hear(b"250 ok\r\n")
    assert [type(event) for event in play.events].count(Finished) == 3
    assert play.client.quit() == b"QUIT\r\n"
    play.hear(b"221 bye\r\n")
    assert play.events[-1] == Closed()
    with pytest.raises(RuntimeError):
        play.begin()


@pytest.mark.parametrize("pipelining", [True, False])
def test_row_43_each_recipient_has_its_own_fate(pipelining: bool) -> None:
    play = Play().ready(EHLO if pipelining else PLAIN_EHLO)
    play.begin(3)
    for said in (b"250 ok\r\n", b"550 5.1.1 who?\r\n", b"250 ok\r\n", b"451 4.2.0 later\r\n", b"354 go\r\n"):
        play.hear(said)
    play.hear(b"250 ok\r\n")
    assert play.fates == [REFUSED, TAKEN, LATER]
    assert play.client.step is Step.IDLE


@pytest.mark.parametrize("reply", [b"452 4.5.3 too many\r\n", b"452 too many\r\n", b"552 too many recipients\r\n"])
def test_row_43_too_many_recipients_means_another_transaction(reply: bytes) -> None:
    play = Play().ready()
    play.begin(3)
    play.hear(b"250 ok\r\n250 ok\r\n" + reply + reply + b"354 go\r\n")
    play.hear(b"250 ok\r\n")
    assert play.fates == [TAKEN, AGAIN, AGAIN]


def test_row_43_with_nobody_accepted_452_is_no_matter_of_number() -> None:
    play = Play().ready()
    play.begin(1)
    play.hear(b"250 ok\r\n452 4.5.3 too many\r\n503 no\r\n")
    play.hear(b"250 reset\r\n")
    assert play.fates == [LATER]


def test_a_full_mailbox_is_no_matter_of_number() -> None:
    play = Play().ready()
    play.begin(3)
    play.hear(b"250 ok\r\n250 ok\r\n452 4.2.2 full\r\n552 5.2.2 full\r\n354 go\r\n")
    play.hear(b"250 ok\r\n")
    assert play.fates == [TAKEN, LATER, REFUSED]


@pytest.mark.parametrize(("code", "fate"), [(b"550", REFUSED), (b"451", LATER)])
@pytest.mark.parametrize("pipelining", [True, False])
def test_row_44_mail_decides_over_everybody(code: bytes, fate: Fate, pipelining: bool) -> None:
    play = Play().ready(EHLO if pipelining else PLAIN_EHLO)
    play.begin(2)
    said = code + b" sender\r\n" + (b"503 no\r\n503 no\r\n503 no\r\n" if pipelining else b"")
    assert play.hear(said) == b"RSET\r\n"
    assert play.hear(b"250 ok\r\n") == b""
    assert play.fates == [fate, fate]
    assert play.finished.broken is None
    assert {str(verdict.reply) for verdict in play.finished.verdicts} == {code.decode() + " sender"}


@pytest.mark.parametrize(("code", "fate"), [(b"554", REFUSED), (b"451", LATER)])
def test_row_44_data_decides_over_the_accepted(code: bytes, fate: Fate) -> None:
    play = Play().ready()
    play.begin(2)
    assert play.hear(b"250 ok\r\n250 ok\r\n550 who?\r\n" + code + b" no\r\n") == b"RSET\r\n"
    play.hear(b"250 ok\r\n")
    assert play.fates == [fate, REFUSED]


@pytest.mark.parametrize(("code", "fate"), [(b"554", REFUSED), (b"451", LATER)])
def test_row_44_the_end_of_content_decides_over_the_accepted(code: bytes, fate: Fate) -> None:
    play = Play().ready()
    play.begin(1)
    play.hear(b"250 ok\r\n250 ok\r\n354 go\r\n")
    assert play.hear(code + b" no\r\n") == b""
    assert play.fates == [fate]
    assert play.client.step is Step.IDLE


def test_nobody_accepted_yet_354_is_answered_by_an_empty_content() -> None:
    """RFC 2920, section 3.1; what becomes of that is of no interest."""
    for answer in (b"250 taken\r\n", b"554 no recipients\r\n"):
        play = Play().ready()
        play.begin(1)
        assert play.hear(b"250 ok\r\n550 who?\r\n354 go\r\n") == b".\r\n"
        assert play.hear(answer) == b"RSET\r\n"
        play.hear(b"250 ok\r\n")
        assert play.fates == [REFUSED]


def test_row_52_a_refused_reset_ends_the_session_but_changes_no_fate() -> None:
    play = Play().ready()
    play.begin(1)
    play.hear(b"250 ok\r\n550 who?\r\n503 no\r\n")
    play.hear(b"500 what?\r\n")
    assert play.fates == [REFUSED]
    assert play.finished.broken is not None
    assert play.client.step is Step.OVER


def test_lmtp_answers_for_each_accepted_recipient() -> None:
    play = Play(lmtp=True).ready()
    play.begin(3)
    play.hear(b"250 ok\r\n250 ok\r\n550 5.1.1 who?\r\n250 ok\r\n354 go\r\n")
    play.hear(b"250 2.0.0 saved\r\n")
    assert play.client.step is Step.END
    play.hear(b"452 4.2.2 full\r\n")
    assert play.fates == [TAKEN, REFUSED, LATER]
    assert play.client.step is Step.IDLE


def test_chunks_are_sent_one_after_the_other() -> None:
    """RFC 3030."""
    play = Play().ready(b"250-mx\r\n250-PIPELINING\r\n250-BINARYMIME\r\n250 CHUNKING\r\n")
    client = play.client
    assert play.begin(2, chunked=True) == MAIL + RCPTS[0] + RCPTS[1]
    events = client.receive(b"250 ok\r\n250 ok\r\n250 ok\r\n")
    assert events == [SendContent()]
    assert client.chunk(9, last=False) == b"BDAT 9\r\n"
    assert client.receive(b"250 9 octets\r\n") == [SendContent()]
    assert client.chunk(0, last=True) == b"BDAT 0 LAST\r\n"
    (event,) = client.receive(b"250 taken\r\n")
    assert isinstance(event, Finished)
    assert [verdict.fate for verdict in event.verdicts] == [TAKEN, TAKEN]


def test_a_refused_chunk_decides_and_the_session_goes_on() -> None:
    play = Play().ready(b"250-mx\r\n250-PIPELINING\r\n250 CHUNKING\r\n")
    play.begin(1, chunked=True)
    play.client.receive(b"250 ok\r\n250 ok\r\n")
    play.client.chunk(9, last=False)
    assert play.hear(b"552 5.3.4 too big\r\n") == b"RSET\r\n"
    play.hear(b"250 ok\r\n")
    assert play.fates == [REFUSED]


# How sessions end


def test_row_38_no_answer_after_the_final_dot_is_uncertain() -> None:
    play = Play().ready()
    play.begin(2)
    play.hear(b"250 ok\r\n250 ok\r\n550 who?\r\n354 go\r\n")
    play.take(play.client.lost())
    assert play.fates == [UNCERTAIN, REFUSED]
    assert play.finished.broken is not None
    assert play.finished.broken.fault is SessionFault.LOST


@pytest.mark.parametrize("said", [b"", b"250 ok\r\n", b"250 ok\r\n250 ok\r\n", b"250 ok\r\n250 ok\r\n25"])
def test_row_38_lost_before_the_dot_is_nothing_but_later(said: bytes) -> None:
    play = Play().ready()
    play.begin(1)
    play.hear(said)
    play.take(play.client.lost())
    assert play.fates == [LATER]


def test_row_38_a_timeout_in_the_middle_of_content_is_later_and_after_the_dot_uncertain() -> None:
    for ended, fate in ((False, LATER), (True, UNCERTAIN)):
        client = SmtpClient(ClientSettings("us.test"))
        for said in (GREETING, EHLO):
            client.receive(said)
        client.transact(MAIL, RCPTS[:1])
        client.receive(b"250 ok\r\n250 ok\r\n354 go\r\n")
        if ended:
            client.content_end()
        (event,) = client.broken(SessionFault.TIMEOUT, "no answer in time")
        assert isinstance(event, Finished)
        assert [verdict.fate for verdict in event.verdicts] == [fate]


def test_row_38_lmtp_settled_recipients_stay_settled() -> None:
    play = Play(lmtp=True).ready()
    play.begin(3)
    play.hear(b"250 ok\r\n250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n")
    play.hear(b"250 saved\r\n550 5.7.1 no\r\n")
    play.take(play.client.lost())
    assert play.fates == [TAKEN, REFUSED, UNCERTAIN]


@pytest.mark.parametrize("before", [b"", b"250 ok\r\n", b"250 ok\r\n250 ok\r\n"])
def test_row_42_421_in_a_transaction_is_no_fault_of_the_message(before: bytes) -> None:
    play = Play().ready()
    play.begin(2)
    play.hear(before)
    play.hear(b"421 4.3.2 shutting down\r\n")
    assert play.fates == [LATER, LATER]
    assert play.finished.broken is not None
    assert play.finished.broken.fault is SessionFault.BUSY
    assert play.finished.verdicts[0].reply == Reply(421, "shutting down", "4.3.2")


def test_row_42_a_recipient_refused_before_the_421_stays_refused() -> None:
    play = Play().ready()
    play.begin(2)
    play.hear(b"250 ok\r\n550 5.1.1 who?\r\n421 bye\r\n")
    assert play.fates == [REFUSED, LATER]


def test_row_42_421_after_the_dot_is_uncertain() -> None:
    play = Play().ready()
    play.begin(1)
    play.hear(b"250 ok\r\n250 ok\r\n354 go\r\n")
    play.hear(b"421 4.4.2 timeout\r\n")
    assert play.fates == [UNCERTAIN]


def test_row_42_421_between_messages_ends_the_session() -> None:
    play = Play().ready()
    play.hear(b"421 4.4.2 idle too long\r\n")
    assert broken(play).fault is SessionFault.BUSY


@pytest.mark.parametrize(
    ("said", "fate"),
    [(b"552 5.3.4 too big\r\n", REFUSED), (b"452 full\r\n", LATER), (b"421 bye\r\n", LATER), (b"250 ?\r\n", UNCERTAIN)],
)
def test_an_answer_in_the_middle_of_content(said: bytes, fate: Fate) -> None:
    client = SmtpClient(ClientSettings("us.test"))
    for heard in (GREETING, EHLO):
        client.receive(heard)
    client.transact(MAIL, RCPTS[:1])
    client.receive(b"250 ok\r\n250 ok\r\n354 go\r\n")
    (event,) = client.receive(said)
    assert isinstance(event, Finished)
    assert [verdict.fate for verdict in event.verdicts] == [fate]
    assert event.broken is not None
    assert client.step is Step.OVER


def test_with_lmtp_an_answer_in_the_middle_of_content_refuses_nobody_for_good() -> None:
    """Whose reply it is nobody knows."""
    client = SmtpClient(ClientSettings("us.test", lmtp=True))
    for heard in (GREETING, EHLO):
        client.receive(heard)
    client.transact(MAIL, RCPTS[:2])
    client.receive(b"250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n")
    (event,) = client.receive(b"552 5.2.2 full\r\n")
    assert isinstance(event, Finished)
    assert [verdict.fate for verdict in event.verdicts] == [LATER, LATER]


@pytest.mark.parametrize(
    "said",
    [
        b"354 go\r\n",
        b"250 ok\r\n354 go\r\n",
        b"250 ok\r\n250 ok\r\n250 ok\r\n",
        b"250 ok\r\n999 x\r\n",
        b"250 ok\r\n\0\r\n",
    ],
)
def test_replies_that_do_not_fit_end_the_session_and_delay_the_message(said: bytes) -> None:
    play = Play().ready()
    play.begin(1)
    play.hear(said)
    assert play.fates == [LATER]
    assert play.finished.verdicts[0].reply is None
    assert play.finished.broken is not None
    assert play.finished.broken.fault is SessionFault.PROTOCOL


def test_an_unasked_reply_between_messages_ends_the_session() -> None:
    """A reply too many would be taken for the next message's."""
    play = Play().ready()
    play.begin(1)
    play.hear(b"250 ok\r\n250 ok\r\n354 go\r\n")
    play.hear(b"250 ok\r\n250 ok\r\n")
    assert play.fates == [TAKEN]
    assert broken(play).fault is SessionFault.PROTOCOL
    play = Play().ready()
    play.begin(1)
    play.hear(b"250 ok\r\n250 ok\r\n354 go\r\n")
    play.hear(b"250 ok\r\n25")
    assert broken(play).fault is SessionFault.PROTOCOL


def test_once_over_nothing_comes_back() -> None:
    play = Play()
    play.hear(b"554 no\r\n")
    assert play.client.receive(b"220 yes\r\n") == []
    assert play.client.lost() == []
    assert play.client.tls_started() == []
