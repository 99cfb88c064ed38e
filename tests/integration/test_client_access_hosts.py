"""Attempts of clients to choose a host (SPEC C14): whatever they say, nobody connects to where they point."""

from __future__ import annotations

import http.client
import itertools
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import quote

import pytest
from bodies import Canary
from doors import Servers
from sites import Sites
from sites_figure import ARRAY, HOMES

from gatepost.organization.model import Version
from gatepost.peers.assertion import AssertionSigner, Client

SILENCE_SECONDS = 0.3
"""After the last answer, for a connection that somebody might yet make."""
AFFINITY, SIGN_IN = "__Host-gatepost-server", "__Host-gatepost"


@pytest.fixture(scope="module")
def cage(servers: Servers) -> Iterator[Canary]:
    """The canary is shown to be able to sing."""
    made = Canary(servers.address())
    for place in made.places:
        socket.create_connection(place, timeout=5.0).close()
    deadline = time.monotonic() + 5.0
    while len(made.visits) < len(made.places):
        assert time.monotonic() < deadline, "the canary is dumb"
        time.sleep(0.01)
    made.visits.clear()
    yield made
    time.sleep(SILENCE_SECONDS)
    made.close()
    assert made.visits == []


@pytest.fixture
def canary(cage: Canary) -> Iterator[Canary]:
    """Somewhere no front end has any business: nobody has been there when the test is over."""
    yield cage
    assert cage.visits == []


def _spellings(canary: Canary) -> list[str]:
    """The canary as a value: host and port, URLs, as part of an address, as an old cookie spells a server."""
    (address, port), (_, local_port) = canary.places
    places = [f"{address}:{port}", f"localhost:{local_port}"]
    urls = [f"{scheme}://{place}/owa/" for scheme in ("http", "https") for place in places]
    return [*places, *urls, f"user3@{places[0]}", f"user3~{places[0]}~{port}", f"contoso.com@{places[0]}"]


class Talk:
    """Requests as they are to one front end, on one connection while it keeps it."""

    def __init__(self, sites: Sites, front_end: str) -> None:
        self._sites = sites
        self._place = sites.place(front_end)
        self._socket: ssl.SSLSocket | None = None

    def ask(self, request: str) -> bytes:
        """The answer, head and body."""
        if self._socket is None:
            plain = socket.create_connection(self._place, timeout=20.0)
            self._socket = self._sites.context.wrap_socket(plain, server_hostname=self._place[0])
        self._socket.sendall(request.encode("latin-1"))
        answer = http.client.HTTPResponse(self._socket, method=request.partition(" ")[0])
        answer.begin()
        head = f"HTTP/1.1 {answer.status} {answer.reason}\r\n{answer.headers}".encode()
        body = answer.read()
        if answer.will_close:
            self.close()
        answer.close()
        return head + body

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _exchange(sites: Sites, front_end: str, request: str) -> bytes:
    """The answer to one request."""
    with closing(Talk(sites, front_end)) as talk:
        return talk.ask(request)


def _request(
    sites: Sites, *lines: str, target: str = "/owa/", host: str = "mail.contoso.com", user: str = "user3"
) -> str:
    credentials = [f"Authorization: {sites.basic(user)['Authorization']}"]
    fields = [f"Host: {host}", "Accept: application/json", *credentials, *lines]
    return "\r\n".join([f"GET {target} HTTP/1.1", *fields, "", ""])


def _served(answer: bytes, user: str = "user3") -> bool:
    """Whether the user's own mailbox server has answered, for the user."""
    served = f"X-BEServer: {HOMES[user]}".encode() in answer
    return answer.startswith(b"HTTP/1.1 200 ") and served and f'"user": "{user}@contoso.com"'.encode() in answer


HEADERS = (
    "X-AnchorMailbox", "X-TargetServer", "X-TargetBEServer", "X-BEServer", "X-FEServer", "X-CalculatedBETarget",
    "X-BackEndCookie", "X-BackEndOverrideCookie", "X-ProxyUri", "X-Forwarded-Host", "X-Forwarded-Server",
    "X-Forwarded-For", "X-Forwarded-Proto", "X-Host", "X-Original-URL", "X-Original-Host", "X-Rewrite-URL", "Forwarded",
    "X-Gatepost-Server", "X-Gatepost-Peer", "X-MS-Location", "X-WebObjects-Server-URL", "Origin", "Referer", "From",
    "X-UserIdentity", "X-PublicFolderMailbox", "X-MS-Proxy", "Destination", "Location", "Content-Location",
)  # fmt: skip
COOKIES = (
    "X-BackEndCookie", "X-BackEndCookie2", "X-BackEndOverrideCookie", "X-BEResource", "X-AnonResource-Backend",
    "X-TargetServer", "ClientId", "X-BEServer", AFFINITY, SIGN_IN,
)  # fmt: skip


@pytest.mark.parametrize("front_end", ["CAS-02", "CAS-03"])
@pytest.mark.parametrize("name", HEADERS)
def test_no_header_chooses_a_host(sites: Sites, canary: Canary, name: str, front_end: str) -> None:
    """The mailbox's own server answers, in the mailbox's site and over a hop; or the request is refused."""
    with closing(Talk(sites, front_end)) as talk:
        for path, value in itertools.product(("/owa/", "/EWS/x"), _spellings(canary)):
            answer = talk.ask(_request(sites, f"{name}: {value}", target=path))
            refused = name == "Destination" and answer.startswith(b"HTTP/1.1 502 ")
            assert _served(answer) or refused, answer[:300]


@pytest.mark.parametrize("name", COOKIES)
def test_no_cookie_chooses_a_host(sites: Sites, canary: Canary, name: str) -> None:
    """Neither the source system's, spelled plainly or encoded, nor one of our own that we have not made."""
    with closing(Talk(sites, "CAS-02")) as talk:
        for value in _spellings(canary):
            for spelled in (value, quote(value, safe="")):
                answer = talk.ask(_request(sites, f"Cookie: {name}={spelled}"))
                assert _served(answer), answer[:300]


def test_host_chooses_no_host(sites: Sites, canary: Canary) -> None:
    """A name that is not ours is answered as ours, or refused when it is no name."""
    with closing(Talk(sites, "CAS-02")) as talk:
        for value in _spellings(canary):
            answer = talk.ask(_request(sites, host=value))
            assert _served(answer) or answer.startswith(b"HTTP/1.1 400 "), answer[:300]


def test_an_absolute_target_chooses_no_host(sites: Sites, canary: Canary) -> None:
    """A front end is no forward proxy: the path counts; CONNECT is not known."""
    place = "{}:{}".format(*canary.places[0])
    requests = [_request(sites, target=value) for value in _spellings(canary) if "//" in value]
    requests += [_request(sites).replace("GET /owa/", f"CONNECT {place}")]
    targets = (f"//{place}/owa/", f"/owa/../..//{place}/", f"/owa/%2f%2f{place}/", f"/{place}/owa/", f"@{place}/owa/")
    requests += [_request(sites, target=target) for target in targets]
    with closing(Talk(sites, "CAS-02")) as talk:
        for request in requests:
            answer = talk.ask(request)
            assert answer.startswith(b"HTTP/1.1 4") or _served(answer), (request, answer[:300])


def test_the_path_of_an_explicit_logon_names_a_mailbox_never_a_host(sites: Sites, canary: Canary) -> None:
    """`/owa/user1@contoso.com/` is a mailbox; anything else is the user's own."""
    for value in _spellings(canary):
        answer = _exchange(sites, "CAS-02", _request(sites, target=f"/owa/{quote(value, safe='@:')}/"))
        assert _served(answer) or answer.startswith(b"HTTP/1.1 4"), answer[:300]


def test_another_users_affinity_cookie_is_not_followed(sites: Sites) -> None:
    """Dave's cookie at user3's request: the server takes its turn, and user3 gets a cookie of their own."""
    cookies = sites.web("CAS-02", "dave").cookies
    assert AFFINITY in cookies
    ways = set()
    for _ in range(4):
        answer = sites.web("CAS-02", "user3", headers={"Cookie": f"{AFFINITY}={cookies[AFFINITY]}"})
        assert (answer.status, answer.facts["user"]) == (200, "user3@contoso.com")
        assert answer.cookies[AFFINITY] != cookies[AFFINITY]
        ways.add(answer.headers["x-calculatedbetarget"])
    assert ways == set(ARRAY)


def _flipped(value: str, at: int) -> str:
    return value[:at] + ("A" if value[at] != "A" else "B") + value[at + 1 :]


def test_a_changed_affinity_cookie_is_void(sites: Sites) -> None:
    """Each of its parts: version, key, nonce, text, tag."""
    good = sites.web("CAS-02", "user3").cookies[AFFINITY]
    assert sites.web("CAS-02", "user3", headers={"Cookie": f"{AFFINITY}={good}"}).cookies == {}
    for value in (*(_flipped(good, at) for at in (0, 3, 12, 40, len(good) - 4)), good[:-8], good * 2, "", "x" * 3000):
        answer = sites.web("CAS-02", "user3", headers={"Cookie": f"{AFFINITY}={value}"})
        assert (answer.status, AFFINITY in answer.cookies) == (200, True)


def _assertion(sites: Sites, signer: str, audience: str) -> str:
    """What `signer` says when it proxies a request of user1; made with its real key."""
    key = (sites.directory / "peers" / f"{signer.lower()}-peer.key").read_bytes()
    client = Client("192.0.2.1", 4711, True, "mail.contoso.com")
    its = AssertionSigner(key, signer, 60.0)
    return its.sign(its.payload("user1@contoso.com", "r1", audience, client, (), time.time(), Version.MODERN)).decode()


def test_an_assertion_from_a_client_counts_for_nothing(sites: Sites) -> None:
    """Good, and signed by a real front end for this one: but only the peers' endpoint takes it."""
    line = f"X-Gatepost-Assertion: {_assertion(sites, 'CAS-02', 'CAS-03')}"
    assert _served(_exchange(sites, "CAS-03", _request(sites, line)))
    nobody = _request(sites, line).replace(f"Authorization: {sites.basic('user3')['Authorization']}\r\n", "")
    assert _exchange(sites, "CAS-03", nobody).startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 302 "))


def _peer_context(sites: Sites, certificate: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(sites.directory / "ca" / "organization-ca.crt"))
    context.check_hostname = False
    context.set_alpn_protocols(["gatepost-peer/1"])
    if certificate == "front":
        context.load_cert_chain(sites.front_end["certificate"], sites.front_end["private_key"])
    return context


@pytest.mark.parametrize("certificate", [None, "front"])
def test_who_is_no_front_end_is_not_let_in_where_front_ends_are(sites: Sites, certificate: str | None) -> None:
    """Neither without a certificate nor with one that another CA has signed."""
    host, port = sites.place("CAS-03", "peer")
    request = _request(sites, f"X-Gatepost-Assertion: {_assertion(sites, 'CAS-02', 'CAS-03')}")
    answer = b""
    try:
        with (
            socket.create_connection((host, port), timeout=10.0) as plain,
            _peer_context(sites, certificate).wrap_socket(plain) as secured,
        ):
            secured.sendall(request.encode())
            answer = secured.recv(65536)
    except OSError:
        pass  # TLS has refused it
    assert b"200" not in answer
    assert b"X-BEServer" not in answer
