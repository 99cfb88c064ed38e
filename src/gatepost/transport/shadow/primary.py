"""The rules of a primary (SPEC S1 to S3): who keeps shadows of our messages, and what they hear of us. Pure.

    accept ── opened ──► unsure ── held ─────► held ── another identity, long silence ──► unprotected: protect anew
                          ▲  │ asked: HELD ──►─┘ │
    start ──── load ──────┤  ├ OPEN ─► Follow    ├ settled ─► discard events ── ask ─► acknowledged
    takeover ─ took_over ─┘  └ DONE ─► Drop      └ told (it took over) ─► Follow

A message that was loaded at the start waits until all its watchers have answered, or `shadow_fence_time` is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from gatepost.organization.transport import TransportConfig
from gatepost.transport.message import Watcher
from gatepost.transport.shadow.copies import counted
from gatepost.transport.shadow.decisions import Drop, Follow, GoOn, Note, PrimaryStep, Question, Settle, Unwatch
from gatepost.transport.shadow.fencing import Fence
from gatepost.transport.shadow.steady import GRACE_SECONDS, Moments, Steady
from gatepost.transport.shadow.unprotected import Unprotected
from gatepost.transport.shadow.watching import Watching
from gatepost.wire.shadow_messages import Discarded, Status

Busy = Callable[[int], bool]
"""Whether a message is being sent just now."""


class Primary:
    """One for a hub. `name` is the hub's. A watcher's `token` with its `server` names one copy of one message.

    `moments` order what is seen on different connections: one is taken when a connection is begun or a question is
    sent, and handed back with what came of it.
    """

    def __init__(self, name: str, settings: TransportConfig, now: float, moments: Moments) -> None:
        self._settings = settings
        self._servers: frozenset[str] | None = None
        """The organization's hubs; None: not yet known."""
        self._clock = Steady(now)
        self._moments = moments
        self._watching: dict[str, Watching] = {}
        self._loading = True
        self._early: set[tuple[str, str]] = set()
        """What others have finished of messages that are not yet loaded."""
        self._fence = Fence(name)
        self._several: set[int] = set()
        """Messages with more than one watcher; few are."""
        self._offers: dict[str, tuple[Watcher, ...]] = {}
        """By token of the copy that is being made: the other watchers, who are not needed when it is there."""
        self._need = Unprotected()

    def configure(self, settings: TransportConfig, servers: Iterable[str]) -> list[tuple[str, str]]:
        """Other settings, and the hubs that the organization has now. Copies at others are gone, and so are events for
        them: (server, token) of what may be forgotten on disk."""
        self._settings = settings
        self._servers = frozenset(servers)
        dropped = []
        for server in [name for name in self._watching if name not in self._servers]:
            watching = self._watching.pop(server)
            dropped += [(server, token) for token in watching.discards.clear()]
            for numbers in (*(held.numbers for held in watching.held.values()), watching.unsure):
                for number in numbers.values():
                    self._need.add(number)
                    self._fence.remove(number)
        return dropped

    # Start

    def load_events(self, events: Mapping[str, Sequence[Discarded]]) -> None:
        """The discard events on disk; before `load`. None is dropped for its age at once: the clock may be wrong."""
        now, age = self._clock.now, self._settings.shadow_message_auto_discard_interval
        youngest = now - age + min(age, GRACE_SECONDS)
        for server, found in events.items():
            discards = self._of(server).discards
            for event in found:
                discards.add(event, min(max(event.at, youngest), now))

    def load(self, number: int, watchers: Sequence[Watcher]) -> list[PrimaryStep]:
        """A message of the spool with open recipients. Until `loaded` what we do not know is answered `LATER`."""
        steps: list[PrimaryStep] = []
        live = []
        for watcher in watchers:
            event = self._of(watcher.server).discards.get(watcher.token)
            if (watcher.server, watcher.token) in self._early:
                return [Drop(number, watcher.server, watcher.token)]
            if event is None:
                live.append(watcher)
            elif event.places is None:
                if event.at:  # all was settled, only the removal was lost
                    return [Drop(number, watcher.server, watcher.token)]
                steps.append(Unwatch(number, (watcher.token,)))
            else:
                where = watcher.places
                places = tuple(where[i] if where else i for i in event.places if not where or i < len(where))
                steps.append(Settle(number, places))
                live.append(watcher)
        for watcher in live:
            watching = self._of(watcher.server)
            watching.unsure[watcher.token] = number
            watching.to_ask[watcher.token] = None
        if live:
            self._fence.add(number, len(live))
            if len(live) > 1:
                self._several.add(number)
        else:
            self._need.add(number)
        return steps

    def loaded(self, now: float) -> None:
        """All of the spool is known: the time of fencing begins."""
        self._loading = False
        self._early.clear()
        self._fence.begin(self._clock.look(now) + self._settings.shadow_fence_time)

    def waits(self, number: int) -> bool:
        """Whether the message must not be sent yet."""
        return self._fence.waits(number)

    # A message's way

    def opened(self, number: int, watchers: Sequence[Watcher], *, held: bool) -> None:
        """A new message. `held`: its watchers have the copy (who sent it keeps it, of which we make sure if the message
        stays); else it is being offered to them. Without watchers it is one to be protected."""
        for watcher in watchers:
            watching = self._of(watcher.server)
            if held:
                watching.hold(watcher.token, number, watching.identity, self._moments.last)
                watching.fresh[watcher.token] = None
            else:
                watching.unsure[watcher.token] = number
                self._offers[watcher.token] = ()
        if not watchers:
            self._need.add(number)
        elif len(watchers) > 1:
            self._several.add(number)

    def offered(self, number: int, watchers: Sequence[Watcher]) -> None:
        """A copy, as the message stands now, is being offered to the last of `watchers`, which are all of them and are
        on disk."""
        *others, last = watchers
        self._of(last.server).unsure[last.token] = number
        self._offers[last.token] = tuple(others)
        self._need.remove(number)
        if others:
            self._several.add(number)

    def held(self, number: int, server: str, identity: str, token: str, moment: int) -> list[PrimaryStep]:
        """The copy is on that hub's disk; other watchers are not needed any more and are released.

        `moment`: of the offer."""
        others = self._offers.pop(token, ())
        watching = self._of(server)
        if watching.number(token) != number:
            return []  # settled meanwhile: an event says so
        if identity != watching.identity and moment < watching.seen:
            self.not_held(number, server, token)  # that disk is gone already
            self._need.add(number)
            return []
        watching.hold(token, number, identity, self._moments.last)
        return self._release(number, others)

    def not_held(self, number: int, server: str, token: str) -> None:
        """That hub has said that it does not keep the copy."""
        self._offers.pop(token, None)
        if self._of(server).number(token) == number:
            self._of(server).forget(token)

    def in_doubt(self, number: int, server: str, token: str) -> None:
        """Nothing was heard of an offered copy: that hub is asked when it can be."""
        self._offers.pop(token, None)
        watching = self._of(server)
        if watching.unsure.get(token) == number:
            watching.to_ask[token] = None

    def settled(
        self,
        number: int,
        watchers: Sequence[Watcher],
        places: Sequence[int],
        *,
        whole: bool,
        at: float,
        databases: Sequence[str] = (),
        late: Sequence[int] = (),
    ) -> list[Note]:
        """Recipients at `places` are delivered, failed and reported, dropped, or handed on with a shadow kept here; of
        those at `late` the sender has heard that they are late.
        `whole`: none is open any more; the message is forgotten here, and nobody watches it (`copies.close`)."""
        notes = []
        for watcher in watchers:
            watching = self._of(watcher.server)
            if watching.number(watcher.token) is None and watching.discards.get(watcher.token) is None:
                continue  # that copy is gone, or never was
            event = Discarded(watcher.token, None, list(databases), at)
            if not whole:
                event.places, event.late = counted(watcher, places), counted(watcher, late)
                if not event.places and not event.late:
                    continue
            notes.append(Note(watcher.server, watching.discards.add(event, self._clock.now)))
            if whole:
                watching.forget(watcher.token)
        if whole:
            self._need.remove(number)
            self._fence.remove(number)
            self._several.discard(number)
        return notes

    def left(self, number: int, server: str, token: str) -> list[PrimaryStep]:
        """`Follow` or `Drop` is on disk. What that settled the other watchers hear by `settled`."""
        watching = self._of(server)
        if watching.number(token) != number:
            return []
        watching.forget(token)
        watching.to_tell.pop(token, None)
        return self._answered_for(number)

    def took_over(self, number: int, watchers: Sequence[Watcher], server: str, token: str) -> None:
        """`TakeOver` is on disk: the message is ours, and `server`, which was responsible, is to be told."""
        watching = self._of(server)
        watching.unsure[token] = number
        watching.to_tell[token] = None
        self._need.add(number)
        if len(watchers) > 1:
            self._several.add(number)

    def unprotected(self, limit: int) -> list[int]:
        """Messages that no other hub keeps a shadow of; each is handed out once, until `still_unprotected`. Some of
        them may have left the queue."""
        return self._need.take(limit) if self._settings.shadow_redundancy_enabled else []

    @property
    def unprotected_count(self) -> int:
        """Messages that wait for `unprotected`; some of them may have left the queue."""
        return len(self._need)

    def still_unprotected(self, number: int) -> None:
        """No copy could be made now."""
        self._need.add(number)

    # Other hubs

    def heard(self, server: str, identity: str, moment: int, now: float) -> None:
        """It has answered or asked. `moment`: of the question, or of the beginning of the connection."""
        watching = self._of(server)
        watching.heard = self._clock.look(now)
        for numbers in watching.see(identity, moment):
            self._need.lose(numbers)

    def ask(self, server: str, acknowledged: Sequence[str], limit: int) -> tuple[list[Discarded], list[str]]:
        """Discard events for that hub, oldest first, at most `limit`; and the tokens that may be forgotten on disk."""
        discards = self._of(server).discards
        gone = discards.acknowledge(acknowledged)
        return discards.take(limit), gone

    def status(self, server: str, token: str) -> Status:
        """`OPEN`, `DONE`, `LATER` or `UNKNOWN`; the keeper's `HELD` goes before the last two."""
        watching = self._watching.get(server)
        if watching is not None:
            if watching.discards.is_whole(token):
                return Status.DONE
            number = watching.number(token)
            if number is not None:
                self._fence.said_open(number, server, token)
                return Status.OPEN
            if self._need.has_lost(token):
                return Status.OPEN
        return Status.LATER if self._loading else Status.UNKNOWN

    def told(self, server: str, identity: str, tokens: Sequence[str], busy: Busy) -> list[PrimaryStep]:
        """`TookOver`: carry the steps out, then answer each token's status."""
        watching = self._of(server)
        steps: list[PrimaryStep] = []
        for token in tokens:
            number = watching.number(token)
            if number is not None and not watching.discards.is_whole(token) and not busy(number):
                steps.append(Follow(number, server, identity, token))
        return steps

    def finished(self, server: str, token: str, busy: Busy) -> list[PrimaryStep]:
        """A discard event for a token that the keeper has not: it may be of a message that we took over."""
        watching = self._of(server)
        number = watching.number(token)
        if number is None:
            if self._loading:
                self._early.add((server, token))
            return []
        if busy(number):
            watching.finished[token] = number
            return []
        return [Drop(number, server, token)]

    def progressed(self, server: str, event: Discarded) -> list[PrimaryStep]:
        """A discard event for some recipients of a token that the keeper has not: it may be of a message that we are
        responsible for, and those need not be sent again."""
        number = self._of(server).number(event.token)
        return [] if number is None else [Settle(number, tuple(event.places or ()), server, event.token)]

    def wanted(self) -> list[str]:
        """Hubs that are to be contacted, since something is to be asked or told."""
        return [server for server, watching in self._watching.items() if watching.to_ask or watching.to_tell]

    def questions(self, server: str, limit: int) -> Question | None:
        """What is to be asked or told now; one question at a time to each hub."""
        watching = self._of(server)
        took_over = not watching.to_ask
        source = watching.to_tell if took_over else watching.to_ask
        if not source:
            return None
        tokens = tuple(source.popitem()[0] for _ in range(min(limit, len(source))))
        return Question(server, tokens, took_over, self._moments.next())

    def unanswered(self, question: Question) -> None:
        """The channel was lost: it is asked again."""
        watching = self._of(question.server)
        for token in question.tokens:
            watching.again(token, question.took_over)

    def answered(self, question: Question, identity: str, statuses: Sequence[int], busy: Busy) -> list[PrimaryStep]:
        """What its answer means."""
        watching = self._of(question.server)
        steps: list[PrimaryStep] = []
        for token, status in zip(question.tokens, statuses, strict=True):
            if status == Status.LATER or (question.took_over and status == Status.OPEN):
                watching.again(token, question.took_over)  # it cannot say yet, or is sending the message just now
                continue
            number = watching.number(token)
            if number is None:
                continue
            if status == Status.OPEN:
                steps += self._other_is_open(question, token, number, identity, busy)
            elif status == Status.DONE:
                steps += self.finished(question.server, token, busy)
            elif status == Status.HELD:
                watching.hold(token, number, identity, self._moments.last)
                if number in self._several:
                    self._need.add(number)  # one copy of all of it, in the place of several
                else:
                    self._need.remove(number)
                steps += self._answered_for(number)
            else:
                watching.forget(token)
                self._need.add(number)
                steps += self._answered_for(number)
        return steps

    def tick(self, now: float, busy: Busy) -> tuple[list[PrimaryStep], list[tuple[str, str]]]:
        """Every second. What is to be done, and events (server, token) that are too old: to be forgotten on disk."""
        steady = self._clock.look(now)
        steps: list[PrimaryStep] = [GoOn(number) for number in self._fence.over(steady)]
        old: list[tuple[str, str]] = []
        for server, watching in self._watching.items():
            watching.verify(steady)
            if len(watching.discards):
                too_old = steady - self._settings.shadow_message_auto_discard_interval
                old += [(server, token) for token in watching.discards.older_than(too_old)]
            if watching.held and steady - watching.heard >= self._settings.shadow_resubmit_time_span:
                for numbers in watching.gone_silent():
                    self._need.lose(numbers)
            for token, number in list(watching.finished.items()):
                if not busy(number):
                    del watching.finished[token]
                    steps.append(Drop(number, server, token))
        return steps, old

    # Within

    def _of(self, server: str) -> Watching:
        watching = self._watching.get(server)
        if watching is None:
            watching = self._watching[server] = Watching(self._clock.now)
        return watching

    def _release(self, number: int, others: Sequence[Watcher]) -> list[PrimaryStep]:
        if not others:
            return []
        self._several.discard(number)
        steps: list[PrimaryStep] = [Unwatch(number, tuple(watcher.token for watcher in others))]
        for watcher in others:
            watching = self._of(watcher.server)
            watching.forget(watcher.token)
            event = Discarded(watcher.token)
            steps.append(Note(watcher.server, watching.discards.add(event, self._clock.now)))
        return steps

    def _answered_for(self, number: int) -> list[PrimaryStep]:
        return [GoOn(number)] if self._fence.answered(number) else []

    def _other_is_open(
        self, question: Question, token: str, number: int, identity: str, busy: Busy
    ) -> list[PrimaryStep]:
        watching = self._of(question.server)
        if self._fence.stands_firm(question.server, token):
            watching.to_ask[token] = None  # and says so when it is asked again
            return self._answered_for(number)
        if busy(number):
            watching.to_ask[token] = None
            return []
        return [Follow(number, question.server, identity, token)]
