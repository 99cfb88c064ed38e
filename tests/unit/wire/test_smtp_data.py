"""Content on the wire: its end, its dots, its faults, at every split (smtp-facts c.1, cases 1, 4, 5 and 8)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.wire.smtp_data import ContentFault, DataDecoder, DataEncoder, TextDecoder
from gatepost.wire.smtp_header import HeaderScan

PIECES = st.lists(
    st.sampled_from([b"\r\n", b"\r", b"\n", b".", b"..", b"a", b"\0", b"\xe4", b"xyz " * 5, b"\r\n.", b"\n."]),
    max_size=14,
).map(b"".join)
CUTS = st.lists(st.integers(1, 9), min_size=1, max_size=40)


def cut(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        yield data[at : at + size]
        at += size
        turn += 1


def decode(data: bytes, sizes: list[int] | None = None, **how: bool) -> tuple[bytes, ContentFault, bytes, bool]:
    decoder = DataDecoder(**how)
    content, at = b"", 0
    for piece in cut(data, sizes) if sizes else [data]:
        content += decoder.feed(piece)
        at += len(piece)
        if decoder.ended:
            break
    return content, decoder.fault, decoder.rest + data[at:], decoder.ended


def slowly(data: bytes) -> tuple[bytes, bytes]:
    """Content and rest by the book: line by line (RFC 5321, section 4.5.2). For data without bare CR or LF."""
    lines = data.split(b"\r\n")
    content = b""
    for number, line in enumerate(lines):
        if line == b".":
            return content, b"\r\n".join(lines[number + 1 :])
        content += line.removeprefix(b".") + b"\r\n"
    raise AssertionError


@pytest.mark.parametrize(
    ("data", "content"),
    [
        (b".\r\n", b""),
        (b"\r\n.\r\n", b"\r\n"),
        (b"a\r\n.\r\n", b"a\r\n"),
        (b"..\r\n.\r\n", b".\r\n"),
        (b"..a\r\n.b\r\n.\r\n", b".a\r\nb\r\n"),
        (b"...\r\n\r\n..\r\n.\r\n", b"..\r\n\r\n.\r\n"),
        (b"a.\r\nb\r\n.\r\n", b"a.\r\nb\r\n"),
    ],
)
def test_dots_and_the_end(data: bytes, content: bytes) -> None:
    for sizes in ([1], [2], [3], None):
        assert decode(data + b"QUIT\r\n", sizes) == (content, ContentFault.NONE, b"QUIT\r\n", True)


@pytest.mark.parametrize(
    "end",
    [
        b"\n.\n", b"\n.\r\n", b"\r\n.\n", b"\r.\r", b"\r.\r\n", b"\r\n.\r", b"\r\n\0.\r\n", b"\r\n.\0\r\n",
        b"\n\n.\r\n", b"\r\n.\r\r\n", b"\r\r\n.\n", b"\n\r.\n\r", b"\n.\r", b"\r.\n", b"\r\n.\n\r\n", b"\r\n .\r\n",
        b"\r\n. \r\n",
    ],
)  # fmt: skip
def test_nothing_else_ends_data(end: bytes) -> None:
    decoder = DataDecoder()
    decoder.feed(b"Subject: a\r\n\r\ntext" + end + b"MAIL FROM:<evil@x.example>\r\n")
    assert not decoder.ended
    if b"\0" in end:
        assert decoder.fault & ContentFault.NUL
    elif b" " not in end:
        assert decoder.fault.line_ends


@given(PIECES, CUTS, st.booleans())
def test_any_split_gives_the_same(body: bytes, sizes: list[int], bare: bool) -> None:
    data = body + b"\r\n.\r\nrest"
    assert decode(data, sizes, bare_line_feeds=bare) == decode(data, bare_line_feeds=bare)


@given(st.lists(st.sampled_from([b"", b".", b"..", b".a", b"a", b"\xe4."]), max_size=12), CUTS)
def test_as_the_book_says(lines: list[bytes], sizes: list[int]) -> None:
    data = b"".join(line + b"\r\n" for line in lines) + b".\r\nMORE\r\n"
    content, rest = slowly(data)
    assert decode(data, sizes) == (content, ContentFault.NONE, rest, True)


@given(PIECES, CUTS, CUTS)
def test_what_is_encoded_is_read_again(body: bytes, sizes: list[int], others: list[int]) -> None:
    encoder = DataEncoder()
    sent = b"".join(encoder.encode(piece) for piece in cut(body, sizes)) + encoder.finish()
    whole = DataEncoder()
    assert whole.encode(body) + whole.finish() == sent
    content, fault, rest, ended = decode(sent, others)
    assert ended
    assert rest == b""
    assert not fault.line_ends
    right = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\r\n")
    assert content == (right if right.endswith(b"\r\n") or not right else right + b"\r\n")


def test_lines_with_a_bare_line_feed_are_put_right_where_wanted() -> None:
    content, fault, _, ended = decode(b"a\n.b\n.\n..c\r\nd\r\n.\r\n", bare_line_feeds=True)
    assert (content, fault, ended) == (b"a\r\nb\r\n\r\n.c\r\nd\r\n", ContentFault.NONE, True)
    assert decode(b"a\rb\n\r\n.\r\n", bare_line_feeds=True)[1] == ContentFault.BARE_CR


@pytest.mark.parametrize(("size", "fault"), [(65534, ContentFault.NONE), (65535, ContentFault.LONG_LINE)])
def test_lines_are_bounded(size: int, fault: ContentFault) -> None:
    for before in (b"", b"a\r\n" * 30000):
        data = before + b"x" * size + b"\r\nb\r\n" * 5 + b".\r\n"
        assert decode(data)[1] == decode(data, [4096])[1] == decode(data, [65536, 1, 70000])[1] == fault


def test_a_decoder_keeps_nothing_of_a_long_line() -> None:
    decoder = DataDecoder()
    for _ in range(100):
        assert len(decoder.feed(b"x" * 65536)) >= 65536 - 4
    assert len(decoder._held) <= 4


def test_eight_bits_are_seen() -> None:
    decoder = DataDecoder()
    decoder.feed(b"abc\r\n")
    assert not decoder.eight_bit
    decoder.feed("ä\r\n".encode())
    assert decoder.eight_bit


@given(PIECES, CUTS, st.booleans())
def test_chunks_at_any_split(body: bytes, sizes: list[int], bare: bool) -> None:
    def read(pieces: Iterator[bytes] | list[bytes]) -> tuple[bytes, ContentFault]:
        decoder = TextDecoder(bare_line_feeds=bare)
        content = b"".join(decoder.feed(piece) for piece in pieces) + decoder.finish()
        return content, decoder.fault

    content, fault = read(cut(body, sizes))
    assert (content, fault) == read([body] if body else [])
    assert content.endswith(b"\r\n") or not body
    if not fault.line_ends and not bare:
        assert content.removesuffix(b"\r\n") == body.removesuffix(b"\r\n")


def test_chunks_are_never_unstuffed() -> None:
    decoder = TextDecoder()
    assert decoder.feed(b"..a\r\n.\r\n") + decoder.finish() == b"..a\r\n.\r\n"


HEADERS = st.lists(
    st.sampled_from(
        [b"Received: from a", b"RECEIVED:x", b" folded", b"\treceived: no", b"Subject: s", b"", b"Received", b"x"]
    ),
    max_size=10,
).map(lambda lines: b"".join(line + b"\r\n" for line in lines))


@given(HEADERS, CUTS, st.integers(20, 120))
def test_headers_at_any_split(content: bytes, sizes: list[int], limit: int) -> None:
    whole, pieces, by_book = HeaderScan(limit), HeaderScan(limit), content
    whole.feed(content)
    for piece in cut(content, sizes):
        pieces.feed(piece)
    head = by_book if by_book.startswith(b"\r\n") else by_book.partition(b"\r\n\r\n")[0] + b"\r\n"
    head = b"" if by_book.startswith(b"\r\n") else head if b"\r\n\r\n" in by_book else by_book
    assert whole.too_large == pieces.too_large == (len(head) > limit)
    if not whole.too_large:
        hops = sum(line.lower().startswith(b"received:") for line in head.split(b"\r\n"))
        assert whole.hops == pieces.hops == hops
        assert whole.size == pieces.size == len(head)
