"""A Redis that answers what no Redis does is away, whatever it answers: never an error that nobody expects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from gatepost.configuration.settings import SharedStoreSettings
from gatepost.sharedstate.store.port import Commit, Put, StoreAway
from gatepost.sharedstate.store.redis import RedisKeyValues
from gatepost.sharedstate.store.rounds import Rounds

PATIENCE_SECONDS = 20.0
PRELUDE = b"+OK\r\n"
"""The answer to what the library says of itself at the beginning."""
GARBAGE = {
    "no number": b":abc\r\n",
    "no length": b"$abc\r\n",
    "a negative length": b"$-5\r\n",
    "a list in lists without end": b"*1\r\n" * 5000 + b":1\r\n",
    "an error without its words": b"-MOVED\r\n",
    "a number without end": b":" + b"9" * 5000 + b"\r\n",
    "a line without end": b"+" + b"a" * 1_000_000,
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "octets": b"\x00\xff\xfe\r\n",
}


class Liar:
    """Answers everything with `answer`, but commands of the library's own."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.asked = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while said := await reader.read(65536):
                writer.write(PRELUDE * said.count(b"SETINFO"))
                if b"EVAL" in said:
                    self.asked.set()
                    writer.write(self.answer)
        writer.close()


@pytest.fixture(params=GARBAGE.values(), ids=GARBAGE)
def liar(request: pytest.FixtureRequest) -> Liar:
    return Liar(request.param)


@pytest.fixture
async def store(liar: Liar) -> AsyncIterator[RedisKeyValues]:
    server = await asyncio.start_server(liar.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    found = RedisKeyValues(SharedStoreSettings(b"s" * 32, "gatepost", url=f"redis://127.0.0.1:{port}/0"))
    yield found
    await found.close()
    server.close()
    await server.wait_closed()


async def test_a_read_finds_the_store_away(store: RedisKeyValues) -> None:
    with pytest.raises(StoreAway):
        await asyncio.wait_for(store.read(["one"]), PATIENCE_SECONDS)


async def test_a_change_finds_the_store_away(store: RedisKeyValues) -> None:
    with pytest.raises(StoreAway):
        await asyncio.wait_for(store.commit([Commit({"one": None}, {"one": Put(b"x", 5.0)})]), PATIENCE_SECONDS)


@pytest.mark.parametrize("liar", [Liar(GARBAGE["a list in lists without end"])], ids=["lists"])
async def test_it_is_asked_again_after_garbage(store: RedisKeyValues, liar: Liar) -> None:
    """Else the front end would count alone until it is started again."""
    rounds = Rounds(store, asyncio.get_running_loop(), 5.0, "probe")
    rounds.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await liar.asked.wait()
        liar.answer = b"*3\r\n$10\r\n1790000000\r\n$1\r\n0\r\n$-1\r\n"
        while not await rounds.ready(0.1):
            pass
    await rounds.end()


@pytest.mark.parametrize("liar", [Liar(b"*3\r\n:1790000000\r\n:0\r\n:30\r\n")], ids=["a number"])
async def test_a_number_in_the_place_of_a_value_is_none(store: RedisKeyValues) -> None:
    with pytest.raises(StoreAway):
        await asyncio.wait_for(store.read(["one"]), PATIENCE_SECONDS)
