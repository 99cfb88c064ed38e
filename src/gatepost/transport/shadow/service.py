"""Shadow redundancy at a running hub: the rules with real channels, spool and clock (SPEC S).

every second ─► Primary.tick ──► messages that need not wait, events that are too old
             ─► Keeper.due ────► one contact a hub: events, then questions of both
             ─► Keeper.takeovers ─► Carrying: on disk, then queued
             ─► Protector.look ─► messages without a shadow
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from structlog.typing import FilteringBoundLogger

from gatepost.access import tasks
from gatepost.directory.port import DirectoryUnavailable
from gatepost.organization.model import Organization, Version
from gatepost.transport.categorizer import Categorizer
from gatepost.transport.dispatch import settling
from gatepost.transport.dispatch.settler import Settler
from gatepost.transport.message import Envelope
from gatepost.transport.queues.queues import Queues
from gatepost.transport.recipients import Recipients
from gatepost.transport.shadow.answers import Answers
from gatepost.transport.shadow.carrying import Carrying
from gatepost.transport.shadow.decisions import Drop, Heartbeat, KeeperStep, PrimaryStep, TakeOver
from gatepost.transport.shadow.keeper import Keeper
from gatepost.transport.shadow.listing import Listing
from gatepost.transport.shadow.partners import Partners
from gatepost.transport.shadow.ports import Channel, Channels, Role
from gatepost.transport.shadow.primary import Primary
from gatepost.transport.shadow.protecting import Protector
from gatepost.transport.shadow.redelivery import Redelivery
from gatepost.transport.shadow.redundancy import Redundancy
from gatepost.transport.shadow.safety_net import NetSpool, SafetyNet
from gatepost.transport.shadow.steady import Moments
from gatepost.transport.shadow.tokens import Tokens
from gatepost.wire.shadow_words import ShadowHub

CONTACT_SECONDS = 30.0
"""How long a hub may take to be reached for a heartbeat."""
QUESTION_TOKENS = 1000
ROUNDS = 100
"""Answers with events, and questions, of one contact; the next one goes on."""
TAKEOVERS_AT_ONCE = 500


class ShadowService:
    """Made by the hub; `configure` before `load`. `clock` answers seconds since 1970."""

    def __init__(
        self,
        own: ShadowHub,
        organization: Organization,
        spool: NetSpool,
        settler: Settler,
        queues: Queues,
        categorizer: Categorizer,
        recipients: Recipients,
        channels: Channels,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        config, name, now = organization.transport_config, own.server, clock()
        self._name = name
        self._spool = spool
        self._settler = settler
        self._categorizer = categorizer
        self._recipients = recipients
        self._channels = channels
        self._clock = clock
        self._log = log
        moments = self._moments = Moments()
        self.primary = Primary(name, config, now, moments)
        self.keeper = Keeper(name, config, settler.settings.message_expiration, now, moments)
        self._partners = Partners(organization, name)
        self.tokens = Tokens(own.identity)
        self.redundancy = Redundancy(spool, self.primary, self.keeper, clock)
        self.protector = Protector(
            spool,
            settler.hands,
            channels,
            self.primary,
            self.tokens,
            moments,
            self._keep_anew,
            self.redundancy.note,
            clock,
            log,
        )
        self.redundancy.ended = self.protector.settled
        self.redundancy.carry = self._carry
        self.carrying = Carrying(
            spool, settler.hands, queues, categorizer, self.redundancy, self.primary, self.keeper, clock, log
        )
        self.answers = Answers(spool, self.primary, self.keeper, self.redundancy, self.carrying, moments, clock, log)
        self.listing = Listing(spool, settler.hands, self.keeper)
        self.safety_net = SafetyNet(name, spool, settler.hands, categorizer, recipients, channels, clock, log)
        self.redelivery = Redelivery(name, self.safety_net, spool, channels, clock, log)
        self.safety_net.taken_up = self._taken_up
        self.answers.redeliver_here = self.safety_net.redeliver
        self._spanning: frozenset[str] = frozenset()
        """Databases with copies in several sites."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._taking_over: asyncio.Task[None] | None = None
        self.heartbeats = 0
        """Heartbeats sent."""
        self.lost_heartbeats = 0
        """Those that no hub answered."""
        self.is_on = False

    def configure(self, organization: Organization, message_expiration: float) -> frozenset[str]:
        """Use another organization from now on; the other hubs and edges, who may ask us
        and be asked."""
        config = organization.transport_config
        members = {
            server.name
            for server in organization.servers.values()
            if server.carries_mail and server.version is Version.MODERN
        }
        self._forget(self.primary.configure(config, members))
        self.keeper.configure(config, message_expiration, members)
        self._partners.configure(organization)
        self.is_on = config.shadow_redundancy_enabled and self._name in members and len(members) > 1
        """Whether messages are handed on with a token, and known to the primary."""
        sites = {server.name: server.site for server in organization.servers.values()}
        databases = organization.databases.values()
        self._spanning = frozenset(
            database.name for database in databases if len({sites[copy.server] for copy in database.copies}) > 1
        )
        self.redundancy.active = self.is_on
        keeps = config.shadow_redundancy_enabled and config.safety_net_hold_time > 0
        self.redundancy.hold_time = config.safety_net_hold_time if keeps else 0.0
        self.redundancy.safety_net = frozenset(d.name for d in databases if len(d.copies) > 1) if keeps else frozenset()
        can_protect = self.is_on and not (self._partners.alone and not self._spanning)
        choose = self._choose if can_protect else None
        self.protector.configure(choose, rejects=config.reject_message_on_shadow_failure)
        self.safety_net.configure(organization, message_expiration)
        self.redelivery.configure(organization)
        return frozenset(members - {self._name})

    # Start and end

    async def load(self, put_aside: Iterable[tuple[int, Envelope]] = ()) -> None:
        """Take up what is kept for other hubs, and what they are to hear. Messages that were put aside for a fault are
        not done: their shadows stay. Raises OSError."""
        async for batch in self._spool.kept(Role.SHADOW):
            for kept in batch:
                self.keeper.load(kept.primary, kept.identity, kept.key, kept.number, kept.until)
            await asyncio.sleep(0)
        self.primary.load_events(await self._spool.discards())
        for number, envelope in put_aside:
            if envelope.watchers:
                self.primary.opened(number, envelope.watchers, held=True)
        await self.redelivery.load()

    def found(self, number: int, envelope: Envelope) -> bool:
        """A message of the spool at the start; whether it waits until other hubs have said what they know of it."""
        self.safety_net.found(number, envelope)
        for shadow in envelope.shadows:
            until = self.keeper.until(self._clock())
            self.keeper.load(shadow.primary, shadow.identity, shadow.token, number, until)
            self.redundancy.in_queue.add(number)
        if not (envelope.watchers or self.is_on) or settling.is_settled(envelope):
            return False
        steps = self.primary.load(number, envelope.watchers)
        if steps:
            self._start(self.carrying.primary(steps), "what was noted at the end")
        return self.primary.waits(number) or any(isinstance(step, Drop) for step in steps)

    def loaded(self) -> None:
        """All messages of the spool are known."""
        self.safety_net.loaded()
        self.primary.loaded(self._clock())

    def watched(self, number: int, envelope: Envelope) -> None:
        """A message came whose sender keeps a shadow."""
        self.primary.opened(number, envelope.watchers, held=True)

    def _taken_up(self, number: int, envelope: Envelope) -> None:
        """A message of the safety net is one of the queue again."""
        if envelope.shadows:
            self.redundancy.in_queue.add(number)
        if self.is_on:
            self.primary.opened(number, (), held=False)

    async def end(self) -> None:
        """Ask and take over no more."""
        await self.redelivery.end()
        await self.protector.end()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.redundancy.durable()

    def _keep_anew(self, number: int, envelope: Envelope) -> None:
        self.redundancy.anew(number)
        self._settler.keep(number, envelope)

    # What goes on

    def tick(self, now: float) -> None:
        """Every second."""
        steps, old = self.primary.tick(now, self.carrying.is_busy)
        if steps:
            self._start(self.carrying.primary(steps), "queue what has waited")
        if old:
            self._forget(old)
        for heartbeat in self.keeper.due(now, self.primary.wanted()):
            self._start(self._contact(heartbeat), "contact a hub")
        is_free = self._taking_over is None or self._taking_over.done()
        if is_free and (takeovers := self.keeper.takeovers(TAKEOVERS_AT_ONCE)):
            self._taking_over = self._start(self._take_over(takeovers), "take messages over")
        self.protector.look(now)
        self.safety_net.tick(now)

    async def _take_over(self, takeovers: list[TakeOver]) -> None:
        while takeovers:
            for takeover in takeovers:
                await self.carrying.take_over(takeover)
            takeovers = self.keeper.takeovers(TAKEOVERS_AT_ONCE)

    def _forget(self, old: list[tuple[str, str]]) -> None:
        by_server: dict[str, list[str]] = {}
        for server, token in old:
            by_server.setdefault(server, []).append(token)
        for server, tokens in by_server.items():
            self._log.info("shadow.events_too_old", server=server, events=len(tokens))
            self._settler.later(self._spool.forget_discards(server, tokens), 0)

    async def _contact(self, heartbeat: Heartbeat) -> None:
        """Ask a hub what it has finished, and what else there is to ask."""
        self.heartbeats += 1
        server = heartbeat.server
        try:
            async with asyncio.timeout(CONTACT_SECONDS):  # a TimeoutError is an OSError
                channel = await self._channels.channel(server, heartbeat=True)
            more = await self._ask_events(server, channel, heartbeat)
            await self._ask_questions(server, channel)
            self.keeper.ended(heartbeat, self._clock(), more=more)
        except BaseException as fault:
            self.lost_heartbeats += 1
            self.keeper.failed(heartbeat, self._clock())
            self._log.info("shadow.heartbeat_failed", server=server, reason=str(fault) or type(fault).__name__)
            if not isinstance(fault, OSError):
                raise

    async def _ask_events(self, server: str, channel: Channel, heartbeat: Heartbeat) -> bool:
        """What it has finished; whether there is more. The next question acknowledges the answer, so what that means
        is on disk before."""
        moment = heartbeat.moment
        for _ in range(ROUNDS):
            events, more = await channel.ask()
            now = self._clock()
            self._heard(server, channel.identity, moment)
            steps: list[KeeperStep] = []
            others: list[PrimaryStep] = []
            for event in events:
                step = self.keeper.event(server, event, now)
                if step is not None:
                    steps.append(step)
                elif event.places is None:
                    others += self.primary.finished(server, event.token, self.carrying.is_busy)
                else:
                    others += self.primary.progressed(server, event)
            await self.carrying.primary(others)
            await self.carrying.keeper(steps)
            if not more:
                return False
            moment = self._moments.next()
        return True

    async def _ask_questions(self, server: str, channel: Channel) -> None:
        """What its part is in copies of both kinds."""
        question, expired = self.keeper.questions(server, self._clock(), QUESTION_TOKENS)
        await self.carrying.keeper(expired)
        if question is not None:
            statuses = await channel.statuses(question.tokens)
            self._heard(server, channel.identity, question.moment)
            await self.carrying.keeper(self.keeper.answered(question, channel.identity, statuses))
        for _ in range(ROUNDS):
            question = self.primary.questions(server, QUESTION_TOKENS)
            if question is None:
                break
            try:
                statuses = await channel.statuses(question.tokens, took_over=question.took_over)
            except BaseException:
                self.primary.unanswered(question)
                raise
            self._heard(server, channel.identity, question.moment)
            is_busy = self.carrying.is_busy
            await self.carrying.primary(self.primary.answered(question, channel.identity, statuses, is_busy))
            if question.took_over:
                break  # what is being sent there is told again later

    def _heard(self, server: str, identity: str, moment: int) -> None:
        now = self._clock()
        self.primary.heard(server, identity, moment, now)
        self.keeper.heard(server, identity, moment, now)

    def _carry(self, steps: list[KeeperStep]) -> None:
        self._start(self.carrying.keeper(steps), "let copies go")

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = tasks.start(work, name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Partners

    def _choose(self, envelope: Envelope) -> list[str]:
        databases = self._databases(envelope) if self._spanning else ()
        return self._partners.choose(databases, self._channels.ready)

    def _databases(self, envelope: Envelope) -> set[str]:
        """Those of the recipients' mailboxes that have copies in several sites."""
        found: set[str] = set()
        for recipient in envelope.recipients:
            if self._categorizer.domain_kind(recipient.address) is None:
                continue
            try:
                mailbox = self._recipients.find(recipient.address)
            except DirectoryUnavailable:
                break
            database = mailbox.mailbox.database if mailbox is not None else None
            if database in self._spanning:
                found.add(str(database))
        return found

    def counters(self) -> dict[str, int]:
        """Numbers for the operator."""
        return {
            "kept": self._spool.kept_count,
            "shadow_held": sum(queue.count for queue in self.keeper.queues()),
            "shadow_received": self.answers.held,
            "shadow_unprotected": self.primary.unprotected_count,
            "shadow_made": self.protector.made,
            "shadow_failed": self.protector.failed,
            "shadow_discarded": self.redundancy.discarded,
            "shadow_shrunk": self.carrying.shrunk,
            "shadow_resubmitted": self.carrying.resubmitted,
            "safety_net_redelivered": self.safety_net.redelivered,
            "heartbeats": self.heartbeats,
            "heartbeats_failed": self.lost_heartbeats,
        }
