"""Mailbox addresses that a client's request may name, as a hint whose mailbox it is about.

They name a mailbox, never a host: what could be read as part of a URL is no address (SPEC C14).
"""

from __future__ import annotations

import re

from gatepost.organization.addresses import is_host_name
from gatepost.organization.names import MAX_LOGIN_NAME

_LOCAL = re.compile(r"[A-Za-z0-9!$&'*+=^_`{|}~\x80-\U0010ffff.-]{1,64}")
"""RFC 5321's atoms with dots, less `/`, `#`, `?` and `%`; quoted local parts are not read. Beyond ASCII: RFC 6531."""


def mailbox_address(text: str) -> str | None:
    """`text` without outer spaces if it is `local@domain`, else None. It is not yet known to belong to anybody."""
    text = text.strip()
    local, at, domain = text.partition("@")
    if not at or len(text) > MAX_LOGIN_NAME or not _LOCAL.fullmatch(local) or not text.isprintable():
        return None
    if not domain.isascii():
        try:
            domain = domain.encode("idna").decode("ascii")
        except UnicodeError:
            return None
    return text if "." in domain.strip(".") and is_host_name(domain) else None


def anchor_mailbox(value: bytes) -> str | None:
    """The mailbox that `X-AnchorMailbox` names: an address, with or without `smtp:` before it.

    Only for signed-in users. Other forms of the field, with ids or hosts, are None.
    """
    try:
        text = value.decode("utf-8").strip()
    except UnicodeDecodeError:
        return None
    return mailbox_address(text[5:] if text[:5].lower() == "smtp:" else text)


def explicit_logon(path: str) -> str | None:
    """The mailbox of an explicit logon, `/owa/shared@contoso.com/…`: the second segment of a decoded path."""
    segments = path.split("/", 3)
    return mailbox_address(segments[2]) if len(segments) > 2 and segments[0] == "" else None
