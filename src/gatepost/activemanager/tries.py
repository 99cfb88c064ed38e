"""How often a database may be moved: pauses that grow, and an upper bound in an hour (SPEC A2). Pure."""

from __future__ import annotations

from collections import deque

from gatepost.configuration.manager_settings import ManagerSettings

HOUR_SECONDS = 3600.0
LONGEST_RETRY_SECONDS = 300.0
"""What failed for so long does not get better by more pause, and somebody may have repaired it."""
_MOST_DOUBLINGS = 30


class Tries:
    """What was tried with each database. Times are the manager's own clock."""

    def __init__(self, settings: ManagerSettings) -> None:
        self._settings = settings
        self._failures: dict[str, tuple[int, float]] = {}
        """Moves in a row that came to nothing, and when the next one may be tried."""
        self._failovers: dict[str, deque[float]] = {}
        self._not_promoted: dict[str, tuple[int, frozenset[str]]] = {}

    def configure(self, settings: ManagerSettings) -> None:
        """Other pauses from now on."""
        self._settings = settings

    def may_try(self, database: str, now: float) -> bool:
        """Whether the pause after a move that came to nothing is over."""
        return now >= self._failures.get(database, (0, now))[1]

    def failed(self, database: str, now: float) -> None:
        """A move came to nothing: a pause."""
        count = self._failures.get(database, (0, 0.0))[0]
        pause = min(LONGEST_RETRY_SECONDS, self._settings.retry_seconds * 2 ** min(count, _MOST_DOUBLINGS))
        self._failures[database] = count + 1, now + pause

    def moved(self, database: str) -> None:
        """The database has another epoch: a new beginning."""
        self._failures.pop(database, None)

    def failed_over(self, database: str, now: float) -> None:
        """A failover was made."""
        self._failovers.setdefault(database, deque()).append(now)

    def too_often(self, database: str, now: float) -> str:
        """Why there may be no failover now; empty when there may."""
        times = self._failovers.get(database)
        if times is None:
            return ""
        while times and now - times[0] >= HOUR_SECONDS:
            times.popleft()
        if len(times) >= self._settings.failovers_per_hour:
            return f"{len(times)} failovers within an hour are enough: somebody must look at it"
        if times:
            pause = self._settings.failover_pause_seconds * 2 ** (len(times) - 1)
            if now - times[-1] < pause:
                return f"the last failover was not {pause:g} s ago"
        return ""

    def not_promoted(self, database: str, epoch: int, server: str) -> None:
        """This server's copy could not be promoted at this epoch."""
        known, servers = self._not_promoted.get(database, (epoch, frozenset()))
        self._not_promoted[database] = epoch, (servers if known == epoch else frozenset()) | {server}

    def tried(self, database: str, epoch: int) -> frozenset[str]:
        """Servers whose copies could not be promoted at this epoch: others come first."""
        known, servers = self._not_promoted.get(database, (epoch, frozenset()))
        return servers if known == epoch else frozenset()
