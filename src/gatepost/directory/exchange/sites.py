"""From entries to sites, subnets and site links."""

from __future__ import annotations

from ipaddress import ip_network

from gatepost.directory.exchange.found import FoundLink, FoundSite
from gatepost.directory.exchange.names import Key, key, name_of, number_of, text_of
from gatepost.directory.exchange.notes import Notes
from gatepost.directory.exchange.reading import Entries
from gatepost.directory.ldap.entries import Entry, texts_of
from gatepost.organization.model import Network

HUB_SITE = 1
"""The bit of `msExchTransportSiteFlags` that `Set-AdSite -HubSiteEnabled $true` sets."""
MAX_COST = 99_999
"""Of a site link, by Active Directory's schema and by ours."""
_IP = "ip"
"""The transport whose links count; the other is SMTP, which replicates directories and carries no mail of users."""


def sites_of(entries: Entries, notes: Notes) -> dict[Key, FoundSite]:
    """The sites with their subnets, by distinguished name."""
    subnets = _subnets(entries, notes)
    found: dict[Key, FoundSite] = {}
    for entry in entries.sites:
        name, place = name_of(entry), key(entry[0])
        if not notes.skips("site", name):
            flags = number_of(entry, "msexchtransportsiteflags")
            hub = None if flags is None else bool(flags & HUB_SITE)
            found[place] = FoundSite(name, tuple(sorted(subnets.pop(place, []), key=_order)), hub)
    for place, networks in subnets.items():
        why = "its site is none" if place else "it is in no site"
        notes.not_mapped += [f"subnet {network}: {why}" for network in networks]
    return found


def links_of(entries: Entries, sites: dict[Key, FoundSite], notes: Notes) -> dict[str, FoundLink]:
    """The site links by name."""
    found: dict[str, FoundLink] = {}
    for entry in entries.site_links:
        name, place = name_of(entry), key(entry[0])
        if notes.skips("site link", name):
            continue
        if len(place) < 2 or place[1] != _IP:
            notes.not_mapped.append(f"site link {name}: it is for the replication of directories by SMTP")
            continue
        joined = [sites[site].name for site in map(key, texts_of(entry, "sitelist")) if site in sites]
        if len(joined) < 2:
            notes.not_mapped.append(f"site link {name}: it joins fewer than two sites")
            continue
        if text_of(entry, "delivcontlength"):
            notes.not_mapped.append(f"site link {name}: the largest message (delivContLength); set max_message_size")
        costs = (_cost(entry, attribute, name, notes) for attribute in ("cost", "msExchCost"))
        found[name] = FoundLink(name, tuple(sorted(joined)), *costs)
    return found


def _subnets(entries: Entries, notes: Notes) -> dict[Key, list[Network]]:
    """The subnets by their site; by an empty key those that are in none."""
    found: dict[Key, list[Network]] = {}
    for entry in entries.subnets:
        name = name_of(entry)
        if notes.skips("subnet", name):
            continue
        try:
            network = ip_network(name)
        except ValueError:
            notes.not_mapped.append(f"subnet {name}: it is none")
            continue
        found.setdefault(key(text_of(entry, "siteobject")), []).append(network)
    return found


def _cost(entry: Entry, attribute: str, name: str, notes: Notes) -> int | None:
    cost = number_of(entry, attribute.lower())
    if cost is None or 1 <= cost <= MAX_COST:
        return cost
    notes.not_mapped.append(f"site link {name}: {attribute} is {cost}")
    return None


def _order(network: Network) -> tuple[int, int, int]:
    return network.version, int(network.network_address), network.prefixlen
