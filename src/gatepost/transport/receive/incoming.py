"""A message on its way in: its envelope grows by MAIL and RCPT, its content goes to the `BodyWriter`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gatepost.balancing.back_pressure import Pressure
from gatepost.transport.message import Envelope, Recipient, Source, Watcher
from gatepost.transport.ports import BodyWriter, Intake, SpoolFull
from gatepost.wire.smtp_command import MailCommand, RcptCommand
from gatepost.wire.smtp_reply import Reply
from gatepost.wire.smtp_server_events import Asking

NO_RESOURCES = Reply(452, "Insufficient system resources", "4.3.1")
NOT_KEPT = Reply(451, "The message could not be kept, try again later", "4.3.0")


class Incoming:
    """Whom a session asks (see `Judge`): the intake, and the stages of back pressure.

    `source` makes the facts of the connection as they are at MAIL; `trusted`: it is a server of the organization;
    `server`: which one, by its certificate.
    """

    __slots__ = (
        "_intake",
        "_pressure",
        "_server",
        "_size",
        "_source",
        "_trusted",
        "envelope",
        "failure",
        "stored",
        "writer",
    )

    def __init__(
        self,
        intake: Intake[Any],
        source: Callable[[MailCommand], Source],
        trusted: Callable[[], bool],
        server: Callable[[], str] = str,
    ) -> None:
        self._intake = intake
        self._source = source
        self._trusted = trusted
        self._server = server
        self._size: int | None = None
        self.envelope: Envelope | None = None
        self.writer: BodyWriter | None = None
        self.failure: Reply | None = None
        """Why the content cannot be kept; the rest of it is dropped."""
        self.stored = False
        """A message is in the intake's hands; what becomes of the connection does not matter to it."""

    def mail(self, command: MailCommand) -> Reply | None:
        """See `Judge`."""
        intake = self._intake
        if intake.pressure is Pressure.HIGH or (intake.refuses_strangers and not self._trusted()):
            return NO_RESOURCES
        now = time.time()
        envelope = Envelope(
            sender=command.sender,
            recipients=[],
            received=now,
            expires=0.0,
            body=command.body,
            smtputf8=command.smtputf8,
            returns=command.returns,
            envelope_id=command.envelope_id,
            require_tls=command.require_tls,
            source=self._source(command),
        )
        if command.shadow:
            envelope.watchers.append(Watcher(self._server(), command.shadow))
        refused = self._intake.sender(envelope)
        if refused is None:
            self.envelope = envelope
            self._size = command.size
        return refused

    def mail_wait(self) -> float:
        """See `Judge`."""
        return self._intake.tarpit_seconds

    def is_ours(self, address: str) -> bool:
        """See `Judge`. `postmaster` alone is always ours (RFC 5321, section 4.5.1)."""
        return address.lower() == "postmaster" or self._intake.is_ours(address)

    def recipient(self, command: RcptCommand) -> Reply | Asking | None:
        """See `Judge`. One that is named twice gets the message once."""
        envelope = self.envelope
        assert envelope is not None
        refused = self._intake.recipient(envelope, command.address)
        if refused is None and all(known.address != command.address for known in envelope.recipients):
            envelope.recipients.append(Recipient(command.address, command.notify, command.original))
        return refused

    def content_begins(self) -> Reply | None:
        """See `Judge`."""
        envelope = self.envelope
        assert envelope is not None
        if self._intake.pressure is Pressure.HIGH:
            return NO_RESOURCES
        self.failure = None
        try:
            self.writer = self._intake.writer(self._size, envelope)
        except SpoolFull:
            return NO_RESOURCES
        return None

    def content(self, data: bytes) -> None:
        """See `Judge`."""
        if self.writer is not None and self.failure is None:
            self.writer.write(data)

    def forget(self) -> None:
        """See `Judge`."""
        writer, self.writer, self.envelope = self.writer, None, None
        if writer is not None:
            writer.discard()

    def fail(self, reply: Reply) -> None:
        """The content cannot be kept; its sender is told so at its end."""
        self.failure = reply
        if self.writer is not None:
            self.writer.discard()

    async def store(self, *, eight_bit: bool) -> Reply:
        """Hand the message over. Never raises for a fault of the disk."""
        envelope, writer = self.envelope, self.writer
        self.envelope = self.writer = None
        if self.failure is not None:
            return self.failure
        assert envelope is not None
        assert writer is not None
        if eight_bit and envelope.body == "7BIT":
            envelope.body = "8BITMIME"
        envelope.size = writer.size
        self.stored = True
        try:
            return await self._intake.accept(writer, envelope)
        finally:
            self.stored = False
