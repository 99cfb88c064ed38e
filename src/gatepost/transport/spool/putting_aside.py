"""Messages that cannot be used, or that somebody is to look into: quarantined, taken back, forgotten (SPEC T2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from gatepost.transport.message import Envelope
from gatepost.transport.spool.asking import Asking
from gatepost.transport.spool.changes import Change, Kind


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A message that was put aside. `at` is in seconds since 1970; no envelope: it cannot be read."""

    number: int
    reason: str
    at: float
    envelope: Envelope | None


class PuttingAside(Asking):
    """The part of `DiskSpool` that does it."""

    _decode: Callable[[bytes], Envelope]

    def quarantine(self, number: int, reason: str) -> Awaitable[None]:
        """Put it aside: it is no message of the queue any more, and its content stays for whoever looks into it."""
        return self._ask_away(Change(Kind.QUARANTINE, None, number, text=reason))

    def resume(self, number: int) -> Awaitable[None]:
        """Make a quarantined message one of the queue again; `envelope` tells whether it was one."""
        return self._ask(Change(Kind.RESUME, None, number))

    def forget(self, number: int) -> Awaitable[None]:
        """Remove a quarantined message with its content."""
        return self._ask(Change(Kind.FORGET, None, number))

    async def quarantined(self) -> list[Quarantined]:
        """What was put aside, by number. `body` works for them too. Raises OSError."""
        found = []
        for number, reason, at, blob in await self._readers.quarantined():
            envelope = None
            with suppress(msgspec.DecodeError):
                envelope = self._decode(blob)
            found.append(Quarantined(number, reason, at, envelope))
        return found

    def _ask_away(self, change: Change) -> Awaitable[None]:
        self._recent.forget(change.number)
        self._removing.add(change.number)
        return self._ask(change)
