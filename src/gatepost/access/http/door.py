"""What all HTTP connections of a worker share: settings, services, destinations, pools, the sweep over deadlines.

HttpDoor ── makes ──► HttpClientLeg ──► Exchange ──► Pool ──► HttpServerLeg
"""

from __future__ import annotations

import asyncio
import ssl
import uuid
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from gatepost.access.admission import Admission
from gatepost.access.health import AllHealthy, HealthService
from gatepost.access.http import well_known
from gatepost.access.http.affinity_cookie import AffinityCookie
from gatepost.access.http.autodiscover.service import Autodiscover
from gatepost.access.http.client_leg import HttpClientLeg
from gatepost.access.http.collected import Collecting
from gatepost.access.http.connection import HttpConnection, Phase
from gatepost.access.http.destination import Destination
from gatepost.access.http.exchange import Exchange
from gatepost.access.http.forms.flow import FormsFlow
from gatepost.access.http.leaving import HttpLeaver
from gatepost.access.http.pool import Pool, ServerConnections
from gatepost.access.http.request_log import RequestLog
from gatepost.access.http.sharing import share
from gatepost.access.http.slots import Slots
from gatepost.access.moves import Changed, Leaver
from gatepost.access.parking import Parking
from gatepost.access.router import Router
from gatepost.access.sessions import SessionFilter
from gatepost.access.tls import takes_tickets
from gatepost.balancing.first_contacts import FirstContacts
from gatepost.configuration.settings import Configuration
from gatepost.directory.sign_in import SignInService
from gatepost.organization.model import AuthenticationMethod, Server, TlsMode
from gatepost.organization.model import Protocol as Kind
from gatepost.routing.decision import Target
from gatepost.sharedstate.port import SharedState
from gatepost.wire.http_fields import request_rules, response_rules
from gatepost.wire.http_head import host_name
from gatepost.wire.proxy_protocol import ProxyHeader

if TYPE_CHECKING:
    from gatepost.access.http.peer import PeerEntrance

SWEEP_SECONDS = 1.0
"""How often deadlines are looked at; no timer is made for a request."""
RELAY_SWEEPS = 30
"""Sweeps between two looks at upgraded connections, whose idle time is over half an hour."""
_SERVICE = "https"
"""What the manager looks at when it says that a server is alive."""
MAX_TURNS = 1_000
"""Services whose turns are counted; the words are of paths, which clients choose."""
MAX_DESTINATIONS = 10_000
"""Targets whose destination is kept: servers times virtual directories, and again after each change of a view."""


class ClientContext(Protocol):
    """Where TLS contexts for connections to servers come from."""

    def __call__(self, server: Server, *, peer: bool = False) -> ssl.SSLContext:
        """The verified context for connections to `server`, or with `peer` to its endpoint for other front ends."""
        ...


class HttpDoor(RequestLog):
    """The HTTP side of one worker.

    With `admission` connections are counted as strangers until their first signed-in request.
    """

    def __init__(
        self,
        configuration: Configuration,
        loop: asyncio.AbstractEventLoop,
        sign_in: SignInService,
        router: Router,
        client_context: ClientContext,
        log: Any,  # noqa: ANN401 - a structlog logger of whatever kind
        admission: Admission | None = None,
        *,
        shared_state: SharedState | None = None,
        health: HealthService | None = None,
        stores_fault: Callable[[], str] = str,
        parking: Parking | None = None,
    ) -> None:
        self.loop = loop
        self.sign_in = sign_in
        self.router = router
        super().__init__(log, loop)
        self.shared_state = shared_state
        """What all front ends know of devices and sign-outs; None: this one is alone."""
        self.health = health or AllHealthy()
        """Which servers are up."""
        self.stores_fault = stores_fault
        """Why nobody can be signed in or routed now; empty: all is well."""
        limit = configuration.front_end.limits.parked
        self.parking = parking if parking is not None else Parking(loop, router.view, limit)
        """Where requests wait for their database; shared with other doors."""
        self.draining = False
        self.response_rules = response_rules()
        self.peer_response_rules = response_rules(peer=True)
        self.relays: set[HttpConnection] = set()
        self._admission = admission
        self._legs: set[HttpConnection] = set()
        self._all_gone = asyncio.Event()
        self._connections: dict[str, ServerConnections] = {}
        self._numbers = count(1)
        self._request_prefix = str(uuid.uuid4())[:24].encode()
        self._pools: dict[tuple[object, ...], Pool] = {}
        self._destinations: dict[int, Destination] = {}
        self._sweeps = 0
        self._turns: dict[str, int] = {}
        self.configuration = configuration
        self.slots = Slots(configuration.front_end.limits.http_requests, loop)
        self.forms = FormsFlow(self)
        self.autodiscover = Autodiscover(self)
        self.collecting = Collecting()
        self.first_contacts = FirstContacts()
        self.peers: PeerEntrance | None = None
        """What is between front ends; None: this one has no peer certificate."""
        self._configure(configuration, client_context)
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)

    def reload(self, configuration: Configuration, client_context: ClientContext) -> None:
        """Use another configuration from the next request on; responses under way are finished."""
        for pool in self._pools.values():
            pool.retire()
        self._configure(configuration, client_context)

    def takes_ticket(self, route: str) -> bool:
        """Whether the directory of a decoded path has Integrated authentication, and tickets can be judged."""
        return self.sign_in.accepts_tickets(Kind.HTTPS) and self._has(route, AuthenticationMethod.INTEGRATED)

    def takes_certificate(self, route: str) -> bool:
        """Whether the directory of a decoded path takes clients' certificates, and clients are asked for them."""
        return self.sign_in.accepts_certificates(Kind.HTTPS) and self._has(route, AuthenticationMethod.CERTIFICATE)

    def takes_token(self, route: str) -> bool:
        """Whether the directory of a decoded path has OAuth, and tokens can be judged."""
        return self.sign_in.accepts_tokens and self._has(route, AuthenticationMethod.OAUTH)

    def _has(self, route: str, method: AuthenticationMethod) -> bool:
        directory = self.forms.own_directory(route)
        return directory is not None and method in directory.authentication

    def _configure(self, configuration: Configuration, client_context: ClientContext) -> None:
        front_end, organization, server = configuration.front_end, configuration.organization, configuration.server
        self.configuration = configuration
        self.limits = front_end.limits
        self.clear_passwords = front_end.allow_clear_passwords
        self.log_requests = front_end.log_requests
        self.realm = organization.name
        self.name = server.name.encode("ascii", "replace")
        self.via_line = b"Via: 1.1 %b\r\n" % self.name
        self.request_rules = request_rules(s.sign_in.http_header for s in organization.servers.values())
        self._client_context = client_context
        self.slots.set_limit(self.limits.http_requests)
        self.forms.configure()
        key, others = front_end.private_key, front_end.forms.also_opens
        self.affinity_cookie = AffinityCookie(key, others) if key else None
        self.jmap_path = well_known.directory_path(organization, "jmap")
        self._configure_peers(configuration)
        self._pools = {}
        self._destinations = {}
        for name, connections in self._connections.items():
            connections.pools.clear()
            if name in organization.servers:
                connections.limit = organization.servers[name].max_connections
        own = [d.external_url for d in organization.virtual_directories if d.server == server.name and d.external_url]
        names = [urlsplit(url).hostname or "" for url in own]
        arrays = [a.fqdn for a in organization.arrays.values() if server.name in a.members]
        accepted = [*names, *arrays, server.fqdn]
        self.external_name = next(name for name in accepted if name)
        self._accepted_names = {name.lower() for name in accepted if name}
        self.default_host = self.external_name.encode("ascii", "ignore")
        ports = [e.port for e in server.endpoints if e.name == "https"]
        self._secure_port = b"" if not ports or 443 in ports else b":%d" % ports[0]

    def _configure_peers(self, configuration: Configuration) -> None:
        if configuration.front_end.peer_keys is None:
            self.peers = None
        elif self.peers is not None:
            self.peers.configure(configuration)
        else:
            # A front end that stands alone needs neither this nor the libraries for certificates and signatures.
            from gatepost.access.http.peer import PeerEntrance

            self.peers = PeerEntrance(self, configuration)

    # --- for the listeners and the service

    def protocol(self, *, tls: bool, proxy: ProxyHeader | None = None, peer: bool = False) -> HttpClientLeg:
        """The protocol of a new client connection, or with `peer` of one of another front end."""
        if peer and self.peers is not None:
            from gatepost.access.http.peer_leg import PeerLeg

            return PeerLeg(self, self.peers)
        return HttpClientLeg(self, tls=tls, proxy=proxy)

    async def drain(self, seconds: float) -> None:
        """Close idle connections now, the others after their response, all of them when `seconds` have passed."""
        self.draining = True
        for leg in list(self._legs):
            if leg.phase is Phase.IDLE:
                leg.close("drained")
        try:
            async with asyncio.timeout(seconds):
                while self._legs:
                    self._all_gone.clear()
                    await self._all_gone.wait()
        except TimeoutError:
            for leg in list(self._legs):
                leg.cut("drained at the deadline")
        self._sweeper.cancel()
        for pool in self._pools.values():
            pool.retire()

    def sessions(self) -> list[dict[str, Any]]:
        """One entry a client connection."""
        return [leg.describe() for leg in self._legs]

    def legs(self) -> list[HttpConnection]:
        """Every connection there is now."""
        return list(self._legs)

    def move(self, changes: list[Changed], dead: frozenset[tuple[str, str]]) -> list[Leaver]:
        """The connections on which something is under way that must go because of `changes`.

        Nothing more is expected of the services (server and protocol) in `dead`. What waits for its turn to be decided
        has no epoch yet.
        """
        databases = {changed.database for changed in changes}
        found: list[Leaver] = []
        for leg in list(self._legs):
            under_way = leg.upgraded or leg.exchange
            if under_way is None or under_way.database not in databases:
                continue
            if not self.is_current(under_way.database, under_way.epoch):
                is_dead = (under_way.server_name, _SERVICE) in dead
                found.append(HttpLeaver(leg, "the database has moved", moved=True, dead=is_dead))
        return found

    def is_current(self, database: str, epoch: int) -> bool:
        """Whether `epoch` is still that of `database`; what was decided without one (0) is not overtaken by any."""
        active = self.router.view.active.get(database)
        return not epoch or active is None or active.epoch == epoch

    def leavers(self, wanted: SessionFilter, reason: str) -> list[tuple[str, Leaver]]:
        """The connections that match, by id, for an operator who ends them."""
        return [(leg.session, HttpLeaver(leg, reason)) for leg in self._legs if wanted.matches(leg.describe())]

    def shown_app_password(self, wanted: Callable[[int], bool], reason: str) -> list[Leaver]:
        """The clients' connections that showed an app password last whose number is `wanted`."""
        return [
            HttpLeaver(leg, reason)
            for leg in self._legs
            if isinstance(leg, HttpClientLeg)
            and (identity := leg.identity) is not None
            and identity.app_password
            and wanted(identity.app_password)
        ]

    def counters(self) -> dict[str, int]:
        """Requests under way, and connections to servers by server: `http.requests.waiting`, `http.MBX-01.opened`, ….

        What waited in vain is counted as `refused`.
        """
        slots = self.slots
        own = {"under_way": slots.used, "waiting": slots.waiting, "refused": slots.refused}
        return {f"http.requests.{what}": number for what, number in own.items()} | {
            f"http.{name}.{what}": number
            for name, connections in sorted(self._connections.items())
            for what, number in connections.counters().items()
        }

    def server_dead(self, name: str) -> None:
        """Probes find a service of that server dead: requests that wait for it need not, if another has it.

        Its unused connections are closed: when it is back, most of them will be of no use.
        """
        for pool in self._pools.values():
            if pool.server_name == name:
                pool.close_idle()
        waiting = [leg.exchange for leg in self._legs if isinstance(leg.exchange, Exchange)]
        for exchange in waiting:
            if exchange.server_name == name and not self.health.healthy(name, exchange.asked.service):
                exchange.server_dead()

    # --- for the legs

    def enter(self, leg: HttpClientLeg) -> bool:
        """A connection has come; False when there are too many."""
        welcome = not self.draining and (self._admission is None or self._admission.arrive(leg.address[0]))
        leg.admitted = welcome and self._admission is not None
        self._legs.add(leg)
        return welcome

    def settle(self, leg: HttpConnection) -> None:
        """The connection has carried a signed-in request: it is no stranger any more."""
        if self._admission is not None and leg.admitted:
            self._admission.settle(leg.address[0])

    def leave(self, leg: HttpConnection, reason: str, seconds: float) -> None:
        """The connection is gone: one log line, or one more in the count of those that nobody tried to sign in on."""
        self._legs.discard(leg)
        if self._admission is not None and leg.admitted:
            self._admission.leave(leg.address[0], settled=leg.settled)
        if not self._legs:
            self._all_gone.set()
        self.ended(leg, reason, seconds)

    def new_session(self) -> str:
        """An id for the log lines of one connection."""
        return f"{self._request_prefix[:8].decode()}-{next(self._numbers):x}"

    def new_request_id(self) -> bytes:
        """An id for one request, in the form of a GUID."""
        return b"%b%012x" % (self._request_prefix, next(self._numbers))

    def turn(self, service: str) -> int:
        """A number that grows with each call for `service`: whose turn it is where servers take turns.

        With one number for all, a client that asks for two services by turns would always come to the same servers.
        """
        if len(self._turns) >= MAX_TURNS:
            self._turns.clear()
        turn = self._turns[service] = self._turns.get(service, -1) + 1
        return turn

    def has_passed(self, via: bytes) -> bool:
        """Whether `Via` says that this front end has had the request before (SPEC C11)."""
        return any(hop.split()[1:2] == [self.name] for hop in via.split(b","))

    def secure_origin(self, host: bytes | None) -> bytes:
        """Where a client on a clear listener is sent; a name that is not ours is not repeated."""
        name = host_name(host) if host else ""
        if name not in self._accepted_names:
            name = self.external_name
        return b"https://%b%b" % (name.encode("ascii", "ignore"), self._secure_port)

    def destination(self, target: Target) -> Destination:
        """The destination of a decision's target. The router answers the same object until something changes."""
        found = self._destinations.get(id(target))
        if found is not None and found.target is target:
            return found
        if len(self._destinations) >= MAX_DESTINATIONS:
            self._destinations.clear()
        server = self.configuration.organization.servers[target.server]
        made = Destination(
            target,
            server,
            self.configuration.server.name,
            self._pool(target, server),
            peers_by_ticket=takes_tickets(self.configuration.front_end),
        )
        if target.peer and self.peers is None:
            made.fault = "this front end has no peer certificate"
        self._destinations[id(target)] = made
        return made

    def _pool(self, target: Target, server: Server) -> Pool:
        endpoint = target.endpoint
        key = (
            server.name, endpoint.address, endpoint.port, endpoint.tls, endpoint.tls_name, server.sign_in.http,
            target.peer,
        )  # fmt: skip
        pool = self._pools.get(key)
        if pool is None:
            connections = self._connections.get(server.name)
            if connections is None:
                connections = self._connections[server.name] = ServerConnections(server.max_connections, self.loop)
            context: ssl.SSLContext | None = None
            if target.peer and self.peers is not None:
                context = self._client_context(server, peer=True)
            elif endpoint.tls is not TlsMode.CLEAR:
                context = self._client_context(server)
            pool = self._pools[key] = Pool(self, connections, server.name, endpoint, context, peer=target.peer)
        return pool

    def _sweep(self) -> None:
        self._sweeper = self.loop.call_later(SWEEP_SECONDS, self._sweep)
        self.sweep(self.loop.time())

    def sweep(self, now: float) -> None:
        """End what has passed its deadline at `now`, the loop's time."""
        for leg in [leg for leg in self._legs if leg.deadline < now and leg.phase is not Phase.RELAYING]:
            leg.expired()
        for pool in self._pools.values():
            pool.sweep(now)
        share(self._legs, self.slots, self._connections)
        self._sweeps += 1
        if self._sweeps % RELAY_SWEEPS == 0:
            for leg in list(self.relays):
                if leg.relay is not None:
                    leg.relay.sweep(now, self.limits.http_response_seconds, b"")
