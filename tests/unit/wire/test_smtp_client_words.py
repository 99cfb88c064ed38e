"""What a client reads and writes: replies with their bounds, offered extensions, MAIL and RCPT with parameters."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.wire.smtp_client_command import Unsendable, mail_command, recipient_command
from gatepost.wire.smtp_client_extensions import Extensions, read_extensions
from gatepost.wire.smtp_client_reply import MAX_LINE, MAX_LINES, MAX_TEXT, MAX_WAITING, BadReply, ReplyReader
from gatepost.wire.smtp_reply import Reply


def read(said: bytes, *, whole: bool = False) -> list[Reply]:
    reader = ReplyReader()
    reader.whole = whole
    reader.feed(said)
    found = []
    while (reply := reader.take()) is not None:
        found.append(reply)
    return found


@pytest.mark.parametrize(
    ("said", "reply"),
    [
        (b"250 ok\r\n", Reply(250, "ok")),
        (b"250\r\n", Reply(250, "")),
        (b"250 \r\n", Reply(250, "")),
        (b"250 ok\n", Reply(250, "ok")),
        (b"550 5.1.1 who?\r\n", Reply(550, "who?", "5.1.1")),
        (b"550 5.1.1\r\n", Reply(550, "", "5.1.1")),
        (b"550-5.1.1 who\r\n550 5.1.1 is that?\r\n", Reply(550, "who\nis that?", "5.1.1")),
        (b"550-5.1.1 who\r\n550 is that?\r\n", Reply(550, "who\nis that?", "5.1.1")),
        (b"450 5.1.1 who?\r\n", Reply(450, "5.1.1 who?")),  # a code of another class says nothing
        (b"550 5.1.1234 x\r\n", Reply(550, "5.1.1234 x")),
        (b"550 5.1.1-x\r\n", Reply(550, "5.1.1-x")),
        (b"250 gr\xfc\xc3\xbc\xc3\x9f\r\n", Reply(250, "gr\ufffdüß")),
    ],
)
def test_replies(said: bytes, reply: Reply) -> None:
    assert read(said) == [reply]


@pytest.mark.parametrize(
    "said",
    [
        b"\r\n",
        b"25 ok\r\n",
        b"250ok\r\n",
        b"250_ok\r\n",
        b"150 ok\r\n",
        b"650 ok\r\n",
        b"250 o\0k\r\n",
        b"250-ok\r\n251 ok\r\n",  # one reply with two codes
        b"250-ok\r\nEHLO\r\n",
        b"250-ok\r\n\r\n",
        b"250 " + b"x" * MAX_LINE,
        b"250-x\r\n" * (MAX_LINES + 1),
        (b"250-" + b"x" * (MAX_LINE - 10) + b"\r\n") * 20,
        b"HTTP/1.1 200 OK\r\n",
        "٢٥٠ ok\r\n".encode(),
    ],
)
def test_what_is_no_reply_or_has_no_bounds(said: bytes) -> None:
    with pytest.raises(BadReply):
        read(said)


def test_waiting_replies_are_bounded() -> None:
    reader = ReplyReader()
    reader.feed(b"250 ok\r\n" * (MAX_WAITING // 8))
    with pytest.raises(BadReply):
        reader.feed(b"2")


def test_texts_are_kept_up_to_a_bound_but_for_ehlo() -> None:
    said = b"".join(b"250-%b\r\n" % (b"x" * 400) for _ in range(9)) + b"250 end\r\n"
    assert len(read(said)[0].text) == MAX_TEXT
    assert read(said, whole=True)[0].text.endswith("end")


@given(st.data())
def test_no_split_changes_what_is_read(data: st.DataObject) -> None:
    said = b"220 a\r\n250-b\r\n250 2.0.0 c\r\n354\r\n550-5.7.1 d\r\n550 5.7.1 e\r\n"
    reader, found, start = ReplyReader(), [], 0
    while start < len(said):
        end = data.draw(st.integers(start + 1, len(said)))
        reader.feed(said[start:end])
        start = end
        while (reply := reader.take()) is not None:
            found.append(reply)
    assert found == read(said)
    assert len(reader) == 0


# Extensions


def test_extensions_are_read() -> None:
    text = (
        "mx.x.test hello\nPIPELINING\nsize 1000\n8BITMIME\nSMTPUTF8\nCHUNKING\nBINARYMIME\nDSN\nSTARTTLS\nREQUIRETLS\n"
        "AUTH PLAIN LOGIN\nAUTH=GSSAPI\nLIMITS RCPTMAX=50 MAILMAX=9\nENHANCEDSTATUSCODES"
    )
    assert read_extensions(Reply(250, text)) == Extensions(
        name="mx.x.test",
        pipelining=True,
        eight_bit=True,
        binary=True,
        chunking=True,
        utf8=True,
        dsn=True,
        starttls=True,
        require_tls=True,
        size=True,
        max_size=1000,
        max_recipients=50,
        max_messages=9,
        authentication=frozenset({"PLAIN", "LOGIN", "GSSAPI"}),
    )


@pytest.mark.parametrize(
    "text", ["x\nSIZE", "x\nSIZE 0", "x\nSIZE many", "x\nSIZE -1", "x\nSIZE " + "9" * 40, "x\nSIZE ٣"]
)
def test_a_size_that_names_no_limit(text: str) -> None:
    found = read_extensions(Reply(250, text))
    assert found.size
    assert found.max_size == 0


def test_extensions_that_do_not_fit_are_not_there() -> None:
    assert read_extensions(Reply(250, "")) == Extensions()
    assert read_extensions(Reply(250, "PIPELINING\n\n-DSN\n*\nBINARYMIME")) == Extensions(name="PIPELINING")


# Commands

EVERYTHING = Extensions(pipelining=True, size=True, dsn=True, utf8=True, eight_bit=True, require_tls=True)


def test_parameters_are_sent_only_where_they_are_offered() -> None:
    """RFC 5321, section 4.1.1.11."""
    settings: dict[str, Any] = {"size": 9, "returns": "HDRS", "envelope_id": "QQ+2B1"}
    assert mail_command("a@x.test", Extensions(), **settings) == b"MAIL FROM:<a@x.test>\r\n"
    line = mail_command("a@x.test", EVERYTHING, body="8BITMIME", utf8=True, require_tls=True, **settings)
    assert line == b"MAIL FROM:<a@x.test> SIZE=9 BODY=8BITMIME SMTPUTF8 RET=HDRS ENVID=QQ+2B1 REQUIRETLS\r\n"
    words: dict[str, Any] = {"notify": ("SUCCESS", "DELAY"), "original": "rfc822;b+2B@x.test"}
    assert recipient_command("b@x.test", Extensions(), **words) == b"RCPT TO:<b@x.test>\r\n"
    line = recipient_command("b@x.test", EVERYTHING, **words)
    assert line == b"RCPT TO:<b@x.test> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;b+2B@x.test\r\n"


def test_the_null_sender_and_the_postmaster() -> None:
    assert mail_command("", EVERYTHING) == b"MAIL FROM:<>\r\n"
    assert recipient_command("Postmaster", EVERYTHING) == b"RCPT TO:<Postmaster>\r\n"


@pytest.mark.parametrize("address", ["a@x\r\nRSET", "a@x.test>", "a b@x.test", "a@x.test\0", "a", "@x", "a@", "a@x\n"])
def test_row_7_nothing_that_ends_a_line_is_ever_sent(address: str) -> None:
    for command in (mail_command, recipient_command):
        with pytest.raises(Unsendable) as raised:
            command(address, EVERYTHING, utf8=True)
        assert raised.value.enhanced == "5.1.3"


@pytest.mark.parametrize("value", ["a b", "a\r\nRSET", "ü", "x" * 600])
def test_row_7_parameters_that_do_not_fit_are_left_out(value: str) -> None:
    assert mail_command("", EVERYTHING, envelope_id=value) == b"MAIL FROM:<>\r\n"
    assert mail_command("", EVERYTHING, returns=value) == b"MAIL FROM:<>\r\n"
    if value != "ü":
        assert recipient_command("b@x.test", EVERYTHING, original=f"rfc822;{value}") == b"RCPT TO:<b@x.test>\r\n"


def test_row_11_quoted_local_parts_and_literals_go_as_they_are() -> None:
    for address in ('"a b"@x.test', '"a@b"@x.test', "a@[192.0.2.1]", "a@[IPv6:2001:db8::1]"):
        assert recipient_command(address, Extensions()) == b"RCPT TO:<%b>\r\n" % address.encode()


def test_row_18_utf8_addresses_where_they_are_taken() -> None:
    line = recipient_command("jörg@bücher.test", EVERYTHING, utf8=True, original="utf-8;jörg@bücher.test")
    assert line == "RCPT TO:<jörg@bücher.test> ORCPT=utf-8;jörg@bücher.test\r\n".encode()


def test_row_18_elsewhere_the_domain_goes_in_ascii() -> None:
    assert recipient_command("joe@bücher.test", Extensions()) == b"RCPT TO:<joe@xn--bcher-kva.test>\r\n"
    assert recipient_command("joe@straße.test", Extensions()) == b"RCPT TO:<joe@xn--strae-oqa.test>\r\n"
    line = recipient_command("joe@bücher.test", Extensions(dsn=True), original="utf-8;joe@bücher.test")
    assert line == b"RCPT TO:<joe@xn--bcher-kva.test> ORCPT=utf-8;joe@b\\x{FC}cher.test\r\n"


def test_row_18_elsewhere_a_local_part_beyond_ascii_cannot_go() -> None:
    for command in (mail_command, recipient_command):
        with pytest.raises(Unsendable) as raised:
            command("jörg@x.test", Extensions())
        assert raised.value.enhanced == "5.6.7"


@given(st.text(max_size=40), st.booleans())
def test_no_text_makes_more_than_one_line(text: str, utf8: bool) -> None:
    try:
        line = recipient_command(text, EVERYTHING, utf8=utf8, original=text)
    except Unsendable:
        return
    assert line.count(b"\n") == line.count(b"\r") == 1
    assert b"\0" not in line
