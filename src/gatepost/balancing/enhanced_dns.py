"""Enhanced DNS (SPEC T4): to which of a next hop's targets a connection goes, and to which after that one has failed.

    targets ── those of the best preference that the healthy server selector lets through ──► the one with fewest
      turns so far ──► failed? the same once more over the rest ──► none left: the next preference

Filtered *before* turns are given, so the healthy ones carry equal shares to within one connection, whatever is down
(smtp-facts row 37). Shares are those of hosts; a host's addresses share its part, of IPv6 and IPv4 by turns (row 34).

In the naive mode, the source system's behaviour before it had a selector, the list is turned by one for each
connection and walked from there: who follows a dead server gets its share too. Pure: random numbers come by a function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from gatepost.balancing.healthy_server_selector import HealthyServerSelector
from gatepost.balancing.target import Key, Target

_SPARE_COUNTS = 64
"""Hosts and addresses that are counted though the next hop lists them no longer: DNS may bring them back."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One connection attempt that may be made now. `lease` is what the selector gave: not 0 for the one that is due."""

    target: Target
    lease: int = 0


class Rotation:
    """The turns of one next hop's targets; live as long as its queue."""

    __slots__ = ("_absent", "_counts", "_random", "_turns", "selector")

    def __init__(self, selector: HealthyServerSelector, random: Callable[[], float]) -> None:
        """`random` gives numbers from 0 up to 1: who is first among equals."""
        self.selector = selector
        self._random = random
        self._turns = int(random() * 1_000_000)
        self._counts: dict[str | Key, int] = {}
        self._absent: set[Key] = set()

    def turn(self, targets: Sequence[Target]) -> Turn:
        """The order of one connection."""
        start = self._turns
        self._turns += 1
        self._prune(targets)
        return Turn(self, targets, start)

    def order(self, targets: Sequence[Target], now: float) -> list[Target]:
        """In which order `targets` would be tried now, if each failed: to be shown; nothing is counted."""
        allowed = self.selector.filter(targets, now) if self.selector.filters else targets
        return sorted(
            allowed, key=lambda target: (target.preference, self.selector.healthy(target), self._load(target))
        )

    def choose(self, targets: Sequence[Target], last: Target | None) -> Target:
        """The one of `targets`, all allowed and of one preference, whose turn it is; it is counted."""
        due = [target for target in targets if not self.selector.healthy(target)]
        if due:
            # First of all: it is the one attempt that is let through, and shows soonest that the server is back.
            found = min(due, key=lambda target: (self._count(target.key), self._random()))
        else:
            targets = [target for target in targets if not self.selector.hanging(target)] or targets
            self._join(targets)
            if last is not None:  # it failed or hangs: perhaps all of its family does
                targets = [target for target in targets if (":" in target.ip) != (":" in last.ip)] or targets
            hosts = dict.fromkeys(
                target.host for target in targets
            )  # in order, for the same choice of the same numbers
            host = min(hosts, key=lambda host: (self._count(host), self._random()))
            addresses = [target for target in targets if target.host == host]
            found = min(addresses, key=lambda target: (self._count(target.key), self._random()))
        self._add(found, 1)
        return found

    def returned(self, target: Target) -> None:
        """The turn brought no connection: the target failed, or another one was faster."""
        self._add(target, -1)

    def note_absent(self, targets: Sequence[Target]) -> None:
        """Remember who is left out now, so that it does not make up for all of it when it is back."""
        healthy, hanging = self.selector.healthy, self.selector.hanging
        self._absent.update(target.key for target in targets if not healthy(target) or hanging(target))

    def _join(self, targets: Sequence[Target]) -> None:
        back = [
            target
            for target in targets
            if (target.key in self._absent or target.key not in self._counts) and not self.selector.hanging(target)
        ]
        if not back:
            return
        stayed = [target for target in targets if target not in back]
        hosts = {target.host for target in stayed}
        floor = min((self._count(host) for host in hosts), default=0)
        for target in back:
            self._absent.discard(target.key)
            if target.host not in hosts:  # a host that one address was left of has kept its share
                self._counts[target.host] = max(self._count(target.host), floor)
            others = [self._count(other.key) for other in stayed if other.host == target.host]
            self._counts[target.key] = max(self._count(target.key), min(others, default=0))

    def _count(self, of: str | Key) -> int:
        return self._counts.get(of, 0)

    def _load(self, target: Target) -> tuple[int, int]:
        return self._count(target.host), self._count(target.key)

    def _add(self, target: Target, turns: int) -> None:
        self._counts[target.host] = self._count(target.host) + turns
        self._counts[target.key] = self._count(target.key) + turns

    def _prune(self, targets: Sequence[Target]) -> None:
        if len(self._counts) <= 2 * len(targets) + _SPARE_COUNTS:
            return
        listed: set[str | Key] = {target.host for target in targets} | {target.key for target in targets}
        self._counts = {of: count for of, count in self._counts.items() if of in listed}
        self._absent &= {target.key for target in targets}


class Turn:
    """Which targets one connection tries, one after the other."""

    __slots__ = ("_last", "_rotation", "_start", "_targets", "_tried")

    def __init__(self, rotation: Rotation, targets: Sequence[Target], start: int) -> None:
        self._rotation = rotation
        self._targets = sorted(targets, key=lambda target: target.preference)
        self._start = start
        self._tried: set[Key] = set()
        self._last: Target | None = None

    def next(self, now: float, preference: int | None = None) -> Attempt | None:
        """The next attempt, only of `preference` if that is given; None when none may be made now (see `due`).

        The attempt is begun at the selector: it must hear the outcome (`failed`, `succeeded`, `abandoned`).
        """
        selector = self._rotation.selector
        for group, members in groupby(self._targets, key=lambda target: target.preference):
            if preference not in {None, group}:
                continue
            listed = list(members)
            while left := [target for target in listed if target.key not in self._tried]:
                found = self._choose(listed, left, now)
                if found is None:
                    break
                self._tried.add(found.key)
                lease = selector.begin(found, now) if selector.filters else 0
                if lease is not None:
                    self._last = found
                    return Attempt(found, lease)
        return None

    def due(self, now: float) -> float | None:
        """When to try again after `next` had none: time at which the selector lets a target through, None if no target
        is listed. In the naive mode it is `now`: the queue's own schedule counts."""
        return self._rotation.selector.next_due(self._targets, now)

    def returned(self, attempt: Attempt) -> None:
        """The attempt failed, or was given up for another one that was faster: it is no part of the target's share."""
        self._rotation.returned(attempt.target)

    def _choose(self, listed: list[Target], left: list[Target], now: float) -> Target | None:
        rotation = self._rotation
        if not rotation.selector.filters:
            start = self._start % len(listed)
            turned = [*listed[start:], *listed[:start]]
            return next(target for target in turned if target in left)
        rotation.note_absent(listed)
        allowed = rotation.selector.filter(left, now)
        return rotation.choose(allowed, self._last) if allowed else None
