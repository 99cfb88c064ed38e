"""The client machine of SMTP and LMTP: the opening, TLS and AUTH, and that no split makes a difference."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from smtp_server_play import EHLO, GREETING, PLAIN_EHLO, Play

from gatepost.wire.events import StartTls
from gatepost.wire.smtp_client import SmtpClient
from gatepost.wire.smtp_client_events import (
    Broken,
    ClientSettings,
    Finished,
    Ready,
    SessionFault,
    Step,
    TlsUse,
)
from gatepost.wire.smtp_reply import Reply

STARTTLS_EHLO = b"250-mx.x.test\r\n250-PIPELINING\r\n250 STARTTLS\r\n"
AUTH_EHLO = b"250-mx.x.test\r\n250 AUTH LOGIN PLAIN\r\n"


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
