"""The relay over real sockets on loopback: order, back-pressure, half-close, ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from gatepost.relay import relay as relay_module
from gatepost.relay.relay import HIGH_WATER, Relay


class Pair:
    """A relay between two socket pairs; `client` and `server` are the far ends, as plain blocking-free sockets."""

    def __init__(self) -> None:
        self.ended: list[Relay] = []
        self.relay: Relay

    async def open(self) -> Pair:
        loop = asyncio.get_running_loop()
        self.client, inner_client = socket.socketpair()
        self.server, inner_server = socket.socketpair()
        for end in (self.client, self.server, inner_client, inner_server):
            end.setblocking(False)
        transports = []
        for end in (inner_client, inner_server):
            transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, end)
            transports.append(transport)
        self.relay = Relay(transports[0], transports[1], self.ended.append)
        self.relay.start()
        return self

    def close(self) -> None:
        self.client.close()
        self.server.close()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    opened = await Pair().open()
    yield opened
    opened.relay.abort("test over")
    opened.close()
    await asyncio.sleep(0)


async def receive(sock: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes, or what came until the end."""
    loop = asyncio.get_running_loop()
    got = bytearray()
    while len(got) < size:
        chunk = await asyncio.wait_for(loop.sock_recv(sock, 65536), 5)
        if not chunk:
            break
        got += chunk
    return bytes(got)


async def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """Wait for a condition that the loop brings about."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the relay has no event to wait for, and needs none
            await asyncio.sleep(0.001)


async def test_bytes_pass_both_ways_and_are_counted(pair: Pair) -> None:
    """What goes in comes out, once and in order."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(pair.client, b"a NOOP\r\n")
    assert await receive(pair.server, 8) == b"a NOOP\r\n"
    await loop.sock_sendall(pair.server, b"a OK\r\n")
    assert await receive(pair.client, 6) == b"a OK\r\n"
    assert (pair.relay.bytes_in, pair.relay.bytes_out) == (8, 6)


async def test_a_slow_reader_stops_the_other_side_and_loses_nothing(pair: Pair) -> None:
    """Field case 22: 10 MB towards a reader that sleeps stay with the sender; then all of it arrives."""
    loop = asyncio.get_running_loop()
    payload = bytes(range(256)) * 40960
    sending = asyncio.ensure_future(loop.sock_sendall(pair.server, payload))
    await until(lambda: pair.relay.bytes_out > HIGH_WATER)
    held = -1
    while held != pair.relay.bytes_out:  # until nothing moves any more
        held = pair.relay.bytes_out
        await asyncio.sleep(0.05)
    assert not sending.done()
    assert held < 4 * HIGH_WATER
    assert await receive(pair.client, len(payload)) == payload
    await sending


async def test_the_end_of_one_side_flushes_and_ends_the_other(pair: Pair) -> None:
    """Field case 21: both halves die together, and the last bytes are delivered."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(pair.server, b"* BYE\r\n" * 1000)
    pair.server.close()
    assert await receive(pair.client, 1 << 20) == b"* BYE\r\n" * 1000
    pair.client.close()
    await until(lambda: pair.ended)
    assert pair.ended == [pair.relay]
    assert pair.relay.reason == "server closed"


async def test_a_half_close_lets_the_answer_through(pair: Pair) -> None:
    """A client that shuts its sending side down still gets what the server has to say."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(pair.client, b"a LOGOUT\r\n")
    pair.client.shutdown(socket.SHUT_WR)
    assert await receive(pair.server, 1 << 20) == b"a LOGOUT\r\n"
    await loop.sock_sendall(pair.server, b"* BYE\r\na OK\r\n")
    pair.server.close()
    assert await receive(pair.client, 1 << 20) == b"* BYE\r\na OK\r\n"
    await until(lambda: pair.ended)
    assert pair.relay.reason == "client closed"


async def test_a_quiet_relay_is_ended_with_the_farewell(pair: Pair) -> None:
    """Idle means no byte in either direction since the last sweep that saw one."""
    now = asyncio.get_running_loop().time()
    pair.relay.sweep(now + 10, 60, b"* BYE idle\r\n")
    assert not pair.relay.reason
    await asyncio.get_running_loop().sock_sendall(pair.client, b"x")
    await receive(pair.server, 1)
    pair.relay.sweep(now + 50, 60, b"* BYE idle\r\n")
    pair.relay.sweep(now + 109, 60, b"* BYE idle\r\n")
    assert not pair.relay.reason
    pair.relay.sweep(now + 111, 60, b"* BYE idle\r\n")
    assert await receive(pair.client, 100) == b"* BYE idle\r\n"
    await until(lambda: pair.ended)
    assert pair.relay.reason == "idle"


class Told(asyncio.Protocol):
    """The protocol from before the relay: it is told that the client is full, and nobody is told again."""

    full = False

    def pause_writing(self) -> None:
        self.full = True


@pytest.mark.parametrize("before", [True, False])
async def test_a_client_that_is_full_at_the_start_holds_the_server_up(before: bool) -> None:
    """Whether it was full before the relay or what comes first fills it: the server is read when there is room."""
    loop = asyncio.get_running_loop()
    client, inner_client = socket.socketpair()
    server, inner_server = socket.socketpair()
    for end in (client, server, inner_client, inner_server):
        end.setblocking(False)
    to_client, told = await loop.connect_accepted_socket(Told, inner_client)
    to_server, _ = await loop.connect_accepted_socket(asyncio.Protocol, inner_server)
    ended: list[Relay] = []
    relay = Relay(to_client, to_server, ended.append)
    first, later = b"f" * (2 << 20), b"l" * (8 << 20)
    if before:
        to_client.write(first)
        assert told.full
        relay.start(client_full=told.full)
    else:
        relay.start(first)
    sending = asyncio.ensure_future(loop.sock_sendall(server, later))
    await asyncio.sleep(0.05)
    assert not sending.done()
    assert to_client.get_write_buffer_size() <= len(first) + HIGH_WATER
    assert await receive(client, len(first) + len(later)) == first + later
    await sending
    relay.abort("test over")
    await until(lambda: ended)
    client.close()
    server.close()


async def test_a_server_that_what_comes_first_fills_holds_the_client_up(pair: Pair) -> None:
    """What the client had sent ahead counts like what it sends later."""
    loop = asyncio.get_running_loop()
    pair.relay.start(to_server=b"f" * (2 << 20))
    sending = asyncio.ensure_future(loop.sock_sendall(pair.client, b"l" * (8 << 20)))
    await asyncio.sleep(0.05)
    assert pair.relay._server.transport.get_write_buffer_size() <= (2 << 20) + HIGH_WATER
    assert len(await receive(pair.server, 10 << 20)) == 10 << 20
    await sending


async def test_a_side_that_never_takes_its_rest_is_cut(pair: Pair) -> None:
    """After the end of one side the other has a bounded time to make progress."""
    loop = asyncio.get_running_loop()
    sending = asyncio.ensure_future(loop.sock_sendall(pair.server, b"x" * (8 << 20)))
    await until(lambda: pair.relay.bytes_out > HIGH_WATER)
    pair.relay.close("drained", b"* BYE\r\n")
    with pytest.raises(ConnectionError):
        await sending
    now = loop.time()
    pair.relay.sweep(now + 1, 3600, b"")
    pair.relay.sweep(now + relay_module.LINGER_SECONDS / 2, 3600, b"")
    await asyncio.sleep(0.01)
    assert not pair.ended
    pair.relay.sweep(now + 2 + relay_module.LINGER_SECONDS, 3600, b"")
    await until(lambda: pair.ended)


async def test_a_reset_names_the_side(pair: Pair) -> None:
    """The log can say who went away and how."""
    pair.relay.abort("drained")
    await until(lambda: pair.ended)
    assert pair.relay.reason == "drained"
    assert await receive(pair.client, 1) == b""
