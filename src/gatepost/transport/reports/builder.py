"""Makes the message of a report: multipart/report (RFC 6522) in its three parts, and the envelope to send it with."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass

from gatepost.transport.headers.trace import date
from gatepost.transport.headers.words import encoded, folded, printable
from gatepost.transport.message import BodyType, Envelope, Recipient, Source
from gatepost.transport.reports.returned import (
    MAX_HEADER,
    Original,
    base64_lines,
    in_base64,
    is_plain,
    quoted_printable,
    strict_lines,
)
from gatepost.transport.reports.rules import Action, Notice
from gatepost.transport.reports.status import is_international, status_part
from gatepost.transport.reports.text import TITLES, human_text

MAX_RETURNED = 1024 * 1024
"""Octets of a message that is given back whole; of a larger one only the header."""
_BOUNDARY_KEY = secrets.token_bytes(16)
"""Nobody can foresee a boundary and put it into the message that is given back."""
MAX_SUBJECT = 200
MAX_ADDRESS = 512


@dataclass(frozen=True, slots=True)
class Reporter:
    """Who reports: the hub's host name, and whom the reports are from (empty: `postmaster` at that host)."""

    mta: str
    address: str = ""
    name: str = "Mail Delivery System"
    max_returned: int = MAX_RETURNED
    lifetime: float = 2 * 86400.0
    """Seconds that a report is tried (`message_expiration`)."""


@dataclass(slots=True)
class Report:
    """A report to put into the queue. `envelope.size` is exact unless the message is given back whole."""

    envelope: Envelope
    head: bytes
    tail: bytes
    returned: AsyncIterator[bytes] | None = None
    """The message, where it is given back whole."""

    async def chunks(self) -> AsyncIterator[bytes]:
        """The content, to be read once. Raises what reading the message raises."""
        yield self.head
        if self.returned is not None:
            async for block in self.returned:
                if block:
                    yield block
        yield self.tail


@dataclass(frozen=True, slots=True)
class _Part:
    """One part. The line end before a boundary belongs to the boundary."""

    kind: str
    coding: str
    content: bytes
    description: str

    def encode(self, boundary: bytes) -> bytes:
        head = (
            f"Content-Description: {self.description}\r\n"
            f"Content-Type: {self.kind}\r\nContent-Transfer-Encoding: {self.coding}\r\n\r\n"
        )
        return b"".join((b"\r\n--", boundary, b"\r\n", head.encode(), self.content))


def build(
    reporter: Reporter, notice: Notice, envelope: Envelope, original: Original, now: float, message_id: str
) -> Report:
    """The report `notice` on the message of `envelope`, whose sender is not empty.

    `message_id` is the report's own, with angle brackets; no other message has it.
    Raises ValueError for a message without a sender (RFC 3464, section 2: no report on a report).
    """
    if not envelope.sender:
        raise ValueError("a message without a sender causes no report")
    # A sender beyond ASCII has a way for such mail; to others everything beyond it goes encoded (RFC 6533, section 3).
    raw = envelope.smtputf8 and not envelope.sender.isascii()
    boundary = b"=_" + hashlib.blake2s(message_id.encode(), digest_size=15, key=_BOUNDARY_KEY).hexdigest().encode()
    international = is_international(envelope, notice)
    parts = [
        _text_part(envelope, notice, reporter.mta),
        _status(envelope, notice, reporter.mta, now, raw, international),
    ]
    kind = "global-delivery-status" if international else "delivery-status"
    head = _header(reporter, notice, envelope, now, message_id, raw)
    head += (
        f"MIME-Version: 1.0\r\nContent-Type: multipart/report; report-type={kind};\r\n"
        f' boundary="{boundary.decode()}"\r\n'
    ).encode()
    last, returned = _third_part(reporter, notice, envelope, original, raw)
    eight = raw or last.coding == "8bit"
    if eight:
        head += b"Content-Transfer-Encoding: 8bit\r\n"
    content = head + b"\r\n" + b"".join(part.encode(boundary) for part in [*parts, last])
    tail = b"\r\n--" + boundary + b"--\r\n"
    size = len(content) + len(tail) + (envelope.size if returned is not None else 0)
    return Report(
        Envelope(
            sender="",
            recipients=[Recipient(envelope.sender)],
            received=now,
            expires=now + reporter.lifetime,
            size=size,
            body=BodyType.EIGHT_BIT if eight else BodyType.SEVEN_BIT,
            smtputf8=raw,
            source=Source(name=reporter.mta, protocol="local", internal=True),
            message_id=message_id,
            subject=_subject(notice, envelope),
        ),
        content,
        tail,
        returned,
    )


def _third_part(
    reporter: Reporter, notice: Notice, envelope: Envelope, original: Original, raw: bool
) -> tuple[_Part, AsyncIterator[bytes] | None]:
    """The header given back; or the head of the part that gives all back, and what is to be written in it."""
    if original.body is None or not _gives_all(reporter, notice, envelope, original):
        return _header_part(envelope, original), None
    first, limit = original.header + b"\r\n", reporter.max_returned
    description = "Your message"
    if not envelope.smtputf8 or original.header.isascii():
        return _Part("message/rfc822", "8bit", b"", description), strict_lines(first, original.body, limit)
    if raw:
        return _Part("message/global", "8bit", b"", description), strict_lines(first, original.body, limit)
    return _Part("message/global", "base64", b"", description), in_base64(first, original.body, limit)


def _gives_all(reporter: Reporter, notice: Notice, envelope: Envelope, original: Original) -> bool:
    # RET counts for failures only (RFC 3461, section 4.3). Binary content has no line ends that could be kept.
    return (
        notice.action is Action.FAILED
        and envelope.returns.upper() == "FULL"
        and envelope.body != BodyType.BINARY
        and original.whole
        and envelope.size <= reporter.max_returned
    )


def _subject(notice: Notice, envelope: Envelope) -> str:
    title = TITLES[notice.action]
    return printable(f"{title}: {envelope.subject}", MAX_SUBJECT) if envelope.subject else f"{title} mail"


def _header(reporter: Reporter, notice: Notice, envelope: Envelope, now: float, message_id: str, raw: bool) -> bytes:
    sender = printable(envelope.sender, MAX_ADDRESS)
    author = reporter.address or f"postmaster@{reporter.mta}"
    subject = _subject(notice, envelope)
    fields = [
        folded("From", [*encoded(reporter.name), f"<{author}>"]),
        folded("To", [f"<{sender if raw else sender.encode('ascii', 'replace').decode()}>"]),
        folded("Subject", encoded(subject)),
        f"Date: {date(now)}\r\n",
        folded("Message-ID", [message_id]),
        "Auto-Submitted: auto-replied\r\n",  # RFC 3834, section 5
    ]
    # What it answers (RFC 3834, section 3.1.5), where that is in a form to be repeated.
    answered = envelope.message_id
    if answered.isascii() and answered.startswith("<") and answered.endswith(">") and " " not in answered:
        fields += [folded("In-Reply-To", [answered]), folded("References", [answered])]
    return "".join(fields).encode()


def _text_part(envelope: Envelope, notice: Notice, mta: str) -> _Part:
    text = human_text(envelope, notice, mta).encode("utf-8", "replace")
    coding, content = ("7bit", text) if is_plain(text) else ("quoted-printable", quoted_printable(text))
    return _Part("text/plain; charset=utf-8", coding, content, "What happened")


def _status(envelope: Envelope, notice: Notice, mta: str, now: float, raw: bool, international: bool) -> _Part:
    content = status_part(envelope, notice, mta, now, international).encode("utf-8", "replace")
    if not international:
        return _Part("message/delivery-status", "7bit", content, "Delivery report")
    if raw:
        return _Part("message/global-delivery-status", "8bit", content, "Delivery report")
    return _Part("message/global-delivery-status", "base64", base64_lines(content), "Delivery report")


def _header_part(envelope: Envelope, original: Original) -> _Part:
    header = original.header
    if len(header) > MAX_HEADER:
        header = header[: header.rfind(b"\n", 0, MAX_HEADER) + 1]
    description = "Header of your message"
    if is_plain(header):
        return _Part("text/rfc822-headers", "7bit", header, description)
    kind = "message/global-headers" if envelope.smtputf8 else "text/rfc822-headers"
    return _Part(kind, "quoted-printable", quoted_printable(header), description)
