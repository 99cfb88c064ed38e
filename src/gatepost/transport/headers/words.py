"""Text in header fields: encoded words read and written (RFC 2047), and text of strangers made safe."""

from __future__ import annotations

import binascii
import re

MAX_SUBJECT = 256
"""Characters of a subject that are kept for operators and reports."""
MAX_DECODED = 4096
"""Octets of a field's value that are decoded at all."""

_ENCODED_WORD = re.compile(rb"=\?([A-Za-z0-9_.:-]{1,40})(?:\*[A-Za-z0-9-]{1,20})?\?([BbQq])\?([^? \t]{0,1000})\?=")
_BETWEEN = re.compile(rb"(\?=)[ \t\r\n]+(?==\?)")
# Only character sets of mail: Python has codecs for compressions and escapes too, which strangers are not to reach.
_CHARACTER_SETS = re.compile(
    r"us-ascii|ascii|utf-?8|iso-?8859-\d{1,2}|latin-?1|windows-?125\d|cp125\d|koi8-[ru]|gb(?:2312|k|18030)|big5|"
    r"shift[-_]?jis|euc-(?:jp|kr)|iso-2022-(?:jp|kr)|ks_c_5601-1987",
    re.IGNORECASE,
)
_WORD_OCTETS = 39
"""Octets of UTF-8 in one encoded word: 52 characters of base64, so that it fits behind `Subject:` (RFC 2047)."""


def printable(text: str, limit: int) -> str:
    """At most `limit` characters of `text`; what cannot be printed becomes `?`, a run of blanks one blank."""
    text = " ".join(text[: 4 * limit].split())[:limit]
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def printable_ascii(text: str, limit: int) -> str:
    """The same with `?` for everything beyond ASCII."""
    text = printable(text, limit)
    return text if text.isascii() else text.encode("ascii", "replace").decode("ascii")


def decoded(value: bytes, limit: int = MAX_SUBJECT) -> str:
    """The value of an unstructured field as text of at most `limit` characters, safe to print."""
    value = value[:MAX_DECODED]
    if b"=?" not in value:
        return printable(value.decode("utf-8", "replace"), limit)
    value = _BETWEEN.sub(rb"\1", value)
    pieces: list[str] = []
    at = 0
    for match in _ENCODED_WORD.finditer(value):
        pieces.append(value[at : match.start()].decode("utf-8", "replace"))
        pieces.append(_word(match))
        at = match.end()
    pieces.append(value[at:].decode("utf-8", "replace"))
    return printable("".join(pieces), limit)


def _word(match: re.Match[bytes]) -> str:
    name = match[1].decode("ascii")
    whole = match[0].decode("utf-8", "replace")
    if not _CHARACTER_SETS.fullmatch(name):
        return whole
    text = match[3]
    try:
        if match[2] in b"Bb":
            octets = binascii.a2b_base64(text + b"=" * (-len(text) % 4))
        else:
            octets = binascii.a2b_qp(text, header=True)
        return octets.decode(name, "replace")
    except (ValueError, LookupError):
        return whole


def encoded(text: str) -> list[str]:
    """`text` as words that are parted by blanks or line ends: encoded where it is not ASCII.

    `text` has no control characters.
    """
    if text.isascii() and "=?" not in text:
        return text.split(" ")
    words: list[str] = []
    piece = b""
    for character in text:
        octets = character.encode("utf-8", "replace")
        if len(piece) + len(octets) > _WORD_OCTETS:
            words.append(_encoded_word(piece))
            piece = b""
        piece += octets
    words.append(_encoded_word(piece))
    return words


def _encoded_word(octets: bytes) -> str:
    return f"=?utf-8?B?{binascii.b2a_base64(octets, newline=False).decode('ascii')}?="


def folded(name: str, words: list[str], width: int = 76, hard: int = 900) -> str:
    """A field of `words`, folded before the word that passes `width`; a word longer than `hard` is broken."""
    lines: list[str] = []
    line = f"{name}:"
    for word in words:
        while len(word) > hard:
            lines.append(line)
            line, word = f" {word[:hard]}", word[hard:]
        if len(line) + 1 + len(word) > width and (lines or len(line) > len(name) + 1):
            lines.append(line)
            line = f" {word}"
        else:
            line = f"{line} {word}"
    lines.append(line)
    return "\r\n".join(lines) + "\r\n"
