"""Delayed fan-out: one copy of a message travels until the paths of its recipients fork (exchange-facts 4.7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gatepost.routing.mail.outcome import Routed
from gatepost.routing.next_hop import DeliveryType, NextHop

Member = tuple[int, tuple[str, ...]]
"""A recipient's number, and the sites from the own one to where its mail stops."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a message. `recipients` are places in the list of routes, rising."""

    next_hop: NextHop
    recipients: tuple[int, ...]


def fan_out(routes: Sequence[Routed], can_reach: Callable[[str], bool]) -> list[Copy]:
    """The copies to make. Only mail to other sites' hubs travels together; all else is one copy a next hop."""
    together: dict[NextHop, list[int]] = {}
    travelling: list[Member] = []
    for number, route in enumerate(routes):
        if route.next_hop.delivery is DeliveryType.SITE and route.stop:
            travelling.append((number, route.path[: route.stop + 1]))
        else:
            together.setdefault(route.next_hop, []).append(number)
    for site, members in _forks(travelling, 1, can_reach):
        together.setdefault(NextHop(DeliveryType.SITE, site), []).extend(number for number, _ in members)
    return [Copy(next_hop, tuple(sorted(numbers))) for next_hop, numbers in together.items()]


def _forks(members: list[Member], begin: int, can_reach: Callable[[str], bool]) -> Iterator[tuple[str, list[Member]]]:
    """Each site to send to, with who goes there. All members' paths are the same before `begin`."""
    by_next: dict[str, list[Member]] = {}
    for member in members:
        by_next.setdefault(member[1][begin], []).append(member)
    for group in by_next.values():
        shared = _shared([sites for _, sites in group])
        if len({sites for _, sites in group}) == 1:
            yield group[0][1][-1], group
            continue
        fork = next((place for place in range(shared - 1, begin - 1, -1) if can_reach(group[0][1][place])), None)
        if fork is not None:
            yield group[0][1][fork], group
            continue
        # No hub on the way they share: who ends there goes alone, the others part.
        ending = [member for member in group if len(member[1]) == shared]
        if ending:
            yield ending[0][1][-1], ending
        yield from _forks([member for member in group if len(member[1]) > shared], shared, can_reach)


def _shared(paths: list[tuple[str, ...]]) -> int:
    """How many sites all `paths` begin with alike."""
    shared = 0
    for sites in zip(*paths, strict=False):
        if len(set(sites)) > 1:
            break
        shared += 1
    return shared
