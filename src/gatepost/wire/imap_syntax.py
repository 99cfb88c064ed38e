"""What both IMAP machines share: lines, literals, strings, response lines. Bounds belong to the callers.

IMAP mixes lines and counted bytes: a line that ends in `{5}` or `{5+}` is followed by five bytes and then by the rest
of the line. So a command is kept as *parts*: text, literal, text, literal, ..., text, and `Arguments` walks over them.
Escapes exist only in quoted strings (field case 32); a literal is taken by its count before anything else is looked at
(field case 27).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

ATOM = rb'[^\x00-\x20\x7f"{]+'
"""An unquoted argument, wider than RFC 9051's atom: `*`, `%`, `\\`, brackets and 8-bit are taken as they stand, as
people type them. `"` and `{` stay out, so that strings and literals are never ambiguous."""

QUOTED = rb'"(?:[^"\\\x00\r\n]|\\["\\])*"'

_ATOM = re.compile(ATOM)
_QUOTED = re.compile(QUOTED)
_ESCAPE = re.compile(rb'\\(["\\])')
_SPACES = re.compile(rb" +")
_NIL = re.compile(rb"NIL(?=[ )]|$)", re.IGNORECASE)
_LITERAL = re.compile(rb"\{([0-9]{1,10})(\+?)\}\Z")
_ANNOUNCED = re.compile(rb"(?:\A|[ (~])\{([0-9]+)(\+?)\}\Z")
_RUNAWAY = re.compile(rb'\{[^\s"{}]*\+\}\Z')
_CAPABILITY = re.compile(rb"[!-Z\\^-~]+")
"""A capability name as it may stand between brackets."""
_RESPONSE = re.compile(rb"(OK|NO|BAD|BYE|PREAUTH)(?: (?:\[([^\]\x00\r\n]*)\] ?)?(.*)|)\Z", re.IGNORECASE | re.DOTALL)

_VISIBLE = bytes(c if 32 <= c < 127 else 63 for c in range(256))
_VISIBLE_UTF8 = bytes(c if c >= 32 and c != 127 else 63 for c in range(256))
_DECEIVING = re.compile("[\x80-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Controls beyond ASCII (C1), line separators, and marks that turn the direction of writing."""

ID_FIELDS = 30
ID_NAME_BYTES = 30
ID_VALUE_BYTES = 1024
"""Bounds on ID parameters (RFC 2971 section 3.3)."""

LITERAL_DIGITS = 10
"""Digits of a literal's count: 32 bits (RFC 9051 section 9, `number`)."""


REMEMBERED_LISTS = 64
"""Capability lists that have been read before are not read again."""
REMEMBERED_LENGTH = 2048
"""Bytes; a longer list is read each time, so that no server fills the memory of lists (at most 0.5 MB)."""


class LineTooLong(Exception):
    """A line passed its bound, complete or not."""


class BadSyntax(ValueError):
    """Arguments that do not fit the command; the message is fit for the peer."""


class LineBuffer:
    """Received bytes that nobody has used yet. Every byte is looked at once, however small the pieces are."""

    __slots__ = ("_data", "_scanned")

    def __init__(self) -> None:
        self._data = bytearray()
        self._scanned = 0

    def __len__(self) -> int:
        return len(self._data)

    def add(self, data: bytes) -> None:
        """Append what was received."""
        self._data += data

    def peek(self, count: int) -> bytes:
        """Up to `count` bytes, which stay."""
        return bytes(self._data[:count])

    def line(self, limit: int) -> bytes | None:
        """The next line without its end, or None when it is not complete. Raises `LineTooLong` above `limit` bytes.

        The verdict depends on the bytes only, not on how they were split. A lone LF ends a line too.
        """
        at = self._data.find(b"\n", self._scanned)
        if (len(self._data) if at < 0 else at) > limit + 1:
            raise LineTooLong
        if at < 0:
            self._scanned = len(self._data)
            return None
        line = bytes(self._data[:at])
        del self._data[: at + 1]
        self._scanned = 0
        return line[:-1] if line.endswith(b"\r") else line

    def octets(self, count: int) -> bytes | None:
        """Exactly `count` bytes, or None when they are not all there."""
        if len(self._data) < count:
            return None
        taken = bytes(self._data[:count])
        del self._data[:count]
        self._scanned = 0
        return taken

    def everything(self) -> bytes:
        """All bytes, which stay."""
        return bytes(self._data)

    def clear(self) -> None:
        """Drop all bytes."""
        self._data.clear()
        self._scanned = 0


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal announced at the end of a line. `count` is None when no number of bytes can be trusted."""

    count: int | None
    waits: bool
    """The sender waits for a continuation (`{n}`); otherwise the bytes are already coming (`{n+}`, RFC 7888)."""


def announced(line: bytes) -> Literal | None:
    """The literal that `line` announces at its end, outside quoted strings."""
    if not line.endswith(b"}"):
        return None
    bare = _QUOTED.sub(b"", line) if b'"' in line else line
    if b'"' in bare:
        return None  # an unfinished string: the line is wrong as it stands
    found = _ANNOUNCED.search(bare)
    if found is None:
        return Literal(None, waits=False) if _RUNAWAY.search(bare) else None
    waits = not found[2]
    return Literal(int(found[1]) if len(found[1]) <= LITERAL_DIGITS else None, waits)


class Arguments:
    """A cursor over a command's parts. Methods move it and raise `BadSyntax` when something else stands there."""

    __slots__ = ("_at", "_index", "_parts")

    def __init__(self, parts: list[bytes], at: int) -> None:
        self._parts = parts
        self._index = 0
        self._at = at

    def end(self) -> None:
        """Nothing more, but spaces."""
        if self._index != len(self._parts) - 1 or self._text[self._at :].strip(b" "):
            raise BadSyntax("Too many arguments")

    def at_end(self) -> bool:
        """Whether only spaces are left."""
        return self._index == len(self._parts) - 1 and not self._text[self._at :].strip(b" ")

    def space(self) -> None:
        """At least one space. More than one is no ambiguity."""
        self._take(_SPACES, "Missing argument")

    def skip_spaces(self) -> None:
        """Spaces, if any."""
        while self._text.startswith(b" ", self._at):
            self._at += 1

    def atom(self) -> bytes:
        """An unquoted argument."""
        return self._take(_ATOM, "Invalid argument")

    def string(self) -> bytes:
        """A quoted string or a literal."""
        if self._text.startswith(b'"', self._at):
            return _ESCAPE.sub(rb"\1", self._take(_QUOTED, "Invalid quoted string")[1:-1])
        if not _LITERAL.match(self._text, self._at) or self._index + 1 >= len(self._parts):
            raise BadSyntax("Invalid argument")
        value = self._parts[self._index + 1]
        self._index += 2
        self._at = 0
        return value

    def astring(self) -> bytes:
        """An atom, a quoted string or a literal."""
        return self.string() if self._text[self._at : self._at + 1] in (b'"', b"{") else self.atom()

    def nil(self) -> bool:
        """Take `NIL` if it stands here."""
        found = _NIL.match(self._text, self._at)
        if found:
            self._at = found.end()
        return found is not None

    def mark(self, character: bytes) -> bool:
        """Take this one character, and spaces before it, if it stands here."""
        at = self._at
        self.skip_spaces()
        if not self._text.startswith(character, self._at):
            self._at = at
            return False
        self._at += 1
        return True

    @property
    def _text(self) -> bytes:
        return self._parts[self._index]

    def _take(self, pattern: re.Pattern[bytes], complaint: str) -> bytes:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise BadSyntax(complaint)
        self._at = found.end()
        return found[0]


def id_fields(arguments: Arguments) -> tuple[tuple[str, str], ...]:
    """The parameters of an ID command (RFC 2971 section 3.1); fields whose value is NIL are left out."""
    fields: dict[str, str] = {}
    names: set[str] = set()
    if not arguments.nil():
        if not arguments.mark(b"("):
            raise BadSyntax("Invalid ID parameters")
        while not arguments.mark(b")"):
            if names:
                arguments.space()
            else:
                arguments.skip_spaces()
            name, value = _id_field(arguments)
            if name.lower() in names or len(names) == ID_FIELDS:
                raise BadSyntax("Repeated or too many ID fields")
            names.add(name.lower())
            if value is not None:
                fields[name] = value
    arguments.end()
    return tuple(fields.items())


def _id_field(arguments: Arguments) -> tuple[str, str | None]:
    name = arguments.string()
    arguments.space()
    value = None if arguments.nil() else arguments.string()
    if len(name) > ID_NAME_BYTES or len(value or b"") > ID_VALUE_BYTES:
        raise BadSyntax("ID field too long")
    if any(c in field for field in (name, value or b"") for c in b"\0\r\n"):
        raise BadSyntax("Invalid ID field")
    # Free text about a program: odd bytes in it are no reason to send its user away.
    return name.decode("utf-8", "replace"), None if value is None else value.decode("utf-8", "replace")


def is_quotable(value: str) -> bool:
    """Whether every server takes this as a quoted string: printable ASCII."""
    return value.isascii() and value.isprintable()


def quote(value: str) -> bytes:
    """`value` as a quoted string. Only for what `is_quotable`."""
    if '"' in value or "\\" in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return b'"%s"' % value.encode("ascii")


@dataclass(frozen=True, slots=True)
class Response:
    """`status [code] text` of a server's line. `status` is upper case, `code` empty when there is none.

    `code_name` is the code's first word, upper case; `capabilities` the cleaned list of a `[CAPABILITY ...]` code.
    """

    status: bytes
    code: bytes
    text: bytes
    code_name: bytes
    capabilities: bytes | None


def response(line: bytes) -> Response | None:
    """Read what follows the tag (or `* `) of a status response; None when it is something else."""
    return _response(line) if len(line) <= REMEMBERED_LENGTH else _response.__wrapped__(line)


def capability_list(words: bytes) -> bytes:
    """The capability names among `words` that may be repeated to anyone, in their order."""
    return _cleaned(words) if len(words) <= REMEMBERED_LENGTH else _cleaned.__wrapped__(words)


def has_capability(capabilities: bytes | None, name: bytes) -> bool:
    """Whether a list names this capability."""
    if capabilities is None:
        return False
    names = _names(capabilities) if len(capabilities) <= REMEMBERED_LENGTH else _names.__wrapped__(capabilities)
    return name in names


# A fleet's servers say the same few lines at every sign-in: reading them costs more than the rest of the dialogue.


@lru_cache(REMEMBERED_LISTS)
def _response(line: bytes) -> Response | None:
    found = _RESPONSE.match(line)
    if found is None:
        return None
    code = found[2] or b""
    name = code.partition(b" ")[0].upper()
    capabilities = capability_list(code[len(b"CAPABILITY") :]) if name == b"CAPABILITY" else None
    return Response(found[1].upper(), code, found[3] or b"", name, capabilities)


@lru_cache(REMEMBERED_LISTS)
def _cleaned(words: bytes) -> bytes:
    return b" ".join(word for word in words.split() if _CAPABILITY.fullmatch(word))


@lru_cache(REMEMBERED_LISTS)
def _names(capabilities: bytes) -> frozenset[bytes]:
    return frozenset(capabilities.upper().split())


def visible(text: bytes, limit: int) -> bytes:
    """`text` with everything but printable ASCII replaced, cut to `limit` bytes."""
    return text[:limit].translate(_VISIBLE).strip()


def human(text: bytes, limit: int, otherwise: bytes) -> bytes:
    """A peer's text fit for a response line: no controls, whole UTF-8, no look of a response code, never empty."""
    cut = text[:limit]
    if not cut.isascii():
        cut = _DECEIVING.sub("?", cut.decode("utf-8", "ignore")).encode()
    return cut.translate(_VISIBLE_UTF8).lstrip(b"[ ").rstrip() or otherwise
