"""ActiveSync requests, as far as the front door must look at them (MS-ASHTTP): protocol version and device."""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

FIRST_THAT_FOLLOWS_451 = (12, 1)
"""Protocol version of the first devices that understand 451 with `X-MS-Location`."""
PING = 18
"""The command's code in a short query (MS-ASHTTP section 2.2.1.1.1.1.2)."""
MAX_DEVICE_ID = 64
"""Characters of a device's id that count: MS-ASHTTP allows 32; a longer one is no device of today's."""
MAX_QUERY = 8192
"""Octets of a query that are looked at; a request's whole target is not longer."""

_VERSION = re.compile(rb"\s*([0-9]{1,3})\.([0-9]{1,3})\s*")
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]+={0,2}")


def follows_451(version: bytes | None) -> bool:
    """Whether a device with this `MS-ASProtocolVersion` follows 451: from 12.1 on.

    Without the field, or with one that says nothing, it is taken to: OPTIONS has none, and neither have the short
    queries of newer devices.
    """
    match = _VERSION.fullmatch(version or b"")
    return match is None or (int(match[1]), int(match[2])) >= FIRST_THAT_FOLLOWS_451


def device_key(user: str, query: bytes) -> str:
    """What stays with one server (SPEC B2): the user's name and, after a space, the device's id if the query has one.

    `query` may begin with its `?`. Its plain form has `DeviceId=`, the short one is base64 of a binary structure
    (MS-ASHTTP section 2.2.1.1.1.1): version, command, locale (2), length of the id, the id, …
    """
    query = query[:MAX_QUERY].removeprefix(b"?")
    device = _plain(query) if b"=" in query.rstrip(b"=") else _short(query)
    text = device.decode("ascii") if device.isalnum() and device.isascii() else device.hex()
    text = text[:MAX_DEVICE_ID].lower()
    return f"{user} {text}" if text else user


def is_ping(query: bytes) -> bool:
    """Whether a request waits for something to happen and changes nothing: the command Ping."""
    query = query[:MAX_QUERY].removeprefix(b"?")
    if b"=" in query.rstrip(b"="):
        return _plain(query, b"cmd").lower() == b"ping"
    return _structure(query)[1:2] == bytes((PING,))


def _plain(query: bytes, wanted: bytes = b"deviceid") -> bytes:
    for part in query.split(b"&"):
        name, _, value = part.partition(b"=")
        if name.lower() == wanted:
            return unquote_to_bytes(value)
    return b""


def _structure(query: bytes) -> bytes:
    """What a short query holds; empty when it is none."""
    query = unquote_to_bytes(query)
    if not _BASE64.fullmatch(query):
        return b""
    digits = query.rstrip(b"=").translate(_URL_SAFE)
    try:
        return base64.b64decode(digits + b"=" * (-len(digits) % 4))
    except binascii.Error:
        return b""


def _short(query: bytes) -> bytes:
    data = _structure(query)
    size = data[4] if len(data) > 4 else 0
    return data[5 : 5 + size] if len(data) >= 5 + size else b""
