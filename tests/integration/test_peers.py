"""Between front ends (SPEC C11, C12), with real processes: who is let in, what is refused, what if one dies."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from doors import Servers
from kerberos_kit import HOST, Realm
from peers_stage import Peers, Thief

from gatepost.lab.clients import web_visit
from gatepost.lab.servers.gatepost import Gatepost, run_gatepost
from gatepost.lab.toml_text import toml_text
from gatepost.organization.model import Version
from gatepost.peers.assertion import AssertionSigner, Client

CLIENT = Client("192.0.2.7", 40000, tls=True, host="mail.contoso.com")
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="apt-get install curl")


@pytest.fixture(scope="module")
def peers(servers: Servers) -> Iterator[Peers]:
    """CAS-01 to CAS-03."""
    made = Peers(servers)
    yield made
    made.stop()


@pytest.fixture
def thief(peers: Peers) -> Iterator[Thief]:
    """CAS-09, which is one of us by its certificate."""
    made = Thief(peers)
    yield made
    made.close()


def assertion(peers: Peers, by: str, audience: str, user: str = "bob", seconds: float = 60.0) -> str:
    """The header line that front end `by` would send to `audience`: made with its key, which the test has."""
    signer = AssertionSigner(Path(peers.files(by)[1]).read_bytes(), by, seconds)
    now = time.time()
    value = signer.sign(signer.payload(f"{user}@contoso.com", "test-1", audience, CLIENT, (), now, Version.MODERN))
    return f"X-Gatepost-Assertion: {value.decode()}"


@contextmanager
def refusal(peers: Peers, at: str, reason: str) -> Iterator[None]:
    """What is done within is refused by `at`, whose log gets a new line with this reason."""
    front_end = peers.front_ends[at]
    before = len(front_end.events("peer.refused"))
    yield
    deadline = time.monotonic() + 5
    while not any(line["reason"].startswith(reason) for line in front_end.events("peer.refused")[before:]):
        assert time.monotonic() < deadline, front_end.log_tail()
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("front_end", "user", "peer", "server"),
    [
        ("CAS-01", "bob", "CAS-02", "MBX-32"),
        ("CAS-01", "carol", "CAS-03", "MBX-33"),
        ("CAS-02", "carol", "CAS-03", "MBX-33"),
        ("CAS-03", "bob", "CAS-02", "MBX-32"),
    ],
)
def test_everything_reaches_a_front_end_outside_the_internet_through_a_peer(
    peers: Peers, front_end: str, user: str, peer: str, server: str
) -> None:
    """C12: it needs no external name. The user is known there without a password, the client by its own address."""
    answer = peers.visit(front_end, user)
    assert answer.status == 200, answer.text
    names = ("x-feserver", "x-calculatedbetarget", "x-beserver")
    assert tuple(answer.headers[name] for name in names) == (front_end, peer, server)
    assert answer.facts["user"] == f"{user}@contoso.com"
    way = answer.facts["way"]
    assert way["X-Forwarded-Host"] == "mail.contoso.com"
    assert way["X-Request-Id"] == answer.headers["request-id"]
    assert [hop.split()[1] for hop in way["Via"].split(", ")] == [front_end, peer]
    line = peers.front_ends[peer].wait_for_event("http.request", request_id=answer.headers["request-id"])
    assert (line["user"], line["server"]) == (f"{user}@contoso.com", server)


def test_a_user_at_home_takes_no_peer(peers: Peers) -> None:
    """The site's own front end goes straight (C1)."""
    answer = peers.visit("CAS-01", "alice")
    assert answer.headers["x-beserver"] == "MBX-31"
    assert "x-calculatedbetarget" not in answer.headers


def test_a_wrong_password_crosses_nothing(peers: Peers) -> None:
    """The first front end judges it."""
    wrong, right = "/owa/wrong-password/", "/owa/right-password/"
    assert web_visit(peers.place("CAS-01"), peers.context, wrong, "bob@contoso.com", "wrong").status == 401
    peers.visit("CAS-01", "bob", right)
    peers.front_ends["CAS-02"].wait_for_event("http.request", path=right)
    assert wrong not in [line["path"] for line in peers.front_ends["CAS-02"].events("http.request")]


@needs_curl
def test_without_a_client_certificate_nobody_gets_in(peers: Peers) -> None:
    """Not even to an answer."""
    with refusal(peers, "CAS-02", "TLS: PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        status, output = peers.curl("CAS-02")
        assert status != 0
        assert "HTTP/" not in output


@needs_curl
def test_a_client_certificate_of_another_ca_gets_nobody_in(peers: Peers, tmp_path: Path) -> None:
    """It names CAS-01 in every letter."""
    run_gatepost("ca", "init", str(tmp_path / "ca"), "--name", "contoso")
    peers.issue("CAS-01", tmp_path / "ca")
    certificate, key = peers.files("CAS-01", tmp_path / "ca")
    with refusal(peers, "CAS-03", "TLS: "):
        status, output = peers.curl("CAS-03", "--cert", certificate, "--key", key)
        assert status != 0
        assert "HTTP/" not in output


@needs_curl
def test_a_stolen_assertion_is_of_no_use_without_a_certificate(peers: Peers) -> None:
    """Good for CAS-02, presented by curl."""
    status, output = peers.curl("CAS-02", "-H", assertion(peers, "CAS-01", "CAS-02"))
    assert status != 0
    assert "HTTP/" not in output


@needs_curl
def test_an_assertion_at_the_public_endpoint_is_nothing(peers: Peers) -> None:
    """There the field is dropped, and a password asked for."""
    line = assertion(peers, "CAS-01", "CAS-02")
    name, _, value = line.partition(": ")
    assert web_visit(peers.place("CAS-02"), peers.context, "/owa/", headers={name: value}).status == 401


def test_a_front_end_cannot_use_what_another_one_sent_it(peers: Peers, thief: Thief) -> None:
    """CAS-09 keeps mallory's assertion and shows it to CAS-02: made for another server, by another front end."""
    assert peers.visit("CAS-01", "mallory").text == "hello"
    stolen = f"X-Gatepost-Assertion: {thief.assertion()}"
    with refusal(peers, "CAS-02", "not signed with the key of the peer that presents it"):
        assert peers.as_peer("CAS-02", "CAS-09", stolen).startswith("HTTP/1.1 403 ")


def test_replay_fails_at_another_server_by_another_peer_and_twice(peers: Peers) -> None:
    """The one that made it may present it where it was made for, once."""
    line = assertion(peers, "CAS-01", "CAS-02")
    with refusal(peers, "CAS-03", "made for another server"):
        assert peers.as_peer("CAS-03", "CAS-01", line).startswith("HTTP/1.1 403 ")
    assert peers.as_peer("CAS-02", "CAS-03", line).startswith("HTTP/1.1 403 ")
    assert peers.as_peer("CAS-02", "CAS-01", line).startswith("HTTP/1.1 200 ")
    with refusal(peers, "CAS-02", "taken before"):
        assert peers.as_peer("CAS-02", "CAS-01", line).startswith("HTTP/1.1 403 ")


def test_basic_on_the_peer_endpoint_is_refused_with_a_clear_log_line(peers: Peers) -> None:
    """C11: also from a front end with a good certificate, and with the right password."""
    basic = "Authorization: Basic Ym9iQGNvbnRvc28uY29tOmJvYi1wdw=="
    answer = peers.as_peer("CAS-02", "CAS-03", basic)
    assert answer.startswith("HTTP/1.1 403 ")
    assert "WWW-Authenticate" not in answer
    found = peers.front_ends["CAS-02"].wait_for_event(
        "peer.refused", reason="Basic between front ends is refused: a peer sends an assertion, not a password"
    )
    assert found["peer"] == "CAS-03"


def test_an_expired_assertion_is_refused(peers: Peers) -> None:
    """Its time is over when it comes."""
    line = assertion(peers, "CAS-01", "CAS-02", seconds=0.0)
    with refusal(peers, "CAS-02", "expired"):
        assert peers.as_peer("CAS-02", "CAS-01", line).startswith("HTTP/1.1 403 ")


def test_a_user_whom_the_peer_does_not_know_is_a_temporary_fault(peers: Peers) -> None:
    """Directories may be behind each other; nobody is asked for another password."""
    front_end = peers.front_ends["CAS-01"]
    front_end.command(
        "user", "add", "erin@contoso.com", "--database", "DB32", "--password-file", str(_password(peers.directory))
    )
    with refusal(peers, "CAS-02", "unknown user"):
        deadline = time.monotonic() + 10
        while (answer := peers.visit("CAS-01", "erin")).status == 401 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert (answer.status, "retry-after" in answer.headers) == (503, True)


def _password(directory: Path) -> Path:
    file = directory / "erin"
    file.touch(mode=0o600)
    file.write_text("erin-pw")
    return file


def test_a_ring_of_front_ends_is_broken_at_the_second(peers: Peers) -> None:
    """Each one's directory says that dave's mailbox is in the next site: a request is proxied once."""
    answer = peers.visit("CAS-01", "dave", headers={"Accept": "text/html"})
    assert answer.status == 508, answer.text
    assert answer.headers["x-feserver"] == "CAS-01"
    users = [line["user"] for line in peers.front_ends["CAS-03"].events("http.request")]
    assert "dave@contoso.com" not in users


def test_one_peer_dies_and_comes_back(peers: Peers) -> None:
    """Its site's users are told to come again, all others notice nothing, and nobody has to do anything afterwards."""
    dead = peers.front_ends["CAS-02"]
    assert peers.visit("CAS-01", "bob").status == 200
    for pid in (dead.pid, *dead.workers()):
        os.kill(pid, signal.SIGKILL)
    dead.wait(5.0)
    answer = peers.visit("CAS-01", "bob")
    assert (answer.status, "retry-after" in answer.headers) == (503, True)
    assert peers.visit("CAS-01", "carol").status == 200
    assert peers.visit("CAS-01", "alice").status == 200
    dead.start()
    dead.wait_ready()
    deadline = time.monotonic() + 20
    while (answer := peers.visit("CAS-01", "bob")).status == 503 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (answer.status, answer.headers["x-beserver"]) == (200, "MBX-32")


def test_a_renewed_certificate_is_used_after_a_reload(peers: Peers) -> None:
    """As docs/front-ends.md says: renew, copy, reload. Requests go on."""
    file = Path(peers.files("CAS-02")[0])
    before = peers.shown("CAS-02")
    assert before == ssl.PEM_cert_to_DER_cert(file.read_text())
    run_gatepost("ca", "renew", "CAS-02", "-c", str(peers.organization), "--ca", str(peers.pki))
    renewed = ssl.PEM_cert_to_DER_cert(file.read_text())
    assert renewed != before
    assert peers.shown("CAS-02") == before
    peers.front_ends["CAS-02"].signal(signal.SIGHUP)
    deadline = time.monotonic() + 10
    while peers.shown("CAS-02") != renewed:
        assert time.monotonic() < deadline, peers.front_ends["CAS-02"].log_tail()
        assert peers.visit("CAS-01", "bob").status == 200
    assert peers.visit("CAS-01", "bob").status == 200


def test_a_user_who_came_by_a_ticket_goes_on_to_another_site(peers: Peers, realm: Realm) -> None:
    """By the assertion: CAS-02 sees no ticket and asks for none."""
    front = peers.front_ends["CAS-01"]
    front.wait_for_event("service.started")  # before it SIGHUP would end it
    text = front.configuration.read_text()
    table = toml_text({"front_end": {"kerberos": realm.kerberos_table()}})
    try:
        _reload(front, f"{text}\n{table}")
        (token,) = realm.tokens(f"HTTP@{HOST}", "bob")
        headers = {"Authorization": f"Negotiate {base64.b64encode(token).decode()}"}
        answer = web_visit(peers.place("CAS-01"), peers.context, "/owa/", headers=headers)
        assert (answer.status, answer.headers["x-beserver"]) == (200, "MBX-32")
    finally:
        _reload(front, text)


def _reload(front: Gatepost, text: str) -> None:
    before = len(front.events("configuration.reloaded"))
    front.configuration.write_text(text)
    front.signal(signal.SIGHUP)
    deadline = time.monotonic() + 20
    while len(front.events("configuration.reloaded")) == before:
        assert time.monotonic() < deadline, front.log_tail()
        time.sleep(0.02)
