"""The world that simulated hubs live in: clock, network, disks, next servers; and who judges what became of the mail.

Time is simulated; all chance comes from one seed. A disk takes writes in order and in groups; a kill loses the end of
what is on its way. Requests and answers are delayed one by one, so they overtake each other, and get lost, across a cut
all of them. A hub that hangs takes up afterwards what came meanwhile.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from gatepost.transport.message import Envelope, RecipientState
from gatepost.wire.shadow_messages import Discarded

LIVE = frozenset({RecipientState.WAITING, RecipientState.UNCERTAIN, RecipientState.SHADOWED})
EPOCH = 1_800_000_000.0
ENCODE = msgspec.msgpack.Encoder().encode
DECODE = msgspec.msgpack.Decoder(Envelope).decode
SILENT_SECONDS = 3.0
"""A request without an answer is given up after so long, or twice that."""


class Hub(Protocol):
    """What the world knows of a hub's process."""

    name: str
    generation: int
    alive: bool
    hung: bool
    waiting: list[Callable[[], None]]


@dataclass
class Record:
    """A message on a disk."""

    message: str
    live: frozenset[str]
    blob: bytes


class Disk:
    """One queue database."""

    def __init__(self, world: World, owner: str, identity: str) -> None:
        self.world = world
        self.owner = owner
        self.identity = identity
        self.records: dict[int, Record] = {}
        self.discards: dict[str, dict[str, Discarded]] = {}
        self.pending: list[tuple[Callable[[], None] | None, Callable[[], None] | None, str]] = []
        self.flushing = False
        self.gone = False

    def put(self, number: int, envelope: Envelope, done: Callable[[], None] | None = None) -> None:
        live = frozenset(r.address for r in envelope.recipients if r.state in LIVE)
        record = Record(envelope.message_id, live, ENCODE(envelope))
        self._begin(lambda: self._set(number, record), done, envelope.message_id)

    def remove(self, number: int, message: str) -> None:
        self._begin(lambda: self._set(number, None), None, message)

    def note(self, server: str, event: Discarded) -> None:
        self._begin(lambda: self.discards.setdefault(server, {}).__setitem__(event.token, event), None, "")

    def forget(self, server: str, tokens: list[str]) -> None:
        def forget() -> None:
            events = self.discards.get(server, {})
            for token in tokens:
                events.pop(token, None)

        self._begin(forget, None, "")

    def sync(self, done: Callable[[], None]) -> None:
        """When all that was begun is on disk."""
        if self.pending:
            self._begin(None, done, "")
        else:
            done()

    def undone(self) -> set[str]:
        """Messages of which something is on its way to disk."""
        return {message for _, _, message in self.pending if message}

    def crash(self) -> None:
        """The process has died: some of what was on its way is there, in order."""
        kept = self.world.chance.randint(0, len(self.pending))
        for change, _, _ in self.pending[:kept]:
            if change is not None:
                change()
        self.pending = []
        self.flushing = False

    def lose(self) -> None:
        for number in list(self.records):
            self._set(number, None)
        self.gone = True

    def _begin(self, change: Callable[[], None] | None, done: Callable[[], None] | None, message: str) -> None:
        self.pending.append((change, done, message))
        if not self.flushing:
            self.flushing = True
            world = self.world
            hub = world.hubs[self.owner]
            world.at(world.now + world.chance.uniform(0.002, 0.05), lambda: self._flush(hub.generation), hub)

    def _flush(self, generation: int) -> None:
        ready, self.pending, self.flushing = self.pending, [], False
        for change, _, _ in ready:
            if change is not None:
                change()
        for _, done, _ in ready:
            if done is not None:
                done()

    def _set(self, number: int, record: Record | None) -> None:
        before = self.records.pop(number, None)
        if record is not None:
            self.records[number] = record
        holders = self.world.holders
        now = record.live if record is not None else frozenset()
        was = before.live if before is not None else frozenset()
        for address in now - was:
            holders[address] += 1
        for address in was - now:
            holders[address] -= 1
            if not holders[address]:
                self.world.judge(address, f"{self.owner} let go of it")


@dataclass
class Mail:
    """One message as one hub took it. Each attempt of a sender is another."""

    name: str
    addresses: list[str]
    acknowledged: bool = False
    alone: bool = False
    """Acknowledged without a copy, as the policy wants it; until there is one."""
    excuses: set[str] = field(default_factory=set)


class World:
    """Everything."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], None], Any, int]] = []
        self.count = 0
        self.hubs: dict[str, Any] = {}
        self.holders: Counter[str] = Counter()
        self.mails: dict[str, Mail] = {}
        self.delivered: Counter[str] = Counter()
        self.duplicates: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.cuts: Counter[frozenset[str]] = Counter()
        self.loss = 0.0
        self.down: Counter[str] = Counter()
        """Sites whose next server does not answer."""
        self.unwell = 0.0
        """When something was last wrong with the fleet."""
        self.armed: dict[tuple[str, str], Callable[[], None]] = {}
        """Faults that come when a hub reaches a stage."""
        self.steps = 0
        self.seen: Counter[str] = Counter()
        """What happened, so that a test can tell whether it has tested anything."""
        self.trace: Callable[[str], None] | None = None

    # Stages

    def mark(self, hub: Any, stage: str) -> None:
        """A hub is at this stage of the protocol: a fault may be waiting for it."""
        self.seen[f"stage: {stage}"] += 1
        act = self.armed.pop((hub.name, stage), None)
        if act is not None:
            self.at(self.now + self.chance.choice((0.0, 0.0, 0.01, 0.03)), act)

    # Time

    def at(self, time: float, act: Callable[[], None], hub: Any = None) -> None:
        """`act` at `time`; of a hub only in this life of its process, and after it hung."""
        self.count += 1
        generation = hub.generation if hub is not None else 0
        heapq.heappush(self.events, (time, self.count, act, hub, generation))

    def run(self, until: float, done: Callable[[], bool] | None = None) -> None:
        events = self.events
        check = self.now + 2.0
        while events and events[0][0] <= until and not self.wrong:
            self.now, _, act, hub, generation = heapq.heappop(events)
            if hub is not None:
                if hub.generation != generation or not hub.alive:
                    continue
                if hub.hung:
                    hub.waiting.append(act)
                    continue
            self.steps += 1
            act()
            if done is not None and self.now >= check:
                check = self.now + 2.0
                if done():
                    return
        self.now = max(self.now, until)

    def say(self, text: str) -> None:
        if self.trace is not None:
            self.trace(f"{self.now:8.3f} {text}")

    # Network

    def reachable(self, one: str, other: str) -> bool:
        return not self.cuts[frozenset((one, other))]

    def request(
        self,
        source: Any,
        target: Any,
        handle: Callable[[Callable[[Any], None]], None],
        answered: Callable[[Any], None],
        lost: Callable[[], None],
    ) -> None:
        """A question over a connection. `handle` runs at the target; one of `answered` and `lost` at the source."""
        chance = self.chance
        open_ = [True]
        now, life, theirs = self.now, source.generation, target.generation

        def give_up() -> None:
            if open_[0]:
                open_[0] = False
                lost()

        def back(answer: Any) -> None:
            if open_[0]:
                open_[0] = False
                answered(answer)

        def answer(result: Any) -> None:
            if self.reachable(source.name, target.name) and chance.random() >= self.loss and source.generation == life:
                self.at(self.now + chance.uniform(0.001, 0.02) + self._late(), lambda: back(result), source)

        def arrive() -> None:
            if target.generation != theirs or not target.alive:
                if source.generation == life and self.reachable(source.name, target.name):
                    self.at(self.now + 0.01, give_up, source)  # refused, or reset
            elif target.hung:
                target.waiting.append(lambda: handle(answer))
            else:
                handle(answer)

        self.at(now + SILENT_SECONDS * chance.choice((1.0, 1.0, 2.0)), give_up, source)
        if self.reachable(source.name, target.name) and chance.random() >= self.loss:
            self.at(now + chance.uniform(0.001, 0.02) + self._late(), arrive)

    def _late(self) -> float:
        return self.chance.uniform(0.0, 4.0) if self.chance.random() < 0.02 else 0.0

    # Judging

    def judge(self, address: str, why: str) -> None:
        """An acknowledged recipient is at every instant on a disk, or delivered."""
        mail = self.mails[address.partition("/")[0]]
        if mail.acknowledged and not self.holders[address] and not self.delivered[address]:
            if mail.alone:
                self.seen["lost, acknowledged alone"] += 1
                mail.acknowledged = False
            else:
                self.wrong.append(f"{self.now:.3f}: {address} is lost: {why}")

    def acknowledge(self, name: str, *, alone: bool) -> None:
        mail = self.mails[name]
        mail.acknowledged, mail.alone = True, alone
        for address in mail.addresses:
            self.judge(address, "it was acknowledged")

    def deliver(self, address: str, hub: str) -> None:
        self.delivered[address] += 1
        self.say(f"{address} is delivered by {hub}, {self.delivered[address]}.")
        if self.delivered[address] > 1:
            mail = self.mails[address.partition("/")[0]]
            if not mail.excuses:
                self.wrong.append(f"{self.now:.3f}: {address} is delivered by {hub} again, for no known reason")
            for excuse in sorted(mail.excuses) or ["none"]:
                self.duplicates[excuse] += 1
                break

    def new_mail(self, recipients: list[str]) -> Mail:
        """One more, as a hub takes it."""
        name = f"m{len(self.mails) + 1}"
        mail = self.mails[name] = Mail(name, [f"{name}/{recipient}" for recipient in recipients])
        return mail

    def excuse(self, message: str, why: str) -> None:
        """From now on this message may be delivered again."""
        self.mails[message].excuses.add(why)
        self.say(f"{message} may be delivered again: {why}")
