"""Where each recipient's mail goes next, from one server of the organization (SPEC T3).

    address ─► accepted domain? ─┬─► mailbox ─► active copy ─► its site ─► this one: deliver
                                 │                                    └──► another: along the path, to its hubs
                                 └─► send connector ─► this server's: MX or smart hosts
                                                   └─► another's: its source servers, or along the path

A `MailRouter` is for one organization value and one server; it remembers what it has found, so a route costs a few µs.
A change of the organization makes a new one. Nothing here looks at a clock, and nothing is known of single servers'
health: `unreachable_sites` says which sites no connection can be made to.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from gatepost.organization.model import Organization
from gatepost.organization.names import wire_domain
from gatepost.routing.mail.destinations import Destinations
from gatepost.routing.mail.fan_out import Copy, fan_out
from gatepost.routing.mail.finding import Facts, Finder
from gatepost.routing.mail.outcome import Refused, Route, Routed
from gatepost.routing.mail.paths import Paths
from gatepost.routing.next_hop import Destination, NextHop
from gatepost.routing.outcome import Mailbox
from gatepost.wire.smtp_reply import Reply

MAX_REMEMBERED = 10_000
"""Routes and domains. Recipients outside are chosen by strangers; past this all is forgotten and found anew."""
NOWHERE: frozenset[str] = frozenset()

__all__ = ["Copy", "MailRouter", "Refused", "Routed"]


class MailRouter:
    """The routes of one server's mail. `own_server` is its name; raises KeyError when the organization has it not."""

    def __init__(self, organization: Organization, own_server: str) -> None:
        self.organization = organization
        self.own = organization.servers[own_server]
        paths = Paths(organization)
        self._destinations = Destinations(organization, paths, self.own)
        self._finder = Finder(organization, paths, self.own, self._destinations)
        limits = {connector.max_message_size for connector in organization.send_connectors.values()}
        limits |= {link.max_message_size for link in organization.site_links.values()}
        self._limits = sorted(limits - {0})
        self._domains: dict[str, str] = {}
        self._routes: dict[tuple[str, str | None, str | None, int, frozenset[str], bool], Route] = {}

    def route(
        self,
        address: str,
        mailbox: Mailbox | None,
        active: Mapping[str, str],
        size: int,
        unreachable_sites: frozenset[str] = NOWHERE,
        *,
        internal: bool = False,
    ) -> Route:
        """The next hop for `address`, or why there is none.

        `mailbox` is what the directory says of the address, `active` the server with the active copy of each
        database, `size` the message's in bytes. `internal`: a server of the organization sent the message here, which
        an edge must know to tell mail going out from mail coming in.
        """
        name = address.rpartition("@")[2] if "@" in address else self.organization.default_domain
        domain = self._domains.get(name)
        if domain is None:
            domain = self._domain(name)
        database = server = None
        if mailbox is not None:
            database = mailbox.database
            server = mailbox.home_server if database is None else active.get(database)
        # Sizes between the same limits go the same way.
        key = (domain, database, server, bisect_left(self._limits, size), unreachable_sites, internal)
        found = self._routes.get(key)
        if found is None:
            if len(self._routes) >= MAX_REMEMBERED:
                self._routes.clear()
            facts = Facts(domain, mailbox is not None, database, server, size, unreachable_sites, internal)
            found = self._routes[key] = self._find(facts)
        return found

    def destination(self, next_hop: NextHop, active: Mapping[str, str]) -> Destination | None:
        """The servers behind `next_hop` and how each is reached; None when it is none any more: route anew."""
        if not self._finder.still_leads(next_hop, active):
            return None
        return self._destinations.of(next_hop, active)

    def copies(self, routes: Sequence[Routed], unreachable_sites: frozenset[str] = NOWHERE) -> list[Copy]:
        """One copy of a message for each next hop: recipients, by their place in `routes`, part where paths fork."""
        return fan_out(routes, lambda site: site in self.organization.hubs_by_site and site not in unreachable_sites)

    def _domain(self, name: str) -> str:
        if len(self._domains) >= MAX_REMEMBERED:
            self._domains.clear()
        domain = self._domains[name] = wire_domain(name)
        return domain

    def _find(self, facts: Facts) -> Route:
        if not facts.domain:
            return Refused(Reply(553, "The address has no domain", "5.1.3"))
        return self._finder.find(facts)
