"""From Active Directory's entries to an organization: pure, every entry is judged and nothing of it is obeyed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gatepost.directory.exchange.databases import databases_of
from gatepost.directory.exchange.found import Ambiguous, Found
from gatepost.directory.exchange.names import name_of
from gatepost.directory.exchange.notes import Notes
from gatepost.directory.exchange.reading import Entries
from gatepost.directory.exchange.servers import directories_of, note_groups, servers_of
from gatepost.directory.exchange.sites import links_of, sites_of


def found_in(
    entries: Entries,
    *,
    leave_out: Collection[str] = (),
    said_sites: Mapping[str, str] | None = None,
    known_sites: Mapping[str, str] | None = None,
) -> Found:
    """What the entries say. Raises `Ambiguous` with everything that can mean two things.

    `leave_out`: names of objects that are not looked at. `said_sites`, `known_sites`: the sites of servers, as the
    operator says now and as the file has it; the second counts where Active Directory says nothing.
    """
    notes = Notes(frozenset(name.casefold() for name in leave_out))
    sites = sites_of(entries, notes)
    links = links_of(entries, sites, notes)
    said = _said(said_sites or {}, {site.name.casefold(): site.name for site in sites.values()}, notes)
    servers = servers_of(entries, sites, notes, said, {n.casefold(): site for n, site in (known_sites or {}).items()})
    databases = databases_of(entries, servers, notes)
    directories = directories_of(entries, servers, notes)
    note_groups(entries, servers, notes)
    names = [name_of(entry) for entry in entries.organizations]
    if len(names) > 1:
        notes.ambiguous.append(f"there are several Exchange organizations: {', '.join(sorted(names))}")
    if notes.ambiguous:
        raise Ambiguous(notes.ambiguous)
    return Found(
        names[0] if names else "",
        {site.name: site for site in sorted(sites.values(), key=lambda s: s.name)},
        dict(sorted(links.items())),
        {server.name: server for server in sorted(servers.values(), key=lambda s: s.name)},
        directories,
        dict(sorted(databases.items())),
        tuple(dict.fromkeys(notes.not_mapped)),
    )


def _said(given: Mapping[str, str], sites: Mapping[str, str], notes: Notes) -> dict[str, str]:
    found = {}
    for server, site in given.items():
        if site.casefold() not in sites:
            notes.ambiguous.append(f"--site {server}={site}: Active Directory has no such site")
        else:
            found[server.casefold()] = sites[site.casefold()]
    return found
