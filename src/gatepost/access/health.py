"""Which servers of this worker's are up: probes of its own beside what real requests met (SPEC B7).

    doors ── connected, failed ──► HealthBoard ◄── probed ── one short task a probe
      ▲                                │
      └── healthy? ────────────────────┘

Services are probed that requests went to lately, and those that are down until they are up again.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable
from typing import Any
from typing import Protocol as Port

from gatepost.access import tasks
from gatepost.activemanager import probes
from gatepost.balancing.health import Change, HealthBoard, Key
from gatepost.configuration.settings import Configuration
from gatepost.organization.model import Protocol, Server, TlsMode

USED_SECONDS = 300.0
"""A service that nobody asked for in this time is probed no more: nobody would notice."""
MAX_AT_ONCE = 32
"""Probes under way; with a hundred dead servers the others' probes still come in time (32 every 5 s of silence)."""
MAX_WORDS = 10_000
"""Words of paths whose service is remembered; clients choose them."""
TICKS = 10
"""Looks for due probes within `probe_seconds`."""
JITTER = 0.2
"""By this part of the interval probes come earlier or later, so that workers and front ends do not march in step."""


class Contexts(Port):
    """Verified TLS contexts (`access.tls.ClientContexts`)."""

    def __call__(self, server: Server, *, peer: bool = False) -> ssl.SSLContext:
        """For connections to `server`; with `peer` to its endpoint for other front ends."""
        ...


class AllHealthy:
    """Stands in for the health service where nobody watches: every server is tried."""

    def healthy(self, _server: str, _service: str) -> bool:
        """Always."""
        return True

    def connected(self, _server: str, _service: str) -> None:
        """Nobody keeps it."""

    def failed(self, _server: str, _service: str, _client: str, _reason: str) -> None:
        """Nobody keeps it."""

    def watch(self, _server: str, _service: str) -> None:
        """Nobody probes."""


class _Watched:
    """A service that is probed."""

    __slots__ = ("due", "probing", "used")

    def __init__(self, now: float, due: float) -> None:
        self.used = now
        self.due = due
        self.probing = False


class HealthService:
    """The health of all servers as one worker sees it. Servers and services by their names.

    A service is `imap`, `pop3`, `submission`, `smtp`, `https`, or the word of an HTTP service such as `owa`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        configuration: Configuration,
        client_context: Contexts,
        log: Any,  # noqa: ANN401 - a structlog logger of whatever kind
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._loop = loop
        self._configuration = configuration
        self._client_context = client_context
        self._log = log
        self._chance = chance
        self._board = HealthBoard()
        self._watched: dict[Key, _Watched] = {}
        self._keys: dict[Key, Key] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.when_dead: Callable[[str], None] | None = None
        """Called with a server's name at each failed probe while a service of its is down: who waits there waits in
        vain, also who has come since."""
        self._tick()

    # --- for the doors

    def healthy(self, server: str, service: str) -> bool:
        """Whether requests for this service should go to `server`."""
        return self._board.healthy(self._key(server, service), 0.0)

    def connected(self, server: str, service: str) -> None:
        """A real request got an answer of the server."""
        key = self._key(server, service)
        now = self._loop.time()
        self._watch(key, now)
        self._tell(self._board.connected(key, now))

    def failed(self, server: str, service: str, client: str, reason: str) -> None:
        """A real request of the client address `client` failed: connecting, TLS or the protocol, nothing else."""
        key = self._key(server, service)
        now = self._loop.time()
        watched = self._watch(key, now)
        if watched is None:
            return  # what cannot be probed would stay down
        change = self._board.failed(key, client, now, reason)
        if change is not None:
            watched.due = now  # is it one bad moment?
        self._tell(change)

    def watch(self, server: str, service: str) -> None:
        """Somebody relies on this service: probe it for a while, as if a request had gone there."""
        self._watch(self._key(server, service), self._loop.time())

    def describe(self) -> list[dict[str, Any]]:
        """One entry a service that was probed or has failed: see `HealthBoard.describe`."""
        return self._board.describe(self._loop.time())

    def counters(self) -> dict[str, int]:
        """For each service that is down, the seconds since: `down.MBX-01.owa`."""
        return {
            f"down.{entry['server']}.{entry['service']}": int(entry["since"])
            for entry in self.describe()
            if entry["state"] == "down"
        }

    # --- for the front door

    def reload(self, configuration: Configuration, client_context: Contexts) -> None:
        """Probe by another configuration; what is known of services that stay is kept."""
        self._configuration = configuration
        self._client_context = client_context
        self._keys.clear()
        for key in [key for key in self._watched if self._plan(key) is None]:
            del self._watched[key]
            self._board.forget(key)

    def close(self) -> None:
        """Probe no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in list(self._tasks):
            task.cancel()

    # --- probing

    def _watch(self, key: Key, now: float) -> _Watched | None:
        watched = self._watched.get(key)
        if watched is not None:
            watched.used = now
            return watched
        if self._plan(key) is None:
            return None
        watched = self._watched[key] = _Watched(now, now + self._interval())
        return watched

    def _key(self, server: str, word: str) -> Key:
        """What is watched: a service that the server has. What else a path may say is one service, `https`."""
        key = self._keys.get((server, word))
        if key is None:
            if len(self._keys) >= MAX_WORDS:
                self._keys.clear()
            key = self._keys[server, word] = (server, self._service(server, word))
        return key

    def _service(self, server: str, word: str) -> str:
        if word in probes.MAIL:
            return word
        organization = self._configuration.organization
        found = organization.servers.get(server)
        directory = probes.directory_of(organization, found, word) if found is not None else None
        return directory.service.casefold() if directory is not None else Protocol.HTTPS.value

    def _plan(self, key: Key) -> probes.Probe | None:
        probe = probes.plan(self._configuration.organization, *key)
        if probe is not None and probe.peer and self._configuration.front_end.peer_keys is None:
            return None  # nobody here can talk to a peer
        return probe

    def _interval(self) -> float:
        return self._configuration.front_end.limits.probe_seconds * (1 + JITTER * (2 * self._chance() - 1))

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self._configuration.front_end.limits.probe_seconds / TICKS, self._tick)
        self.probe_due(self._loop.time())

    def probe_due(self, now: float) -> None:
        """Start the probes that are due at `now`, the longest overdue first; forget what nobody uses."""
        for key in [key for key, watched in self._watched.items() if now - watched.used > USED_SECONDS]:
            if self._board.healthy(key, now) and not self._watched[key].probing:
                del self._watched[key]
        due = [(watched.due, key) for key, watched in self._watched.items() if watched.due <= now]
        for _, key in sorted(due):
            if len(self._tasks) >= MAX_AT_ONCE:
                return
            watched = self._watched[key]
            if not watched.probing:
                watched.probing = True
                task = tasks.start(self._probe(key, watched), f"probe {key[0]} {key[1]}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _probe(self, key: Key, watched: _Watched) -> None:
        try:
            probe = self._plan(key)
            if probe is None:
                return
            clear = probe.endpoint.tls is TlsMode.CLEAR
            context = None if clear else self._client_context(probe.server, peer=probe.peer)
            seconds = self._configuration.front_end.limits.probe_answer_seconds
            reason = await probes.run(probe, context, seconds)
        finally:
            watched.probing = False
            watched.due = self._loop.time() + self._interval()
        if self._watched.get(key) is watched:
            self._tell(self._board.probed(key, not reason, self._loop.time(), reason))
            self._board.will_probe(key, watched.due)
            if reason and not self._board.healthy(key, 0.0) and self.when_dead is not None:
                self.when_dead(key[0])

    def _tell(self, change: Change | None) -> None:
        if change is None:
            return
        server, service = change.key
        if change.up:
            self._log.info("server.up", server=server, service=service, source=change.source)
        else:
            self._log.warning("server.down", server=server, service=service, source=change.source, reason=change.reason)
