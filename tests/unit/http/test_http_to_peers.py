"""What goes to other front ends and comes back from them, and that nobody else can speak like one (SPEC C11, C14)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from http_harness import World, directories, get, head_of, mailbox_server, response
from peer_client import LetIn, PeerClient
from peer_samples import NOW, SERVERS, front_end, peer_keys

from gatepost.access.http.destination import Destination
from gatepost.access.http.identity import Identity, Way
from gatepost.access.http.peer import PeerEntrance
from gatepost.access.http.response import peer_refusal
from gatepost.configuration.settings import Configuration
from gatepost.organization.model import Version
from gatepost.routing.outcome import Target


async def test_no_client_can_send_an_assertion(world: World) -> None:
    """On the ordinary listener the field, and all that begin like it, never reach a server."""
    client = world.client()
    await client.send(get("/owa/", "X-Gatepost-Assertion: abc", "X-Gatepost-Refused: abc", "X_Gatepost_Assertion: abc"))
    got = world.servers[0].take().lower()
    assert b"gatepost-" not in got
    assert b"gatepost_" not in got


async def test_without_a_peer_certificate_there_are_no_peers(world: World) -> None:
    """Nor the libraries that they need."""
    assert world.door.peers is None
    assert not world.door.protocol(tls=True).is_peer


async def test_a_mailbox_server_cannot_pose_as_a_refusing_peer(world: World) -> None:
    """What only peers say is taken out of its responses."""
    client = world.client()
    got = await client.ask(get("/owa/"), response("403 Forbidden", "X-Gatepost-Refused: no", "X-CalculatedBETarget: x"))
    first, fields, _ = head_of(got)
    assert first == "HTTP/1.1 403 Forbidden"
    assert "x-gatepost-refused" not in fields
    assert "x-calculatedbetarget" not in fields


# --- to peers


def target(server: str = "CAS-02") -> Target:
    endpoint = SERVERS[server].peer_endpoint
    assert endpoint is not None
    directory = directories(server, "/owa")[0]
    return Target(server, endpoint, directory, f"https://{server.lower()}.contoso.com/owa", peer=True)


async def test_the_line_for_a_peer_is_taken_there(peers: World, let_in: list[LetIn]) -> None:
    """What CAS-02 sends is what CAS-01 understands: the two ends of one wire."""
    sender = World(
        [mailbox_server("MBX-1"), front_end("CAS-02")], directories("MBX-1", "/owa"), peer_keys=peer_keys("CAS-02")
    )
    own = replace(sender.configuration.organization.servers["CAS-01"], version=Version.MODERN)
    organization = replace(sender.configuration.organization, servers={**SERVERS, "CAS-01": own})
    front = replace(sender.configuration.front_end, server="CAS-02")
    configuration = Configuration(organization, front)
    outgoing = PeerEntrance(sender.door, configuration, lambda: NOW)
    client = sender.client(address="2001:db8::7")
    client.leg.reader.read(get("/owa/"))
    user = sender.sign_in.user_by_name("alice", None).user  # type: ignore[arg-type]
    assert user is not None
    line = outgoing.assertion_line(Identity(user, Way.FORMS), b"0f1e-8", target("CAS-01"), client.leg)
    assert line.startswith(b"X-Gatepost-Assertion: ")
    assert line.endswith(b"\r\n")
    peer = PeerClient(peers, "CAS-02")
    assert (await peer.ask(line.decode().rstrip()))[0] == "HTTP/1.1 200 OK"
    assert let_in[0].identity.via == ("CAS-02",)
    assert b"X-Forwarded-For: 2001:db8::7\r\n" in peer.leg.forwarded
    assert b"X-Forwarded-Host: mail.contoso.com\r\n" in peer.leg.forwarded


async def test_a_peers_word_for_the_mailbox_server_is_passed_on(peers: World) -> None:
    """C14: X-FEServer is the front end that the client talks to, X-BEServer the server that made the response."""
    destination = Destination(target(), SERVERS["CAS-02"], "CAS-01", peers.door._pool(target(), SERVERS["CAS-02"]))
    assert destination.lines_about({b"x-beserver": b"MBX-07"}) == (
        b"X-FEServer: CAS-01\r\nX-CalculatedBETarget: CAS-02\r\nX-BEServer: MBX-07\r\nrequest-id: "
    )


@pytest.mark.parametrize("word", [b"", b"x" * 65, b"a\tb", b"a,b", b"<b>", b"M\xd6"])
async def test_a_peers_word_that_is_no_name_is_not(peers: World, word: bytes) -> None:
    """Then it is the peer itself that is named."""
    destination = Destination(target(), SERVERS["CAS-02"], "CAS-01", peers.door._pool(target(), SERVERS["CAS-02"]))
    assert destination.lines_about({b"x-beserver": word}) == (
        b"X-FEServer: CAS-01\r\nX-BEServer: CAS-02\r\nrequest-id: "
    )


async def test_peers_have_pools_and_tls_of_their_own(peers: World) -> None:
    """A connection that shows our certificate is never used for the same server's public endpoint."""
    asked: list[bool] = []

    def context(server: Any, *, peer: bool = False) -> Any:
        asked.append(peer)
        return object()

    peers.door._client_context = context
    other = replace(target(), peer=False)
    assert peers.door._pool(target(), SERVERS["CAS-02"]) is not peers.door._pool(other, SERVERS["CAS-02"])
    assert asked == [True, False]


async def test_without_a_peer_certificate_nothing_is_sent_to_peers(world: World) -> None:
    """The fault is named; nothing is tried."""
    world.configuration.organization.servers["CAS-02"] = SERVERS["CAS-02"]
    assert world.door.destination(target()).fault == "this front end has no peer certificate"


def test_what_a_peer_refuses_is_a_temporary_fault_for_the_client() -> None:
    """It is between front ends; no client may take it for a wrong password or a lost mailbox. A loop stays a loop."""
    assert peer_refusal({}, 403) is None
    assert peer_refusal({b"x-gatepost-refused": b"expired"}, 403) == (503, "refused by the peer: expired")
    assert peer_refusal({b"x-gatepost-refused": b"a loop"}, 508) == (508, "refused by the peer: a loop")
    told = peer_refusal({b"x-gatepost-refused": b"\x1b[2J\xff" + b"x" * 500}, 503)
    assert told is not None
    assert told[0] == 503
    assert told[1].isascii() or told[1].isprintable()
    assert len(told[1]) < 230
