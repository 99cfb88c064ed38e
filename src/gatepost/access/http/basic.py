"""Basic credentials (RFC 7617), in and out."""

from __future__ import annotations

import binascii


def read_basic(value: bytes | None) -> tuple[str, str] | None:
    """`(name, password)` of an Authorization value, or None when it holds none that can be judged.

    We ask for UTF-8; octets that are not are taken for Latin-1, which older clients send (field case 61).
    """
    if value is None or value[:6].lower() != b"basic ":
        return None
    try:
        decoded = binascii.a2b_base64(value[6:].strip(), strict_mode=True)
    except binascii.Error:
        return None
    try:
        text = decoded.decode("utf-8")
    except UnicodeDecodeError:
        text = decoded.decode("latin-1")
    name, colon, password = text.partition(":")
    if not colon or not name or "\0" in text or "\r" in text or "\n" in text:
        return None
    return name, password


def basic_line(name: str, password: str) -> bytes:
    """The Authorization line, with its end, for a server."""
    return b"Authorization: Basic %b\r\n" % binascii.b2a_base64(f"{name}:{password}".encode(), newline=False)


def name_line(header: str, name: str) -> bytes | None:
    """The line that tells a server who the user is, or None for a name that no field can hold.

    Names beyond ASCII travel as their UTF-8 octets.
    """
    if not name or not name.isprintable():
        return None
    return b"%b: %b\r\n" % (header.encode("ascii"), name.encode())
