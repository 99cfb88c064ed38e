"""A server's side of SMTP for tests: what it says to each piece that the client machine sends, in any splits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gatepost.wire.events import Send, StartTls
from gatepost.wire.smtp_client import SmtpClient
from gatepost.wire.smtp_client_events import (
    ClientEvent,
    ClientSettings,
    Fate,
    Finished,
    SendContent,
    Step,
)

MAIL = b"MAIL FROM:<a@x.test>\r\n"
RCPTS = [b"RCPT TO:<b@x.test>\r\n", b"RCPT TO:<c@x.test>\r\n", b"RCPT TO:<d@x.test>\r\n"]
GREETING = b"220 mx.x.test ready\r\n"
EHLO = b"250-mx.x.test\r\n250-PIPELINING\r\n250 8BITMIME\r\n"
PLAIN_EHLO = b"250 mx.x.test\r\n"
CONTENT = b"Subject: s\r\n\r\nx\r\n"

Splitter = Callable[[bytes], Sequence[bytes]]


def at_once(said: bytes) -> Sequence[bytes]:
    """No split."""
    return [said]


class Play:
    """A client machine with its driver: TLS and content are given as soon as they are asked for."""

    def __init__(self, split: Splitter = at_once, **settings: Any) -> None:
        self.client = SmtpClient(ClientSettings(**({"name": "us.test"} | settings)))
        self.split = split
        self.sent = b""
        self.events: list[ClientEvent] = []

    def hear(self, said: bytes) -> bytes:
        """The server says this; what it is sent in turn."""
        before = len(self.sent)
        for piece in self.split(said):
            self.take(self.client.receive(piece))
        return self.sent[before:]

    def take(self, events: list[ClientEvent]) -> None:
        """Carry events out."""
        for event in events:
            if isinstance(event, Send):
                self.sent += event.data
                continue
            self.events.append(event)
            if isinstance(event, StartTls):
                self.take(self.client.tls_started())
            elif isinstance(event, SendContent) and self.client.step is Step.CONTENT:
                self.client.content_end()
                self.sent += CONTENT + b".\r\n"

    def ready(self, ehlo: bytes = EHLO) -> Play:
        """Greeting and EHLO are done."""
        assert self.hear(GREETING) in (b"EHLO us.test\r\n", b"LHLO us.test\r\n")
        assert self.hear(ehlo) == b""
        assert self.client.step is Step.IDLE
        return self

    def begin(self, count: int = 1, *, chunked: bool = False) -> bytes:
        """Begin a transaction for so many recipients."""
        data = self.client.transact(MAIL, RCPTS[:count], chunked=chunked)
        self.sent += data
        return data

    @property
    def finished(self) -> Finished:
        """The one transaction's end."""
        (found,) = [event for event in self.events if isinstance(event, Finished)]
        return found

    @property
    def fates(self) -> list[Fate]:
        """What became of each recipient."""
        return [verdict.fate for verdict in self.finished.verdicts]
