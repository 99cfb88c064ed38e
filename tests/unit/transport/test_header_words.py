"""Encoded words, folding, safe text, the author's domain, and fields put in and left out on the way out."""

from __future__ import annotations

import email
import time
from collections.abc import AsyncIterator
from email import policy
from email.header import decode_header, make_header

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatepost.transport.headers.author import author_domain
from gatepost.transport.headers.edits import edited, left_out
from gatepost.transport.headers.words import decoded, encoded, folded, printable, printable_ascii


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b" plain ", "plain"),
        (b"=?utf-8?B?R3LDvMOfZQ==?=", "Grüße"),
        (b"=?ISO-8859-1?Q?a_=FC?= b =?utf-8*de?q?=C3=9F?=", "a ü b ß"),
        (b"=?utf-8?q?a?=\r\n =?utf-8?q?b?=", "ab"),
        (b"=?utf-8?B?R3LDvMOfZQ?=", "Grüße"),
        (b"=?koi8-r?B?8NLJ18XU?=", "Привет"),
        (b"raw \xc3\xbc", "raw ü"),
        (b"raw \xfc", "raw \ufffd"),
    ],
)
def test_subjects_are_decoded(value: bytes, text: str) -> None:
    assert decoded(value) == text


@pytest.mark.parametrize("charset", [b"zlib", b"unicode_escape", b"idna", b"punycode", b"utf-7", b"rot13", b"utf-16"])
def test_only_character_sets_of_mail_are_decoded(charset: bytes) -> None:
    value = b"=?" + charset + b"?B?eJzLSM3JyQcABiwCFQ==?="
    assert decoded(value) == value.decode()


@given(st.binary(max_size=600))
def test_whatever_a_subject_is_its_text_is_safe_and_bounded(value: bytes) -> None:
    text = decoded(value, 50)
    assert len(text) <= 50
    assert text.isprintable()


@given(st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), max_size=300))
def test_encoded_words_are_read_back(text: str) -> None:
    text = " ".join(text.split())
    field = folded("Subject", encoded(text))
    assert field.isascii()
    assert all(len(line) <= 76 for line in field.split("\r\n")) or text.isascii()
    value = email.message_from_string(field + "\r\n", policy=policy.compat32)["Subject"]
    if text.isascii() and "=?" not in text:
        assert value.replace("\r\n", "").strip() == text
    else:
        assert str(make_header(decode_header(value))) == text
        assert decoded(value.encode(), 1000) == printable(text, 1000)


@given(st.lists(st.integers(1, 2000).map(lambda length: "x" * length), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_folded_fields_have_short_lines_and_lose_nothing(words: list[str]) -> None:
    field = folded("X-Field", words)
    assert all(len(line) <= 998 for line in field.split("\r\n"))
    assert "".join(field.removeprefix("X-Field:").split()) == "".join(words)
    assert all(line.startswith((" ", "X-Field:")) for line in field.removesuffix("\r\n").split("\r\n"))
    assert all(line.strip() for line in field.removesuffix("\r\n").split("\r\n"))


def test_text_of_strangers_is_made_safe() -> None:
    assert printable("a\r\nb\tc\x00\x1b\u202e", 50) == "a b c???"
    assert printable_ascii("é\r\n" * 100, 5) == "? ? ?"


@pytest.mark.parametrize(
    ("value", "domain"),
    [
        (b"Anna <anna@Contoso.COM>", "contoso.com"),
        (b"anna@contoso.com", "contoso.com"),
        (b'"x <a@evil.example>" <anna@contoso.com>', "contoso.com"),
        (b'"a@evil.example" (b@evil.example) <anna@contoso.com>', "contoso.com"),
        (b"a@contoso.com, b@evil.example", "contoso.com"),
        (b"Z\xc3\xbcrich <a@z\xc3\xbcrich.example>", "xn--zrich-kva.example"),
        (b"<anna@contoso.com.>", "contoso.com"),
        (b"nobody", ""),
        (b"<>", ""),
        (b"", ""),
        (b"<a@" + b"x" * 300 + b">", ""),
        (b"<a@b c>", ""),
    ],
)
def test_the_domain_of_the_author(value: bytes, domain: str) -> None:
    assert author_domain(value) == domain


@pytest.mark.parametrize(
    "value", [b"(" * 2000, b'"' * 2001, b"<" * 2000, b"a" * 2000, b"<" + b"a" * 2000, b'"\\' * 1000]
)
def test_no_author_takes_long_to_read(value: bytes) -> None:
    begun = time.process_time()
    author_domain(value)
    assert time.process_time() - begun < 0.5


CONTENT = b"A: 1\r\nSubject: old\r\n folded\r\nB: 2\r\nsubject : again\r\n\r\nSubject: body\r\n"


async def _pieces(content: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
async def test_fields_are_put_in_and_left_out_as_a_message_is_read(size: int) -> None:
    written = [block async for block in edited(_pieces(CONTENT, size), b"Subject: new\r\n", {b"subject"})]
    assert b"".join(written) == b"Subject: new\r\nA: 1\r\nB: 2\r\n\r\nSubject: body\r\n"


async def test_without_fields_to_leave_out_nothing_is_held() -> None:
    written = [block async for block in edited(_pieces(CONTENT, 10), b"X: y\r\n")]
    assert b"".join(written) == b"X: y\r\n" + CONTENT
    assert len(written) == 1 + -(-len(CONTENT) // 10)


async def test_the_header_firewall_on_the_way_to_others() -> None:
    content = b"A: 1\r\nX-MS-Exchange-Organization-SCL: 5\r\n f\r\nx-gatepost-x: y\r\n\r\nX-Gatepost-B: body\r\n"
    written = [block async for block in edited(_pieces(content, 9), fenced=True)]
    assert b"".join(written) == b"A: 1\r\n\r\nX-Gatepost-B: body\r\n"
    assert b"".join([block async for block in edited(_pieces(content, 9), fenced=False)]) == content
    assert b"".join([block async for block in edited(_pieces(CONTENT, 9), fenced=True)]) == CONTENT


def test_leaving_out_all_fields_or_from_no_header() -> None:
    assert left_out(b"A: 1\r\n\r\nx", {b"a"}) == b"\r\nx"
    assert left_out(b"\r\nA: 1\r\n\r\n", {b"a"}) == b"\r\nA: 1\r\n\r\n"
    assert left_out(b"A: 1\r\nno end", {b"a"}) == b"A: 1\r\nno end"
