"""Whose message it is: the domain of the `From` field."""

from __future__ import annotations

import re

_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*"|\((?:[^()\\]|\\.)*\)', re.DOTALL)
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
