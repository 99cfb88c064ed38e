"""Any organization, also one that the check would refuse, gives a decision that can be carried out or shown."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from gatepost.organization.model import (
    PEER,
    AuthenticationMethod,
    ClientAccessArray,
    CrossSiteRedirect,
    Database,
    Edition,
    Endpoint,
    HttpSignIn,
    Organization,
    PathClass,
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
from gatepost.routing.decision import (
    ActiveCopy,
    Mailbox,
    Proxy,
    Redirect,
    RedirectForm,
    Refuse,
    Request,
    Serve,
    StepKind,
    Target,
    decide,
    find_directory,
    path_class,
)

NAMES = ("A", "B", "C", "D", "Ä\r\nX: y")
SITES = ("here", "there", "s\x00")
WORDS = ("owa", "exchange", "EWS", "Microsoft-Server-ActiveSync", "dav")
PATHS = (*(f"/{word}" for word in WORDS), "/OWA/x", "/ecp", "/exchweb", "/", "", "\x00", "/ö" * 40)
URLS = ("https://h/owa", "https://h/x", None, "http://h/x", "", "https://é/", "https://h/\r\nSet-Cookie: a", "x y")
ENDPOINTS = {"imaps": Protocol.IMAP, "pop3": Protocol.POP3, "https": Protocol.HTTPS, PEER: Protocol.HTTPS}
ROLES = ({Role.CLIENT_ACCESS}, {Role.MAILBOX}, {Role.CLIENT_ACCESS, Role.MAILBOX}, {Role.HUB_TRANSPORT})
METHODS = ({AuthenticationMethod.INTEGRATED}, {AuthenticationMethod.BASIC}, set(AuthenticationMethod))


def any_server(name: str, rng: Random) -> Server:
    """Any server of this name."""
    names = rng.choice([tuple(ENDPOINTS), ("imaps", "https"), (PEER,), ()])
    mode = rng.choice(list(TlsMode))
    endpoints = tuple(Endpoint(n, ENDPOINTS[n], "192.0.2.1", 443, mode, "h.example") for n in names)
    sign_in = SignIn(http=rng.choice(list(HttpSignIn)))
    roles = frozenset(rng.choice(ROLES))
    site = rng.choice(SITES)
    return Server(name, site, f"{name}.fqdn", "192.0.2.1", rng.choice(list(Version)), roles, endpoints, sign_in)


def any_directories(server: str, rng: Random) -> list[VirtualDirectory]:
    """Any virtual directories of a server, mostly under their services' own paths."""
    return [
        VirtualDirectory(
            server,
            word,
            rng.choice([f"/{word}", f"/{word}", f"/{word}", rng.choice(PATHS)]),
            rng.choice(URLS),
            rng.choice(URLS),
            frozenset(rng.choice(METHODS)),
            path_class=rng.choice([class_of_service(word), *PathClass]),
            redirect_to_optimal_owa_server=rng.random() < 0.7,
            cross_site_redirect=rng.choice(list(CrossSiteRedirect)),
            internal_bypass_url=rng.choice([None, *URLS]),
        )
        for word in rng.choice([WORDS, WORDS, WORDS[:2], ()])
    ]


def any_organization(rng: Random) -> Organization:
    """Five servers in up to three sites, one of which the organization does not know."""
    return Organization(
        name="any",
        edition=rng.choice(list(Edition)),
        sites={name: Site(name, (), rng.random() < 0.5, rng.random() < 0.5) for name in ("here", "there")},
        servers={name: any_server(name, rng) for name in NAMES},
        databases={"DB": Database("DB", ())},
        virtual_directories=tuple(d for name in NAMES for d in any_directories(name, rng)),
        arrays={"ä": ClientAccessArray("ä", "here", "ärray", ("A", "B"))},
    )


def any_request(rng: Random) -> Request:
    """Mostly HTTP and mostly at a server that there is."""
    protocol = rng.choice([Protocol.HTTPS, Protocol.HTTPS, *Protocol])
    return Request(protocol, rng.choice(["A"] * 9 + ["é\n"]), rng.choice(PATHS), rng.random() < 0.5, rng.random() < 0.3)


def any_mailbox(rng: Random) -> tuple[Mailbox, ActiveCopy | None]:
    """A mailbox on a home server or in a database, and the registry's word."""
    copy = ActiveCopy(rng.choice(["DB", "DB", "other"]), rng.choice([*NAMES, "gone"]), rng.randrange(9))
    return rng.choice([
        (Mailbox(home_server=rng.choice(NAMES)), None),
        (Mailbox("DB"), copy),
        (Mailbox(rng.choice(["DB", "gone", None]), rng.choice(["gone\r", None])), rng.choice([None, copy])),
    ])  # fmt: skip


@settings(max_examples=400)
@given(st.randoms(use_true_random=True))
def test_a_decision_never_raises_and_never_leads_out_of_the_organization(rng: Random) -> None:
    """C13, C14: targets are servers of the organization with an endpoint for the protocol; words are one ASCII line."""
    for _ in range(5):
        judge(any_organization(rng), any_request(rng), *any_mailbox(rng))


def judge(organization: Organization, request: Request, mailbox: Mailbox, active: ActiveCopy | None) -> None:
    """Decide and look at what came of it."""
    decision = decide(organization, request, mailbox, active)
    assert decision.steps[-1].kind is StepKind.TAKEN
    if isinstance(decision, Serve | Proxy):
        assert not decision.candidates or decision.candidates[0] == decision.target
        for target in (decision.target, *decision.candidates):
            check_target(organization, request, target)
        peers = [target.server for target in (decision.target, *decision.candidates) if target.peer]
        assert not (request.from_peer and peers), "C11: proxied between front ends once"
    elif isinstance(decision, Refuse):
        assert decision.message
        for text in (decision.message, decision.server_name):
            assert text.isascii()
            assert text.isprintable()
    else:
        check_redirect(request, decision)


def check_target(organization: Organization, request: Request, target: Target) -> None:
    """It is a server of the organization, with that endpoint, and never this front end itself."""
    server = organization.servers[target.server]
    assert target.endpoint in server.endpoints
    assert target.endpoint.protocol is request.protocol
    assert target.server != request.front_end
    assert target.peer == (target.endpoint.name == PEER)
    if request.protocol is Protocol.HTTPS:
        assert target.directory is not None
        assert target.url


def check_redirect(request: Request, decision: Redirect) -> None:
    """Only HTTP has such answers, and nothing in them breaks a head."""
    assert request.protocol is Protocol.HTTPS
    assert not request.from_peer
    if decision.form is not RedirectForm.OWN_PATH:
        assert decision.location.isascii()
        assert decision.location.isprintable()
        assert " " not in decision.location


@settings(max_examples=50)
@given(st.randoms(use_true_random=True))
def test_the_class_of_a_path_is_its_own_directorys(rng: Random) -> None:
    """Else the word's."""
    organization, front_end, path = any_organization(rng), rng.choice(NAMES), rng.choice(PATHS)
    found = find_directory(organization, front_end, path)
    kind, service = path_class(organization, front_end, path)
    if found is not None:
        assert (kind, service) == (found.path_class, found.service.casefold())
    else:
        assert kind is class_of_service(service)
    assert service == service.casefold()
