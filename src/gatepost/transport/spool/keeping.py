"""What a spool keeps beside its queue: facts, messages put aside for a fault, and the `ShadowSpool` port (SPEC S1)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from gatepost.transport.message import Envelope
from gatepost.transport.ports import BodyWriter
from gatepost.transport.shadow.ports import Kept, Role, ShadowSpool
from gatepost.transport.spool.committing import Change, Kind
from gatepost.transport.spool.reading import Readers
from gatepost.transport.spool.recent import Recent
from gatepost.wire.shadow_messages import Discarded

AT_ONCE = 1000
"""Rows read, or let go of, at a time."""
_encode_event = msgspec.msgpack.Encoder().encode
_decode_event = msgspec.msgpack.Decoder(Discarded).decode


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A message that was put aside. `at` is in seconds since 1970; no envelope: it cannot be read."""

    number: int
    reason: str
    at: float
    envelope: Envelope | None


class Keeping(ShadowSpool):
    """Facts, what was put aside, and `ShadowSpool`."""

    _encode: Callable[[Envelope], bytes]
    _readers: Readers
    _recent: Recent
    _updating: dict[int, bytes]
    _putting: dict[str, bytes | None]
    _decode: Callable[[bytes], Envelope]

    @abstractmethod
    def _ask(self, change: Change) -> Awaitable[None]:
        """Have it written."""

    @abstractmethod
    def _commit(self, writer: BodyWriter, envelope: Envelope, kept: Sequence[tuple[Kept, float]]) -> Awaitable[int]:
        """Put a new message on disk; with `kept` it is none of the queue."""

    def keep(self, writer: BodyWriter, envelope: Envelope, kept: Kept) -> Awaitable[int]:
        """See `ShadowSpool`."""
        return self._commit(writer, envelope, [(kept, envelope.delivered)])

    def set_aside(self, number: int, envelope: Envelope, kept: Sequence[Kept]) -> Awaitable[None]:
        """See `ShadowSpool`. One that is kept already is kept for these reasons from then on."""
        blob = self._encode(envelope)
        self._recent.forget(number)
        self._updating[number] = blob
        reasons = [(replace(each, number=number), envelope.delivered) for each in kept]
        return self._ask(Change(Kind.SET_ASIDE, None, number, blob, kept=reasons))

    def take_back(self, number: int, envelope: Envelope) -> Awaitable[None]:
        """See `ShadowSpool`."""
        blob = self._encode(envelope)
        self._updating[number] = blob
        return self._ask(Change(Kind.TAKE_BACK, None, number, blob))

    def let_go(self, kept: Sequence[tuple[int, str]]) -> Awaitable[None]:
        """See `ShadowSpool`."""
        return self._ask(Change(Kind.LET_GO, pairs=list(kept)))

    async def kept(self, role: Role) -> AsyncIterator[list[Kept]]:
        """See `ShadowSpool`."""
        after = (0, "")
        read = self._readers.shadows if role is Role.SHADOW else self._readers.net
        while rows := await read(after, AT_ONCE):
            after = (rows[-1][0], rows[-1][1])
            if role is Role.SHADOW:
                yield [Kept(row[0], role, row[1], row[2], row[3], row[4]) for row in rows]
            else:
                yield [Kept(row[0], role, row[1], "", "", row[3]) for row in rows]

    async def kept_since(self, database: str, since: float, until: float) -> list[Kept]:
        """See `ShadowSpool`: oldest first."""
        rows = await self._readers.net_since(database, since, until)
        return [Kept(row[0], Role.SAFETY_NET, row[1], "", "", row[3]) for row in rows]

    async def expire(self, now: float) -> int:
        """Let go of some of the safety net's copies whose time is over; how many. More than 0: there may be more.

        Raises OSError.
        """
        found = await self._readers.net_expired(now, AT_ONCE)
        if found:
            await self.let_go(found)
        return len(found)

    def note_discards(self, server: str, events: Sequence[Discarded]) -> Awaitable[None]:
        """See `ShadowSpool`. One of a token that has an event replaces that."""
        noted: dict[tuple[str, str], bytes | None] = {(server, event.token): _encode_event(event) for event in events}
        return self._ask(Change(Kind.NOTE, events=noted))

    def forget_discards(self, server: str, tokens: Sequence[str]) -> Awaitable[None]:
        """See `ShadowSpool`."""
        return self._ask(Change(Kind.NOTE, events={(server, token): None for token in tokens}))

    async def discards(self) -> dict[str, list[Discarded]]:
        """See `ShadowSpool`. What was just noted may be missing: await that first."""
        found: dict[str, list[Discarded]] = {}
        for server, blob in await self._readers.discards():
            found.setdefault(server, []).append(_decode_event(blob))
        for events in found.values():
            events.sort(key=lambda event: event.at)
        return found

    def put(self, name: str, value: bytes | None) -> Awaitable[None]:
        """Keep a fact under a name; None forgets it. As durable as messages, in the same groups."""
        self._putting[name] = value
        return self._ask(Change(Kind.PUT, None, blob=value, text=name))

    async def get(self, name: str) -> bytes | None:
        """A fact, as of the last `put`; None: there is none. Raises OSError."""
        return self._putting[name] if name in self._putting else await self._readers.fact(name)

    async def facts(self, prefix: str) -> dict[str, bytes]:
        """All on disk whose names begin with `prefix`. Raises OSError."""
        return await self._readers.facts(prefix)

    async def quarantined(self) -> list[Quarantined]:
        """What was put aside, by number. `body` works for them too. Raises OSError."""
        found = []
        for number, reason, at, blob in await self._readers.quarantined():
            envelope = None
            with suppress(msgspec.DecodeError):
                envelope = self._decode(blob)
            found.append(Quarantined(number, reason, at, envelope))
        return found
