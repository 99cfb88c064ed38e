"""Which servers are up, service by service (SPEC B7): what probes and real requests say of them.

                    two probes failed in a row, or
    up  ───  failures of two clients within the window  ───►  down
     ▲                                                          │
     └──────────── one good probe, or a real success ◄──────────┘

A service is one of a server's: `imap`, `pop3`, `https`, or the word of an HTTP service such as `owa`. Pure: the time
comes as argument, in seconds of any clock that only grows. The operator's word is kept elsewhere (field case 7).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from gatepost.organization.addresses import owner_of

PROBES_TO_GO_DOWN = 2
"""Probes that fail in a row: one may have met a restart or a lost packet."""
WINDOW_SECONDS = 10.0
"""Within it failures of two clients count together: longer than a connection attempt takes, short enough that single
hiccups do not add up."""
MAX_KEYS = 10_000
"""Servers times services that are remembered; over it those that are up and were longest not heard of are forgotten."""
MAX_REASON = 200
"""Characters of a reason; it may hold words of a server."""

PROBE = "probe"
REQUESTS = "requests"

Key = tuple[str, str]
"""Server and service."""


@dataclass(frozen=True, slots=True)
class Change:
    """A server's service went down or came up. `source` is `PROBE` or `REQUESTS`."""

    key: Key
    up: bool
    reason: str
    source: str


@dataclass(slots=True)
class _State:
    since: float
    up: bool = True
    reason: str = ""
    source: str = ""
    failed_probes: int = 0
    last_client: str | None = None
    last_failure: float = 0.0
    """Only the last failure is kept: an earlier one of another client would have counted together with it then."""
    next_probe: float | None = None


class HealthBoard:
    """The state of every service that was probed or has failed; all others are healthy. Each report is O(1)."""

    __slots__ = ("_limit", "_states")

    def __init__(self, limit: int = MAX_KEYS) -> None:
        self._states: OrderedDict[Key, _State] = OrderedDict()
        self._limit = limit

    def __len__(self) -> int:
        return len(self._states)

    def healthy(self, key: Key, now: float) -> bool:  # noqa: ARG002 - states change by reports only; callers have the time
        """Whether requests should go there."""
        state = self._states.get(key)
        return state is None or state.up

    def down(self) -> list[Key]:
        """The services that are down."""
        return [key for key, state in self._states.items() if not state.up]

    def connected(self, key: Key, now: float) -> Change | None:
        """A real request got an answer there: whatever spoke against it is over."""
        state = self._states.get(key)
        if state is None:
            return None
        state.last_client = None
        state.failed_probes = 0
        return None if state.up else self._up(key, state, now, REQUESTS)

    def failed(self, key: Key, client: str, now: float, reason: str) -> Change | None:
        """A real request of `client` found nobody there: connecting, TLS or the protocol failed, nothing else counts.

        One client alone, an IPv6 /64 being one, never marks a server down (field case 105).
        """
        state = self._state(key, now)
        client = owner_of(client)
        other, before = state.last_client, state.last_failure
        state.last_client, state.last_failure = client, now
        if not state.up or other is None or other == client or now - before > WINDOW_SECONDS:
            return None
        return self._down(key, state, now, reason, REQUESTS)

    def probed(self, key: Key, ok: bool, now: float, reason: str = "") -> Change | None:
        """A probe is over. `reason` says why it failed."""
        state = self._state(key, now)
        if ok:
            state.failed_probes, state.last_client = 0, None
            return None if state.up else self._up(key, state, now, PROBE)
        state.failed_probes += 1
        if not state.up:
            state.reason = reason[:MAX_REASON]
            return None
        return self._down(key, state, now, reason, PROBE) if state.failed_probes >= PROBES_TO_GO_DOWN else None

    def will_probe(self, key: Key, at: float) -> None:
        """The next probe is planned for `at`."""
        state = self._states.get(key)
        if state is not None:
            state.next_probe = at

    def forget(self, key: Key) -> None:
        """The service is no longer in the organization."""
        self._states.pop(key, None)

    def describe(self, now: float) -> list[dict[str, Any]]:
        """One entry a service, sorted; times are seconds before or after `now`."""
        return [
            {
                "server": key[0],
                "service": key[1],
                "state": "up" if state.up else "down",
                "since": round(now - state.since, 1),
                "reason": state.reason,
                "source": state.source,
                "next_probe": None if state.next_probe is None else round(max(state.next_probe - now, 0.0), 1),
            }
            for key, state in sorted(self._states.items())
        ]

    def _state(self, key: Key, now: float) -> _State:
        state = self._states.get(key)
        if state is None:
            if len(self._states) >= self._limit:
                self._make_room()
            state = self._states[key] = _State(now)
        else:
            self._states.move_to_end(key)
        return state

    def _make_room(self) -> None:
        """Forget the oldest that is up; looks at a few only, so that a board full of dead servers costs no more."""
        oldest = [key for key, _ in zip(self._states, range(8), strict=False)]
        del self._states[next((key for key in oldest if self._states[key].up), oldest[0])]

    def _down(self, key: Key, state: _State, now: float, reason: str, source: str) -> Change:
        state.up, state.since = False, now
        state.reason, state.source = reason[:MAX_REASON], source
        state.last_client = None
        return Change(key, up=False, reason=state.reason, source=source)

    def _up(self, key: Key, state: _State, now: float, source: str) -> Change:
        state.up, state.since = True, now
        state.reason, state.source = "", source
        state.failed_probes, state.last_client = 0, None
        return Change(key, up=True, reason="", source=source)
