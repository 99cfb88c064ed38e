"""A simulated hub: the real rules of shadow redundancy, driven as the hub drives them, over a model of the rest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from shadow_hub_others import LIMIT, Answer, Others
from shadow_world import DECODE, ENCODE, EPOCH, Disk, World

from gatepost.organization.transport import TransportConfig
from gatepost.transport.message import Envelope, Recipient, RecipientState, Watcher
from gatepost.transport.shadow import copies
from gatepost.transport.shadow import decisions as words
from gatepost.transport.shadow.keeper import Keeper
from gatepost.transport.shadow.primary import Primary
from gatepost.transport.shadow.steady import Moments

TICK = 1.0
STAGES = (
    "offers a copy", "is offered a copy", "has a copy on disk", "hears that a copy is held", "acknowledges",
    "hands on", "is handed a message", "has a handed message on disk", "hears that it was handed on",
    "is sending", "has sent", "notes what was settled", "is asked for events", "hears events", "answers for its part",
    "hears of a part", "takes over", "has taken over", "follows", "is followed", "protects anew",
)  # fmt: skip
FAILING = "bad"
"""Recipients whose address ends so are refused by the next server."""


class SimulatedHub(Others):
    """One hub. Addresses are `message/recipient@site`; each site has its own next server."""

    def __init__(self, world: World, name: str, site: str, settings: TransportConfig, *, reject: bool) -> None:
        self.world = world
        self.name = name
        self.site = site
        self.settings = settings
        self.reject = reject
        self.generation = 0
        self.alive = False
        self.hung = False
        self.waiting: list[Callable[[], None]] = []
        self.clock_ahead = 0.0
        self.disk = Disk(world, name, f"{name}1")
        self.disks = 1
        self.numbers = 0
        self.tokens = 0
        self.up_since = 0.0
        self.turn = 0

    # Life

    def start(self) -> None:
        if self.alive:
            return
        self.alive, self.hung, self.waiting = True, False, []
        self.up_since = self.world.now
        now = self.clock()
        self.moments = Moments()
        self.primary = Primary(self.name, self.settings, now, self.moments)
        self.keeper = Keeper(self.name, self.settings, 1000.0, now, self.moments)
        self.primary.configure(self.settings, self.world.hubs)
        self.keeper.configure(self.settings, 1000.0, self.world.hubs)
        self.envelopes: dict[int, Envelope] = {}
        self.busy: set[int] = set()
        self.sending: set[str] = set()
        self.accepting: dict[int, Callable[[], None]] = {}
        self.acknowledged: dict[str, list[str]] = {}
        self.held_back: set[int] = set()
        """Messages that are not sent before it is certain that they are accepted."""
        self.primary.load_events({s: list(events.values()) for s, events in self.disk.discards.items()})
        for number, record in self.disk.records.items():
            envelope = self.envelopes[number] = DECODE(record.blob)
            for shadow in envelope.shadows:
                self.keeper.load(shadow.primary, shadow.identity, shadow.token, number, self.keeper.until(now))
        self.loading = [n for n, envelope in self.envelopes.items() if copies.open_places(envelope)]
        self.later(self.world.chance.uniform(0.0, TICK), self.tick)
        self.load()

    def load(self) -> None:
        """Take up message after message of the queue."""
        if not self.loading:
            self.primary.loaded(self.clock())
            return
        number = self.loading[-1]
        if number in self.envelopes and number not in self.busy:
            steps = self.primary.load(number, self.envelopes[number].watchers)
            self.loading.pop()
            self.take(steps)
            self.dispatch(number)
        self.later(self.world.chance.uniform(0.0, 0.5), self.load)

    def kill(self, *, lose_disk: bool = False) -> None:
        if not self.alive:
            return
        for name in self.sending | self.disk.undone():
            self.world.excuse(name, "a hub died between a server's taking it and its noting that")
        self.generation += 1
        self.alive, self.hung, self.waiting = False, False, []
        self.disk.crash()
        if lose_disk:
            self.disk.lose()
            self.disks += 1
            self.disk = Disk(self.world, self.name, f"{self.name}{self.disks}")

    def hang(self) -> None:
        if self.alive:
            self.hung = True

    def go_on(self) -> None:
        if self.hung:
            self.hung = False
            waiting, self.waiting = self.waiting, []
            self.up_since = self.world.now
            generation = self.generation
            self.world.chance.shuffle(waiting)
            for act in waiting:
                if self.generation == generation:
                    act()

    def clock(self) -> float:
        return EPOCH + self.world.now + self.clock_ahead

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        self.world.at(self.world.now + seconds, act, self)

    def is_busy(self, number: int) -> bool:
        return number in self.busy

    def tick(self) -> None:
        self.later(TICK, self.tick)
        now = self.clock()
        steps, old = self.primary.tick(now, self.is_busy)
        for step in steps:
            if isinstance(step, words.GoOn):
                self.excuse_going_on(self.envelopes[step.number])
        self.take(steps)
        for server, token in old:
            self.disk.forget(server, [token])
        for heartbeat in self.keeper.due(now, self.primary.wanted()):
            self.contact(heartbeat)
        for takeover in self.keeper.takeovers(LIMIT):
            self.take_over(takeover)
        for number in self.primary.unprotected(LIMIT):
            self.protect_anew(number)

    # Taking messages

    def accept(self, recipients: list[str], reply: Answer) -> None:
        """From a sender that knows no shadow redundancy. Replies whether it is accepted."""
        self.commit(recipients, reply, reject=self.reject)

    def commit(self, wanted: list[str], reply: Answer, *, reject: bool) -> None:
        mail = self.world.new_mail(wanted)
        name = mail.name
        recipients = [Recipient(address) for address in mail.addresses]
        envelope = Envelope("", recipients, self.clock(), self.clock() + 1000.0, message_id=name)
        number = self.next_number()
        self.envelopes[number] = envelope
        state = {"disk": False, "copy": "", "answered": False}
        partners = self.partners(envelope)

        def look() -> None:
            if state["disk"] and number not in self.envelopes:
                state["copy"] = "delivered"
            if state["answered"] or not state["disk"] or not state["copy"]:
                return
            if state["copy"] == "none" and reject:
                finish_refused()
                return
            state["answered"] = True
            self.accepting.pop(number, None)
            self.held_back.discard(number)
            self.world.seen["acknowledged " + str(state["copy"])] += 1
            self.world.mark(self, "acknowledges")
            self.world.acknowledge(name, alone=state["copy"] == "none")
            if state["copy"] == "none":
                self.primary.still_unprotected(number)
            reply(True)
            self.dispatch(number)

        def finish_refused() -> None:
            state["answered"] = True
            self.accepting.pop(number, None)
            self.held_back.discard(number)
            left = self.envelopes.pop(number)
            places = list(range(len(left.recipients)))
            for note in self.primary.settled(number, left.watchers, places, whole=True, at=self.clock()):
                self.disk.note(note.server, note.event)
            self.disk.remove(number, name)
            reply(False)

        def delayed() -> None:
            if not state["answered"] and not state["copy"]:
                state["copy"] = "none"
                look()

        def done(copy: str) -> None:
            if state["copy"] == "none" and copy == "held":
                self.protected(name)
            if not state["copy"]:
                state["copy"] = copy
            look()

        def on_disk() -> None:
            state["disk"] = True
            look()
            if not reject:
                self.dispatch(number)

        self.accepting[number] = look
        if reject:
            self.held_back.add(number)
        if not partners:
            state["copy"] = "none"
            self.primary.opened(number, [], held=False)
            self.disk.put(number, envelope, on_disk)
            return
        token = self.next_token()
        envelope.watchers.append(Watcher(partners[0], token))
        self.primary.opened(number, envelope.watchers, held=False)
        self.disk.put(number, envelope, on_disk)
        self.offer(number, partners[0], token, partners[1:], done)
        self.later(8.0, delayed)

    def partners(self, envelope: Envelope) -> list[str]:
        hubs = [h for h in self.world.hubs if h != self.name and self.world.hubs[h].site == self.site]
        self.turn += 1
        return [hubs[(self.turn + i) % len(hubs)] for i in range(len(hubs))]

    def offer(self, number: int, server: str, token: str, others: list[str], done: Callable[[str], None]) -> None:
        """Have a copy held, by `server` or by one of the `others`. `done` hears `held`, `gone` or `none`."""
        copy = ENCODE(copies.copy_of(self.envelopes[number], self.name, self.disk.identity, token, self.clock()))
        moment = self.moments.next()

        def next_one() -> None:
            if number not in self.envelopes or not copies.open_places(self.envelopes[number]):
                done("gone")
            elif others:
                self.offer_to(number, others[0], others[1:], done)
            else:
                done("none")

        def answered(answer: tuple[str, str]) -> None:
            identity, reason = answer
            self.hears(server, identity, moment)
            if reason:
                self.primary.not_held(number, server, token)
                next_one()
                return
            self.world.mark(self, "hears that a copy is held")
            self.take(self.primary.held(number, server, identity, token, moment))
            self.protected(self.envelopes[number].message_id if number in self.envelopes else "")
            done("held")

        def lost() -> None:
            self.primary.in_doubt(number, server, token)
            next_one()

        self.world.mark(self, "offers a copy")
        target = self.world.hubs[server]
        ask = partial(target.hold, self.name, self.disk.identity, token, copy)
        self.world.request(self, target, ask, answered, lost)

    def offer_to(self, number: int, server: str, others: list[str], done: Callable[[str], None]) -> None:
        envelope = self.envelopes[number]
        token = self.next_token()
        envelope.watchers.append(Watcher(server, token))
        self.primary.offered(number, envelope.watchers)
        self.disk.put(number, envelope)

        def on_disk() -> None:
            if number in self.envelopes:
                self.offer(number, server, token, others, done)
            else:
                done("gone")

        self.disk.sync(on_disk)

    def protect_anew(self, number: int) -> None:
        envelope = self.envelopes.get(number)
        if envelope is None or not copies.open_places(envelope) or number in self.accepting:
            return
        partners = self.partners(envelope)

        def done(what: str) -> None:
            self.world.seen[f"protected anew: {what}"] += 1
            if what == "none":
                self.later(2.0, lambda: self.primary.still_unprotected(number))

        self.world.mark(self, "protects anew")
        if partners:
            self.offer_to(number, partners[0], partners[1:], done)

    def protected(self, name: str) -> None:
        if name:
            self.world.mails[name].alone = False

    def hold(self, server: str, identity: str, token: str, blob: bytes, reply: Answer) -> None:
        self.world.mark(self, "is offered a copy")
        self.hears(server, identity, self.moments.next())
        ours = self.disk.identity
        if self.keeper.number(server, token) is not None:
            self.disk.sync(lambda: reply((ours, "")))
            return
        reason = self.keeper.may_hold(server, token)
        if reason:
            reply((ours, reason))
            return
        number = self.next_number()
        envelope = self.envelopes[number] = DECODE(blob)

        def on_disk() -> None:
            self.take_keeper(self.keeper.keep(server, identity, token, number, self.keeper.until(self.clock())))
            self.world.mark(self, "has a copy on disk")
            reply((ours, ""))

        self.disk.put(number, envelope, on_disk)

    def mail(self, server: str, identity: str, token: str, blob: bytes, reply: Answer) -> None:
        """Another hub of the organization hands a message on, and keeps the shadow."""
        self.world.mark(self, "is handed a message")
        number = self.next_number()
        envelope = self.envelopes[number] = DECODE(blob)
        envelope.watchers, envelope.shadows = [Watcher(server, token)], []
        self.primary.opened(number, envelope.watchers, held=True)
        ours = self.disk.identity

        def on_disk() -> None:
            self.world.mark(self, "has a handed message on disk")
            reply((ours, len(envelope.recipients)))
            self.dispatch(number)

        self.disk.put(number, envelope, on_disk)

    # Sending

    def dispatch(self, number: int) -> None:
        envelope = self.envelopes.get(number)
        if envelope is None or number in self.busy or self.primary.waits(number):
            return
        places = copies.open_places(envelope)
        if not places or number in self.held_back or number in self.loading:
            return
        first = envelope.recipients[places[0]].address.partition("@")[2].partition(".")[0]
        places = [p for p in places if envelope.recipients[p].address.partition("@")[2].partition(".")[0] == first]
        self.busy.add(number)
        self.sending.add(envelope.message_id)
        if first == self.site:
            self.send_out(number, envelope, places)
        else:
            self.send_on(number, envelope, places, first)

    def sent(self, number: int, wait: float) -> None:
        self.busy.discard(number)
        envelope = self.envelopes.get(number)
        if envelope is not None:
            self.sending.discard(envelope.message_id)
            self.later(wait, lambda: self.dispatch(number))

    def send_out(self, number: int, envelope: Envelope, places: list[int]) -> None:
        chance, world = self.world.chance, self.world
        if len(places) > 1 and chance.random() < 0.3:
            places = places[:1]  # the others are put off
        if world.down[self.site]:
            self.later(0.1, lambda: self.sent(number, chance.uniform(0.5, 2.0)))
            return

        def take() -> None:
            for place in places:
                address = envelope.recipients[place].address
                if not address.endswith(FAILING):
                    world.deliver(address, self.name)
            world.mark(self, "is sending")

        def noted() -> None:
            failed = []
            for place in places:
                bad = envelope.recipients[place].address.endswith(FAILING)
                envelope.recipients[place].state = RecipientState.FAILED if bad else RecipientState.DELIVERED
                if bad:
                    failed.append(envelope.recipients[place].address)
            self.finish(number, envelope, places)
            self.sent(number, chance.choice((0.0, 1.0, 4.0)))

        bad = [a for a in (envelope.recipients[p].address for p in places) if a.endswith(FAILING)]

        def answered() -> None:
            world.mark(self, "has sent")
            if bad:
                self.report(bad, noted)
            else:
                noted()

        self.later(chance.uniform(0.0, 0.1), take)
        self.later(chance.uniform(0.1, 0.3), answered)

    def report(self, failed: list[str], then: Callable[[], None]) -> None:
        """The report about these is on disk, and copied if another hub is there, before they count as failed."""

        def told(_accepted: bool) -> None:
            for address in failed:
                self.world.delivered[address] += 1  # the report stands for it
            then()

        self.commit([f"report{i}@{self.site}" for i in range(len(failed))], told, reject=False)

    def send_on(self, number: int, envelope: Envelope, places: list[int], site: str) -> None:
        hubs = [h for h in self.world.hubs.values() if h.site == site]
        self.turn += 1
        target = hubs[self.turn % len(hubs)]
        token = self.next_token()
        recipients = [Recipient(envelope.recipients[p].address) for p in places]
        blob = ENCODE(Envelope("", recipients, self.clock(), self.clock() + 1000.0, message_id=envelope.message_id))
        moment = self.moments.next()

        def answered(answer: tuple[str, int]) -> None:
            identity, _ = answer
            self.hears(target.name, identity, moment)
            self.world.mark(self, "hears that it was handed on")
            copies.hand_on(envelope, places, target.name, identity, token, self.clock())

            def on_disk() -> None:
                until = self.keeper.until(self.clock())
                if copies.find_shadow(envelope, target.name, token) is not None:
                    self.take_keeper(self.keeper.keep(target.name, identity, token, number, until))

            self.finish(number, envelope, places, on_disk)
            self.sent(number, 0.0)

        def lost() -> None:
            self.world.excuse(envelope.message_id, "the answer of the next hub was lost")
            self.sent(number, 1.0)

        self.world.mark(self, "hands on")
        self.world.request(
            self,
            target,
            partial(target.mail, self.name, self.disk.identity, token, blob),
            answered,
            lost,
        )

    def finish(
        self, number: int, envelope: Envelope, places: list[int], on_disk: Callable[[], None] | None = None
    ) -> None:
        """Recipients are settled, or handed on with a shadow kept here: events, and the new state, to disk."""
        self.world.mark(self, "notes what was settled")
        whole = not copies.open_places(envelope)
        for note in self.primary.settled(number, envelope.watchers, places, whole=whole, at=self.clock()):
            self.disk.note(note.server, note.event)
        copies.close(envelope)
        self.write(number, envelope, on_disk)
        if whole and number in self.accepting:
            self.accepting[number]()

    def write(self, number: int, envelope: Envelope, on_disk: Callable[[], None] | None = None) -> None:
        if copies.open_places(envelope) or envelope.shadows:
            self.disk.put(number, envelope, on_disk)
        else:
            self.envelopes.pop(number, None)
            self.disk.remove(number, envelope.message_id)
            if on_disk is not None:
                self.disk.sync(on_disk)

    # Small things

    def next_number(self) -> int:
        self.numbers += 1
        return self.numbers

    def next_token(self) -> str:
        self.tokens += 1
        return f"{self.disk.identity}-{self.generation}-{self.tokens}"
