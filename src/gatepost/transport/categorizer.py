"""The categorizer: finds the next hop of each recipient and queues the message there (SPEC T3).

One copy travels for all recipients that share a next hop (delayed fan-out): they are one item in its queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from structlog.typing import FilteringBoundLogger

from gatepost.directory.port import DirectoryUnavailable
from gatepost.organization.names import wire_domain
from gatepost.organization.transport import DomainKind, TransportSettings
from gatepost.routing.decision import Mailbox
from gatepost.routing.mail.fan_out import Copy
from gatepost.routing.mail.outcome import Refused, Route, Routed
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
"""Until a message is routed again that could not be."""
MAX_KINDS = 10_000
"""Domains whose kind is remembered as they were written; strangers choose them."""

Failed = Callable[[int, Envelope, settling.Happened], None]
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
        self.active: Mapping[str, str] = {}
        """The server of each database's active copy; pushed by the registry's watch."""
        self.unreachable_sites: frozenset[str] = frozenset()
        """None of their hubs can be reached now: mail for them waits nearer to them (queue at point of failure)."""
        self.touch: Callable[[DeliveryQueue], None] = queues.touch
        self.failed: Failed = lambda _number, _envelope, _happened: None
        self.lacks_directory = False
        """Somebody could not be looked up since this was last set to False."""
        self._kinds: dict[str, DomainKind | None] = {}
        self._queues = queues
        self._recipients = recipients
        self._clock = clock
        self._log = log

    def domain_kind(self, address: str) -> DomainKind | None:
        """What the address's domain is to the organization; None when it is none of its domains."""
        domain = address.rpartition("@")[2] if "@" in address else self.router.organization.default_domain
        kind = self._kinds.get(domain)
        if kind is None and domain not in self._kinds:
            if len(self._kinds) >= MAX_KINDS:
                self._kinds.clear()
            kind = self._kinds[domain] = self.router.organization.domain_kinds.get(wire_domain(domain))
        return kind

    def use(self, router: MailRouter, settings: TransportSettings) -> None:
        """Route by another organization from now on."""
        self.router = router
        self.settings = settings
        self._kinds.clear()

    def knows(self, address: str) -> bool:
        """Whether somebody has the address. Raises `DirectoryUnavailable`."""
        return self._recipients.find(address) is not None

    async def ask(self, name: str) -> None:
        """Wait until a name of the directory (`NotAsked`) is known, or cannot be. Never raises."""
        await self._recipients.ask(name)

    async def learn(self, envelope: Envelope, places: Iterable[int]) -> None:
        """Wait until the directory has told of these recipients, or cannot. Never raises."""
        for place in places:
            address = envelope.recipients[place].address
            if self.domain_kind(address) is not None:
                with suppress(DirectoryUnavailable):
                    await self._recipients.find_by_asking(address)

    def place(
        self,
        number: int,
        envelope: Envelope,
        places: Iterable[int] | None = None,
        *,
        after: NextHop | None = None,
    ) -> None:
        """Queue a message for those of its recipients, or all, that are still to be delivered.

        What leads to `after`, the next hop it comes from, again waits a little: that is where there was no way. A queue
        that has not been reached, but may be, has its own time.
        """
        try:
            self._place(number, envelope, places, after)
        except Exception:  # noqa: BLE001 - the message is ours: whatever its routing trips over, it stays queued
            self._log.exception("message.not_routed", message=number)
            waiting = settling.open_places(envelope, range(len(envelope.recipients)) if places is None else places)
            item = Item(number, waiting, envelope.size, envelope.expires, self._attend(envelope))
            item.due = self._clock() + LOOK_UP_AGAIN_SECONDS
            self.touch(self._queues.add(SUBMISSION, item, self._clock()))

    def _place(self, number: int, envelope: Envelope, places: Iterable[int] | None, after: NextHop | None) -> None:
        now = self._clock()
        wanted = settling.open_places(envelope, range(len(envelope.recipients)) if places is None else places)
        routes: list[Routed] = []
        routed: list[int] = []
        happened: settling.Happened = []
        for place in wanted:
            route = self._route(envelope, place)
            if isinstance(route, Refused):
                happened += settling.fail(envelope, (place,), str(route.reply))
            else:
                routes.append(route)
                routed.append(place)
        attend = self._attend(envelope)
        for copy in self._copies(routes):
            places = tuple(routed[index] for index in copy.recipients)
            item = Item(number, places, envelope.size, envelope.expires, attend)
            item.suspended = envelope.suspended
            if copy.next_hop == SUBMISSION or (copy.next_hop == after and not self._is_retried(after)):
                item.due = now + LOOK_UP_AGAIN_SECONDS
            self.touch(self._queues.add(copy.next_hop, item, now))
        if happened:
            self.failed(number, envelope, happened)

    def _is_retried(self, next_hop: NextHop) -> bool:
        queue = self._queues.queue(next_hop, self._clock())
        return queue.failures > 0 and self.router.destination(next_hop, self.active) is not None

    def _copies(self, routes: list[Routed]) -> list[Copy]:
        if len(routes) == 1:
            return [Copy(routes[0].next_hop, (0,))]
        return self.router.copies(routes, self.unreachable_sites) if routes else []

    def _route(self, envelope: Envelope, place: int) -> Route:
        recipient = envelope.recipients[place]
        mailbox: Mailbox | None = None
        if self.domain_kind(recipient.address) is not None:
            try:
                found = self._recipients.find(recipient.address)
            except DirectoryUnavailable:
                self.lacks_directory = True
                return Routed(SUBMISSION)
            mailbox = found.mailbox if found is not None else None
        internal = envelope.source.internal
        return self.router.route(
            recipient.address, mailbox, self.active, envelope.size, self.unreachable_sites, internal=internal
        )

    def _attend(self, envelope: Envelope) -> float:
        delay = envelope.received + self.settings.delay_notification
        open_recipients = (r for r in envelope.recipients if r.state in settling.OPEN)
        return min(envelope.expires, delay) if not all(r.delay_told for r in open_recipients) else envelope.expires
