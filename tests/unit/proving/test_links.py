"""Links that a proving cuts: nothing passes meanwhile, nothing breaks, and everything arrives when they are mended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import cast

import pytest

from gatepost.lab.servers.process import Address, free_ports
from gatepost.proving.links import Links

SECONDS = 10.0


@pytest.fixture
def servers() -> dict[str, Address]:
    addresses = {"HUB-01": "127.0.88.1", "HUB-02": "127.0.88.2", "HUB-03": "127.0.88.3"}
    return {name: (address, free_ports(address, 1)[0]) for name, address in addresses.items()}


@pytest.fixture
def links(servers: dict[str, Address]) -> Iterator[Links]:
    made = Links(servers)
    yield made
    made.close()
    made.close()


class Echo(asyncio.Protocol):
    """Says everything again, louder. `all_of_them` are those that are open."""

    def __init__(self, all_of_them: set[Echo]) -> None:
        self._all = all_of_them

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._all.add(self)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data.upper())

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.discard(self)


class Closing(asyncio.Protocol):
    """Ends each connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).close()


async def test_what_is_sent_over_a_cut_link_arrives_when_it_is_mended(
    servers: dict[str, Address], links: Links
) -> None:
    """A connection that stands, and one that is made meanwhile; other links go on."""
    loop, echoes = asyncio.get_running_loop(), set[Echo]()
    listening = [await loop.create_server(lambda: Echo(echoes), *servers[name]) for name in ("HUB-02", "HUB-03")]
    async with asyncio.timeout(SECONDS):
        near, far = ("HUB-01", "HUB-02"), ("HUB-01", "HUB-03")
        reader, writer = await asyncio.open_connection(servers[near[1]][0], links.ports[near])
        other_reader, other_writer = await asyncio.open_connection(servers[far[1]][0], links.ports[far])
        writer.write(b"before")
        assert await reader.readexactly(6) == b"BEFORE"
        links.cut("HUB-02", ["HUB-01"])
        other_writer.write(b"other")
        assert await other_reader.readexactly(5) == b"OTHER"  # and the cut was made before it
        writer.write(b"during")
        new_reader, new_writer = await asyncio.open_connection(servers[near[1]][0], links.ports[near])
        new_writer.write(b"new")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(reading := asyncio.ensure_future(reader.readexactly(6))), 0.1)
        links.mend()
        assert await reading == b"DURING"
        assert await new_reader.readexactly(3) == b"NEW"
        for one in (writer, other_writer, new_writer):
            one.close()
            await one.wait_closed()
        for _ in range(1000):
            if not echoes:
                break
            await asyncio.sleep(0.01)
        for server in listening:
            server.close()
            await server.wait_closed()


async def test_the_end_of_a_connection_is_passed_on(servers: dict[str, Address], links: Links) -> None:
    """Also when nobody is there."""
    pair = ("HUB-02", "HUB-01")
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection(servers[pair[1]][0], links.ports[pair])
        assert await reader.read() == b""
        writer.close()
        listening = await asyncio.get_running_loop().create_server(Closing, *servers[pair[1]])
        reader, writer = await asyncio.open_connection(servers[pair[1]][0], links.ports[pair])
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        listening.close()
        await listening.wait_closed()


async def test_a_link_that_refuses_ends_its_connections(servers: dict[str, Address], links: Links) -> None:
    """Those that stand, and new ones; after it is mended they pass again."""
    pair = ("HUB-01", "HUB-02")
    echoes = set[Echo]()
    listening = await asyncio.get_running_loop().create_server(lambda: Echo(echoes), *servers[pair[1]])
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection(servers[pair[1]][0], links.ports[pair])
        writer.write(b"before")
        assert await reader.readexactly(6) == b"BEFORE"
        links.cut("HUB-01", ["HUB-02"], refuse=True)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        refused, writer = await asyncio.open_connection(servers[pair[1]][0], links.ports[pair])
        with suppress(ConnectionResetError):
            assert await refused.read() == b""
        writer.close()
        links.mend()
        reader, writer = await asyncio.open_connection(servers[pair[1]][0], links.ports[pair])
        writer.write(b"after")
        assert await reader.readexactly(5) == b"AFTER"
        writer.close()
        for _ in range(1000):
            if not echoes:
                break
            await asyncio.sleep(0.01)
        listening.close()
        await listening.wait_closed()
