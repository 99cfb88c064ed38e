"""What a spool keeps beside its queue: the `ShadowSpool` port (SPEC S1, S2; exchange-facts 4.4, 4.5)."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from gatepost.transport.message import Envelope
from gatepost.transport.ports import BodyWriter
from gatepost.transport.shadow.ports import Kept, Role, ShadowSpool
from gatepost.transport.spool.aside import Rows
from gatepost.transport.spool.asking import Asking
from gatepost.transport.spool.changes import Change, Kind, Move
from gatepost.wire.shadow_messages import Discarded

T = TypeVar("T")

BATCH = 1000
"""Rows read at once."""
AT_ONCE = 64
"""Keys or tokens in one change: a change is written whole or not at all, and must find room in the journal."""
EXPIRED_AT_ONCE = 200
"""Messages of the safety net that one change lets go of."""

_SHADOWS = """
SELECT number, key, server, identity, until FROM shadow WHERE (number, key) > (?, ?) ORDER BY number, key LIMIT ?
"""
_SAFETY_NET = """
SELECT number, key, server, identity, until FROM safety_net WHERE number > ? ORDER BY number LIMIT ?
"""
_SINCE = """
SELECT number, key, server, identity, until FROM delivery JOIN safety_net USING (number, at)
WHERE database = ? AND at BETWEEN ? AND ? ORDER BY at, number
"""
_SUMS = """
SELECT database, count(*), sum(server <> ''), min(until) FROM delivery JOIN safety_net USING (number, at)
GROUP BY database ORDER BY database
"""


class Keeping(Asking, ShadowSpool):
    """The part of `DiskSpool` that keeps messages beside the queue."""

    def __init__(self) -> None:
        self.kept_count = 0
        """Messages that are kept beside the queue: shadows and the safety net's."""
        self._taken_back: set[int] | None = set()
        self._expiring: asyncio.Future[int] | None = None
        self._noted = 0
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode_event = msgspec.msgpack.Decoder(Discarded).decode

    @abstractmethod
    def _put_new(
        self, change: Change, writer: BodyWriter, envelope: Envelope, kept: Sequence[Kept] = ()
    ) -> asyncio.Future[int]:
        """Have a new message written."""

    def keep(self, writer: BodyWriter, envelope: Envelope, kept: Kept) -> Awaitable[int]:
        """Put a copy on disk that is not queued. Refused at once by a disk that is full or fails, as a commit is."""
        return self._put_new(Move(Kind.KEEP), writer, envelope, [kept])

    def set_aside(self, number: int, envelope: Envelope, kept: Sequence[Kept]) -> Awaitable[None]:
        """A message of the queue, or one that is kept, is kept from now on for each of `kept` and for nothing else."""
        blob = self._encode(envelope)
        self._recent.forget(number)
        if number in self._removing:  # it is gone
            return self._ask(Change(Kind.UPDATE, None, number, blob))
        self._updating[number] = blob
        return self._ask(Move(Kind.SET_ASIDE, None, number, blob, rows=rows_of(number, envelope, kept)))

    def take_back(self, number: int, envelope: Envelope) -> Awaitable[None]:
        """A kept message is one of the queue again. What `messages` has yet to read leaves it out."""
        blob = self._updating[number] = self._encode(envelope)
        if self._taken_back is not None:
            self._taken_back.add(number)
        return self._ask(Move(Kind.TAKE_BACK, None, number, blob))

    def let_go(self, kept: Sequence[tuple[int, str]]) -> Awaitable[None]:
        """Nothing is kept of these (number, key) any more; a message goes with the last of its keys."""
        return self._all(
            self._ask(Move(Kind.LET_GO, keys=part, weight=2 * len(part))) for part in _pieces(kept, AT_ONCE)
        )

    async def expire(self, now: float, most: int = 1000) -> bool:
        """Let go of the safety net's messages whose `until` is past, of some at a time that others may write between.

        Whether there are more than `most`; called every few seconds. Safe while another call is under way.
        """
        if self._expiring is not None:
            return False
        done = 0
        try:
            while done < most:
                limit = min(EXPIRED_AT_ONCE, most - done)
                self._expiring = self._ask(Move(Kind.EXPIRE, expire=(now, limit), weight=2 * limit))
                expired = await asyncio.shield(self._expiring)
                done += expired
                if expired < limit:
                    return False
        finally:
            self._expiring = None
        return True

    async def kept(self, role: Role) -> AsyncIterator[list[Kept]]:
        """All that is on disk, by number, in lists. Raises OSError."""
        number, key = 0, ""
        while True:
            if role is Role.SHADOW:
                rows = await self._readers.rows(_SHADOWS, (number, key, BATCH))
            else:
                rows = await self._readers.rows(_SAFETY_NET, (number, BATCH))
            if not rows:
                return
            number, key = rows[-1][:2]
            yield [_kept(role, row) for row in rows]

    async def kept_since(self, database: str, since: float, until: float) -> list[Kept]:
        """The safety net's copies for a database, delivered from `since` to `until`, oldest first. Raises OSError."""
        rows = await self._readers.rows(_SINCE, (database, since, until))
        return [_kept(Role.SAFETY_NET, row) for row in rows]

    async def safety_net_sums(self) -> list[tuple[str, int, int, float]]:
        """By database: messages, those of other hubs, the first `until`. Raises OSError."""
        rows = await self._readers.rows(_SUMS, ())
        return [(str(row[0]), int(row[1]), int(row[2]), float(row[3])) for row in rows]

    def note_discards(self, server: str, events: Sequence[Discarded]) -> Awaitable[None]:
        """Keep discard events until they are acknowledged; a token's later event replaces the one before."""
        return self._all(
            self._ask(
                Move(
                    Kind.DISCARDS,
                    discards={(server, event.token): (self._now(), self._encode(event)) for event in part},
                    weight=len(part),
                )
            )
            for part in _pieces(events, AT_ONCE)
        )

    def forget_discards(self, server: str, tokens: Sequence[str]) -> Awaitable[None]:
        """They are acknowledged, or too old. Forgets the token's latest event, whichever was acknowledged."""
        return self._all(
            self._ask(
                Move(Kind.DISCARDS, discards={(server, token): None for token in part}, weight=len(part)),
            )
            for part in _pieces(tokens, AT_ONCE)
        )

    async def discards(self) -> dict[str, list[Discarded]]:
        """All that are on disk, by server, oldest first. Raises OSError."""
        found: dict[str, list[Discarded]] = {}
        for server, event in await self._readers.rows("SELECT server, event FROM discard ORDER BY noted", ()):
            found.setdefault(server, []).append(self._decode_event(event))
        return found

    def _now(self) -> int:
        """Nanoseconds since 1970, never the same twice: the order of events."""
        self._noted = max(self._noted + 1, time.time_ns())
        return self._noted

    def _all(self, futures: Iterator[asyncio.Future[None]]) -> asyncio.Future[Any]:
        """One future for all of them."""
        asked = list(futures)
        if not asked:
            done: asyncio.Future[None] = self._loop.create_future()
            done.set_result(None)
            return done
        return asked[0] if len(asked) == 1 else asyncio.gather(*asked)


def _pieces(whole: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (whole[at : at + size] for at in range(0, len(whole), size))


def rows_of(number: int, envelope: Envelope, kept: Sequence[Kept]) -> Rows:
    """Of each key one row, and one of the safety net: the last that is said of them."""
    shadows = {one.key: one for one in kept if one.role is Role.SHADOW}
    rows = Rows([(number, one.key, one.primary, one.identity, one.until) for one in shadows.values()])
    for one in kept:
        if one.role is Role.SAFETY_NET:
            databases = msgspec.json.encode(envelope.databases).decode()
            last = (number, one.key, one.primary, one.identity, one.until, envelope.delivered, databases)
            rows.safety_net[:] = [last]
    return rows


def _kept(role: Role, row: tuple[Any, ...]) -> Kept:
    return Kept(row[0], role, *row[1:])
