"""Front ends that send a request round in a circle (SPEC C11), all in one process, joined by their bytes."""

from __future__ import annotations

from typing import Any

import pytest
from http_harness import Client, World, directories, get, head_of
from peer_client import PeerClient, refusals
from peer_samples import front_end, peer_keys

from gatepost.configuration.settings import Configuration, FrontEnd
from gatepost.organization.model import Organization, Site
from gatepost.peers.assertion import MAX_HOPS
from gatepost.routing.outcome import Proxy, Target


class Ring:
    """So many front ends, each of which believes that every mailbox is reached through the next one."""

    def __init__(self, size: int) -> None:
        self.names = [f"CAS-{n:02}" for n in range(1, size + 1)]
        servers = {name: front_end(name, f"127.0.1.{n}") for n, name in enumerate(self.names, 1)}
        self.organization = Organization("contoso", sites={"usa": Site("usa")}, servers=servers)
        self.worlds = {name: self._world(name, following) for name, following in self._pairs()}
        self._links: dict[int, PeerClient] = {}

    def _pairs(self) -> list[tuple[str, str]]:
        return list(zip(self.names, [*self.names[1:], self.names[0]], strict=True))

    def _world(self, name: str, following: str) -> World:
        world = World()
        front = FrontEnd(name, "", "", peer_keys=peer_keys(name))
        world.door.reload(Configuration(self.organization, front), world.context)
        endpoint = self.organization.servers[following].peer_endpoint
        assert endpoint is not None
        target = Target(following, endpoint, directories(following, "/owa")[0], f"https://{following}/owa", peer=True)
        router: Any = world.router
        router.decide = lambda *_, **__: Proxy(target)
        return world

    async def ask(self, request: bytes) -> bytes:
        """A client's request to the first; what comes back."""
        client: Client = self.worlds[self.names[0]].client()
        client.transport.protocol.data_received(request)
        moved = True
        while moved:
            moved = False
            for name, world in self.worlds.items():
                await world.settle()
                for transport in world.servers:
                    moved |= self._carry(name, transport)
        return client.transport.take()

    def _carry(self, name: str, transport: Any) -> bool:
        """Bytes of one connection between two front ends, both ways; whether there were any."""
        if id(transport) not in self._links:
            there = next(s.name for s in self.organization.servers.values() if s.address == transport.peer[0])
            self._links[id(transport)] = PeerClient(self.worlds[there], name)
        peer = self._links[id(transport)]
        forth, back = transport.take(), peer.transport.take()
        if forth and not peer.transport.closed:
            peer.leg.data_received(forth)
        if back and not transport.closed:
            transport.protocol.data_received(back)
        return bool(forth or back)

    @property
    def connections(self) -> int:
        """Between all of them."""
        return len(self._links)


@pytest.mark.parametrize("size", [2, 3, MAX_HOPS])
async def test_a_request_that_comes_back_is_refused_where_it_began(size: int) -> None:
    """Once through the circle and no further; the client is told, and is not asked to try again."""
    ring = Ring(size)
    first, fields, _ = head_of(await ring.ask(get("/owa/")))
    assert first == "HTTP/1.1 508 Loop Detected"
    assert fields["x-feserver"] == "CAS-01"
    assert "retry-after" not in fields
    assert ring.connections == size
    assert refusals(ring.worlds["CAS-01"]) == ["a loop: the request has been here before"]


async def test_ten_hops_are_not_made() -> None:
    """A ring of ten: the one after the fourth refuses, before anybody has seen the request twice."""
    ring = Ring(10)
    first, _, _ = head_of(await ring.ask(get("/owa/")))
    assert first == "HTTP/1.1 508 Loop Detected"
    assert ring.connections == MAX_HOPS + 1
    last = ring.names[MAX_HOPS + 1]
    assert refusals(ring.worlds[last]) == [f"a loop: the request has passed {MAX_HOPS + 1} front ends"]


async def test_one_request_costs_one_request_at_each() -> None:
    """No front end tries again what ended in a loop, not even a method that could be repeated."""
    ring = Ring(3)
    await ring.ask(get("/owa/", method="PROPFIND"))
    assert [sum(leg.requests for leg in world.door._legs) for world in ring.worlds.values()] == [2, 1, 1]
