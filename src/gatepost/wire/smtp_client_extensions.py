"""What a server offers, as its answer to EHLO or LHLO lists it (RFC 5321, section 4.1.1.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gatepost.wire.shadow_words import ShadowHub, parse_hub
from gatepost.wire.smtp_reply import Reply

MAX_NUMBER = 10**15
"""Larger sizes are taken as no limit: nobody means them."""

_KEYWORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")


@dataclass(frozen=True, slots=True)
class Extensions:
    """The extensions that matter to a client; without any it speaks plain SMTP as of old."""

    name: str = ""
    """What the server calls itself: the first word of its answer."""
    pipelining: bool = False
    eight_bit: bool = False
    """8BITMIME (RFC 6152)."""
    binary: bool = False
    """BINARYMIME, which needs CHUNKING (RFC 3030)."""
    chunking: bool = False
    utf8: bool = False
    """SMTPUTF8 (RFC 6531)."""
    dsn: bool = False
    """RFC 3461."""
    starttls: bool = False
    require_tls: bool = False
    """REQUIRETLS (RFC 8689)."""
    size: bool = False
    """The SIZE parameter is understood (RFC 1870)."""
    max_size: int = 0
    """Octets of a message that it takes; 0: it names no limit."""
    max_recipients: int = 0
    """Recipients of one transaction, by LIMITS RCPTMAX (RFC 9422); 0: it names no limit."""
    max_messages: int = 0
    """Transactions of one session, by LIMITS MAILMAX."""
    authentication: frozenset[str] = frozenset()
    """SASL mechanisms (RFC 4954)."""
    shadow: ShadowHub | None = None
    """XSHADOW: who the server is in shadow redundancy, as it says."""


def offers(reply: Reply) -> dict[str, list[str]]:
    """All that a positive answer to EHLO offers: keywords and their parameters, in upper case.

    Lines that do not fit are as if they were not there.
    """
    offered: dict[str, list[str]] = {}
    for line in reply.text.split("\n")[1:]:
        # Servers of old wrote AUTH=LOGIN beside AUTH LOGIN.
        words = line.replace("=", " ", 1).split() if line[:5].upper() == "AUTH=" else line.split()
        if words and _KEYWORD.fullmatch(words[0]):
            offered.setdefault(words[0].upper(), []).extend(word.upper() for word in words[1:])
    return offered


def read_extensions(reply: Reply) -> Extensions:
    """What a positive answer to EHLO offers of what matters to a client."""
    first = reply.text.partition("\n")[0]
    offered = offers(reply)
    limits = dict(word.partition("=")[::2] for word in offered.get("LIMITS", []))
    chunking = "CHUNKING" in offered
    return Extensions(
        name=(first.split() or [""])[0],
        pipelining="PIPELINING" in offered,
        eight_bit="8BITMIME" in offered,
        binary="BINARYMIME" in offered and chunking,
        chunking=chunking,
        utf8="SMTPUTF8" in offered,
        dsn="DSN" in offered,
        starttls="STARTTLS" in offered,
        require_tls="REQUIRETLS" in offered,
        size="SIZE" in offered,
        max_size=_number(next(iter(offered.get("SIZE", [])), "")),
        max_recipients=_number(limits.get("RCPTMAX", "")),
        max_messages=_number(limits.get("MAILMAX", "")),
        authentication=frozenset(offered.get("AUTH", [])),
        shadow=_shadow(reply) if "XSHADOW" in offered else None,
    )


def _shadow(reply: Reply) -> ShadowHub | None:
    for line in reply.text.split("\n")[1:]:
        keyword, _, rest = line.partition(" ")
        if keyword.upper() == "XSHADOW":
            try:
                return parse_hub(rest)
            except ValueError:
                return None
    return None


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > len(str(MAX_NUMBER)):
        return 0
    return int(text) if int(text) < MAX_NUMBER else 0
