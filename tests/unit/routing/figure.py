"""The first source's figure for tests of its sentences: three sites of 2010, 2003 and 2007 servers in two of them.

usa and europe are Internet-facing, asia is not. CAS-01 to CAS-03 are client access servers, MBX-01 to MBX-03 hold the
mailboxes of users 1 to 3 and serve them by HTTP. BE-01 (usa) and BE-03 (asia) are 2003 back ends. Everything has the
source's URLs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gatepost.organization.model import (
    PEER,
    AuthenticationMethod,
    ClientAccessArray,
    Database,
    DatabaseCopy,
    Endpoint,
    Organization,
    Protocol,
    Role,
    Server,
    Site,
    TlsMode,
    Version,
    VirtualDirectory,
    class_of_service,
)
from gatepost.routing.decision import ActiveCopy, Cause, Decision, Mailbox, Proxy, Redirect, Refuse, Request, decide

OWA, EAS, EWS, AS = "/owa", "/Microsoft-Server-ActiveSync", "/EWS", "/AS"
SERVICES = ("owa", "Microsoft-Server-ActiveSync", "EWS", "AS")
OLD_SERVICES = ("Microsoft-Server-ActiveSync", "exchange", "public", "exchweb")
NAMES = {"CAS-01": "www.usa.contoso.com", "CAS-02": "www.europe.contoso.com"}
NO_INTEGRATED = frozenset({AuthenticationMethod.BASIC})


def server(name: str, site: str, role: Role, version: Version = Version.V2010) -> Server:
    """A server with IMAP, POP3 and HTTPS, as a client access server with a peer endpoint."""
    fqdn = f"{name.lower()}.contoso.com"
    ports = {"imaps": (Protocol.IMAP, 993), "pop3s": (Protocol.POP3, 995), "https": (Protocol.HTTPS, 443)}
    if role is Role.CLIENT_ACCESS:
        ports[PEER] = (Protocol.HTTPS, 444)
    endpoints = (Endpoint(n, p, fqdn, port, TlsMode.IMPLICIT, fqdn) for n, (p, port) in ports.items())
    return Server(name, site, fqdn, fqdn, version, frozenset({role}), tuple(endpoints))


def directory(name: str, service: str, external: str | None = None) -> VirtualDirectory:
    """A virtual directory with the source's URLs."""
    word = "OWA" if service == "owa" else service
    return VirtualDirectory(
        name,
        service,
        f"/{service}",
        f"https://{name.lower()}.contoso.com/{word}",
        f"https://{external}/{word}" if external else None,
        path_class=class_of_service(service),
    )


def figure(**changes: Any) -> Organization:
    """The figure; `changes` are the organization's fields."""
    servers = [
        server(f"{kind}-0{number}", site, role)
        for number, site in enumerate(("usa", "europe", "asia"), 1)
        for kind, role in (("CAS", Role.CLIENT_ACCESS), ("MBX", Role.MAILBOX))
    ]
    servers += [server(name, site, Role.MAILBOX, Version.V2003) for name, site in (("BE-01", "usa"), ("BE-03", "asia"))]
    directories = [directory(f"CAS-0{n}", s, NAMES.get(f"CAS-0{n}")) for n in (1, 2, 3) for s in SERVICES]
    directories += [directory(f"MBX-0{n}", s) for n in (1, 2, 3) for s in SERVICES]
    directories += [directory(name, service) for name in ("BE-01", "BE-03") for service in OLD_SERVICES]
    made = Organization(
        name="contoso",
        accepted_domains=("contoso.com",),
        sites={"usa": Site("usa", (), True), "europe": Site("europe", (), True), "asia": Site("asia")},
        servers={s.name: s for s in servers},
        databases={f"DB0{n}": Database(f"DB0{n}", (DatabaseCopy(f"MBX-0{n}", 1),)) for n in (1, 2, 3)},
        virtual_directories=tuple(directories),
    )
    return replace(made, **changes)


def with_server(organization: Organization, name: str, **changes: Any) -> Organization:
    """One server changed."""
    changed = replace(organization.servers[name], **changes)
    return replace(organization, servers={**organization.servers, name: changed})


def added(organization: Organization, new: Server, *directories: VirtualDirectory) -> Organization:
    """One more server with its directories."""
    servers = {**organization.servers, new.name: new}
    return replace(organization, servers=servers, virtual_directories=(*organization.virtual_directories, *directories))


def with_directory(organization: Organization, name: str, path: str, **changes: Any) -> Organization:
    """The virtual directory of a server changed."""
    changed = tuple(
        replace(d, **changes) if d.server == name and d.path.casefold() == path.casefold() else d
        for d in organization.virtual_directories
    )
    assert changed != organization.virtual_directories
    return replace(organization, virtual_directories=changed)


def versions(organization: Organization, version: Version, *names: str) -> Organization:
    """Servers of another version."""
    for name in names:
        organization = with_server(organization, name, version=version)
    return organization


def nlb() -> Organization:
    """The source's two sites with several servers each: CAS-01 and CAS-02 in usa, CAS-03 to CAS-05 in asia."""
    made = with_server(figure(), "CAS-02", site="usa")
    made = with_server(made, "MBX-02", site="usa")
    for service in SERVICES:
        word = "OWA" if service == "owa" else service
        made = with_directory(made, "CAS-02", f"/{service}", external_url=f"https://www.usa.contoso.com/{word}")
    for name in ("CAS-04", "CAS-05"):
        made = added(made, server(name, "asia", Role.CLIENT_ACCESS), *(directory(name, s) for s in SERVICES))
    arrays = (ClientAccessArray("outlook", "usa", "www.usa.contoso.com", ("CAS-01", "CAS-02")),)
    return replace(made, arrays={array.name: array for array in arrays})


def ask(organization: Organization, user: int | str, front_end: str, path: str = "", **request: Any) -> Decision:
    """What `front_end` does for a user: 1 to 3 by their database, or a home server's name. Without path: IMAP."""
    protocol = request.pop("protocol", Protocol.HTTPS if path else Protocol.IMAP)
    asked = Request(protocol, front_end, path, **request)
    if isinstance(user, str):
        return decide(organization, asked, Mailbox(home_server=user), None)
    return decide(organization, asked, Mailbox(f"DB0{user}"), ActiveCopy(f"DB0{user}", f"MBX-0{user}", 7))


def proxied_to(decision: Decision) -> str:
    """The server that a request is proxied to."""
    assert isinstance(decision, Proxy), decision
    return decision.target.server


def refused(decision: Decision) -> Cause:
    """Why a request is refused."""
    assert isinstance(decision, Refuse), decision
    return decision.cause


def redirected(decision: Decision) -> Redirect:
    """The redirection."""
    assert isinstance(decision, Redirect), decision
    return decision


def rules(decision: Decision) -> set[str]:
    """All rules that were looked at."""
    return {step.rule for step in decision.steps}
