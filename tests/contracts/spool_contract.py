"""What every spool promises. Each implementation's test file has a subclass of this with its fixture `spool`."""

from __future__ import annotations

import asyncio

import pytest

from gatepost.transport.message import Envelope, Recipient, RecipientState
from gatepost.transport.ports import BodyReader, Spool

NOW = 1_800_000_000.0
SMALL = b"Subject: small\r\n\r\nHello.\r\n"
LARGE = b"".join(b"%06d " % number * 12 + b"\r\n" for number in range(12_000))
"""A megabyte, no two blocks of which are the same."""


def envelope(sender: str = "alice@contoso.com", *recipients: str) -> Envelope:
    found = [Recipient(address) for address in recipients or ("bob@fabrikam.com",)]
    return Envelope(sender, found, received=NOW, expires=NOW + 2 * 86400)


async def put(spool: Spool, content: bytes = SMALL, sender: str = "alice@contoso.com") -> int:
    """A message on disk; its number."""
    writer = spool.writer(len(content))
    for at in range(0, len(content), 10_000):
        writer.write(content[at : at + 10_000])
        if writer.full:
            await writer.drain()
    return await spool.commit(writer, envelope(sender))


async def read(body: BodyReader) -> bytes:
    try:
        return b"".join([chunk async for chunk in body.chunks()])
    finally:
        body.close()


class SpoolContract:
    """Subclasses provide the fixture `spool`, an empty one."""

    @pytest.mark.parametrize("content", [b"", SMALL, LARGE], ids=["empty", "small", "large"])
    async def test_what_was_committed_is_there(self, spool: Spool, content: bytes) -> None:
        number = await put(spool, content)
        body = await spool.body(number)
        assert body.size == len(content)
        assert await read(body) == content
        found = await spool.envelope(number)
        assert (found.sender, found.size) == ("alice@contoso.com", len(content))

    async def test_numbers_grow_and_are_not_used_twice(self, spool: Spool) -> None:
        numbers = []
        for _ in range(5):
            numbers.append(await put(spool))
            await spool.remove(numbers[-1])
        assert numbers == sorted(set(numbers))

    async def test_many_at_once(self, spool: Spool) -> None:
        numbers = await asyncio.gather(*(put(spool, b"%d" % n * 100, f"{n}@contoso.com") for n in range(200)))
        assert len(set(numbers)) == 200
        for n, number in enumerate(numbers):
            assert (await spool.envelope(number)).sender == f"{n}@contoso.com"
            assert await read(await spool.body(number)) == b"%d" % n * 100

    async def test_an_update_is_what_the_next_envelope_says(self, spool: Spool) -> None:
        number = await put(spool)
        known = await spool.envelope(number)
        known.recipients[0].state = RecipientState.DELIVERED
        assert (await spool.envelope(number)).recipients[0].state == RecipientState.WAITING, (
            "a copy of the caller's own"
        )
        under_way = spool.update(number, known)
        assert (await spool.envelope(number)).recipients[0].state == RecipientState.DELIVERED
        await under_way
        assert (await spool.envelope(number)).recipients[0].state == RecipientState.DELIVERED

    @pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
    async def test_a_removed_message_is_gone(self, spool: Spool, content: bytes) -> None:
        number = await put(spool, content)
        other = await put(spool, content)
        await spool.remove(number)
        with pytest.raises(KeyError):
            await spool.envelope(number)
        with pytest.raises(KeyError):
            await spool.body(number)
        await spool.remove(number)
        assert await read(await spool.body(other)) == content

    async def test_an_update_brings_nothing_back(self, spool: Spool) -> None:
        number = await put(spool)
        await asyncio.gather(spool.remove(number), spool.update(number, envelope("late@contoso.com")))
        with pytest.raises(KeyError):
            await spool.envelope(number)

    async def test_an_unknown_number(self, spool: Spool) -> None:
        with pytest.raises(KeyError):
            await spool.envelope(4711)
        with pytest.raises(KeyError):
            await spool.body(4711)
        await spool.remove(4711)

    async def test_a_body_is_read_to_its_end_though_the_message_is_removed(self, spool: Spool) -> None:
        number = await put(spool, LARGE)
        body = await spool.body(number)
        chunks = body.chunks()
        first = await anext(chunks)
        await spool.remove(number)
        rest = b"".join([chunk async for chunk in chunks])
        body.close()
        body.close()
        assert first + rest == LARGE
        assert len(first) <= 256 * 1024

    @pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
    async def test_discard_at_any_moment(self, spool: Spool, content: bytes) -> None:
        writer = spool.writer(None)
        writer.discard()
        writer = spool.writer(None)
        writer.write(content)
        writer.discard()
        writer.write(content)
        writer.discard()
        with pytest.raises(OSError):  # noqa: PT011 - any
            await spool.commit(writer, envelope())
        writer = spool.writer(None)
        writer.write(content)
        under_way = asyncio.ensure_future(spool.commit(writer, envelope()))
        writer.discard()
        assert await read(await spool.body(await under_way)) == content

    async def test_a_writer_counts_and_says_when_it_is_full(self, spool: Spool) -> None:
        writer = spool.writer(None)
        written = 0
        while not writer.full:
            writer.write(bytes(50_000))
            written += 50_000
            assert written < 4_000_000
        assert writer.size == written
        await writer.drain()
        assert not writer.full
        writer.discard()

    async def test_in_hand_changes_nothing(self, spool: Spool) -> None:
        number = await put(spool)
        with spool.in_hand(number), spool.in_hand(number):
            assert (await spool.envelope(number)).crashes == 0
        assert (await spool.envelope(number)).crashes == 0
