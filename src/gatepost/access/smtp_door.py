"""Strangers' mail on port 25, one name for all hubs: each session is handed to a hub that is up (SPEC B7, T12).

SmtpDoor ── makes ──► SmtpClientLeg ── opens ──► MailServerLeg (HubGreeting)
    │                      └──────── Relay ────────┘
    └── equal shares over the healthy hubs of the nearest site that has any
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from structlog.typing import FilteringBoundLogger

from gatepost.access.admission import Admission
from gatepost.access.busy_log import BusyLog
from gatepost.access.health import HealthService
from gatepost.access.mail_server import AttemptFailed
from gatepost.access.moves import Changed, Leaver
from gatepost.access.relay_door import RelayDoor
from gatepost.access.router import Router
from gatepost.access.tls import ClientContexts
from gatepost.balancing.equal_share import EqualShare
from gatepost.configuration.settings import Configuration
from gatepost.organization.model import Protocol
from gatepost.routing.hubs import hubs_by_distance
from gatepost.routing.outcome import Target
from gatepost.wire.proxy_protocol import ProxyHeader

if TYPE_CHECKING:
    from gatepost.access.health import AllHealthy
    from gatepost.access.smtp_client import SmtpClientLeg

MAX_TRIED = 6
"""Hubs tried for one session: each may take `connect_seconds`, and the client waits for its greeting."""
_SERVICE = Protocol.SMTP.value
FURTHER_REFUSED = "further connections that no hub takes"


class SmtpDoor(RelayDoor["SmtpClientLeg"]):
    """The sessions of port 25 in this worker."""

    def __init__(
        self,
        configuration: Configuration,
        router: Router,
        admission: Admission,
        client_contexts: ClientContexts,
        log: FilteringBoundLogger,
        health: HealthService | AllHealthy,
    ) -> None:
        super().__init__(Protocol.SMTP, configuration, router, admission, log)
        self.client_contexts = client_contexts
        self.health = health
        self.refused_event = f"{_SERVICE}.refused"
        self.refused_log = BusyLog(log, self.refused_event, self.loop, further=FURTHER_REFUSED)
        """For connections that no hub took: whoever can connect makes them, while the hubs are down."""
        self._share = EqualShare()
        self._tiers = self._find()

    def _find(self) -> list[dict[str, Target]]:
        organization, site = self.configuration.organization, self.configuration.server.site
        tiers = hubs_by_distance(organization, site, Protocol.SMTP)
        return [{target.server: target for target in tier} for tier in tiers]

    def reload(self, configuration: Configuration, client_contexts: ClientContexts) -> None:
        """Use another configuration for sessions that begin later."""
        self.configuration = configuration
        self.limits = configuration.front_end.limits
        self.client_contexts = client_contexts
        self._tiers = self._find()

    def factory(self) -> Callable[[ProxyHeader | None], SmtpClientLeg]:
        """Makes the protocol of a connection."""
        from gatepost.access.smtp_client import SmtpClientLeg

        def make(proxy: ProxyHeader | None = None) -> SmtpClientLeg:
            return SmtpClientLeg(self, proxy=proxy)

        return make

    def hubs(self) -> Iterator[Target]:
        """Where to try a session, in this order. Each that is taken out counts as its share.

        First those that are up, site by site; at last those that are not: they may be back.
        """
        return islice(self._hubs(), MAX_TRIED)

    def _hubs(self) -> Iterator[Target]:
        late: list[Target] = []
        for tier in self._tiers:
            for name in self._share.order(tier, self._is_up):
                target = tier[name]
                if not self._is_up(name):
                    late.append(target)
                    continue
                self._share.give(name)
                yield target
        for target in late:
            self._share.give(target.server)
            yield target

    def _is_up(self, server: str) -> bool:
        return self.health.healthy(server, _SERVICE)

    def tell_health(self, target: Target, client: str, failure: AttemptFailed | None = None) -> None:
        """What came of an attempt. A hub that refuses may refuse this client only: probes find out what it means."""
        if failure is None:
            self.health.connected(target.server, _SERVICE)
        elif failure.by_server:
            self.health.watch(target.server, _SERVICE)
        else:
            self.health.failed(target.server, _SERVICE, client, str(failure))

    def move(self, changes: list[Changed], dead: frozenset[tuple[str, str]]) -> list[Leaver]:  # noqa: ARG002
        """Nobody: strangers' sessions belong to no database."""
        return []

    def counters(self) -> dict[str, int]:
        """Sessions of this worker at each hub."""
        found: dict[str, int] = {}
        for leg in self.relaying:
            key = f"smtp.{leg.server}"
            found[key] = found.get(key, 0) + 1
        return found
