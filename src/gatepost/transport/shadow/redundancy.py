"""What the transport keeps of its messages, with other hubs told (SPEC S1): the settler's `Redundancy`.

    settler ─ kept ─► some recipients are open ─► update, and their progress to the watchers
                  └─► none is ─► discard events ─► set aside: shadows, safety net
                                               └─► removed

Events are asked of the spool before the removal, so they are durable no later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Protocol

from gatepost.routing.next_hop import DeliveryType, NextHop
from gatepost.transport.dispatch import settling
from gatepost.transport.dispatch.ports import Sent
from gatepost.transport.message import Envelope, RecipientState
from gatepost.transport.ports import Spool
from gatepost.transport.shadow import copies
from gatepost.transport.shadow.decisions import KeeperStep, Note, PrimaryStep
from gatepost.transport.shadow.keeper import Keeper
from gatepost.transport.shadow.ports import Kept, Role, ShadowSpool
from gatepost.transport.shadow.primary import Primary
from gatepost.wire.shadow_messages import Discarded

NOBODY: frozenset[str] = frozenset()


class KeepingSpool(Spool, ShadowSpool, Protocol):
    """A spool that keeps shadows as well."""

    kept_count: int
    """Messages that are kept and not queued."""


class Redundancy:
    """Keeps messages in place of the spool. `clock` answers seconds since 1970."""

    def __init__(
        self,
        spool: KeepingSpool,
        primary: Primary,
        keeper: Keeper,
        clock: Callable[[], float],
    ) -> None:
        self._spool = spool
        self._primary = primary
        self._keeper = keeper
        self._clock = clock
        self._told: dict[int, int] = {}
        """Of messages that others watch: how much of them has been told, recipients that are settled or late."""
        self._pending: set[asyncio.Future[None]] = set()
        self.ended: Callable[[int], None] = lambda _number: None
        """Told of each message that has no open recipient any more."""
        self.carry: Callable[[list[KeeperStep]], None] = lambda _steps: None
        """Has steps of the keeper carried out soon."""
        self.active = False
        """Whether messages without watchers are known to the primary."""
        self.safety_net: Collection[str] = NOBODY
        """Databases whose mail is kept for a while after its delivery."""
        self.hold_time = 0.0
        self.in_queue: set[int] = set()
        """Messages of the queue that we keep shadows of as well: others are responsible for some recipients."""
        self.discarded = 0
        """Discard events noted for other hubs."""

    def delivered(self, envelope: Envelope, next_hop: NextHop) -> None:
        """See `settler.Redundancy`."""
        if next_hop.delivery is DeliveryType.MAILBOX and next_hop.domain in self.safety_net:
            if next_hop.domain not in envelope.databases:
                envelope.databases.append(next_hop.domain)
            envelope.delivered = self._clock()

    def handed_on(self, envelope: Envelope, sent: Sent) -> None:
        """See `settler.Redundancy`."""
        primary = sent.primary
        places: dict[str, list[int]] = {}
        for answer in sent.answers:
            if answer.state is RecipientState.SHADOWED:
                places.setdefault(answer.token, []).append(answer.place)
        if primary is not None:
            for token, found in places.items():
                copies.hand_on(envelope, found, primary.server, primary.identity, token, self._clock())

    def anew(self, number: int) -> None:
        """What is settled of a message is told to its watchers once more, though others have heard it before."""
        self._told.pop(number, None)

    def kept(self, number: int, envelope: Envelope) -> Awaitable[None]:
        """See `settler.Redundancy`."""
        for shadow in envelope.shadows:
            if self._keeper.number(shadow.primary, shadow.token) is None:
                until = self._keeper.until(self._clock())
                steps = self._keeper.keep(shadow.primary, shadow.identity, shadow.token, number, until)
                if steps:
                    self.carry(steps)
        if settling.is_settled(envelope):
            return self._end(number, envelope)
        if envelope.shadows:
            self.in_queue.add(number)
        if envelope.watchers and (len(envelope.recipients) > 1 or envelope.recipients[0].delay_told):
            self._tell_progress(number, envelope)
        return self._spool.update(number, envelope)

    def dropped(self, number: int, envelope: Envelope) -> None:
        """An operator has removed a message that was put aside for a fault."""
        if envelope.watchers:
            places = range(len(envelope.recipients))
            self.note(self._primary.settled(number, envelope.watchers, places, whole=True, at=self._clock()))

    def note(self, steps: Iterable[PrimaryStep]) -> None:
        """Have the discard events among them on disk."""
        by_server: dict[str, list[Discarded]] = {}
        for step in steps:
            if isinstance(step, Note):
                by_server.setdefault(step.server, []).append(step.event)
        for server, events in by_server.items():
            self.discarded += len(events)
            self._pend(asyncio.ensure_future(self._spool.note_discards(server, events)))

    async def durable(self) -> None:
        """Until the events that were noted so far are on disk."""
        if self._pending:
            await asyncio.wait(list(self._pending))

    def aside(self, number: int, envelope: Envelope, primary: str = "", identity: str = "") -> list[Kept]:
        """What a message is kept for that has no open recipient. `primary` has delivered it, if we have not, and keeps
        it in its safety net as well."""
        now, keeper = self._clock(), self._keeper
        kept = [
            Kept(number, Role.SHADOW, shadow.token, shadow.primary, shadow.identity, keeper.until(now))
            for shadow in envelope.shadows
            if keeper.number(shadow.primary, shadow.token) is not None
        ]
        if envelope.databases and self.hold_time:
            kept += (
                Kept(number, Role.SAFETY_NET, database, primary, identity, envelope.delivered + self.hold_time)
                for database in envelope.databases
            )
        return kept

    def _end(self, number: int, envelope: Envelope) -> Awaitable[None]:
        self.in_queue.discard(number)
        self._told.pop(number, None)
        if self.active or envelope.watchers:
            everybody = range(len(envelope.recipients))
            databases = envelope.databases if self.hold_time else ()
            at = envelope.delivered or self._clock()
            steps = self._primary.settled(number, envelope.watchers, everybody, whole=True, at=at, databases=databases)
            if steps:
                self.note(steps)
            envelope.watchers = []  # they have been told
        self.ended(number)
        if (envelope.shadows or envelope.databases) and (kept := self.aside(number, envelope)):
            return self._spool.set_aside(number, envelope, kept)
        return self._spool.remove(number)

    def _tell_progress(self, number: int, envelope: Envelope) -> None:
        settled = [place for place, each in enumerate(envelope.recipients) if each.state not in settling.OPEN]
        late = [place for place, each in enumerate(envelope.recipients) if each.delay_told]
        if len(settled) + len(late) > self._told.get(number, 0):
            self._told[number] = len(settled) + len(late)
            at = self._clock()
            self.note(self._primary.settled(number, envelope.watchers, settled, whole=False, at=at, late=late))

    def _pend(self, future: asyncio.Future[None]) -> None:
        self._pending.add(future)
        future.add_done_callback(self._pended)

    def _pended(self, future: asyncio.Future[None]) -> None:
        self._pending.discard(future)
        if not future.cancelled():
            future.exception()
