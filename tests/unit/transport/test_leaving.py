"""A message's content as it leaves: fields put in front, fields left out, and a size that is exact (RFC 1870)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.transport.leaving import as_it_leaves, changed
from gatepost.transport.message import Envelope
from gatepost.transport.ports import BodyReader

SECRET = b"X-Gatepost-Trust: yes\r\n\tand more\r\n"
CONTENT = (
    b"From: a@x.example\r\n" + SECRET + b"Subject: s\r\nx-ms-Exchange-Organization-SCL: 1\r\n\r\nX-Gatepost-A: text\r\n"
)


class Body:
    """A content in pieces of `size_of_piece` octets."""

    def __init__(self, content: bytes, size_of_piece: int) -> None:
        self.content = content
        self.size = len(content)
        self.piece = size_of_piece
        self.closed = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        for at in range(0, len(self.content), self.piece):
            yield self.content[at : at + self.piece]

    def close(self) -> None:
        self.closed += 1


async def read(body: BodyReader) -> bytes:
    found = b"".join([block async for block in body.chunks()])
    assert len(found) == body.size, "SIZE says what is sent"
    return found


PIECES = [1, 7, 40, 10_000]


@pytest.mark.parametrize("piece", PIECES)
async def test_fields_are_put_in_front(piece: int) -> None:
    body = Body(CONTENT, piece)
    found = await changed(body, b"Return-Path: <a@x.example>\r\n")
    assert await read(found) == b"Return-Path: <a@x.example>\r\n" + CONTENT
    found.close()
    assert body.closed == 1


@pytest.mark.parametrize("piece", PIECES)
async def test_what_servers_of_the_organization_tell_each_other_is_left_out(piece: int) -> None:
    found = await changed(Body(CONTENT, piece), b"X-Gatepost-Ours: 1\r\n", fenced=True)
    assert await read(found) == (b"X-Gatepost-Ours: 1\r\nFrom: a@x.example\r\nSubject: s\r\n\r\nX-Gatepost-A: text\r\n")


@pytest.mark.parametrize("piece", PIECES)
async def test_the_envelopes_edits_have_an_exact_size(piece: int) -> None:
    envelope = Envelope("", [], 0.0, 0.0, added=b"DKIM-Signature: x\r\n", left_out=["subject"])
    found = await as_it_leaves(Body(CONTENT, piece), envelope)
    assert await read(found) == b"DKIM-Signature: x\r\n" + CONTENT.replace(b"Subject: s\r\n", b"")


async def test_nothing_to_change_costs_nothing() -> None:
    body = Body(CONTENT, 10)
    assert await changed(body) is body
    assert await as_it_leaves(body, Envelope("", [], 0.0, 0.0)) is body
    plain = b"Subject: s\r\n\r\ntext\r\n"
    assert await read(await changed(Body(plain, 3), fenced=True)) == plain


@pytest.mark.parametrize("content", [b"", b"\r\n", b"\r\nX-Gatepost-A: text\r\n", b"no header", SECRET])
@pytest.mark.parametrize("piece", PIECES)
async def test_odd_contents(content: bytes, piece: int) -> None:
    found = await read(await changed(Body(content, piece), b"A: b\r\n", fenced=True))
    assert found.startswith(b"A: b\r\n")
    assert found[6:] in {content, b""}


@given(st.binary(max_size=300), st.integers(1, 50))
async def test_any_content_in_any_pieces_is_the_same(content: bytes, piece: int) -> None:
    whole = await read(await changed(Body(content, 10_000), b"A: b\r\n", [b"x"], fenced=True))
    assert await read(await changed(Body(content, piece), b"A: b\r\n", [b"x"], fenced=True)) == whole
