"""The categorizer: finds the next hop of each recipient and queues the message there (SPEC T3).

One copy travels for all recipients that share a next hop (delayed fan-out): they are one item in its queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from structlog.typing import FilteringBoundLogger

from gatepost.directory.port import DirectoryUnavailable
from gatepost.organization.transport import DomainKind, TransportSettings
from gatepost.routing.decision import ActiveCopy, Mailbox
from gatepost.routing.mail.outcome import Refused
from gatepost.routing.mail.router import MailRouter
from gatepost.routing.next_hop import DeliveryType, NextHop
from gatepost.transport.dispatch import settling
from gatepost.transport.message import Envelope
from gatepost.transport.queues.delivery_queue import DeliveryQueue
from gatepost.transport.queues.item import Item
from gatepost.transport.queues.queues import Queues
from gatepost.transport.recipients import Recipients

SUBMISSION = NextHop(DeliveryType.UNDEFINED, "Submission")
"""The queue of messages whose recipients cannot be looked up now."""
LOOK_UP_AGAIN_SECONDS = 30.0

Failed = Callable[[int, Envelope, settling.Told], None]
"""Called with recipients that routing refuses: their senders are to be told."""


class Categorizer:
    """Routes messages to queues. `touch` is told of each queue that has got something."""

    def __init__(
        self,
        queues: Queues,
        recipients: Recipients,
        router: MailRouter,
        settings: TransportSettings,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self.router = router
        self.settings = settings
        self.active: Mapping[str, ActiveCopy] = {}
        """Where each database is now; pushed by the registry's watch."""
        self.unreachable_sites: frozenset[str] = frozenset()
        """None of their hubs can be reached now: mail for them waits nearer to them (queue at point of failure)."""
        self.touch: Callable[[DeliveryQueue], None] = queues.touch
        self.failed: Failed = lambda _number, _envelope, _told: None
        self._queues = queues
        self._recipients = recipients
        self._clock = clock
        self._log = log

    def domain_kind(self, address: str) -> DomainKind | None:
        """What the address's domain is to the organization; None when it is none of its domains."""
        return self.router.domain_kind(address)

    def knows(self, address: str) -> bool:
        """Whether somebody has the address. Raises `DirectoryUnavailable`."""
        return self._recipients.find(address) is not None

    def place(self, number: int, envelope: Envelope, places: Iterable[int] | None = None) -> None:
        """Queue a message for those of its recipients, or all, that are still to be delivered."""
        now = self._clock()
        wanted = settling.open_places(envelope, range(len(envelope.recipients)) if places is None else places)
        groups: dict[NextHop, list[int]] = {}
        refused: list[tuple[int, str]] = []
        for place in wanted:
            outcome = self._route(envelope, place)
            if isinstance(outcome, str):
                refused.append((place, outcome))
            else:
                groups.setdefault(outcome, []).append(place)
        attend = self._attend(envelope)
        for next_hop, found in groups.items():
            item = Item(number, tuple(found), envelope.size, envelope.expires, attend)
            item.suspended = envelope.suspended
            if next_hop is SUBMISSION:
                item.due = now + LOOK_UP_AGAIN_SECONDS
            self.touch(self._queues.add(next_hop, item, now))
        if refused:
            told = settling.Told()
            for place, reply in refused:
                told.failed += settling.fail(envelope, (place,), reply).failed
            self.failed(number, envelope, told)

    def _route(self, envelope: Envelope, place: int) -> NextHop | str:
        recipient = envelope.recipients[place]
        mailbox: Mailbox | None = None
        if self.router.domain_kind(recipient.address) is not None:
            try:
                found = self._recipients.find(recipient.address)
            except DirectoryUnavailable:
                return SUBMISSION
            mailbox = found.mailbox if found is not None else None
        outcome = self.router.route(recipient.address, mailbox, self.active, envelope.size, self.unreachable_sites)
        return str(outcome.reply) if isinstance(outcome, Refused) else outcome.next_hop

    def _attend(self, envelope: Envelope) -> float:
        delay = envelope.received + self.settings.delay_notification
        open_recipients = (r for r in envelope.recipients if r.state in settling.OPEN)
        return min(envelope.expires, delay) if not all(r.delay_told for r in open_recipients) else envelope.expires
