"""What a hub does with a header field, told by its name."""

from __future__ import annotations

(PLAIN, INVALID, RECEIVED, MESSAGE_ID, SUBJECT, FROM, DATE, RETURN_PATH, BLIND, FENCED) = range(10)
"""`INVALID`: no field's name, so no line of a header. `BLIND`: goes on submission. `FENCED`: not from strangers."""

_KINDS = {
    b"received": RECEIVED, b"message-id": MESSAGE_ID, b"subject": SUBJECT, b"from": FROM, b"date": DATE,
    b"return-path": RETURN_PATH, b"bcc": BLIND, b"resent-bcc": BLIND,
}  # fmt: skip

FENCED_PREFIXES = (b"x-ms-exchange-organization-", b"x-ms-exchange-forest-", b"x-gatepost-")
"""What servers of the organization believe of each other, so that no stranger may say it (exchange-facts 4.9)."""

NAME_CHARACTERS = bytes(character for character in range(33, 127) if character != ord(":"))
"""RFC 5322, section 3.6.8."""
MAX_NAME = 200
"""Octets: what is longer is no field's name."""
MAX_REMEMBERED = 2048
"""Spellings of names whose kind is remembered: a stranger cannot make the table grow."""

remembered: dict[bytes, int] = {}
"""Kinds of names that were seen, as they were spelled; look here first."""


def kind(name: bytes) -> int:
    """The kind of what stands before a line's colon, worked out anew."""
    bare = name.rstrip(b" \t")  # the old syntax has blanks before the colon (RFC 5322, section 4.5)
    low = bare.lower()
    if not bare or len(name) > MAX_NAME or bare.translate(None, NAME_CHARACTERS):
        return INVALID
    found = FENCED if low.startswith(FENCED_PREFIXES) else _KINDS.get(low, PLAIN)
    if len(remembered) < MAX_REMEMBERED:
        remembered[name] = found
    return found
