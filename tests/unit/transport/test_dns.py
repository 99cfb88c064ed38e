"""Look-ups against a name server that is told what to say (smtp-facts rows 32, 34): outcomes, cache, sharing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gatepost.balancing.mail_exchangers import MailExchanger
from gatepost.lab.servers.name_server import NameServer
from gatepost.lab.servers.process import free_ports
from gatepost.transport.dns import Resolver
from gatepost.transport.dns_cache import (
    MAX_NEGATIVE_TTL,
    MIN_TTL,
    UNAVAILABLE_TTL,
    Answer,
    DnsCache,
    Outcome,
    negative_seconds,
    positive_seconds,
)

NOW = 1_790_000_000.0


@pytest.fixture(scope="module")
def name_server() -> Iterator[NameServer]:
    with NameServer("127.0.0.1") as found:
        yield found


@pytest.fixture
def names(name_server: NameServer) -> NameServer:
    found = name_server
    found.clear()
    found.add("contoso.com", "MX", "10 MX1.contoso.com.", "20 mx2.contoso.com.")
    found.add("mx1.contoso.com", "A", "192.0.2.1", "192.0.2.2")
    found.add("mx1.contoso.com", "AAAA", "2001:db8::1", "2001:db8::2")
    return found


@pytest.fixture
def resolver(names: NameServer) -> Resolver:
    return Resolver([names.server])


async def test_mail_exchangers_come_with_their_preferences_in_lower_case(resolver: Resolver) -> None:
    answer = await resolver.mail_exchangers("contoso.com", NOW)
    assert answer.outcome is Outcome.FOUND
    assert sorted(answer.records) == [MailExchanger(10, "mx1.contoso.com"), MailExchanger(20, "mx2.contoso.com")]
    assert answer.seconds == 300


async def test_addresses_of_both_families_come_by_turns(resolver: Resolver) -> None:
    answer = await resolver.addresses("mx1.contoso.com", NOW)
    assert [":" in address for address in answer.records] == [True, False, True, False]


async def test_without_ipv6_only_a_records_are_asked_for(names: NameServer) -> None:
    answer = await Resolver([names.server], ipv6=False).addresses("mx1.contoso.com", NOW)
    assert sorted(answer.records) == ["192.0.2.1", "192.0.2.2"]
    assert names.asked("mx1.contoso.com", "AAAA") == 0


async def test_a_name_that_does_not_exist_is_told_from_one_without_such_records(resolver: Resolver) -> None:
    assert (await resolver.mail_exchangers("nothing.example", NOW)).outcome is Outcome.NO_NAME
    assert (await resolver.mail_exchangers("mx1.contoso.com", NOW)).outcome is Outcome.NO_DATA
    assert (await resolver.addresses("nothing.example", NOW)).outcome is Outcome.NO_NAME
    assert (await resolver.addresses("contoso.com", NOW)).outcome is Outcome.NO_DATA


@pytest.mark.parametrize("rcode", ["SERVFAIL", "REFUSED", "NOTIMP", "FORMERR"])
async def test_a_fault_of_the_name_server_says_nothing_of_the_name(
    names: NameServer, resolver: Resolver, rcode: str
) -> None:
    names.fail("broken.example", rcode)
    answer = await resolver.mail_exchangers("broken.example", NOW)
    assert answer.outcome is Outcome.UNAVAILABLE
    assert rcode in answer.detail


async def test_silence_is_a_fault_too(names: NameServer) -> None:
    names.silence("slow.example")
    resolver = Resolver([names.server], try_seconds=0.1, lifetime_seconds=0.25)
    assert (await resolver.mail_exchangers("slow.example", NOW)).outcome is Outcome.UNAVAILABLE


async def test_no_name_server_at_all_is_a_fault_too() -> None:
    (port,) = free_ports("127.0.0.1", 1)
    resolver = Resolver([("127.0.0.1", port)], try_seconds=0.1, lifetime_seconds=0.25)
    assert (await resolver.mail_exchangers("contoso.com", NOW)).outcome is Outcome.UNAVAILABLE


async def test_when_the_first_server_is_silent_the_next_one_is_asked(names: NameServer) -> None:
    with NameServer("127.0.0.2") as silent:
        silent.silence("contoso.com")
        resolver = Resolver([silent.server, names.server], try_seconds=0.1)
        assert (await resolver.mail_exchangers("contoso.com", NOW)).outcome is Outcome.FOUND


async def test_one_family_that_cannot_be_looked_up_does_not_hide_the_other(
    names: NameServer, resolver: Resolver
) -> None:
    """But without the other it is a fault, not a proof that there is no address."""
    names.add("v4.example", "A", "192.0.2.9")
    assert (await resolver.addresses("v4.example", NOW)).records == ("192.0.2.9",)
    names.fail("v6.example")
    assert (await resolver.addresses("v6.example", NOW)).outcome is Outcome.UNAVAILABLE


async def test_a_long_answer_is_fetched_by_tcp(names: NameServer, resolver: Resolver) -> None:
    names.add("long.example", "MX", *(f"{number} mx{number}.long.example." for number in range(60)))
    names.truncate("long.example")
    assert len((await resolver.mail_exchangers("long.example", NOW)).records) == 60


async def test_a_cname_is_followed_and_its_ttl_counts(names: NameServer, resolver: Resolver) -> None:
    names.add("alias.example", "CNAME", "mx1.contoso.com.", ttl=20)
    answer = await resolver.addresses("alias.example", NOW)
    assert "192.0.2.1" in answer.records
    assert answer.seconds == 20


async def test_an_answer_is_kept_for_its_ttl(names: NameServer, resolver: Resolver) -> None:
    for seconds in (0, 1, 299):
        await resolver.mail_exchangers("contoso.com", NOW + seconds)
    assert names.asked("contoso.com", "MX") == 1
    names.add("contoso.com", "MX", "5 new.contoso.com.")
    answer = await resolver.mail_exchangers("contoso.com", NOW + 300)
    assert answer.records == (MailExchanger(5, "new.contoso.com"),)


async def test_that_there_is_nothing_is_kept_for_the_negative_ttl(names: NameServer, resolver: Resolver) -> None:
    names.negative_ttl = 40
    for seconds in (0, 39):
        assert (await resolver.mail_exchangers("new.example", NOW + seconds)).outcome is Outcome.NO_NAME
    assert names.asked("new.example", "MX") == 1
    names.add("new.example", "MX", "10 mx1.contoso.com.")
    assert (await resolver.mail_exchangers("new.example", NOW + 40)).outcome is Outcome.FOUND


async def test_a_fault_is_kept_only_briefly(names: NameServer, resolver: Resolver) -> None:
    names.fail("contoso.com")
    assert (await resolver.mail_exchangers("contoso.com", NOW)).outcome is Outcome.UNAVAILABLE
    asked = names.asked("contoso.com", "MX")
    names.remove("contoso.com")
    names.add("contoso.com", "MX", "10 mx1.contoso.com.")
    assert (await resolver.mail_exchangers("contoso.com", NOW + 1)).outcome is Outcome.UNAVAILABLE
    assert names.asked("contoso.com", "MX") == asked
    assert (await resolver.mail_exchangers("contoso.com", NOW + UNAVAILABLE_TTL)).outcome is Outcome.FOUND


async def test_many_who_ask_at_once_share_one_query(names: NameServer, resolver: Resolver) -> None:
    names.delay("contoso.com", 0.1)
    answers = await asyncio.gather(*(resolver.mail_exchangers("contoso.com", NOW) for _ in range(500)))
    assert {answer.outcome for answer in answers} == {Outcome.FOUND}
    assert names.asked("contoso.com", "MX") == 1


async def test_who_gives_up_waiting_does_not_end_the_query_of_the_others(names: NameServer, resolver: Resolver) -> None:
    names.delay("contoso.com", 0.2)
    first = asyncio.ensure_future(resolver.mail_exchangers("contoso.com", NOW))
    second = asyncio.ensure_future(resolver.mail_exchangers("contoso.com", NOW))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).outcome is Outcome.FOUND
    assert first.cancelled()


async def test_closing_tells_those_who_wait(names: NameServer, resolver: Resolver) -> None:
    names.silence("slow.example")
    waiting = asyncio.ensure_future(resolver.mail_exchangers("slow.example", NOW))
    await asyncio.sleep(0.01)
    await resolver.close()
    assert (await waiting).outcome is Outcome.UNAVAILABLE


async def test_an_operator_can_have_all_answers_forgotten(names: NameServer, resolver: Resolver) -> None:
    await resolver.mail_exchangers("contoso.com", NOW)
    resolver.forget()
    await resolver.mail_exchangers("contoso.com", NOW)
    assert names.asked("contoso.com", "MX") == 2


async def test_the_systems_servers_are_read_and_read_again_when_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "resolv.conf"
    path.write_text("nameserver 192.0.2.53\n")
    resolver = Resolver(resolv_conf=path)
    assert resolver._configured(NOW).nameservers == ["192.0.2.53"]
    path.write_text("nameserver 192.0.2.54\nnameserver 192.0.2.55\n")
    os.utime(path, (NOW, NOW))
    assert resolver._configured(NOW + 1).nameservers == ["192.0.2.53"]
    assert resolver._configured(NOW + 6).nameservers == ["192.0.2.54", "192.0.2.55"]


@pytest.mark.parametrize("text", [None, "", "nameserver not-an-address\n"])
async def test_without_a_usable_file_this_machine_is_asked(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "resolv.conf"
    if text is not None:
        path.write_text(text)
    assert Resolver(resolv_conf=path)._configured(NOW).nameservers == ["127.0.0.1"]


def test_the_cache_is_bounded_and_forgets_what_was_not_asked_for() -> None:
    cache = DnsCache(limit=2)
    answer: Answer[object] = Answer(Outcome.FOUND, ("x",), 100.0)
    cache.put(("a", "A"), answer, NOW)
    cache.put(("b", "A"), answer, NOW)
    assert cache.get(("a", "A"), NOW) is answer
    cache.put(("c", "A"), answer, NOW)
    assert cache.get(("b", "A"), NOW) is None
    assert len(cache) == 2


def test_a_clock_that_was_set_back_makes_answers_old() -> None:
    cache = DnsCache()
    cache.put(("a", "A"), Answer(Outcome.FOUND, ("x",), 100.0), NOW)
    assert cache.get(("a", "A"), NOW - 1) is None


def test_ttls_have_bounds() -> None:
    assert positive_seconds(0) == MIN_TTL
    assert positive_seconds(2**31) == 86400
    assert negative_seconds(2**31) == MAX_NEGATIVE_TTL
