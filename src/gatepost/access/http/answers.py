"""Responses of our own: short, complete, never cached."""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple
from xml.sax.saxutils import escape

TEXTS = {
    400: "The request was not understood.",
    401: "Sign in with your name and password.",
    403: "This account may not use this service.",
    404: "There is nothing here.",
    405: "This method is not served.",
    408: "The request took too long.",
    413: "The request is too large.",
    414: "The address is too long.",
    431: "The request's head is too large.",
    440: "Please sign in again.",
    501: "This method is not known.",
    502: "The mailbox server gave an answer that cannot be passed on.",
    503: "The service is not available at the moment. Please try again.",
    508: "The request came back to where it had been.",
}
PHRASES = {440: "Login Timeout", 451: "Redirect"}
"""Phrases of our own: to ActiveSync clients 451 is a redirect, not what RFC 7725 says (MS-ASHTTP section 2.2.2.1.2);
440 is what Outlook Web App's scripts know as "sign in again"."""
RETRY_SECONDS = 10
"""A client waits this long after a temporary fault: a failover is over in this time."""
RETRY_AFTER = b"Retry-After: %d\r\n" % RETRY_SECONDS


class Answer(NamedTuple):
    """A response of our own before it is framed. `fields` are complete header lines."""

    status: int
    fields: bytes
    content_type: bytes
    body: bytes


def answer(
    status: int,
    body: bytes | None = None,
    *,
    fields: bytes = b"",
    content_type: bytes = b"text/plain; charset=utf-8",
    close: bool = False,
    head_only: bool = False,
) -> bytes:
    """A whole response. `fields` are complete header lines; no body: the status's own text.

    It is not to be stored, unless `fields` have a `Cache-Control` of their own.
    """
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""
    phrase = PHRASES.get(status, phrase)
    if body is None:
        body = (TEXTS.get(status, phrase) + "\n").encode()
    head = b"HTTP/1.1 %d %b\r\nDate: %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b%b%b\r\n" % (
        status,
        phrase.encode(),
        formatdate(usegmt=True).encode(),
        content_type,
        len(body),
        b"" if b"Cache-Control:" in fields else b"Cache-Control: no-store\r\n",
        fields,
        b"Connection: close\r\n" if close else b"",
    )
    return head if head_only else head + body


def challenge(realm: str) -> bytes:
    """The field that asks for Basic credentials (RFC 7617 section 2.1)."""
    return b'WWW-Authenticate: Basic realm="%b", charset="UTF-8"\r\n' % quoted_realm(realm)


def quoted_realm(realm: str) -> bytes:
    """What stands between the quotes of a `realm`."""
    return realm.replace("\\", "").replace('"', "").encode("ascii", "replace")


def page(title: str, text: str) -> bytes:
    """A small HTML page."""
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title>"
        f"<h1>{escape(title)}</h1><p>{escape(text)}</p></html>\n"
    ).encode()
