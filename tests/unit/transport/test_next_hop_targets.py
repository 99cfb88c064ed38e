"""From a next hop to targets (SPEC T4; smtp-facts rows 27, 29, 30, 32, 34, 35)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gatepost.balancing.mail_exchangers import BadDomain, a_label, literal_address, why_not_address
from gatepost.lab.servers.name_server import NameServer
from gatepost.organization.transport import AddressSpace, SendConnector, TlsLevel
from gatepost.routing.next_hop import DeliveryType, Destination, NextHop, Way
from gatepost.transport.dns import Resolver
from gatepost.transport.next_hop_targets import MAX_HOSTS, Failure, NextHopTargets, Ourselves, Targets

NOW = 1_790_000_000.0
PUBLIC = "93.184.216.34"


@pytest.fixture(scope="module")
def name_server() -> Iterator[NameServer]:
    with NameServer("127.0.0.1") as found:
        yield found


@pytest.fixture
def names(name_server: NameServer) -> NameServer:
    name_server.clear()
    return name_server


@pytest.fixture
def finder(names: NameServer) -> NextHopTargets:
    ourselves = Ourselves(frozenset({"hub01.contoso.com"}), frozenset({"93.184.216.1"}))
    return NextHopTargets(Resolver([names.server]), ourselves)


def by_mx(
    domain: str, *, allow_private: bool = False, port: int = 25, tls: TlsLevel = TlsLevel.OPPORTUNISTIC
) -> Destination:
    connector = SendConnector(
        "internet", (AddressSpace("*"),), ("hub01",), port=port, tls=tls, allow_private=allow_private
    )
    return Destination(NextHop(DeliveryType.DNS, domain, "internet"), mx_domain=domain, connector=connector)


def by_ways(*ways: Way) -> Destination:
    return Destination(NextHop(DeliveryType.SITE, "site-b"), ways=ways)


async def found(finder: NextHopTargets, destination: Destination) -> list[tuple[int, str, str, int]]:
    targets = await finder.targets(destination, NOW)
    assert isinstance(targets, Targets), targets
    return sorted((each.preference, each.host, each.ip, each.port) for each in targets.targets)


async def failure(finder: NextHopTargets, destination: Destination) -> tuple[int, str, bool, str]:
    fault = await finder.targets(destination, NOW)
    assert isinstance(fault, Failure), fault
    assert fault.permanent == fault.reply.permanent
    return fault.reply.code, fault.reply.enhanced, fault.permanent, fault.reply.text


async def test_mail_exchangers_are_targets_with_their_preferences(names: NameServer, finder: NextHopTargets) -> None:
    names.add("fabrikam.com", "MX", "20 mx2.fabrikam.com.", "10 mx1.fabrikam.com.")
    names.add("mx1.fabrikam.com", "A", PUBLIC)
    names.add("mx2.fabrikam.com", "AAAA", "2606:4700::1")
    assert await found(finder, by_mx("fabrikam.com")) == [
        (10, "mx1.fabrikam.com", PUBLIC, 25),
        (20, "mx2.fabrikam.com", "2606:4700::1", 25),
    ]


async def test_port_and_tls_are_the_connectors(names: NameServer, finder: NextHopTargets) -> None:
    names.add("fabrikam.com", "MX", "10 mx1.fabrikam.com.")
    names.add("mx1.fabrikam.com", "A", PUBLIC)
    targets = await finder.targets(by_mx("fabrikam.com", port=2525, tls=TlsLevel.VERIFIED), NOW)
    assert isinstance(targets, Targets)
    assert (targets.targets[0].port, targets.targets[0].way.tls) == (2525, TlsLevel.VERIFIED)


async def test_a_null_mx_is_permanent_at_once(names: NameServer, finder: NextHopTargets) -> None:
    """Row 27, RFC 7505."""
    names.add("fabrikam.com", "MX", "0 .")
    names.add("fabrikam.com", "A", PUBLIC)
    assert (await failure(finder, by_mx("fabrikam.com")))[:3] == (556, "5.1.10", True)


async def test_a_null_mx_beside_others_is_left_out(names: NameServer, finder: NextHopTargets) -> None:
    names.add("fabrikam.com", "MX", "0 .", "10 mx1.fabrikam.com.")
    names.add("mx1.fabrikam.com", "A", PUBLIC)
    assert await found(finder, by_mx("fabrikam.com")) == [(10, "mx1.fabrikam.com", PUBLIC, 25)]


async def test_nxdomain_is_permanent(finder: NextHopTargets) -> None:
    """Row 32."""
    assert (await failure(finder, by_mx("nothing.example")))[:3] == (550, "5.1.2", True)


@pytest.mark.parametrize("rcode", ["SERVFAIL", "REFUSED"])
async def test_a_fault_of_dns_is_temporary(names: NameServer, finder: NextHopTargets, rcode: str) -> None:
    """Row 32: never a bounce because the resolver is down."""
    names.fail("fabrikam.com", rcode)
    assert (await failure(finder, by_mx("fabrikam.com")))[:3] == (451, "4.4.3", False)


async def test_silence_of_dns_is_temporary(names: NameServer) -> None:
    names.silence("fabrikam.com")
    finder = NextHopTargets(Resolver([names.server], try_seconds=0.1, lifetime_seconds=0.2), Ourselves())
    assert (await failure(finder, by_mx("fabrikam.com")))[:3] == (451, "4.4.3", False)


@pytest.mark.parametrize("rcode", ["SERVFAIL", "REFUSED"])
async def test_a_fault_at_the_exchangers_address_is_temporary(
    names: NameServer, finder: NextHopTargets, rcode: str
) -> None:
    names.add("fabrikam.com", "MX", "10 mx1.fabrikam.com.", "20 gone.fabrikam.com.")
    names.fail("mx1.fabrikam.com", rcode)
    code, enhanced, permanent, text = await failure(finder, by_mx("fabrikam.com"))
    assert (code, enhanced, permanent) == (451, "4.4.3", False)
    assert "mx1.fabrikam.com" in text


async def test_an_exchanger_that_cannot_be_looked_up_does_not_hide_the_others(
    names: NameServer, finder: NextHopTargets
) -> None:
    names.add("fabrikam.com", "MX", "10 mx1.fabrikam.com.", "10 mx2.fabrikam.com.", "10 gone.fabrikam.com.")
    names.fail("mx1.fabrikam.com")
    names.add("mx2.fabrikam.com", "A", PUBLIC)
    assert await found(finder, by_mx("fabrikam.com")) == [(10, "mx2.fabrikam.com", PUBLIC, 25)]


async def test_exchangers_without_any_address_are_permanent(names: NameServer, finder: NextHopTargets) -> None:
    names.add("fabrikam.com", "MX", "10 gone.fabrikam.com.")
    assert (await failure(finder, by_mx("fabrikam.com")))[:3] == (550, "5.4.4", True)


async def test_without_mx_the_domains_own_address_counts(names: NameServer, finder: NextHopTargets) -> None:
    """The implicit MX (RFC 5321 section 5.1)."""
    names.add("fabrikam.com", "A", PUBLIC)
    assert await found(finder, by_mx("fabrikam.com")) == [(0, "fabrikam.com", PUBLIC, 25)]


async def test_a_domain_with_neither_is_permanent(names: NameServer, finder: NextHopTargets) -> None:
    names.add("fabrikam.com", "TXT", "hello")
    assert (await failure(finder, by_mx("fabrikam.com")))[:3] == (550, "5.1.2", True)


async def test_a_cname_is_followed_for_domain_and_exchanger(names: NameServer, finder: NextHopTargets) -> None:
    names.add("alias.example", "CNAME", "fabrikam.com.")
    names.add("fabrikam.com", "MX", "10 mx.alias.example.")
    names.add("mx.alias.example", "CNAME", "mx1.fabrikam.com.")
    names.add("mx1.fabrikam.com", "A", PUBLIC)
    assert await found(finder, by_mx("alias.example")) == [(10, "mx.alias.example", PUBLIC, 25)]


async def test_ourselves_by_name_and_every_worse_preference_are_left_out(
    names: NameServer, finder: NextHopTargets
) -> None:
    """Row 30, RFC 5321 section 5.1: a backup exchanger hands mail to better ones only."""
    names.add(
        "fabrikam.com",
        "MX",
        *("10 mx1.fabrikam.com.", "20 HUB01.contoso.com.", "20 mx2.fabrikam.com.", "30 mx3.fabrikam.com."),
    )
    for number in (1, 2, 3):
        names.add(f"mx{number}.fabrikam.com", "A", f"93.184.216.{30 + number}")
    assert await found(finder, by_mx("fabrikam.com")) == [(10, "mx1.fabrikam.com", "93.184.216.31", 25)]


async def test_ourselves_by_address_likewise(names: NameServer, finder: NextHopTargets) -> None:
    names.add("fabrikam.com", "MX", "10 mx1.fabrikam.com.", "20 other.name.", "30 mx3.fabrikam.com.")
    for host, address in (
        ("mx1.fabrikam.com", PUBLIC),
        ("other.name", "93.184.216.1"),
        ("mx3.fabrikam.com", "93.184.216.33"),
    ):
        names.add(host, "A", address)
    assert await found(finder, by_mx("fabrikam.com")) == [(10, "mx1.fabrikam.com", PUBLIC, 25)]


@pytest.mark.parametrize("host", ["hub01.contoso.com.", "other.name."])
async def test_nobody_better_than_ourselves_is_a_loop(names: NameServer, finder: NextHopTargets, host: str) -> None:
    names.add("fabrikam.com", "MX", f"10 {host}", "20 mx3.fabrikam.com.")
    names.add("other.name", "A", "93.184.216.1")
    names.add("mx3.fabrikam.com", "A", PUBLIC)
    assert (await failure(finder, by_mx("fabrikam.com")))[:3] == (554, "5.4.6", True)


async def test_an_implicit_mx_that_is_ourselves_is_a_loop(names: NameServer, finder: NextHopTargets) -> None:
    names.add("fabrikam.com", "A", "93.184.216.1")
    assert (await failure(finder, by_mx("fabrikam.com")))[:3] == (554, "5.4.6", True)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1.", None),
        ("10.0.0.1.", None),
        ("localhost.", None),
        ("mx.localhost.", None),
        ("mx.example.", "127.0.0.1"),
        ("mx.example.", "0.0.0.0"),
        ("mx.example.", "10.1.2.3"),
        ("mx.example.", "192.168.0.9"),
        ("mx.example.", "169.254.169.254"),
        ("mx.example.", "100.64.0.1"),
        ("mx.example.", "224.0.0.1"),
        ("mx.example.", "255.255.255.255"),
        ("mx.example.", "::1"),
        ("mx.example.", "::"),
        ("mx.example.", "fe80::1"),
        ("mx.example.", "fd00::1"),
        ("mx.example.", "ff02::1"),
        ("mx.example.", "::ffff:127.0.0.1"),
        ("mx.example.", "::ffff:10.0.0.1"),
        ("mx.example.", "64:ff9b::7f00:1"),
        ("mx.example.", "2002:7f00:1::1"),
    ],
)
async def test_exchangers_that_lead_into_our_own_network_are_refused(
    names: NameServer, finder: NextHopTargets, host: str, address: str | None
) -> None:
    """Row 29: with a text that says which and why."""
    names.add("fabrikam.com", "MX", f"10 {host}")
    if address is not None:
        names.add("mx.example", "AAAA" if ":" in address else "A", address)
    code, enhanced, _, text = await failure(finder, by_mx("fabrikam.com"))
    assert (code, enhanced) == (554, "5.4.6")
    assert host.rstrip(".") in text


async def test_a_refused_exchanger_does_not_hide_the_others(names: NameServer, finder: NextHopTargets) -> None:
    names.add("fabrikam.com", "MX", "10 localhost.", "20 mx1.fabrikam.com.")
    names.add("mx1.fabrikam.com", "A", "10.0.0.1", PUBLIC)
    targets = await finder.targets(by_mx("fabrikam.com"), NOW)
    assert isinstance(targets, Targets)
    assert [each.ip for each in targets.targets] == [PUBLIC]
    assert any("localhost" in note for note in targets.notes)
    assert any("10.0.0.1" in note for note in targets.notes)


@pytest.mark.parametrize("host", ["mx.example.", "10.0.0.7."])
async def test_a_connector_may_allow_private_addresses(names: NameServer, finder: NextHopTargets, host: str) -> None:
    names.add("fabrikam.com", "MX", f"10 {host}")
    names.add("mx.example", "A", "10.0.0.7")
    assert [each[2] for each in await found(finder, by_mx("fabrikam.com", allow_private=True))] == ["10.0.0.7"]


@pytest.mark.parametrize("address", ["0.0.0.0", "224.0.0.1", "ff02::1", "::"])
async def test_what_is_no_machine_is_never_allowed(address: str) -> None:
    assert why_not_address(address, allow_private=True)


@pytest.mark.parametrize(
    ("domain", "address"),
    [(f"[{PUBLIC}]", PUBLIC), ("[IPv6:2606:4700::1]", "2606:4700::1"), ("[ipv6:2606:4700::1]", "2606:4700::1")],
)
async def test_a_literal_domain_is_its_own_target(
    names: NameServer, finder: NextHopTargets, domain: str, address: str
) -> None:
    assert await found(finder, by_mx(domain)) == [(0, domain, address, 25)]
    assert not names._asked


@pytest.mark.parametrize("domain", ["[127.0.0.1]", "[10.0.0.1]", "[IPv6:::1]", "[IPv6:::ffff:127.0.0.1]"])
async def test_a_literal_domain_inside_our_network_is_refused(finder: NextHopTargets, domain: str) -> None:
    assert (await failure(finder, by_mx(domain)))[:3] == (554, "5.4.6", True)


async def test_a_literal_domain_that_is_ourselves_is_a_loop(finder: NextHopTargets) -> None:
    assert (await failure(finder, by_mx("[93.184.216.1]")))[:3] == (554, "5.4.6", True)


@pytest.mark.parametrize(
    "domain", ["[1.2.3]", "[1.2.3.4", "[::1]", "[x]", "[]", "a..b", "-a.example", "a b.example", "x" * 64]
)
async def test_a_domain_that_is_none_is_permanent(finder: NextHopTargets, domain: str) -> None:
    assert (await failure(finder, by_mx(domain)))[:3] == (550, "5.1.2", True)


async def test_an_international_domain_is_looked_up_by_its_a_label(names: NameServer, finder: NextHopTargets) -> None:
    """Row 35."""
    names.add("xn--bcher-kva.example", "MX", "10 mx1.fabrikam.com.")
    names.add("mx1.fabrikam.com", "A", PUBLIC)
    assert await found(finder, by_mx("BÜCHER.example")) == [(10, "mx1.fabrikam.com", PUBLIC, 25)]


def test_labels_are_not_transitional() -> None:
    assert a_label("faß.de.") == "xn--fa-hia.de"
    with pytest.raises(BadDomain):
        a_label("\u2024.example")
    assert literal_address("contoso.com") is None


async def test_ipv6_and_ipv4_come_by_turns_within_a_preference(names: NameServer, finder: NextHopTargets) -> None:
    """Row 34."""
    names.add("fabrikam.com", "MX", "10 mx1.fabrikam.com.")
    names.add("mx1.fabrikam.com", "A", PUBLIC, "93.184.216.35")
    names.add("mx1.fabrikam.com", "AAAA", "2606:4700::1", "2606:4700::2")
    targets = await finder.targets(by_mx("fabrikam.com"), NOW)
    assert isinstance(targets, Targets)
    assert [":" in each.ip for each in targets.targets] == [True, False, True, False]


async def test_an_address_under_two_names_is_one_target_of_the_better_preference(
    names: NameServer, finder: NextHopTargets
) -> None:
    names.add("fabrikam.com", "MX", "20 mx2.fabrikam.com.", "10 mx1.fabrikam.com.")
    names.add("mx1.fabrikam.com", "A", PUBLIC)
    names.add("mx2.fabrikam.com", "A", PUBLIC)
    assert await found(finder, by_mx("fabrikam.com")) == [(10, "mx1.fabrikam.com", PUBLIC, 25)]


async def test_only_so_many_hosts_are_looked_up_the_best_ones(names: NameServer, finder: NextHopTargets) -> None:
    names.add("fabrikam.com", "MX", *(f"{number} mx{number}.fabrikam.com." for number in range(1, 60)))
    for number in range(1, 60):
        names.add(f"mx{number}.fabrikam.com", "A", f"93.184.217.{number}")
    assert [each[0] for each in await found(finder, by_mx("fabrikam.com"))] == list(range(1, MAX_HOSTS + 1))


async def test_ways_with_host_names_are_looked_up_and_with_addresses_are_not(
    names: NameServer, finder: NextHopTargets
) -> None:
    names.add("hub05.contoso.com", "A", "10.0.0.5")
    ways = (Way("hub04", "10.0.0.4", 25), Way("hub05", "HUB05.contoso.com", 2525, preference=1))
    assert await found(finder, by_ways(*ways)) == [(0, "hub04", "10.0.0.4", 25), (1, "hub05", "10.0.0.5", 2525)]
    assert names.asked("hub05.contoso.com", "MX") == 0


@pytest.mark.parametrize("fault", ["NXDOMAIN", "SERVFAIL", "REFUSED"])
async def test_our_own_servers_names_never_fail_for_good(names: NameServer, finder: NextHopTargets, fault: str) -> None:
    """An operator has written them, and puts them right while the mail waits."""
    names.fail("hub05.contoso.com", fault)
    assert (await failure(finder, by_ways(Way("hub05", "hub05.contoso.com", 25))))[:3] == (451, "4.4.3", False)


async def test_a_way_that_cannot_be_looked_up_does_not_hide_the_others(
    names: NameServer, finder: NextHopTargets
) -> None:
    ways = (Way("hub04", "10.0.0.4", 25), Way("hub05", "nowhere.example", 25), Way("hub06", "not a name", 25))
    assert await found(finder, by_ways(*ways)) == [(0, "hub04", "10.0.0.4", 25)]


async def test_no_ways_at_all_is_temporary(finder: NextHopTargets) -> None:
    assert (await failure(finder, by_ways()))[2] is False
