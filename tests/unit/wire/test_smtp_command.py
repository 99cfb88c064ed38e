"""Command lines: MAIL and RCPT with their parameters, EHLO's argument, xtext (smtp-facts c.1, cases 10 and 14; c.2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.transport.message import Notify
from gatepost.wire.smtp_command import (
    NOTIFY,
    BadCommand,
    MailCommand,
    RcptCommand,
    decode_xtext,
    encode_xtext,
    is_greeting_name,
    parse_greeting,
    parse_mail,
    parse_rcpt,
    split_command,
)


def refusal(call: object, *arguments: object, **options: object) -> str:
    with pytest.raises(BadCommand) as refused:
        call(*arguments, **options)  # type: ignore[operator]
    return " ".join(str(refused.value.reply).split()[:2])


def test_all_parameters_of_mail() -> None:
    assert parse_mail(
        b"FROM:<a@b.example> SIZE=1234 body=8bitMIME RET=hdrs ENVID=Q+2B1 AUTH=c+3Dd@x.example SMTPUTF8 REQUIRETLS"
    ) == MailCommand("a@b.example", 1234, "8BITMIME", True, "HDRS", "Q+2B1", "c=d@x.example", True)
    assert parse_mail(b"FROM:<> AUTH=<>") == MailCommand("", auth="")


@pytest.mark.parametrize(
    "argument", [b"FROM: <a@b.example>", b"from:\t<a@b.example> ", b"FROM:   <a@b.example>  SIZE=1"]
)
def test_a_space_after_the_colon_is_tolerated(argument: bytes) -> None:
    assert parse_mail(argument).sender == "a@b.example"


def test_all_parameters_of_rcpt() -> None:
    read = parse_rcpt(b"TO:<a@b.example> NOTIFY=SUCCESS,delay ORCPT=rfc822;a+2Bb@c.example")
    assert read == RcptCommand("a@b.example", Notify.SUCCESS | Notify.DELAY, "rfc822;a+2Bb@c.example")
    assert parse_rcpt(b"TO:<a@b.example> NOTIFY=NEVER").notify == Notify.NEVER
    assert parse_rcpt("TO:<ä@b.example> ORCPT=utf-8;ä@b.example".encode(), utf8=True).original == "utf-8;ä@b.example"
    assert parse_rcpt(b"TO:<a@b.example> ORCPT=utf-8;\\x{E4}@b.example").original == "utf-8;\\x{E4}@b.example"


def test_notify_bits_are_those_of_messages() -> None:
    assert {word: Notify[word].value for word in NOTIFY} == NOTIFY


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        (b"", "501 5.5.4"),
        (b"<a@b.example>", "501 5.5.4"),
        (b"FROM:a@b.example", "501 5.1.7"),
        (b"FROM:<a@b.example", "501 5.1.7"),
        (b"FROM:<a..b@c.example>", "501 5.1.7"),
        (b"FROM:<a@b.example>SIZE=1", "501 5.5.4"),
        (b"FROM:<a@b.example> SIZE=", "501 5.5.4"),
        (b"FROM:<a@b.example> SIZE=1x", "501 5.5.4"),
        (b"FROM:<a@b.example> SIZE=" + b"1" * 21, "501 5.5.4"),
        (b"FROM:<a@b.example> SIZE=1 SIZE=1", "501 5.5.4"),
        (b"FROM:<a@b.example> BODY=BINARYMIME", "501 5.5.4"),
        (b"FROM:<a@b.example> RET=SOME", "501 5.5.4"),
        (b"FROM:<a@b.example> ENVID=a+0D+0AX", "501 5.5.4"),
        (b"FROM:<a@b.example> ENVID=" + b"e" * 101, "501 5.5.4"),
        (b"FROM:<a@b.example> AUTH=a+zz", "501 5.5.4"),
        (b"FROM:<a@b.example> SMTPUTF8=yes", "501 5.5.4"),
        (b"FROM:<a@b.example> XODD=1", "555 5.5.4"),
        (b"FROM:<a@b.example> =1", "501 5.5.4"),
        ("FROM:<ä@b.example>".encode(), "553 5.6.7"),
        ("FROM:<ä@b.example>".encode("latin-1"), "501 5.5.2"),
    ],
)
def test_what_mail_is_refused_for(argument: bytes, code: str) -> None:
    assert refusal(parse_mail, argument) == code


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        (b"TO:<>", "501 5.1.3"),
        (b"TO:<a@b.example> NOTIFY=NEVER,SUCCESS", "501 5.5.4"),
        (b"TO:<a@b.example> NOTIFY=", "501 5.5.4"),
        (b"TO:<a@b.example> NOTIFY=DELAY,DELAY", "501 5.5.4"),
        (b"TO:<a@b.example> ORCPT=a@b.example", "501 5.5.4"),
        (b"TO:<a@b.example> ORCPT=rfc822;a+0Ab", "501 5.5.4"),
        (b"TO:<a@b.example> ORCPT=rfc822;" + b"a" * 500, "501 5.5.4"),
        (b"TO:<a@b.example> SIZE=1", "555 5.5.4"),
    ],
)
def test_what_rcpt_is_refused_for(argument: bytes, code: str) -> None:
    assert refusal(parse_rcpt, argument) == code


def test_a_quoted_bracket_does_not_end_the_path() -> None:
    assert parse_rcpt(b'TO:<"a> SIZE=1"@b.example> NOTIFY=NEVER').address == '"a> SIZE=1"@b.example'


def test_a_hostile_path_takes_no_time() -> None:
    assert refusal(parse_mail, b"FROM:<" + b"a" * 4000) == "501 5.1.7"
    assert refusal(parse_mail, b'FROM:<"' + b"\\a" * 2000) == "501 5.1.7"


@pytest.mark.parametrize(
    "name", ["client.example", "client.example.", "under_score", "[192.0.2.1]", "[IPv6:::1]", "a b"]
)
def test_names_at_ehlo(name: str) -> None:
    assert parse_greeting(name.encode()) == name.split(" ", maxsplit=1)[0]


@pytest.mark.parametrize("name", ["", "<script>", "a\x07b", "a;b", "[1.2.3.4", "(comment)", "-a", "a\tb"])
def test_what_is_no_name_at_ehlo(name: str) -> None:
    assert refusal(parse_greeting, name.encode()) == "501 5.5.4"


def test_our_own_name_is_ascii() -> None:
    assert is_greeting_name("hub.example")
    assert is_greeting_name("[192.0.2.1]")
    assert not is_greeting_name("bücher.example")
    assert not is_greeting_name("a b")


def test_verbs() -> None:
    assert split_command(b"mail FROM:<> ") == (b"MAIL", b"FROM:<>")
    assert split_command(b"QUIT") == (b"QUIT", b"")
    assert split_command(b" QUIT") == split_command(b"") == split_command(b"\xff") == (b"", b"")


@given(st.text(st.characters(max_codepoint=255)))
def test_xtext_makes_the_round_trip(text: str) -> None:
    assert decode_xtext(encode_xtext(text)) == text
    assert all("!" <= character <= "~" and character != "=" for character in encode_xtext(text))


@pytest.mark.parametrize("text", ["a+", "a+2", "a+2b", "a=b", "a b"])
def test_what_is_no_xtext(text: str) -> None:
    with pytest.raises(ValueError, match="not xtext"):
        decode_xtext(text)
