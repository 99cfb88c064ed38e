"""For which service a Kerberos ticket is, as its plain part says (RFC 4120 section 5.3). For messages, not for trust.

Nothing but the key that opens a ticket proves its service. Where several services have one account, and so one key, as
is usual with Active Directory, only this part tells them apart, and whoever steals a ticket can change it.
"""

from __future__ import annotations

import re

_TICKET = re.compile(rb"\xa0\x03\x02\x01\x05(?=\xa1[^\x00]\x1b|\xa1\x81.\x1b)", re.DOTALL)
"""`tkt-vno [0] 5` and then `realm [1]`, a GeneralString: nothing else in an AP-REQ looks so."""
_STRING, _SEQUENCE = 0x1B, 0x30
MAX_COMPONENTS = 4


def ticket_service(token: bytes) -> str:
    """`service/host` of the ticket in `token`, whatever is around it; empty where none can be read."""
    found = _TICKET.search(token)
    if found is None:
        return ""
    try:
        at = _inside(token, found.end(), 0xA1)[1]
        at, _ = _inside(token, at, 0xA2)
        at, _ = _inside(token, at, _SEQUENCE)
        _, at = _inside(token, at, 0xA0)
        at, _ = _inside(token, at, 0xA1)
        at, end = _inside(token, at, _SEQUENCE)
        parts: list[str] = []
        while at < end and len(parts) < MAX_COMPONENTS:
            start, at = _inside(token, at, _STRING)
            parts.append(token[start:at].decode("ascii"))
    except (IndexError, ValueError):
        return ""
    return "/".join(parts)


def _inside(data: bytes, at: int, tag: int) -> tuple[int, int]:
    """Where the content of the element at `at` begins and ends. Raises `ValueError` and `IndexError`."""
    if data[at] != tag:
        raise ValueError("another element")
    length, at = data[at + 1], at + 2
    if length & 0x80:
        octets = length & 0x7F
        if not 0 < octets <= 3:
            raise ValueError("a length that no ticket has")
        length, at = int.from_bytes(data[at : at + octets], "big"), at + octets
    if at + length > len(data):
        raise ValueError("cut off")
    return at, at + length
