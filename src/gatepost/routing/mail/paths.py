"""Least-cost paths over site links, and how far along one a message can go (SPEC T3; exchange-facts 4.7).

A path is the names of its sites: the first is where the message is, the last its destination.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from gatepost.organization.model import Organization

LONG_HOPS = 4
"""A failure farther away than this many hops is backed off from by halves, not hop by hop."""


@dataclass(frozen=True, slots=True)
class Path:
    """The path to a site. `sites` begins with the own one; `links` are the links' names between them."""

    sites: tuple[str, ...]
    cost: int = 0
    links: tuple[str, ...] = ()

    @property
    def hops(self) -> int:
        """Links that are crossed."""
        return len(self.sites) - 1


@dataclass(frozen=True, slots=True)
class _Step:
    """How to get from one site to the next: `limit` is the largest message, 0 for any."""

    cost: int
    limit: int
    link: str


def _rank(step: _Step) -> tuple[int, bool, int, str]:
    """Of two links between the same sites the cheaper is meant, then the one that lets more through."""
    return step.cost, step.limit != 0, -step.limit, step.link


class Paths:
    """The paths of one organization, found once for each site that they begin at.

    All sites of a link are neighbours at its cost, and links are transitive. The best path has the least sum of
    costs, then the fewest hops, then, compared site by site from the destination backwards, the lowest name.
    """

    def __init__(self, organization: Organization) -> None:
        self._limits = {name: link.max_message_size for name, link in organization.site_links.items()}
        self._neighbours: dict[str, dict[str, _Step]] = {name: {} for name in organization.sites}
        for link in organization.site_links.values():
            step = _Step(link.mail_cost, link.max_message_size, link.name)
            joined = [site for site in dict.fromkeys(link.sites) if site in self._neighbours]
            for one in joined:
                others = self._neighbours[one]
                for other in joined:
                    if other != one and (other not in others or _rank(step) < _rank(others[other])):
                        others[other] = step
        self._from: dict[str, dict[str, Path]] = {}

    def between(self, source: str, destination: str) -> Path | None:
        """The best path; None when no links lead there."""
        return self.all_from(source).get(destination)

    def all_from(self, source: str) -> dict[str, Path]:
        """The best path to each site that can be reached from `source`, itself among them."""
        found = self._from.get(source)
        if found is None:
            found = self._from[source] = self._search(source)
        return found

    def narrowest(self, path: Path) -> tuple[str, int] | None:
        """The link of `path` with the smallest limit, and the limit; None where there is none."""
        limited = [(self._limits[link], link) for link in path.links if self._limits[link]]
        return min(limited)[::-1] if limited else None

    def _search(self, source: str) -> dict[str, Path]:
        """Dijkstra's search. A best path's beginnings are best paths, so the names can be compared as they grow."""
        found: dict[str, Path] = {}
        start = Path((source,))
        queue: list[tuple[int, int, tuple[tuple[str, str], ...], Path]] = [(0, 0, (_name(source),), start)]
        while queue:
            cost, hops, backwards, path = heappop(queue)
            here = path.sites[-1]
            if here in found:
                continue
            found[here] = path
            for site, step in self._neighbours.get(here, {}).items():
                if site not in found:
                    longer = Path((*path.sites, site), cost + step.cost, (*path.links, step.link))
                    heappush(queue, (longer.cost, hops + 1, (_name(site), *backwards), longer))
        return found


def _name(site: str) -> tuple[str, str]:
    """Names are compared without regard to case; it decides only between names that are otherwise the same."""
    return site.casefold(), site


def first_stop(path: Path, is_hub_site: Callable[[str], bool]) -> int:
    """The place in `path.sites` to send to: the nearest hub site on the way, else the destination."""
    last = len(path.sites) - 1
    return next((place for place in range(1, last) if is_hub_site(path.sites[place])), last)


def backed_off(sites: Sequence[str], stop: int, can_reach: Callable[[str], bool]) -> int:
    """The place in `sites` that is nearest to `stop` and can be reached; 0, the own site, when none can.

    Queue at the point of failure: from a failure more than `LONG_HOPS` hops away half the way is tried, then half of
    that, until it is near; then hop by hop.
    """
    place = stop
    while place > 0 and not can_reach(sites[place]):
        place = place // 2 if place > LONG_HOPS else place - 1
    return place
