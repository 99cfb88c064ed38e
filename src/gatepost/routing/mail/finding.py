"""One route, found by the rules, with its reasons in their order (SPEC T3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gatepost.organization.model import Organization, Role, Server, Version
from gatepost.organization.transport import DomainKind
from gatepost.organization.transport_text import size_text, smart_host_text
from gatepost.routing.mail.connectors import LOCAL, SAME_SITE, Chosen, choose, source_sites, sources
from gatepost.routing.mail.destinations import Destinations, delivery_group, group_of
from gatepost.routing.mail.outcome import Refused, Route, Routed
from gatepost.routing.mail.paths import Path, Paths, backed_off, first_stop
from gatepost.routing.next_hop import DeliveryType, NextHop
from gatepost.routing.outcome import Step, StepKind
from gatepost.wire.smtp_reply import Reply

RULE = "T3"
UNREACHABLE = NextHop(DeliveryType.UNREACHABLE, "Unreachable Domain")
_KIND_WORDS = {
    DomainKind.AUTHORITATIVE: "authoritative: all its mailboxes are here",
    DomainKind.INTERNAL_RELAY: "internal relay: some of its mailboxes are here",
    DomainKind.EXTERNAL_RELAY: "external relay: none of its mailboxes are here",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What a route is found from. `server` is the mailbox's: of the active copy, or its home server."""

    domain: str
    has_mailbox: bool
    database: str | None
    server: str | None
    size: int
    unreachable: frozenset[str]
    internal: bool


class Finder:
    """Finds routes from one server. It remembers nothing but paths."""

    def __init__(self, organization: Organization, paths: Paths, own: Server, destinations: Destinations) -> None:
        self._organization = organization
        self._paths = paths
        self._own = own
        self._destinations = destinations

    def find(self, facts: Facts) -> Route:
        """The route. By the accepted domain first: whose recipients are here, and who says so."""
        return _Case(self, facts).route()

    def still_leads(self, next_hop: NextHop, active: Mapping[str, str]) -> bool:
        """Whether the active copy of the database is still where `next_hop` was found for; others stay as they are."""
        if next_hop.delivery is not DeliveryType.MAILBOX:
            return True
        facts = Facts("", True, next_hop.domain, active.get(next_hop.domain), 0, frozenset(), internal=False)
        route = _Case(self, facts).to_mailbox()
        return isinstance(route, Routed) and route.next_hop == next_hop

    @property
    def organization(self) -> Organization:
        """The organization."""
        return self._organization

    @property
    def own(self) -> Server:
        """The server that routes."""
        return self._own

    @property
    def paths(self) -> Paths:
        """The organization's paths."""
        return self._paths

    def needs_hubs(self, server: Server) -> bool:
        """Whether other sites reach it only through the hubs of its site."""
        return self._destinations.behind_hubs(server)


class _Case:
    """One route while it is found."""

    def __init__(self, finder: Finder, facts: Facts) -> None:
        self._finder = finder
        self._organization = finder.organization
        self._own = finder.own
        self._facts = facts
        self._reasons: list[Step] = []

    def route(self) -> Route:
        domain = self._facts.domain
        kind = self._organization.domain_kinds.get(domain)
        if kind is None:
            self._fact(f"{domain} is no accepted domain")
        else:
            self._fact(f"{domain} is an accepted domain, {_KIND_WORDS[kind]}")
        if Role.HUB_TRANSPORT not in self._own.roles:
            return self._from_edge(kind)
        if self._facts.has_mailbox and kind is not DomainKind.EXTERNAL_RELAY:
            return self.to_mailbox()
        if kind is DomainKind.AUTHORITATIVE:
            return self._refused(Reply(550, "No such recipient here", "5.1.1"), "the directory has no such recipient")
        return self._by_connector()

    # Mailboxes

    def to_mailbox(self) -> Route:
        """To the server of the mailbox: in this site, or by the hubs of its own."""
        facts = self._facts
        server = self._organization.servers.get(facts.server or "")
        if server is None:
            what = f"database {facts.database}" if facts.database else "the mailbox"
            return self._unreachable(
                f"no server is known to have {what} active"
                if facts.database
                else f"{what} has no home server that is known"
            )
        if facts.database:
            self._fact(f"the mailbox is in {facts.database}, whose active copy is on {server.name}, site {server.site}")
        else:
            self._fact(f"the mailbox is on {server.name}, site {server.site}")
        if server.site == self._own.site:
            return self._deliver(server)
        path = self._finder.paths.between(self._own.site, server.site)
        if path is None:
            return self._unreachable(f"no site links lead from {self._own.site} to {server.site}")
        return self._along(path, server)

    def _deliver(self, server: Server, path: Path | None = None) -> Route:
        """From this hub to the mailbox server itself, or to the old hubs that can."""
        facts = self._facts
        sites = path.sites if path else ()
        endpoint = server.delivery_endpoint
        if endpoint is not None:
            hop = (
                NextHop(DeliveryType.MAILBOX, facts.database)
                if facts.database
                else NextHop(DeliveryType.SERVERS, server.name)
            )
            return self._routed(hop, f"delivered to {server.name} by {endpoint.protocol.value.upper()}", sites)
        group = group_of(server)
        if server.version < Version.MODERN and any(
            delivery_group(s) == group for s in self._organization.servers.values()
        ):
            text = f"{server.name} has no endpoint for deliveries; the hubs of its version and site reach its mailboxes"
            return self._routed(NextHop(DeliveryType.DELIVERY_GROUP, group), text, sites)
        return self._unreachable(f"{server.name} has no endpoint lmtp or smtp for deliveries")

    # Other sites

    def _along(self, path: Path, server: Server | None, chosen: Chosen | None = None) -> Route:
        """Along a path to another site: to the mailbox server there, or to source servers of a connector."""
        self._fact(f"the least-cost path is {' - '.join(path.sites)}, cost {path.cost}")
        too_large = self._too_large(path)
        if too_large is not None:
            return too_large
        stop = self._stop(path, chosen)
        if stop == 0 and server is not None:
            self._fact(f"no site of the path has a hub but {self._own.site}: it is delivered from here")
            return self._deliver(server, path)
        place = backed_off(path.sites, stop, lambda site: self._can_reach(site, path, chosen))
        if place != stop:
            self._fact(f"site {path.sites[stop]} cannot be reached")
        if place == 0:
            self._fact("no site on the way can be reached: it waits here, nearest to the failure")
            place = stop
        elif place != stop:
            self._fact(f"it waits nearest to the failure, in site {path.sites[place]}")
        site = path.sites[place]
        if chosen is not None and place == len(path.sites) - 1 and not self._goes_to_hubs(site, chosen):
            name = chosen.connector.name
            hop = NextHop(DeliveryType.CONNECTOR_SERVERS, name, name)
            return self._routed(hop, f"relayed to the source servers of {name} in site {site}", path.sites, place)
        return self._routed(NextHop(DeliveryType.SITE, site), f"relayed to the hubs of site {site}", path.sites, place)

    def _stop(self, path: Path, chosen: Chosen | None) -> int:
        """The place on the path that is meant when all is well; 0 when none but this site has hubs."""
        hubs = self._organization.hubs_by_site
        last = len(path.sites) - 1
        stop = first_stop(path, lambda site: site in hubs and self._organization.sites[site].hub_site)
        if stop < last:
            self._fact(f"{path.sites[stop]} is a hub site on the path: the message stops there")
        elif chosen is None and path.sites[last] not in hubs:
            self._fact(f"site {path.sites[last]} has no hubs")
            return next((place for place in range(last - 1, 0, -1) if path.sites[place] in hubs), 0)
        elif last > 1:
            self._fact("no hub site is on the path: directly")
        return stop

    def _can_reach(self, site: str, path: Path, chosen: Chosen | None) -> bool:
        has_servers = site in self._organization.hubs_by_site or (chosen is not None and site == path.sites[-1])
        return has_servers and site not in self._facts.unreachable

    def _goes_to_hubs(self, site: str, chosen: Chosen) -> bool:
        """Whether all source servers of that site are edges behind its hubs."""
        inside = [s for s in sources(self._organization, chosen.connector, self._own) if s.site == site]
        return all(self._finder.needs_hubs(server) for server in inside)

    def _too_large(self, path: Path) -> Refused | None:
        narrowest = self._finder.paths.narrowest(path)
        if narrowest is None or self._facts.size <= narrowest[1]:
            return None
        text = f"the message is larger than site link {narrowest[0]} lets through, {size_text(narrowest[1])}"
        return self._refused(_TOO_LARGE, text)

    # Send connectors

    def _by_connector(self) -> Route:
        """By the send connector that fits best."""
        choice = choose(self._organization, self._finder.paths, self._own, self._facts.domain, self._facts.size)
        self._reasons += choice.reasons
        chosen = choice.chosen
        if chosen is None and choice.too_small:
            return self._refused(_TOO_LARGE, "every send connector that matches has too small a limit")
        if chosen is None:
            return self._unreachable(f"no send connector matches {self._facts.domain}")
        connector = chosen.connector
        if chosen.proximity == LOCAL and connector.smart_hosts:
            hosts = ",".join(smart_host_text(host) for host in connector.smart_hosts)
            hop = NextHop(DeliveryType.SMART_HOST, hosts, connector.name)
            return self._routed(hop, f"this server is a source of {connector.name}: to its smart hosts, {hosts}")
        if chosen.proximity == LOCAL:
            hop = NextHop(DeliveryType.DNS, self._facts.domain, connector.name)
            return self._routed(hop, f"this server is a source of {connector.name}: by the MX of {self._facts.domain}")
        if chosen.proximity == SAME_SITE:
            hop = NextHop(DeliveryType.CONNECTOR_SERVERS, connector.name, connector.name)
            return self._routed(hop, f"relayed to the source servers of {connector.name} in this site")
        return self._along(self._nearest_reachable(chosen), None, chosen)

    def _nearest_reachable(self, chosen: Chosen) -> Path:
        """The nearest site with source servers; while it cannot be reached, the next nearest that can."""
        if chosen.path.sites[-1] not in self._facts.unreachable:
            return chosen.path
        others = source_sites(self._organization, self._finder.paths, self._own, chosen.connector)
        found = next((path for path in others if path.sites[-1] not in self._facts.unreachable), None)
        if found is None:
            return chosen.path
        self._fact(
            f"site {chosen.path.sites[-1]} cannot be reached; {chosen.connector.name} has source servers elsewhere"
        )
        return found

    # Edges

    def _from_edge(self, kind: DomainKind | None) -> Route:
        """Mail for the organization goes to the hubs of this site, all else by this edge's own connectors."""
        comes_in = kind is DomainKind.AUTHORITATIVE or (kind is DomainKind.INTERNAL_RELAY and not self._facts.internal)
        if not comes_in:
            return self._by_connector()
        hubs = self._organization.hubs_by_site
        if self._own.site in hubs:
            hop = NextHop(DeliveryType.SITE, self._own.site)
            return self._routed(hop, f"this is an edge: relayed to the hubs of its site, {self._own.site}")
        ways = [path for path in self._finder.paths.all_from(self._own.site).values() if path.sites[-1] in hubs]
        if not ways:
            return self._unreachable(f"this is an edge, and no hub can be reached from site {self._own.site}")
        # A tie is broken as between paths to one place.
        path = min(ways, key=lambda p: (p.cost, p.hops, [(name.casefold(), name) for name in reversed(p.sites)]))
        self._fact(f"this is an edge, and its site {self._own.site} has no hubs")
        return self._along(path, None)

    # Reasons

    def _fact(self, text: str) -> None:
        self._reasons.append(Step(RULE, text))

    def _taken(self, text: str) -> tuple[Step, ...]:
        return (*self._reasons, Step(RULE, text, StepKind.TAKEN))

    def _routed(self, hop: NextHop, text: str, sites: tuple[str, ...] = (), stop: int = 0) -> Routed:
        return Routed(hop, self._taken(text), sites, stop)

    def _unreachable(self, text: str) -> Routed:
        """Not a failure: the organization may change, and the message waits for it."""
        return Routed(UNREACHABLE, self._taken(text))

    def _refused(self, reply: Reply, text: str) -> Refused:
        return Refused(reply, self._taken(text))


_TOO_LARGE = Reply(552, "The message is too large to reach this recipient", "5.3.4")
