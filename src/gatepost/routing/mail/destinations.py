"""From a next hop to the servers behind it, and how each is reached (SPEC T3, T12)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gatepost.organization.model import Endpoint, Organization, Protocol, Role, Server, TlsMode, Version
from gatepost.organization.transport import SendConnector, TlsLevel
from gatepost.routing.mail.connectors import source_sites, sources
from gatepost.routing.mail.paths import Paths
from gatepost.routing.next_hop import DeliveryType, Destination, NextHop, Transfer, Way


class Destinations:
    """The destinations of one server's next hops."""

    def __init__(self, organization: Organization, paths: Paths, own: Server) -> None:
        self._organization = organization
        self._paths = paths
        self._own = own

    def of(self, next_hop: NextHop, active: Mapping[str, str]) -> Destination | None:
        """How `next_hop` is reached now; None when it no longer exists. `active` are servers by database."""
        match next_hop.delivery:
            case DeliveryType.DNS | DeliveryType.SMART_HOST:
                return self._outside(next_hop)
            case DeliveryType.UNREACHABLE:
                return None
        ways = self._ways(next_hop, active)
        settings = self._own.transport
        bounds = (settings.max_per_domain_outbound_connections, settings.max_messages_per_connection)
        return Destination(next_hop, ways, "", None, *bounds) if ways else None

    def _ways(self, next_hop: NextHop, active: Mapping[str, str]) -> tuple[Way, ...]:
        servers = self._organization.servers
        match next_hop.delivery:
            case DeliveryType.MAILBOX:
                server = servers.get(active.get(next_hop.domain, ""))
                return () if server is None else tuple(_delivery(server))
            case DeliveryType.SITE:
                return self._hubs(self._organization.hubs_by_site.get(next_hop.domain, ()))
            case DeliveryType.DELIVERY_GROUP:
                return self._hubs(s for s in servers.values() if delivery_group(s) == next_hop.domain)
            case DeliveryType.SERVERS:
                named = (servers.get(name) for name in next_hop.domain.split(";"))
                known = [server for server in named if server is not None and server is not self._own]
                return tuple(way for s in known for way in (_relay(s) if s.carries_mail else _delivery(s)))
            case _:
                connector = self._organization.send_connectors.get(next_hop.connector)
                return self._connector_servers(connector) if connector is not None else ()

    def _hubs(self, hubs: Iterable[Server], preference: int = 0) -> tuple[Way, ...]:
        return tuple(way for hub in hubs if hub is not self._own for way in _relay(hub, preference))

    def _connector_servers(self, connector: SendConnector) -> tuple[Way, ...]:
        """Source servers, site by site, the nearest first; where none is in this site, at last its site's other hubs.

        An edge takes mail from the servers of its own site only.
        """
        found: list[Way] = []
        members = sources(self._organization, connector, self._own)
        near = source_sites(self._organization, self._paths, self._own, connector)
        for preference, path in enumerate(near):
            site = path.sites[-1]
            inside = [s for s in members if s.site == site and (path.hops == 0 or not self.behind_hubs(s))]
            found += self._hubs(inside, preference)
            if path.hops == 0:
                return tuple(found)
        if near:
            others = self._organization.hubs_by_site.get(near[0].sites[-1], ())
            found += self._hubs((hub for hub in others if hub not in members), len(near))
        return tuple(found)

    def behind_hubs(self, server: Server) -> bool:
        """Whether other sites reach `server`, an edge, only through the hubs of its site."""
        return Role.HUB_TRANSPORT not in server.roles and server.site in self._organization.hubs_by_site

    def _outside(self, next_hop: NextHop) -> Destination | None:
        connector = self._organization.send_connectors.get(next_hop.connector)
        if connector is None or not connector.enabled or self._own.name not in connector.source_servers:
            return None
        bounds = (self._own.transport.max_per_domain_outbound_connections, connector.max_messages_per_connection)
        if next_hop.delivery is DeliveryType.DNS:
            return None if connector.smart_hosts else Destination(next_hop, (), next_hop.domain, connector, *bounds)
        ways = tuple(
            Way(host.host, host.host, host.port, tls=connector.tls, tls_name=connector.tls_domain)
            for host in connector.smart_hosts
        )
        return Destination(next_hop, ways, "", connector, *bounds) if ways else None


def delivery_group(server: Server) -> str:
    """The group of hubs that deliver to old mailboxes of one site and version; empty for a server that is in none."""
    is_old = server.version < Version.MODERN and Role.HUB_TRANSPORT in server.roles and server.takes_mail
    return group_of(server) if is_old else ""


def group_of(server: Server) -> str:
    """The delivery group that a server of this site and version belongs to."""
    return f"Site:{server.site};Version:{server.version.word}"


def _relay(server: Server, preference: int = 0) -> Iterable[Way]:
    """To a hub or an edge. Those of today know each other by their certificates; old ones speak plain STARTTLS."""
    endpoint = server.endpoint(Protocol.SMTP)
    if endpoint is not None:
        is_today = server.version is Version.MODERN
        tls = _level(endpoint) if is_today or endpoint.tls is TlsMode.CLEAR else TlsLevel.OPPORTUNISTIC
        yield _way(server, endpoint, tls, preference, mutual=is_today and endpoint.tls is not TlsMode.CLEAR)


def _delivery(server: Server) -> Iterable[Way]:
    """To a mailbox server."""
    endpoint = server.delivery_endpoint
    if endpoint is not None:
        yield _way(server, endpoint, _level(endpoint))


def _level(endpoint: Endpoint) -> TlsLevel:
    """Where TLS is not said to be left out, the certificate must be the server's."""
    return TlsLevel.NONE if endpoint.tls is TlsMode.CLEAR else TlsLevel.VERIFIED


def _way(server: Server, endpoint: Endpoint, tls: TlsLevel, preference: int = 0, *, mutual: bool = False) -> Way:
    return Way(
        host=server.fqdn,
        address=endpoint.address,
        port=endpoint.port,
        preference=preference,
        transfer=Transfer.LMTP if endpoint.protocol is Protocol.LMTP else Transfer.SMTP,
        tls=tls,
        implicit_tls=endpoint.tls is TlsMode.IMPLICIT,
        tls_name=endpoint.tls_name,
        mutual=mutual,
        server=server.name,
    )
