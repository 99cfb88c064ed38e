"""Reports on their way: what became of recipients is told to senders, by mail that is queued like any other (T13)."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from gatepost.transport.categorizer import Categorizer
from gatepost.transport.dispatch.settling import Happened
from gatepost.transport.message import Envelope
from gatepost.transport.ports import Spool, SpoolFull
from gatepost.transport.reports.builder import Reporter, build
from gatepost.transport.reports.returned import Original, read_original
from gatepost.transport.reports.rules import Notice, tell
from gatepost.transport.shadow.protecting import Protector
from gatepost.transport.shadow.protection import Protection

SHADOW_SECONDS = 30.0
"""How long a report is waited for to be on a second disk, before what it is about is done with."""


class Reporting:
    """Makes the reports that moments call for. `reporter` may be replaced when the configuration changes."""

    def __init__(
        self,
        spool: Spool,
        categorizer: Categorizer,
        reporter: Reporter,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self.reporter = reporter
        self._spool = spool
        self._categorizer = categorizer
        self._clock = clock
        self._log = log
        self._order = itertools.count(int(clock() * 1000))
        self.made = 0
        self.protector: Protector | None = None
        """Who has copies held by other hubs; None: nobody."""

    async def __call__(self, number: int, envelope: Envelope, happened: Happened) -> Happened:
        """Tell the sender of message `number`. When this returns the reports are on disk, but for what it answers: that
        could not be told, for the disk takes nothing now. Never raises.

        Of a message without a sender nobody can be told (RFC 5321, section 4.5.5): the log has it.
        """
        decision = tell(envelope, [(envelope.recipients[place], fate) for place, fate in happened])
        for recipient in decision.dead:
            self._log.warning(
                "message.dead", message=number, recipient=recipient.address, reply=recipient.reply,
                message_id=envelope.message_id,
            )  # fmt: skip
        untold: set[int] = set()
        for notice in decision.notices:
            try:
                await self._make(number, envelope, notice)
            except (SpoolFull, OSError) as fault:
                self._log.error("report.not_made", message=number, sender=envelope.sender, reason=str(fault))
                untold |= {id(telling.recipient) for telling in notice.tellings}
        return [(place, fate) for place, fate in happened if id(envelope.recipients[place]) in untold]

    async def _make(self, number: int, envelope: Envelope, notice: Notice) -> None:
        now = self._clock()
        message_id = f"<{next(self._order):X}.report@{self.reporter.mta}>"
        body = None
        original = Original(b"", whole=False)
        try:
            body = await self._spool.body(number)
            original = await read_original(body.chunks())
        except (KeyError, OSError) as fault:  # a report without the header is better than none
            self._log.error("message.unreadable", message=number, reason=str(fault))
        try:
            report = build(self.reporter, notice, envelope, original, now, message_id)
            writer = self._spool.writer(report.envelope.size)
            protector = self.protector
            protection: Protection | None = None
            try:
                async for block in report.chunks():
                    writer.write(block)
                    if writer.full:
                        await writer.drain()
                report.envelope.size = writer.size
                if protector is not None:
                    protection = protector.begin(report.envelope, getattr(writer, "whole", None))
                told = await self._spool.commit(writer, report.envelope)
            except BaseException:
                writer.discard()
                if protector is not None and protection is not None:
                    protector.abandon(protection)
                raise
        finally:
            if body is not None:
                body.close()
        self.made += 1
        self._log.info("report.made", message=told, about=number, action=notice.action.value, sender=envelope.sender)
        await self._queue(told, report.envelope, protection)

    async def _queue(self, number: int, report: Envelope, protection: Protection | None) -> None:
        if self.protector is None or protection is None:
            self._categorizer.place(number, report)
            return
        self.protector.committed(protection, number)
        self._categorizer.place(number, report)
        await self.protector.acknowledged(protection, SHADOW_SECONDS)
