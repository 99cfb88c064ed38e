"""Message bodies, taken off the wire piece by piece; bodies are framed anew for the other side.

`take(data)` answers the payload in `data` and how many octets of it belonged to the body; `done` says whether the
body is complete. For every split of the input the concatenated payload is the same.
"""

from __future__ import annotations

from gatepost.wire.http_head import HeadFault

MAX_CHUNK_LINE = 256
"""Octets of a chunk's line with its extensions, which nobody uses and which are dropped."""
MAX_CHUNK_DIGITS = 15
MAX_TRAILERS = 8192
"""Octets of all trailers; they are dropped."""
LAST_CHUNK = b"0\r\n\r\n"
_HEX = frozenset(b"0123456789abcdefABCDEF")


class LengthBody:
    """A body of a known length."""

    __slots__ = ("_left", "done")

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0

    def take(self, data: bytes) -> tuple[bytes, int]:
        """Payload and octets used; `data` itself when all of it is body."""
        left = self._left
        size = len(data)
        if size < left:
            self._left = left - size
            return data, size
        self._left = 0
        self.done = True
        return (data, size) if size == left else (data[:left], left)


class UntilClose:
    """A body that ends with the connection (responses only)."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = False

    def take(self, data: bytes) -> tuple[bytes, int]:
        """All of it."""
        return data, len(data)


class ChunkedBody:
    """A chunked body (RFC 9112 section 7.1), strictly: CRLF line ends, hexadecimal digits only.

    An incomplete line is kept here, so all of the input is used until the body is done.
    """

    __slots__ = ("_in_trailers", "_left", "_line", "_trailers", "done")

    def __init__(self) -> None:
        self._left = 0
        """Octets to come of this chunk with its line end; 0: a line is expected."""
        self._line = b""
        self._in_trailers = False
        self._trailers = 0
        self.done = False

    def take(self, data: bytes) -> tuple[bytes, int]:
        """Payload and octets used. Raises `HeadFault` (400)."""
        pieces: list[bytes] = []
        position, size = 0, len(data)
        while position < size and not self.done:
            position = self._take_chunk(data, position, pieces) if self._left else self._take_line(data, position)
        return (pieces[0] if len(pieces) == 1 else b"".join(pieces)), position

    def _take_chunk(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        payload = min(self._left - 2, len(data) - position)
        if payload > 0:
            pieces.append(data[position : position + payload])
            self._left -= payload
            position += payload
        while self._left in (1, 2) and position < len(data):
            if data[position] != (0x0D if self._left == 2 else 0x0A):
                raise HeadFault(400, "a chunk without its end")
            self._left -= 1
            position += 1
        return position

    def _take_line(self, data: bytes, position: int) -> int:
        end = data.find(b"\n", position)
        stop = len(data) if end < 0 else end + 1
        limit = MAX_TRAILERS - self._trailers if self._in_trailers else MAX_CHUNK_LINE
        if len(self._line) + stop - position > limit:
            raise HeadFault(400, "chunk line or trailers too long")
        self._line += data[position:stop]
        if end >= 0:
            line, self._line = self._line, b""
            self._read_line(line)
        return stop

    def _read_line(self, line: bytes) -> None:
        text = line[:-2]
        if line[-2:] != b"\r\n" or any(c < 32 and c != 9 for c in text):
            raise HeadFault(400, "a bad line in a chunked body")
        if self._in_trailers:
            self._trailers += len(line)
            if not text:
                self.done = True
            elif text[:1] in b" \t" or b":" not in text:
                raise HeadFault(400, "a bad trailer")
            return
        digits, _, _extension = text.partition(b";")
        if not digits or len(digits) > MAX_CHUNK_DIGITS or not _HEX.issuperset(digits):
            raise HeadFault(400, "a bad chunk size")
        length = int(digits, 16)
        if length:
            self._left = length + 2
        else:
            self._in_trailers = True


Body = LengthBody | ChunkedBody | UntilClose


def chunk(payload: bytes) -> bytes:
    """`payload`, not empty, as one chunk."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)
