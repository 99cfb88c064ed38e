"""Organizations made from flat facts: what the decision table, the oracle and the run over all combinations share.

This front end is GATE in site `here`. The mailbox is on MBX, in `here` or `there`; DOOR is the one client access
server beside it. What `internal`, `integrated` and `present` say holds for the virtual directories that would serve:
the mailbox server's own for 2003 and modern, which have some, and DOOR's for 2007 and 2010, whose mailbox servers have
none.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

from gatepost.organization.model import (
    PEER,
    AuthenticationMethod,
    CrossSiteRedirect,
    Edition,
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
from gatepost.routing.decision import Decision, Mailbox, Proxy, Redirect, RedirectForm, Refuse, Request, Serve, decide

VERSIONS = {version.word: version for version in Version}
MAIL = ("imap", "pop3")
SERVICES = {
    "owa": "owa",
    "ecp": "ecp",
    "activesync": "Microsoft-Server-ActiveSync",
    "ews": "EWS",
    "as": "AS",
    "exchange": "exchange",
    "public": "public",
    "exchweb": "exchweb",
}
"""What the facts call a service, and its word in a path."""
ASKS = (*MAIL, *SERVICES)
SERVED_BY = {
    "2003": ("activesync", "exchange", "public", "exchweb"),
    "2007": (),
    "2010": (),
    "modern": ("owa", "ecp", "activesync", "ews", "as"),
}
"""What a mailbox server of each version serves by itself."""
DOOR_SERVES = ("owa", "ecp", "activesync", "ews", "as", "exchange", "public", "exchweb")
GATE_SERVES = ("owa", "activesync", "ews", "as")
FORMS = {
    RedirectForm.PAGE: "redirect page",
    RedirectForm.SILENT: "redirect silent",
    RedirectForm.DEVICE: "redirect 451",
    RedirectForm.OWN_PATH: "redirect own path",
}


@dataclass(frozen=True)
class Facts:
    """One combination. Every field is a word; the defaults are the source's usual case."""

    ask: str = "owa"
    mailbox: str = "2010"
    site: str = "other"  # same, other
    door: str = "modern"  # a version, none
    present: str = "yes"
    internal: str = "https"  # https, http, none
    integrated: str = "yes"
    external: str = "no"
    reach: str = "peer"  # peer (an endpoint for it), header, basic
    switch: str = "on"  # on, silent, off
    own: str = "modern"
    edition: str = "rtm"
    follows: str = "yes"
    from_peer: str = "no"
    through: str = "no"


FIELDS = tuple(field.name for field in fields(Facts))
OF_ORGANIZATION = tuple(name for name in FIELDS if name not in {"ask", "follows", "from_peer"})


def build(facts: Facts) -> Organization:
    """The organization of some facts. Those that differ in the request only share it."""
    return _build(*(getattr(facts, name) for name in OF_ORGANIZATION))


@lru_cache(maxsize=4)
def _build(*words: str) -> Organization:
    f = Facts(**dict(zip(OF_ORGANIZATION, words, strict=True)))
    where = "here" if f.site == "same" else "there"
    servers = [
        _server("GATE", "here", Role.CLIENT_ACCESS, VERSIONS[f.own], peer=True),
        _server("MBX", where, Role.MAILBOX, VERSIONS[f.mailbox]),
    ]
    directories = [_own(service, f) for service in GATE_SERVES]
    directories += _directories("MBX", SERVED_BY[f.mailbox], f)
    if f.door != "none":
        sign_in = SignIn(http=HttpSignIn.BASIC if f.reach == "basic" else HttpSignIn.HEADER)
        version = VERSIONS[f.door]
        servers.append(_server("DOOR", where, Role.CLIENT_ACCESS, version, sign_in, peer=f.reach == "peer"))
        directories += _directories("DOOR", DOOR_SERVES, f)
    return Organization(
        name="contoso",
        edition=Edition(f.edition),
        sites={"here": Site("here"), "there": Site("there", through_peer=f.through == "yes")},
        servers={server.name: server for server in servers},
        virtual_directories=tuple(directories),
    )


def _server(
    name: str, site: str, role: Role, version: Version, sign_in: SignIn | None = None, *, peer: bool = False
) -> Server:
    return Server(
        name, site, _host(name), "192.0.2.1", version, frozenset({role}), _endpoints(name, peer), sign_in or SignIn()
    )


@lru_cache(maxsize=16)
def _endpoints(name: str, peer: bool) -> tuple[Endpoint, ...]:
    names = {"imaps": (Protocol.IMAP, 993), "pop3s": (Protocol.POP3, 995), "https": (Protocol.HTTPS, 443)}
    if peer:
        names[PEER] = (Protocol.HTTPS, 444)
    implicit = TlsMode.IMPLICIT
    return tuple(
        Endpoint(n, protocol, "192.0.2.1", port, implicit, _host(name)) for n, (protocol, port) in names.items()
    )


def _host(name: str) -> str:
    return f"{name.lower()}.contoso.com"


def _own(service: str, f: Facts) -> VirtualDirectory:
    word = SERVICES[service]
    return VirtualDirectory(
        "GATE",
        word,
        f"/{word}",
        f"https://gate.contoso.com/{word}",
        "https://www.here.contoso.com/" + word,
        path_class=class_of_service(word),
        redirect_to_optimal_owa_server=f.switch != "off",
        cross_site_redirect=CrossSiteRedirect.SILENT if f.switch == "silent" else CrossSiteRedirect.MANUAL,
    )


def _directories(server: str, services: tuple[str, ...], f: Facts) -> list[VirtualDirectory]:
    method = AuthenticationMethod.INTEGRATED if f.integrated == "yes" else AuthenticationMethod.BASIC
    made = []
    for word in (SERVICES[service] for service in services if f.present == "yes"):
        internal = None if f.internal == "none" else f"{f.internal}://{_host(server)}/{word}"
        external = f"https://www.there.contoso.com/{word}" if f.external == "yes" else None
        methods = frozenset({method})
        made.append(
            VirtualDirectory(server, word, f"/{word}", internal, external, methods, path_class=class_of_service(word))
        )
    return made


def request(facts: Facts) -> Request:
    """The request of some facts."""
    protocol = Protocol(facts.ask) if facts.ask in MAIL else Protocol.HTTPS
    path = "" if facts.ask in MAIL else f"/{SERVICES[facts.ask]}/a/b"
    return Request(protocol, "GATE", path, facts.follows == "yes", facts.from_peer == "yes")


def decided(facts: Facts) -> Decision:
    """The code's decision."""
    return decide(build(facts), request(facts), Mailbox(home_server="MBX"), None)


def word(decision: Decision) -> str:
    """A decision in the table's words: `serve MBX`, `proxy DOOR as peer`, `redirect 451`, `refuse loop`."""
    if isinstance(decision, Refuse):
        return f"refuse {decision.cause.value}"
    if isinstance(decision, Redirect):
        return FORMS[decision.form]
    kind = {Serve: "serve", Proxy: "proxy"}[type(decision)]
    return f"{kind} {decision.target.server}{' as peer' if decision.target.peer else ''}"
