"""The safety net: delivered messages that are kept for a while, and delivered again after a loss (exchange-facts 4.5).

    settled ──► kept for each database ──► too old: let go (`ShadowSpool.expire`)
                        │ a copy was activated that may lack mail, or an operator asks: (database, [since, until])
                        ▼
    taken up: open again for who has the mailbox there today, nobody is told, routed anew ──► delivered, kept again

What its primary keeps as well, the shadow server leaves to that: it asks it, and takes its own copies up only when the
primary has another queue database or cannot be asked for long. A message that is taken up is kept no more, and what is
kept after its second delivery is of a later time: so a request that is begun again after a crash repeats nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from math import nextafter
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from gatepost.access import tasks
from gatepost.balancing.back_pressure import Pressure
from gatepost.directory.port import DirectoryUnavailable
from gatepost.organization.model import Organization
from gatepost.transport.categorizer import Categorizer
from gatepost.transport.dispatch import settling
from gatepost.transport.dispatch.hands import Hands
from gatepost.transport.message import Envelope, Notify, RecipientState
from gatepost.transport.recipients import Recipients
from gatepost.transport.shadow.boundary import boundary_sites
from gatepost.transport.shadow.ports import Channels, Kept
from gatepost.transport.shadow.redelivery_requests import MAX_NAME, Facts, Request, Requests
from gatepost.transport.shadow.redundancy import KeepingSpool

A_SECOND = 100
"""Messages that are taken up in a second: mailbox servers have just lost one of theirs."""
AGAIN_SECONDS = 60.0
"""Until a primary is asked again that did not answer, and a fault of disk or directory is tried again."""
PRESSURE_SECONDS = 2.0
"""Until back pressure is looked at again."""
FORGET_SECONDS = 600.0
"""Between two looks for requests that are too old."""
SLICE_SECONDS = 300.0
"""Of the interval of a request: what was delivered in it is read at once."""
LATEST_SECONDS = 10.0
"""The end of what is asked for lies so far ahead at most: who asks may have another clock."""
REACH_SECONDS = 30.0
"""How long another hub may take to be reached and to answer."""


class NetSpool(KeepingSpool, Facts, Protocol):
    """A spool that keeps copies and facts."""


class SafetyNet:
    """Of one hub. `clock` answers seconds since 1970; `configure` before `load`."""

    def __init__(
        self,
        name: str,
        spool: NetSpool,
        hands: Hands,
        categorizer: Categorizer,
        recipients: Recipients,
        channels: Channels,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self._name = name
        self._spool = spool
        self._hands = hands
        self._categorizer = categorizer
        self._recipients = recipients
        self._channels = channels
        self._clock = clock
        self._log = log
        self._organization = Organization("")
        self._expiration = 0.0
        self.requests = Requests(spool)
        self.taken_up: Callable[[int, Envelope], None] = lambda _number, _envelope: None
        """Told of each message before it is queued again."""
        self._again: dict[int, None] = {}
        """Messages in the queue that were taken up for one database and had been delivered to others as well."""
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._forgetting: asyncio.Task[None] | None = None
        self._forgot_at = float("-inf")
        self._pausing = False
        self._queue_known = asyncio.Event()
        self._turn = asyncio.Lock()
        """One message is taken up at a time, whatever the number of requests."""
        self.redelivered = 0
        """Messages that were taken up."""

    def configure(self, organization: Organization, message_expiration: float) -> None:
        """Use another organization from now on."""
        self._organization = organization
        self._expiration = message_expiration

    # Start and end

    async def load(self) -> None:
        """Go on with what was asked for before. Raises OSError."""
        await self.requests.load()
        for request in self.requests.all():
            if not request.done:
                self._begin(request)

    def found(self, number: int, envelope: Envelope) -> None:
        """A message of the queue at the start."""
        if envelope.quiet and envelope.databases:
            self._again[number] = None

    def loaded(self) -> None:
        """All messages of the queue are known: what was asked for may begin."""
        self._queue_known.set()

    def tick(self, now: float) -> None:
        """Every second: forget requests that are too old, now and then."""
        if now - self._forgot_at >= FORGET_SECONDS and (self._forgetting is None or self._forgetting.done()):
            self._forgot_at = now
            self._forgetting = tasks.start(self._forget(now), "forget old requests to deliver again")

    async def end(self) -> None:
        """Do no more. What is left of the requests goes on after the next start."""
        working = [*self._under_way.values(), *([self._forgetting] if self._forgetting is not None else [])]
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)

    # Asked

    async def redeliver(self, name: str, database: str, since: float, until: float) -> int:
        """See `Answering`: how many messages of our own are taken up for it, in the background. Raises OSError,
        ValueError for a request that is none."""
        if len(name) > MAX_NAME:
            raise ValueError("a request's name is too long")
        request = await self.ask(name, database, since, until)
        return request.found if request is not None else 0

    async def ask(self, name: str, database: str, since: float, until: float) -> Request | None:
        """Begin with a request, or tell what is known of it: it is carried out once. None: the database has no copy in
        this site, and nothing is delivered across that boundary. Raises OSError, ValueError."""
        known = self.requests.get(name)
        if known is not None:
            return known
        if not self.is_within(database):
            self._log.info("safety_net.outside", request=name, database=database)
            return None
        now = self._clock()
        request = Request(name, database, since, min(until, now + LATEST_SECONDS), now)
        async for kept in self._kept(request):
            request.found += sum(not each.primary for each in kept)
        known = self.requests.get(name)  # somebody else may have asked meanwhile
        if known is not None:
            return known
        await self.requests.add(request)
        self._log.warning(
            "safety_net.redelivering", request=name, database=database, since=since, until=until, found=request.found
        )
        self._begin(request)
        return request

    def is_within(self, database: str) -> bool:
        """Whether this hub is inside of the database's boundary."""
        own = self._organization.servers.get(self._name)
        return own is not None and own.site in boundary_sites(self._organization, database)

    # One request

    def _begin(self, request: Request) -> None:
        task = tasks.start(self._carry_out(request), f"deliver {request.database} again")
        self._under_way[request.request] = task
        task.add_done_callback(lambda _: self._under_way.pop(request.request, None))

    async def _carry_out(self, request: Request) -> None:
        await self._queue_known.wait()
        await asyncio.sleep(max(0.0, request.until - self._clock()))
        while True:
            try:
                if await self._once(request):
                    break
            except (OSError, DirectoryUnavailable) as fault:
                self._log.error("safety_net.waits", request=request.request, reason=str(fault))
            await asyncio.sleep(AGAIN_SECONDS)
        request.done = True
        self._log.warning(
            "safety_net.redelivered", request=request.request, database=request.database, messages=request.count
        )
        await self.requests.keep(request)

    async def _once(self, request: Request) -> bool:
        """Take up what can be taken up now; whether that was all. Raises OSError, `DirectoryUnavailable`."""
        others: set[tuple[str, str]] = set()
        async for kept in self._kept(request):
            others |= {(each.primary, each.identity) for each in kept if each.primary}
            await self._take_up(request, (each.number for each in kept if not each.primary))
        await self._take_up(request, list(self._again), queued=True)
        answers = {other: await self._answers_for(request, *other) for other in sorted(others)}
        gone = {other for other, answer in answers.items() if answer is False}
        if gone:
            async for kept in self._kept(request):
                await self._take_up(request, (e.number for e in kept if (e.primary, e.identity) in gone))
        return None not in answers.values()

    async def _kept(self, request: Request) -> AsyncIterator[list[Kept]]:
        """What is kept for it, by slices of time: at no moment all that a database has got in days. Raises OSError."""
        longest = self._organization.transport_config.safety_net_hold_time + SLICE_SECONDS
        at = max(request.since, request.asked - longest)
        while at <= request.until:
            end = at + SLICE_SECONDS
            found = await self._spool.kept_since(request.database, at, min(request.until, nextafter(end, at)))
            if found:
                yield found
            at = end

    async def _answers_for(self, request: Request, primary: str, identity: str) -> bool | None:
        """Whether the primary of a shadow delivers it again itself; None while that cannot be said."""
        if primary not in self._organization.servers:
            return False
        try:
            async with asyncio.timeout(REACH_SECONDS):
                channel = await self._channels.channel(primary, heartbeat=True)
                if channel.identity != identity:
                    return False
                await channel.redeliver(request.request, request.database, request.since, request.until)
        except OSError as fault:  # a TimeoutError is one
            silent = self._clock() - request.asked
            gone = silent >= self._organization.transport_config.shadow_resubmit_time_span
            self._log.info(
                "safety_net.primary_silent", request=request.request, server=primary, taken_over=gone,
                reason=str(fault) or "no answer",
            )  # fmt: skip
            return False if gone else None
        return True

    async def _take_up(self, request: Request, numbers: Iterable[int], *, queued: bool = False) -> None:
        """Not more than so many a second, and none under back pressure. Raises OSError, `DirectoryUnavailable`."""
        for number in numbers:
            async with self._turn:
                await self._calm()
                if await self._deliver_again(request, number, queued=queued):
                    request.count += 1
                    self.redelivered += 1
                    await asyncio.sleep(1.0 / A_SECOND)

    async def _calm(self) -> None:
        """Until there is no back pressure (exchange-facts 4.12: resubmission pauses)."""
        while self._spool.pressure is not Pressure.NORMAL:
            if not self._pausing:
                self._pausing = True
                self._log.info("safety_net.pauses", pressure=self._spool.pressure.name.lower())
            await asyncio.sleep(PRESSURE_SECONDS)
        self._pausing = False

    async def _deliver_again(self, request: Request, number: int, *, queued: bool) -> bool:
        """Take a message up that is kept, or (`queued`) one that is being delivered again to another database."""
        try:
            envelope = await self._hands.take(number)
        except KeyError:  # it is gone: too old, or in the queue again for another request
            self._again.pop(number, None)
            return False
        try:
            is_meant = request.database in envelope.databases and request.since <= envelope.delivered <= request.until
            if not is_meant or settling.is_settled(envelope) is queued:
                return False
            places = self._lost(request, envelope)
            if not places:
                return False
            for place in places:
                recipient = envelope.recipients[place]
                recipient.state, recipient.reply, recipient.server = RecipientState.WAITING, "", ""
                recipient.attempts, recipient.notify = 0, Notify.NEVER  # so that the next hub is quiet as well
            envelope.databases.remove(request.database)  # until it has been delivered there once more
            if queued:
                await self._spool.update(number, envelope)
            else:
                envelope.quiet, envelope.unprotected, envelope.suspended = True, True, False
                envelope.watchers, envelope.crashes = [], 0
                envelope.expires = self._clock() + self._expiration
                await self._spool.take_back(number, envelope)
                self.taken_up(number, envelope)
            if envelope.databases:
                self._again[number] = None
            self._log.info(
                "safety_net.resubmitted", event_id="RESUBMIT", source="SAFETYNET", message=number,
                database=request.database, request=request.request, message_id=envelope.message_id,
            )  # fmt: skip
            with self._spool.in_hand(number):
                self._categorizer.place(number, envelope, places)
        finally:
            self._hands.give_back(number)
        return True

    def _lost(self, request: Request, envelope: Envelope) -> list[int]:
        """The recipients that were delivered and whose mailbox is in the database today. Raises
        `DirectoryUnavailable`."""
        found = []
        for place, recipient in enumerate(envelope.recipients):
            if recipient.state != RecipientState.DELIVERED:
                continue
            if self._categorizer.domain_kind(recipient.address) is None:
                continue
            mailbox = self._recipients.find(recipient.address)
            if mailbox is not None and mailbox.mailbox.database == request.database:
                found.append(place)
        return found

    async def _forget(self, now: float) -> None:
        """Requests that nobody asks for any more: all that they are about has been let go of. Never raises."""
        hold_time = self._organization.transport_config.safety_net_hold_time
        for request in self.requests.all():
            is_old = now - max(request.until, request.asked) > hold_time + self._expiration
            if is_old and request.done and not request.hubs:
                try:
                    await self.requests.forget(request)
                except OSError as fault:
                    self._log.error("safety_net.not_kept", request=request.request, reason=str(fault))
