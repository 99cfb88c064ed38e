"""MAIL and RCPT as a client writes them: parameters only where the server offers them (RFC 5321, section 4.1.1).

Nothing that could end a line, and nothing outside an address' grammar, ever reaches the wire (field case 7).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gatepost.wire.smtp_address import BadAddress, domain_of, parse_address, quote_local, split_address
from gatepost.wire.smtp_client_extensions import Extensions

MAX_PARAMETER = 500
"""Octets of ORCPT's address (RFC 3461, section 4.2) and more than those of ENVID (100)."""

_XTEXT = re.compile(r"[!-~]+")
_ORIGINAL = re.compile(r"([A-Za-z0-9-]+);([^\x00-\x20\x7f]+)")
_RETURNS = {"FULL": b" RET=FULL", "HDRS": b" RET=HDRS"}


class Unsendable(ValueError):
    """An address cannot be said to this server. `enhanced` is the code that tells the sender why."""

    def __init__(self, enhanced: str, text: str) -> None:
        super().__init__(text)
        self.enhanced = enhanced


def path(address: str, *, utf8: bool) -> bytes:
    """`address` (empty: the null sender, or `postmaster`) as a path without brackets.

    `utf8`: SMTPUTF8 is used; without it a domain goes in its ASCII form and a local part must be ASCII.
    Raises `Unsendable`: 5.1.3 for what is no address, 5.6.7 for one that needs SMTPUTF8 (RFC 6531, section 3.7.4.2).
    """
    if not address or address.lower() == "postmaster":
        return address.encode()
    try:
        address = parse_address(address, utf8=True)
        if address.isascii() or utf8:
            return address.encode()
        local, domain = split_address(address)[0], domain_of(address)
    except (BadAddress, UnicodeEncodeError) as error:
        raise Unsendable("5.1.3", "not an address that can be sent") from error
    if not local.isascii():
        raise Unsendable("5.6.7", "the next server does not take addresses that are not ASCII (SMTPUTF8)")
    return f"{quote_local(local)}@{domain}".encode("ascii")


def mail_command(
    sender: str,
    extensions: Extensions,
    *,
    size: int = 0,
    body: str = "",
    utf8: bool = False,
    returns: str = "",
    envelope_id: str = "",
    require_tls: bool = False,
    shadow: str = "",
) -> bytes:
    """The whole line. `size` in octets, 0: not known; `body` is `8BITMIME`, `BINARYMIME` or empty.

    `shadow` is a token. What the server does not offer is left out, but for `body`, `utf8`, `require_tls` and `shadow`:
    the caller knows by then that they can be had. Raises `Unsendable`.
    """
    line = b"MAIL FROM:<%b>" % path(sender, utf8=utf8)
    if size and extensions.size:
        line += b" SIZE=%d" % size
    if body:
        line += b" BODY=" + body.encode("ascii")
    if utf8:
        line += b" SMTPUTF8"
    if extensions.dsn:
        line += _RETURNS.get(returns, b"")
        if envelope_id and len(envelope_id) <= MAX_PARAMETER and _XTEXT.fullmatch(envelope_id):
            line += b" ENVID=" + envelope_id.encode("ascii")
    if require_tls:
        line += b" REQUIRETLS"
    if shadow:
        line += b" XSHADOW=" + shadow.encode("ascii")
    return line + b"\r\n"


def recipient_command(
    address: str, extensions: Extensions, *, utf8: bool = False, notify: Iterable[str] = (), original: str = ""
) -> bytes:
    """The whole line. `notify` are words of NOTIFY, `original` is ORCPT as it came. Raises `Unsendable`."""
    line = b"RCPT TO:<%b>" % path(address, utf8=utf8)
    if extensions.dsn:
        if words := ",".join(notify):
            line += b" NOTIFY=" + words.encode("ascii")
        if original:
            line += _original(original, utf8=utf8)
    return line + b"\r\n"


def _original(original: str, *, utf8: bool) -> bytes:
    match = _ORIGINAL.fullmatch(original)
    if match is None or len(original) > MAX_PARAMETER:
        return b""
    if not original.isascii() and not utf8:
        # Its ASCII form for the way through servers without SMTPUTF8 (RFC 6533, section 3).
        original = "".join(c if c.isascii() else f"\\x{{{ord(c):X}}}" for c in original)
    try:
        return b" ORCPT=" + original.encode()
    except UnicodeEncodeError:
        return b""
