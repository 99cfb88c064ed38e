"""Which send connector is chosen: the sentences of exchange-facts 4.7 and 4.10, one test each."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mail_world import connector, edge, hop, mailbox_server, outside, smart, texts, world

from gatepost.organization.model import Organization
from gatepost.organization.transport import SendConnector
from gatepost.routing.mail.connectors import choose, specificity
from gatepost.routing.mail.outcome import Refused, Routed
from gatepost.routing.mail.paths import Paths
from gatepost.routing.mail.router import MailRouter
from gatepost.routing.next_hop import DeliveryType, NextHop

LINKS = {"a b": 10, "b c": 10}


def chosen(address: str, *connectors: SendConnector, own: str = "H-a-1", size: int = 1000) -> str:
    """The name of the connector."""
    return hop(outside(world(LINKS, connectors=connectors), own, address, size)).connector


@pytest.mark.parametrize(
    ("pattern", "domain", "matches"),
    [
        ("*", "example.org", True),
        ("contoso.com", "contoso.com", True),
        ("contoso.com", "sales.contoso.com", False),
        ("*.contoso.com", "sales.contoso.com", True),
        ("*.contoso.com", "contoso.com", True),
        ("*.contoso.com", "a.b.contoso.com", True),
        ("*.contoso.com", "notcontoso.com", False),
    ],
)
def test_what_an_address_space_means(pattern: str, domain: str, matches: bool) -> None:
    """`*.contoso.com` also covers `contoso.com`."""
    assert (specificity(pattern, domain) is not None) is matches


def test_the_most_specific_address_space_wins() -> None:
    """The source's example: marketing.contoso.com, *.contoso.com, *; whatever they cost."""
    found = (
        connector("Any", "*", "H-a-1"),
        connector("Below", "*.fabrikam.com;50", "H-a-1"),
        connector("Marketing", "marketing.fabrikam.com;100", "H-a-1"),
        connector("Deep", "*.eu.fabrikam.com;90", "H-a-1"),
    )
    assert chosen("x@marketing.fabrikam.com", *found) == "Marketing"
    assert chosen("x@sales.fabrikam.com", *found) == "Below"
    assert chosen("x@a.eu.fabrikam.com", *found) == "Deep"
    assert chosen("x@fabrikam.com", *found) == "Below"
    assert chosen("x@example.org", *found) == "Any"
    assert chosen("x@SALES.Fabrikam.COM.", *found) == "Below"  # case and a trailing dot make no difference


def test_the_most_specific_space_of_a_connector_counts() -> None:
    """With its own cost."""
    one = connector("One", "* fabrikam.com;20", "H-a-1")
    other = connector("Two", "fabrikam.com;10", "H-a-1")
    assert chosen("x@fabrikam.com", one, other) == "Two"
    assert chosen("x@example.org", one, other) == "One"


def test_then_the_lowest_cost_of_links_and_address_space_together() -> None:
    """A connector far away may be cheaper than one here."""
    here = connector("Here", "*;12", "H-a-1")
    assert chosen("x@example.org", here, connector("Far", "*;1", "H-b-1")) == "Far"  # 10 + 1
    assert chosen("x@example.org", here, connector("Far", "*;3", "H-b-1")) == "Here"  # 10 + 3


def test_then_the_nearest_this_server_this_site_another() -> None:
    """All cost 11 or 1."""
    here, beside, far = (
        connector("Z-here", "*;11", "H-a-1"),
        connector("Y-beside", "*;11", "H-a-2"),
        connector("A-far", "*;1", "H-b-1"),
    )
    assert chosen("x@example.org", here, beside, far) == "Z-here"
    assert chosen("x@example.org", beside, far) == "Y-beside"


def test_then_fewer_hops() -> None:
    """Both cost 21; one is a hop nearer."""
    assert chosen("x@example.org", connector("A", "*;1", "H-c-1"), connector("B", "*;11", "H-b-1")) == "B"


def test_then_the_lowest_name() -> None:
    """Without regard to case."""
    assert chosen("x@example.org", connector("b", "*", "H-a-1"), connector("A", "*", "H-a-1")) == "A"
    assert chosen("x@example.org", connector("B", "*", "H-a-1"), connector("a", "*", "H-a-1")) == "a"


def test_connectors_too_small_for_the_message_are_dropped_first() -> None:
    """A larger message goes by a less specific one."""
    small = connector("Small", "fabrikam.com", "H-a-1", max_message_size=1000)
    large = connector("Large", "*", "H-a-1", max_message_size=0)
    assert chosen("x@fabrikam.com", small, large, size=1000) == "Small"
    assert chosen("x@fabrikam.com", small, large, size=1001) == "Large"


def test_all_too_small_goes_back_to_the_sender() -> None:
    """A failure, not a wait."""
    organization = world(LINKS, connectors=(connector("Small", "*", "H-a-1", max_message_size=1000),))
    route = outside(organization, "H-a-1", size=1001)
    assert isinstance(route, Refused)
    assert (route.reply.code, route.reply.enhanced) == (552, "5.3.4")
    assert "connector Small: the message is larger than its limit of 1000B" in texts(route)


def test_no_match_waits_in_unreachable() -> None:
    """The organization may change."""
    organization = world(LINKS, connectors=(connector("Fabrikam", "fabrikam.com", "H-a-1"),))
    assert hop(outside(organization, "H-a-1")) == NextHop(DeliveryType.UNREACHABLE, "Unreachable Domain")
    assert texts(outside(organization, "H-a-1"))[-1] == "no send connector matches example.org"


def test_a_connector_that_is_not_enabled_does_not_count() -> None:
    """Nor does its being too small."""
    off = connector("Off", "*", "H-a-1", enabled=False, max_message_size=10)
    assert chosen("x@example.org", off) == ""
    assert chosen("x@example.org", off, connector("On", "*;90", "H-a-1")) == "On"


def test_a_scoped_connector_is_for_the_sites_of_its_source_servers() -> None:
    """H-a-2 may use it, H-b-1 not."""
    scoped = connector("Scoped", "*", "H-a-1", scoped=True)
    assert chosen("x@example.org", scoped, own="H-a-2") == "Scoped"
    organization = world(LINKS, connectors=(scoped,))
    route = outside(organization, "H-b-1")
    assert hop(route).delivery is DeliveryType.UNREACHABLE
    assert "connector Scoped: is for the sites of its source servers only, and b is none of them" in texts(route)


def test_a_connector_that_no_link_leads_to_does_not_count() -> None:
    """Another one further off does."""
    organization = world(
        LINKS, sites="island", connectors=(connector("Near", "*", "H-island-1"), connector("Far", "*", "H-c-1"))
    )
    assert hop(outside(organization, "H-a-1")).connector == "Far"


# What the choice leads to


def test_a_source_server_sends_by_mx() -> None:
    """A queue for each domain."""
    organization = world(LINKS, connectors=(connector("Out", "*", "H-a-1"),))
    assert hop(outside(organization, "H-a-1")) == NextHop(DeliveryType.DNS, "example.org", "Out")
    destination = MailRouter(organization, "H-a-1").destination(NextHop(DeliveryType.DNS, "example.org", "Out"), {})
    assert destination is not None
    assert (destination.ways, destination.mx_domain) == ((), "example.org")
    assert destination.connector is organization.send_connectors["Out"]


def test_a_source_server_sends_to_its_smart_hosts() -> None:
    """A queue for the list; all of one preference."""
    out = connector("Out", "*", "H-a-1", smart_hosts=smart("relay.isp.net", "10.0.0.9"))
    organization = world(LINKS, connectors=(out,))
    next_hop = hop(outside(organization, "H-a-1"))
    assert next_hop == NextHop(DeliveryType.SMART_HOST, "relay.isp.net,[10.0.0.9]", "Out")
    destination = MailRouter(organization, "H-a-1").destination(next_hop, {})
    assert destination is not None
    assert [(way.address, way.port, way.preference, way.mutual) for way in destination.ways] == [
        ("relay.isp.net", 25, 0, False),
        ("10.0.0.9", 25, 0, False),
    ]


def test_other_servers_of_the_site_relay_to_the_source_servers() -> None:
    """Only to those in this site, though there are some elsewhere: no fallback."""
    organization = world(LINKS, connectors=(connector("Out", "*", "H-a-1", "H-b-1"),))
    next_hop = hop(outside(organization, "H-a-2"))
    assert next_hop == NextHop(DeliveryType.CONNECTOR_SERVERS, "Out", "Out")
    destination = MailRouter(organization, "H-a-2").destination(next_hop, {})
    assert destination is not None
    assert [(way.server, way.preference) for way in destination.ways] == [("H-a-1", 0)]


def test_other_sites_relay_to_source_servers_the_nearest_first() -> None:
    """Then those farther away by cost, then the other hubs of the nearest site."""
    organization = world(LINKS, connectors=(connector("Out", "*", "H-b-1", "H-c-1"),))
    next_hop = hop(outside(organization, "H-a-1"))
    destination = MailRouter(organization, "H-a-1").destination(next_hop, {})
    assert destination is not None
    assert [(w.server, w.preference) for w in destination.ways] == [("H-b-1", 0), ("H-c-1", 1), ("H-b-2", 2)]
    assert all(way.mutual for way in destination.ways)


def test_the_path_to_a_connector_has_hub_sites_too() -> None:
    """And limits of links, and sites that cannot be reached."""
    organization = world(LINKS, connectors=(connector("Out", "*", "H-c-1"),), hub_sites="b", limits={"b c": 5000})
    assert hop(outside(organization, "H-a-1")) == NextHop(DeliveryType.SITE, "b")
    assert hop(outside(organization, "H-b-1")) == NextHop(DeliveryType.CONNECTOR_SERVERS, "Out", "Out")
    assert isinstance(outside(organization, "H-a-1", size=6000), Refused)
    plain = world(LINKS, connectors=(connector("Out", "*", "H-c-1"),))
    assert hop(outside(plain, "H-a-1", down="c")) == NextHop(DeliveryType.SITE, "b")


def test_source_servers_elsewhere_stand_in_for_a_site_that_is_down() -> None:
    """Before it is backed off."""
    organization = world(LINKS, connectors=(connector("Out", "*", "H-b-1", "H-c-1"),))
    route = outside(organization, "H-a-1", down="b")
    assert isinstance(route, Routed)
    assert route.path[-1] == "c"
    assert "site b cannot be reached; Out has source servers elsewhere" in texts(route)


def test_an_edge_of_another_site_is_reached_through_the_hubs_there() -> None:
    """It takes mail from its own site's servers."""
    organization = world(LINKS, connectors=(connector("Out", "*", "E-b"),), more=(edge("E-b", "b"),))
    assert hop(outside(organization, "H-a-1")) == NextHop(DeliveryType.SITE, "b")
    assert hop(outside(organization, "H-b-2")) == NextHop(DeliveryType.CONNECTOR_SERVERS, "Out", "Out")
    both = world(LINKS, connectors=(connector("Out", "*", "E-b", "H-b-1"),), more=(edge("E-b", "b"),))
    destination = MailRouter(both, "H-a-1").destination(hop(outside(both, "H-a-1")), {})
    assert destination is not None
    assert [way.server for way in destination.ways] == ["H-b-1", "H-b-2"]  # the edge is not among them
    alone = world(LINKS, connectors=(connector("Out", "*", "E-b"),), more=(edge("E-b", "b"),), without_hubs="b")
    assert hop(outside(alone, "H-a-1")) == NextHop(DeliveryType.CONNECTOR_SERVERS, "Out", "Out")


def test_a_next_hop_that_is_gone_has_no_destination() -> None:
    """Then the message is routed anew."""
    organization = world(LINKS, connectors=(connector("Out", "*", "H-a-1"),))
    router = MailRouter(organization, "H-a-1")
    assert router.destination(NextHop(DeliveryType.DNS, "example.org", "Gone"), {}) is None
    assert router.destination(NextHop(DeliveryType.SITE, "gone"), {}) is None
    assert router.destination(NextHop(DeliveryType.UNREACHABLE, "Unreachable Domain"), {}) is None
    off = replace(organization.send_connectors["Out"], enabled=False)
    closed = MailRouter(replace(organization, send_connectors={"Out": off}), "H-a-1")
    assert closed.destination(NextHop(DeliveryType.DNS, "example.org", "Out"), {}) is None
    assert MailRouter(organization, "H-a-2").destination(NextHop(DeliveryType.DNS, "example.org", "Out"), {}) is None


def test_names_of_servers_that_an_operator_chose() -> None:
    """A queue that was redirected goes to hubs and mailbox servers by their names."""
    router = MailRouter(world(LINKS, more=(mailbox_server("M-a", "a"),)), "H-a-1")
    destination = router.destination(NextHop(DeliveryType.SERVERS, "H-b-1;M-a;gone;H-a-1"), {})
    assert destination is not None
    assert [(way.server, way.port) for way in destination.ways] == [("H-b-1", 25), ("M-a", 24)]


# Against a slow second reading


PATTERNS = ("*", "*.org", "*.example.org", "example.org", "mail.example.org", "*.mail.example.org", "contoso.net")
DOMAINS = ("example.org", "mail.example.org", "a.mail.example.org", "else.org", "contoso.net", "x.de")
SERVERS = ("H-a-1", "H-a-2", "H-b-1", "H-b-2", "H-c-1", "H-island-1")


@st.composite
def connectors(draw: st.DrawFn) -> tuple[SendConnector, ...]:
    """Up to five, with few costs, so that there are ties."""
    names = draw(st.lists(st.sampled_from("pqrst"), unique=True, max_size=5))
    return tuple(
        connector(
            name,
            " ".join(f"{p};{draw(st.sampled_from((1, 11, 21)))}" for p in draw(_some(PATTERNS))),
            *draw(_some(SERVERS)),
            enabled=draw(st.sampled_from((True, True, True, False))),
            scoped=draw(st.booleans()),
            max_message_size=draw(st.sampled_from((0, 100, 1000))),
        )
        for name in names
    )


def _some(words: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(words), min_size=1, max_size=3, unique=True)


def by_elimination(organization: Organization, own: str, domain: str, size: int) -> str | None:
    """The facts' list of rules, one filter after the other."""
    here = organization.servers[own]
    paths = Paths(organization)

    def matching(each: SendConnector) -> list[tuple[tuple[bool, int], int]]:
        found = []
        for space in each.address_spaces:
            base = space.pattern.removeprefix("*.")
            if space.pattern == domain:
                found.append(((True, 0), space.cost))
            elif space.pattern == "*":
                found.append(((False, 0), space.cost))
            elif space.pattern != base and f".{domain}".endswith(f".{base}"):
                found.append(((False, len(base.split("."))), space.cost))
        return found

    def distance(each: SendConnector) -> tuple[int, int, int] | None:
        if own in each.source_servers:
            return 0, 0, 0
        ways = [paths.between(here.site, organization.servers[name].site) for name in each.source_servers]
        known = [(way.cost, 1 + way.hops) for way in ways if way is not None]
        return (min(known)[0], 1 if min(known)[1] == 1 else 2, min(known)[1]) if known else None

    left = [c for c in organization.send_connectors.values() if not c.max_message_size or size <= c.max_message_size]
    left = [c for c in left if c.enabled]
    left = [c for c in left if not c.scoped or here.site in {organization.servers[n].site for n in c.source_servers}]
    left = [c for c in left if matching(c) and distance(c)]
    for rule in (
        lambda c: tuple(-int(part) for part in max(m[0] for m in matching(c))),
        lambda c: (distance(c) or (0,))[0] + min(m[1] for m in matching(c) if m[0] == max(m[0] for m in matching(c))),
        lambda c: (distance(c) or (0, 0, 0))[1:],
        lambda c: c.name,
    ):
        left = [c for c in left if rule(c) == min(map(rule, left))]
    return left[0].name if left else None


@settings(max_examples=100)
@given(connectors(), st.sampled_from(DOMAINS), st.sampled_from((50, 500, 5000)), st.sampled_from(SERVERS))
def test_the_choice_is_that_of_the_rules_one_by_one(
    found: tuple[SendConnector, ...], domain: str, size: int, own: str
) -> None:
    """The same connector, and a reason for each that matches."""
    organization = world(LINKS, sites="island", connectors=found)
    choice = choose(organization, Paths(organization), organization.servers[own], domain, size)
    expected = by_elimination(organization, own, domain, size)
    assert (choice.chosen.connector.name if choice.chosen else None) == expected
