"""Mail and web clients for the tour: the standard library's, with a deadline each, and answers as plain text."""

from __future__ import annotations

import http.client
import imaplib
import json
import poplib
import re
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gatepost.lab.servers.process import Address

CLIENT_SECONDS = 15.0
"""Every wait of a client: longer than any timeout of the front door that the tour provokes."""
SERVER_IN_MESSAGE = re.compile(rb"X-Mailbox-Server: (\S+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MailAnswer:
    """What a sign-in came to: the server whose message was read, or the refusal's text."""

    text: str
    server: str = ""


def imap(address: Address, tls: ssl.SSLContext, *, implicit: bool = True) -> imaplib.IMAP4:
    """A connection that speaks TLS: from the start or by STARTTLS. Raises OSError, `imaplib.IMAP4.error`."""
    if implicit:
        return imaplib.IMAP4_SSL(*address, ssl_context=tls, timeout=CLIENT_SECONDS)
    client = imaplib.IMAP4(*address, timeout=CLIENT_SECONDS)
    client.starttls(tls)
    return client


def imap_read(client: imaplib.IMAP4) -> str:
    """The server that the first message of INBOX names."""
    client.select("INBOX", readonly=True)
    _, found = client.fetch("1", "(BODY.PEEK[])")
    match = SERVER_IN_MESSAGE.search(b"".join(part[1] for part in found if isinstance(part, tuple)))
    return match[1].decode() if match else ""


def imap_messages(client: imaplib.IMAP4) -> list[bytes]:
    """All messages of INBOX as they are now."""
    client.select("INBOX", readonly=True)
    _, found = client.fetch("1:*", "(BODY.PEEK[])")
    return [part[1] for part in found if isinstance(part, tuple)]


def imap_server(client: imaplib.IMAP4) -> str:
    """The mailbox server that answers at this moment: by its ID, or by the message where it has none.

    Raises `imaplib.IMAP4.abort` with the farewell when the session has been ended.
    """
    imaplib.Commands["ID"] = ("NONAUTH", "AUTH", "SELECTED")  # or imaplib allows it in the state of its first use only
    try:
        client.xatom("ID", "NIL")
        found = re.search(rb'"name" "([^"]+)"', b" ".join(client.response("ID")[1] or [b""]))
    except imaplib.IMAP4.abort:
        raise
    except imaplib.IMAP4.error:
        found = None
    return found[1].decode() if found else imap_read(client)


def imap_visit(address: Address, tls: ssl.SSLContext, user: str, password: str, *, implicit: bool = True) -> MailAnswer:
    """Sign in, read the message, sign out."""
    client = imap(address, tls, implicit=implicit)
    try:
        client.login(user, password)
        server = imap_read(client)
        client.logout()
    except imaplib.IMAP4.abort as error:
        return MailAnswer(f"connection ended: {error}")
    except imaplib.IMAP4.error as error:
        client.shutdown()
        return MailAnswer(refusal(error))
    return MailAnswer(f"signed in, read the message on {server}", server)


def pop3_visit(address: Address, tls: ssl.SSLContext, user: str, password: str, *, implicit: bool = True) -> MailAnswer:
    """Sign in, STAT, RETR the first message, QUIT."""
    client = _pop3(address, tls, implicit=implicit)
    try:
        client.user(user)
        client.pass_(password)
        count, _ = client.stat()
        match = SERVER_IN_MESSAGE.search(b"\n".join(client.retr(1)[1]))
        client.quit()
    except poplib.error_proto as error:
        client.close()
        return MailAnswer(refusal(error))
    server = match[1].decode() if match else ""
    return MailAnswer(f"signed in, {count} message, read on {server}", server)


def _pop3(address: Address, tls: ssl.SSLContext, *, implicit: bool) -> poplib.POP3:
    if implicit:
        return poplib.POP3_SSL(*address, context=tls, timeout=CLIENT_SECONDS)
    client = poplib.POP3(*address, timeout=CLIENT_SECONDS)
    client.stls(tls)
    return client


def refusal(error: Exception) -> str:
    """What the server said, of an exception of `imaplib` or `poplib`."""
    first = error.args[0] if error.args else ""
    return first.decode(errors="replace") if isinstance(first, bytes) else str(first)


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """Status, headers in lower case, and the facts of the lab's page (empty for other answers)."""

    status: int
    headers: dict[str, str]
    facts: dict[str, Any]
    text: str
    cookies: dict[str, str] = field(default_factory=dict)
    """What the answer sets, by name; an empty value takes a cookie away."""


def web_visit(
    address: Address,
    tls: ssl.SSLContext,
    path: str,
    user: str = "",
    password: str = "",
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "GET",
    body: bytes | None = None,
) -> WebAnswer:
    """Ask for a page; with Basic credentials if a user is given. Raises OSError, `http.client.HTTPException`."""
    sent = {"Accept": "application/json", "Host": "mail.contoso.com"} | dict(headers or {})
    if user:
        sent["Authorization"] = "Basic " + b64encode(f"{user}:{password}".encode()).decode()
    connection = http.client.HTTPSConnection(*address, context=tls, timeout=CLIENT_SECONDS)
    try:
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        kept = {name.lower(): value for name, value in answer.getheaders()}
        cookies = dict(line.partition(";")[0].split("=", 1) for line in answer.headers.get_all("Set-Cookie", []))
    finally:
        connection.close()
    is_json = kept.get("content-type", "").startswith("application/json")
    return WebAnswer(answer.status, kept, json.loads(text) if is_json else {}, text, cookies)
