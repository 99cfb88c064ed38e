"""The relaxed canonical forms (RFC 6376, sections 3.4.2 and 3.4.4), the body's as a stream."""

from __future__ import annotations

import hashlib
import re

_BLANKS = re.compile(rb"[ \t]+")
_END = b" \t\r\n"
_MANY = 8192


class BodyHash:
    """SHA-256 of a body in relaxed form. `update` takes any pieces of it, whose lines end in CR LF.

    Memory stays flat, also for endless blank lines.
    """

    __slots__ = ("_empty_lines", "_hash", "_tail", "_written")

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._empty_lines = 0
        """Line ends that count only if something follows them."""
        self._tail = b""
        """What stands after them, at most a blank and a CR, of which the same is true."""
        self._written = False

    def update(self, block: bytes) -> None:
        """The next piece of the body."""
        core = block.rstrip(_END)
        if core:
            lead = core[: len(core) - len(core.lstrip(_END))]
            self._hold(lead)
            self._flush()
            text = core[len(lead) :]
            self._hash.update(_relaxed(text))
            self._written = True
        self._hold(block[len(core) :])

    def _hold(self, blanks: bytes) -> None:
        text = _relaxed(self._tail + blanks)
        cut = text.rfind(b"\n") + 1
        self._empty_lines += text.count(b"\n")
        self._tail = text[cut:]

    def _flush(self) -> None:
        while self._empty_lines > 0:
            self._hash.update(b"\r\n" * min(self._empty_lines, _MANY))
            self._empty_lines -= _MANY
        self._empty_lines = 0
        self._hash.update(self._tail)
        self._tail = b""

    def digest(self) -> bytes:
        """The hash of all that was given; nothing more may follow."""
        if self._written:
            self._hash.update(b"\r\n")  # every line ends so, also the last one
        return self._hash.digest()


def _relaxed(text: bytes) -> bytes:
    # Blanks first: a pattern for blanks before a line end would look through a long run of them again and again.
    return _BLANKS.sub(b" ", text).replace(b" \r\n", b"\r\n")


def relaxed_field(name: bytes, value: bytes) -> bytes:
    """`name:value` in relaxed form, without a line end. `value` may be folded."""
    text = _BLANKS.sub(b" ", value.replace(b"\r\n", b"")).strip(b" ")
    return name.strip(b" \t").lower() + b":" + text


def fields_of(header: bytes) -> list[tuple[bytes, bytes]]:
    """Name (lower case) and value of each field, the value as it is folded. `header` may go on to the body."""
    end = 0 if header.startswith(b"\r\n") else header.find(b"\r\n\r\n")
    block = header if end < 0 else header[:end]
    fields: list[tuple[bytes, bytes]] = []
    for line in block.split(b"\r\n"):
        if line.startswith((b" ", b"\t")):
            if fields:
                name, value = fields[-1]
                fields[-1] = (name, value + b"\r\n" + line)
        else:
            name, colon, value = line.partition(b":")
            if colon:
                fields.append((name.strip(b" \t").lower(), value))
    return fields
