"""Paths over site links: the sentences of exchange-facts 4.7, and random graphs against a slow second reading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mail_world import hop, texts, to_site, world

from gatepost.organization.model import Organization, Site, SiteLink
from gatepost.routing.mail.fan_out import fan_out
from gatepost.routing.mail.outcome import Refused, Routed
from gatepost.routing.mail.paths import LONG_HOPS, Paths, backed_off
from gatepost.routing.mail.router import MailRouter
from gatepost.routing.next_hop import DeliveryType, NextHop
from gatepost.routing.outcome import Mailbox


def path(organization: Organization, source: str, destination: str) -> str:
    """The best path's sites."""
    found = Paths(organization).between(source, destination)
    assert found is not None
    return " ".join(found.sites)


# Which path


def test_least_sum_of_costs_first() -> None:
    """More hops, but cheaper."""
    assert path(world({"a d": 100, "a b": 30, "b c": 30, "c d": 30}), "a", "d") == "a b c d"


def test_then_fewest_hops() -> None:
    """The same cost; by names the longer one would be first."""
    assert path(world({"s d": 30, "s b": 10, "b c": 10, "c d": 10}), "s", "d") == "s d"


def test_then_names_from_the_destination_backwards_lowest_wins() -> None:
    """`z b d` is before `a c d`: what stands next to the destination counts first."""
    links = {"s z": 10, "z b": 10, "b d": 10, "s a": 10, "a c": 10, "c d": 10}
    assert path(world(links), "s", "d") == "s z b d"
    assert path(world({"s C": 10, "C d": 10, "s b": 10, "b d": 10}), "s", "d") == "s b d"  # case makes no difference


def test_links_are_transitive() -> None:
    """There is no link between a and c."""
    assert path(world({"a b": 10, "b c": 10}), "a", "c") == "a b c"


def test_all_sites_of_a_link_are_neighbours_at_its_cost() -> None:
    """One link of four sites: one hop between any two."""
    paths = Paths(world({"a b c d": 10}))
    for site in "bcd":
        found = paths.between("a", site)
        assert found is not None
        assert (found.sites, found.cost, found.hops) == (("a", site), 10, 1)


def test_the_cost_for_mail_overrides_the_links_cost() -> None:
    """ExchangeCost."""
    organization = world({"a c": 10, "a b": 10, "b c": 10})
    dear = replace(organization.site_links["a c"], exchange_cost=100)
    assert path(organization, "a", "c") == "a c"
    assert path(replace(organization, site_links={**organization.site_links, "a c": dear}), "a", "c") == "a b c"


def test_no_way_without_links() -> None:
    """The message waits: the links may come."""
    organization = world({"a b": 10}, sites="island")
    assert Paths(organization).between("a", "island") is None
    route = to_site(organization, "H-a-1", "island")
    assert hop(route).delivery is DeliveryType.UNREACHABLE
    assert texts(route)[-1] == "no site links lead from a to island"


SITES = tuple("pqrstu")


@st.composite
def graphs(draw: st.DrawFn) -> Organization:
    """Up to six sites with links of two to four of them; small costs make many ties."""
    links = draw(
        st.lists(
            st.tuples(st.lists(st.sampled_from(SITES), min_size=2, max_size=4, unique=True), st.integers(1, 4)),
            max_size=9,
        )
    )
    hub_sites = draw(st.sets(st.sampled_from(SITES), max_size=2))
    return Organization(
        "random",
        sites={name: Site(name, hub_site=name in hub_sites) for name in SITES},
        site_links={f"L{n}": SiteLink(f"L{n}", tuple(sites), cost) for n, (sites, cost) in enumerate(links)},
    )


Candidate = tuple[int, tuple[str, ...]]


def all_paths(steps: dict[tuple[str, str], int], sites: tuple[str, ...], cost: int) -> Iterator[Candidate]:
    """Every path without circles that begins with `sites`, by trying all."""
    yield cost, sites
    for site in SITES:
        step = steps.get((sites[-1], site))
        if site not in sites and step is not None:
            yield from all_paths(steps, (*sites, site), cost + step)


@settings(max_examples=60)
@given(graphs())
def test_the_best_path_is_the_best_of_all_paths(organization: Organization) -> None:
    """Against trying every path."""
    paths = Paths(organization)
    steps: dict[tuple[str, str], int] = {}
    for link in organization.site_links.values():
        for one, other in permutations(link.sites, 2):
            steps[one, other] = min(link.cost, steps.get((one, other), link.cost))
    everything = list(all_paths(steps, ("s",), 0))
    for end in SITES:
        candidates = [each for each in everything if each[1][-1] == end]
        found = paths.between("s", end)
        if not candidates:
            assert found is None
            continue
        cost, sites = min(candidates, key=lambda each: (each[0], len(each[1]), tuple(reversed(each[1]))))
        assert found is not None
        assert (found.cost, found.sites, found.hops) == (cost, sites, len(sites) - 1)


@given(graphs(), st.sampled_from(SITES))
def test_each_site_on_the_way_sends_on_along_the_same_path(organization: Organization, end: str) -> None:
    """So no message goes in circles, whatever ties there are: what is left of a best path is the best from there."""
    paths = Paths(organization)
    found = paths.between("t", end)
    if found is not None:
        for place, site in enumerate(found.sites):
            rest = paths.between(site, end)
            assert rest is not None
            assert rest.sites == found.sites[place:]


# Where on the path


CHAIN = {"a b": 10, "b c": 10, "c d": 10, "d e": 10}


def test_directly_to_the_hubs_of_the_destination() -> None:
    """Sites between are passed by."""
    assert hop(to_site(world(CHAIN), "H-a-1", "e")) == NextHop(DeliveryType.SITE, "e")


def test_it_stops_at_a_hub_site_on_the_path() -> None:
    """At every one of them, the nearest first."""
    organization = world(CHAIN, hub_sites="b d")
    assert hop(to_site(organization, "H-a-1", "e")) == NextHop(DeliveryType.SITE, "b")
    assert hop(to_site(organization, "H-b-1", "e")) == NextHop(DeliveryType.SITE, "d")
    assert hop(to_site(organization, "H-d-1", "e")) == NextHop(DeliveryType.SITE, "e")
    assert "b is a hub site on the path: the message stops there" in texts(to_site(organization, "H-a-1", "e"))


def test_a_hub_site_off_the_path_is_ignored() -> None:
    """Its path costs more."""
    organization = world({"a b": 10, "b c": 10, "a x": 10, "x c": 11}, hub_sites="x")
    assert hop(to_site(organization, "H-a-1", "c")) == NextHop(DeliveryType.SITE, "c")


def test_a_hub_site_without_hubs_is_passed_by() -> None:
    """Nobody is there to take it."""
    assert hop(to_site(world(CHAIN, hub_sites="b", without_hubs="b"), "H-a-1", "e")).domain == "e"


def test_a_site_without_hubs_gets_its_mail_from_the_nearest_site_that_has() -> None:
    """That one's hubs deliver across the link."""
    organization = world({"a b": 10, "b c": 10}, without_hubs="c")
    assert hop(to_site(organization, "H-a-1", "c")) == NextHop(DeliveryType.SITE, "b")
    assert hop(to_site(organization, "H-b-1", "c")) == NextHop(DeliveryType.MAILBOX, "DB-c")


def test_it_waits_in_the_site_nearest_to_the_failure() -> None:
    """Queue at the point of failure: hop by hop back towards the source."""
    organization = world(CHAIN)
    assert hop(to_site(organization, "H-a-1", "e", down="e")).domain == "d"
    assert hop(to_site(organization, "H-a-1", "e", down="e d")).domain == "c"
    assert hop(to_site(organization, "H-a-1", "e", down="e d c")).domain == "b"
    assert "it waits nearest to the failure, in site b" in texts(to_site(organization, "H-a-1", "e", down="e d c"))


def test_where_nothing_can_be_reached_it_waits_here() -> None:
    """In the queue of the destination."""
    route = to_site(world(CHAIN), "H-a-1", "e", down="b c d e")
    assert hop(route) == NextHop(DeliveryType.SITE, "e")
    assert "no site on the way can be reached: it waits here, nearest to the failure" in texts(route)


def test_a_hub_site_that_is_down_is_not_gone_round() -> None:
    """The message waits before it, not behind it."""
    organization = world(CHAIN, hub_sites="c")
    assert hop(to_site(organization, "H-a-1", "e", down="c")).domain == "b"


def test_backing_off_passes_by_sites_without_hubs() -> None:
    """They could not keep it."""
    assert hop(to_site(world(CHAIN, without_hubs="d"), "H-a-1", "e", down="e")).domain == "c"


def test_long_paths_are_backed_off_by_halves() -> None:
    """More than four hops: half the way, and half of that, then hop by hop."""
    sites = [f"s{n}" for n in range(13)]
    asked: list[str] = []

    def can_reach(site: str) -> bool:
        asked.append(site)
        return site == "s1"

    assert backed_off(sites, 12, can_reach) == 1
    assert asked == ["s12", "s6", "s3", "s2", "s1"]


@given(st.integers(1, 20), st.sets(st.integers(0, 20)))
def test_backing_off_finds_who_can_be_reached(stop: int, down: set[int]) -> None:
    """Never a site that cannot be reached, never one farther away; near ones none is left out."""
    sites = [str(n) for n in range(21)]
    place = backed_off(sites, stop, lambda site: int(site) not in down)
    assert 0 <= place <= stop
    assert place == 0 or place not in down
    if stop <= LONG_HOPS:
        assert place == max((n for n in range(1, stop + 1) if n not in down), default=0)


@pytest.mark.parametrize(("size", "passes"), [(1000, True), (1001, False)])
def test_a_link_that_lets_less_through_fails_the_message(size: int, passes: bool) -> None:
    """At any link of the path, though it is sent directly."""
    organization = world({"a b": 10, "b c": 10, "c d": 10}, limits={"b c": 1000, "c d": 5000})
    route = to_site(organization, "H-a-1", "d", size)
    assert isinstance(route, Routed) is passes
    if isinstance(route, Refused):
        assert (route.reply.code, route.reply.enhanced) == (552, "5.3.4")
        assert texts(route)[-1] == "the message is larger than site link b c lets through, 1000B"


def test_of_two_equal_links_the_one_that_lets_more_through_is_meant() -> None:
    """Both are on a least-cost path."""
    organization = world({"a b": 10, "b a": 10}, limits={"a b": 1000})
    assert isinstance(to_site(organization, "H-a-1", "b", 5000), Routed)


# Delayed fan-out


def copies(organization: Organization, own: str, sites: str, down: str = "") -> dict[str, tuple[int, ...]]:
    """Recipients by the next hop's domain, for a message to mailboxes in `sites`."""
    router = MailRouter(organization, own)
    databases = {name: database.copies[0].server for name, database in organization.databases.items()}
    away = frozenset(down.split())
    routes = [router.route("x@contoso.com", Mailbox(f"DB-{site}"), databases, 100, away) for site in sites.split()]
    found = router.copies([route for route in routes if isinstance(route, Routed)], away)
    return {copy.next_hop.domain: copy.recipients for copy in found}


FORKED = {"a b": 10, "b c": 10, "c d": 10, "c e": 10, "a x": 10}


def test_one_copy_until_the_paths_fork() -> None:
    """d and e part at c; x goes another way; who is in this site is not part of it."""
    assert copies(world(FORKED), "H-a-1", "d e x a e") == {"c": (0, 1, 4), "x": (2,), "DB-a": (3,)}


def test_who_is_on_the_way_of_others_is_the_fork() -> None:
    """b's copy goes on to d from b."""
    assert copies(world(FORKED), "H-a-1", "d b") == {"b": (0, 1)}


def test_those_of_one_site_travel_together_to_its_end() -> None:
    """Nothing forks."""
    assert copies(world(FORKED), "H-a-1", "d d d") == {"d": (0, 1, 2)}


def test_they_part_before_a_fork_that_has_no_hubs_or_cannot_be_reached() -> None:
    """The last site before it takes the copy; where there is none, each goes its own way."""
    assert copies(world(FORKED, without_hubs="c"), "H-a-1", "d e") == {"b": (0, 1)}
    assert copies(world(FORKED), "H-a-1", "d e", down="c") == {"b": (0, 1)}
    assert copies(world(FORKED, without_hubs="b c"), "H-a-1", "d e") == {"d": (0,), "e": (1,)}


@settings(max_examples=60)
@given(graphs(), st.lists(st.sampled_from(SITES[1:]), min_size=1, max_size=6), st.sets(st.sampled_from(SITES[1:])))
def test_every_recipient_is_in_one_copy_that_goes_its_way(
    organization: Organization, ends: list[str], down: set[str]
) -> None:
    """And a copy for several goes as far as they share the way, as far as can be reached."""
    paths = Paths(organization)
    found = [each for end in ends if (each := paths.between("p", end)) is not None]
    routes = [Routed(NextHop(DeliveryType.SITE, each.sites[-1]), (), each.sites, each.hops) for each in found]
    made = fan_out(routes, lambda site: site not in down)
    assert sorted(number for copy in made for number in copy.recipients) == list(range(len(routes)))
    assert len({copy.next_hop for copy in made}) == len(made)
    for copy in made:
        ways = [found[number].sites for number in copy.recipients]
        assert all(copy.next_hop.domain in way[1:] for way in ways)
        if len({way[-1] for way in ways}) > 1:
            fork = ways[0].index(copy.next_hop.domain)
            assert copy.next_hop.domain not in down
            assert all(way[: fork + 1] == ways[0][: fork + 1] for way in ways)
            further = {way[fork + 1 : fork + 2] for way in ways}
            assert len(further) > 1 or further & {(site,) for site in down}
