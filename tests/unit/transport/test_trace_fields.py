"""The `Received` and `Return-Path` fields (RFC 5321, section 4.4; RFC 3848), with strangers' words in them."""

from __future__ import annotations

import email
from email import policy
from email.utils import parsedate_to_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.transport.headers.trace import date, received_field, return_path_field, trace_token
from gatepost.transport.message import Envelope, Recipient, Source

TOKEN = trace_token("Contoso", "HUB-01")
NOW = 1_700_000_000.0


def field(recipients: tuple[str, ...] = ("bob@contoso.com",), smtputf8: bool = False, **source: str) -> str:
    envelope = Envelope(
        sender="a@b",
        recipients=[Recipient(address) for address in recipients],
        received=NOW,
        expires=NOW,
        smtputf8=smtputf8,
        source=Source(**source),  # type: ignore[arg-type]
    )
    return received_field(envelope, "hub-01.contoso.com", TOKEN, "4XYZ", NOW).decode()


def test_the_whole_field() -> None:
    assert field(name="mail.example.org", address="192.0.2.1", protocol="ESMTPS", tls="TLSv1.3 AES") == (
        "Received: from mail.example.org ([192.0.2.1])\r\n\t(using TLSv1.3 AES)\r\n"
        f"\tby hub-01.contoso.com (Gatepost {TOKEN.decode()}) with ESMTPS id 4XYZ\r\n"
        "\tfor <bob@contoso.com>;\r\n\tTue, 14 Nov 2023 22:13:20 +0000\r\n"
    )


def test_several_recipients_do_not_learn_of_each_other() -> None:
    assert "for" not in field(("a@contoso.com", "b@contoso.com"))
    assert "contoso.com>" not in field(("a@contoso.com", "b@contoso.com"))


@pytest.mark.parametrize("word", ["SMTP", "ESMTP", "ESMTPS", "ESMTPA", "ESMTPSA", "LMTP"])
def test_the_words_of_rfc_3848(word: str) -> None:
    assert f" with {word} id " in field(protocol=word)


def test_international_mail_has_the_words_of_rfc_6531() -> None:
    assert " with UTF8SMTPSA id " in field(smtputf8=True, protocol="ESMTPSA")
    assert " with UTF8SMTP id " in field(smtputf8=True, protocol="ESMTP")
    assert "for <grüße@contoso.com>" in field(("grüße@contoso.com",), smtputf8=True)


def test_literals() -> None:
    assert "from [192.0.2.9] ([192.0.2.1])" in field(name="[192.0.2.9]", address="192.0.2.1")
    assert "from a.example ([IPv6:2001:db8::1])" in field(name="a.example", address="2001:db8::1")
    assert "from [IPv6:2001:db8::2] " in field(name="[IPv6:2001:0DB8::2]", address="2001:db8::1")
    assert "([IPv6:fe80::1])" in field(name="a.example", address="fe80::1%eth0")


@pytest.mark.parametrize(
    "name",
    [
        "evil\r\nX-Injected: yes", "a) (b", "x (\\", "<script>", "a b", "\x00", "é", "[300.1.1.1]", "[x", "-", "..",
        "a" * 5000,
        "x; Mon, 1 Jan 2001 00:00:00 +0000",
    ],
)  # fmt: skip
def test_row_15_a_name_that_is_none_goes_into_a_comment_and_harms_nothing(name: str) -> None:
    text = field(name=name, address="192.0.2.1")
    assert text.startswith("Received: from [192.0.2.1] ([192.0.2.1]) (said ")
    assert text.isascii()
    assert text.count("\r\n") == text.count("\r") == text.count("\n") == 4
    parsed = email.message_from_string(text + "\r\n", policy=policy.compat32)
    assert parsed.keys() == ["Received"]
    assert text.rpartition(";")[2].strip() == date(NOW)


@given(name=st.text(max_size=300), address=st.text(max_size=60), tls=st.text(max_size=80), to=st.text(max_size=400))
def test_whatever_a_client_says_the_field_is_one_field_with_short_lines(
    name: str, address: str, tls: str, to: str
) -> None:
    text = field((to,), name=name, address=address, tls=tls)
    parsed = email.message_from_string(text + "\r\n")
    assert parsed.keys() == ["Received"]
    assert all(len(line) <= 998 for line in text.split("\r\n"))
    assert all(character.isprintable() or character in "\r\n\t" for character in text)
    assert text.count("\n") == text.count("\r\n") == text.count("\r")


def test_a_recipient_that_could_break_the_field_is_left_out() -> None:
    for address in ('"a b"@x', '"<"@x', '";"@x', "a(b)@x", "x" * 400 + "@y"):
        assert "for <" not in field((address,))


def test_dates_are_read_back() -> None:
    for now in (0.0, 1_700_000_000.9, 951_782_400.0, 4_102_444_800.0):
        assert parsedate_to_datetime(date(now)).timestamp() == int(now)


def test_tokens_tell_hubs_and_organizations_apart() -> None:
    assert trace_token("Contoso", "HUB-01") == trace_token("contoso", "hub-01")
    assert len({trace_token("c", "h1"), trace_token("c", "h2"), trace_token("ch1", ""), trace_token("d", "h1")}) == 4


def test_return_path() -> None:
    assert return_path_field("a@b") == b"Return-Path: <a@b>\r\n"
    assert return_path_field("") == b"Return-Path: <>\r\n"
    assert return_path_field("a@b>\r\nX: y") == b"Return-Path: <>\r\n"
