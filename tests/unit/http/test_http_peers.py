"""What comes from other front ends (SPEC C11): who they are, whom they vouch for, what is refused and what is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from http_harness import World, get
from peer_client import Handshake, LetIn, PeerClient, PeerTransport, entrance, refusals, reload
from peer_samples import NOW, ca_pair, peer_keys

from gatepost.access.admission import Admission
from gatepost.access.http.identity import Way
from gatepost.access.http.peer import BASIC_REFUSED
from gatepost.access.http.peer_leg import OWN_BYTES, OWN_FIELDS
from gatepost.access.tls import PEER_ALPN
from gatepost.directory.port import SignInResult, Verdict
from gatepost.organization.model import Version
from gatepost.peers.assertion import MAX_HOPS

# --- who is let in


async def test_a_peer_vouches_for_a_user(peers: World, let_in: list[LetIn]) -> None:
    """One connection carries the requests of many; each has its own assertion."""
    peer = PeerClient(peers)
    for user in ("alice", "bob"):
        first, _, _ = await peer.ask(peer.line(user))
        assert first == "HTTP/1.1 200 OK"
    assert [(i.user.name, i.way, i.password, i.via) for i in (each.identity for each in let_in)] == [
        ("alice", Way.PEER, "", ("CAS-02",)),
        ("bob", Way.PEER, "", ("CAS-02",)),
    ]
    assert refusals(peers) == []


async def test_the_client_is_the_one_that_the_first_front_end_saw(peers: World, let_in: list[LetIn]) -> None:
    """For limits, logs, affinity and what the mailbox server is told; the request keeps its id."""
    peer = PeerClient(peers)
    await peer.ask(peer.line(), "X-Forwarded-For: 10.9.9.9")
    _, address, forwarded, request_id = let_in[0]
    assert address == ("198.51.100.9", 5555)
    assert (
        b"X-Forwarded-For: 198.51.100.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: mail.contoso.com" in forwarded
    )
    assert b"10.9.9.9" not in forwarded
    assert request_id == b"0f1e-7"


async def test_nothing_of_a_request_stays_for_the_next(peers: World, let_in: list[LetIn]) -> None:
    """The second one has no assertion: it is nobody's, and its refusal is logged with the peer's own address."""
    peer = PeerClient(peers)
    await peer.ask(peer.line())
    first, fields, _ = await peer.ask()
    assert first == "HTTP/1.1 403 Forbidden"
    assert fields["x-gatepost-refused"] == "no assertion"
    assert len(let_in) == 1
    line = peers.log.of("peer.refused")[0]
    assert (line["client"], line["peer"], line["reason"]) == ("127.0.1.2", "CAS-02", "no assertion")


async def test_an_older_peer_says_nothing_of_the_client(peers: World, let_in: list[LetIn]) -> None:
    """Then it is the peer that the mailbox server is told of."""
    peer = PeerClient(peers)
    assert (await peer.ask(peer.line(version=Version.V2010)))[0] == "HTTP/1.1 200 OK"
    assert let_in[0].identity.via == ()
    assert b"X-Forwarded-For: 127.0.1.2\r\n" in peer.leg.forwarded


# --- who is not


async def refused(world: World, peer: PeerClient, *lines: str, status: str = "403 Forbidden") -> str:
    """Send a request that must be refused; the reason, which log and peer are told alike."""
    first, fields, _ = await peer.ask(*lines)
    assert first == f"HTTP/1.1 {status}"
    assert fields["x-gatepost-refused"] == refusals(world)[-1]
    return fields["x-gatepost-refused"]


async def test_basic_between_front_ends_is_refused(peers: World, let_in: list[LetIn]) -> None:
    """C11: with a clear line in the log, whether or not there is an assertion as well; no password is looked at."""
    peer = PeerClient(peers)
    basic = "Authorization: Basic YWxpY2U6b3BlbiBzZXNhbWU="
    assert await refused(peers, peer, basic) == BASIC_REFUSED
    assert "Basic between front ends is refused" in BASIC_REFUSED
    assert (await peer.ask(basic, peer.line()))[0] == "HTTP/1.1 403 Forbidden"
    assert let_in == []
    assert peers.sign_in.asked == []


async def test_replay_at_the_same_server_fails(peers: World, let_in: list[LetIn]) -> None:
    """Each assertion is taken once, also on another connection of the same peer."""
    peer = PeerClient(peers)
    line = peer.line()
    await peer.ask(line)
    assert await refused(peers, peer, line) == "taken before"
    assert await refused(peers, PeerClient(peers), line) == "taken before"
    assert len(let_in) == 1


async def test_replay_at_another_server_fails(peers: World, let_in: list[LetIn]) -> None:
    """It was made for CAS-03."""
    peer = PeerClient(peers)
    assert await refused(peers, peer, peer.line(audience="CAS-03")) == "made for another server"


async def test_another_peer_cannot_use_it(peers: World, let_in: list[LetIn]) -> None:
    """CAS-03 has a good certificate of its own and a stolen assertion of CAS-02."""
    line = PeerClient(peers, "CAS-02").line()
    reason = await refused(peers, PeerClient(peers, "CAS-03"), line)
    assert reason == "not signed with the key of the peer that presents it"
    assert let_in == []


async def test_a_forged_assertion_is_refused(peers: World, let_in: list[LetIn]) -> None:
    """Unsigned, of another key, no assertion at all."""
    peer = PeerClient(peers)
    head, payload, _ = peer.line().partition(": ")[2].split(".")
    for forged in (f"{head}.{payload}.", "eyJhbGciOiJub25lIn0.e30.", "alice", "", ".."):
        first, fields, _ = await peer.ask(f"X-Gatepost-Assertion: {forged}")
        assert first == "HTTP/1.1 403 Forbidden", forged
        assert fields["x-gatepost-refused"]
    assert let_in == []


async def test_two_assertions_are_none(peers: World, let_in: list[LetIn]) -> None:
    """A repeated field could be read in two ways."""
    peer = PeerClient(peers)
    assert (await peer.ask(peer.line("alice"), peer.line("bob")))[0] == "HTTP/1.1 400 Bad Request"
    assert let_in == []


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (SignInResult(Verdict.WRONG_CREDENTIALS, reason="unknown user"), "403 Forbidden"),
        (SignInResult(Verdict.PROTOCOL_NOT_ALLOWED, reason="the user may not use this protocol"), "403 Forbidden"),
        (SignInResult(Verdict.UNAVAILABLE, reason="the file is away"), "503 Service Unavailable"),
    ],
)
async def test_who_may_not_sign_in_here_may_not_through_a_peer(
    peers: World, let_in: list[LetIn], result: SignInResult, status: str
) -> None:
    """A directory that does not answer is a temporary fault here too."""
    peers.sign_in.verdict = result
    peer = PeerClient(peers)
    assert await refused(peers, peer, peer.line(), status=status) == result.reason
    assert peers.log.of("peer.refused")[0]["user"] == "alice"
    assert let_in == []


# --- loops


async def test_a_request_that_has_been_here_is_refused(peers: World, let_in: list[LetIn]) -> None:
    """By the peer's word, or by `Via` where an older one does not say it."""
    peer = PeerClient(peers)
    line = peer.line(via=("CAS-01", "CAS-03"))
    assert "has been here before" in await refused(peers, peer, line, status="508 Loop Detected")
    old = peer.line(version=Version.V2010)
    assert "been here" in await refused(peers, peer, old, "Via: 1.1 CAS-01, 1.1 x", status="508 Loop Detected")
    assert let_in == []


async def test_ten_hops_are_too_many(peers: World, let_in: list[LetIn]) -> None:
    """Though none of them is this one: some front ends send it round among themselves."""
    peer = PeerClient(peers)
    for hops in (MAX_HOPS, MAX_HOPS + 1, 10):
        via = tuple(f"CAS-{n:02}" for n in range(50, 50 + hops - 1))
        first, _, _ = await peer.ask(peer.line(via=via))
        assert first == ("HTTP/1.1 200 OK" if hops <= MAX_HOPS else "HTTP/1.1 508 Loop Detected")
    assert refusals(peers)[-1] == "a loop: the request has passed 10 front ends"


# --- connections


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("CAS-02", {"organization": "fabrikam"}, "the certificate is not signed by the organization's CA"),
        ("CAS-01", {}, "it is this front end itself"),
        ("MBX-01", {}, "'MBX-01' is no client access server of the organization"),
        ("CAS-06", {}, "'CAS-06' is no client access server of the organization"),
        ("CAS-02", {"alpn": None}, f"does not speak {PEER_ALPN}"),
        ("CAS-02", {"alpn": "http/1.1"}, f"does not speak {PEER_ALPN}"),
    ],
)
async def test_who_is_no_peer_is_closed_at_once(
    peers: World, let_in: list[LetIn], name: str, options: dict[str, Any], reason: str
) -> None:
    """Before a byte of a request is looked at."""
    peer = PeerClient(peers, name, **options)
    assert peer.transport.closed
    assert refusals(peers) == [reason]
    peer.leg.data_received(get("/owa/", peer.line(), user=""))
    await peers.settle()
    assert peer.transport.take() == b""
    assert let_in == []


async def test_a_connection_without_a_certificate_is_closed(peers: World) -> None:
    """TLS has seen to it already; if it had not, this would."""
    for handshake in (Handshake(None, PEER_ALPN), None):
        leg = peers.door.protocol(tls=True, peer=True)
        transport = PeerTransport(leg, handshake)
        leg.connection_made(transport)  # type: ignore[arg-type]
        assert transport.closed
    assert refusals(peers) == ["no client certificate", "no TLS"]


async def test_a_front_end_that_leaves_the_organization_is_refused_on_its_open_connections(
    peers: World, let_in: list[LetIn]
) -> None:
    """The next request is told, and the connection ends. One that stays goes on."""
    leaves, stays = PeerClient(peers, "CAS-02"), PeerClient(peers, "CAS-03")
    await leaves.ask(leaves.line())
    reload(peers, **{"CAS-02": None})
    assert "no client access server" in await refused(peers, leaves, leaves.line())
    assert leaves.transport.closed
    assert (await stays.ask(stays.line()))[0] == "HTTP/1.1 200 OK"


async def test_another_ca_counts_for_open_connections_too(peers: World, let_in: list[LetIn]) -> None:
    """And while the file holds both, both are good."""
    peer = PeerClient(peers)
    keys = peer_keys("CAS-01")
    both = ca_pair().certificate + ca_pair("fabrikam").certificate
    reload(peers, replace(keys, organization_ca=both))
    assert (await peer.ask(peer.line()))[0] == "HTTP/1.1 200 OK"
    reload(peers, replace(keys, organization_ca=ca_pair("fabrikam").certificate))
    assert "not signed by" in await refused(peers, peer, peer.line())


async def test_what_was_taken_stays_taken_through_a_reload(peers: World, let_in: list[LetIn]) -> None:
    """A new configuration does not forget."""
    peer = PeerClient(peers)
    line = peer.line()
    await peer.ask(line)
    reload(peers)
    assert await refused(peers, peer, line) == "taken before"


async def test_a_certificate_that_ends_ends_its_connections(peers: World, let_in: list[LetIn]) -> None:
    """Pooled connections live long; the certificate counts at each request."""
    peer = PeerClient(peers)
    entrance(peers)._clock = lambda: NOW + 31 * 86400
    assert await refused(peers, peer, peer.line()) == "the certificate is not valid now"
    assert peer.transport.closed


async def test_peers_are_counted_by_their_own_address(peers: World, let_in: list[LetIn]) -> None:
    """What they say of clients moves no counter; they are no strangers, however many connections they have."""
    admission = peers.door._admission = Admission(2, 100)
    connected = [PeerClient(peers) for _ in range(5)]
    assert (admission.sessions, admission.unauthenticated) == (5, 0)
    for peer in connected:
        await peer.ask(peer.line())
        peer.transport.lose()
    assert (admission.sessions, admission.unauthenticated) == (0, 0)
    assert {line["client"] for line in peers.log.of("http.connection")} == {"127.0.1.2"}


async def test_a_head_that_fitted_at_the_first_front_end_fits_here(peers: World, let_in: list[LetIn]) -> None:
    """It has become longer on the way: by the assertion and what is said of the client."""
    limits = peers.door.limits
    peer = PeerClient(peers)
    assert (OWN_FIELDS, OWN_BYTES) == (20, 8192)
    lines = [f"X-{n}: 1" for n in range(limits.http_headers)]
    assert (await peer.ask(*lines, peer.line()))[0] == "HTTP/1.1 200 OK"
    assert (await peer.ask("X-Long: " + "x" * (limits.http_head_bytes - 100), peer.line()))[0] == "HTTP/1.1 200 OK"
    first, _, _ = await peer.ask("X-Long: " + "x" * (limits.http_head_bytes + OWN_BYTES), peer.line())
    assert first == "HTTP/1.1 431 Request Header Fields Too Large"


async def test_the_session_list_names_the_peer(peers: World, let_in: list[LetIn]) -> None:
    """Beside the users whose requests it carries."""
    PeerClient(peers)
    assert [entry["peer"] for entry in peers.door.sessions()] == ["CAS-02"]


async def test_many_refusals_of_one_kind_are_one_line_a_second(peers: World, let_in: list[LetIn]) -> None:
    """A peer that is set up wrongly does not fill the disk; the number is told."""
    peer = PeerClient(peers)
    for _ in range(20):
        await peer.ask()
    entrance(peers).handshake_failed("192.0.2.66", "unable to get local issuer certificate")
    assert [(line["reason"], line["count"]) for line in peers.log.of("peer.refused")] == [
        ("no assertion", 1),
        ("TLS: unable to get local issuer certificate", 1),
    ]
    await peers.pass_time(1.0)
    assert peers.log.of("peer.refused")[-1]["count"] == 19
