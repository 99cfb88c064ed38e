"""Fixtures of the HTTP front door's tests."""

from __future__ import annotations

import pytest
from http_harness import World, directories, mailbox_server
from peer_client import PEERS, LetIn, entrance
from peer_samples import NOW, peer_keys

from gatepost.access.http import client_leg
from gatepost.access.http.client_leg import HttpClientLeg


@pytest.fixture
async def world() -> World:
    """A front door in memory."""
    return World()


@pytest.fixture
async def peers() -> World:
    """CAS-01, whose peers are CAS-02 to CAS-04; the clock stands still."""
    world = World([mailbox_server("MBX-1"), *PEERS], directories("MBX-1", "/owa"), peer_keys=peer_keys("CAS-01"))
    entrance(world)._clock = lambda: NOW
    return world


@pytest.fixture
def let_in(monkeypatch: pytest.MonkeyPatch) -> list[LetIn]:
    """What was let in. What is done for it afterwards is another matter: here it gets a plain 200."""
    found: list[LetIn] = []

    def begin(leg: HttpClientLeg) -> None:
        assert leg.is_peer
        identity = leg.peer_identity()
        if identity is not None:
            found.append(LetIn(identity, leg.address, leg.forwarded, leg.request_id()))
            leg.answer(200)

    monkeypatch.setattr(client_leg.front, "begin", begin)
    return found
