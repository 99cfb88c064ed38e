"""Looking up mail exchangers and addresses: dnspython's asynchronous resolver, with a cache of ours before it.

One query a name and type is under way at a time, whoever waits for it; all of them together are bounded. What the
resolver cannot say now is never taken for an answer (smtp-facts row 32).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import cast

import dns.asyncresolver
import dns.exception
import dns.message
import dns.name
import dns.nameserver
import dns.rdatatype
import dns.rdtypes.ANY.MX
import dns.resolver

from gatepost.access import tasks
from gatepost.balancing.mail_exchangers import MailExchanger
from gatepost.transport.dns_cache import Answer, DnsCache, Key, Outcome, negative_seconds, positive_seconds

MAX_IN_FLIGHT = 200
"""Queries under way, each with a socket: a flood of domains whose servers are silent leaves descriptors for mail."""
TRY_SECONDS = 2.0
"""For one server's answer, before the next one is asked."""
LIFETIME_SECONDS = 10.0
"""For all tries together."""
MAX_RECORDS = 100
"""Of one answer; more are cut off."""
MAX_DETAIL = 200
RESOLV_CONF = Path("/etc/resolv.conf")
_RECHECK_SECONDS = 5.0
"""How often it is looked at whether that file has changed."""
_UDP_PAYLOAD = 1232
"""Octets of an answer by UDP that do not become fragments (dnsflagday.net/2020); longer ones come by TCP."""


class Resolver:
    """All look-ups of the process. `servers` are addresses with ports; without them /etc/resolv.conf counts."""

    def __init__(
        self,
        servers: Sequence[tuple[str, int]] = (),
        *,
        resolv_conf: Path = RESOLV_CONF,
        ipv6: bool = True,
        try_seconds: float = TRY_SECONDS,
        lifetime_seconds: float = LIFETIME_SECONDS,
    ) -> None:
        """`ipv6` is whether AAAA records are asked for."""
        self._servers = tuple(servers)
        self._resolv_conf = resolv_conf
        self._ipv6 = ipv6
        self._try_seconds = try_seconds
        self._lifetime_seconds = lifetime_seconds
        self._cache = DnsCache()
        self._asking: dict[Key, tuple[asyncio.Task[None], asyncio.Future[Answer[object]]]] = {}
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._resolver: dns.asyncresolver.Resolver | None = None
        self._changed: tuple[int, int] = (0, 0)
        self._checked = float("-inf")
        self.queries = 0
        """Asked of name servers so far, for metrics and tests."""

    async def mail_exchangers(self, domain: str, now: float) -> Answer[MailExchanger]:
        """The MX records of `domain` (A-labels), unsorted. Never raises for a fault of DNS."""
        return cast("Answer[MailExchanger]", await self._lookup((domain, "MX"), now))

    async def addresses(self, name: str, now: float) -> Answer[str]:
        """The addresses of `name` (A-labels), IPv6 and IPv4 by turns. Some are better than none: FOUND if any are."""
        kinds = ("AAAA", "A") if self._ipv6 else ("A",)
        found = await asyncio.gather(*(self._lookup((name, kind), now) for kind in kinds))
        answers = [cast("Answer[str]", answer) for answer in found]
        records = tuple(
            address
            for address in chain.from_iterable(zip_longest(*(answer.records for answer in answers)))
            if address is not None
        )
        if records:
            return Answer(Outcome.FOUND, records, min(answer.seconds for answer in answers))
        worst = min(answers, key=lambda answer: _DOUBT.index(answer.outcome))
        return Answer(worst.outcome, (), worst.seconds, worst.detail)

    def forget(self) -> None:
        """Ask anew from now on."""
        self._cache.clear()

    async def close(self) -> None:
        """End the queries under way: who waits for one is told that it cannot be looked up now."""
        asking = [task for task, _ in self._asking.values()]
        for task in asking:
            task.cancel()
        if asking:
            await asyncio.wait(asking)

    async def _lookup(self, key: Key, now: float) -> Answer[object]:
        known = self._cache.get(key, now)
        if known is not None:
            return known
        asking = self._asking.get(key)
        if asking is None:
            answer: asyncio.Future[Answer[object]] = asyncio.get_running_loop().create_future()
            task = tasks.start(self._ask(key, now, answer), f"dns {key[1]} {key[0]}")
            self._asking[key] = task, answer
        else:
            answer = asking[1]
        return await asyncio.shield(answer)  # one of those who wait may be cancelled

    async def _ask(self, key: Key, now: float, result: asyncio.Future[Answer[object]]) -> None:
        answer: Answer[object] = Answer(Outcome.UNAVAILABLE, detail="the look-up was ended")
        try:
            async with self._slots:
                answer = await self._query(key, now)
            self._cache.put(key, answer, now)
        finally:
            self._asking.pop(key, None)
            result.set_result(answer)

    async def _query(self, key: Key, now: float) -> Answer[object]:
        name, kind = key
        self.queries += 1
        try:
            found = await self._configured(now).resolve(
                dns.name.from_text(name), kind, raise_on_no_answer=False, lifetime=self._lifetime_seconds, search=False
            )
        except dns.resolver.NXDOMAIN as error:
            return Answer(Outcome.NO_NAME, (), negative_seconds(_negative_ttl(error)), "NXDOMAIN")
        except (dns.exception.DNSException, OSError) as error:
            return Answer(Outcome.UNAVAILABLE, detail=_one_line(error))
        if found.rrset is None:
            return Answer(Outcome.NO_DATA, (), negative_seconds(found.chaining_result.minimum_ttl))
        records = tuple(_record(rdata) for rdata in list(found.rrset)[:MAX_RECORDS])
        return Answer(Outcome.FOUND, records, positive_seconds(found.chaining_result.minimum_ttl))

    def _configured(self, now: float) -> dns.asyncresolver.Resolver:
        if self._servers:
            if self._resolver is None:
                self._resolver = self._new(dns.asyncresolver.Resolver(configure=False))
                self._resolver.nameservers = [dns.nameserver.Do53Nameserver(ip, port) for ip, port in self._servers]
            return self._resolver
        if self._resolver is None or not 0.0 <= now - self._checked < _RECHECK_SECONDS:
            self._checked = now
            changed = _file_version(self._resolv_conf)
            if self._resolver is None or changed != self._changed:
                self._changed = changed
                self._resolver = self._new(_system_resolver(self._resolv_conf))
        return self._resolver

    def _new(self, resolver: dns.asyncresolver.Resolver) -> dns.asyncresolver.Resolver:
        resolver.timeout = self._try_seconds
        resolver.use_edns(0, 0, _UDP_PAYLOAD)
        return resolver


_DOUBT = (Outcome.UNAVAILABLE, Outcome.NO_DATA, Outcome.NO_NAME, Outcome.FOUND)
"""Of two answers without records the one counts that says less: a fault is no proof that there is no address."""


def _record(rdata: object) -> object:
    if isinstance(rdata, dns.rdtypes.ANY.MX.MX):
        return MailExchanger(int(rdata.preference), rdata.exchange.to_text(omit_final_dot=True).lower().strip("."))
    return str(rdata)


def _negative_ttl(error: dns.resolver.NXDOMAIN) -> float:
    """Of the SOA record beside it; the longest there is when there is none."""
    for response in error.responses().values():  # type: ignore[no-untyped-call]
        if isinstance(response, dns.message.QueryMessage):
            return float(response.resolve_chaining().minimum_ttl)
    return 0.0


def _system_resolver(path: Path) -> dns.asyncresolver.Resolver:
    try:
        return dns.asyncresolver.Resolver(str(path))
    except (dns.resolver.NoResolverConfiguration, OSError, ValueError):
        resolver = dns.asyncresolver.Resolver(configure=False)
        resolver.nameservers = ["127.0.0.1"]  # resolv.conf(5): a name server on this machine
        return resolver


def _file_version(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:MAX_DETAIL] or type(error).__name__
