"""What a manager has seen of the mailbox servers: which services have failed, which are well (SPEC A2, B7).

Pure: probes and times are told. Times are the manager's own monotonic clock, in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from gatepost.activemanager.selection import Health
from gatepost.configuration.manager_settings import ManagerSettings
from gatepost.organization.model import MAILBOX_PROTOCOLS, Organization, Role

Key = tuple[str, str]
"""Server and service."""

LATE_PROBES = 2.0
"""A good answer is good for so many probe intervals; then the next one is overdue."""
EVERYWHERE = ""
"""The group of all servers; the others are the sites."""


class Sight(Enum):
    """What a probe met."""

    WELL = "well"
    REFUSED = "refused"
    """The connection was refused: the machine is there and nothing listens."""
    SILENT = "silent"
    """Nothing came in time."""
    ILL = "ill"
    """An answer that is none, or a certificate or sign-in that is refused."""


@dataclass(slots=True)
class _Service:
    watched_from: float
    well_at: float | None = None
    well_from: float = 0.0
    """Since when it is well without a break."""
    ill_from: float | None = None
    """When the first failure after the last good answer was seen; None while it is well or nothing was seen."""
    refused_from: float | None = None
    """When the connections began to be refused, if nothing else happened since."""
    failures: int = 0
    silent: bool = False
    seen: bool = False
    reason: str = ""
    said: bool | None = None
    """What was last told of it: healthy or not."""


@dataclass(frozen=True, slots=True)
class Change:
    """A service is judged otherwise than before. `since` is by the manager's clock."""

    server: str
    service: str
    healthy: bool
    since: float
    reason: str


def services_of(organization: Organization) -> dict[str, tuple[str, ...]]:
    """The services to watch of each mailbox server that holds a copy."""
    holding = {copy.server for database in organization.databases.values() for copy in database.copies}
    return {
        name: tuple(p.value for p in MAILBOX_PROTOCOLS if server.endpoint(p) is not None)
        for name, server in organization.servers.items()
        if name in holding and Role.MAILBOX in server.roles
    }


class Seen:
    """The services of all servers. `update` must be called before a judgement is asked for."""

    def __init__(self, settings: ManagerSettings, organization: Organization, now: float) -> None:
        self._settings = settings
        self._services: dict[Key, _Service] = {}
        self._by_server: dict[str, dict[str, _Service]] = {}
        self._groups: dict[str, list[str]] = {}
        self._muted: frozenset[str] = frozenset()
        self._all_ill_from: dict[str, float] = {}
        self._held_until: dict[str, float] = {}
        self._resumed = now
        self.configure(settings, organization, now)

    def configure(self, settings: ManagerSettings, organization: Organization, now: float) -> None:
        """Judge by other settings, watch other servers; what is known of those that stay is kept."""
        self._settings = settings
        watched = services_of(organization)
        before, self._services = self._services, {}
        self._by_server, self._groups = {}, {EVERYWHERE: []}
        for server, services in watched.items():
            counted = [s for s in services if not settings.services or s in settings.services]
            for service in counted:
                key = server, service
                self._services[key] = before.get(key) or _Service(now)
                self._by_server.setdefault(server, {})[service] = self._services[key]
            if counted:
                self._groups.setdefault(organization.servers[server].site, []).append(server)
                self._groups[EVERYWHERE].append(server)

    def mute(self, servers: frozenset[str]) -> None:
        """What is seen of these means nothing: they are in maintenance."""
        self._muted = servers

    def probed(self, key: Key, sight: Sight, reason: str, started: float, now: float) -> None:
        """Take a probe's result."""
        service = self._services.get(key)
        if service is None or started < self._resumed:
            return
        service.seen = True
        if sight is Sight.WELL:
            if service.ill_from is not None or service.well_at is None:
                service.well_from = now
            service.well_at, service.ill_from, service.refused_from = now, None, None
            service.failures, service.silent, service.reason = 0, False, ""
        else:
            service.failures += 1
            service.reason = reason
            service.silent = service.silent or sight is Sight.SILENT
            if service.ill_from is None:
                service.ill_from = now
                service.refused_from = now if sight is Sight.REFUSED else None
            elif sight is not Sight.REFUSED:
                service.refused_from = None

    def slept(self, now: float) -> None:
        """This process did not run for a while: nothing is known of that time, and no silence in it counts."""
        self._resumed = now
        for service in self._services.values():
            service.watched_from = now
            service.seen, service.failures, service.silent = False, 0, False
            service.ill_from = service.refused_from = None
            if service.well_at is not None:
                service.well_at = now

    def update(self, now: float) -> None:
        """Look at sites as wholes: one where nobody answers is more likely cut off than dead (two servers or more)."""
        for group, servers in self._groups.items():
            counted = [s for s in servers if s not in self._muted]
            if len(counted) < 2:
                self._all_ill_from.pop(group, None)
            elif all(self._all_ill(server) for server in counted):
                self._all_ill_from.setdefault(group, now)
            elif self._all_ill_from.pop(group, None) is not None:
                # The first one is back; the others may be about to.
                self._held_until[group] = now + 2 * self._settings.failed_seconds

    def hold(self, site: str, now: float) -> str:
        """Why nothing may be moved away from servers of `site` by their failures now; empty when it may."""
        for group in (site, EVERYWHERE):
            since = self._all_ill_from.get(group)
            where = f"site {group}" if group else "the organization"
            if since is not None and now - since < self._settings.site_failed_seconds:
                return f"no server of {where} answers: it may be the network"
            if now < self._held_until.get(group, now):
                return f"servers of {where} are coming back"
        return ""

    def failed(self, server: str, now: float) -> dict[str, str]:
        """The services of `server` that have failed, with the reasons."""
        if server in self._muted:
            return {}
        services = self._by_server.get(server, {})
        return {word: service.reason for word, service in services.items() if self._has_failed(service, now)}

    def failed_servers(self, now: float) -> set[str]:
        """The servers of which a service has failed."""
        return {key[0] for key, s in self._services.items() if self._has_failed(s, now) and key[0] not in self._muted}

    def undecided(self, server: str, now: float) -> bool:
        """Whether it is too soon to tell if `server` works: a service was not seen yet, or has begun to fail."""
        if server in self._muted:
            return False
        services = self._by_server.get(server, {}).values()
        return any(not s.seen or (s.ill_from is not None and not self._has_failed(s, now)) for s in services)

    def failing_from(self, server: str) -> float | None:
        """When the first of the services of `server` that are ill now was seen so."""
        services = self._by_server.get(server, {}).values()
        return min((s.ill_from for s in services if s.ill_from is not None), default=None)

    def health(self, server: str, now: float, *, after: float | None = None) -> Health:
        """`server` as a candidate: a service is well by a good answer that is fresh and came `after` a moment."""
        failed, unknown = set(), set()
        fresh_from = now - LATE_PROBES * self._settings.probe_seconds
        if after is not None:
            fresh_from = max(fresh_from, after)
        for word, service in self._by_server.get(server, {}).items():
            if service.ill_from is not None:
                failed.add(word)
            elif not service.seen or service.well_at is None or service.well_at < fresh_from:
                unknown.add(word)
        return Health(frozenset(failed), frozenset(unknown))

    def well_for(self, server: str, now: float) -> float:
        """For how many seconds all services of `server` have been well; 0 when one is not."""
        services = self._by_server.get(server, {}).values()
        if not services or any(s.ill_from is not None or s.well_at is None for s in services):
            return 0.0
        return min(now - s.well_from for s in services)

    def changes(self, now: float, *, everything: bool = False) -> list[Change]:
        """Services that are judged otherwise than when they were last asked for; with `everything` all that are known.

        One that fails is said when it counts as failed, one that is well again at once. Muted ones are not said.
        """
        found = []
        for (server, word), service in self._services.items():
            if server in self._muted or not service.seen:
                continue
            well = service.ill_from is None
            if not well and not self._has_failed(service, now) and service.said is not False and not everything:
                continue
            healthy = well or not self._has_failed(service, now)
            if healthy != service.said or everything:
                service.said = healthy
                since = service.well_from if service.ill_from is None else service.ill_from
                found.append(Change(server, word, healthy, since, "" if healthy else service.reason))
        return found

    def describe(self, now: float) -> Mapping[str, str]:
        """The services that are ill, in words, for the status."""
        return {
            f"{server} {word}": service.reason
            for (server, word), service in self._services.items()
            if service.ill_from is not None and now >= service.ill_from
        }

    def _all_ill(self, server: str) -> bool:
        return all(service.ill_from is not None for service in self._by_server[server].values())

    def _has_failed(self, service: _Service, now: float) -> bool:
        if service.ill_from is None:
            return False
        settings = self._settings
        if service.refused_from is not None and service.failures > 1:
            return now - service.refused_from >= min(settings.refused_seconds, settings.failed_seconds)
        last = service.watched_from if service.well_at is None else service.well_at
        # One slow answer is none: two failures, or one silence that lasted most of the time.
        return now - last >= settings.failed_seconds and (service.failures > 1 or service.silent)
