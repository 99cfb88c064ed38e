"""How many decisions a second one core makes, without the directory's disk.

    python benchmarks/decisions.py [--servers N] [--users N] [--seconds S] [--core C] [--json FILE]

An organization with front ends and mailbox servers of all versions in many sites, and a mailbox for each user; requests
of random users by IMAP, POP3 and the paths of HTTP services, in random order. `remembered` is `Router.decide`, what a
worker calls for each session and request; `anew` is the same without its memory, each rule looked at and written down.
Exit status 1: a decision was not what the rules say for its kind. The goal is 100,000 a second.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from gatepost.access.router import Router
from gatepost.activemanager.port import RegistryView
from gatepost.configuration.settings import Configuration, FrontEnd, Limits
from gatepost.organization.model import (
    PEER,
    ClientAccessArray,
    Database,
    DatabaseCopy,
    Endpoint,
    HttpSignIn,
    Organization,
    Protocol,
    Role,
    Server,
    SignIn,
    Site,
    TlsMode,
    Version,
    VirtualDirectory,
    class_of_service,
)
from gatepost.routing.decision import ActiveCopy, Decision, Mailbox
from gatepost.service.serving import GC_THRESHOLDS

GOAL = 100_000
"""Decisions a second of one core."""
SERVERS_PER_SITE = 10
FRONT_ENDS_PER_SITE = 2
USERS_PER_DATABASE = 250
VERSIONS = (Version.MODERN, Version.MODERN, Version.MODERN, Version.V2010, Version.V2010, Version.V2007, Version.V2003)
SERVICES = ("owa", "ecp", "Microsoft-Server-ActiveSync", "EWS", "AS", "exchange")
WAYS: tuple[tuple[Protocol, str], ...] = (
    (Protocol.IMAP, ""),
    (Protocol.POP3, ""),
    *((Protocol.HTTPS, f"/{service}/some/thing") for service in SERVICES),
)
BATCH = 2000
"""Decisions between two looks at the clock."""


@dataclass(frozen=True)
class Stage:
    """What is measured."""

    router: Router
    mailboxes: list[Mailbox]
    organization: Organization


def organization(servers: int, databases: int) -> Organization:
    """Sites of ten servers: two front ends with peer endpoints and eight mailbox servers."""
    sites = {f"site-{n}": Site(f"site-{n}") for n in range(max(2, servers // SERVERS_PER_SITE))}
    found: dict[str, Server] = {}
    directories: list[VirtualDirectory] = []
    arrays = {}
    for number, site in enumerate(sites):
        members = [f"CAS-{number}-{n}" for n in range(FRONT_ENDS_PER_SITE)]
        arrays[site] = ClientAccessArray(site, site, f"{site}.contoso.com", tuple(members))
        external = f"https://www.{site}.contoso.com" if number % 2 else None
        for name in members:
            found[name] = _server(name, site, Role.CLIENT_ACCESS, Version.MODERN)
            directories += _directories(name, external)
        for n in range(SERVERS_PER_SITE - FRONT_ENDS_PER_SITE):
            name = f"MBX-{number}-{n}"
            found[name] = _server(name, site, Role.MAILBOX, VERSIONS[(number + n) % len(VERSIONS)])
            directories += _directories(name, None)
    holders = [server.name for server in found.values() if Role.MAILBOX in server.roles]
    copies = {f"DB{n}": Database(f"DB{n}", (DatabaseCopy(holders[n % len(holders)], 1),)) for n in range(databases)}
    return Organization(
        "contoso",
        accepted_domains=("contoso.com",),
        sites=sites,
        servers=found,
        databases=copies,
        virtual_directories=tuple(directories),
        arrays=arrays,
    )


def _server(name: str, site: str, role: Role, version: Version) -> Server:
    fqdn = f"{name.lower()}.contoso.com"
    ports = {"imaps": (Protocol.IMAP, 993), "pop3s": (Protocol.POP3, 995), "https": (Protocol.HTTPS, 443)}
    if role is Role.CLIENT_ACCESS:
        ports[PEER] = (Protocol.HTTPS, 444)
    endpoints = tuple(Endpoint(n, p, "192.0.2.1", port, TlsMode.IMPLICIT, fqdn) for n, (p, port) in ports.items())
    sign_in = SignIn(http=HttpSignIn.HEADER)
    return Server(name, site, fqdn, "192.0.2.1", version, frozenset({role}), endpoints, sign_in)


def _directories(server: str, external: str | None) -> list[VirtualDirectory]:
    return [
        VirtualDirectory(
            server,
            word,
            f"/{word}",
            f"https://{server.lower()}.contoso.com/{word}",
            f"{external}/{word}" if external else None,
            path_class=class_of_service(word),
        )
        for word in SERVICES
    ]


def set_stage(servers: int, users: int) -> Stage:
    """A worker's router for CAS-0-0, and every user's mailbox."""
    databases = max(1, users // USERS_PER_DATABASE)
    made = organization(servers, databases)
    active = {d.name: ActiveCopy(d.name, d.copies[0].server, 1) for d in made.databases.values()}
    front_end = FrontEnd("CAS-0-0", "", "", b"", b"", b"", limits=Limits())
    router = Router(Configuration(made, front_end), RegistryView(1, MappingProxyType(active)))
    return Stage(router, [Mailbox(f"DB{n % databases}") for n in range(users)], made)


def requests(stage: Stage, count: int, rng: random.Random) -> list[tuple[Protocol, Mailbox, str]]:
    """Random users by random ways."""
    found = []
    for _ in range(count):
        protocol, path = rng.choice(WAYS)
        found.append((protocol, rng.choice(stage.mailboxes), path))
    return found


def rate(stage: Stage, asked: list[tuple[Protocol, Mailbox, str]], seconds: float, *, anew: bool) -> float:
    """Decisions a second of processor time, over at least `seconds`."""
    decide = stage.router.decide_anew if anew else stage.router.decide
    done = 0
    begun = time.process_time()
    while (spent := time.process_time() - begun) < seconds:
        at = done % len(asked)
        batch = asked[at : at + BATCH]
        for protocol, mailbox, path in batch:
            decide(protocol, mailbox, path)
        done += len(batch)
    return done / spent


def kinds(stage: Stage, asked: list[tuple[Protocol, Mailbox, str]]) -> Counter[str]:
    """How often each kind of decision was made. Raises SystemExit when memory and rules disagree."""
    found: Counter[str] = Counter()
    for protocol, mailbox, path in asked:
        decision: Decision = stage.router.decide(protocol, mailbox, path)
        if decision != stage.router.decide_anew(protocol, mailbox, path):
            sys.exit(f"{protocol} {path} of {mailbox}: remembered {decision}")
        found[type(decision).__name__.lower()] += 1
    return found


def measure(servers: int, users: int, seconds: float) -> dict[str, object]:
    """All figures."""
    rng = random.Random(1)
    stage = set_stage(servers, users)
    asked = requests(stage, min(200_000, users), rng)
    gc.collect()
    gc.freeze()  # a worker does not hold a million mailboxes: they come one by one from the directory
    gc.set_threshold(*GC_THRESHOLDS)
    seen = kinds(stage, asked[:2000])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for protocol, mailbox, path in asked:
        stage.router.decide(protocol, mailbox, path)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "servers": len(stage.organization.servers),
        "users": users,
        "databases": len(stage.organization.databases),
        "kinds": dict(seen),
        "remembered_per_second": round(rate(stage, asked, seconds, anew=False)),
        "anew_per_second": round(rate(stage, asked, seconds, anew=True)),
        "memory_of_decisions_kb": after - before,
        "goal": GOAL,
    }


def main() -> int:
    """Measure on one core and print."""
    parser = argparse.ArgumentParser(description="Decisions a second of one core.")
    parser.add_argument("--servers", type=int, default=1000)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=3.0, help="processor time of each measurement")
    parser.add_argument("--core", type=int, help="run on this core only")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    wish = parser.parse_args()
    if wish.core is not None:
        os.sched_setaffinity(0, {wish.core})
    figures = measure(wish.servers, wish.users, wish.seconds)
    written = json.dumps(figures, indent=1)
    print(written)
    if wish.json:
        wish.json.write_text(written + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
