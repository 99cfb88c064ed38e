"""The words of `XSHADOW` in SMTP: a server of the organization, its queue database, and a copy's token (SPEC S1).

    250-XSHADOW <server> <identity>                    EHLO's answer, to authenticated servers of the organization only
    MAIL FROM:<…> XSHADOW=<token>                      the sender keeps a shadow under this token
    XSHADOW <server> <identity>                        the session becomes a shadow channel (`shadow_messages`)

The source system's own grammar is not public (exchange-facts 4.4); this one is ours. A server's name may be any
printable text, so it is said in UTF-8 as xtext (RFC 3461, section 4).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gatepost.wire.smtp_command import SHADOW_TOKEN, decode_xtext, encode_xtext

MAX_NAME = 255
"""Characters of a server's name in an organization."""

_IDENTITY = re.compile(r"[0-9A-Za-z-]{1,64}")


@dataclass(frozen=True, slots=True)
class ShadowHub:
    """A hub as it takes part in shadow redundancy: its name in the organization, its queue database's identity."""

    server: str
    identity: str


@dataclass(frozen=True, slots=True)
class ShadowOffer:
    """What a receiving hub offers: `own` is itself, `servers` are the names of those who may have it."""

    own: ShadowHub
    servers: frozenset[str]


def is_token(text: str) -> bool:
    """Whether `text` can be a copy's token."""
    return SHADOW_TOKEN.fullmatch(text) is not None


def is_identity(text: str) -> bool:
    """Whether `text` can be the identity of a queue database."""
    return _IDENTITY.fullmatch(text) is not None


def encode_hub(hub: ShadowHub) -> str:
    """`<server> <identity>`."""
    return f"{encode_xtext(hub.server.encode().decode('latin-1'))} {hub.identity}"


def parse_hub(text: str) -> ShadowHub:
    """What follows `XSHADOW `. Raises ValueError."""
    name, space, identity = text.partition(" ")
    server = decode_xtext(name).encode("latin-1").decode("utf-8")
    if not space or not server or len(server) > MAX_NAME or not server.isprintable() or not is_identity(identity):
        raise ValueError("not a server and an identity")
    return ShadowHub(server, identity)
