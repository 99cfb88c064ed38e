"""What a simulated hub says to other hubs, carries out of the rules' decisions, and may be excused for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from shadow_world import DECODE, Disk, World

from gatepost.organization.transport import TransportConfig
from gatepost.transport.message import Envelope
from gatepost.transport.shadow import copies
from gatepost.transport.shadow import decisions as words
from gatepost.transport.shadow.decisions import Heartbeat, KeeperStep, PrimaryStep, Question
from gatepost.transport.shadow.keeper import Keeper
from gatepost.transport.shadow.primary import Primary
from gatepost.transport.shadow.steady import Moments
from gatepost.wire.shadow_messages import Discarded, Status

LIMIT = 3
"""Tokens and events in one question, so that there are several."""
Answer = Callable[[Any], None]


class Others:
    """The part of a hub that faces other hubs."""

    world: World
    name: str
    settings: TransportConfig
    generation: int
    alive: bool
    hung: bool
    up_since: float
    disk: Disk
    primary: Primary
    keeper: Keeper
    moments: Moments
    envelopes: dict[int, Envelope]
    busy: set[int]
    acknowledged: dict[str, list[str]]
    clock: Callable[[], float]
    is_busy: Callable[[int], bool]
    dispatch: Callable[[int], None]
    write: Callable[..., None]
    finish: Callable[..., None]

    # Other hubs

    def hears(self, server: str, identity: str, moment: int) -> None:
        now = self.clock()
        self.primary.heard(server, identity, moment, now)
        self.keeper.heard(server, identity, moment, now)

    def contact(self, heartbeat: Heartbeat) -> None:
        server = heartbeat.server
        target = self.world.hubs[server]
        acknowledged = self.acknowledged.pop(server, [])

        def answered(answer: tuple[str, list[Discarded], bool]) -> None:
            identity, events, more = answer
            self.hears(server, identity, heartbeat.moment)
            if events:
                self.world.mark(self, "hears events")
            for event in events:
                self.event(server, event)

            def carried_out() -> None:
                self.acknowledged[server] = [event.token for event in events]
                self.ask_on(heartbeat, more)

            self.disk.sync(carried_out)

        self.world.request(
            self,
            target,
            partial(target.asked, self.name, self.disk.identity, acknowledged),
            answered,
            lambda: self.keeper.failed(heartbeat, self.clock()),
        )

    def ask_on(self, heartbeat: Heartbeat, more: bool) -> None:
        """The questions of keeper and primary, one after the other."""
        server, now = heartbeat.server, self.clock()
        question, steps = self.keeper.questions(server, now, LIMIT)
        self.take_keeper(steps)
        of_keeper = question is not None
        if question is None:
            question = self.primary.questions(server, LIMIT)
        if question is None:
            self.keeper.ended(heartbeat, now, more=more or bool(self.acknowledged.get(server)))
            return
        asked: Question = question

        def answered(answer: tuple[str, list[int]]) -> None:
            identity, statuses = answer
            self.hears(server, identity, asked.moment)
            self.world.seen[f"answers to {'keeper' if of_keeper else 'primary'}"] += 1
            self.world.mark(self, "hears of a part")
            if of_keeper:
                self.take_keeper(self.keeper.answered(asked, identity, statuses))
            else:
                self.excuse_unknown(server, asked, statuses)
                self.take(self.primary.answered(asked, identity, statuses, self.is_busy))
            self.disk.sync(next_question)

        def next_question() -> None:
            if asked.took_over:
                self.keeper.ended(heartbeat, self.clock(), more=False)  # what is busy there is told again later
            else:
                self.ask_on(heartbeat, more)

        def lost() -> None:
            if not of_keeper:
                self.primary.unanswered(asked)
            self.keeper.failed(heartbeat, self.clock())

        target = self.world.hubs[server]
        self.world.request(
            self,
            target,
            partial(target.statuses, self.name, self.disk.identity, asked.tokens, asked.took_over),
            answered,
            lost,
        )

    def asked(self, server: str, identity: str, acknowledged: list[str], reply: Answer) -> None:
        self.world.mark(self, "is asked for events")
        self.hears(server, identity, self.moments.next())
        events, gone = self.primary.ask(server, acknowledged, LIMIT)
        if gone:
            self.disk.forget(server, gone)
        reply((self.disk.identity, list(events), len(events) == LIMIT))

    def statuses(self, server: str, identity: str, tokens: Sequence[str], took_over: bool, reply: Answer) -> None:
        self.hears(server, identity, self.moments.next())
        if took_over:
            self.take(self.primary.told(server, identity, tokens, self.is_busy))

        def answer() -> None:
            self.world.mark(self, "answers for its part")
            found = []
            for token in tokens:
                status = self.keeper.status(server, token)
                found.append(status if status is not Status.UNKNOWN else self.primary.status(server, token))
            reply((self.disk.identity, found))

        self.disk.sync(answer)

    def event(self, server: str, event: Discarded) -> None:
        step = self.keeper.event(server, event, self.clock())
        if step is not None:
            self.take_keeper([step])
        elif event.places is None:
            self.take(self.primary.finished(server, event.token, self.is_busy))
        else:
            self.take(self.primary.progressed(server, event))

    # Carrying out

    def take(self, steps: Sequence[PrimaryStep]) -> None:
        for step in steps:
            if isinstance(step, words.Note):
                self.disk.note(step.server, step.event)
        for step in steps:
            self.world.seen[type(step).__name__] += 1
            match step:
                case words.GoOn(number):
                    self.dispatch(number)
                case words.Unwatch(number, tokens):
                    envelope = self.envelopes.get(number)
                    if envelope is not None:
                        copies.unwatch(envelope, tokens)
                        self.write(number, envelope)
                case words.Settle(number, places, server, token):
                    envelope = self.envelopes.get(number)
                    if envelope is not None and (settled := copies.settle(envelope, places, server, token)):
                        self.finish(number, envelope, settled)
                case words.Follow(number, server, identity, token):
                    self.follow(number, server, identity, token)
                case words.Drop(number, server, token):
                    envelope = self.envelopes.get(number)
                    if envelope is not None and number not in self.busy:
                        places = copies.drop(envelope, server, token)
                        self.after_leaving(number, envelope, places, server, token)

    def follow(self, number: int, server: str, identity: str, token: str) -> None:
        envelope = self.envelopes.get(number)
        if envelope is None or number in self.busy:
            return
        self.world.mark(self, "follows")
        self.world.mark(self.world.hubs[server], "is followed")
        places = copies.follow(envelope, server, identity, token, self.clock())
        self.world.say(f"{self.name} follows {server} in {envelope.message_id} ({token})")

        def on_disk() -> None:
            if copies.find_shadow(envelope, server, token) is not None:
                self.take_keeper(self.keeper.keep(server, identity, token, number, self.keeper.until(self.clock())))

        self.after_leaving(number, envelope, places, server, token, on_disk)

    def after_leaving(
        self,
        number: int,
        envelope: Envelope,
        places: list[int],
        server: str,
        token: str,
        then: Callable[[], None] | None = None,
    ) -> None:
        self.busy.add(number)

        def on_disk() -> None:
            self.busy.discard(number)
            self.take(self.primary.left(number, server, token))
            if then is not None:
                then()
            self.dispatch(number)

        self.finish(number, envelope, places, on_disk)

    def take_keeper(self, steps: Sequence[KeeperStep]) -> None:
        for step in steps:
            self.world.seen[type(step).__name__] += 1
            match step:
                case words.LetGo(number, server, token) | words.ToSafetyNet(number, server, token):
                    envelope = self.envelopes.get(number)
                    if envelope is not None:
                        copies.let_go(envelope, server, token)
                        self.write(number, envelope)
                case words.Shrink(number, server, token, places):
                    envelope = self.envelopes.get(number)
                    if envelope is not None and copies.shrink(envelope, server, token, places):
                        self.write(number, envelope)

    def take_over(self, takeover: words.TakeOver) -> None:
        number, server, token = takeover.number, takeover.server, takeover.token
        envelope = self.envelopes[number]
        self.world.seen[f"taken over: {takeover.reason.name}"] += 1
        self.world.mark(self, "takes over")
        again = copies.take_over(envelope, server, token)
        self.excuse_takeover(envelope, again, server, takeover.reason)
        was_busy = number in self.busy
        self.busy.add(number)

        def on_disk() -> None:
            self.world.mark(self, "has taken over")
            if not was_busy:
                self.busy.discard(number)
            self.primary.took_over(number, envelope.watchers, server, token)
            if self.keeper.taken(takeover):
                self.take(self.primary.finished(server, token, self.is_busy))
            self.dispatch(number)

        self.disk.put(number, envelope, on_disk)

    # What may be delivered again, and why

    def excuse_takeover(self, envelope: Envelope, again: list[int], server: str, reason: words.Reason) -> None:
        world, name = self.world, envelope.message_id
        world.say(f"{self.name} takes {name} over from {server}: {reason.name}")
        primary = world.hubs[server]
        if primary.alive and reason is not words.Reason.IDENTITY and reason is not words.Reason.BOTH_HELD:
            world.excuse(name, "a live primary was held dead")
        for place in again:
            address = envelope.recipients[place].address
            if world.delivered[address] or self.elsewhere(address, server):
                world.excuse(name, "a primary was gone before its shadow server heard of what it had settled")
        if self.copies_of(name, server) > 1:
            world.excuse(name, "a primary was gone before it could release a second copy")

    def excuse_unknown(self, server: str, question: Question, statuses: Sequence[int]) -> None:
        """A watcher knows nothing of what it may have had, and may have taken over."""
        for token, status in zip(question.tokens, statuses, strict=True):
            if status == Status.UNKNOWN:
                for envelope in self.envelopes.values():
                    if any(w.token == token for w in envelope.watchers):
                        for place in copies.open_places(envelope):
                            address = envelope.recipients[place].address
                            if self.world.delivered[address] or self.elsewhere(address, ""):
                                why = (
                                    "a watcher has forgotten what it had taken over, or was told of what was not noted"
                                )
                                self.world.excuse(envelope.message_id, why)

    def excuse_going_on(self, envelope: Envelope) -> None:
        """The time of fencing is over: a watcher could not answer, or this is a fault."""
        world = self.world
        for watcher in envelope.watchers:
            hub = world.hubs[watcher.server]
            there = hub.alive and not hub.hung and world.reachable(self.name, hub.name) and not world.loss
            if not there or world.now - max(hub.up_since, world.unwell) < self.settings.shadow_fence_time:
                world.excuse(envelope.message_id, "a hub waited long enough for what its watchers say")

    def copies_of(self, name: str, primary: str) -> int:
        """How many shadows of a message of `primary` there are on disks."""
        records = [r for hub in self.world.hubs.values() for r in hub.disk.records.values() if r.message == name]
        return sum(shadow.primary == primary for record in records for shadow in DECODE(record.blob).shadows)

    def elsewhere(self, address: str, but: str) -> bool:
        """Whether another hub is responsible for it."""
        for hub in self.world.hubs.values():
            if hub is self or hub.name == but:
                continue
            dead = [DECODE(record.blob) for record in hub.disk.records.values()] if not hub.alive else []
            for envelope in hub.envelopes.values() if hub.alive else dead:
                for recipient in envelope.recipients:
                    if recipient.address == address and recipient.state in copies.OPEN:
                        return True
        return False
