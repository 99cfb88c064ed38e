"""Clients that send numbered messages, and go on with a message until somebody has answered for it (SPEC T2)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from zlib import crc32

from gatepost.lab.servers.process import Address
from gatepost.proving.sink import CHECK_FIELD

REPLY_SECONDS = 60.0
"""For one answer; a hub that starts again is given its time."""
PAUSE_SECONDS = (0.05, 0.3)
"""Before a message is tried again."""
LINE = b"0123456789abcdef" * 4 + b"\r\n"
DOMAIN = "sink.example"
LARGE_EVERY = 50
"""So often a message is large: a file of its own in the spool."""


class Refused(Exception):
    """The hub has answered with another reply than was hoped for."""

    def __init__(self, reply: bytes) -> None:
        super().__init__(reply.decode("ascii", "replace").strip())
        self.for_now = reply.startswith(b"4")
        self.code = reply[:3].decode("ascii", "replace")


def content(number: int, rng: random.Random) -> bytes:
    """A message of 0.5 to 8 kB, or sometimes of 70 to 300 kB, as it is sent after DATA, without the last dot."""
    lines = rng.randint(1000, 4500) if number % LARGE_EVERY == 0 else rng.randint(4, 120)
    body = b"%d\r\n" % number + LINE * lines
    head = b"From: <a@contoso.com>\r\nTo: <b@sink.example>\r\nSubject: %d\r\nMessage-ID: <%d@proving.contoso.com>\r\n"
    return head % (number, number) + CHECK_FIELD + b"%08x\r\n\r\n" % crc32(body) + body


class Senders:
    """All clients. An identity is `NUMBER.ATTEMPT`: each attempt at a message has its own."""

    def __init__(
        self,
        places: Sequence[Address],
        numbers: Iterable[int],
        sessions: int,
        seed: int,
        domains: Sequence[str] = (DOMAIN,),
    ) -> None:
        """A message for each number, at any of `places`, to a recipient in any of `domains`."""
        self._places = places
        self._domains = domains
        self._numbers: Iterator[int] = iter(numbers)
        self._sessions = sessions
        self._seed = seed
        self.acknowledged: set[str] = set()
        """Identities that were answered with 250 at their end."""
        self.in_doubt: set[str] = set()
        """Those that were sent to their end and not answered."""
        self.refused: Counter[str] = Counter()
        """Replies for the moment, by code."""
        self.refused_for_good: list[str] = []
        self.broken = 0
        """Connections that ended before an answer."""
        self._more = asyncio.Condition()

    async def run(self) -> None:
        """Send all messages."""
        chances = [random.Random(self._seed + number) for number in range(self._sessions)]  # noqa: S311 - no secrets
        await asyncio.gather(*map(self._client, chances))

    async def reached(self, count: int) -> None:
        """Wait until so many messages were acknowledged."""
        async with self._more:
            await self._more.wait_for(lambda: len(self.acknowledged) >= count)

    async def _client(self, rng: random.Random) -> None:
        session: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        for number in self._numbers:
            message = content(number, rng)
            attempt = 0
            while True:
                attempt += 1
                identity = f"{number}.{attempt}"
                try:
                    if session is None:
                        session = await self._connect(rng.choice(self._places))
                    await self._send(session, f"{identity}@{rng.choice(self._domains)}", message)
                except (OSError, EOFError, TimeoutError):
                    self.broken += 1
                except Refused as refusal:
                    if not refusal.for_now:
                        self.refused_for_good.append(f"{identity}: {refusal}")
                        break
                    self.refused[refusal.code] += 1
                else:
                    break
                if session is not None:
                    session[1].transport.abort()
                    session = None
                await asyncio.sleep(rng.uniform(*PAUSE_SECONDS))
        if session is not None:
            session[1].transport.abort()

    async def _connect(self, place: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(REPLY_SECONDS):
            session = await asyncio.open_connection(*place)
        try:
            await _expect(session[0], b"220")
            session[1].write(b"EHLO proving.contoso.com\r\n")
            await _expect(session[0], b"250")
        except BaseException:
            session[1].transport.abort()
            raise
        return session

    async def _send(
        self, session: tuple[asyncio.StreamReader, asyncio.StreamWriter], recipient: str, message: bytes
    ) -> None:
        reader, writer = session
        identity = recipient.partition("@")[0]
        writer.write(b"MAIL FROM:<>\r\nRCPT TO:<%s>\r\nDATA\r\n" % recipient.encode())
        await _expect(reader, b"250")
        await _expect(reader, b"250")
        await _expect(reader, b"354")
        writer.write(message + b".\r\n")
        self.in_doubt.add(identity)
        await writer.drain()
        try:
            await _expect(reader, b"250")
        except Refused:
            self.in_doubt.discard(identity)
            raise
        self.in_doubt.discard(identity)
        async with self._more:
            self.acknowledged.add(identity)
            self._more.notify_all()


async def _expect(reader: asyncio.StreamReader, code: bytes) -> None:
    """One reply. Raises `Refused` for another code, EOFError, OSError, TimeoutError."""
    async with asyncio.timeout(REPLY_SECONDS):
        while True:
            line = await reader.readline()
            if not line.endswith(b"\n"):
                raise EOFError
            if line[3:4] != b"-":
                break
    if not line.startswith(code):
        raise Refused(line)


async def end(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
