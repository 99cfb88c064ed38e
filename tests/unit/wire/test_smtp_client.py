"""The client machine of SMTP and LMTP: the opening, transactions, and each row of the failure table that is its own."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from smtp_server_play import CONTENT, EHLO, GREETING, MAIL, PLAIN_EHLO, RCPTS, Play

from gatepost.wire.events import StartTls
from gatepost.wire.smtp_client import SmtpClient
from gatepost.wire.smtp_client_events import (
    Broken,
    ClientSettings,
    Closed,
    Fate,
    Finished,
    Ready,
    SendContent,
    SessionFault,
    Step,
    TlsUse,
    Verdict,
)
from gatepost.wire.smtp_reply import Reply

STARTTLS_EHLO = b"250-mx.x.test\r\n250-PIPELINING\r\n250 STARTTLS\r\n"
AUTH_EHLO = b"250-mx.x.test\r\n250 AUTH LOGIN PLAIN\r\n"
TAKEN, REFUSED, LATER, AGAIN, UNCERTAIN = Fate.TAKEN, Fate.REFUSED, Fate.LATER, Fate.AGAIN, Fate.UNCERTAIN


def broken(play: Play) -> Broken:
    """How the session ended, outside a transaction."""
    event = play.events[-1]
    assert isinstance(event, Broken), event
    assert play.client.step is Step.OVER
    return event


# The opening


def test_greeting_ehlo_ready() -> None:
    play = Play().ready()
    assert play.events == [Ready()]
    assert play.client.extensions.pipelining
    assert play.client.extensions.eight_bit


def test_ehlo_refused_falls_back_to_helo() -> None:
    play = Play()
    play.hear(GREETING)
    assert play.hear(b"502 5.5.1 what?\r\n") == b"HELO us.test\r\n"
    assert play.hear(b"250 mx.x.test PIPELINING\r\n") == b""
    assert play.events == [Ready()]
    assert not play.client.extensions.pipelining


def test_lmtp_says_lhlo_and_has_no_helo() -> None:
    play = Play(lmtp=True)
    assert play.hear(GREETING) == b"LHLO us.test\r\n"
    play.hear(b"500 what?\r\n")
    assert broken(play).fault is SessionFault.REFUSED


@pytest.mark.parametrize("greeting", [b"554 5.7.1 go away\r\n", b"450 not now\r\n", b"554-a\r\n554 b\r\n"])
def test_row_44_a_refusing_greeting_is_the_hosts_and_no_messages(greeting: bytes) -> None:
    play = Play()
    assert play.hear(greeting) == b""
    assert broken(play).fault is SessionFault.REFUSED


@pytest.mark.parametrize("answer", [b"554 5.7.1 no\r\n", b"451 later\r\n"])
def test_row_44_a_refused_ehlo_is_the_hosts(answer: bytes) -> None:
    play = Play()
    play.hear(GREETING)
    play.hear(answer)
    if play.client.step is Step.HELLO:
        play.hear(answer)
    assert broken(play).fault is SessionFault.REFUSED


def test_row_42_421_in_the_greeting_is_busy() -> None:
    play = Play()
    play.hear(b"421 4.3.2 too many connections\r\n")
    end = broken(play)
    assert end.fault is SessionFault.BUSY
    assert end.reply == Reply(421, "too many connections", "4.3.2")


@pytest.mark.parametrize("said", [b"250 hello\r\n", b"HTTP/1.1 400 Bad Request\r\n", b"* OK IMAP\r\n", b"999 x\r\n"])
def test_what_is_no_smtp_server_is_a_protocol_fault(said: bytes) -> None:
    play = Play()
    play.hear(said)
    assert broken(play).fault is SessionFault.PROTOCOL


def test_who_answers_before_he_is_asked_is_not_in_step() -> None:
    play = Play()
    assert play.hear(GREETING + EHLO) == b""
    assert broken(play).fault is SessionFault.PROTOCOL


def test_a_name_that_cannot_be_said_is_ours_to_put_right() -> None:
    """Row 7."""
    for name in ("", "a b", "a\r\nRSET", "ü.test"):
        with pytest.raises(ValueError, match="EHLO"):
            SmtpClient(ClientSettings(name))


# TLS


def test_starttls_then_ehlo_again_and_only_what_that_one_offers() -> None:
    play = Play()
    play.hear(GREETING)
    assert play.hear(STARTTLS_EHLO) == b"STARTTLS\r\n"
    assert play.hear(b"220 go\r\n") == b"EHLO us.test\r\n"
    play.hear(PLAIN_EHLO)
    assert play.events == [StartTls(), Ready()]
    assert play.client.secured
    assert not play.client.extensions.pipelining


def test_row_6_bytes_behind_the_answer_to_starttls_end_the_session() -> None:
    play = Play()
    play.hear(GREETING)
    play.hear(STARTTLS_EHLO)
    assert play.hear(b"220 go\r\n250-mx\r\n250 CHUNKING\r\n") == b""
    assert broken(play).fault is SessionFault.TLS
    assert StartTls() not in play.events


def test_row_6_bytes_before_the_handshake_is_done_end_the_session() -> None:
    client = SmtpClient(ClientSettings("us.test"))
    for said in (GREETING, STARTTLS_EHLO, b"220 go\r\n"):
        client.receive(said)
    (event,) = client.receive(b"2")
    assert isinstance(event, Broken)
    assert event.fault is SessionFault.TLS
    assert client.tls_started() == []


def test_row_25_opportunistic_goes_on_without_when_starttls_is_refused() -> None:
    play = Play()
    play.hear(GREETING)
    play.hear(STARTTLS_EHLO)
    play.hear(b"454 4.7.0 not now\r\n")
    assert play.events == [Ready()]
    assert not play.client.secured


@pytest.mark.parametrize("answer", [b"454 4.7.0 not now\r\n", b"502 what?\r\n"])
def test_required_tls_is_required(answer: bytes) -> None:
    play = Play(starttls=TlsUse.REQUIRED)
    play.hear(GREETING)
    play.hear(STARTTLS_EHLO)
    play.hear(answer)
    assert broken(play).fault is SessionFault.TLS
    play = Play(starttls=TlsUse.REQUIRED)
    play.hear(GREETING)
    play.hear(EHLO)
    assert broken(play).fault is SessionFault.TLS


def test_tls_is_not_asked_for_where_it_is_not_wanted() -> None:
    play = Play(starttls=TlsUse.NEVER)
    play.hear(GREETING)
    assert play.hear(STARTTLS_EHLO) == b""
    assert play.events == [Ready()]


# AUTH


def signed_in(**settings: Any) -> Play:
    play = Play(secured=True, user="ann", password="s3cret", **settings)
    play.hear(GREETING)
    return play


def test_auth_plain_with_its_initial_response() -> None:
    play = signed_in()
    assert play.hear(AUTH_EHLO) == b"AUTH PLAIN " + base64.b64encode(b"\0ann\0s3cret") + b"\r\n"
    play.hear(b"235 2.7.0 in\r\n")
    assert play.events == [Ready()]


def test_auth_login_where_plain_is_not_offered() -> None:
    play = signed_in()
    assert play.hear(b"250-mx\r\n250 AUTH=LOGIN\r\n") == b"AUTH LOGIN\r\n"
    assert play.hear(b"334 VXNlcm5hbWU6\r\n") == base64.b64encode(b"ann") + b"\r\n"
    assert play.hear(b"334 UGFzc3dvcmQ6\r\n") == base64.b64encode(b"s3cret") + b"\r\n"
    play.hear(b"235 in\r\n")
    assert play.events == [Ready()]


def test_a_password_is_never_sent_without_tls() -> None:
    play = Play(user="ann", password="s3cret")
    play.hear(GREETING)
    assert play.hear(AUTH_EHLO) == b""
    assert broken(play).fault is SessionFault.AUTHENTICATION


def test_row_44_a_refused_sign_in_is_no_messages_and_shows_no_secret() -> None:
    encoded = base64.b64encode(b"\0ann\0s3cret")
    for said in (b"535 5.7.8 no: s3cret " + encoded + b"\r\n", b"334 go on\r\n", b"250 ok\r\n"):
        play = signed_in()
        play.hear(AUTH_EHLO)
        play.hear(said)
        assert broken(play).fault is SessionFault.AUTHENTICATION
        assert "s3cret" not in broken(play).text
        assert encoded.decode() not in broken(play).text
    play = signed_in()
    play.hear(EHLO)
    assert broken(play).fault is SessionFault.AUTHENTICATION


# Transactions


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


# Splits

DIALOGUES: list[tuple[dict[str, Any], list[bytes]]] = [
    ({}, [GREETING, EHLO, b"250 a\r\n250-b\r\n250 c\r\n550 5.1.1 d\r\n452 4.5.3 e\r\n354 go\r\n", b"250 done\r\n"]),
    ({}, [GREETING, PLAIN_EHLO, b"250 a\r\n", b"450 b\r\n", b"250 c\r\n", b"250 d\r\n", b"354 go\r\n", b"554 no\r\n"]),
    ({}, [GREETING, b"502 no\r\n", PLAIN_EHLO, b"550-no\r\n550 no\r\n", b"250 reset\r\n"]),
    (
        {},
        [GREETING, STARTTLS_EHLO, b"220 go\r\n", EHLO, b"250 a\r\n550 b\r\n550 c\r\n550 d\r\n354 go\r\n", b"250 x\r\n"],
    ),
    ({"lmtp": True}, [GREETING, EHLO, b"250 a\r\n250 b\r\n250 c\r\n550 d\r\n354 go\r\n", b"250 b\r\n", b"450 c\r\n"]),
    ({"user": "u", "password": "p", "secured": True}, [GREETING, AUTH_EHLO, b"235 ok\r\n", b"421 bye\r\n"]),
    ({}, [GREETING, EHLO, b"250 a\r\n250 b\r\n421 4.3.2 bye\r\n"]),
    ({}, [GREETING, EHLO, b"250 a\r\n250 b\r\nrubbish\r\n"]),
]


def whole_dialogue(settings: dict[str, Any], dialogue: list[bytes], play: Play) -> tuple[bytes, list[object], Step]:
    for said in dialogue:
        play.hear(said)
        if play.client.step is Step.IDLE and not any(isinstance(event, Finished) for event in play.events):
            play.begin(3)
    return play.sent, list(play.events), play.client.step


@given(st.sampled_from(DIALOGUES), st.data())
def test_no_split_makes_a_difference(dialogue: tuple[dict[str, Any], list[bytes]], data: st.DataObject) -> None:
    settings, said = dialogue

    def split(piece: bytes) -> list[bytes]:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(piece)), max_size=4)))
        return [piece[a:b] for a, b in zip([0, *cuts], [*cuts, len(piece)], strict=True)]

    whole = whole_dialogue(settings, said, Play(**settings))
    assert whole_dialogue(settings, said, Play(split, **settings)) == whole
    assert whole_dialogue(settings, said, Play(lambda piece: [bytes([b]) for b in piece], **settings)) == whole
