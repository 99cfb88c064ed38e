"""The envelopes of messages that are worked on: one object a message, however many of its parts are in hand."""

from __future__ import annotations

from gatepost.transport.message import Envelope
from gatepost.transport.ports import Spool


class Hands:
    """Envelopes by message number, read from the spool when the first part is taken, forgotten when the last is given
    back. All changes of an envelope happen in the object that `take` answers."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._held: dict[int, tuple[Envelope, int]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, number: int) -> bool:
        return number in self._held

    async def take(self, number: int) -> Envelope:
        """The envelope, until `give_back`. Raises KeyError, OSError."""
        held = self._held.get(number)
        if held is None:
            envelope = await self._spool.envelope(number)
            held = self._held.get(number, (envelope, 0))  # somebody else may have read it meanwhile
        self._held[number] = (held[0], held[1] + 1)
        return held[0]

    def adopt(self, number: int, envelope: Envelope) -> Envelope:
        """As `take`, for who has the envelope of a message that is on disk just now: others that come get the same."""
        held = self._held.get(number, (envelope, 0))
        self._held[number] = (held[0], held[1] + 1)
        return held[0]

    def give_back(self, number: int) -> None:
        """One part is no longer worked on."""
        envelope, parts = self._held[number]
        if parts == 1:
            del self._held[number]
        else:
            self._held[number] = (envelope, parts - 1)
