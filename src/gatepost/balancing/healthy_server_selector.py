"""The healthy server selector (SPEC T5 to T9): which servers are down, and when one attempt is let through to each.

    healthy ── a connection attempt returned a socket error ──► unhealthy ──► due ── one attempt is let through ──┐
       ▲                                                            ▲                                             │
       └── any connection that succeeds: that attempt, a heartbeat ─┼──────────────── it failed ◄─────────────────┘

A server is an address and port. Replies never count, whatever they say, nor what a recipient was refused for. Pure:
the time comes as argument, in seconds since 1970, since the list outlives the process; that clock may be set, so a
retry that seems to lie in the future counts as made now.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from gatepost.balancing.recovery_ramp import RecoveryRamp
from gatepost.balancing.retry_schedule import retry_interval
from gatepost.balancing.target import Key, Target
from gatepost.organization.transport import TransportSettings

MAX_UNHEALTHY = 10_000
"""Servers on the list; over it the one that failed longest ago is forgotten, and found again when it is tried. Domains
of strangers fill the list, so it must end."""
MAX_ERROR = 200
"""Characters of a socket error's text."""
LEASE_MARGIN = 10.0
"""Seconds over the time for connecting until an attempt that nothing was heard of no longer keeps others away."""
RAMP_WAIT = 1.0
"""Seconds after which to ask again when all that may be tried is being opened already."""


class UnhealthyServer(msgspec.Struct):
    """One entry of the list, as it is kept on disk. Times are seconds since 1970.

    `last_retry` is when the last attempt was let through, at first the time of the marking; `next_retry` is filled in
    by what hands the entry out, from the settings of that moment.
    """

    address: str
    port: int
    host: str
    error: str
    failures: int
    retries: int
    marked: float
    last_retry: float
    next_retry: float = 0.0

    @property
    def key(self) -> Key:
        """What the entry is found by."""
        return self.address, self.port


@dataclass(slots=True)
class _Lease:
    number: int
    until: float


class HealthyServerSelector:
    """The list. All of one process share one; each operation costs the same however long it is."""

    __slots__ = ("_hanging", "_leases", "_limit", "_list", "_next_lease", "_ramp", "_settings")

    def __init__(self, settings: TransportSettings, limit: int = MAX_UNHEALTHY) -> None:
        self._settings = settings
        self._limit = limit
        self._list: OrderedDict[Key, UnhealthyServer] = OrderedDict()
        self._leases: dict[Key, _Lease] = {}
        self._next_lease = 1
        self._ramp = RecoveryRamp()
        self._hanging: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._list)

    @property
    def settings(self) -> TransportSettings:
        """The settings in force. New ones apply at once, also to the servers on the list."""
        return self._settings

    @settings.setter
    def settings(self, settings: TransportSettings) -> None:
        self._settings = settings
        if not settings.healthy_server_selector:
            self._list.clear()
            self._leases.clear()

    @property
    def filters(self) -> bool:
        """Whether servers that are down are kept out; False is the naive mode, in which nothing is remembered."""
        return self._settings.healthy_server_selector

    def filter(self, targets: Iterable[Target], now: float) -> list[Target]:
        """Those of `targets` that may be tried now, in their order: healthy ones, and those whose retry is due."""
        return [target for target in targets if self._allowed(target.key, now)]

    def healthy(self, target: Target) -> bool:
        """Whether the server is not on the list."""
        return target.key not in self._list

    def begin(self, target: Target, now: float) -> int | None:
        """Ask, right before it, for leave to open a connection that is not a heartbeat.

        None: not now. 0: go. Other numbers: go, as the one attempt that is due; the number goes back with the outcome.
        """
        key = target.key
        if key in self._list:
            return self.may_probe(target, now) or None
        if not self._ramp.may_open(key, now):
            return None
        self._ramp.opens(key, now)
        return 0

    def may_probe(self, target: Target, now: float) -> int:
        """The lease of the one attempt at a server of the list; 0 when none is due, or another one has it.

        The lease ends with the outcome, or by itself when nothing is heard: the attempt then counts as made.
        """
        server = self._list.get(target.key)
        if server is None or self._due(server, now) > now:
            return 0
        server.retries += 1
        server.last_retry = now
        number = self._next_lease
        self._next_lease += 1
        self._leases[target.key] = _Lease(number, now + self._settings.connect_seconds + LEASE_MARGIN)
        return number

    def failed(
        self, target: Target, now: float, error: str, lease: int = 0, began: float | None = None
    ) -> UnhealthyServer | None:
        """A connection attempt returned a socket error: the server's entry, None if it does not count.

        It does not in the naive mode, nor when the server was seen back after the attempt had begun. Only the attempt
        that has the lease moves the schedule on; others, as those that were under way at the marking, are counted.
        """
        if not self.filters:
            return None
        key = target.key
        server = self._list.get(key)
        if server is None:
            if began is not None and self._ramp.recovered_since(key, began):
                self._ramp.given_up(key)
                return None
            if len(self._list) >= self._limit:
                oldest, _ = self._list.popitem(last=False)
                self._leases.pop(oldest, None)
            server = UnhealthyServer(target.ip, target.port, target.host, "", 0, 0, now, now)
            self._list[key] = server
            self._ramp.ended(key)
        self._list.move_to_end(key)
        server.failures += 1
        server.host, server.error = target.host, error[:MAX_ERROR]
        self._release(key, lease)
        return self._told(server, now)

    def succeeded(self, target: Target, now: float) -> UnhealthyServer | None:
        """A connection was opened, also a heartbeat's: the entry that is gone by it, None if there was none."""
        key = target.key
        server = self._list.pop(key, None)
        self._leases.pop(key, None)
        if server is None:
            self._ramp.opened(key, now)
        else:
            self._ramp.recovered(key, now)
        return server

    def abandoned(self, target: Target, lease: int) -> None:
        """An attempt that `begin` allowed ended before it failed or succeeded: it says nothing of the server."""
        self._release(target.key, lease)
        if not lease:
            self._ramp.given_up(target.key)

    def hangs(self, target: Target) -> None:
        """An attempt there has had no answer for so long that another server is tried beside it. See `hanging`."""
        self._hanging[target.key] = self._hanging.get(target.key, 0) + 1

    def hangs_no_longer(self, target: Target) -> None:
        """That attempt is over, whatever came of it."""
        left = self._hanging.get(target.key, 0) - 1
        if left > 0:
            self._hanging[target.key] = left
        else:
            self._hanging.pop(target.key, None)

    def hanging(self, target: Target) -> bool:
        """Whether an attempt there hangs at this moment: not unhealthy yet, but others of its preference come first.

        So only the first connections to a server that swallows packets wait, not all until the first has failed.
        """
        return target.key in self._hanging

    def forget(self, key: Key) -> bool:
        """Take a server off the list by hand; whether it was there."""
        self._leases.pop(key, None)
        self._ramp.ended(key)
        return self._list.pop(key, None) is not None

    def expedite(self, targets: Iterable[Target], now: float) -> None:
        """An operator's retry: an attempt at each of them that is on the list is due now. One under way is that."""
        for target in targets:
            server = self._list.get(target.key)
            if server is not None and target.key not in self._leases:
                server.last_retry = now - retry_interval(self._settings, server.retries)

    def next_due(self, targets: Sequence[Target], now: float) -> float | None:
        """When the first of `targets` may be tried: `now` or earlier if one may be already, None if there are none."""
        return min((self._may_be_tried(target.key, now) for target in targets), default=None)

    def unhealthy(self, now: float) -> list[UnhealthyServer]:
        """The list, by address: copies, to show and to keep on disk (see `load`)."""
        return [self._told(server, now) for _, server in sorted(self._list.items())]

    def load(self, servers: Iterable[UnhealthyServer]) -> None:
        """Take over a list of an earlier process. Attempts that it had under way are lost, and count as made."""
        if not self.filters:
            return
        for server in sorted(servers, key=lambda server: server.last_retry)[-self._limit :]:
            self._list[server.key] = msgspec.structs.replace(server)

    def _allowed(self, key: Key, now: float) -> bool:
        server = self._list.get(key)
        return self._ramp.may_open(key, now) if server is None else self._due(server, now) <= now

    def _may_be_tried(self, key: Key, now: float) -> float:
        server = self._list.get(key)
        if server is not None:
            return self._due(server, now)
        return now if self._ramp.may_open(key, now) else now + RAMP_WAIT

    def _due(self, server: UnhealthyServer, now: float) -> float:
        server.last_retry = min(server.last_retry, now)
        due = server.last_retry + retry_interval(self._settings, server.retries)
        lease = self._leases.get(server.key)
        if lease is None:
            return due
        # It may have been given by a clock that was ahead.
        lease.until = min(lease.until, now + self._settings.connect_seconds + LEASE_MARGIN)
        if lease.until <= now:
            del self._leases[server.key]
            return due
        return max(due, lease.until)

    def _told(self, server: UnhealthyServer, now: float) -> UnhealthyServer:
        return msgspec.structs.replace(server, next_retry=self._due(server, now))

    def _release(self, key: Key, lease: int) -> None:
        held = self._leases.get(key)
        if lease and held is not None and held.number == lease:
            del self._leases[key]
