"""The words of the greeting and of a refused IMAP sign-in: response codes (RFC 5530, RFC 2221), texts for people."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

from gatepost.wire.events import Credentials, Refusal
from gatepost.wire.imap_syntax import human

MAX_TEXT = 400
"""Bytes of a human text in an answer: with tag and code it stays below the line bounds of old clients (1000)."""

_HOST = re.compile(r"[A-Za-z0-9.-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\]")

_REFUSALS = {
    Refusal.WRONG_CREDENTIALS: (b"AUTHENTICATIONFAILED", b"Wrong user name or password."),
    Refusal.UNAVAILABLE: (b"UNAVAILABLE", b"The mailbox cannot be reached at the moment. Please try again later."),
    Refusal.BUSY: (b"UNAVAILABLE", b"Too many sign-ins at the moment. Please try again later."),
    Refusal.PROTOCOL_NOT_ALLOWED: (b"AUTHORIZATIONFAILED", b"IMAP is not allowed for this account."),
    Refusal.INSUFFICIENT_SCOPE: (b"AUTHORIZATIONFAILED", b"This token is not for IMAP."),
    # A code that no client takes for a wrong password.
    Refusal.OTHER_SERVER: (b"CONTACTADMIN", b"This mailbox is served by another server."),
    Refusal.IN_USE: (b"INUSE", b"The mailbox is in use by another session."),
    Refusal.LIMIT: (b"LIMIT", b"Too many sessions of this user."),
}


def offered(mechanisms: Iterable[bytes] | None, *, starttls: bool) -> bytes:
    """The capabilities before the sign-in; with None for `mechanisms` nobody signs in yet.

    A lower bound of every mailbox server's abilities. No LITERAL+ or LITERAL-, although `{n+}` is always taken: a
    client may pipeline commands behind its sign-in, and they go to a server that perhaps has neither (field case 31).
    All others end with the sign-in.
    """
    words = b"IMAP4rev1 SASL-IR ID LOGIN-REFERRALS" + (b" STARTTLS" if starttls else b"")
    if mechanisms is None:
        return words + b" LOGINDISABLED"
    return words + b"".join([b" AUTH=" + mechanism for mechanism in mechanisms])


def refusal_text(refusal: Refusal, text: str, server: str, credentials: Credentials) -> bytes:
    """`[CODE] text` for a tagged NO.

    For `OTHER_SERVER` with a usable host name the code is a login referral (RFC 2221 section 4.1); clients that do not
    know it show the text, which names the server too (SPEC C9). The password is not in it, and no client sends it
    elsewhere without having been made for that.
    """
    code, words = _REFUSALS[refusal]
    if refusal is Refusal.OTHER_SERVER and _HOST.fullmatch(server):
        user = quote(credentials.authorization_id or credentials.authentication_id, safe="")
        code = b"REFERRAL imap://%s;AUTH=*@%s/" % (user.encode(), server.encode())
        words = b"This mailbox is served by %s." % server.encode()
    return b"[%s] %s" % (code, human(text.encode("utf-8", "replace"), MAX_TEXT, words))


@lru_cache(maxsize=16)
def greeting_line(capabilities: bytes, banner: bytes) -> bytes:
    """What a client hears first; the same few for every connection."""
    return b"* OK [CAPABILITY %s] %s\r\n" % (capabilities, human(banner, MAX_TEXT, b"Ready"))
