"""From a next hop to the addresses its mail may go to (SPEC T4, smtp-facts rows 27 to 35): MX, or the hosts' names.

mx_domain ─┬─ [192.0.2.1] ─────────────────────────────────────────────────────┐
           └─ MX ─┬─ found ─► not past ourselves ─► allowed hosts ─► A, AAAA ──┼─► not past ourselves ─► targets
                  ├─ no data ─► the domain's own A, AAAA ──────────────────────┘   allowed addresses
                  └─ null: 556   NXDOMAIN: 5.1.2   fault: 451
ways ──────► A, AAAA of each name (ours, as an operator wrote it: nothing is refused, and no fault is permanent)
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gatepost.balancing.mail_exchangers import (
    BadDomain,
    MailExchanger,
    a_label,
    before_ourselves,
    is_null,
    literal_address,
    why_not_address,
    why_not_name,
)
from gatepost.balancing.target import Target
from gatepost.organization.addresses import is_ip_address
from gatepost.organization.transport import SendConnector
from gatepost.routing.next_hop import Destination, Way
from gatepost.transport.dns import Resolver
from gatepost.transport.dns_cache import Answer, Outcome
from gatepost.wire.smtp_reply import Reply

MAX_HOSTS = 20
"""Hosts of one next hop that are looked up, the best ones: large providers list five."""
MAX_ADDRESSES = 8
"""Addresses of one host."""
_MX_PORT = 25


@dataclass(frozen=True, slots=True)
class Ourselves:
    """The names (lower case) and literal addresses by which other servers reach this one."""

    names: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Targets:
    """At least one target. `notes` say how they were found, for the connectivity log."""

    targets: tuple[Target, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """There is none. `permanent`: it will not get better by waiting, the recipients fail with `reply`."""

    reply: Reply
    permanent: bool
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Found:
    """What the look-ups of the hosts brought."""

    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unavailable: list[str] = field(default_factory=list)


class NextHopTargets:
    """Finds the targets of every next hop. Costs no query while the resolver's cache has the answers."""

    def __init__(self, resolver: Resolver, ourselves: Ourselves) -> None:
        self._resolver = resolver
        self.ourselves = ourselves
        """May be replaced when the configuration changes."""

    async def targets(self, destination: Destination, now: float) -> Targets | Failure:
        """All targets, in no order but their preferences; `now` is seconds since 1970. Never raises for DNS."""
        if not destination.mx_domain:
            return await self._by_ways(destination.ways, now)
        try:
            literal = literal_address(destination.mx_domain)
            domain = a_label(destination.mx_domain) if literal is None else destination.mx_domain
        except BadDomain as error:
            return _permanent(550, "5.1.2", str(error))
        if literal is not None:
            answer = Answer(Outcome.FOUND, (literal,))
            return self._judged(domain, destination, [(MailExchanger(0, domain), answer)], [])
        return await self._by_mx(domain, destination, now)

    async def _by_mx(self, domain: str, destination: Destination, now: float) -> Targets | Failure:
        answer = await self._resolver.mail_exchangers(domain, now)
        if answer.outcome is Outcome.UNAVAILABLE:
            return _temporary(f"the mail exchangers of {domain} cannot be looked up now: {answer.detail}")
        if answer.outcome is Outcome.NO_NAME:
            return _permanent(550, "5.1.2", f"the domain {domain} does not exist")
        exchangers: list[MailExchanger] = [MailExchanger(0, domain)]
        notes = [f"{domain} has no mail exchanger"]
        if answer.outcome is Outcome.FOUND:
            if is_null(answer.records):
                return _permanent(556, "5.1.10", f"the domain {domain} takes no mail: its mail exchanger is null")
            notes = [f"MX {domain}: {', '.join(f'{each.preference} {each.host}' for each in sorted(answer.records))}"]
            exchangers = before_ourselves(answer.records, self.ourselves.names)
            if not exchangers:
                return _loop(domain, notes)
        refused, allowed = [], []
        for exchanger in exchangers[:MAX_HOSTS]:
            why = "" if self._is_address_by_leave(exchanger.host, destination) else why_not_name(exchanger.host)
            if why:
                refused.append(f"{exchanger.host} {why}")
            else:
                allowed.append(exchanger)
        answers = await asyncio.gather(*(self._addresses(each.host, now) for each in allowed))
        found = list(zip(allowed, answers, strict=True))
        return self._judged(domain, destination, found, notes, refused, implicit=answer.outcome is Outcome.NO_DATA)

    def _judged(
        self,
        domain: str,
        destination: Destination,
        hosts: Sequence[tuple[MailExchanger, Answer[str]]],
        notes: list[str],
        refused: Iterable[str] = (),
        *,
        implicit: bool = False,
    ) -> Targets | Failure:
        """The targets of the hosts that MX names, without ourselves, those behind us, and what is not allowed."""
        ours = [each for each, answer in hosts if not self.ourselves.addresses.isdisjoint(answer.records)]
        worst = min((each.preference for each in ours), default=None)
        found = _Found(notes=notes, refused=list(refused))
        for exchanger, answer in hosts:
            if worst is None or exchanger.preference < worst:
                _add_host(found, exchanger, answer, destination.connector)
        found.notes += found.refused
        if found.targets:
            return Targets(_once_each(found.targets), tuple(found.notes))
        if found.unavailable:
            return _temporary("; ".join(found.unavailable), found.notes)
        if ours:
            return _loop(domain, found.notes)
        if found.refused:
            return _permanent(
                554, "5.4.6", f"mail for {domain} cannot be sent: {'; '.join(found.refused)}", found.notes
            )
        if implicit:
            return _permanent(550, "5.1.2", f"the domain {domain} has neither mail exchangers nor an address")
        return _permanent(550, "5.4.4", f"no mail exchanger of {domain} has an address", found.notes)

    async def _by_ways(self, ways: Sequence[Way], now: float) -> Targets | Failure:
        answers = await asyncio.gather(*(self._addresses(way.address, now) for way in ways[:MAX_HOSTS]))
        found = list(zip(ways, answers, strict=False))
        notes = [_note(way.address, answer) for way, answer in found]
        targets = [
            Target(way.host, address, way.port, way.preference, way)
            for way, answer in found
            for address in answer.records[:MAX_ADDRESSES]
        ]
        if targets:
            return Targets(_once_each(targets), tuple(notes))
        # An operator wrote these names: what is wrong with them is put right while the mail waits.
        return _temporary("; ".join(notes) or "the next hop has no servers", notes)

    async def _addresses(self, name: str, now: float) -> Answer[str]:
        if is_ip_address(name):
            return Answer(Outcome.FOUND, (name,))
        try:
            return await self._resolver.addresses(a_label(name), now)
        except BadDomain as error:
            return Answer(Outcome.NO_NAME, detail=str(error))

    def _is_address_by_leave(self, host: str, destination: Destination) -> bool:
        return is_ip_address(host) and destination.connector is not None and destination.connector.allow_private


def _add_host(found: _Found, exchanger: MailExchanger, answer: Answer[str], connector: SendConnector | None) -> None:
    if answer.outcome is Outcome.UNAVAILABLE:
        found.unavailable.append(_note(exchanger.host, answer))
    found.notes.append(_note(exchanger.host, answer))
    for address in answer.records[:MAX_ADDRESSES]:
        why = why_not_address(address, allow_private=connector is not None and connector.allow_private)
        if why:
            found.refused.append(f"{address} of {exchanger.host} {why}")
            continue
        way = Way(exchanger.host, address, _MX_PORT, exchanger.preference)
        if connector is not None:
            way = Way(
                exchanger.host,
                address,
                connector.port,
                exchanger.preference,
                tls=connector.tls,
                tls_name=connector.tls_domain,
            )
        found.targets.append(Target(way.host, address, way.port, way.preference, way))


def _once_each(targets: Iterable[Target]) -> tuple[Target, ...]:
    """Without second names of the same address and port; the better preference stays."""
    kept: dict[tuple[str, int], Target] = {}
    for target in targets:
        other = kept.setdefault(target.key, target)
        if target.preference < other.preference:
            kept[target.key] = target
    return tuple(kept.values())


def _note(name: str, answer: Answer[str]) -> str:
    if answer.records:
        return name if answer.records == (name,) else f"{name}: {', '.join(answer.records[:MAX_ADDRESSES])}"
    return f"{name} {answer.outcome.value}{f': {answer.detail}' if answer.detail else ''}"


def _temporary(text: str, notes: Iterable[str] = ()) -> Failure:
    return Failure(Reply(451, text, "4.4.3"), permanent=False, notes=tuple(notes))


def _permanent(code: int, enhanced: str, text: str, notes: Iterable[str] = ()) -> Failure:
    return Failure(Reply(code, text, enhanced), permanent=True, notes=tuple(notes))


def _loop(domain: str, notes: Iterable[str]) -> Failure:
    return _permanent(554, "5.4.6", f"the mail exchangers of {domain} lead back to this server", notes)
