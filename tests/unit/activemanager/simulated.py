"""A registry, mailbox servers and their replicas for simulations: plain objects under a simulated clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

from history import Entry

from gatepost.activemanager.port import (
    Lease,
    LeaseLost,
    Move,
    Observation,
    RegistryView,
    ServerWord,
    StaleEpoch,
)
from gatepost.routing.decision import ActiveCopy

SETTLED_SECONDS = 8.0
"""A word or block this old is known to every manager that acts."""


class SimulatedRegistry:
    """The `Registry` contract on a clock that can jump. `checks_leases=False` makes a bad one, to test the checker."""

    def __init__(self, clock: Callable[[], float], *, checks_leases: bool = True) -> None:
        self._clock = clock
        self._checks = checks_leases
        self.ahead = 0.0
        """How far its own clock has jumped: leases end earlier (or later) than by anybody else's clock."""
        self.current = RegistryView()
        self.log: list[Entry] = []
        self._lease: Lease | None = None
        self._until = 0.0
        self._term = 0
        self._since: dict[object, float] = {}

    def now(self) -> float:
        return self._clock() + self.ahead

    def _change(self, **fields: object) -> None:
        self.current = replace(self.current, revision=self.current.revision + 1, **fields)  # type: ignore[arg-type]

    def _held(self) -> Lease | None:
        return self._lease if self._lease is not None and self.now() < self._until else None

    def _require(self, lease: Lease | None) -> None:
        if lease is None or not self._checks:
            return
        held = self._held()
        if held is None or held.term != lease.term:
            raise LeaseLost(f"term {lease.term} is over")

    def view(self) -> RegistryView:
        held = self._held()
        if self.current.manager is not None and held is None:
            return replace(self.current, manager=None)
        return self.current

    def activate(
        self,
        database: str,
        server: str,
        expected_epoch: int | None = None,
        lease: Lease | None = None,
        lost_seconds: float | None = None,
    ) -> ActiveCopy:
        self._require(lease)
        old = self.current.active.get(database)
        epoch = old.epoch if old else 0
        if expected_epoch is not None and expected_epoch != epoch:
            raise StaleEpoch(f"{database} is at {epoch}")
        new = ActiveCopy(database, server, epoch + 1)
        moves = {name: move for name, move in self.current.moves.items() if name != database}
        self._change(active=MappingProxyType({**self.current.active, database: new}), moves=MappingProxyType(moves))
        sound = not self._settled((database, server)) and not self._settled(server)
        holder, term = (lease.holder, lease.term) if lease else ("", 0)
        self.log.append(Entry(self.now(), "activated", holder, term, 0.0, database, server, epoch + 1, sound))
        return new

    def _settled(self, what: object) -> bool:
        return what in self._since and self._clock() - self._since[what] > SETTLED_SECONDS

    def begin_move(self, move: Move, lease: Lease | None = None) -> None:
        self._require(lease)
        active = self.current.active[move.database]
        if active.epoch != move.epoch or move.database in self.current.moves:
            raise StaleEpoch(f"{move.database} is at {active.epoch}, or moves")
        self._change(moves=MappingProxyType({**self.current.moves, move.database: move}))

    def end_move(self, database: str, lease: Lease | None = None, move: Move | None = None) -> None:
        self._require(lease)
        standing = self.current.moves.get(database)
        if standing is not None and (move is None or _same(standing, move)):
            moves = {name: move for name, move in self.current.moves.items() if name != database}
            self._change(moves=MappingProxyType(moves))

    def set_word(self, server: str, word: ServerWord) -> None:
        words = {**self.current.words, server: word}
        if word is ServerWord.UP:
            del words[server]
            self._since.pop(server, None)
        else:
            self._since.setdefault(server, self._clock())
        self._change(words=MappingProxyType(words))

    def set_blocked(self, database: str, server: str, *, blocked: bool) -> None:
        pair = (database, server)
        if blocked:
            self._since.setdefault(pair, self._clock())
        else:
            self._since.pop(pair, None)
        self._change(blocked=self.current.blocked | {pair} if blocked else self.current.blocked - {pair})

    def observe(self, observations: list[Observation], lease: Lease) -> None:
        self._require(lease)
        observed = {**self.current.observed, **{(o.server, o.service): o for o in observations}}
        self._change(observed=MappingProxyType(observed))

    def take_lease(self, _name: str, holder: str, seconds: float) -> Lease | None:
        if self._held() is not None and self._checks:
            return None
        self._term += 1
        self._lease = Lease("manager", holder, self._term, seconds)
        self._until = self.now() + seconds
        self.log.append(Entry(self.now(), "taken", holder, self._term, seconds))
        self._change(manager=self._lease)
        return self._lease

    def keep_lease(self, lease: Lease) -> None:
        held = self._held()
        if held is None or held.term != lease.term:
            raise LeaseLost(f"term {lease.term} is over")
        self._until = self.now() + lease.seconds
        self.log.append(Entry(self.now(), "kept", lease.holder, lease.term, lease.seconds))

    def give_lease_back(self, lease: Lease) -> None:
        held = self._held()
        if held is not None and held.term == lease.term:
            self._until = self.now()
            self.log.append(Entry(self.now(), "given back", lease.holder, lease.term))
            self._change(manager=None)


def _same(one: Move, other: Move) -> bool:
    return (one.target, one.epoch, one.reason) == (other.target, other.epoch, other.reason)


class Replicas:
    """Who can be written to. Two writers of one database at a time are what hooks are there to prevent."""

    def __init__(self) -> None:
        self.writers: dict[str, set[str]] = {}
        self.violations: list[str] = []
        self._latest: dict[str, tuple[int, int]] = {}

    def called(self, now: float, kind: str, database: str, server: str, epoch: int, term: int) -> bool:
        """A hook has done its work; False where storage refuses it: it is of an epoch or term that is over."""
        latest = self._latest.get(database, (0, 0))
        if (epoch, term or latest[1]) < latest:
            return False
        self._latest[database] = epoch, term or latest[1]
        writers = self.writers.setdefault(database, set())
        if kind == "promote":
            writers.add(server)
            if len(writers) > 1:
                self.violations.append(f"{now:.2f}: {database} has the writers {sorted(writers)} at epoch {epoch}")
        else:
            writers.discard(server)
        return True
