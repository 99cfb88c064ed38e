"""Quoted text of the shell. As in the source system, the curly quotes of word processors count as quotes too."""

from __future__ import annotations

from gatepost.shell.errors import Incomplete, LanguageError

SINGLE_QUOTES = "'\u2018\u2019\u201a\u201b"
DOUBLE_QUOTES = '"\u201c\u201d\u201e'
BACKTICK = "`"

_ESCAPES = {"0": "\0", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_MAX_CODE_DIGITS = 6


def quote(text: str) -> str:
    """`text` as a single-quoted string that reads back as `text`, whatever is in it."""
    inner = "".join(2 * c if c in SINGLE_QUOTES else c for c in text)
    return f"'{inner}'"


def quoted_if_needed(text: str) -> str:
    """`text` as an operator would write it: bare where that is the same, else quoted."""
    plain = text and all(c.isalnum() or c in "_./:\\-" for c in text) and text[0].isalnum()
    return text if plain else quote(text)


def read_single(text: str, start: int) -> tuple[str, int]:
    """The single-quoted string that begins at `start`, and where it ends. Raises `Incomplete`."""
    parts: list[str] = []
    at = start + 1
    while at < len(text):
        if text[at] not in SINGLE_QUOTES:
            parts.append(text[at])
            at += 1
        elif text[at + 1 : at + 2] and text[at + 1] in SINGLE_QUOTES:
            parts.append(text[at])
            at += 2
        else:
            return "".join(parts), at + 1
    raise Incomplete("the quote is not closed", text, start)


def read_double(text: str, start: int) -> tuple[str, int]:
    """The double-quoted string that begins at `start`, and where it ends. Raises `LanguageError`."""
    parts: list[str] = []
    at = start + 1
    while at < len(text):
        character = text[at]
        if character in DOUBLE_QUOTES:
            if not (text[at + 1 : at + 2] and text[at + 1] in DOUBLE_QUOTES):
                return "".join(parts), at + 1
            parts.append(character)
            at += 2
        elif character == BACKTICK:
            part, at = read_escape(text, at)
            parts.append(part)
        elif character == "$":
            part, at = _in_double(text, at)
            parts.append(part)
        else:
            parts.append(character)
            at += 1
    raise Incomplete("the quote is not closed", text, start)


def read_escape(text: str, at: int) -> tuple[str, int]:
    """What the backtick at `at` and the character after it stand for. Raises `LanguageError`."""
    character = text[at + 1 : at + 2]
    if not character:
        raise Incomplete("nothing follows the backtick", text, at)
    if character == "u" and text[at + 2 : at + 3] == "{":
        end = text.find("}", at + 3, at + 4 + _MAX_CODE_DIGITS)
        digits = text[at + 3 : end] if end > 0 else ""
        if not digits or not all(c in "0123456789abcdefABCDEF" for c in digits) or int(digits, 16) > 0x10FFFF:
            raise LanguageError("write a character's number like `u{263a}", text, at)
        return chr(int(digits, 16)), end + 1
    return _ESCAPES.get(character, character), at + 2


def read_name(text: str, at: int) -> str:
    """The letters, digits and underscores at `at`."""
    end = at
    while end < len(text) and (text[end].isalnum() or text[end] == "_"):
        end += 1
    return text[at:end]


def _in_double(text: str, at: int) -> tuple[str, int]:
    """What the dollar sign at `at` in a double-quoted string stands for, and where it ends."""
    name = read_name(text, at + 1)
    if text[at + 1 : at + 2] in {"(", "{"}:
        raise LanguageError("nothing is computed in a text here: put it in single quotes", text, at)
    if not name:
        return "$", at + 1
    known = {"true": "True", "false": "False", "null": ""}.get(name.lower())
    if known is None:
        remedy = "put the text in single quotes, or write `$"
        raise LanguageError(f"there are no variables here, so no ${name}: {remedy}", text, at)
    return known, at + 1 + len(name)
