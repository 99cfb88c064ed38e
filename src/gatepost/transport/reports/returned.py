"""What a report gives back of the message: its header, or all of it where the sender asked (RFC 3461, section 4.3)."""

from __future__ import annotations

import binascii
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

MAX_HEADER = 32 * 1024
"""Octets of the header that are given back; cut after a whole line."""
MAX_LINE = 998
"""RFC 5321, section 4.5.3.1.6, the line end not counted."""

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BASE64_LINE = 57


@dataclass(slots=True)
class Original:
    """The message a report is about. `body` is what follows the header's empty line; None: not to be given back."""

    header: bytes
    """Whole lines, without the empty one."""
    whole: bool = True
    """The header is all there."""
    body: AsyncIterator[bytes] | None = None


async def read_original(chunks: AsyncIterator[bytes], limit: int = MAX_HEADER) -> Original:
    """The message as it is read from the spool; at most `limit` octets of its header and one block are held."""
    held = b""
    at = -1
    async for block in chunks:
        held += block
        at = 0 if held.startswith(b"\r\n") else held.find(b"\r\n\r\n") + 2
        if at != 1 or len(held) > limit:
            break
    if at < 0 or at == 1 or at > limit:
        cut = held.rfind(b"\n", 0, limit) + 1
        return Original(held[:cut], whole=False)

    async def body() -> AsyncIterator[bytes]:
        yield held[at + 2 :]
        async for block in chunks:
            yield block

    return Original(held[:at], body=body())


class StrictLines:
    """Passes content on with every line ended by CR LF and none longer than `MAX_LINE`: longer ones are broken.

    NUL, which 8BITMIME does not carry, becomes `?`.
    """

    __slots__ = ("_column", "_return")

    def __init__(self) -> None:
        self._column = 0
        self._return = False

    def feed(self, block: bytes) -> bytes:
        """The next piece, put right."""
        block = block.replace(b"\0", b"?")
        if self._return:
            block = b"\r" + block
        self._return = block.endswith(b"\r")
        if self._return:
            block = block[:-1]
        pieces = _LINE_END.split(block)
        written: list[bytes] = []
        for index, piece in enumerate(pieces):
            if index:
                written.append(b"\r\n")
                self._column = 0
            while self._column + len(piece) > MAX_LINE:
                room = MAX_LINE - self._column
                written += [piece[:room], b"\r\n"]
                piece = piece[room:]
                self._column = 0
            written.append(piece)
            self._column += len(piece)
        return b"".join(written)

    def finish(self) -> bytes:
        """What is missing to the end of the last line."""
        return b"\r\n" if self._return or self._column else b""


async def strict_lines(first: bytes, chunks: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    """`first` and the content, of which at most `limit` octets, in strict lines."""
    lines = StrictLines()
    yield lines.feed(first)
    async for block in _bounded(chunks, limit):
        yield lines.feed(block)
    yield lines.finish()


async def in_base64(first: bytes, chunks: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    """`first` and the content, of which at most `limit` octets, in base64 with lines of 76 characters."""
    held = first
    async for block in _bounded(chunks, limit):
        held += block
        whole = len(held) - len(held) % _BASE64_LINE
        yield base64_lines(held[:whole])
        held = held[whole:]
    yield base64_lines(held)


async def _bounded(chunks: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    async for block in chunks:
        yield block[:limit]
        limit -= len(block)
        if limit <= 0:
            return


def base64_lines(data: bytes) -> bytes:
    """`data` in base64, lines of at most 76 characters."""
    lines = (data[at : at + _BASE64_LINE] for at in range(0, len(data), _BASE64_LINE))
    return b"".join(binascii.b2a_base64(line, newline=False) + b"\r\n" for line in lines)


def quoted_printable(data: bytes) -> bytes:
    """Text in quoted-printable (RFC 2045, section 6.7), lines of at most 76 characters ended by CR LF."""
    lines = _LINE_END.split(data)
    ended = not lines[-1]
    if ended:
        lines.pop()
    encoded = (binascii.b2a_qp(line, istext=True).replace(b"=\n", b"=\r\n") for line in lines)
    return b"\r\n".join(encoded) + (b"\r\n" if ended and data else b"")


def is_plain(text: bytes) -> bool:
    """Whether it can be sent as it is in seven bits: ASCII, no line over the limit, no bare CR or LF, no NUL."""
    return (
        text.isascii()
        and b"\0" not in text
        and text.count(b"\n") == text.count(b"\r\n") == text.count(b"\r")
        and all(len(line) <= MAX_LINE for line in text.split(b"\r\n"))
    )
