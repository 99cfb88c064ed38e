"""Targets by the answers of a real name server: dnsmasq's, with preferences, an alias, both families, and none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from doors import Servers, missing

from gatepost.lab.servers.dnsmasq import Dnsmasq
from gatepost.lab.servers.process import ServerMissing, free_ports
from gatepost.organization.transport import AddressSpace, SendConnector
from gatepost.routing.next_hop import DeliveryType, Destination, NextHop, Way
from gatepost.transport.dns import Resolver
from gatepost.transport.next_hop_targets import Failure, NextHopTargets, Ourselves, Targets

NOW = 1_790_000_000.0


@pytest.fixture
def dnsmasq(servers: Servers) -> Iterator[Dnsmasq]:
    address = servers.address()
    try:
        server = Dnsmasq(
            servers.scratch / "dnsmasq",
            address,
            free_ports(address, 1)[0],
            hosts={
                "mx1.fabrikam.com": ["127.70.0.1", "2606:4700::1"],
                "mx2.fabrikam.com": ["127.70.0.2"],
                "alone.example": ["127.70.0.9"],
            },
            exchangers=[
                ("fabrikam.com", 10, "mx1.fabrikam.com"),
                ("fabrikam.com", 20, "mx2.fabrikam.com"),
                ("backup.example", 10, "mx2.fabrikam.com"),
                ("backup.example", 20, "hub01.contoso.com"),
                ("loop.example", 10, "hub01.contoso.com"),
            ],
            lines=["cname=smarthost.example,mx2.fabrikam.com", "mx-host=null.example,.,0"],
        )
    except ServerMissing as error:
        missing(error)
    with server:
        yield server


@pytest.fixture
def finder(dnsmasq: Dnsmasq) -> NextHopTargets:
    resolver = Resolver([(dnsmasq.address, dnsmasq.port)])
    return NextHopTargets(resolver, Ourselves(frozenset({"hub01.contoso.com"})))


def by_mx(domain: str) -> Destination:
    connector = SendConnector("internet", (AddressSpace("*"),), ("hub01",), allow_private=True)
    return Destination(NextHop(DeliveryType.DNS, domain, "internet"), mx_domain=domain, connector=connector)


async def addresses(finder: NextHopTargets, destination: Destination) -> list[tuple[int, str]]:
    found = await finder.targets(destination, NOW)
    assert isinstance(found, Targets), found
    return sorted((target.preference, target.ip) for target in found.targets)


async def test_mail_exchangers_and_their_addresses(finder: NextHopTargets) -> None:
    assert await addresses(finder, by_mx("fabrikam.com")) == [
        (10, "127.70.0.1"),
        (10, "2606:4700::1"),
        (20, "127.70.0.2"),
    ]
    assert await addresses(finder, by_mx("alone.example")) == [(0, "127.70.0.9")]


async def test_past_ourselves_nobody_is_listed(finder: NextHopTargets) -> None:
    assert await addresses(finder, by_mx("backup.example")) == [(10, "127.70.0.2")]
    fault = await finder.targets(by_mx("loop.example"), NOW)
    assert isinstance(fault, Failure)
    assert (fault.permanent, fault.reply.enhanced) == (True, "5.4.6")


async def test_a_domain_that_does_not_exist_is_permanent(finder: NextHopTargets) -> None:
    fault = await finder.targets(by_mx("nothing.example"), NOW)
    assert isinstance(fault, Failure)
    assert (fault.permanent, fault.reply.enhanced) == (True, "5.1.2")


async def test_a_smart_hosts_alias_is_followed(finder: NextHopTargets) -> None:
    ways = (Way("smarthost.example", "smarthost.example", 587),)
    found = await addresses(finder, Destination(NextHop(DeliveryType.SMART_HOST, "smarthost.example"), ways=ways))
    assert found == [(0, "127.70.0.2")]


async def test_a_name_server_that_is_gone_is_a_fault_for_the_moment(finder: NextHopTargets, dnsmasq: Dnsmasq) -> None:
    dnsmasq.stop()
    finder = NextHopTargets(
        Resolver([(dnsmasq.address, dnsmasq.port)], try_seconds=0.3, lifetime_seconds=1.0), Ourselves()
    )
    fault = await finder.targets(by_mx("fabrikam.com"), NOW)
    assert isinstance(fault, Failure)
    assert (fault.permanent, fault.reply.code) == (False, 451)
