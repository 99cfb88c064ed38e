"""Words on a connection for the `Received` field of its messages."""

from __future__ import annotations

import asyncio


def protocol_word(*, esmtp: bool, tls: bool, signed_in: bool, utf8: bool) -> str:
    """The `with` word (RFC 3848; RFC 6531, section 4.3): SMTP, ESMTP, ESMTPSA, UTF8SMTPS and so on."""
    if not esmtp:
        return "SMTP"
    return ("UTF8SMTP" if utf8 else "ESMTP") + ("S" if tls else "") + ("A" if signed_in else "")


def tls_word(transport: asyncio.BaseTransport) -> str:
    """Version and cipher of a TLS connection: `TLSv1.3 TLS_AES_256_GCM_SHA384`."""
    cipher = transport.get_extra_info("cipher")
    ssl_object = transport.get_extra_info("ssl_object")
    version = ssl_object.version() if ssl_object is not None else None
    return " ".join(word for word in (version, cipher[0] if cipher else "") if word)
