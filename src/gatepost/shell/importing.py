"""Brings a found Exchange organization into an organization's file.

    Found ─► sites, links, servers, databases ─► virtual directories ─► one checked change of the file
                       └─► notes: what only the file has, what was assumed

What Active Directory says counts; of what it does not say, nothing is touched: objects, keys and members of lists that
only the file has stay, and are named. So the second import of the same organization changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from typing import Any

from gatepost.configuration.editing import OrganizationText
from gatepost.directory.exchange.found import Found, FoundDatabase, FoundLink, FoundServer, FoundSite
from gatepost.organization.model import Network, Organization, Role, SiteLink, Version
from gatepost.shell.errors import ShellError
from gatepost.shell.importing_directories import put_directories
from gatepost.shell.session import Session


class Import:
    """One import. `notes` has, afterwards, what the operator should know besides the change."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.notes: list[str] = []
        self._assumed: dict[str, list[str]] = {}

    def run(self, session: Session, *, what_if: bool) -> None:
        """Change the file, or say what would change. Within a statement of `session`. Raises `ShellError`, OSError."""
        session.begin_change(what_if=what_if)
        session.edit(self._put_objects)
        session.edit(lambda text, organization: self.notes.extend(put_directories(self.found, text, organization)))

    def _put_objects(self, text: OrganizationText, organization: Organization) -> None:
        data = text.data
        names = {
            kind: _Names(data.get(kind, {}), found)
            for kind, found in (
                ("sites", self.found.sites),
                ("site_links", self.found.site_links),
                ("servers", self.found.servers),
                ("databases", self.found.databases),
            )
        }
        sites, servers = names["sites"], names["servers"]
        self._put_sites(text, sites)
        for link in self.found.site_links.values():
            self._put_link(text, names["site_links"].of(link.name), link, sites, organization)
        for server in self.found.servers.values():
            self._put_server(text, servers.of(server.name), server, sites)
        for database in self.found.databases.values():
            self._put_database(text, names["databases"].of(database.name), database, servers, organization)
        for answers, added in self._assumed.items():
            self.notes.append(
                f"server{'s' if len(added) > 1 else ''} {', '.join(added)}: taken to answer {answers} at the usual "
                f"ports; add imaps and pop3s where these services run"
            )
        for kind, word in (
            ("sites", "site"), ("site_links", "site link"), ("servers", "server"), ("databases", "database"),
        ):  # fmt: skip
            if kind in {"servers", "databases"}:
                self.notes += [
                    f"{word} {mine}: Active Directory spells it {theirs}, and so do its users' entries: rename it"
                    for theirs, mine in names[kind].other_case
                ]
            if only := names[kind].only_in_file:
                self.notes.append(f"only in the file, kept: {word}{'s' if len(only) > 1 else ''} {', '.join(only)}")

    # Sites

    def _put_sites(self, text: OrganizationText, names: _Names) -> None:
        given: dict[Network, str] = {
            network: names.of(site.name) for site in self.found.sites.values() for network in site.subnets
        }
        for name, table in text.data.get("sites", {}).items():
            before = table.get("subnets", [])
            kept = [subnet for subnet in before if given.get(ip_network(subnet), name) == name]
            only = [subnet for subnet in kept if ip_network(subnet) not in given]
            if only and any(names.of(site) == name for site in self.found.sites):
                self.notes.append(f"only in the file, kept: subnets of site {name}: {', '.join(only)}")
            if kept != before:
                text.set_keys(("sites", name), {"subnets": kept or None})
        for site in self.found.sites.values():
            self._put_site(text, names.of(site.name), site)

    def _put_site(self, text: OrganizationText, name: str, site: FoundSite) -> None:
        tables: Mapping[str, Any] = text.data.get("sites", {})
        if name not in tables:
            facing = any(
                directory.external_url is not None and self.found.servers[directory.server].site == site.name
                for directory in self.found.directories
            )
            subnets = [str(network) for network in site.subnets]
            keys = {"subnets": subnets or None, "internet_facing": facing or None, "hub_site": site.hub_site or None}
            text.add_table(("sites", name), keys)
            if facing:
                self.notes.append(f"site {name}: taken for Internet-facing, since URLs for clients outside lead there")
            return
        before = tables[name].get("subnets", [])
        known = {ip_network(subnet) for subnet in before}
        missing = [str(network) for network in site.subnets if network not in known]
        if missing:
            text.set_keys(("sites", name), {"subnets": [*before, *missing]})
        if site.hub_site is not None and bool(tables[name].get("hub_site", False)) != site.hub_site:
            text.set_keys(("sites", name), {"hub_site": site.hub_site or None})

    def _put_link(
        self, text: OrganizationText, name: str, link: FoundLink, sites: _Names, organization: Organization
    ) -> None:
        joined = [sites.of(site) for site in link.sites]
        before = organization.site_links.get(name)
        costs = {"cost": link.cost, "exchange_cost": link.exchange_cost}
        if before is None:
            text.add_table(("site_links", name), {"sites": joined, **_other_than(SiteLink("", ()), costs)})
            return
        keys: dict[str, Any] = _other_than(before, costs)
        if set(before.sites) != set(joined):
            keys["sites"] = joined
        text.set_keys(("site_links", name), keys)

    # Servers and databases

    def _put_server(self, text: OrganizationText, name: str, server: FoundServer, sites: _Names) -> None:
        tables: Mapping[str, Any] = text.data.get("servers", {})
        roles = [role.value for role in Role if role in server.roles]
        version = server.version.word if server.version is not Version.MODERN else None
        site = sites.of(server.site)
        if name not in tables:
            fqdn = server.fqdn if server.fqdn != name.lower() else None
            endpoints = _endpoints(server)
            keys = {"site": site, "roles": roles, "version": version, "fqdn": fqdn, "endpoints": endpoints or None}
            text.add_table(("servers", name), keys)
            if endpoints:
                self._assumed.setdefault(" and ".join(endpoints), []).append(name)
            return
        table = tables[name]
        fqdn = str(table.get("fqdn") or name).lower()
        if fqdn != server.fqdn:
            self.notes.append(f"server {name}: the file calls it {fqdn}, Active Directory {server.fqdn}; kept")
        kept = [role for role in table.get("roles", []) if role not in roles]
        if kept:
            self.notes.append(f"only in the file, kept: roles of server {name}: {', '.join(kept)}")
        keys = {}
        if table.get("site") != site:
            keys["site"] = site
        if str(table.get("version", Version.MODERN.word)) != server.version.word:
            keys["version"] = version
        if not set(roles) <= set(table.get("roles", [])):
            keys["roles"] = [*roles, *kept]
        text.set_keys(("servers", name), keys)

    def _put_database(
        self, text: OrganizationText, name: str, database: FoundDatabase, servers: _Names, organization: Organization
    ) -> None:
        copies = [(servers.of(server), preference) for server, preference in database.copies]
        before = organization.databases.get(name)
        if before is None:
            text.add_table(("databases", name), {"copies": _copies(copies)})
            return
        others = [(c.server, c.preference) for c in before.copies if c.server in servers.only_in_file]
        if others:
            self.notes.append(f"only in the file, kept: copies of database {name} on {', '.join(s for s, _ in others)}")
        clashes = {preference for _, preference in others} & {preference for _, preference in copies}
        if clashes:
            on = ", ".join(server for server, preference in others if preference in clashes)
            raise ShellError(
                f"database {name}: its copy on {on}, which only the file has, has the activation preference of one in "
                f"Active Directory ({', '.join(map(str, sorted(clashes)))}). Give it another one. Nothing was written."
            )
        wanted = sorted([*copies, *others], key=lambda copy: copy[1])
        if sorted((c.server, c.preference) for c in before.copies) != sorted(wanted):
            text.set_copies(name, _copies(wanted))


class _Names:
    """How the file spells names of one kind: as Active Directory does, or as it is written there already."""

    def __init__(self, tables: Iterable[str], found: Iterable[str]) -> None:
        self._spelled = {name.casefold(): name for name in tables}
        folded = {name.casefold(): name for name in found}
        self.only_in_file = [name for name in tables if name.casefold() not in folded]
        self.other_case = [(name, self.of(name)) for name in folded.values() if self.of(name) != name]
        """Names that only case tells apart: as Active Directory spells them, and as the file does."""

    def of(self, name: str) -> str:
        """The file's spelling of `name`."""
        return self._spelled.get(name.casefold(), name)


def _endpoints(server: FoundServer) -> dict[str, Any]:
    """What a server of these roles answers: which services run is not in Active Directory."""
    web = Role.CLIENT_ACCESS in server.roles or (
        Role.MAILBOX in server.roles and server.version in {Version.V2003, Version.MODERN}
    )
    mail = bool(server.roles & {Role.HUB_TRANSPORT, Role.EDGE_TRANSPORT}) or server.version is Version.MODERN
    return {name: {} for name, answers in (("https", web), ("smtp", mail)) if answers}


def _other_than(link: SiteLink, costs: Mapping[str, int | None]) -> dict[str, Any]:
    """Those costs that are set and are not the link's."""
    return {key: cost for key, cost in costs.items() if cost is not None and getattr(link, key) != cost}


def _copies(copies: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"server": server, "preference": preference} for server, preference in copies]
