"""The intake: what receive connections hand over becomes ours, on disk and queued, or is refused (SPEC T1, T2)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from gatepost.balancing.back_pressure import SUBMISSION_QUEUE, BackPressure, Pressure
from gatepost.directory.port import DirectoryUnavailable, NotAsked
from gatepost.organization.transport import DomainKind
from gatepost.transport.categorizer import SUBMISSION, Categorizer
from gatepost.transport.headers.filter import HeaderFilter, HeaderPolicy
from gatepost.transport.headers.trace import received_field
from gatepost.transport.message import Envelope
from gatepost.transport.ports import BodyWriter, Spool, SpoolFull
from gatepost.transport.shadow.protecting import NOT_REDUNDANT, Protector
from gatepost.transport.shadow.protection import Protection
from gatepost.wire.smtp_reply import Reply
from gatepost.wire.smtp_server_events import Asking

FULL = Reply(452, "Insufficient system resources", "4.3.1")
NOT_KEPT = Reply(451, "The message could not be kept, try again later", "4.3.0")
UNKNOWN = Reply(550, "There is no mailbox with this address", "5.1.1")
NOT_NOW = Reply(451, "The address cannot be looked up at the moment", "4.3.0")
"""A temporary fault never looks permanent."""
DEFAULT_DELAY = 30.0
"""`max_acknowledgement_delay` of a connector that has gone meanwhile."""


class ContentCheck(Protocol):
    """Who is asked about the content of a message that is on disk and not yet ours."""

    def wants(self, envelope: Envelope) -> bool:
        """Whether the message is to be looked at."""

    async def __call__(self, number: int, envelope: Envelope) -> Reply | None:
        """A reply refuses the message; `envelope.added` may be given header fields. Never raises."""


class MessageWriter:
    """A `BodyWriter` that does the header work on the way to the spool."""

    def __init__(self, writer: BodyWriter, header: HeaderFilter) -> None:
        self._writer = writer
        self.header = header

    @property
    def inner(self) -> BodyWriter:
        """The spool's own."""
        return self._writer

    @property
    def size(self) -> int:
        """Bytes written to the spool."""
        return self._writer.size

    @property
    def full(self) -> bool:
        """See `BodyWriter`."""
        return self._writer.full

    def write(self, data: bytes) -> None:
        """See `BodyWriter`."""
        kept = self.header.feed(data)
        if kept:
            self._writer.write(kept)

    async def drain(self) -> None:
        """See `BodyWriter`."""
        await self._writer.drain()

    def finish(self) -> Reply | None:
        """The content has ended. A reply refuses it."""
        kept = self.header.finish()
        if kept:
            self._writer.write(kept)
        return self.header.refusal

    def discard(self) -> None:
        """See `BodyWriter`."""
        self._writer.discard()


@dataclass(frozen=True, slots=True)
class IntakeSettings:
    """What the organization says of messages that come in. `limits` are header size and hops by connector."""

    fqdn: str = "localhost"
    token: bytes = b""
    """`trace_token` of this hub."""
    message_expiration: float = 2 * 86400.0
    max_header_size: int = 256 * 1024
    max_hops: int = 100
    limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    delays: Mapping[str, float] = field(default_factory=dict)
    """`max_acknowledgement_delay` by connector."""


class Intake:
    """Takes messages of receive connections. `configure` gives it what the organization says."""

    def __init__(
        self,
        spool: Spool,
        categorizer: Categorizer,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self._spool = spool
        self._categorizer = categorizer
        self._clock = clock
        self._log = log
        self._order = itertools.count(int(clock() * 1000))
        self._site = IntakeSettings()
        self.check: ContentCheck | None = None
        """Who is asked about messages before they are ours; None: nobody."""
        self.protector: Protector | None = None
        """Who has copies held by other hubs; None: nobody."""
        self.watched: Callable[[int, Envelope], None] = lambda _number, _envelope: None
        """Told of each message whose sender keeps a shadow of it, before it is queued."""
        self._submission = BackPressure({SUBMISSION.domain: SUBMISSION_QUEUE})
        self.taken = 0
        self.refused = 0

    def configure(self, settings: IntakeSettings) -> None:
        """Use other settings for what begins later."""
        self._site = settings

    @property
    def pressure(self) -> Pressure:
        """See `ports.Intake`: the worse of the spool's and the submission queue's."""
        return max(self._spool.pressure, self._submission.pressure)

    @property
    def refuses_strangers(self) -> bool:
        """See `ports.Intake`."""
        return self._spool.back_pressure.refuses_strangers or self._submission.refuses_strangers

    @property
    def tarpit_seconds(self) -> float:
        """See `ports.Intake`."""
        return max(self._spool.back_pressure.tarpit_seconds, self._submission.tarpit_seconds)

    def meter(self, unrouted: int) -> None:
        """Told each `METERING_SECONDS` how many messages are accepted and not yet routed (exchange-facts 4.12)."""
        before = self._submission.pressure
        now = self._submission.metered({SUBMISSION.domain: unrouted})
        if now is not before:
            self._log.warning("pressure.changed", cause="submission queue", stage=now.name.lower(), messages=unrouted)

    def sender(self, envelope: Envelope) -> Reply | None:  # noqa: ARG002 - every sender may send
        """See `ports.Intake`."""
        return None

    def is_ours(self, address: str) -> bool:
        """See `ports.Intake`."""
        return self._categorizer.domain_kind(address) is not None

    def recipient(self, envelope: Envelope, address: str) -> Reply | Asking | None:  # noqa: ARG002 - whoever sends
        """See `ports.Intake`: in an authoritative domain only mailboxes that are there."""
        if self._categorizer.domain_kind(address) is not DomainKind.AUTHORITATIVE:
            return None
        try:
            return None if self._categorizer.knows(address) else UNKNOWN
        except NotAsked as unknown:
            return Asking(unknown.name)
        except DirectoryUnavailable:
            return NOT_NOW

    async def ask(self, name: str) -> None:
        """See `ports.Intake`."""
        await self._categorizer.ask(name)

    def writer(self, size: int | None, envelope: Envelope) -> MessageWriter:
        """See `ports.Intake`."""
        now = self._clock()
        site, source = self._site, envelope.source
        header_size, hops = site.limits.get(source.connector, (site.max_header_size, site.max_hops))
        submission = bool(source.user) and not source.internal
        policy = HeaderPolicy(
            max_size=header_size, max_hops=hops, token=site.token, submission=submission, trusted=source.internal
        )
        queue_id = f"{next(self._order):X}"
        first = received_field(envelope, site.fqdn, site.token, queue_id, now)
        message_id = f"<{queue_id}.{int(now)}@{site.fqdn}>" if submission else ""
        return MessageWriter(self._spool.writer(size), HeaderFilter(policy, first, now, message_id))

    async def accept(self, writer: MessageWriter, envelope: Envelope) -> Reply:
        """See `ports.Intake`."""
        refusal = writer.finish()
        if refusal is not None:
            writer.discard()
            return self._refuse(envelope, refusal)
        facts = writer.header.facts
        envelope.message_id, envelope.subject = facts.message_id, facts.subject
        envelope.size = writer.size
        envelope.expires = envelope.received + self._site.message_expiration
        envelope.unchecked = self.check is not None and self.check.wants(envelope)
        protection: Protection | None = None
        protector = self.protector if not envelope.watchers else None  # who handed it on keeps a shadow already
        if protector is not None and not envelope.unchecked:
            protection = protector.begin(envelope, getattr(writer.inner, "whole", None))
            if protection is not None and protection.is_over and protector.rejects:
                writer.discard()
                return self._refuse(envelope, NOT_REDUNDANT)
        try:
            number = await self._spool.commit(writer.inner, envelope)
        except (SpoolFull, OSError) as fault:
            if protector is not None and protection is not None:
                protector.abandon(protection)
            if isinstance(fault, SpoolFull):
                return self._refuse(envelope, FULL)
            self._log.error("message.not_kept", reason=str(fault), sender=envelope.sender)
            return self._refuse(envelope, NOT_KEPT)
        if envelope.unchecked:
            refusal, protection = await self._checked(number, envelope, protector)
            if refusal is not None:
                return self._refuse(envelope, refusal)
        if protector is None or protection is None:
            if envelope.watchers:
                self.watched(number, envelope)
            self._take(number, envelope)
        else:
            protector.committed(protection, number)
            delay = self._site.delays.get(envelope.source.connector, DEFAULT_DELAY)
            if protector.rejects:
                refusal = await protector.stands(protection, delay)
                if refusal is not None:
                    await self._forget(number, protector, protection)
                    return self._refuse(envelope, refusal)
                self._take(number, envelope)
            else:
                self._take(number, envelope)
                await protector.acknowledged(protection, delay)
        return Reply(250, f"{envelope.message_id or '<>'} [InternalId={number}] Queued mail for delivery", "2.6.0")

    def _take(self, number: int, envelope: Envelope) -> None:
        self.taken += 1
        self._categorizer.place(number, envelope)

    async def _forget(self, number: int, protector: Protector, protection: Protection) -> None:
        """A message that was not made redundant leaves our disk, and whoever may hold it hears of that."""
        protector.abandon(protection)
        try:
            await self._spool.remove(number)
        except OSError as fault:
            self._log.error("message.not_kept", message=number, reason=str(fault))

    async def _checked(
        self, number: int, envelope: Envelope, protector: Protector | None
    ) -> tuple[Reply | None, Protection | None]:
        """Have the content looked at. What is refused leaves the disk; what is taken is there with its new fields, and
        on its way to another hub's."""
        assert self.check is not None
        refusal = await self.check(number, envelope)
        protection: Protection | None = None
        try:
            if refusal is not None:
                await self._spool.remove(number)
                return refusal, None
            envelope.unchecked = False
            if protector is not None:
                protection = protector.begin(envelope, None)
            await self._spool.update(number, envelope)
        except OSError as fault:
            self._log.error("message.not_kept", message=number, reason=str(fault))
            if protector is not None and protection is not None:
                protector.abandon(protection)
            return NOT_KEPT, None
        return None, protection

    def _refuse(self, envelope: Envelope, reply: Reply) -> Reply:
        self.refused += 1
        self._log.info("message.refused", sender=envelope.sender, client=envelope.source.address, reply=str(reply))
        return reply
