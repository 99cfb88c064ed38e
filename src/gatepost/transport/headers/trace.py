"""The fields that say which way a message went: `Received` (RFC 5321, section 4.4; RFC 3848), `Return-Path`."""

from __future__ import annotations

import hashlib
import re
import time
from functools import lru_cache
from ipaddress import ip_address

from gatepost.transport.headers.words import printable_ascii
from gatepost.transport.message import Envelope, Source

MAX_NAME = 255
MAX_FOR = 320
"""Characters of an address in the `for` clause; a longer one is left out."""

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DOMAIN = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?)*")
_IPV6 = re.compile("^ipv6:", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z0-9.-]{1,64}")
_INTERNATIONAL = {
    "ESMTP": "UTF8SMTP", "ESMTPA": "UTF8SMTPA", "ESMTPS": "UTF8SMTPS", "ESMTPSA": "UTF8SMTPSA",
    "LMTP": "UTF8LMTP", "LMTPA": "UTF8LMTPA", "LMTPS": "UTF8LMTPS", "LMTPSA": "UTF8LMTPSA",
}  # fmt: skip
"""RFC 6531, section 4.3."""


@lru_cache(maxsize=8)
def _date(seconds: int) -> str:
    year, month, day, hour, minute, second, weekday, _, _ = time.gmtime(seconds)
    return f"{_DAYS[weekday]}, {day} {_MONTHS[month - 1]} {year:04} {hour:02}:{minute:02}:{second:02} +0000"


def date(now: float) -> str:
    """`Fri, 21 Nov 1997 09:55:06 +0000` (RFC 5322, section 3.3)."""
    return _date(int(now))


def trace_token(organization: str, hub: str) -> bytes:
    """What tells this hub's own `Received` fields from others', so that loops are seen early (smtp-facts c.3, 31)."""
    return hashlib.blake2s(f"{organization}\0{hub}".lower().encode(), digest_size=8).hexdigest().encode()


def _literal(address: str) -> str:
    """`[192.0.2.1]`, `[IPv6:2001:db8::1]`, or nothing for what is no address."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    return f"[IPv6:{parsed}]" if parsed.version == 6 else f"[{parsed}]"


def _comment(text: str) -> str:
    """Text of a stranger for within a comment: printable ASCII, its brackets and backslashes escaped."""
    return re.sub(r"([()\\])", r"\\\1", printable_ascii(text, MAX_NAME))


@lru_cache(maxsize=4096)
def _from_clause(name: str, address: str) -> str:
    """Who the client says it is and where it came from; a name that is none goes into a comment (c.1, 14 and 15)."""
    literal = _literal(address)
    info = f" ({literal})" if literal else ""
    if len(name) <= MAX_NAME and _DOMAIN.fullmatch(name.rstrip(".")):
        return f"{name.rstrip('.')}{info}"
    if name[:1] == "[" and name[-1:] == "]" and (said := _literal(_IPV6.sub("", name[1:-1]))):
        return f"{said}{info}"
    return f"{literal or 'unknown'}{info} (said {_comment(name)})" if name else f"{literal or 'unknown'}{info}"


def _for_clause(address: str) -> str:
    # A recipient with blanks, brackets or controls (quoted local parts) is left out: the clause is optional.
    if len(address) > MAX_FOR or not address.isprintable() or set(' <>();"\\') & set(address):
        return ""
    return f"\r\n\tfor <{address}>"


def received_field(envelope: Envelope, fqdn: str, token: bytes, queue_id: str, now: float) -> bytes:
    """The `Received` field of hub `fqdn`, with its line end.

    `queue_id` is the hub's own id of the message; `token` is `trace_token`'s. The recipient is named only when there is
    one, since others must not learn of each other.
    """
    source: Source = envelope.source
    protocol = source.protocol if _WORD.fullmatch(source.protocol) else "SMTP"
    if envelope.smtputf8:
        protocol = _INTERNATIONAL.get(protocol, protocol)
    tls = f"\r\n\t(using {_comment(source.tls)})" if source.tls else ""
    one = _for_clause(envelope.recipients[0].address) if len(envelope.recipients) == 1 else ""
    field = (
        f"Received: from {_from_clause(source.name, source.address)}{tls}"
        f"\r\n\tby {fqdn} (Gatepost {token.decode('ascii')}) with {protocol} id {queue_id}{one};"
        f"\r\n\t{date(now)}\r\n"
    )
    return field.encode()


def return_path_field(sender: str) -> bytes:
    """`Return-Path`, which final delivery adds (RFC 5321, section 4.4). Servers of LMTP write it themselves."""
    safe = sender if sender.isprintable() and len(sender) <= MAX_FOR and not set("<>") & set(sender) else ""
    return f"Return-Path: <{safe}>\r\n".encode()
