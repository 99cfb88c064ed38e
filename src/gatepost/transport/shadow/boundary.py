"""Within which sites mail of a database is made redundant and delivered again (exchange-facts 4.4, 4.5). Pure."""

from __future__ import annotations

from gatepost.organization.model import Organization, Version


def boundary_sites(organization: Organization, database: str) -> frozenset[str]:
    """The sites that have copies of the database; none for one that is not there."""
    found = organization.databases.get(database)
    if found is None:
        return frozenset()
    servers = organization.servers
    return frozenset(servers[copy.server].site for copy in found.copies if copy.server in servers)


def boundary_hubs(organization: Organization, database: str) -> list[str]:
    """The hubs of those sites, by name: whose safety nets may have mail for the database."""
    sites = boundary_sites(organization, database)
    by_site = organization.hubs_by_site
    return sorted(hub.name for site in sites for hub in by_site.get(site, ()) if hub.version is Version.MODERN)
