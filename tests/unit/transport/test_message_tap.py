"""The pipe by which a hook reads a message while it still comes in."""

from __future__ import annotations

import asyncio

import pytest

from gatepost.transport.hooks.tap import HIGH, ContentAborted, MessageTap


async def test_what_is_written_is_read_in_order() -> None:
    tap = MessageTap()

    async def write() -> None:
        for number in range(100):
            tap.write(b"%d," % number)
            if number % 7 == 0:
                await asyncio.sleep(0)
        tap.end()

    writing = asyncio.ensure_future(write())
    read = b"".join([block async for block in tap.chunks()])
    await writing
    assert read == b"".join(b"%d," % number for number in range(100))


async def test_a_slow_reader_holds_the_writer_and_memory_is_bounded() -> None:
    tap = MessageTap()
    most = 0

    async def write() -> None:
        nonlocal most
        for _ in range(200):
            tap.write(b"x" * 65536)
            most = max(most, tap._waiting)
            if tap.full:
                await tap.drain()
        tap.end()

    writing = asyncio.ensure_future(write())
    total = 0
    async for block in tap.chunks():
        total += len(block)
        await asyncio.sleep(0)
    await writing
    assert total == 200 * 65536
    assert most <= HIGH + 65536


async def test_a_hook_that_reads_no_more_does_not_hold_the_client() -> None:
    tap = MessageTap()
    tap.write(b"x" * (HIGH + 1))
    assert tap.full
    tap.drop()
    await tap.drain()
    tap.write(b"x" * (HIGH + 1))
    assert not tap.full
    assert tap._waiting == 0


async def test_a_client_that_goes_away_is_told_to_the_reader() -> None:
    tap = MessageTap()
    tap.write(b"x")
    chunks = tap.chunks()
    assert await anext(chunks) == b"x"
    asyncio.get_running_loop().call_soon(tap.abort)
    with pytest.raises(ContentAborted):
        await anext(chunks)
