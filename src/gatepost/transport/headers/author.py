"""Whose message it is: the domain, and the addresses, of the `From` field."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gatepost.wire.smtp_address import BadAddress, parse_address

_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*"|\((?:[^()\\]|\\.)*\)', re.DOTALL)
_QUOTED_TEXT = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_ANGLE = re.compile(rb"<([^<>]*)>")
_NO_DOMAIN = re.compile(rb"[\x00-\x20,;:\x7f]")
MAX_DOMAIN = 255


def author_domain(from_field: bytes) -> str:
    """The domain of the first address of a `From` field's value, in lower case; empty when there is none to be read.

    Quoted strings and comments are looked past: an address in a display name is none.
    """
    text = _QUOTED.sub(b'""', from_field)
    match = _ANGLE.search(text)
    address = match[1] if match else text.partition(b",")[0]
    _, at, domain = address.strip().rpartition(b"@")
    if not at or len(domain) > MAX_DOMAIN or _NO_DOMAIN.search(domain):
        return ""
    name = domain.decode("utf-8", "replace").rstrip(".").lower()
    if name.isascii():
        return name
    try:
        return name.encode("idna").decode("ascii")
    except UnicodeError:
        return ""


def author_addresses(from_field: bytes) -> tuple[str, ...]:
    """All addresses of a `From` field's value, in their order; none when one of them cannot be read for certain.

    Quoted strings and comments are looked past, as in `author_domain`. A group has none (RFC 6854): it names nobody.
    """
    try:
        return tuple(parse_address(address, utf8=True) for address in _mailboxes(from_field.decode()))
    except (UnicodeDecodeError, BadAddress):
        return ()


def _mailboxes(text: str) -> Iterator[str]:
    """What stands for the address in each mailbox of a list (RFC 5322, section 3.4). Raises `BadAddress`."""
    outside, inside, at = "", None, 0
    while at < len(text):
        character = text[at]
        if character == '"':
            quoted = _QUOTED_TEXT.match(text, at)
            if quoted is None:
                raise BadAddress("a quoted string without an end")
            character = quoted[0]
        elif character == "(":
            at = _after_comment(text, at)
            outside += " "
            continue
        elif character in "<>:;,":
            if character == "<" and inside is None:
                end = text.find(">", at)
                if end < 0:
                    raise BadAddress("no end of the address")
                inside, outside, at = text[at + 1 : end], "", end + 1
                continue
            if character != ",":
                raise BadAddress("no list of mailboxes")
            yield _address(outside, inside)
            outside, inside, at = "", None, at + 1
            continue
        outside += character
        at += len(character)
    yield _address(outside, inside)


def _address(outside: str, inside: str | None) -> str:
    """Within the brackets, where there are any; then nothing may follow them."""
    if inside is None:
        return outside.strip()
    if outside.strip():
        raise BadAddress("text after the address")
    return inside.strip()


def _after_comment(text: str, at: int) -> int:
    """The place after the comment that begins at `at`. Raises `BadAddress`."""
    depth = 0
    while at < len(text):
        character = text[at]
        depth += (character == "(") - (character == ")")
        at += 2 if character == "\\" else 1
        if not depth:
            return at
    raise BadAddress("a comment without an end")
