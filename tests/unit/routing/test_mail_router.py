"""From a recipient to the next hop: accepted domains, mailboxes, edges, and what is remembered (SPEC T3, T12)."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from mail_world import (
    active,
    connector,
    edge,
    endpoint,
    hop,
    hub,
    mailbox_server,
    outside,
    smart,
    texts,
    to_site,
    world,
)

from gatepost.organization.model import Organization, Protocol, Role, TlsMode, Version
from gatepost.organization.transport import DomainKind, TlsLevel, TransportSettings
from gatepost.routing.mail.outcome import Refused, Routed
from gatepost.routing.mail.router import MAX_REMEMBERED, MailRouter
from gatepost.routing.next_hop import DeliveryType, NextHop, Transfer
from gatepost.routing.outcome import Mailbox, StepKind

LINKS = {"a b": 10, "b c": 10}
OUT = connector("Out", "*", "H-a-1")
KINDS = {"internal.com": DomainKind.INTERNAL_RELAY, "external.com": DomainKind.EXTERNAL_RELAY}


# Mailboxes


def test_a_mailbox_of_this_site_is_delivered_to_the_server_with_the_active_copy() -> None:
    """By LMTP, with the database as the queue."""
    organization = world(LINKS)
    assert hop(to_site(organization, "H-a-1", "a")) == NextHop(DeliveryType.MAILBOX, "DB-a")
    destination = MailRouter(organization, "H-a-1").destination(NextHop(DeliveryType.MAILBOX, "DB-a"), {"DB-a": "M-a"})
    assert destination is not None
    (way,) = destination.ways
    assert (way.server, way.address, way.port, way.transfer) == ("M-a", "m-a.contoso.com", 24, Transfer.LMTP)
    assert (way.tls, way.tls_name, way.mutual) == (TlsLevel.VERIFIED, "m-a.contoso.com", False)


def test_lmtp_is_preferred_to_smtp_and_smtp_will_do() -> None:
    """Each recipient has an answer of its own by LMTP."""
    for protocols, transfer in (
        ((Protocol.SMTP, Protocol.LMTP), Transfer.LMTP),
        ((Protocol.SMTP,), Transfer.SMTP),
    ):
        organization = world(LINKS, more=(mailbox_server("M-a", "a", *protocols),))
        found = MailRouter(organization, "H-a-1").destination(NextHop(DeliveryType.MAILBOX, "DB-a"), {"DB-a": "M-a"})
        assert found is not None
        assert found.ways[0].transfer is transfer


@pytest.mark.parametrize(
    ("tls", "level", "implicit"),
    [
        (TlsMode.CLEAR, TlsLevel.NONE, False),
        (TlsMode.STARTTLS, TlsLevel.VERIFIED, False),
        (TlsMode.IMPLICIT, TlsLevel.VERIFIED, True),
    ],
)
def test_an_endpoints_mode_says_what_is_asked_of_its_tls(tls: TlsMode, level: TlsLevel, implicit: bool) -> None:
    """Clear text only where it is written."""
    server = replace(mailbox_server("M-a", "a"), endpoints=(endpoint(Protocol.LMTP, "m-a.contoso.com", tls),))
    organization = world(LINKS, more=(server,))
    found = MailRouter(organization, "H-a-1").destination(NextHop(DeliveryType.MAILBOX, "DB-a"), {"DB-a": "M-a"})
    assert found is not None
    assert (found.ways[0].tls, found.ways[0].implicit_tls) == (level, implicit)


def test_mail_follows_the_active_copy() -> None:
    """To another server of the site at once; to another site by a new route, since the old queue leads nowhere."""
    organization = world(LINKS, more=(mailbox_server("M-a2", "a"),))
    router = MailRouter(organization, "H-a-1")
    queue = NextHop(DeliveryType.MAILBOX, "DB-a")
    for server, site in (("M-a", "a"), ("M-a2", "a"), ("M-b", "b")):
        route = router.route("anna@contoso.com", Mailbox("DB-a"), {"DB-a": server}, 1000)
        found = router.destination(queue, {"DB-a": server})
        if site == "a":
            assert hop(route) == queue
            assert found is not None
            assert found.ways[0].server == server
        else:
            assert hop(route) == NextHop(DeliveryType.SITE, site)
            assert found is None


def test_without_an_active_copy_it_waits() -> None:
    """A fault of the registry is no reason to send mail back."""
    organization = world(LINKS)
    router = MailRouter(organization, "H-a-1")
    assert hop(router.route("anna@contoso.com", Mailbox("DB-a"), {}, 1000)).delivery is DeliveryType.UNREACHABLE
    assert router.destination(NextHop(DeliveryType.MAILBOX, "DB-a"), {}) is None
    gone = router.route("anna@contoso.com", Mailbox("DB-a"), {"DB-a": "removed"}, 1000)
    assert hop(gone).delivery is DeliveryType.UNREACHABLE


def test_the_hubs_of_another_site_are_all_targets_and_believe_each_other() -> None:
    """One preference: they share the connections."""
    organization = world(LINKS)
    destination = MailRouter(organization, "H-a-1").destination(NextHop(DeliveryType.SITE, "b"), {})
    assert destination is not None
    assert [(w.server, w.preference, w.mutual, w.tls) for w in destination.ways] == [
        ("H-b-1", 0, True, TlsLevel.VERIFIED),
        ("H-b-2", 0, True, TlsLevel.VERIFIED),
    ]


def test_hubs_in_clear_show_no_certificates() -> None:
    """So they cannot believe each other by them."""
    clear = replace(hub("H-b-1", "b"), endpoints=(endpoint(Protocol.SMTP, "h-b-1", TlsMode.CLEAR),))
    destination = MailRouter(world(LINKS, more=(clear,)), "H-a-1").destination(NextHop(DeliveryType.SITE, "b"), {})
    assert destination is not None
    assert next((way.server, way.mutual, way.tls) for way in destination.ways) == ("H-b-1", False, TlsLevel.NONE)


def test_bounds_of_a_next_hop_are_the_servers_settings() -> None:
    """Connections for it, messages for each."""
    settings = TransportSettings(max_per_domain_outbound_connections=3, max_messages_per_connection=7)
    organization = world(LINKS, more=(replace(hub("H-a-1", "a"), transport=settings),))
    destination = MailRouter(organization, "H-a-1").destination(NextHop(DeliveryType.SITE, "b"), {})
    assert destination is not None
    assert (destination.max_connections, destination.max_messages_per_connection) == (3, 7)


# Old servers


def test_a_home_server_of_2003_takes_its_mail_by_smtp() -> None:
    """Straight from this site; from others by the hubs of its site."""
    old = mailbox_server("OLD", "a", Protocol.SMTP, version=Version.V2003)
    organization = world(LINKS, more=(old,))
    route = MailRouter(organization, "H-a-1").route("x@contoso.com", Mailbox(home_server="OLD"), {}, 1000)
    assert hop(route) == NextHop(DeliveryType.SERVERS, "OLD")
    destination = MailRouter(organization, "H-a-1").destination(hop(route), {})
    assert destination is not None
    assert (destination.ways[0].server, destination.ways[0].port) == ("OLD", 25)
    far = MailRouter(organization, "H-c-1").route("x@contoso.com", Mailbox(home_server="OLD"), {}, 1000)
    assert hop(far) == NextHop(DeliveryType.SITE, "a")


def test_a_2010_mailbox_is_reached_by_the_2010_hubs_of_its_site() -> None:
    """They alone speak to its server; to us they are plain SMTP servers."""
    more = (
        replace(mailbox_server("M-a", "a", version=Version.V2010), endpoints=()),
        hub("OLDHUB", "a", Version.V2010),
    )
    organization = world(LINKS, more=more)
    route = to_site(organization, "H-a-1", "a")
    assert hop(route) == NextHop(DeliveryType.DELIVERY_GROUP, "Site:a;Version:2010")
    destination = MailRouter(organization, "H-a-1").destination(hop(route), {})
    assert destination is not None
    assert [(w.server, w.mutual, w.tls) for w in destination.ways] == [("OLDHUB", False, TlsLevel.OPPORTUNISTIC)]
    assert hop(to_site(organization, "H-b-1", "a")) == NextHop(DeliveryType.SITE, "a")
    site = MailRouter(organization, "H-b-1").destination(NextHop(DeliveryType.SITE, "a"), {})
    assert site is not None
    assert [way.server for way in site.ways] == ["H-a-1", "H-a-2"]  # today's hubs before old ones


def test_a_mailbox_server_that_takes_no_mail_makes_it_wait() -> None:
    """And the reason says which."""
    organization = world(LINKS, more=(replace(mailbox_server("M-a", "a"), endpoints=()),))
    route = to_site(organization, "H-a-1", "a")
    assert hop(route).delivery is DeliveryType.UNREACHABLE
    assert texts(route)[-1] == "M-a has no endpoint lmtp or smtp for deliveries"


def test_the_smtp_of_a_hub_that_is_a_mailbox_server_too_is_no_delivery() -> None:
    """It would come back to the hub."""
    both = replace(hub("M-a", "a"), roles=frozenset({Role.HUB_TRANSPORT, Role.MAILBOX}))
    assert hop(to_site(world(LINKS, more=(both,)), "H-a-1", "a")).delivery is DeliveryType.UNREACHABLE


# Accepted domains


def test_nobody_of_an_authoritative_domain_is_refused() -> None:
    """550 5.1.1."""
    route = outside(world(LINKS, connectors=(OUT,)), "H-a-1", "nobody@contoso.com")
    assert isinstance(route, Refused)
    assert str(route.reply) == "550 5.1.1 No such recipient here"


def test_an_internal_relay_has_some_mailboxes_here_and_sends_the_rest_on() -> None:
    """By the connector for its address space."""
    onward = connector("Onward", "internal.com", "H-a-1", smart_hosts=smart("old.internal.com"))
    organization = world(LINKS, connectors=(OUT, onward), kinds=KINDS)
    router = MailRouter(organization, "H-a-1")
    here = router.route("x@internal.com", Mailbox("DB-a"), active(organization), 1000)
    assert hop(here) == NextHop(DeliveryType.MAILBOX, "DB-a")
    assert hop(outside(organization, "H-a-1", "y@internal.com")).connector == "Onward"


def test_an_external_relay_has_none_here() -> None:
    """Whatever the directory says."""
    organization = world(LINKS, connectors=(OUT,), kinds=KINDS)
    router = MailRouter(organization, "H-a-1")
    route = router.route("x@external.com", Mailbox("DB-a"), active(organization), 1000)
    assert hop(route) == NextHop(DeliveryType.DNS, "external.com", "Out")


def test_domains_are_compared_as_dns_does() -> None:
    """Case, a trailing dot, and either spelling of an international name."""
    organization = world(LINKS, kinds={"bücher.example": DomainKind.AUTHORITATIVE})
    router = MailRouter(organization, "H-a-1")
    for address in ("x@CONTOSO.com", "x@contoso.com.", "x@Bücher.example", "x@xn--bcher-kva.example"):
        assert isinstance(router.route(address, None, {}, 100), Refused)


def test_an_address_without_a_domain_is_of_the_default_domain() -> None:
    """As `postmaster` may be (RFC 5321, section 4.5.1)."""
    organization = world(LINKS)
    router = MailRouter(organization, "H-a-1")
    assert hop(router.route("postmaster", Mailbox("DB-a"), active(organization), 100)).domain == "DB-a"
    nowhere = MailRouter(replace(organization, accepted_domains=()), "H-a-1").route("x@", None, {}, 100)
    assert isinstance(nowhere, Refused)
    assert nowhere.reply.enhanced == "5.1.3"


# Edges


def edged(**changes: object) -> Organization:
    """Two edges in site a, of which E-1 sends to the Internet."""
    out = connector("Out", "*", "E-1")
    return replace(
        world(LINKS, connectors=(out,), more=(edge("E-1", "a"), edge("E-2", "a")), kinds=KINDS),
        **changes,  # type: ignore[arg-type]
    )


def test_an_edge_hands_mail_for_the_organization_to_the_hubs_of_its_site() -> None:
    """It knows no mailboxes, so it refuses nobody."""
    for address in ("x@contoso.com", "x@internal.com"):
        assert hop(outside(edged(), "E-1", address)) == NextHop(DeliveryType.SITE, "a")
    destination = MailRouter(edged(), "E-1").destination(NextHop(DeliveryType.SITE, "a"), {})
    assert destination is not None
    assert [way.server for way in destination.ways] == ["H-a-1", "H-a-2"]


def test_an_edge_sends_all_else_by_its_own_connectors() -> None:
    """Another edge's are not its own."""
    assert hop(outside(edged(), "E-1")) == NextHop(DeliveryType.DNS, "example.org", "Out")
    route = outside(edged(), "E-2")
    assert hop(route).delivery is DeliveryType.UNREACHABLE
    assert "connector Out: is of another server" in texts(route)


def test_what_hubs_hand_to_an_edge_for_a_relayed_domain_goes_out() -> None:
    """Back to the hubs would be a circle."""
    router = MailRouter(edged(), "E-1")
    assert hop(router.route("x@internal.com", None, {}, 100, internal=True)).delivery is DeliveryType.DNS
    assert hop(router.route("x@external.com", None, {}, 100)).delivery is DeliveryType.DNS
    assert hop(router.route("x@contoso.com", None, {}, 100, internal=True)).delivery is DeliveryType.SITE


def test_an_edge_in_a_site_without_hubs_takes_the_nearest_site_that_has() -> None:
    """By the same order of paths."""
    organization = world(LINKS, more=(edge("E-1", "a"),), without_hubs="a b")
    assert hop(outside(organization, "E-1", "x@contoso.com")) == NextHop(DeliveryType.SITE, "c")
    alone = world(LINKS, more=(edge("E-1", "a"),), without_hubs="a b c")
    assert hop(outside(alone, "E-1", "x@contoso.com")).delivery is DeliveryType.UNREACHABLE


# Reasons and memory


def test_every_route_ends_with_the_reason_that_decided() -> None:
    """The last step, and only that one (SPEC C13)."""
    organization = edged()
    for own in ("H-a-1", "H-c-2", "E-1", "E-2"):
        router = MailRouter(organization, own)
        for address in ("x@contoso.com", "x@internal.com", "x@external.com", "x@example.org"):
            for mailbox in (None, Mailbox("DB-b"), Mailbox("DB-none"), Mailbox(home_server="M-b")):
                route = router.route(address, mailbox, active(organization), 1000)
                kinds = [step.kind for step in route.reasons]
                assert kinds[-1] is StepKind.TAKEN
                assert kinds.count(StepKind.TAKEN) == 1


def test_a_remembered_route_is_the_one_that_is_found_anew() -> None:
    """Sizes on both sides of each limit, sites down and up, in any order."""
    out = (OUT, connector("Small", "example.org", "H-b-1", max_message_size=500))
    organization = world(LINKS, connectors=out, limits={"a b": 2000})
    router = MailRouter(organization, "H-a-1")
    for size in (1, 500, 501, 2000, 2001, 10_000, 500, 2000):
        for down in (frozenset[str](), frozenset({"b"}), frozenset({"c"})):
            for address, mailbox in (("x@example.org", None), ("x@contoso.com", Mailbox("DB-c"))):
                fresh = MailRouter(organization, "H-a-1")
                assert router.route(address, mailbox, active(organization), size, down) == fresh.route(
                    address, mailbox, active(organization), size, down
                )


def test_memory_is_bounded() -> None:
    """Strangers choose the domains of recipients."""
    router = MailRouter(world(LINKS, connectors=(OUT,)), "H-a-1")
    for number in range(MAX_REMEMBERED + 10):
        router.route(f"x@d{number}.org", None, {}, 100)
    remembered = (len(router._routes), len(router._domains))
    assert max(remembered) <= MAX_REMEMBERED


def test_a_route_that_is_remembered_costs_microseconds() -> None:
    """200,000 a second on a quiet machine; the bound here allows for a loaded one."""
    organization = world(LINKS)
    router = MailRouter(organization, "H-a-1")
    copies, mailbox = active(organization), Mailbox("DB-c")
    best = 1.0
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(2000):
            router.route("anna@contoso.com", mailbox, copies, 5000)
        best = min(best, (time.perf_counter() - begun) / 2000)
    assert best < 50e-6


def test_a_server_that_is_none_cannot_route() -> None:
    """A bug of the caller."""
    with pytest.raises(KeyError):
        MailRouter(world(LINKS), "nobody")
    assert isinstance(outside(world(LINKS, connectors=(OUT,)), "H-a-1"), Routed)
