"""The rules of a shadow server (SPEC S2, S3): shadow queues, heartbeats, promotion. Pure.

    keep ─► a primary's shadow queue ─┬─ event: whole ─────► let go, or safety net
                                      ├─ event: partial ───► shrinks
                                      ├─ status: UNKNOWN ──► let go
                                      ├─ expired ──────────► let go
                                      └─ silent, heartbeats failed, another identity, removed, operator, both hold it
                                            ─► TakeOver, one by one ─► taken

Silence is counted in steady time and in heartbeats that were tried: a clock that is set promotes nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gatepost.organization.transport import TransportConfig
from gatepost.transport.shadow.decisions import (
    Heartbeat,
    KeeperStep,
    LetGo,
    Question,
    Reason,
    Shrink,
    TakeOver,
    ToSafetyNet,
)
from gatepost.transport.shadow.keeping import Copy, Keeping, Leaving
from gatepost.transport.shadow.steady import GRACE_SECONDS, Moments, Steady
from gatepost.wire.shadow_messages import Discarded, Status

POLL_SECONDS = 3.0
"""Between two questions to a primary that answers and that we keep shadows of."""
LEAST_HEARTBEATS = 3
"""So many must have failed before silence counts, if the time has room for them."""
STATUS_HEARTBEATS = 5
"""Heartbeat intervals until a copy that nothing was heard of is asked about."""
MAX_UNWANTED = 10_000
"""Tokens that are remembered, so that a copy is not kept whose release came before it."""


@dataclass(frozen=True, slots=True)
class ShadowQueue:
    """One primary's shadow queue, for operators. Times in seconds since 1970."""

    server: str
    identity: str
    count: int
    taking_over: int
    heard: float
    next_heartbeat: float
    failures: int


class Keeper:
    """One for a hub. `name` is the hub's. `moments` is shared with the hub's `Primary`; see there."""

    def __init__(
        self, name: str, settings: TransportConfig, message_expiration: float, now: float, moments: Moments
    ) -> None:
        self._name = name
        self._settings = settings
        self._expiration = message_expiration
        self._servers: frozenset[str] | None = None
        self._clock = Steady(now)
        self._moments = moments
        self._keeping: dict[str, Keeping] = {}
        self._unwanted: OrderedDict[tuple[str, str], None] = OrderedDict()

    def configure(self, settings: TransportConfig, message_expiration: float, servers: Iterable[str]) -> None:
        """Other settings, and the hubs that the organization has now: copies of others' messages are taken over.

        Copies that are there stay protected when shadow redundancy is switched off."""
        self._settings = settings
        self._expiration = message_expiration
        self._servers = frozenset(servers)

    def until(self, now: float) -> float:
        """When a copy that comes now expires, in steady time: for `Kept.until`."""
        return self._clock.look(now) + self.kept_seconds

    @property
    def kept_seconds(self) -> float:
        """How long a copy is kept at most."""
        return self._settings.safety_net_hold_time + self._expiration

    # Copies

    def load(self, server: str, identity: str, token: str, number: int, until: float) -> None:
        """A copy of the spool, at the start: its primary counts as heard now."""
        self._of(server).keep(
            identity, token, Copy(number, max(until, self._clock.now + GRACE_SECONDS)), self._moments.last
        )

    def may_hold(self, server: str, token: str) -> str:
        """Before a copy is written: why it will not be kept, or nothing. Not asked for a token that is kept."""
        return "it has been released already" if (server, token) in self._unwanted else ""

    def keep(self, server: str, identity: str, token: str, number: int, until: float) -> list[KeeperStep]:
        """The copy is on disk, of a message that `server` with this queue database is responsible for."""
        if (server, token) in self._unwanted:
            return [LetGo(number, server, token, Reason.DISCARDED)]
        self._of(server).keep(identity, token, Copy(number, until), self._moments.last)
        return []

    def number(self, server: str, token: str) -> int | None:
        """Whether we keep it, and where."""
        keeping = self._keeping.get(server)
        copy = keeping.get(token) if keeping is not None else None
        return copy.number if copy is not None else None

    def status(self, server: str, token: str) -> Status:
        """`HELD` or `UNKNOWN`. Asked when what was begun is on disk; a takeover that is on its way is `OPEN`."""
        keeping = self._keeping.get(server)
        if keeping is None or keeping.get(token) is None:
            return Status.UNKNOWN
        return Status.OPEN if token in keeping.taking else Status.HELD

    def gone(self, server: str, token: str) -> None:
        """An operator has dropped the copy, the spool has lost it, or nothing of it was left to take over."""
        keeping = self._of(server)
        keeping.pop(token)
        keeping.taking.pop(token, None)
        keeping.finished.discard(token)

    # Primaries

    def due(self, now: float, wanted: Iterable[str] = ()) -> list[Heartbeat]:
        """Every second: the primaries to contact now; `wanted` are `Primary.wanted`. Each is answered by `ended` or
        `failed`, and is not due again before."""
        steady = self._clock.look(now)
        for server in wanted:
            self._of(server)
        wants = set(wanted)
        found = []
        for server, keeping in self._keeping.items():
            if keeping.copies:
                self._promote(server, keeping, steady)
            known = self._servers is None or server in self._servers
            if not keeping.asked and steady >= keeping.next and known and (server in wants or len(keeping)):
                keeping.asked = True
                found.append(Heartbeat(server, self._moments.next()))
        return found

    def heard(self, server: str, identity: str, moment: int, now: float) -> None:
        """It has answered or asked, as for `Primary.heard`."""
        steady = self._clock.look(now)
        keeping = self._of(server)
        keeping.heard = steady
        if keeping.failures and not keeping.asked:
            keeping.next = min(keeping.next, steady)
        keeping.failures = 0
        if moment < keeping.seen:
            return
        keeping.identity, keeping.seen = identity, moment
        for other in [i for i, copies in keeping.copies.items() if i != identity and copies.latest < moment]:
            keeping.leave(other, Reason.IDENTITY)
        if keeping.leaving:
            keeping.come_back(self._moments.last)

    def ended(self, heartbeat: Heartbeat, now: float, *, more: bool = False) -> None:
        """All that was to be asked was asked. `more`: there are more events."""
        keeping = self._of(heartbeat.server)
        keeping.asked = False
        keeping.next = self._clock.look(now)
        if not more:
            keeping.next += min(POLL_SECONDS, self._settings.shadow_heartbeat_frequency)

    def failed(self, heartbeat: Heartbeat, now: float) -> None:
        """No contact could be made, or it was lost."""
        keeping = self._of(heartbeat.server)
        keeping.asked = False
        keeping.failures += 1
        keeping.next = self._clock.look(now) + self._settings.shadow_heartbeat_frequency

    def event(self, server: str, event: Discarded, now: float) -> KeeperStep | None:
        """What a discard event means. None: nothing is kept for the token (see `Primary.finished`)."""
        keeping = self._of(server)
        token = event.token
        if token in keeping.taking:
            if event.places is None:
                keeping.finished.add(token)
            return None
        copy = keeping.get(token)
        if copy is None:
            if event.places is None:
                self._refuse(server, token)
            return None
        if event.places is not None:
            return Shrink(copy.number, server, token, tuple(event.places), tuple(event.late))
        keeping.pop(token)
        until = (event.at or now) + self._settings.safety_net_hold_time
        if event.databases and until > now:
            return ToSafetyNet(copy.number, server, token, tuple(event.databases), event.at or now, until)
        return LetGo(copy.number, server, token, Reason.DISCARDED)

    def questions(self, server: str, now: float, limit: int) -> tuple[Question | None, list[KeeperStep]]:
        """Copies of which nothing was heard for long; and those that have expired."""
        steady = self._clock.look(now)
        keeping = self._of(server)
        if steady >= keeping.round:
            keeping.round = steady + STATUS_HEARTBEATS * self._settings.shadow_heartbeat_frequency
            for copies in keeping.copies.values():
                if not copies.old:
                    copies.old, copies.young = copies.young, copies.old
        tokens: list[str] = []
        steps: list[KeeperStep] = []
        for copies in keeping.copies.values():
            while copies.old and len(tokens) + len(steps) < limit:
                token, copy = copies.old.popitem()
                if copy.until <= steady:
                    steps.append(LetGo(copy.number, server, token, Reason.EXPIRED))
                else:
                    copies.young[token] = copy
                    tokens.append(token)
        return (Question(server, tuple(tokens), False, self._moments.next()) if tokens else None), steps

    def answered(self, question: Question, identity: str, statuses: Sequence[int]) -> list[KeeperStep]:
        """What its answer means. `DONE` means nothing yet: the event is coming, and says of which databases."""
        keeping = self._of(question.server)
        copies = keeping.copies.get(identity)
        if copies is None:
            return []
        steps: list[KeeperStep] = []
        both: dict[str, Copy] = {}
        for token, status in zip(question.tokens, statuses, strict=True):
            if status == Status.UNKNOWN and (copy := copies.pop(token)) is not None:
                steps.append(LetGo(copy.number, question.server, token, Reason.UNKNOWN))
            elif status == Status.HELD and self._name < question.server and (copy := copies.pop(token)) is not None:
                both[token] = copy
        if both:
            keeping.leaving.append(Leaving(identity, Reason.BOTH_HELD, both))
        return steps

    # Ownership

    def resubmit(self, server: str) -> int:
        """An operator wants all messages of this primary taken over; how many they are."""
        keeping = self._of(server)
        return sum(keeping.leave(identity, Reason.OPERATOR) for identity in list(keeping.copies))

    def resubmit_one(self, server: str, token: str) -> bool:
        """The same of one message; whether it is kept and not being taken over already."""
        keeping = self._keeping.get(server)
        return keeping is not None and keeping.leave_one(token, Reason.OPERATOR)

    def takeovers(self, limit: int) -> list[TakeOver]:
        """Some of what is to be taken over now; each ends with `taken` or `not_taken`."""
        found: list[TakeOver] = []
        for server, keeping in self._keeping.items():
            while keeping.leaving and len(found) < limit:
                batch = keeping.leaving[-1]
                if not batch.copies:
                    keeping.leaving.pop()
                    continue
                token, copy = batch.copies.popitem()
                keeping.taking[token] = batch, copy
                found.append(TakeOver(copy.number, token, server, batch.reason))
        return found

    def taken(self, takeover: TakeOver) -> bool:
        """It is on disk that the message is ours. Whether the primary has finished it meanwhile: after
        `Primary.took_over` comes `Primary.finished`."""
        keeping = self._of(takeover.server)
        keeping.taking.pop(takeover.token, None)
        self._refuse(takeover.server, takeover.token)
        finished = takeover.token in keeping.finished
        keeping.finished.discard(takeover.token)
        return finished

    def not_taken(self, takeover: TakeOver) -> None:
        """The disk did not take it: it is still a shadow, and to be taken over."""
        keeping = self._of(takeover.server)
        batch, copy = keeping.taking.pop(takeover.token)
        keeping.finished.discard(takeover.token)
        keeping.leaving.insert(0, Leaving(batch.identity, batch.reason, {takeover.token: copy}))

    def queues(self) -> list[ShadowQueue]:
        """For operators: the primaries that we keep shadows of."""
        return [
            ShadowQueue(
                server,
                keeping.identity,
                len(keeping),
                keeping.to_take,
                keeping.heard,
                keeping.next,
                keeping.failures,
            )
            for server, keeping in self._keeping.items()
            if len(keeping)
        ]

    # Within

    def _of(self, server: str) -> Keeping:
        keeping = self._keeping.get(server)
        if keeping is None:
            keeping = self._keeping[server] = Keeping(self._clock.now)
        return keeping

    def _refuse(self, server: str, token: str) -> None:
        self._unwanted[server, token] = None
        if len(self._unwanted) > MAX_UNWANTED:
            self._unwanted.popitem(last=False)

    def _promote(self, server: str, keeping: Keeping, steady: float) -> None:
        settings = self._settings
        span, most = settings.shadow_resubmit_time_span, settings.shadow_heartbeat_retry_count
        least = min(LEAST_HEARTBEATS, span // settings.shadow_heartbeat_frequency) or 1
        if self._servers is not None and server not in self._servers:
            reason = Reason.REMOVED
        elif most and keeping.failures >= most:
            reason = Reason.HEARTBEATS
        elif keeping.failures >= least and steady - keeping.heard >= span:
            reason = Reason.SILENCE
        else:
            return
        for identity in list(keeping.copies):
            keeping.leave(identity, reason)
