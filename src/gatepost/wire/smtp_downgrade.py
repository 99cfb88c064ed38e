"""Content for a server that takes seven bits only: each part with other octets is encoded (RFC 6152, section 3).

Text becomes quoted-printable, everything else base64; parts that are seven bits already pass as they are. It works on
the stream: what is held is a header section, a line, or the beginning of a part that does not say what it holds.
What is signed is never changed, since that would break the signature, and header fields have no such encoding: such
a message is `CannotConvert`, which can come out at any piece.
"""

from __future__ import annotations

import base64
import binascii
import re
from enum import Enum
from typing import NamedTuple

MAX_HEADER = 256 * 1024
"""Octets of one header section."""
MAX_LINE = 64 * 1024
"""Octets of a line that are looked at together; what follows is the same line still."""
MAX_LOOK = 64 * 1024
"""Octets of a part that does not say how it is encoded before it is taken for one of eight bits."""
MAX_DEPTH = 64
"""Parts within parts."""

CRLF = b"\r\n"
_FIELD = re.compile(rb"([!-9;-~]+)[ \t]*:[ \t]*(.*)", re.DOTALL)
_TYPE = re.compile(rb"\s*([^\s/;()]+)/([^\s;()]+)")
_BOUNDARY = re.compile(rb';\s*boundary\s*=\s*(?:"((?:[^"\\\r\n]|\\.){1,200})"|([^\s";()<>@,]{1,200}))', re.IGNORECASE)
_PAIR = re.compile(rb"\\(.)")
_QUOTED_LINE = 76
_BASE64_LINE = 57
"""Octets that make a line of 76 characters."""


class CannotConvert(ValueError):
    """The content cannot be sent in seven bits without breaking it; the text says why."""


class _Mode(Enum):
    HEADER = 0
    PASS = 1
    LOOK = 2
    QUOTED_PRINTABLE = 3
    BASE64 = 4


class _Level(NamedTuple):
    """A multipart that we are in."""

    delimiter: bytes
    signed: bool


class Downgrade:
    """Content in, content of seven bits out. What comes out, joined, does not depend on how the content was split."""

    def __init__(self) -> None:
        self._rest = b""
        self._line_start = True
        self._levels: list[_Level] = []
        self._mode = _Mode.HEADER
        self._header: list[bytes] = []
        self._header_size = 0
        self._top = True
        """This header section is the message's own."""
        self._text = True
        """The part that is looked at is text."""
        self._looked: list[bytes] = []
        self._looked_size = 0
        self._binary = b""
        """Octets for base64 that do not fill a line."""
        self._line_end = False
        """A line end that belongs to the part, unless a delimiter follows."""
        self._out: list[bytes] = []

    def feed(self, data: bytes) -> bytes:
        """The next piece of the content. Raises `CannotConvert`."""
        rest = self._rest + data
        start = 0
        while True:
            end = rest.find(CRLF, start, start + MAX_LINE)
            if end >= 0:
                self._line(rest[start : end + 2])
                start = end + 2
            elif len(rest) - start >= MAX_LINE:
                # A CR may be half of the line's end.
                cut = start + MAX_LINE - (rest[start + MAX_LINE - 1 : start + MAX_LINE] == b"\r")
                self._line(rest[start:cut])
                start = cut
            else:
                self._rest = rest[start:]
                return self._taken()

    def finish(self) -> bytes:
        """What is left. Raises `CannotConvert`."""
        if self._rest:
            rest, self._rest = self._rest, b""
            self._line(rest)
        if self._mode is _Mode.HEADER:
            self._out += self._seven_bit_header()
        self._end_of_part(delimited=False)
        return self._taken()

    def _taken(self) -> bytes:
        out, self._out = b"".join(self._out), []
        return out

    @property
    def _signed(self) -> bool:
        return any(level.signed for level in self._levels)

    def _line(self, line: bytes) -> None:
        """One line with its end; of one that is too long, a piece."""
        whole = line.endswith(CRLF)
        if self._line_start and self._levels and line.startswith(b"--") and self._delimited(line):
            self._line_start = True
            return
        self._line_start = whole
        if self._mode is _Mode.HEADER:
            if line == CRLF:
                self._header_ended()
                return
            self._header.append(line)
            self._header_size += len(line)
            if self._header_size > MAX_HEADER:
                raise CannotConvert("a header section that is too long")
        elif self._mode is _Mode.LOOK:
            self._look(line)
        else:
            self._body(line)

    # Delimiters

    def _delimited(self, line: bytes) -> bool:
        """Whether the line is a delimiter of a multipart that we are in; then the part before it is at its end."""
        text = line.rstrip(b" \t\r\n")
        for depth in range(len(self._levels), 0, -1):
            delimiter = self._levels[depth - 1].delimiter
            if text == delimiter or text == delimiter + b"--":
                break
        else:
            return False
        if self._mode is _Mode.HEADER:
            self._out += self._seven_bit_header()
        self._end_of_part(delimited=True)
        self._out.append(line)
        if text == delimiter:
            del self._levels[depth:]
            self._begin_header()
        else:
            del self._levels[depth - 1 :]
            self._mode = _Mode.PASS
        return True

    def _end_of_part(self, *, delimited: bool) -> None:
        if self._mode is _Mode.LOOK:
            self._decided(convert=False)
        elif self._mode is _Mode.BASE64:
            if self._line_end and not delimited:
                self._binary += CRLF
            self._encode_binary(last=True)
        self._mode = _Mode.PASS
        self._line_end = False

    # Header sections

    def _begin_header(self) -> None:
        self._mode = _Mode.HEADER
        self._header = []
        self._header_size = 0
        self._top = False

    def _seven_bit_header(self) -> list[bytes]:
        header = self._header
        if not all(map(bytes.isascii, header)):
            raise CannotConvert("header fields with octets beyond ASCII")
        return header

    def _header_ended(self) -> None:
        """What the part is, and how its body goes."""
        lines = self._seven_bit_header()
        fields = _fields(lines)
        main, sub = _type(fields.get(b"content-type", b"text/plain"))
        encoding = fields.get(b"content-transfer-encoding", b"7bit").split(b"(")[0].strip().lower()
        eight = encoding in (b"8bit", b"binary")
        if main == b"multipart":
            self._enter(fields[b"content-type"], signed=sub == b"signed")
            self._pass(lines, relabel=eight and not self._signed)
        elif (main, sub) in {(b"message", b"rfc822"), (b"message", b"global")} and (eight or encoding == b"7bit"):
            self._pass(lines, relabel=eight and not self._signed)
            self._begin_header()
        elif self._signed or main == b"message" or encoding not in (b"7bit", b"8bit", b"binary"):
            if encoding == b"binary":
                raise CannotConvert("a signed part, or one that must not be encoded, with octets beyond ASCII")
            self._pass(lines, relabel=False)
        elif eight:
            self._convert(lines, quoted=main == b"text" and encoding == b"8bit")
        else:
            self._text = main == b"text"
            self._mode = _Mode.LOOK

    def _enter(self, content_type: bytes, *, signed: bool) -> None:
        match = _BOUNDARY.search(content_type)
        if match is None or len(self._levels) >= MAX_DEPTH:
            raise CannotConvert("a multipart without a boundary, or too many in one another")
        boundary = _PAIR.sub(rb"\1", match[1]) if match[1] is not None else match[2]
        self._levels.append(_Level(b"--" + boundary.rstrip(), signed))

    def _pass(self, lines: list[bytes], *, relabel: bool) -> None:
        self._out += _relabelled(lines, b"7bit") if relabel else lines
        self._out.append(CRLF)
        self._mode = _Mode.PASS

    def _convert(self, lines: list[bytes], *, quoted: bool) -> None:
        lines = _relabelled(lines, b"quoted-printable" if quoted else b"base64")
        if self._top and b"mime-version" not in _fields(lines):
            if b"content-type" not in _fields(lines):
                lines.append(b"Content-Type: text/plain; charset=unknown-8bit\r\n")  # RFC 1428, section 4
            lines.append(b"MIME-Version: 1.0\r\n")
        self._out += lines
        self._out.append(CRLF)
        self._mode = _Mode.QUOTED_PRINTABLE if quoted else _Mode.BASE64

    # Bodies

    def _look(self, line: bytes) -> None:
        """The part says that it is seven bits, which many say of what is not."""
        self._looked.append(line)
        self._looked_size += len(line)
        if not line.isascii() or self._looked_size > MAX_LOOK:
            self._decided(convert=True)

    def _decided(self, *, convert: bool) -> None:
        looked, self._looked, self._looked_size = self._looked, [], 0
        if convert:
            self._convert(self._header, quoted=self._text)
        else:
            self._pass(self._header, relabel=False)
        for line in looked:
            self._body(line)

    def _body(self, line: bytes) -> None:
        if self._mode is _Mode.PASS:
            if not line.isascii():
                kind = "a signed part" if self._signed else "a part that must not be encoded"
                raise CannotConvert(f"{kind} with octets beyond ASCII")
            self._out.append(line)
        elif self._mode is _Mode.QUOTED_PRINTABLE:
            self._quote(line)
        else:
            if self._line_end:
                self._binary += CRLF
            self._line_end = line.endswith(CRLF)
            self._binary += line.removesuffix(CRLF)
            self._encode_binary(last=False)

    def _quote(self, line: bytes) -> None:
        whole = line.endswith(CRLF)
        quoted = binascii.b2a_qp(line.removesuffix(CRLF), istext=False).replace(b"=\n", b"=\r\n")
        if not whole and len(quoted) - quoted.rfind(b"\n") > _QUOTED_LINE:
            cut = 3 if quoted[-3:-2] == b"=" else 1  # room for the "=" that joins the pieces
            quoted = quoted[:-cut] + b"=\r\n" + quoted[-cut:]
        self._out.append(quoted + (CRLF if whole else b"=\r\n"))

    def _encode_binary(self, *, last: bool) -> None:
        data = self._binary
        size = len(data) if last else len(data) // _BASE64_LINE * _BASE64_LINE
        for start in range(0, size, _BASE64_LINE):
            self._out.append(base64.b64encode(data[start : min(start + _BASE64_LINE, size)]) + CRLF)
        self._binary = data[size:]


def _fields(lines: list[bytes]) -> dict[bytes, bytes]:
    """The fields of a header section by lower-case name, unfolded; of repeated ones the first."""
    fields: dict[bytes, bytes] = {}
    unfolded: list[bytes] = []
    for line in lines:
        if line[:1] in (b" ", b"\t") and unfolded:
            unfolded[-1] += line
        else:
            unfolded.append(line)
    for field in unfolded:
        if (match := _FIELD.match(field)) is not None:
            fields.setdefault(match[1].lower(), match[2].replace(CRLF, b"").rstrip())
    return fields


def _type(value: bytes) -> tuple[bytes, bytes]:
    match = _TYPE.match(value)
    return (match[1].lower(), match[2].lower()) if match else (b"text", b"plain")


def _relabelled(lines: list[bytes], encoding: bytes) -> list[bytes]:
    """The header section with another Content-Transfer-Encoding."""
    kept: list[bytes] = []
    dropping = False
    for line in lines:
        if line[:1] not in (b" ", b"\t"):
            match = _FIELD.match(line)
            dropping = match is not None and match[1].lower() == b"content-transfer-encoding"
        if not dropping:
            kept.append(line)
    return [*kept, b"Content-Transfer-Encoding: " + encoding + CRLF]
