"""A directory that must be asked before anything is known of a name: requests wait for it, and end the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import test_forms_flow as forms
import test_http_autodiscover as autodiscover
from http_harness import World, get
from peer_client import PeerClient
from test_http_autodiscover import world as autodiscover_world  # noqa: F401 - a fixture
from test_http_client_access import Sites

from gatepost.directory.port import SignInResult, Verdict

FormsTest = Callable[[forms.FormsWorld, forms.Browser], Awaitable[None]]


@pytest.mark.parametrize(
    "test",
    [
        forms.test_a_user_is_asked_signs_in_and_is_where_they_wanted,
        forms.test_a_signed_in_user_continues_on_another_front_end,
        forms.test_another_users_cookie_is_that_users,
        forms.test_forged_and_cut_cookies,
        forms.test_time_outs_by_the_computer_chosen,
        forms.test_activity_renews_and_asking_for_news_does_not,
        forms.test_a_directory_that_is_away_is_503,
    ],
)
async def test_sign_in_cookies(test: FormsTest) -> None:
    world = forms.FormsWorld()
    world.sign_in.elsewhere = True
    await test(world, forms.Browser(world))


@pytest.mark.parametrize("change", ["password", "deleted"])
async def test_a_cookie_that_is_void_asks_for_the_sign_in_page(change: str) -> None:
    world = forms.FormsWorld()
    world.sign_in.elsewhere = True
    await forms.test_a_password_change_or_a_deleted_user_voids_it(world, forms.Browser(world), change)


@pytest.mark.parametrize(
    "test", [autodiscover.test_another_mailbox_of_the_organization, autodiscover.test_user_settings_of_several]
)
async def test_autodiscover(
    autodiscover_world: World,  # noqa: F811
    test: Callable[[World], Awaitable[None]],
) -> None:
    autodiscover_world.sign_in.elsewhere = True
    await test(autodiscover_world)


async def test_a_peers_user_is_asked_for_first(peers: World) -> None:
    peers.sign_in.elsewhere = True
    peers.sign_in.answers.clear()
    peer = PeerClient(peers)
    peer.transport.protocol.data_received(get("/owa/", peer.line(), user=""))
    await peers.settle()
    assert peer.transport.take() == b""
    peers.sign_in.answers.set()
    await peers.settle()
    answer = peer.transport.take().lower()
    assert answer.startswith(b"http/1.1 "), "let in, and answered as any other"
    assert b"x-gatepost-refused" not in answer


async def test_a_peers_user_whom_nobody_knows_is_refused_then(peers: World) -> None:
    peers.sign_in.elsewhere = True
    first, fields, _ = await PeerClient(peers).ask(PeerClient(peers).line("nobody"))
    assert first == "HTTP/1.1 403 Forbidden"
    assert fields["x-gatepost-refused"]


async def test_a_directory_that_is_away_is_503_for_a_peer(peers: World) -> None:
    peers.sign_in.elsewhere = True
    peers.sign_in.verdict = SignInResult(Verdict.UNAVAILABLE, reason="down")
    first, _, _ = await PeerClient(peers).ask(PeerClient(peers).line())
    assert first == "HTTP/1.1 503 Service Unavailable"


async def test_a_client_that_leaves_meanwhile_harms_nobody(peers: World) -> None:
    peers.sign_in.elsewhere = True
    peers.sign_in.answers.clear()
    peer = PeerClient(peers)
    peer.transport.protocol.data_received(get("/owa/", peer.line(), user=""))
    await peers.settle()
    peer.transport.protocol.connection_lost(None)
    peers.sign_in.answers.set()
    await asyncio.sleep(0)
    await peers.settle()
    assert peers.loop.connects == []


@pytest.mark.parametrize("path", ["/owa/dora@contoso.com/", "/EWS/Exchange.asmx"])
async def test_another_mailbox_is_asked_for_first(path: str) -> None:
    """By explicit logon and by an anchor."""
    world = Sites()
    world.sign_in.elsewhere = True
    lines = () if "dora" in path else ("X-AnchorMailbox: dora@contoso.com",)
    await world.ask(get(path, *lines, user="anna"))
    await world.settle()
    assert world.went_to == ["EX10-USA"]
